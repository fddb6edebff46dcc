//! Methods of the kernel's objects: everything is looked up and checked, then it is done.

use crate::delete::{Progress, slot_of};
use crate::lookup::{Root, check};
use crate::{
    Cap, Context, Endpoint, Interrupt, Kernel, Layout, Machine, Notification, Place, Ref, Slot,
    State, Thread, queue, space, tree,
};
use bulkhead_kernel_abi::{Address, Buffer, Code, Kind, Label, Policy, Rights, Status, label};
use bulkhead_layout::hypercall::{OK, RESTART};
use bulkhead_sched::Invalid;

/// Answer of a method; `None`: it was interrupted, and is to be called again.
pub type Answer = Result<Option<[u64; 4]>, Status>;

/// The first word of an answer with no further words; an error, or [`AGAIN`]. It fits into registers.
pub(crate) type Outcome = Result<u64, Status>;

/// A method was interrupted, and is to be called again. No program sees it.
pub(crate) const AGAIN: Status = Status(u64::MAX);

const DONE: Outcome = Ok(0);

const fn progress(progress: Progress) -> Outcome {
    match progress {
        Progress::Done => DONE,
        Progress::Again => Err(AGAIN),
    }
}

pub(crate) const fn no_call() -> Outcome {
    Err(Status::new(Code::NoCall, 0, 0))
}

/// Returns a word as a number below a limit.
pub(crate) fn below(word: u64, end: u64, argument: u8) -> Result<u64, Status> {
    match word < end {
        true => Ok(word),
        false => Err(Status::new(Code::OutOfRange, argument, end - 1)),
    }
}

impl<M: Machine> Kernel<'_, M> {
    /// Calls a method of the capability in a slot, for a caller with this capability space.
    ///
    /// # Errors
    /// As the method's description in [`bulkhead_kernel_abi::label`] has it; then nothing changed.
    pub fn invoke(
        &mut self,
        root: Root,
        slot: Ref<Slot>,
        method: Label,
        words: &[u64; 4],
    ) -> Answer {
        let mut answer = [0; 4];
        match self.method(root, slot, method, words, &mut answer) {
            Ok(first) => {
                answer[0] = first;
                Ok(Some(answer))
            }
            Err(AGAIN) => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Calls a method; the words behind an answer's first one go to `answer`, if they are not 0.
    #[inline(always)]
    pub(crate) fn method(
        &mut self,
        root: Root,
        slot: Ref<Slot>,
        method: Label,
        words: &[u64; 4],
        answer: &mut [u64; 4],
    ) -> Outcome {
        let cap = self.machine.get(slot).cap;
        match cap.kind() {
            Kind::Untyped => match method {
                label::RETYPE => self.retype(root, slot, words),
                _ => no_call(),
            },
            Kind::Node => self.node(root, slot, method, words),
            Kind::Thread if method == label::READ_REGISTERS => {
                *answer = self.registers(cap.at());
                Ok(answer[0])
            }
            Kind::Thread => self.thread(root, cap.at(), method, words),
            Kind::Table | Kind::Frame => self.mapping(root, slot, method, words),
            Kind::Context => self.context(root, cap.at(), method, words),
            Kind::Control => match method {
                label::SET_CONTEXT => self.set_context(root, words),
                _ => no_call(),
            },
            Kind::Interrupt => self.interrupt_method(root, &cap, method, words),
            Kind::Ports => {
                let access = <M::Layout as Layout>::access(&cap, method, words)?;
                Ok(self.machine.access(access))
            }
            Kind::Sandbox => self.sandbox(&cap, method, words),
            Kind::Link => self.link(slot, method, words),
            _ => no_call(),
        }
    }

    /// Returns a thread's instruction, stack, status of its last call, flags.
    fn registers(&self, at: Ref<Thread>) -> [u64; 4] {
        let registers = &self.machine.get(at).registers;
        let flags = registers.0[<M::Layout as Layout>::FLAGS];
        let (ip, sp) = (registers.ip::<M::Layout>(), registers.sp::<M::Layout>());
        [ip, sp, registers.op::<M::Layout>(), flags]
    }

    #[inline(never)]
    fn node(&mut self, root: Root, slot: Ref<Slot>, method: Label, words: &[u64; 4]) -> Outcome {
        let cap = self.machine.get(slot).cap;
        let node = Root::node(&cap).ok_or(Status::new(Code::BadState, 0, 0))?;
        let index = below(words[0], u64::from(node.slots), 1)? as u32;
        let place =
            node.at(index).ok_or(Status::new(Code::OutOfRange, 1, u64::from(node.slots - 1)))?;
        match method {
            label::COPY => {
                let from = root.slot(self.machine, words[1], 2)?;
                let rights = Rights(below(words[2], 1 << 8, 3)? as u8);
                self.derive(from, place, rights, words[3])?;
                DONE
            }
            label::MOVE => {
                let from = root.slot(self.machine, words[1], 2)?;
                let Slot { cap: moved, depth, .. } = *self.machine.get(from);
                if !self.machine.get(place).cap.is(Kind::Null) {
                    return Err(Status::new(Code::Occupied, 1, 0));
                }
                if moved.is(Kind::Null) {
                    return Err(Status::new(Code::NoCapability, 2, words[1]));
                }
                // Memory goes downwards only: a node may not lie in a node that is made of it.
                if !tree::may_lie(&moved, depth, cap.data) {
                    return Err(Status::new(Code::Upwards, 2, cap.data));
                }
                tree::relocate(self.machine, from, place);
                DONE
            }
            label::DELETE => progress(self.delete(place, true)),
            label::REVOKE => progress(self.delete(place, false)),
            _ => no_call(),
        }
    }

    #[inline(never)]
    fn thread(&mut self, root: Root, at: Ref<Thread>, method: Label, words: &[u64; 4]) -> Outcome {
        match method {
            label::CONFIGURE => self.configure(root, at, words)?,
            label::SET_PRIORITY => self.set_priority(root, at, words)?,
            label::SET_FAULT => self.set_handler(root, at, Place::Fault, words[0])?,
            label::SET_TIMEOUT => self.set_handler(root, at, Place::Timeout, words[0])?,
            label::WRITE_REGISTERS | label::START => {
                let [ip, sp, first, second] = *words;
                below(ip, space::user_end::<M>(), 1)?;
                below(sp, space::user_end::<M>(), 2)?;
                let begins = method == label::START;
                let nowhere = begins && self.machine.get(at).space == 0;
                // The answer of this call would overwrite the current thread's new registers.
                if at == self.core.current || nowhere {
                    return Err(Status::new(Code::BadState, 0, 0));
                }
                self.cancel(at, State::Stopped);
                if self.part_once(at) {
                    return Err(AGAIN);
                }
                let thread = self.machine.get_mut(at);
                thread.flags &= !Thread::ENDS;
                thread.registers.start::<M::Layout>(ip, sp, [first, second]);
                if begins {
                    self.ready(at);
                }
            }
            label::RESUME => {
                let Thread { state, space, .. } = *self.machine.get(at);
                if space == 0 || state == State::Calling as u8 {
                    return Err(Status::new(Code::BadState, 0, u64::from(state)));
                }
                if state == State::Stopped as u8 {
                    self.ready(at);
                }
            }
            label::SUSPEND => {
                if at == self.core.current {
                    // Its call comes back first.
                    self.machine.get_mut(at).registers.answer::<M::Layout>(Status::OK.0, 0, 0);
                }
                self.cancel(at, State::Stopped);
            }
            label::BIND_NOTIFICATION => self.bind_notification(root, at, words[0])?,
            label::SET_FPU => {
                let on = below(words[0], 2, 1)? == 1;
                let flags = &mut self.machine.get_mut(at).flags;
                let vectors = Thread::VECTORS;
                *flags = if on { *flags | vectors } else { *flags & !vectors };
            }
            label::SET_POINTER => {
                let pointer = below(words[0], space::user_end::<M>(), 1)?;
                self.machine.get_mut(at).pointer = pointer;
                if at == self.core.current {
                    self.machine.enter_thread(pointer);
                }
            }
            _ => return no_call(),
        }
        DONE
    }

    #[inline(never)]
    fn configure(&mut self, root: Root, at: Ref<Thread>, words: &[u64; 4]) -> Result<(), Status> {
        let node = root.find(self.machine, words[0], Kind::Node, 1)?;
        let space = root.find(self.machine, words[1], Kind::Space, 2)?;
        let frame = match words[2] {
            0 => None,
            address => Some(root.find(self.machine, address, Kind::Frame, 3)?),
        };
        let offset = below(words[3], 1 << 21, 4)?;
        let reached = Root::node(&self.machine.get(node).cap);
        let reached = reached.ok_or(Status::new(Code::BadState, 1, 0))?;
        let mut buffer = Ref::<Buffer>::NONE;
        tree::derivable(self.machine, node, 1)?;
        tree::derivable(self.machine, space, 2)?;
        if let Some(frame) = frame {
            tree::derivable(self.machine, frame, 3)?;
            let cap = self.machine.get(frame).cap;
            check(&cap, Rights::READ.and(Rights::WRITE), 3)?;
            let fits = (1u64 << cap.bits) - size_of::<Buffer>() as u64;
            if offset > fits || offset % size_of::<Buffer>() as u64 != 0 {
                return Err(Status::new(Code::OutOfRange, 4, fits));
            }
            // The kernel reaches a buffer by its window on the sandbox's memory, and a device's registers are not in
            // it.
            if cap.flags & Cap::DEVICE != 0 {
                return Err(Status::new(Code::WrongKind, 3, Kind::Frame as u64));
            }
            buffer = Ref::new((cap.object << 12) + offset as u32);
        }
        // From here on nothing fails.
        let space_root = self.machine.physical(self.machine.get(space).cap.object);
        self.keep(slot_of(at, Place::Root), Place::Root, Some(node));
        self.keep(slot_of(at, Place::Buffer), Place::Buffer, frame);
        // Its old space goes without stopping it: the new one is there at once.
        let slot = slot_of(at, Place::Space);
        if !self.machine.get(slot).cap.is(Kind::Null) {
            tree::remove(self.machine, slot);
        }
        self.keep(slot, Place::Space, Some(space));
        let thread = self.machine.get_mut(at);
        (thread.root, thread.root_slots) = (reached.first, reached.slots);
        (thread.space, thread.buffer) = (space_root, buffer);
        self.core.undecided = 1;
        Ok(())
    }

    /// Keeps a capability for an object, instead of the former one in that place.
    fn keep(&mut self, slot: Ref<Slot>, place: Place, from: Option<Ref<Slot>>) {
        self.drop_slot(slot);
        if let Some(from) = from {
            let cap = self.machine.get(from).cap;
            // Derived: it keeps the object no longer than the capability that was given.
            let kept = Cap { flags: cap.flags & Cap::DEVICE, ..cap };
            let kept = if cap.is(Kind::Frame) { Cap { data: 0, ..kept } } else { kept };
            tree::insert(self.machine, from, slot, kept);
        }
        self.machine.get_mut(slot).place = place as u16;
    }

    fn set_priority(
        &mut self,
        root: Root,
        at: Ref<Thread>,
        words: &[u64; 4],
    ) -> Result<(), Status> {
        let authority = root.find(self.machine, words[2], Kind::Thread, 3)?;
        let authority: Ref<Thread> = self.machine.get(authority).cap.at();
        // The authority is a thread that the caller names: so a manager uses its own for others.
        let most = self.machine.get(authority).max_priority;
        let wrong = |argument| Err(Status::new(Code::NoAuthority, argument, u64::from(most)));
        if words[0] > u64::from(most) {
            return wrong(1);
        }
        if words[1] > u64::from(most) {
            return wrong(2);
        }
        let thread = self.machine.get_mut(at);
        (thread.priority, thread.max_priority) = (words[0] as u8, words[1] as u8);
        self.reorder(at);
        Ok(())
    }

    /// Moves a thread with a new priority to its place in the queue.
    fn reorder(&mut self, at: Ref<Thread>) {
        let Thread { context, priority, .. } = *self.machine.get(at);
        let is_set = |context| self.machine.get::<Context>(context).is_set != 0;
        if let Some(id) = context.some().filter(|c| is_set(*c)).and_then(crate::core::id) {
            let now = self.now();
            let store = &mut crate::core::Store(&mut *self.machine);
            let decide = self.core.scheduler.set_priority(store, id, priority, now);
            self.core.undecided |= u32::from(decide);
        }
        self.requeue_waiting(at);
    }

    /// Moves a waiting thread with a new priority to its place in the queue.
    fn requeue_waiting(&mut self, at: Ref<Thread>) {
        let Thread { state, waits_at, .. } = *self.machine.get(at);
        let queued = |s: State| state == s as u8;
        if queued(State::Sending) || queued(State::Receiving) || queued(State::Waiting) {
            self.leave_queue(at);
            self.machine.get_mut(at).state = state;
            self.requeue(at, waits_at);
        }
    }

    /// Puts a thread back into the queue that it was just taken out of.
    fn requeue(&mut self, at: Ref<Thread>, waits_at: u32) {
        let state = self.machine.get(at).state;
        if state == State::Waiting as u8 {
            let notification = Ref::<Notification>::new(waits_at);
            let mut queue = self.machine.get(notification).queue;
            queue::enter(self.machine, &mut queue, at);
            self.machine.get_mut(notification).queue = queue;
            self.offer(notification);
        } else {
            let endpoint = Ref::<Endpoint>::new(waits_at);
            let mut queue = self.machine.get(endpoint).queue;
            queue::enter(self.machine, &mut queue, at);
            let endpoint = self.machine.get_mut(endpoint);
            (endpoint.queue, endpoint.state) = (queue, u32::from(state));
        }
    }

    fn set_handler(
        &mut self,
        root: Root,
        at: Ref<Thread>,
        place: Place,
        word: u64,
    ) -> Result<(), Status> {
        let from = self.kept(root, word, Kind::Endpoint, Rights::WRITE.and(Rights::CALL))?;
        self.keep(slot_of(at, place), place, from);
        Ok(())
    }

    /// Returns the capability that an object is to keep, the first argument; 0 is nothing.
    #[inline(never)]
    fn kept(
        &self,
        root: Root,
        word: u64,
        kind: Kind,
        rights: Rights,
    ) -> Result<Option<Ref<Slot>>, Status> {
        if word == 0 {
            return Ok(None);
        }
        let slot = root.find(self.machine, word, kind, 1)?;
        check(&self.machine.get(slot).cap, rights, 1)?;
        tree::derivable(self.machine, slot, 1)?;
        Ok(Some(slot))
    }

    #[inline(never)]
    fn bind_notification(&mut self, root: Root, at: Ref<Thread>, word: u64) -> Result<(), Status> {
        let new: Ref<Notification> = match word {
            0 => Ref::NONE,
            _ => {
                let slot = root.find(self.machine, word, Kind::Notification, 1)?;
                check(&self.machine.get(slot).cap, Rights::READ, 1)?;
                self.machine.get(slot).cap.at()
            }
        };
        let old = self.machine.get(at).notification;
        // One thread for each: a signal has to know which one to wake.
        if !new.is_none() && !self.machine.get(new).bound.is_none() {
            return Err(Status::new(Code::Occupied, 1, 0));
        }
        if let Some(old) = old.some() {
            self.machine.get_mut(old).bound = Ref::NONE;
        }
        self.machine.get_mut(at).notification = new;
        if let Some(new) = new.some() {
            self.machine.get_mut(new).bound = at;
            self.offer(new);
        }
        Ok(())
    }

    #[inline(never)]
    fn mapping(&mut self, root: Root, slot: Ref<Slot>, method: Label, words: &[u64; 4]) -> Outcome {
        let cap = self.machine.get(slot).cap;
        let table = cap.is(Kind::Table);
        match method {
            label::MAP_TABLE | label::MAP if table == (method == label::MAP_TABLE) => {
                let space = root.find(self.machine, words[0], Kind::Space, 1)?;
                let space = self.machine.get(space).cap.object;
                if table {
                    space::map_table(self, slot, space, words[1])?;
                } else {
                    let rights = Rights(below(words[2], 1 << 8, 3)? as u8);
                    space::map_frame(self, slot, space, words[1], rights)?;
                }
                DONE
            }
            label::UNMAP_TABLE | label::UNMAP if table == (method == label::UNMAP_TABLE) => {
                space::unmap(self, slot);
                DONE
            }
            label::PHYSICAL if !table => Ok(space::physical(self, &cap)),
            _ => no_call(),
        }
    }

    #[inline(never)]
    fn context(
        &mut self,
        root: Root,
        at: Ref<Context>,
        method: Label,
        words: &[u64; 4],
    ) -> Outcome {
        match method {
            label::BIND => self.bind(root, at, words)?,
            label::UNBIND => self.unbind(at),
            label::CONSUMED => return Ok(self.consumed(at)),
            label::YIELD_TO => {
                let thread = self.machine.get(at).thread;
                // A thread that waits cannot be first among those that run.
                let runs = |t: Ref<Thread>| self.machine.get(t).state == State::Running as u8;
                if !thread.some().is_some_and(runs) {
                    return Err(Status::new(Code::BadState, 0, 0));
                }
                if let Some(id) = crate::core::id(at) {
                    let store = &mut crate::core::Store(&mut *self.machine);
                    self.core.scheduler.yield_to(store, id);
                    self.core.undecided = 1;
                }
                return Ok(self.consumed(at));
            }
            label::SERVE => {
                let other = root.find(self.machine, words[0], Kind::Context, 1)?;
                let other: Ref<Context> = self.machine.get(other).cap.at();
                let served = self.serve(at, other);
                served.map_err(|_| Status::new(Code::OutOfRange, 1, 0))?;
            }
            _ => return no_call(),
        }
        DONE
    }

    /// Lets a PIBS context work for another one from now on: at its priority, higher or lower, which the thread has
    /// then, too. A server that runs on it keeps its own.
    pub(crate) fn serve(&mut self, at: Ref<Context>, of: Ref<Context>) -> Result<(), Invalid> {
        let Context { time, home, is_set, .. } = *self.machine.get(at);
        let Some(id) = crate::core::id(at).filter(|_| is_set != 0) else { return Ok(()) };
        if time.policy() != bulkhead_sched::Policy::Pibs {
            return Ok(());
        }
        // At a server's ceiling it would once take the time of the threads that wait for the server, by any length.
        let priority = self.base(of);
        let period = self.machine.get(of).time.account().period();
        let (now, requester) = (self.now(), bulkhead_sched::Requester { priority, period });
        let store = &mut crate::core::Store(&mut *self.machine);
        self.core.scheduler.take_up(store, id, requester, now)?;
        if let Some(home) = home.some() {
            self.machine.get_mut(home).priority = requester.priority;
            self.requeue_waiting(home);
        }
        self.renewed(at);
        Ok(())
    }

    fn consumed(&mut self, at: Ref<Context>) -> u64 {
        self.machine.get_mut(at).time.take_consumed()
    }

    #[inline(never)]
    fn bind(&mut self, root: Root, at: Ref<Context>, words: &[u64; 4]) -> Result<(), Status> {
        let [address, mode, ..] = *words;
        let slot = root.slot(self.machine, address, 1)?;
        let cap = self.machine.get(slot).cap;
        let Context { home, notification, thread, .. } = *self.machine.get(at);
        // Taking it from a holder is the work of `UNBIND`.
        if !home.is_none() || !notification.is_none() || !thread.is_none() {
            return Err(Status::new(Code::Occupied, 0, 0));
        }
        match cap.kind() {
            Kind::Thread => {
                let mode = below(mode, 3, 2)?;
                let thread: Ref<Thread> = cap.at();
                let Thread { home, context, state, reply, waits_at, notification, .. } =
                    *self.machine.get(thread);
                // A context that it has lent on comes back to it.
                let lent = state == State::Calling as u8 && !self.stacked(reply).is_none();
                let changes = mode == 2 && thread == self.core.current && context == home;
                if changes && !home.is_none() {
                    self.unbind(home);
                } else if !home.is_none() || !context.is_none() || lent {
                    return Err(Status::new(Code::Occupied, 1, 0));
                }
                // A context that is only lent has no home: it goes when the thread waits for messages.
                if mode != 1 {
                    self.machine.get_mut(at).home = thread;
                    self.machine.get_mut(thread).home = at;
                }
                self.hand(at, thread);
                // News may have waited until it had a context.
                if state == State::Waiting as u8 {
                    self.offer(Ref::new(waits_at));
                } else if let Some(bound) = notification.some() {
                    self.offer(bound);
                }
            }
            Kind::Notification => {
                below(mode, 1, 2)?;
                let notification: Ref<Notification> = cap.at();
                if !self.machine.get(notification).context.is_none() {
                    return Err(Status::new(Code::Occupied, 1, 0));
                }
                self.machine.get_mut(at).notification = notification;
                self.machine.get_mut(notification).context = at;
                self.offer(notification);
            }
            Kind::Null => return Err(Status::new(Code::NoCapability, 1, address)),
            kind => return Err(Status::new(Code::WrongKind, 1, kind as u64)),
        }
        Ok(())
    }

    /// Takes a context from the thread or notification that it is bound to, wherever it is.
    pub(crate) fn unbind(&mut self, at: Ref<Context>) {
        let Context { home, notification, reply, .. } = *self.machine.get(at);
        self.hand(at, Ref::NONE);
        if let Some(home) = home.some() {
            self.machine.get_mut(home).home = Ref::NONE;
        }
        if let Some(notification) = notification.some() {
            self.machine.get_mut(notification).context = Ref::NONE;
        }
        if let Some(reply) = reply.some() {
            self.machine.get_mut(reply).context = Ref::NONE;
        }
        let context = self.machine.get_mut(at);
        (context.home, context.notification, context.reply) = (Ref::NONE, Ref::NONE, Ref::NONE);
    }

    #[inline(never)]
    fn interrupt_method(
        &mut self,
        root: Root,
        cap: &Cap,
        method: Label,
        words: &[u64; 4],
    ) -> Outcome {
        let at: Ref<Interrupt> = cap.at();
        match method {
            label::SET_NOTIFICATION => {
                check(cap, Rights::WRITE, 0)?;
                let from = self.kept(root, words[0], Kind::Notification, Rights::WRITE)?;
                self.keep(Ref::new(at.at()), Place::Interrupt, from);
            }
            label::ACKNOWLEDGE => self.acknowledge(at),
            _ => return no_call(),
        }
        DONE
    }

    #[inline(never)]
    fn sandbox(&mut self, cap: &Cap, method: Label, words: &[u64; 4]) -> Outcome {
        match method {
            label::PRINT => {
                check(cap, Rights::WRITE, 0)?;
                let bytes = words.map(u64::to_le_bytes);
                let text = bytes.as_flattened();
                // Up to the first 0, so that a shorter text needs no length.
                let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
                self.machine.print(&text[..end]);
            }
            label::READY => {
                check(cap, Rights::EXECUTE, 0)?;
                self.machine.ready();
            }
            label::EXIT => {
                check(cap, Rights::EXECUTE, 0)?;
                self.machine.exit(below(words[0], 1 << 32, 1)? as u32);
            }
            label::RESTART => {
                check(cap, Rights::EXECUTE, 0)?;
                // A monitor that does it does not come back.
                if self.machine.ask(RESTART, 0, 0) != OK {
                    return Err(Status::new(Code::BadState, 0, 0));
                }
            }
            _ => return no_call(),
        }
        DONE
    }

    #[inline(never)]
    fn set_context(&mut self, root: Root, words: &[u64; 4]) -> Outcome {
        let slot = root.find(self.machine, words[0] & u64::from(Address::MAX), Kind::Context, 1)?;
        let number = (words[0] >> 32) as u8;
        let policy = Policy::new(number).ok_or(Status::new(Code::OutOfRange, 1, 3))?;
        let background = words[0] >> 40 & 1 != 0;
        let at: Ref<Context> = self.machine.get(slot).cap.at();
        self.give_time(at, policy, background, [words[1], words[2]], words[3])?;
        DONE
    }
}
