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

use crate::context::{ALARMED, BACKGROUND, SERVER, STRICT, WAITS, WANTED};
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
    /// The level that it runs at; 0 if nobody runs.
    effective: u32,
    /// Its level in the ready queue, for which the timer was set: another one than it runs at
    /// after a donation. With [`ODD`] where the short ways are not right for who runs; else, if
    /// they are right, equal to `effective`.
    level: u32,
    padding: u32,
    reserved: u64,
    ready: Ready,
    release: Release,
}

/// Who runs is strict, or may be in the background.
const ODD: u32 = 1 << 31;

impl Scheduler {
    /// A scheduler of an idle core.
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

    /// Begins at `now` with what was woken by another clock: nobody has waited so far, and who did
    /// not wait has no budgets to make up for.
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

    /// When nothing wants to run on a context until an alarm, the time of that. One that was due is due
    /// from `now` on, as long as its thread was not told.
    pub fn alarm_of(&self, context: &Context, now: Time) -> Option<Time> {
        match (context.has_alarm(), context.is_alarmed()) {
            (true, _) => Some(self.release.time_at(context.place)),
            (false, alarmed) => alarmed.then_some(now),
        }
    }

    /// Who runs.
    pub fn running(&self) -> Option<Id> {
        Id::from_link(self.running)
    }

    /// Whether who runs does so below all priorities.
    pub fn is_in_background(&self) -> bool {
        self.running != 0 && self.level & FOREGROUND == 0
    }

    /// A thread wants to run on a context, alarm or not. Without effect if one wanted to already,
    /// but that it is not told of an alarm that woke it. Says whether [`Scheduler::schedule`] may come
    /// to another decision now; else it need not be called.
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
        self.ready.insert(contexts, id, level);
        level > self.effective
    }

    /// It has an alarm or wants to run already, its list changes, or it has no budget.
    #[inline(never)]
    fn wake_odd(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) -> bool {
        let (context, refills) = contexts.refills(id);
        context.flags &= !ALARMED;
        if context.is_wanted() {
            return false;
        }
        context.flags |= WANTED;
        context.account.wake(refills, now);
        self.release.remove(contexts, id);
        self.place(contexts, id, now, false) > self.effective
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
            0 => context.account.deactivate(),
            _ => context.account.stop(refills, now),
        }
    }

    /// It does not run, or not in the usual way.
    #[inline(never)]
    fn block_odd(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) {
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
            self.release.insert(contexts, id, Entry::new(id, deadline.max(now), priority, true));
        }
    }

    /// Who runs goes on with a thread of another priority. Says whether it is still to run, and the
    /// timer right; else [`Scheduler::schedule`] is to be called. Raising is always right.
    #[inline]
    pub fn donate(&mut self, contexts: &mut (impl Contexts + ?Sized), priority: u8) -> bool {
        let Some(id) = self.running() else { return false };
        contexts.context(id).priority = priority;
        self.effective = self.level & FOREGROUND | u32::from(priority);
        // The highest is at least its level in the queue, where it still lies, and for which the
        // timer was set.
        self.ready.nobody_above(self.effective)
    }

    /// The rest of what who runs has now is given up as if it had been used: others of its
    /// priority have their turn, and it goes on with its next refill.
    pub fn yield_now(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) {
        self.charge(contexts, now);
        let Some(id) = self.running() else { return };
        let in_background = self.is_in_background();
        let context = contexts.context(id);
        match in_background {
            false => context.account.give_up(),
            true => context.turn = context.account.budget(),
        }
    }

    /// A context that is ready becomes the first of its level, also before who runs.
    pub fn yield_to(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id) {
        self.follow(contexts);
        if let Some(level) = contexts.context(id).queued.checked_sub(1) {
            self.ready.remove(contexts, id);
            self.ready.insert_first(contexts, id, level.into());
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
    ///
    /// The short way: somebody plain runs and has budget, or nobody, and nobody's time has come.
    #[inline]
    pub fn schedule(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) -> Decision {
        let before = self.running;
        if self.level != self.effective {
            return self.schedule_odd(contexts, now);
        }
        if now < self.charged {
            return self.schedule_odd(contexts, self.charged);
        }
        if self.release.first() <= now {
            return self.schedule_due(contexts, now);
        }
        if self.charge_running(contexts, now) {
            return self.schedule_over(contexts, now);
        }
        self.decide(contexts, now, before)
    }

    /// Somebody's time has come. The short way: one plain context's refill, nothing else.
    #[inline(never)]
    fn schedule_due(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) -> Decision {
        let before = self.running;
        if self.charge_running(contexts, now) || self.release.second_is_due(now) {
            return self.schedule_odd(contexts, now);
        }
        let entry = self.release.at(0);
        let Some(id) = entry.id() else { return self.schedule_odd(contexts, now) };
        let context = contexts.context(id);
        let flags = context.flags;
        if entry.is_alarm() {
            if flags & SERVER == 0 || !context.account.begin_at(entry.time) {
                return self.schedule_odd(contexts, now);
            }
            context.flags = flags & !WAITS | WANTED | ALARMED;
        } else {
            if flags & BACKGROUND != 0 {
                return self.schedule_odd(contexts, now);
            }
            context.flags = flags & !WAITS;
        }
        let level = foreground(context.priority);
        if !entry.is_alarm() {
            contexts.refilled(id);
        }
        self.ready.insert(contexts, id, level);
        self.release.take_first(contexts);
        self.decide(contexts, now, before)
    }

    /// A budget is used up. The short way: that of a server that is plain, and no more than its
    /// head.
    #[inline(never)]
    fn schedule_over(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) -> Decision {
        let Some(id) = self.running() else { return self.schedule_odd(contexts, now) };
        let (context, refills) = contexts.refills(id);
        if context.flags & SERVER == 0 || !context.account.use_up_head(refills) {
            return self.schedule_odd(contexts, now);
        }
        self.running = 0;
        let (priority, eligible) = (context.priority, context.account.eligible());
        self.ready.remove_first(contexts, id, self.level);
        match eligible <= now {
            true => {
                contexts.refilled(id);
                self.ready.insert(contexts, id, foreground(priority));
            }
            false => {
                self.release.insert(contexts, id, Entry::new(id, eligible, priority, false));
            }
        }
        self.decide(contexts, now, id.link())
    }

    /// Any way.
    #[inline(never)]
    fn schedule_odd(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) -> Decision {
        let before = self.running;
        self.charge(contexts, now);
        self.release_due(contexts, now);
        match self.turn_is_over(contexts, now) {
            true => self.leave(contexts, now, false),
            false => self.follow(contexts),
        }
        self.make_way(contexts, now);
        self.decide(contexts, now, before)
    }

    /// Who runs, if somebody does, is charged, as far as it is in its queue, and has left it if it
    /// must.
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
        if self.running != id.link() {
            if context.flags & (ALARMED | STRICT | BACKGROUND) != 0 {
                return self.enter_noted(contexts, id, now, before);
            }
            self.occupy(id, level, 0);
            context.account.pay();
        } else if self.level & ODD != 0 {
            return self.stay_odd(contexts, now, before);
        }
        let timer = now.saturating_add(context.account.rest());
        let switched = id.link() != before;
        if self.release.nothing_before(level, timer) {
            return Decision { run: Some(id), timer, switched, alarm: false };
        }
        match self.release.first_above(level) {
            Some(timer) => Decision { run: Some(id), timer, switched, alarm: false },
            None => self.with_timer(id, level, timer, switched),
        }
    }

    /// Somebody's time may come before the end of who runs.
    #[inline(never)]
    fn with_timer(&mut self, id: Id, level: u32, end: Time, switched: bool) -> Decision {
        if self.release.are_many() {
            return self.with_timer_of_many(id, level, end, switched);
        }
        let timer = self.release.next_of_few(level, end);
        Decision { run: Some(id), timer, switched, alarm: false }
    }

    #[inline(never)]
    fn with_timer_of_many(&mut self, id: Id, level: u32, end: Time, switched: bool) -> Decision {
        let timer = self.release.next_of_many(level, end);
        Decision { run: Some(id), timer, switched, alarm: false }
    }

    /// Nobody is ready.
    #[inline(never)]
    fn idle(&mut self, before: u32) -> Decision {
        self.vacate();
        let timer = self.release.next_above(0, Time::MAX);
        Decision { run: None, timer, switched: before != 0, alarm: false }
    }

    /// Who is put on the processor is not plain, or was woken by its alarm.
    #[inline(never)]
    fn enter_noted(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        now: Time,
        before: u32,
    ) -> Decision {
        let context = contexts.context(id);
        if context.flags & (STRICT | BACKGROUND) != 0 {
            return self.enter_odd(contexts, now, before);
        }
        context.flags &= !ALARMED;
        let level = self.ready.highest();
        self.occupy(id, level, 0);
        context.account.pay();
        let end = now.saturating_add(context.account.rest());
        let timer = match self.release.nothing_before(level, end) {
            true => end,
            false => self.release.next_above(level, end),
        };
        Decision { run: Some(id), timer, switched: true, alarm: true }
    }

    /// The highest is put on the processor, any way.
    #[inline(never)]
    fn enter_odd(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        now: Time,
        before: u32,
    ) -> Decision {
        let level = self.ready.highest();
        let Some(id) = self.ready.first(level) else { return self.idle(before) };
        let (context, refills) = contexts.refills(id);
        if level >= FOREGROUND {
            context.account.dispatch(refills, now);
        } else if context.turn >= context.account.budget() {
            // Its budget has shrunk, or it left in the middle of a turn.
            context.turn = 0;
        }
        let alarm = context.flags & ALARMED != 0;
        context.flags &= !ALARMED;
        let odd = context.flags & (STRICT | BACKGROUND) != 0;
        self.occupy(id, level, if odd { ODD } else { 0 });
        Decision { alarm, ..self.stay_odd(contexts, now, before) }
    }

    /// Who is on the processor stays there, any way.
    #[inline(never)]
    fn stay_odd(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        now: Time,
        before: u32,
    ) -> Decision {
        let Some(id) = self.running() else { return self.idle(before) };
        let in_background = self.is_in_background();
        let context = contexts.context(id);
        let rest = match in_background {
            false => context.account.left(),
            true => context.account.budget().saturating_sub(context.turn),
        };
        let timer = self.release.next_above(self.level & !ODD, now.saturating_add(rest));
        Decision { run: Some(id), timer, switched: id.link() != before, alarm: false }
    }

    #[inline(always)]
    fn occupy(&mut self, id: Id, level: u32, odd: u32) {
        (self.running, self.effective) = (id.link(), level);
        self.level = level | odd;
    }

    /// Nobody is on the processor.
    #[inline]
    fn vacate(&mut self) {
        (self.running, self.level, self.effective) = (0, 0, 0);
    }

    /// Charges who runs, which is plain, if somebody does; whether its turn is over. `now` is not
    /// before what is charged.
    #[inline(always)]
    fn charge_running(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) -> bool {
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

    fn charge(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) {
        let in_background = self.is_in_background();
        let now = now.max(self.charged);
        match self.running() {
            Some(id) if in_background => {
                let ticks = now.wrapping_sub(self.charged);
                self.charged = now;
                let context = contexts.context(id);
                context.consumed = context.consumed.wrapping_add(ticks);
                context.turn = context.turn.saturating_add(ticks);
            }
            _ => _ = self.charge_running(contexts, now),
        }
    }

    /// Queues a context that wants to run and is in no queue; its level when it has budget.
    #[inline(always)]
    fn place(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        now: Time,
        first: bool,
    ) -> u32 {
        let context = contexts.context(id);
        let level = foreground(context.priority);
        if context.account.eligible() > now {
            self.wait(contexts, id, first);
        } else if first {
            self.ready.insert_first(contexts, id, level);
        } else {
            self.ready.insert(contexts, id, level);
        }
        level
    }

    /// Queues a context for its refill.
    #[inline]
    fn wait(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, first: bool) {
        let context = contexts.context(id);
        let (priority, flags) = (context.priority, context.flags);
        let entry = Entry::new(id, context.account.eligible(), priority, false);
        self.release.insert(contexts, id, entry);
        if flags & BACKGROUND != 0 {
            self.go_below(contexts, id, first);
        }
    }

    #[inline(never)]
    fn go_below(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, first: bool) {
        let level = background(contexts.context(id).priority);
        match first {
            true => self.ready.insert_first(contexts, id, level),
            false => self.ready.insert(contexts, id, level),
        }
    }

    fn unplace(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id) {
        self.ready.remove(contexts, id);
        self.release.remove(contexts, id);
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
            false => self.release.set_priority(context),
        }
    }

    /// Refills and alarms have become due.
    #[inline(always)]
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
    #[inline(never)]
    fn alarm(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, time: Time, now: Time) {
        let (context, refills) = contexts.refills(id);
        context.flags |= WANTED | ALARMED;
        context.account.wake(refills, time);
        self.place(contexts, id, now, false);
    }

    #[inline(always)]
    fn refill(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) {
        contexts.refilled(id);
        let context = contexts.context(id);
        if context.queued != 0 {
            return self.rise(contexts, id, now);
        }
        let level = foreground(context.priority);
        self.ready.insert(contexts, id, level);
    }

    /// A refill is due of a context that is in the background.
    #[inline(never)]
    fn rise(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) {
        self.ready.remove(contexts, id);
        let level = foreground(contexts.context(id).priority);
        if self.running != id.link() {
            return self.ready.insert(contexts, id, level);
        }
        // It runs, and goes on above.
        self.ready.insert_first(contexts, id, level);
        let (context, refills) = contexts.refills(id);
        context.account.dispatch(refills, now);
        self.occupy(id, level, ODD);
    }

    fn turn_is_over(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) -> bool {
        let in_background = self.is_in_background();
        let Some(id) = self.running() else { return false };
        let (context, refills) = contexts.refills(id);
        if !in_background {
            let over = context.account.settle(refills, now);
            if over && context.account.eligible() <= now {
                contexts.refilled(id);
            }
            return over;
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
    fn follow(&mut self, contexts: &mut (impl Contexts + ?Sized)) {
        let Some(id) = self.running().filter(|_| self.effective != self.level & !ODD) else {
            return;
        };
        let level = self.effective;
        self.ready.remove(contexts, id);
        self.ready.insert_first(contexts, id, level);
        self.release.set_priority(contexts.context(id));
        self.occupy(id, level, self.level & ODD);
    }

    /// Who runs stays first of its level if it is preempted. What a strict server used is split
    /// off then, after which it may have to wait.
    fn make_way(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) {
        let level = self.ready.highest();
        let next = self.ready.first(level);
        if next == self.running() || self.is_in_background() {
            return;
        }
        self.leave(contexts, now, true);
        // After `yield_to`: still behind the one that it was put behind.
        if let Some(id) = next.filter(|id| self.ready.first(level) != Some(*id)) {
            self.ready.remove(contexts, id);
            self.ready.insert_first(contexts, id, level);
        }
    }
}
