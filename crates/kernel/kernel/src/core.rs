//! A core and its running thread. And the kernel, which is a core with its machine.

use crate::{Context, Link, Machine, Ref, Thread};
use bulkhead_sched::{Contexts, Id, Refill, Scheduler, Time};
use core::num::NonZeroU32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The kernel's knowledge of a core.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Core {
    /// The running thread; none: the core waits for an interrupt.
    pub current: Ref<Thread>,
    /// The thread with its vector registers in the processor.
    pub vectors_of: Ref<Thread>,
    /// The root table in use, a physical address.
    pub space: u64,
    /// The kernel's own root table: for the end of the table in use.
    pub own_space: u64,
    /// When this entry into the kernel began, if it had to look.
    pub now: Time,
    /// The time that the timer is set for; [`Time::MAX`]: none.
    pub timer: Time,
    /// Where a bitmap lies, with a bit for each page in which a space's root lies.
    pub spaces: u32,
    /// Pages of memory.
    pub pages: u32,
    /// Not 0 if the running thread is to be decided anew; [`Core::GIVEN_UP`] if the thread that ran wanted that.
    pub undecided: u32,
    /// Cost of an activation of a context, ns: charged to it.
    pub cost: u32,
    /// Links that programs have, side by side, and how many.
    pub links: Ref<Link>,
    /// See above.
    pub link_count: u32,
    /// Contexts and their time.
    pub scheduler: Scheduler,
}

impl Core {
    /// The running thread has given up its budget: the end of that is no timeout.
    pub(crate) const GIVEN_UP: u32 = 2;
}

/// The kernel on a core.
pub struct Kernel<'a, M: Machine> {
    /// The machine.
    pub machine: &'a mut M,
    /// The core.
    pub core: &'a mut Core,
}

/// The contexts where they lie.
pub struct Store<'a, M>(pub &'a mut M);

impl<M: Machine> Contexts for Store<'_, M> {
    #[inline(always)]
    fn context(&mut self, id: Id) -> &mut bulkhead_sched::Context {
        &mut self.0.get_mut(context(id)).time
    }

    #[inline(always)]
    fn refills(&mut self, id: Id) -> (&mut bulkhead_sched::Context, &mut [Refill]) {
        let at = context(id);
        let count = self.0.get(at).refills as usize;
        let (context, refills) = self.0.with_tail(at, count);
        (&mut context.time, refills)
    }

    #[inline(always)]
    fn refilled(&mut self, id: Id) {
        if self.0.is_traced() {
            let event = crate::trace::refill(self.0, context(id));
            self.0.trace(event);
        }
    }
}

#[inline(always)]
pub(crate) fn context(id: Id) -> Ref<Context> {
    Ref::new(id.get().get())
}

#[inline(always)]
pub(crate) fn id(context: Ref<Context>) -> Option<Id> {
    NonZeroU32::new(context.at()).map(Id::new)
}
