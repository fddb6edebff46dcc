//! Messages: which thread waits for which, the words that are carried over, and the time that is used for them.
//!
//! * A call to a thread without a context takes the caller's along. It comes back with the answer; or when the thread
//!   that has it waits for other messages, or is deleted. The reply objects that a context came through form a stack,
//!   so that calls nest.
//! * A thread that can't run for want of a context takes no message that brings none.

use crate::lookup::Root;
use crate::{Cap, Core, Ref, lookup, queue, tree};
use crate::{
    Context, Endpoint, Event, Kernel, Machine, Notification, Queue, Reply, Slot, State, Thread,
};
use bulkhead_kernel_abi::{
    Address, BUFFER_WORDS, Code, Info, Kind, REGISTER_WORDS, Rights, Status,
};
use bulkhead_sched::{Begin, Time};

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Send {
    /// With an answer.
    Call,
    /// Waits for a receiver.
    Block,
    /// Only if a receiver waits.
    Try,
}

/// Returns the bits that a capability of a notification signals: its badge, and without one the lowest bit, so that no
/// signal is lost.
#[inline(always)]
pub(crate) const fn bits(badge: u64) -> u64 {
    if badge == 0 { 1 } else { badge }
}

impl<M: Machine> Kernel<'_, M> {
    /// Sends a message or a signal by a capability of an endpoint or notification.
    pub(crate) fn send(&mut self, from: Ref<Thread>, cap: Cap, how: Send) -> Result<(), Status> {
        if cap.is(Kind::Notification) {
            lookup::check(&cap, Rights::WRITE, 0)?;
            if how == Send::Call {
                return Err(Status::new(Code::WrongKind, 0, Kind::Notification as u64));
            }
            self.signal(cap.at(), bits(cap.data));
            return Ok(());
        }
        let needed = if how == Send::Call { Rights::CALL } else { Rights::WRITE };
        lookup::check(&cap, needed, 0)?;
        let at: Ref<Endpoint> = cap.at();
        let Endpoint { queue, state, .. } = *self.machine.get(at);
        let receiver = queue.first.some().filter(|_| state == State::Receiving as u32);
        let grants = cap.rights().has(Rights::GRANT);
        let Some(receiver) = receiver else {
            if how == Send::Try {
                return Err(Status::new(Code::WouldBlock, 0, 0));
            }
            // The capability may be gone when a receiver comes, so the thread keeps its badge and rights.
            let thread = self.machine.get_mut(from);
            thread.badge = cap.data;
            thread.flags &= !(Thread::CALLS | Thread::GRANTS);
            thread.flags |= if how == Send::Call { Thread::CALLS } else { 0 };
            thread.flags |= if grants { Thread::GRANTS } else { 0 };
            self.wait_at(at, from, State::Sending, Time::MAX);
            return Ok(());
        };
        let call = how == Send::Call;
        let waits = *self.machine.get(receiver);
        let passive = waits.context.is_none();
        // Before anything changes: a refused message leaves the receiver waiting.
        self.can_take(from, call, waits.reply, passive)?;
        let held = match call && passive {
            true => self.begin_call(from, at)?,
            false => Begin::Now(None),
        };
        let Begin::Now(held) = held else {
            // It waits for time first.
            self.machine.get_mut(from).registers.repeat::<M::Layout>();
            self.core.undecided |= Core::GIVEN_UP;
            return Ok(());
        };
        self.leave_queue(receiver);
        self.set_state(receiver, State::Running);
        self.carry(from, receiver, cap.data, grants);
        match call {
            true => self.expect_answer(from, receiver, held),
            false => self.expect_caller(receiver, Ref::NONE),
        }
        self.ready(receiver);
        Ok(())
    }

    /// Tells if a thread has time for a call that takes a context along, where the endpoint says how long that takes at
    /// most. A call within a call is within its limit. A message that the kernel sends for a thread is sent at once.
    fn begin_call(&mut self, from: Ref<Thread>, at: Ref<Endpoint>) -> Result<Begin, Status> {
        let longest = self.machine.get(at).longest;
        let Thread { context, flags, .. } = *self.machine.get(from);
        let held = self.machine.get(context);
        // A context that came through a reply object is in a call already. The limit of that holds for all of it.
        if longest == 0 || flags & Thread::FAULTS != 0 || held.is_set == 0 || !held.reply.is_none()
        {
            return Ok(Begin::Now(None));
        }
        let Some(id) = crate::core::id(context) else { return Ok(Begin::Now(None)) };
        let now = self.now();
        let store = &mut crate::core::Store(&mut *self.machine);
        let begin = self.core.scheduler.begin_call(store, id, longest, now);
        if let Begin::Never(needed) = begin {
            return Err(Status::new(Code::OutOfRange, 0, needed));
        }
        self.core.undecided |= u32::from(begin != Begin::Now(None));
        Ok(begin)
    }

    /// Ends a call with a limit: its context has the held-back budget again.
    pub(crate) fn end_limit(&mut self, reply: Ref<Reply>, context: Ref<Context>) {
        let held = core::mem::take(&mut self.machine.get_mut(reply).held);
        let Some(id) = crate::core::id(context).filter(|_| held != 0) else { return };
        let store = &mut crate::core::Store(&mut *self.machine);
        self.core.scheduler.end_call(store, id, held & !Reply::LIMITED);
        self.core.undecided |= 1;
    }

    /// Tells if a receiver with this reply object, passive or not, could go on with a message.
    fn can_take(
        &self,
        from: Ref<Thread>,
        call: bool,
        reply: Ref<Reply>,
        passive: bool,
    ) -> Result<(), Status> {
        if call && reply.is_none() {
            return Err(Status::new(Code::BadState, 0, 0));
        }
        if !passive {
            return Ok(());
        }
        let context = self.machine.get(from).context;
        // The receiver could not run to read it.
        if !call || context.is_none() {
            return Err(Status::new(Code::NoContext, 0, 0));
        }
        match self.is_deep(context) {
            true => Err(Status::new(Code::TooDeep, 0, Reply::MOST_NESTED.into())),
            false => Ok(()),
        }
    }

    /// Sends threads away with messages that a receiver could not take, up to the first that it could. It does so while
    /// it still has the time that it runs on: the rest for the next entry is its own call once more. False: that is to
    /// be made.
    #[inline(always)]
    pub(crate) fn refuse_useless(&mut self, to: Ref<Thread>, cap: Cap, reply: Ref<Reply>) -> bool {
        self.first_sender(cap).is_none() || self.refuse_senders(to, cap, reply)
    }

    #[inline(never)]
    fn refuse_senders(&mut self, to: Ref<Thread>, cap: Cap, reply: Ref<Reply>) -> bool {
        let context = self.machine.get(to).context;
        let passive = context.is_none() || self.is_borrowed(to);
        // The context that comes back to its owner once no caller is answered through the reply object any more.
        let returns = reply.some().map_or(Ref::NONE, |reply| self.stacked(reply));
        for _ in 0..crate::delete::STEPS {
            let Some(sender) = self.first_sender(cap) else { return true };
            let call = self.machine.get(sender).flags & (Thread::CALLS | Thread::FAULTS) != 0;
            let brings = self.machine.get(sender).context;
            let status = match self.can_take(sender, call, reply, passive) {
                Ok(()) if passive && brings == returns => Status::new(Code::NoContext, 0, 0),
                Ok(()) if passive && call => match self.begin_call(sender, cap.at()) {
                    Ok(Begin::Now(held)) => {
                        // Only asked: it begins when it is received.
                        let context = self.machine.get(sender).context;
                        if let (Some(held), Some(id)) = (held, crate::core::id(context)) {
                            let store = &mut crate::core::Store(&mut *self.machine);
                            self.core.scheduler.end_call(store, id, held);
                        }
                        return true;
                    }
                    Ok(_) => {
                        // It asks again when it has time.
                        self.leave_queue(sender);
                        self.machine.get_mut(sender).registers.repeat::<M::Layout>();
                        self.ready(sender);
                        continue;
                    }
                    Err(status) => status,
                },
                Ok(()) => return true,
                Err(status) => status,
            };
            if self.part_faulted(sender) {
                break;
            }
            self.leave_queue(sender);
            self.refuse(sender, status);
        }
        false
    }

    /// Returns the first thread that waits at an endpoint for a receiver.
    #[inline(always)]
    fn first_sender(&self, cap: Cap) -> Option<Ref<Thread>> {
        if !cap.is(Kind::Endpoint) {
            return None;
        }
        let Endpoint { queue, state, .. } = *self.machine.get(cap.at());
        queue.first.some().filter(|_| state == State::Sending as u32)
    }

    /// Lets the caller wait for the receiver's answer; its context goes along if the receiver has none.
    fn expect_answer(&mut self, from: Ref<Thread>, to: Ref<Thread>, held: Option<Time>) {
        let reply = core::mem::take(&mut self.machine.get_mut(to).reply);
        let answer = self.machine.get_mut(reply);
        (answer.caller, answer.receiver, answer.depth) = (from, Ref::NONE, 0);
        answer.held = held.map_or(0, |held| held | Reply::LIMITED);
        let caller = self.machine.get_mut(from);
        caller.reply = reply;
        let context = caller.context;
        let passive = self.machine.get(to).context.is_none();
        if !passive || context.is_none() {
            self.trace_call(from, to, Ref::NONE);
            self.name_requester(context, to);
            return self.stop(from, State::Calling, Time::MAX);
        }
        self.set_state(from, State::Calling);
        self.machine.get_mut(to).flags &= !Thread::DEEP;
        self.stack(reply, context, to);
        self.set_state(to, State::Running);
        self.trace_call(from, to, context);
        self.hand(context, to);
    }

    /// Names the requester to an interrupt's thread, which works at that one's priority.
    fn name_requester(&mut self, of: Ref<Context>, to: Ref<Thread>) {
        let served = self.machine.get(to).context;
        if !of.is_none() && self.is_pibs(served) {
            // A requester's period may leave nothing beyond the costs; it is then served at the present requester's.
            let _ = self.serve(served, of);
        }
    }

    fn is_pibs(&self, context: Ref<Context>) -> bool {
        let pibs = bulkhead_sched::Policy::Pibs;
        !context.is_none() && self.machine.get(context).time.policy() == pibs
    }

    /// Returns the priority of the thread that the context works for: its own, and not the priority of a server that
    /// runs on it. Takes a step for each call, fewer than [`Reply::MOST_NESTED`].
    pub(crate) fn base(&self, context: Ref<Context>) -> u8 {
        let Context { time, thread, reply, .. } = *self.machine.get(context);
        let (mut next, mut caller) = (reply, thread);
        while let Some(reply) = next.some() {
            (next, caller) = (self.machine.get(reply).below, self.machine.get(reply).caller);
        }
        let thread = caller.some();
        thread.map_or(time.priority(), |thread| self.machine.get(thread).priority)
    }

    /// Notes that a context came through a reply object to a thread.
    #[inline(always)]
    pub(crate) fn stack(&mut self, reply: Ref<Reply>, context: Ref<Context>, to: Ref<Thread>) {
        let top = core::mem::replace(&mut self.machine.get_mut(context).reply, reply);
        let new = self.machine.get_mut(reply);
        (new.below, new.context) = (top, context);
        if let Some(top) = top.some() {
            let top = self.machine.get_mut(top);
            (top.above, top.context) = (reply, Ref::NONE);
            let depth = top.depth + 1;
            self.machine.get_mut(reply).depth = depth;
            if depth >= Reply::MOST_NESTED - 1 {
                self.machine.get_mut(to).flags |= Thread::DEEP;
            }
        }
    }

    /// Tells if a context goes through as many calls as it may.
    fn is_deep(&self, context: Ref<Context>) -> bool {
        let top = self.machine.get(context).reply.some();
        top.is_some_and(|top| self.machine.get(top).depth >= Reply::MOST_NESTED - 1)
    }

    /// Ends a reply object's place in a stack: the context goes back to its caller, and the objects above it have lost
    /// it.
    pub(crate) fn unstack(&mut self, reply: Ref<Reply>, context: Ref<Context>) {
        let top = self.machine.get(context).reply;
        self.machine.get_mut(top).context = Ref::NONE;
        let this = self.machine.get_mut(reply);
        let (caller, below, above) = (this.caller, this.below, this.above);
        (this.below, this.above, this.context) = (Ref::NONE, Ref::NONE, Ref::NONE);
        if let Some(above) = above.some() {
            self.machine.get_mut(above).below = Ref::NONE;
        }
        if let Some(below) = below.some() {
            let below = self.machine.get_mut(below);
            (below.above, below.context) = (Ref::NONE, context);
        }
        self.machine.get_mut(context).reply = below;
        self.end_limit(reply, context);
        self.trace(|kernel| Event::Return {
            from: kernel.machine.get(context).thread.at(),
            to: caller.at(),
            context: context.at().into(),
        });
        self.hand(context, caller);
    }

    /// Returns the context with this reply object in its stack. Takes a step for each call that is nested in it, fewer
    /// than [`Reply::MOST_NESTED`].
    pub(crate) fn stacked(&self, reply: Ref<Reply>) -> Ref<Context> {
        let mut top = reply;
        while let Some(above) = self.machine.get(top).above.some() {
            top = above;
        }
        self.machine.get(top).context
    }

    /// Ends a call: its caller doesn't wait any more. Returns the caller.
    pub(crate) fn end_call(&mut self, reply: Ref<Reply>) -> Ref<Thread> {
        let context = self.stacked(reply);
        if !context.is_none() {
            self.unstack(reply, context);
        } else {
            self.cut(reply);
        }
        let caller = core::mem::take(&mut self.machine.get_mut(reply).caller);
        if let Some(caller) = caller.some() {
            self.machine.get_mut(caller).reply = Ref::NONE;
        }
        caller
    }

    /// Takes a reply object out of a stack that has lost its context.
    fn cut(&mut self, reply: Ref<Reply>) {
        let this = self.machine.get_mut(reply);
        let (below, above) = (this.below, this.above);
        (this.below, this.above, this.held) = (Ref::NONE, Ref::NONE, 0);
        if let Some(above) = above.some() {
            self.machine.get_mut(above).below = Ref::NONE;
        }
        if let Some(below) = below.some() {
            self.machine.get_mut(below).above = Ref::NONE;
        }
    }

    /// Returns the thread that waits at a reply object.
    pub(crate) fn answered(&self, reply: Ref<Reply>, argument: u8) -> Result<Ref<Thread>, Status> {
        let reply = reply.some().ok_or(Status::new(Code::NoCapability, argument, 0))?;
        // A caller that was stopped or deleted waits no more.
        let nobody = Status::new(Code::BadState, argument, 0);
        self.machine.get(reply).caller.some().ok_or(nobody)
    }

    /// Answers the thread that waits at a reply object.
    pub(crate) fn answer(
        &mut self,
        from: Ref<Thread>,
        reply: Ref<Reply>,
        argument: u8,
    ) -> Result<(), Status> {
        let caller = self.answered(reply, argument)?;
        let goes_on = self.goes_on(from, caller);
        // Before its context comes back, so that this goes on running without a pause.
        self.set_state(caller, if goes_on { State::Running } else { State::Stopped });
        self.end_call(reply);
        match goes_on {
            true => self.ready(caller),
            false => self.halt(caller),
        }
        Ok(())
    }

    /// Receives a message that [`Self::refuse_useless`] left, or waits for one until a time.
    pub(crate) fn receive(
        &mut self,
        to: Ref<Thread>,
        cap: Cap,
        reply: Ref<Reply>,
        until: Time,
    ) -> Result<(), Status> {
        match cap.kind() {
            Kind::Endpoint => self.receive_message(to, cap, reply, until),
            _ => self.receive_bits(to, cap.at(), until),
        }
    }

    fn receive_message(
        &mut self,
        to: Ref<Thread>,
        cap: Cap,
        reply: Ref<Reply>,
        until: Time,
    ) -> Result<(), Status> {
        let bound = self.machine.get(to).notification;
        if bound.some().is_some_and(|bound| self.hear(to, bound)) {
            return Ok(());
        }
        let sender = self.first_sender(cap);
        if sender.is_none() && until != Time::MAX {
            self.check_deadline(to, until)?;
        }
        if !reply.is_none() && !self.machine.get(reply).caller.is_none() {
            // The caller that waits there will not get an answer through it any more.
            let caller = self.end_call(reply);
            self.cancelled(caller);
        }
        let Some(sender) = sender else {
            self.expect_caller(to, reply);
            self.wait_at(cap.at(), to, State::Receiving, until);
            self.give_back(to);
            return Ok(());
        };
        self.give_back(to);
        let Thread { badge, flags, .. } = *self.machine.get(sender);
        let calls = flags & (Thread::CALLS | Thread::FAULTS) != 0;
        let held = match calls && self.machine.get(to).context.is_none() {
            true => self.begin_call(sender, cap.at()),
            false => Ok(Begin::Now(None)),
        };
        let held = if let Ok(Begin::Now(held)) = held { held } else { None };
        self.leave_queue(sender);
        self.carry(sender, to, badge, flags & Thread::GRANTS != 0);
        if calls {
            self.expect_caller(to, reply);
            self.expect_answer(sender, to, held);
        } else {
            self.machine.get_mut(sender).registers.answer::<M::Layout>(Status::OK.0, 0, 0);
            self.ready(sender);
        }
        self.ready(to);
        Ok(())
    }

    /// Sets the reply object for the next caller of a thread.
    #[inline(never)]
    fn expect_caller(&mut self, to: Ref<Thread>, reply: Ref<Reply>) {
        let before = core::mem::replace(&mut self.machine.get_mut(to).reply, reply);
        if let Some(before) = before.some() {
            self.machine.get_mut(before).receiver = Ref::NONE;
        }
        if let Some(reply) = reply.some() {
            let other = core::mem::replace(&mut self.machine.get_mut(reply).receiver, to);
            if let Some(other) = other.some().filter(|other| *other != to) {
                self.machine.get_mut(other).reply = Ref::NONE;
            }
        }
    }

    /// Checks if a thread may wait until a time, instead of for ever: a time in the past polls.
    fn check_deadline(&mut self, thread: Ref<Thread>, until: Time) -> Result<(), Status> {
        // A deadline that is past asks to look only.
        if until <= self.now() {
            return Err(Status::new(Code::TimedOut, 0, 0));
        }
        // The alarm lies with the context, and borrowed time goes back while the thread waits.
        match self.is_borrowed(thread) || self.machine.get(thread).context.is_none() {
            true => Err(Status::new(Code::NoContext, 1, 0)),
            false => Ok(()),
        }
    }

    fn wait_at(&mut self, at: Ref<Endpoint>, thread: Ref<Thread>, state: State, until: Time) {
        let mut queue = self.machine.get(at).queue;
        queue::enter(self.machine, &mut queue, thread);
        let endpoint = self.machine.get_mut(at);
        (endpoint.queue, endpoint.state) = (queue, state as u32);
        self.machine.get_mut(thread).waits_at = at.at();
        self.stop(thread, state, until);
    }

    /// Takes a thread out of where it waits, if it waits in a queue.
    pub(crate) fn leave_queue(&mut self, thread: Ref<Thread>) {
        let Thread { state, waits_at, .. } = *self.machine.get(thread);
        if state == State::Waiting as u8 {
            let at = Ref::<Notification>::new(waits_at);
            let mut queue = self.machine.get(at).queue;
            queue::quit(self.machine, &mut queue, thread);
            self.machine.get_mut(at).queue = queue;
            // A signal that it could not take for want of a context is for threads behind it.
            self.set_state(thread, State::Stopped);
            self.offer(at);
        } else if state == State::Sending as u8 || state == State::Receiving as u8 {
            let at = Ref::<Endpoint>::new(waits_at);
            let mut queue = self.machine.get(at).queue;
            queue::quit(self.machine, &mut queue, thread);
            let endpoint = self.machine.get_mut(at);
            endpoint.queue = queue;
            if queue.first.is_none() {
                endpoint.state = 0;
            }
        }
    }

    /// Signals bits of a notification.
    pub(crate) fn signal(&mut self, at: Ref<Notification>, bits: u64) {
        self.machine.get_mut(at).bits |= bits;
        self.offer(at);
    }

    /// Gives the bits of a notification to the first thread that waits for them, if it can go on with them.
    pub(crate) fn offer(&mut self, at: Ref<Notification>) {
        let Notification { bits, queue: Queue { first, .. }, bound, .. } = *self.machine.get(at);
        if bits == 0 {
            return;
        }
        let receiver = first.some().or_else(|| {
            let receives = |t: &Ref<Thread>| self.machine.get(*t).state == State::Receiving as u8;
            bound.some().filter(receives)
        });
        // The bits stay for the next thread that asks.
        let Some(receiver) = receiver else { return };
        if self.lend(at, receiver) {
            self.take_bits(receiver, at);
            self.leave_queue(receiver);
            self.expect_caller(receiver, Ref::NONE);
            self.ready(receiver);
        }
    }

    /// Gives a receiver a context to go on with, its own or the notification's; tells if it has one.
    #[inline(never)]
    fn lend(&mut self, at: Ref<Notification>, to: Ref<Thread>) -> bool {
        if !self.machine.get(to).context.is_none() {
            return true;
        }
        let context = self.machine.get(at).context;
        let free = context.some().filter(|c| self.machine.get(*c).thread.is_none());
        if let Some(context) = free {
            self.trace(|_| Event::Lend {
                notification: at.at(),
                to: to.at(),
                context: context.at().into(),
            });
            self.hand(context, to);
        }
        free.is_some()
    }

    /// Tells if a notification has a signal for a thread, which has it now. A thread does not hear if its time went
    /// away with its answer.
    fn hear(&mut self, to: Ref<Thread>, at: Ref<Notification>) -> bool {
        let hears = self.machine.get(at).bits != 0 && self.lend(at, to);
        if hears {
            self.take_bits(to, at);
        }
        hears
    }

    #[inline(never)]
    fn take_bits(&mut self, to: Ref<Thread>, at: Ref<Notification>) {
        let bits = core::mem::take(&mut self.machine.get_mut(at).bits);
        self.machine.get_mut(to).registers.answer::<M::Layout>(
            Status::OK.0,
            bits,
            Info::NOTIFIED.0,
        );
    }

    fn receive_bits(
        &mut self,
        to: Ref<Thread>,
        at: Ref<Notification>,
        until: Time,
    ) -> Result<(), Status> {
        if self.hear(to, at) {
            return Ok(());
        }
        if until != Time::MAX {
            self.check_deadline(to, until)?;
        }
        let mut queue = self.machine.get(at).queue;
        queue::enter(self.machine, &mut queue, to);
        self.machine.get_mut(at).queue = queue;
        self.machine.get_mut(to).waits_at = at.at();
        self.stop(to, State::Waiting, until);
        self.give_back(to);
        Ok(())
    }

    /// Lets a thread's call come back with an error.
    pub(crate) fn refuse(&mut self, thread: Ref<Thread>, status: Status) {
        let refused = self.machine.get_mut(thread);
        if refused.flags & Thread::FAULTS != 0 {
            refused.flags &= !Thread::FAULTS;
            return self.halt(thread);
        }
        refused.registers.answer::<M::Layout>(status.0, 0, 0);
        self.ready(thread);
    }

    /// Wakes a thread, since the object that it waited for is gone.
    pub(crate) fn cancelled(&mut self, thread: Ref<Thread>) {
        if !thread.is_none() {
            self.refuse(thread, Status::new(Code::Cancelled, 0, 0));
        }
    }

    /// Carries a message over.
    pub(crate) fn carry(&mut self, from: Ref<Thread>, to: Ref<Thread>, badge: u64, grants: bool) {
        let sender = self.machine.get(from);
        let source = sender.buffer;
        let (words, info) = match sender.flags & Thread::FAULTS {
            0 => {
                (sender.registers.words::<M::Layout>(), Info(sender.registers.info::<M::Layout>()))
            }
            _ => {
                let [info, words @ ..] = sender.fault;
                (words, Info(info))
            }
        };
        let info = info.of_a_message();
        let target = self.machine.get(to).buffer;
        // Unless both sides have a buffer, the message is cut to the registers.
        let both = !source.is_none() && !target.is_none();
        let mut info = if both { info } else { info.within_registers() };
        if info.words() > REGISTER_WORDS {
            // Word by word: the whole buffer is long.
            for n in 0..info.words() - REGISTER_WORDS {
                let word = self.machine.get(source).words[n % BUFFER_WORDS];
                self.machine.get_mut(target).words[n % BUFFER_WORDS] = word;
            }
        }
        // The message arrives without it: its receiver sees that by the form.
        if info.has_cap() && !(grants && self.carry_cap(from, to)) {
            info = info.without_cap();
        }
        let receiver = self.machine.get_mut(to);
        receiver.registers.set_words::<M::Layout>(&words, info.words());
        receiver.registers.answer::<M::Layout>(Status::OK.0, badge, info.0);
    }

    /// Derives the sender's capability for the receiver. Returns true if that could be done.
    fn carry_cap(&mut self, from: Ref<Thread>, to: Ref<Thread>) -> bool {
        let sender = self.machine.get(from).buffer;
        let receiver = self.machine.get(to).buffer;
        let (Some(sender), Some(receiver)) = (sender.some(), receiver.some()) else { return false };
        // The buffers are the programs' memory: each word is read once.
        let given = self.machine.get(sender).cap as Address;
        let place = self.machine.get(receiver).receive as Address;
        let given = Root::of(self.machine, from).slot(self.machine, given.into(), 0);
        let place = Root::of(self.machine, to).slot(self.machine, place.into(), 0);
        let (Ok(given), Ok(place)) = (given, place) else { return false };
        self.derive(given, place, Rights::ALL, 0).is_ok()
    }

    /// Derives a capability with fewer rights, or a badge, into an empty slot.
    ///
    /// # Errors
    /// About the arguments of [`bulkhead_kernel_abi::label::COPY`].
    pub(crate) fn derive(
        &mut self,
        from: Ref<Slot>,
        to: Ref<Slot>,
        rights: Rights,
        badge: u64,
    ) -> Result<(), Status> {
        let cap = self.machine.get(from).cap;
        if !self.machine.get(to).cap.is(Kind::Null) {
            return Err(Status::new(Code::Occupied, 1, 0));
        }
        tree::derivable(self.machine, from, 2)?;
        let mut derived =
            Cap { rights: cap.rights().masked(rights).0, flags: cap.flags & Cap::DEVICE, ..cap };
        match cap.kind() {
            Kind::Null => return Err(Status::new(Code::NoCapability, 2, 0)),
            // Two capabilities of one free memory would give it out twice, two of a table put it into two places.
            Kind::Untyped | Kind::Table => {
                return Err(Status::new(Code::WrongKind, 2, u64::from(cap.kind)));
            }
            // Through a second one the node could be filled while it is being emptied.
            Kind::Node if cap.flags & Cap::DYING != 0 => {
                return Err(Status::new(Code::BadState, 2, 0));
            }
            Kind::Frame | Kind::Link => derived.data = 0,
            _ => (),
        }
        if badge != 0 {
            let badged = matches!(cap.kind(), Kind::Endpoint | Kind::Notification);
            if !badged || cap.data != 0 {
                return Err(Status::new(Code::WrongKind, 4, u64::from(cap.kind)));
            }
            derived.data = badge;
        }
        tree::insert(self.machine, from, to, derived);
        Ok(())
    }
}
