//! The short ways of the commonest calls: nothing is queued, the clock is not read, who runs
//! next is known; but for a signal that wakes somebody. Each looks at everything first and changes something only if all is as it
//! has to be; otherwise the general way does it ([`crate::call`]).

use crate::core::{Store, context, id};
use crate::{
    Context, Endpoint, Event, Kernel, Machine, Notification, Place, Ref, Reply, State, Thread,
};
use crate::{Slot, Time};
use bulkhead_kernel_abi::{Address, Info, Kind, REGISTER_WORDS, Rights, Status, label};
use bulkhead_sched::Policy;

impl<M: Machine> Kernel<'_, M> {
    /// A slot of a thread's root node, if it is one of a kind with rights.
    #[inline(always)]
    fn quick(
        &self,
        thread: Ref<Thread>,
        address: Address,
        kind: Kind,
        rights: Rights,
    ) -> Option<&Slot> {
        let Thread { root, root_slots, .. } = self.machine.get(thread);
        // Slot 0 is empty, so it fails by its kind.
        if address >= *root_slots {
            return None;
        }
        let slot = self.machine.get(root.nth(address));
        (slot.cap.is(kind) && slot.cap.rights().has(rights)).then_some(slot)
    }

    /// A call to a thread without a context that waits for one.
    #[inline(always)]
    pub(crate) fn fast_call(&mut self, from: Ref<Thread>) -> bool {
        let sender = self.machine.get(from);
        let (address, info) = (
            sender.registers.named::<M::Layout>() as Address,
            Info(sender.registers.info::<M::Layout>()),
        );
        let (context, flags) = (sender.context, sender.flags);
        let Some(slot) = self.quick(from, address, Kind::Endpoint, Rights::CALL) else {
            return false;
        };
        let (badge, grants) = (slot.cap.data, slot.cap.rights().has(Rights::GRANT));
        let at: Ref<Endpoint> = slot.cap.at();
        let endpoint = self.machine.get(at);
        let to = endpoint.queue.first;
        if endpoint.state != State::Receiving as u32 {
            return false;
        }
        let receiver = self.machine.get(to);
        let (reply, next) = (receiver.reply, receiver.next);
        let priority = receiver.priority;
        if !receiver.context.is_none()
            || reply.is_none()
            || (flags | receiver.flags) & Thread::VECTORS != 0
            || !self.core.scheduler.donate(&mut Store(&mut *self.machine), priority)
        {
            return false;
        }
        // It leaves the queue, whose first one it is.
        if next.is_none() {
            self.empty_endpoint(at);
        } else {
            self.leave_queue(to);
        }
        let answer = self.machine.get_mut(reply);
        (answer.caller, answer.receiver) = (from, Ref::NONE);
        self.stack(reply, context);
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
        self.pass(from, to, badge, info, grants);
        true
    }

    /// An answer to a caller whose context this thread runs on, and waiting for the next one.
    #[inline(always)]
    pub(crate) fn fast_reply_recv(&mut self, from: Ref<Thread>) -> bool {
        let server = self.machine.get(from);
        let Thread { context, flags, notification, .. } = *server;
        let (named, info) = (
            server.registers.named::<M::Layout>() as Address,
            Info(server.registers.info::<M::Layout>()),
        );
        let reply_address = (server.registers.op::<M::Layout>() >> 32) as Address;
        let Some(slot) = self.quick(from, reply_address, Kind::Reply, Rights::NONE) else {
            return false;
        };
        let reply: Ref<Reply> = slot.cap.at();
        let Some(slot) = self.quick(from, named, Kind::Endpoint, Rights::READ) else {
            return false;
        };
        let at: Ref<Endpoint> = slot.cap.at();
        let Reply { caller: to, below, .. } = *self.machine.get(reply);
        let waits = |n: Ref<Notification>| self.machine.get(n).bits == 0;
        if to.is_none()
            || self.machine.get(at).state != 0
            || self.machine.get(context).reply != reply
            || notification.some().is_some_and(|n| !waits(n))
        {
            return false;
        }
        let caller = self.machine.get(to);
        let priority = caller.priority;
        let vectors = Thread::VECTORS;
        let faults = Thread::FAULTS;
        if (flags & vectors) | (caller.flags & (vectors | faults)) != 0
            || !self.core.scheduler.donate(&mut Store(&mut *self.machine), priority)
        {
            return false;
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
        self.pass(from, to, 0, info, true);
        true
    }

    /// The message goes over, and the processor with it.
    #[inline(always)]
    fn pass(&mut self, from: Ref<Thread>, to: Ref<Thread>, badge: u64, info: Info, grants: bool) {
        if info.is_short() {
            for n in 0..REGISTER_WORDS {
                if n >= info.words() {
                    break;
                }
                let word = self.machine.get(from).registers.word::<M::Layout>(n);
                self.machine.get_mut(to).registers.set_word::<M::Layout>(n, word);
            }
            self.machine.get_mut(to).registers.answer::<M::Layout>(Status::OK.0, badge, info.0);
        } else {
            self.carry(from, to, badge, grants);
        }
        let space = self.machine.get(to).space;
        self.core.current = to;
        self.trace_run();
        if space != self.core.space {
            self.core.space = space;
            self.machine.enter_space(space);
        }
    }

    /// A signal that wakes nobody.
    #[inline(always)]
    pub(crate) fn fast_signal(&mut self, from: Ref<Thread>) -> bool {
        let address = self.machine.get(from).registers.named::<M::Layout>() as Address;
        let Some(slot) = self.quick(from, address, Kind::Notification, Rights::WRITE) else {
            return false;
        };
        let (at, badge) = (slot.cap.at::<Notification>(), slot.cap.data);
        let notification = self.machine.get_mut(at);
        let bits = crate::ipc::bits(badge);
        if let Some(first) = notification.queue.first.some() {
            let wakes = self.wake_first(first, at, bits);
            if wakes {
                self.machine.get_mut(from).registers.answer::<M::Layout>(Status::OK.0, 0, 0);
            }
            return wakes;
        }
        if !notification.bound.is_none() {
            return false;
        }
        notification.bits |= bits;
        self.machine.get_mut(from).registers.answer::<M::Layout>(Status::OK.0, 0, 0);
        true
    }

    /// A signal for the first thread that waits, which does on its own time. Whoever runs then is decided, too.
    #[inline(never)]
    pub(crate) fn wake_first(&mut self, to: Ref<Thread>, at: Ref<Notification>, bits: u64) -> bool {
        let Thread { context, reply, next, .. } = *self.machine.get(to);
        if context.is_none() || !reply.is_none() {
            return false;
        }
        let timer = self.overtake(to, false);
        let notification = self.machine.get_mut(at);
        let bits = core::mem::take(&mut notification.bits) | bits;
        match next.is_none() {
            true => notification.queue = crate::Queue::default(),
            false => self.leave_queue(to),
        }
        let receiver = self.machine.get_mut(to);
        receiver.registers.answer::<M::Layout>(Status::OK.0, bits, Info::NOTIFIED.0);
        receiver.state = State::Running as u8;
        match timer {
            Some(timer) => self.run(to, timer),
            None => {
                self.ready(to);
                self.decide();
            }
        }
        true
    }

    /// A budget ended, and a handler waits for that on its own time.
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
        if own.is_none() || reply.is_none() || self.machine.get(own).time.policy() == Policy::Pibs {
            return false;
        }
        let Some(timer) = self.overtake(to, true) else { return false };
        match next.is_none() {
            true => self.empty_endpoint(at),
            false => self.leave_queue(to),
        }
        let answer = self.machine.get_mut(reply);
        (answer.caller, answer.receiver) = (from, Ref::NONE);
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
        self.run(to, timer);
        true
    }

    /// Its context goes on the processor, if the scheduler sees at once that it has to: when to ask it again.
    #[inline(always)]
    fn overtake(&mut self, to: Ref<Thread>, ends: bool) -> Option<Time> {
        let Thread { context, priority, .. } = *self.machine.get(to);
        let held = self.machine.get(context);
        let id = id(context)?;
        if held.is_set == 0 || held.time.priority() != priority {
            return None;
        }
        let now = self.machine.now();
        self.core.scheduler.overtake(&mut Store(&mut *self.machine), id, now, ends)
    }

    /// A refill came that somebody of a higher priority waited for.
    #[inline(always)]
    pub(crate) fn fast_refill(&mut self) -> bool {
        let now = self.now();
        let store = &mut Store(&mut *self.machine);
        let Some((id, timer)) = self.core.scheduler.refilled(store, now) else { return false };
        self.core.now = 0;
        self.run(self.machine.get(context(id)).thread, timer);
        true
    }

    /// A thread runs from now on, until a time.
    #[inline(never)]
    fn run(&mut self, to: Ref<Thread>, timer: Time) {
        if let Some(before) = self.core.current.some() {
            self.trace_leave(self.machine.get(before).context);
        }
        self.core.current = to;
        self.trace_run();
        if timer != self.core.timer {
            self.core.timer = timer;
            self.machine.set_timer(timer);
        }
        self.enter();
    }

    #[inline(always)]
    fn empty_endpoint(&mut self, at: Ref<Endpoint>) {
        let endpoint = self.machine.get_mut(at);
        (endpoint.queue.first, endpoint.queue.last) = (Ref::NONE, Ref::NONE);
        endpoint.state = 0;
    }

    /// A wait for what was signalled already.
    #[inline(always)]
    pub(crate) fn fast_wait(&mut self, from: Ref<Thread>) -> bool {
        let address = self.machine.get(from).registers.named::<M::Layout>() as Address;
        let Some(slot) = self.quick(from, address, Kind::Notification, Rights::READ) else {
            return false;
        };
        let at: Ref<Notification> = slot.cap.at();
        let bits = core::mem::take(&mut self.machine.get_mut(at).bits);
        if bits == 0 {
            return false;
        }
        let registers = &mut self.machine.get_mut(from).registers;
        registers.answer::<M::Layout>(Status::OK.0, bits, Info::NOTIFIED.0);
        true
    }
}
