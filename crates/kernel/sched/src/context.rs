//! A scheduling context: an account of time, a priority, and the links with which a
//! [`crate::Scheduler`] queues it.

use core::num::NonZeroU32;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Account, Policy, Refill, Requester, Time};

/// Name of a core's context, chosen by its holder: a kernel's offset of the object, an index plus 1 in the slices of
/// this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Id(NonZeroU32);

impl Id {
    /// Returns the context that its holder calls `name`.
    pub const fn new(name: NonZeroU32) -> Self {
        Self(name)
    }

    /// Returns the holder's name for it.
    pub const fn get(self) -> NonZeroU32 {
        self.0
    }

    /// Returns the context at an index below 2^32 - 1 of a slice.
    pub const fn of(index: u32) -> Self {
        match NonZeroU32::new(index.wrapping_add(1)) {
            Some(name) => Self(name),
            None => Self(NonZeroU32::MAX),
        }
    }

    /// Returns its index in a slice.
    pub const fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    pub(crate) fn from_link(link: u32) -> Option<Self> {
        NonZeroU32::new(link).map(Self)
    }

    pub(crate) fn link(self) -> u32 {
        self.0.get()
    }
}

/// Store of a core's contexts. The scheduler asks only for ids that it was given, unless others have written to its
/// memory.
pub trait Contexts {
    /// Returns a context.
    fn context(&mut self, id: Id) -> &mut Context;

    /// Returns a context and the room for refills behind its [`Account`]. A context's room always has one length, up
    /// to 65,535.
    fn refills(&mut self, id: Id) -> (&mut Context, &mut [Refill]);

    /// Reports that a context without budget has some again.
    #[inline(always)]
    fn refilled(&mut self, _id: Id) {}
}

/// Panics where an index is beyond the end.
impl<R: AsMut<[Refill]>> Contexts for [(Context, R)] {
    fn context(&mut self, id: Id) -> &mut Context {
        &mut self[id.index()].0
    }

    fn refills(&mut self, id: Id) -> (&mut Context, &mut [Refill]) {
        let (context, refills) = &mut self[id.index()];
        (context, refills.as_mut())
    }
}

/// Runs below all others when it has no budget.
pub(crate) const BACKGROUND: u8 = 1;
/// A thread wants to run on it.
pub(crate) const WANTED: u8 = 2;
/// It was woken by an alarm, and its thread does not know yet.
pub(crate) const ALARMED: u8 = 4;
/// It has a place in the release queue.
pub(crate) const WAITS: u8 = 16;
/// Its account is a server's.
pub(crate) const SERVER: u8 = 32;
/// Its account is a strict server's, which takes more than others to put on and off the processor.
pub(crate) const STRICT: u8 = 8;

/// A scheduling context: plain data, of which every pattern of bits is one.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Context {
    pub(crate) account: Account,
    /// Used of a turn in the background.
    pub(crate) turn: Time,
    pub(crate) consumed: Time,
    /// Neighbours in the queue of a level: their ids, or 0.
    pub(crate) previous: u32,
    pub(crate) next: u32,
    /// The level at which it is queued as ready, plus 1; or 0.
    pub(crate) queued: u16,
    /// Its place in the release queue, if it [`WAITS`].
    pub(crate) place: u16,
    pub(crate) priority: u8,
    pub(crate) flags: u8,
    reserved: [u8; 2],
}

/// Start of a kernel's object for a context; refills follow at their own alignment.
const _: () = assert!(size_of::<Context>() == 112 && size_of::<Refill>() == 16);

impl Context {
    /// Returns a context on which nothing wants to run. The higher `priority`, the earlier.
    pub const fn new(account: Account, priority: u8) -> Self {
        Self {
            account,
            turn: 0,
            consumed: 0,
            previous: 0,
            next: 0,
            queued: 0,
            place: 0,
            priority,
            flags: match account.policy() {
                Policy::Sporadic => SERVER,
                Policy::Strict => SERVER | STRICT,
                _ => 0,
            },
            reserved: [0; 2],
        }
    }

    /// Returns the context with background time: without budget it runs below all priorities, in turns of its budget,
    /// and its use there is not charged.
    pub const fn in_background(self) -> Self {
        Self { flags: self.flags | BACKGROUND, ..self }
    }

    /// Another account, at the priority that it has; nothing wants to run on it.
    #[inline(never)]
    pub fn reset(&mut self, account: &Account, background: bool) {
        let fresh = Self::new(*account, self.priority);
        *self = if background { fresh.in_background() } else { fresh };
    }

    /// Returns the account of its time.
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// Returns how it gets its time.
    pub const fn policy(&self) -> Policy {
        self.account.policy()
    }

    /// Returns its priority: of a PIBS context the requester's, of one that runs its thread's.
    pub const fn priority(&self) -> u8 {
        self.priority
    }

    /// Tells if a thread wants to run on it.
    pub const fn is_wanted(&self) -> bool {
        self.flags & WANTED != 0
    }

    /// Tells if it waits for an alarm that is set, and no thread wants to run on it until then.
    pub const fn has_alarm(&self) -> bool {
        self.flags & (WAITS | WANTED) == WAITS
    }

    /// Tells if its alarm was due and its thread was not told so yet.
    pub const fn is_alarmed(&self) -> bool {
        self.flags & ALARMED != 0
    }

    /// Tells if it runs below all others when it has no budget.
    pub const fn is_in_background(&self) -> bool {
        self.flags & BACKGROUND != 0
    }

    /// Returns how long it ran since this was asked last, background included, up to the scheduler's last
    /// call; ticks.
    pub fn take_consumed(&mut self) -> Time {
        core::mem::take(&mut self.consumed)
    }

    /// Returns it as a requester of interrupt work.
    pub const fn requester(&self) -> Requester {
        Requester { priority: self.priority, period: self.account.period() }
    }

    /// Forgets its place in a queue that it has left, so that two contexts can be compared.
    #[cfg(any(test, feature = "host"))]
    pub fn forget_place(&mut self) {
        self.place = if self.flags & WAITS == 0 { 0 } else { self.place };
    }

    /// It is the only one in the queue of a level.
    #[inline(always)]
    pub(crate) fn queue_alone(&mut self, level: u32) {
        (self.previous, self.next, self.queued) = (0, 0, level as u16 + 1);
    }

    pub(crate) fn set_budget(
        &mut self,
        refills: &mut [Refill],
        (budget, period): (Time, Time),
        now: Time,
    ) {
        self.account.change(refills, budget, period, now);
        // It may have ceased to want to run for a moment.
        if self.is_wanted() {
            self.account.wake(refills, now);
        }
    }
}
