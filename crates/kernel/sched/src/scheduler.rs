//! One core's scheduler: the context with the highest priority that has budget and a thread that
//! wants to run.
//!
//! The caller reports events ([`Scheduler::wake`], [`Scheduler::block`], …) in the order in which they happen. It
//! then asks [`Scheduler::schedule`], which also returns the latest time to ask again. Within a priority: first come,
//! first served; a preempted context stays first, one that has used up a refill goes last. The kernel's own time
//! between two decisions is charged to the context that ran before.
//!
//! **Donation.** A thread that calls another one lends it its context, which then runs at the other's
//! priority: [`Scheduler::donate`] only notes that. The queues follow with the next decision.
//!
//! **Alarms.** A context on which no thread wants to run until a time waits beside those that wait for a refill. It
//! sets the timer as they do: only if it would preempt the running context. When it is due it wants to run *from that
//! time on*, however late it is looked at. So an alarm that interrupted no context delays no refill. A thread that
//! has overslept learns it when its context is put on the processor ([`Decision::alarm`]); it needs no earlier look.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::context::{ALARMED, BACKGROUND, SERVER, STRICT, WAITS, WANTED};
use crate::ready::{FOREGROUND, Ready, foreground};
use crate::release::{Entry, Release};
use crate::{Context, Contexts, Id, PLACES, Time};

/// The context that runs from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    /// The context; `None`: the core is idle.
    pub run: Option<Id>,
    /// Latest time to call [`Scheduler::schedule`] again: the end of a budget, or a refill or alarm of a context with
    /// a higher priority. [`Time::MAX`]: nothing can happen by itself.
    pub timer: Time,
    /// True if it is another context than before, or one that blocked and was woken.
    pub switched: bool,
    /// True if the context runs because its alarm was due, and was not told so before.
    pub alarm: bool,
}

/// Why a context goes on the processor ([`Scheduler::overtake`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Overtake {
    /// A thread wants to run on it from now on. The running context goes on later.
    Wakes = 0,
    /// A thread wants to run on it. The running context has used up its budget, and stops wanting to run.
    Ends = 1,
    /// Its refill is [`Scheduler::due`].
    Refilled = WANTED | WAITS,
}

impl Overtake {
    /// Returns the context's flags before, but for [`SERVER`], if it is as simple as that.
    #[inline(always)]
    const fn flags(self) -> u8 {
        self as u8 & (WANTED | WAITS)
    }
}

/// There are as many contexts as there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// A core's scheduler: plain data, which [`Scheduler::new`] fills.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Scheduler {
    /// Up to when all use is charged.
    pub(crate) charged: Time,
    /// The context on the processor: its id, or 0.
    pub(crate) running: u32,
    /// The level that it runs at; 0 if the core is idle.
    pub(crate) effective: u32,
    /// Its level in the ready queue, for which the timer was set. After a donation it differs from the level that it
    /// runs at. With [`ODD`] if the short ways are wrong for the running context; otherwise, if they are right, equal
    /// to `effective`.
    pub(crate) level: u32,
    padding: u32,
    reserved: u64,
    pub(crate) ready: Ready,
    pub(crate) release: Release,
}

/// Mark of a running context that is strict, or may be in the background.
pub(crate) const ODD: u32 = 1 << 31;

impl Scheduler {
    /// Returns a scheduler of an idle core.
    pub const fn new(now: Time) -> Self {
        Self {
            charged: now,
            running: 0,
            effective: 0,
            level: 0,
            padding: 0,
            reserved: 0,
            ready: Ready::new(),
            release: Release::new(),
        }
    }

    /// Begins at `now` with contexts that were woken by another clock. No context counts as having waited, so none
    /// has budgets to make up for.
    pub fn start(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) {
        self.charged = self.charged.max(now);
        for level in 0..=self.ready.highest() {
            let mut next = self.ready.first(level);
            for _ in 0..PLACES {
                let Some(id) = next else { break };
                let context = contexts.context(id);
                context.account.not_before(now);
                next = Id::from_link(context.next);
            }
        }
    }

    /// Reserves the room that a context needs, before it is woken for the first time.
    ///
    /// # Errors
    /// [`NoRoom`]: there are [`PLACES`] already.
    pub fn reserve(&mut self) -> Result<(), NoRoom> {
        if self.reserved >= PLACES as u64 {
            return Err(NoRoom);
        }
        self.reserved += 1;
        Ok(())
    }

    /// Gives the room of a context back that is blocked and has no alarm.
    pub fn unreserve(&mut self) {
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// For how many contexts room is reserved.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Returns the time of a context's alarm, if nothing wants to run on it until then. One that was due is due
    /// from `now` on, as long as its thread was not told.
    pub fn alarm_of(&self, context: &Context, now: Time) -> Option<Time> {
        match (context.has_alarm(), context.is_alarmed()) {
            (true, _) => Some(self.release.time_at(context.place)),
            (false, alarmed) => alarmed.then_some(now),
        }
    }

    /// Returns the running context.
    #[inline(always)]
    pub fn running(&self) -> Option<Id> {
        Id::from_link(self.running)
    }

    /// Tells if the running context does so below all priorities.
    pub fn is_in_background(&self) -> bool {
        self.running != 0 && self.level & FOREGROUND == 0
    }

    /// Wakes a context, alarm or not: a thread wants to run on it. Without effect if one wanted to already, but that it
    /// is not told of an alarm that woke it. Says if [`Scheduler::schedule`] may come to another decision now; else it
    /// need not be called.
    #[inline]
    pub fn wake(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) -> bool {
        let context = contexts.context(id);
        let flags = context.flags;
        if context.account.eligible() > now {
            return self.wake_odd(contexts, id, now);
        }
        let alone = match flags & (WANTED | WAITS | SERVER) {
            SERVER => context.account.begin_alone(now),
            0 => context.account.wake_unlisted(now),
            _ => false,
        };
        if !alone {
            return self.wake_odd(contexts, id, now);
        }
        context.flags = flags | WANTED;
        let level = foreground(context.priority);
        self.queue(contexts, id, level, false);
        level > self.effective
    }

    /// No thread wants to run on a context any more. It has no alarm then.
    #[inline]
    pub fn block(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) {
        if self.running != id.link() || self.level != self.effective {
            return self.block_odd(contexts, id, now);
        }
        if now < self.charged {
            return self.block_odd(contexts, id, self.charged);
        }
        self.charge_plain(contexts.context(id), now);
        self.ready.remove_first(contexts, id, self.level);
        self.running = 0;
        let (context, refills) = contexts.refills(id);
        let flags = context.flags;
        context.flags = flags & !(WANTED | ALARMED);
        match flags & SERVER {
            0 => context.account.block_unlisted(),
            _ => context.account.stop_running(refills, now),
        }
    }

    /// No thread wants to run on a context until `deadline`, or until it is woken before. A deadline that is past is
    /// due at once, [`Time::MAX`] never. Says if [`Scheduler::schedule`] may come to another decision now.
    pub fn block_until(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        now: Time,
        deadline: Time,
    ) -> bool {
        let flags = contexts.context(id).flags & (WANTED | WAITS);
        let runs = self.running == id.link();
        let matters = runs || flags & WAITS != 0 || deadline < Time::MAX;
        if runs || flags != 0 {
            self.block(contexts, id, now);
        }
        if deadline < Time::MAX {
            self.set_alarm(contexts, id, deadline.max(now));
        }
        matters
    }

    /// A context on which nothing wants to run, and that has no alarm, has one.
    #[inline(never)]
    pub fn set_alarm(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, time: Time) {
        let priority = contexts.context(id).priority;
        self.wait_for(contexts, id, Entry::new(id, time, priority, true));
    }

    /// A context that [has an alarm](Context::has_alarm) has it no more; when it would have been.
    pub fn take_alarm(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id) -> Time {
        let time = self.release.time_at(contexts.context(id).place);
        self.release.remove(contexts, id);
        time
    }

    /// Notes that the running context goes on with a thread of another priority. True if it is still to run, and the
    /// timer right; otherwise [`Scheduler::schedule`] is to be called. Raising is always right.
    #[inline(always)]
    pub fn donate(&mut self, contexts: &mut (impl Contexts + ?Sized), priority: u8) -> bool {
        let Some(id) = self.running() else { return false };
        contexts.context(id).priority = priority;
        self.effective = self.level & FOREGROUND | u32::from(priority);
        // The highest is at least its level in the queue, where it still lies, and for which the
        // timer was set.
        self.ready.nobody_above(self.effective)
    }

    /// Decides which context runs from now on, and until when at most.
    ///
    /// The short way: a plain context with budget runs, or the core is idle, and no other context's time has come.
    #[inline(always)]
    pub fn schedule(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) -> Decision {
        let before = self.running;
        if now < self.charged {
            return self.schedule_late(contexts);
        }
        if self.level != self.effective {
            self.follow_all(contexts, now);
        } else if self.release.first() <= now {
            self.follow_due(contexts, now);
        } else if self.charge_running(contexts, now) {
            self.follow_over(contexts, now);
        }
        self.decide(contexts, now, before)
    }

    /// Puts a context on the processor at once, before the running one. Returns the latest time to call
    /// [`Scheduler::schedule`].
    ///
    /// `None`: the case is not that simple, and only the running context was charged. These have to be true:
    ///
    /// * the last decision holds;
    /// * no other context's time has come;
    /// * both are plain;
    /// * the new one is above all others and has budget.
    ///
    /// The running one must have some left, or ([`Overtake::Ends`]) none until a later refill.
    #[inline(always)]
    pub fn overtake(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        now: Time,
        how: Overtake,
    ) -> Option<Time> {
        let refilled = how == Overtake::Refilled;
        let context = contexts.context(id);
        let level = foreground(context.priority);
        let due = if refilled { self.release.second() } else { self.release.first() };
        if context.flags & !SERVER != how.flags()
            || context.account.eligible() > now
            || !self.ready.is_above_all(level)
            || self.level != self.effective
            || now < self.charged
            || due <= now
        {
            return None;
        }
        match self.charge_running(contexts, now) {
            false if how == Overtake::Ends => return None,
            true if how != Overtake::Ends || !self.end(contexts, now) => return None,
            _ => (),
        }
        if refilled {
            self.release.take_first(contexts);
            contexts.refilled(id);
        }
        let (context, refills) = contexts.refills(id);
        if !refilled {
            match context.flags & SERVER {
                0 => _ = context.account.wake_unlisted(now),
                _ => context.account.begin(refills, now),
            }
        }
        context.flags = context.flags & SERVER | WANTED;
        Some(self.put_on(context, id, level, now))
    }

    /// Returns the context with the first refill that is due.
    #[inline(always)]
    pub fn due(&self, now: Time) -> Option<Id> {
        let entry = self.release.at(0);
        entry.id().filter(|_| entry.time <= now && !entry.is_alarm())
    }

    /// Puts a plain context with budget on the processor, which is above all others and in no queue. Returns the time
    /// until when.
    #[inline(always)]
    fn put_on(&mut self, context: &mut Context, id: Id, level: u32, now: Time) -> Time {
        context.account.pay();
        context.queue_alone(level);
        self.ready.insert_alone(id, level);
        self.occupy(id, level, 0);
        self.release.next_above(level, now.saturating_add(context.account.rest()))
    }

    /// Ends the wish to run of the running context, if it could not run on. It has used up no more than its head, and
    /// a higher context is about to be queued.
    #[inline(always)]
    fn end(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) -> bool {
        let Some(id) = self.running() else { return false };
        let (context, refills) = contexts.refills(id);
        let waits = context.flags & SERVER != 0 && context.account.following_time() > now;
        if !waits || !context.account.use_up_head(refills) {
            return false;
        }
        context.flags &= !(WANTED | ALARMED);
        self.ready.remove_first_below(contexts, id, self.level);
        true
    }

    /// Schedules although the time has fallen.
    #[inline(never)]
    fn schedule_late(&mut self, contexts: &mut (impl Contexts + ?Sized)) -> Decision {
        let (before, now) = (self.running, self.charged);
        self.follow_all(contexts, now);
        match self.ready.first(self.ready.highest()) {
            first if first.is_some() && first == self.running() => {
                self.stay_odd(contexts, now, before)
            }
            _ => self.enter_odd(contexts, now, before),
        }
    }

    /// A context's time has come. The short way: one plain context's refill, nothing else.
    #[inline(never)]
    fn follow_due(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) {
        if self.charge_running(contexts, now) || self.release.second_is_due(now) {
            return self.follow_all(contexts, now);
        }
        let entry = self.release.at(0);
        let Some(id) = entry.id() else { return self.follow_all(contexts, now) };
        let context = contexts.context(id);
        let flags = context.flags;
        if entry.is_alarm() {
            if flags & SERVER == 0 || !context.account.begin_at(entry.time) {
                return self.follow_all(contexts, now);
            }
            context.flags = flags & !WAITS | WANTED | ALARMED;
        } else {
            if flags & BACKGROUND != 0 {
                return self.follow_all(contexts, now);
            }
            context.flags = flags & !WAITS;
        }
        let level = foreground(context.priority);
        if !entry.is_alarm() {
            contexts.refilled(id);
        }
        self.queue(contexts, id, level, false);
        self.release.take_first(contexts);
    }

    /// A budget is used up. The short way: that of a server that is plain, and no more than its
    /// head.
    #[inline(never)]
    fn follow_over(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) {
        let Some(id) = self.running() else { return self.follow_all(contexts, now) };
        let (context, refills) = contexts.refills(id);
        if context.flags & SERVER == 0 || !context.account.use_up_head(refills) {
            return self.follow_all(contexts, now);
        }
        self.running = 0;
        let (priority, eligible) = (context.priority, context.account.eligible());
        self.ready.remove_first(contexts, id, self.level);
        match eligible <= now {
            true => {
                contexts.refilled(id);
                self.queue(contexts, id, foreground(priority), false);
            }
            false => {
                self.wait_for(contexts, id, Entry::new(id, eligible, priority, false));
            }
        }
    }

    /// Charges the running context, if there is one, as far as it is in its queue. Takes it from the queue if it must
    /// leave.
    #[inline(always)]
    fn decide(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        now: Time,
        before: u32,
    ) -> Decision {
        let level = self.ready.highest();
        let Some(id) = self.ready.first(level) else { return self.idle(before) };
        let context = contexts.context(id);
        let flags = context.flags;
        let mut alarm = false;
        if self.running != id.link() {
            if flags & (ALARMED | STRICT | BACKGROUND) != 0 {
                if flags & (STRICT | BACKGROUND) != 0 {
                    return self.enter_odd(contexts, now, before);
                }
                context.flags = flags & !ALARMED;
                alarm = true;
            }
            self.occupy(id, level, 0);
            context.account.pay();
        } else if self.level & ODD != 0 {
            return self.stay_odd(contexts, now, before);
        }
        let end = now.saturating_add(context.account.rest());
        let timer = self.release.next_above(level, end);
        Decision { run: Some(id), timer, switched: id.link() != before, alarm }
    }

    /// Decides for an idle core: no context is ready.
    #[inline(never)]
    pub(crate) fn idle(&mut self, before: u32) -> Decision {
        self.vacate();
        let timer = self.release.next_slowly(0, Time::MAX);
        Decision { run: None, timer, switched: before != 0, alarm: false }
    }

    #[inline(always)]
    pub(crate) fn occupy(&mut self, id: Id, level: u32, odd: u32) {
        (self.running, self.effective) = (id.link(), level);
        self.level = level | odd;
    }

    /// Leaves the processor empty.
    #[inline(always)]
    pub(crate) fn vacate(&mut self) {
        (self.running, self.level, self.effective) = (0, 0, 0);
    }

    /// Charges the running context, which is plain, if there is one; true if its turn is over. `now` is not before
    /// the last charge.
    #[inline(always)]
    pub(crate) fn charge_running(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        now: Time,
    ) -> bool {
        match self.running() {
            Some(id) => {
                let context = contexts.context(id);
                self.charge_plain(context, now);
                context.account.is_over()
            }
            None => {
                self.charged = now;
                false
            }
        }
    }

    #[inline(always)]
    fn charge_plain(&mut self, context: &mut Context, now: Time) {
        let ticks = now.wrapping_sub(self.charged);
        self.charged = now;
        context.consumed = context.consumed.wrapping_add(ticks);
        context.account.charge(ticks);
    }
}
