//! The short ways of the commonest calls. Nothing is queued, the clock is not read, and the next thread to run is
//! known, except for a signal that wakes a thread. Each looks at everything first and changes something only if all is
//! as it has to be; otherwise the general way does it ([`crate::call`]).

use crate::Slot;
use crate::core::{Store, context, id};
use crate::{
    Context, Endpoint, Event, Kernel, Machine, Notification, Place, Ref, Reply, State, Thread,
};
use bulkhead_kernel_abi::{Address, Info, Kind, Rights, Status, label};
use bulkhead_sched::{Overtake, Policy};

/// The work that a short way leaves.
pub(crate) enum Quick {
    Done,
    /// A method of the capability in the slot is called.
    Invoke(Ref<Slot>),
    Pass(Passed),
    Wake(Wake),
}

/// A message goes to a thread, and the processor with it.
pub(crate) struct Passed {
    to: Ref<Thread>,
    badge: u64,
    /// Rights of the capability that it was sent with.
    rights: Rights,
}

/// A signal that may wake a thread ([`Kernel::wake`]): the last step of an entry.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Wake {
    /// Notification that is signalled.
    pub at: Ref<Notification>,
    /// Which bits.
    pub bits: u64,
}

impl<M: Machine> Kernel<'_, M> {
    /// Returns a slot of a thread's root node, if it is one of a kind with rights.
    #[inline(always)]
    pub(crate) fn quick(
        &self,
        thread: Ref<Thread>,
        address: Address,
        kind: Kind,
        rights: Rights,
    ) -> Option<&Slot> {
        let slot = self.machine.get(self.quick_slot(thread, address)?);
        (slot.cap.is(kind) && slot.cap.rights().has(rights)).then_some(slot)
    }

    /// Returns a slot of a thread's root node. Slot 0 is empty, so it fails by its kind.
    #[inline(always)]
    fn quick_slot(&self, thread: Ref<Thread>, address: Address) -> Option<Ref<Slot>> {
        let Thread { root, root_slots, .. } = self.machine.get(thread);
        (address < *root_slots).then(|| root.nth(address))
    }

    /// Makes a call to a thread without a context that waits for one; or one that names no endpoint.
    #[inline(always)]
    pub(crate) fn fast_call(&mut self, from: Ref<Thread>) -> Option<Quick> {
        let sender = self.machine.get(from);
        let address = sender.registers.named::<M::Layout>() as Address;
        let (context, flags) = (sender.context, sender.flags);
        let named = self.quick_slot(from, address)?;
        let slot = self.machine.get(named);
        if !slot.cap.is(Kind::Endpoint) {
            // A method is no message. An empty slot goes this way, too, and is refused there.
            return Some(Quick::Invoke(named));
        }
        let (badge, rights) = (slot.cap.data, slot.cap.rights());
        if !rights.has(Rights::CALL) {
            return None;
        }
        let at: Ref<Endpoint> = slot.cap.at();
        let endpoint = self.machine.get(at);
        let to = endpoint.queue.first;
        if endpoint.state != State::Receiving as u32 {
            return None;
        }
        let receiver = self.machine.get(to);
        let (reply, next) = (receiver.reply, receiver.next);
        let priority = receiver.priority;
        // Each of these needs the general way. A receiver with time of its own takes none along, and a limit has to be
        // measured. Without a reply object a caller is refused. Vector registers would have to change hands. A deep
        // chain may have no further call. `donate` comes last: if it declines, the general way gives the context to
        // this receiver, too.
        if !receiver.context.is_none()
            || endpoint.longest != 0
            || reply.is_none()
            || (flags | receiver.flags) & (Thread::VECTORS | Thread::DEEP) != 0
            || !self.core.scheduler.donate(&mut Store(&mut *self.machine), priority)
        {
            return None;
        }
        // The receiver leaves the queue, at the head of which it waits.
        if next.is_none() {
            self.empty_endpoint(at);
        } else {
            self.leave_queue(to);
        }
        let answer = self.machine.get_mut(reply);
        (answer.caller, answer.receiver, answer.depth) = (from, Ref::NONE, 0);
        self.stack(reply, context, to);
        self.machine.get_mut(context).thread = to;
        let sender = self.machine.get_mut(from);
        sender.context = Ref::NONE;
        sender.reply = reply;
        sender.state = State::Calling as u8;
        let receiver = self.machine.get_mut(to);
        receiver.context = context;
        receiver.reply = Ref::NONE;
        receiver.next = Ref::NONE;
        receiver.state = State::Running as u8;
        self.trace_call(from, to, context);
        Some(Quick::Pass(Passed { to, badge, rights }))
    }

    /// Answers a caller and waits for the next one, if this thread runs on the caller's context.
    #[inline(always)]
    pub(crate) fn fast_reply_recv(&mut self, from: Ref<Thread>) -> Option<Quick> {
        let server = self.machine.get(from);
        let Thread { context, flags, notification, .. } = *server;
        let named = server.registers.named::<M::Layout>() as Address;
        let reply_address = (server.registers.op::<M::Layout>() >> 32) as Address;
        let slot = self.quick(from, reply_address, Kind::Reply, Rights::NONE)?;
        let reply: Ref<Reply> = slot.cap.at();
        let slot = self.quick(from, named, Kind::Endpoint, Rights::READ)?;
        let at: Ref<Endpoint> = slot.cap.at();
        let Reply { caller: to, below, held, .. } = *self.machine.get(reply);
        let waits = |n: Ref<Notification>| self.machine.get(n).bits == 0;
        // The general way for the rest: no caller, a call with a limit, another context. It also hears a signal first,
        // and senders that wait already.
        if to.is_none()
            || held != 0
            || self.machine.get(at).state != 0
            || self.machine.get(context).reply != reply
            || notification.some().is_some_and(|n| !waits(n))
        {
            return None;
        }
        let caller = self.machine.get(to);
        let priority = caller.priority;
        let vectors = Thread::VECTORS;
        let faults = Thread::FAULTS;
        if (flags & vectors) | (caller.flags & (vectors | faults)) != 0
            || !self.core.scheduler.donate(&mut Store(&mut *self.machine), priority)
        {
            return None;
        }
        // The only one in the queue.
        let endpoint = self.machine.get_mut(at);
        (endpoint.queue.first, endpoint.queue.last) = (from, from);
        endpoint.state = State::Receiving as u32;
        let answer = self.machine.get_mut(reply);
        (answer.caller, answer.receiver) = (Ref::NONE, from);
        (answer.below, answer.context) = (Ref::NONE, Ref::NONE);
        if let Some(below) = below.some() {
            let below = self.machine.get_mut(below);
            (below.above, below.context) = (Ref::NONE, context);
        }
        let held: &mut Context = self.machine.get_mut(context);
        (held.reply, held.thread) = (below, to);
        let server = self.machine.get_mut(from);
        server.context = Ref::NONE;
        server.reply = reply;
        server.state = State::Receiving as u8;
        server.waits_at = at.at();
        let caller = self.machine.get_mut(to);
        caller.context = context;
        caller.reply = Ref::NONE;
        caller.state = State::Running as u8;
        self.trace_return(from, to, context);
        Some(Quick::Pass(Passed { to, badge: 0, rights: Rights::ALL }))
    }

    /// Passes the message, and the processor with it.
    #[inline(always)]
    pub(crate) fn pass(&mut self, from: Ref<Thread>, passed: Passed) {
        let Passed { to, badge, rights } = passed;
        let info = Info(self.machine.get(from).registers.info::<M::Layout>());
        match info.short() {
            // The words fit into registers: no buffer is looked at.
            Some(words) => {
                for n in 0..words {
                    let word = self.machine.get(from).registers.word::<M::Layout>(n);
                    self.machine.get_mut(to).registers.set_word::<M::Layout>(n, word);
                }
                let registers = &mut self.machine.get_mut(to).registers;
                registers.answer::<M::Layout>(Status::OK.0, badge, info.0);
            }
            None => self.carry(from, to, badge, rights.has(Rights::GRANT)),
        }
        let Thread { space, pointer, .. } = *self.machine.get(to);
        self.core.current = to;
        self.trace_run();
        self.machine.enter_thread(pointer);
        // A switch of spaces drops translations, so threads of one program do without.
        if space != self.core.space {
            self.core.space = space;
            self.machine.enter_space(space);
        }
    }

    /// Makes a signal that wakes no thread.
    #[inline(always)]
    pub(crate) fn fast_signal(&mut self, from: Ref<Thread>) -> Option<Quick> {
        let address = self.machine.get(from).registers.named::<M::Layout>() as Address;
        let slot = self.quick(from, address, Kind::Notification, Rights::WRITE)?;
        let (at, badge) = (slot.cap.at::<Notification>(), slot.cap.data);
        let bits = crate::ipc::bits(badge);
        // A waiting thread is left to the end of the entry. A bound one may wait at an endpoint, so the general way
        // looks there.
        let done = match self.machine.get(at).queue.first.some() {
            Some(_) => Quick::Wake(Wake { at, bits }),
            None if self.machine.get(at).bound.is_none() => {
                self.machine.get_mut(at).bits |= bits;
                Quick::Done
            }
            None => return None,
        };
        self.machine.get_mut(from).registers.answer::<M::Layout>(Status::OK.0, 0, 0);
        Some(done)
    }

    /// Gives a signal, and decides which thread runs. The short way: it is for a thread that waits there on its own
    /// time.
    #[inline(always)]
    pub fn wake(&mut self, Wake { at, bits }: Wake) {
        let alone = |to: &Ref<Thread>| {
            let Thread { context, reply, .. } = self.machine.get(*to);
            !context.is_none() && reply.is_none()
        };
        // Only for a thread with time of its own: a passive one needs the notification's.
        let Some(to) = self.machine.get(at).queue.first.some().filter(alone) else {
            self.signal(at, bits);
            return self.decide();
        };
        let Thread { context, next, .. } = *self.machine.get(to);
        let overtakes = self.overtake(to, context, Overtake::Wakes);
        let notification = self.machine.get_mut(at);
        // Earlier bits that no thread has taken come along.
        let bits = core::mem::take(&mut notification.bits) | bits;
        match next.is_none() {
            true => notification.queue = crate::Queue::default(),
            false => self.leave_queue(to),
        }
        let receiver = self.machine.get_mut(to);
        receiver.registers.answer::<M::Layout>(Status::OK.0, bits, Info::NOTIFIED.0);
        receiver.state = State::Running as u8;
        match overtakes || self.overtake_early(to, context, Overtake::Wakes) {
            true => self.go(to),
            false => {
                self.ready(to);
                self.decide();
            }
        }
    }

    /// Tells a handler that waits on its own time of the end of a budget.
    #[inline(always)]
    pub(crate) fn fast_timeout(&mut self) -> bool {
        let Some(from) = self.core.current.some() else { return false };
        let cap = self.machine.get(from).slots[Place::Timeout as usize - 1].cap;
        if !cap.is(Kind::Endpoint) || !cap.rights().has(Rights::CALL) {
            return false;
        }
        let at: Ref<Endpoint> = cap.at();
        let Endpoint { queue, state, .. } = *self.machine.get(at);
        if state != State::Receiving as u32 {
            return false;
        }
        let to = queue.first;
        let Thread { reply, context: own, next, .. } = *self.machine.get(to);
        // A passive handler would wait for the budget that has just ended. A PIBS context takes its priority from its
        // requester, which the general way finds.
        if own.is_none() || reply.is_none() || self.machine.get(own).time.policy() == Policy::Pibs {
            return false;
        }
        let how = Overtake::Ends;
        if !self.overtake(to, own, how) && !self.overtake_early(to, own, how) {
            return false;
        }
        match next.is_none() {
            true => self.empty_endpoint(at),
            false => self.leave_queue(to),
        }
        let answer = self.machine.get_mut(reply);
        (answer.caller, answer.receiver, answer.depth) = (from, Ref::NONE, 0);
        let told = self.machine.get_mut(from);
        told.state = State::Calling as u8;
        told.reply = reply;
        told.flags |= Thread::FAULTS;
        let (context, number) = (told.context, told.number);
        self.trace(|_| Event::Over { thread: from.at(), context: context.at(), handled: 1 });
        self.trace_call(from, to, Ref::NONE);
        let words = self.timeout_words(context, number);
        let handler = self.machine.get_mut(to);
        handler.reply = Ref::NONE;
        handler.state = State::Running as u8;
        handler.registers.set_words::<M::Layout>(&words, words.len());
        let info = Info::new(label::TIMEOUT, words.len()).0;
        handler.registers.answer::<M::Layout>(Status::OK.0, cap.data, info);
        self.go(to);
        true
    }

    /// Goes to a waiting thread of a higher priority, if a refill came for it.
    #[inline(always)]
    pub(crate) fn fast_refill(&mut self) -> bool {
        let now = self.machine.now();
        let Some(context) = self.core.scheduler.due(now).map(context) else { return false };
        let to = self.machine.get(context).thread;
        let overtakes = self.overtake(to, context, Overtake::Refilled);
        if overtakes {
            self.go(to);
        }
        overtakes
    }

    /// Puts a thread's context on the processor, and sets the timer for it, if the scheduler sees at once that it has
    /// to. The current thread does not change yet.
    #[inline(never)]
    fn overtake(&mut self, to: Ref<Thread>, context: Ref<Context>, how: Overtake) -> bool {
        let held = self.machine.get(context);
        let Some(id) = id(context) else { return false };
        // Another priority in the queue than the thread's: an earlier change is still to be settled.
        if held.is_set == 0 || held.time.priority() != self.machine.get(to).priority {
            return false;
        }
        let now = self.machine.now();
        let store = &mut Store(&mut *self.machine);
        let Some(timer) = self.core.scheduler.overtake(store, id, now, how) else { return false };
        // A write of the timer's register costs more than the comparison.
        if timer != self.core.timer {
            self.core.timer = timer;
            self.machine.set_timer(timer);
        }
        true
    }

    /// Does so for a context before its alarm is due: it takes the alarm, and sets it again if this is not enough.
    #[inline(never)]
    fn overtake_early(&mut self, to: Ref<Thread>, context: Ref<Context>, how: Overtake) -> bool {
        let Some(id) = id(context).filter(|_| self.machine.get(context).time.has_alarm()) else {
            return false;
        };
        let store = &mut Store(&mut *self.machine);
        let until = self.core.scheduler.take_alarm(store, id);
        let overtakes = self.overtake(to, context, how);
        if !overtakes {
            self.core.scheduler.set_alarm(&mut Store(&mut *self.machine), id, until);
        }
        overtakes
    }

    /// Makes a thread the running one.
    #[inline(always)]
    fn go(&mut self, to: Ref<Thread>) {
        if let Some(before) = self.core.current.some() {
            self.trace_leave(self.machine.get(before).context);
        }
        self.core.current = to;
        self.trace_run();
        self.enter(Ref::NONE);
    }

    #[inline(always)]
    fn empty_endpoint(&mut self, at: Ref<Endpoint>) {
        let endpoint = self.machine.get_mut(at);
        (endpoint.queue.first, endpoint.queue.last) = (Ref::NONE, Ref::NONE);
        endpoint.state = 0;
    }

    /// Waits for a signal that is there already.
    #[inline(always)]
    pub(crate) fn fast_wait(&mut self, from: Ref<Thread>) -> Option<Quick> {
        let address = self.machine.get(from).registers.named::<M::Layout>() as Address;
        let slot = self.quick(from, address, Kind::Notification, Rights::READ)?;
        let at: Ref<Notification> = slot.cap.at();
        let bits = core::mem::take(&mut self.machine.get_mut(at).bits);
        // Nothing is there: the general way makes the thread wait.
        if bits == 0 {
            return None;
        }
        let registers = &mut self.machine.get_mut(from).registers;
        registers.answer::<M::Layout>(Status::OK.0, bits, Info::NOTIFIED.0);
        Some(Quick::Done)
    }
}
