//! One core's scheduler: the context with the highest priority that has budget and a thread that
//! wants to run.
//!
//! The caller says what happens ([`Scheduler::wake`], [`Scheduler::block`], …), in the order in
//! which it happens, and then asks [`Scheduler::schedule`], which also says when to ask again at
//! the latest. Within a priority: first come, first served; who is preempted stays first, who
//! has used up a refill goes last. What the kernel itself uses between two decisions is charged
//! to who ran before.
//!
//! **Donation.** A thread that calls another one lends it its context, which then runs at the other's
//! priority: [`Scheduler::donate`] only notes that. The queues follow with the next decision.
//!
//! **Alarms.** A context on which nothing wants to run until a time waits beside those that wait
//! for a refill, and sets the timer as they do: only if it would preempt who runs. When it is due it
//! wants to run *from that time on*, however late it is looked at: so an alarm that nobody had to be
//! interrupted for delays no refill. Whose thread has overslept learns it when its context is put on
//! the processor ([`Decision::alarm`]): nobody looks at it before.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::account::STRICT;
use crate::context::{ALARMED, BACKGROUND, WANTED};
use crate::ready::{FOREGROUND, Ready, background, foreground};
use crate::release::{Entry, Release};
use crate::{Context, Contexts, Id, Invalid, PLACES, Requester, Time};

/// Who runs from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    /// Nobody: the core is idle.
    pub run: Option<Id>,
    /// When to call [`Scheduler::schedule`] again at the latest: the end of a budget, or a refill or
    /// alarm of somebody with a higher priority. [`Time::MAX`]: nothing can happen by itself.
    pub timer: Time,
    /// Whether that is another one than before; true, too, of one that blocked and was woken.
    pub switched: bool,
    /// Whether who runs does so because its alarm was due, and was not told so before.
    pub alarm: bool,
}

/// There are as many contexts as there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// A core's scheduler: plain data, which [`Scheduler::new`] fills.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Scheduler {
    /// Up to when all use is charged.
    charged: Time,
    /// Who is on the processor: its id, or 0.
    running: u32,
    /// Its level in the ready queue, for which the timer was set; 0 if nobody runs.
    level: u16,
    /// The level that it runs at: another one after a donation.
    effective: u16,
    reserved: u64,
    ready: Ready,
    release: Release,
}

impl Scheduler {
    /// A scheduler of an idle core.
    pub const fn new(now: Time) -> Self {
        Self {
            charged: now,
            running: 0,
            level: 0,
            effective: 0,
            reserved: 0,
            ready: Ready::new(),
            release: Release::new(),
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

    /// Who runs.
    pub fn running(&self) -> Option<Id> {
        Id::from_link(self.running)
    }

    /// Whether who runs does so below all priorities.
    pub fn is_in_background(&self) -> bool {
        self.running != 0 && self.level < FOREGROUND
    }

    /// A thread wants to run on a context, alarm or not. Without effect if one wanted to already,
    /// but that it is not told of an alarm that woke it. Says whether [`Scheduler::schedule`] may come
    /// to another decision now; else it need not be called.
    #[inline]
    pub fn wake(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) -> bool {
        let (context, refills) = contexts.refills(id);
        let flags = context.flags;
        context.flags = flags & !ALARMED | WANTED;
        if flags & WANTED != 0 {
            return false;
        }
        context.account.wake(refills, now);
        if context.place != 0 {
            self.release.remove(contexts, id);
        }
        self.place(contexts, id, now, false) > self.effective
    }

    /// No thread wants to run on a context any more. It has no alarm then.
    #[inline]
    pub fn block(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) {
        self.charge(contexts, now);
        if self.running == id.link() {
            self.vacate();
        }
        self.unplace(contexts, id);
        let (context, refills) = contexts.refills(id);
        if context.is_wanted() {
            context.flags &= !(WANTED | ALARMED);
            context.account.block(refills, now);
        }
    }

    /// No thread wants to run on a context until `deadline`, or until it is woken before. A deadline
    /// that is past is due at once, [`Time::MAX`] never.
    pub fn block_until(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        now: Time,
        deadline: Time,
    ) {
        self.block(contexts, id, now);
        let priority = contexts.context(id).priority;
        if deadline < Time::MAX {
            self.release.insert(contexts, Entry::new(id, deadline.max(now), priority, true));
        }
    }

    /// Who runs goes on with a thread of another priority. Says whether it is still to run, and the
    /// timer right; else [`Scheduler::schedule`] is to be called. Raising is always right.
    #[inline]
    pub fn donate(&mut self, contexts: &mut (impl Contexts + ?Sized), priority: u8) -> bool {
        let Some(id) = self.running() else { return false };
        contexts.context(id).priority = priority;
        let level = self.level & FOREGROUND | u16::from(priority);
        self.effective = level;
        // The timer was set for those above its level in the queue, where it still lies.
        level >= self.level && self.ready.highest() <= level
    }

    /// The rest of what who runs has now is given up as if it had been used: others of its
    /// priority have their turn, and it goes on with its next refill.
    pub fn yield_now(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) {
        self.charge(contexts, now);
        let Some(id) = self.running() else { return };
        let context = contexts.context(id);
        match self.level >= FOREGROUND {
            true => context.account.give_up(),
            false => context.turn = context.account.budget(),
        }
    }

    /// A context that is ready becomes the first of its level, also before who runs.
    pub fn yield_to(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id) {
        self.follow(contexts);
        if let Some(level) = contexts.context(id).queued.checked_sub(1) {
            self.ready.remove(contexts, id);
            self.ready.insert(contexts, id, level, true);
        }
    }

    /// Gives a context another priority. It goes last there.
    pub fn set_priority(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        priority: u8,
        now: Time,
    ) {
        self.charge(contexts, now);
        self.change(contexts, id, now, |context| context.priority = priority);
    }

    /// Gives a server another budget and period ([`crate::Account::set`]). Without effect on other
    /// policies.
    ///
    /// # Errors
    /// [`Invalid::Budget`], [`Invalid::TooShort`]: the budget is as it was.
    pub fn set_budget(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        (budget, period): (Time, Time),
        now: Time,
    ) -> Result<(), Invalid> {
        self.charge(contexts, now);
        self.withdraw(contexts, id, now);
        let (context, refills) = contexts.refills(id);
        let result = context.set_budget(refills, (budget, period), now);
        self.replace(contexts, id, now);
        result
    }

    /// The work that a PIBS context is woken for comes from this requester. During an activation
    /// only a higher priority counts; who asks with a lower one is to be named again when its work is
    /// taken up. Without effect on other policies.
    ///
    /// # Errors
    /// [`Invalid::TooShort`]: nothing is changed.
    pub fn request(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        requester: Requester,
        now: Time,
    ) -> Result<(), Invalid> {
        self.charge(contexts, now);
        let context = contexts.context(id);
        let higher = requester.priority > context.priority;
        if context.policy() != crate::Policy::Pibs {
            return Ok(());
        }
        if requester.period != context.account.period() {
            context.account.fits(requester.period)?;
        }
        if !context.account.is_active() || higher {
            self.change(contexts, id, now, |context| {
                context.priority = requester.priority;
                context.account.request(requester.period, now);
            });
        }
        Ok(())
    }

    /// Who runs from now on, and until when at most.
    #[inline]
    pub fn schedule(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) -> Decision {
        let before = self.running;
        self.charge(contexts, now);
        if self.release.first() <= now {
            self.release_due(contexts, now);
        }
        if self.turn_is_over(contexts, now) {
            self.leave(contexts, now, false);
        } else {
            self.follow(contexts);
        }
        let level = self.ready.highest();
        let first = self.ready.first(level);
        let mut alarm = false;
        if first != self.running() {
            self.make_way(contexts, now);
            alarm = self.enter(contexts, first, level, now);
        }
        Decision {
            run: first,
            timer: self.timer(contexts, now),
            switched: self.running != before,
            alarm,
        }
    }

    #[inline]
    fn charge(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) {
        let ticks = now.saturating_sub(self.charged);
        self.charged = self.charged.wrapping_add(ticks);
        if let Some(id) = self.running() {
            let context = contexts.context(id);
            context.consumed = context.consumed.wrapping_add(ticks);
            match self.level >= FOREGROUND {
                true => context.account.charge(ticks),
                false => context.turn = context.turn.saturating_add(ticks),
            }
        }
    }

    /// Nobody is on the processor.
    fn vacate(&mut self) {
        (self.running, self.level, self.effective) = (0, 0, 0);
    }

    /// Queues a context that wants to run and is in no queue; its level when it has budget.
    #[inline]
    fn place(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        now: Time,
        first: bool,
    ) -> u16 {
        let context = contexts.context(id);
        let (time, level) = (context.account.eligible(), foreground(context.priority));
        match time <= now {
            true => self.ready.insert(contexts, id, level, first),
            false => self.wait(contexts, id, time, first),
        }
        level
    }

    /// Queues a context for its refill.
    fn wait(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, time: Time, first: bool) {
        let Context { priority, flags, .. } = *contexts.context(id);
        self.release.insert(contexts, Entry::new(id, time, priority, false));
        if flags & BACKGROUND != 0 {
            self.ready.insert(contexts, id, background(priority), first);
        }
    }

    #[inline]
    fn unplace(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id) {
        self.ready.remove(contexts, id);
        if contexts.context(id).place != 0 {
            self.release.remove(contexts, id);
        }
    }

    /// Changes a context while it is in no queue, and queues it last if it wants to run.
    fn change(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        now: Time,
        change: impl FnOnce(&mut Context),
    ) {
        self.withdraw(contexts, id, now);
        change(contexts.context(id));
        self.replace(contexts, id, now);
    }

    /// Takes a context that wants to run out of the queues, and off the processor.
    fn withdraw(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) {
        if self.running == id.link() {
            self.vacate();
            let (context, refills) = contexts.refills(id);
            context.account.preempt(refills, now);
        }
        if contexts.context(id).is_wanted() {
            self.unplace(contexts, id);
        }
    }

    /// The other half of [`Scheduler::withdraw`].
    fn replace(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) {
        let context = contexts.context(id);
        match context.is_wanted() {
            true => _ = self.place(contexts, id, now, false),
            false => self.release.set_priority(context.place, context.priority),
        }
    }

    /// Refills and alarms have become due.
    #[inline(never)]
    fn release_due(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) {
        while let Some(entry) = self.release.pop(contexts, now) {
            let Some(id) = entry.id() else { continue };
            match entry.is_alarm() {
                true => self.alarm(contexts, id, entry.time, now),
                false => self.refill(contexts, id, now),
            }
        }
    }

    /// It has wanted to run since `time`.
    fn alarm(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, time: Time, now: Time) {
        let (context, refills) = contexts.refills(id);
        context.flags |= WANTED | ALARMED;
        context.account.wake(refills, time);
        self.place(contexts, id, now, false);
    }

    fn refill(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) {
        self.ready.remove(contexts, id);
        let level = foreground(contexts.context(id).priority);
        // It ran in the background and goes on above.
        let goes_on = self.running == id.link();
        self.ready.insert(contexts, id, level, goes_on);
        if goes_on {
            (self.level, self.effective) = (level, level);
            let (context, refills) = contexts.refills(id);
            context.account.dispatch(refills, now);
        }
    }

    #[inline]
    fn turn_is_over(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) -> bool {
        let Some(id) = self.running() else { return false };
        let (context, refills) = contexts.refills(id);
        if self.level >= FOREGROUND {
            return context.account.settle(refills, now);
        }
        let over = context.turn >= context.account.budget();
        context.turn = if over { 0 } else { context.turn };
        over
    }

    /// Takes who runs off the processor and queues it anew.
    fn leave(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time, first: bool) {
        let Some(id) = self.running() else { return };
        self.vacate();
        let (context, refills) = contexts.refills(id);
        context.account.preempt(refills, now);
        self.unplace(contexts, id);
        self.place(contexts, id, now, first);
    }

    /// After a donation: who runs is queued where it belongs now, still first.
    #[inline]
    fn follow(&mut self, contexts: &mut (impl Contexts + ?Sized)) {
        if self.effective != self.level {
            self.requeue(contexts);
        }
    }

    #[cold]
    fn requeue(&mut self, contexts: &mut (impl Contexts + ?Sized)) {
        if let Some(id) = self.running() {
            self.ready.remove(contexts, id);
            self.ready.insert(contexts, id, self.effective, true);
            let Context { place, priority, .. } = *contexts.context(id);
            self.release.set_priority(place, priority);
        }
        self.level = self.effective;
    }

    /// Who runs is preempted: it stays first of its level. What a strict server used is split off,
    /// after which it may have to wait.
    #[inline]
    fn make_way(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) {
        let Some(id) = self.running() else { return };
        let strict = contexts.context(id).account.policy == STRICT;
        if strict && self.level >= FOREGROUND {
            self.leave(contexts, now, true);
        }
    }

    /// Puts the first of a level on the processor; whether its alarm woke it.
    #[inline]
    fn enter(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        first: Option<Id>,
        level: u16,
        now: Time,
    ) -> bool {
        let Some(id) = first else {
            self.vacate();
            return false;
        };
        (self.running, self.level, self.effective) = (id.link(), level, level);
        let (context, refills) = contexts.refills(id);
        if level >= FOREGROUND {
            context.account.dispatch(refills, now);
        }
        let alarm = context.flags & ALARMED != 0;
        context.flags &= !ALARMED;
        alarm
    }

    #[inline]
    fn timer(&self, contexts: &mut (impl Contexts + ?Sized), now: Time) -> Time {
        let end = match self.running() {
            Some(id) => now.saturating_add(self.rest(contexts.context(id))),
            None => Time::MAX,
        };
        // Most times nothing comes before the end: then nothing else is looked at.
        match self.release.first() < end {
            true => self.release.next_above(self.effective).min(end),
            false => end,
        }
    }

    /// What who runs has before its turn is over, ticks.
    #[inline]
    fn rest(&self, context: &Context) -> Time {
        match self.level >= FOREGROUND {
            true => context.account.left(),
            false => context.account.budget().saturating_sub(context.turn),
        }
    }
}
