//! The short ways of the commonest calls: nothing is queued, the clock is not read, who runs
//! next is known; but for a signal that wakes somebody. Each looks at everything first and changes something only if all is as it
//! has to be; otherwise the general way does it ([`crate::call`]).

use crate::Slot;
use crate::{Context, Endpoint, Kernel, Machine, Notification, Ref, Reply, State, Thread};
use bulkhead_kernel_abi::{Address, Info, Kind, REGISTER_WORDS, Rights, Status};

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
            || !self.core.scheduler.donate(&mut crate::core::Store(&mut *self.machine), priority)
        {
            return false;
        }
        // It leaves the queue, whose first one it is.
        if next.is_none() {
            let endpoint = self.machine.get_mut(at);
            (endpoint.queue.first, endpoint.queue.last) = (Ref::NONE, Ref::NONE);
            endpoint.state = 0;
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
            || !self.core.scheduler.donate(&mut crate::core::Store(&mut *self.machine), priority)
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
        if let Some(first) = notification.queue.first.some() {
            return self.fast_wake(from, first, at, badge);
        }
        if !notification.bound.is_none() {
            return false;
        }
        notification.bits |= crate::ipc::bits(badge);
        self.machine.get_mut(from).registers.answer::<M::Layout>(Status::OK.0, 0, 0);
        true
    }

    /// A signal for a thread that waits on its own time.
    #[inline(never)]
    fn fast_wake(
        &mut self,
        from: Ref<Thread>,
        to: Ref<Thread>,
        at: Ref<Notification>,
        badge: u64,
    ) -> bool {
        let Thread { context, reply, next, .. } = *self.machine.get(to);
        if context.is_none() || !reply.is_none() {
            return false;
        }
        self.machine.get_mut(from).registers.answer::<M::Layout>(Status::OK.0, 0, 0);
        let notification = self.machine.get_mut(at);
        let bits = core::mem::take(&mut notification.bits) | crate::ipc::bits(badge);
        match next.is_none() {
            true => notification.queue = crate::Queue::default(),
            false => self.leave_queue(to),
        }
        let receiver = self.machine.get_mut(to);
        receiver.registers.answer::<M::Layout>(Status::OK.0, bits, Info::NOTIFIED.0);
        self.ready_inline(to);
        self.decide();
        true
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
