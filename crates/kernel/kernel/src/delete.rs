//! The end of capabilities and objects, one at a time.

use crate::{
    Cap, Context, Endpoint, Interrupt, Kernel, Link, Machine, Notification, Place, Ref, Reply,
    Slot, State, Thread, space, tree,
};
use bulkhead_kernel_abi::Kind;
use bulkhead_sched::Time;

/// Capabilities that one entry into the kernel deletes at most; more take further entries, so that
/// interrupts come in between.
pub const STEPS: u32 = 8;

/// How far it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// All done.
    Done,
    /// Once more.
    Again,
}

impl<M: Machine> Kernel<'_, M> {
    /// Deletes the capabilities derived from the one in a slot, and that one too (`itself`).
    pub(crate) fn delete(&mut self, slot: Ref<Slot>, itself: bool) -> Progress {
        for _ in 0..STEPS {
            let nothing = self.machine.get(slot).cap.is(Kind::Null);
            if nothing || !itself && !tree::has_children(self.machine, slot) {
                return Progress::Done;
            }
            // Leaves first: so no derived capability ever outlives the one that it came from.
            let from = if itself { slot } else { self.machine.get(slot).next };
            let Some(leaf) = tree::leaf(self.machine, from) else { return Progress::Again };
            let kind = self.machine.get(leaf).cap.kind();
            if self.end(leaf) {
                tree::remove(self.machine, leaf);
            }
            // It may have closed a link, which is a call of the monitor: an entry has one at most.
            if matches!(kind, Kind::Thread | Kind::Link) {
                return Progress::Again;
            }
        }
        Progress::Again
    }

    /// Ends a capability's use of its object. False: it is not over yet.
    fn end(&mut self, slot: Ref<Slot>) -> bool {
        let Slot { cap, place, .. } = *self.machine.get(slot);
        if let Some(place) = Place::new(place) {
            self.vacate(slot, place);
        }
        match cap.kind() {
            // A mapping is a use of this capability, whether the object ends or not.
            Kind::Frame => space::unmap_frame(self, &cap),
            Kind::Table if cap.is_original() => space::unmap_table(self, &cap),
            Kind::Link => self.end_use(&cap),
            _ => (),
        }
        // The object lives on for the others.
        if !cap.is_original() {
            return true;
        }
        let over = match cap.kind() {
            Kind::Thread => self.end_thread(cap.at()),
            Kind::Endpoint => self.end_endpoint(cap.at()),
            Kind::Notification => self.end_notification(cap.at()),
            Kind::Reply => self.end_reply(cap.at()),
            Kind::Context => self.end_context(cap.at()),
            Kind::Space => space::end(self, cap.object),
            Kind::Interrupt => {
                let slot = self.machine.get(cap.at::<Interrupt>()).slot.cap;
                if !slot.is(Kind::Null) {
                    self.drop_slot(Ref::new(cap.object));
                }
                true
            }
            Kind::Link => {
                self.drop_slot(Ref::new(cap.object));
                true
            }
            _ => true,
        };
        if let (true, Some((at, bits))) = (over, extent(&cap)) {
            self.machine.note(at, 1 << bits, None);
        }
        over
    }

    /// Empties a slot of an object's.
    pub(crate) fn drop_slot(&mut self, slot: Ref<Slot>) {
        let Slot { cap, place, .. } = *self.machine.get(slot);
        if cap.is(Kind::Null) {
            return;
        }
        if let Some(place) = Place::new(place) {
            self.vacate(slot, place);
        }
        tree::remove(self.machine, slot);
    }

    /// Ends an object's use of the capability that was in a slot of it.
    fn vacate(&mut self, slot: Ref<Slot>, place: Place) {
        let thread = thread_of(slot, place);
        match place {
            Place::Root => {
                let thread = self.machine.get_mut(thread);
                (thread.root, thread.root_slots) = (Ref::NONE, 0);
            }
            Place::Space => {
                // Nothing can be reached there any more: it must not run.
                self.cancel(thread, State::Stopped);
                self.give_back(thread);
                self.machine.get_mut(thread).space = 0;
            }
            Place::Buffer => self.machine.get_mut(thread).buffer = Ref::NONE,
            Place::Link => {
                space::set_link(self, Ref::<Link>::new(slot.at()), false);
            }
            // These capabilities are looked up at each use.
            Place::Fault | Place::Timeout | Place::Interrupt => (),
        }
    }

    /// Ends a thread's wait, or its activity.
    pub(crate) fn cancel(&mut self, thread: Ref<Thread>, state: State) {
        self.leave_queue(thread);
        let Thread { state: before, reply, .. } = *self.machine.get(thread);
        if before == State::Calling as u8 && !reply.is_none() {
            self.set_state(thread, state);
            self.end_call(reply);
        } else if let Some(reply) = reply.some() {
            self.machine.get_mut(reply).receiver = Ref::NONE;
        }
        let gone = self.machine.get_mut(thread);
        gone.reply = Ref::NONE;
        gone.flags &= !Thread::FAULTS;
        self.stop(thread, state, Time::MAX);
    }

    fn end_thread(&mut self, at: Ref<Thread>) -> bool {
        self.cancel(at, State::Stopped);
        // One at a time: each is a call of the monitor.
        if self.part_once(at) {
            return false;
        }
        // Borrowed contexts go back, and its own has no thread any more.
        self.give_back(at);
        let Thread { context, home, notification, .. } = *self.machine.get(at);
        if let Some(context) = context.some() {
            self.hand(context, Ref::NONE);
        }
        if let Some(home) = home.some() {
            self.machine.get_mut(home).home = Ref::NONE;
        }
        if let Some(bound) = notification.some() {
            self.machine.get_mut(bound).bound = Ref::NONE;
        }
        for place in [Place::Root, Place::Space, Place::Buffer, Place::Fault, Place::Timeout] {
            self.drop_slot(slot_of(at, place));
        }
        // The next switch would save its registers into memory that is another object's by then.
        if self.core.vectors_of == at {
            self.core.vectors_of = Ref::NONE;
            self.machine.use_vectors(None);
        }
        // The way out must not load registers from there.
        if self.core.current == at {
            self.core.current = Ref::NONE;
        }
        self.core.undecided = 1;
        true
    }

    fn end_endpoint(&mut self, at: Ref<Endpoint>) -> bool {
        // One waiting thread in each step, so that a crowd keeps no interrupt waiting.
        let Some(first) = self.machine.get(at).queue.first.some() else { return true };
        if !self.part_faulted(first) {
            self.dismiss(first);
        }
        false
    }

    fn end_notification(&mut self, at: Ref<Notification>) -> bool {
        let Notification { queue, bound, context, .. } = *self.machine.get(at);
        if let Some(first) = queue.first.some() {
            self.dismiss(first);
            return false;
        }
        if let Some(bound) = bound.some() {
            self.machine.get_mut(bound).notification = Ref::NONE;
        }
        if let Some(context) = context.some() {
            self.machine.get_mut(context).notification = Ref::NONE;
        }
        true
    }

    /// Sends a thread away from where it waits.
    fn dismiss(&mut self, thread: Ref<Thread>) {
        self.leave_queue(thread);
        if let Some(reply) = core::mem::take(&mut self.machine.get_mut(thread).reply).some() {
            self.machine.get_mut(reply).receiver = Ref::NONE;
        }
        self.cancelled(thread);
    }

    fn end_reply(&mut self, at: Ref<Reply>) -> bool {
        let Reply { caller, receiver, .. } = *self.machine.get(at);
        if self.part_caller(at) {
            return false;
        }
        if !caller.is_none() {
            let caller = self.end_call(at);
            self.cancelled(caller);
        }
        if let Some(receiver) = receiver.some() {
            self.machine.get_mut(receiver).reply = Ref::NONE;
        }
        true
    }

    fn end_context(&mut self, at: Ref<Context>) -> bool {
        self.unbind(at);
        // Its place in the scheduler is free for another one.
        if self.machine.get(at).is_set != 0 {
            self.core.scheduler.unreserve();
        }
        self.core.undecided = 1;
        true
    }
}

/// Returns the slot of a thread for something.
pub(crate) fn slot_of(thread: Ref<Thread>, place: Place) -> Ref<Slot> {
    let first = thread.at() + core::mem::offset_of!(Thread, slots) as u32;
    Ref::<Slot>::new(first).nth(place as u32 - 1)
}

/// Returns the thread that has this slot for an object of its own.
fn thread_of(slot: Ref<Slot>, place: Place) -> Ref<Thread> {
    let slots = core::mem::offset_of!(Thread, slots) as u32;
    Ref::new(slot.at().wrapping_sub((place as u32 - 1) * size_of::<Slot>() as u32 + slots))
}

/// Finds where a capability's object lies, and its size as a power of two; `None` if it is nothing in memory, or
/// memory for others.
fn extent(cap: &Cap) -> Option<(u32, u8)> {
    match cap.kind() {
        Kind::Node => Some((cap.object, cap.bits + crate::SLOT_BITS)),
        Kind::Frame if cap.flags & Cap::DEVICE == 0 => Some((cap.object << 12, cap.bits)),
        Kind::Frame | Kind::Null | Kind::Untyped => None,
        // An interrupt's object stays: it can still come. A link's is among others.
        Kind::Control | Kind::Ports | Kind::Sandbox | Kind::Interrupt | Kind::Link => None,
        _ => Some((cap.object, cap.bits)),
    }
}
