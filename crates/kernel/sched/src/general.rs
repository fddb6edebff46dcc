//! The general ways of the scheduler, for any running context and any events, in any order. Each step here is a call,
//! so that rare events take little room; the short ways in [`crate::scheduler`] handle the usual ones.

use crate::context::{ALARMED, BACKGROUND, STRICT, WAITS, WANTED};
use crate::ready::{FOREGROUND, background, foreground};
use crate::release::Entry;
use crate::scheduler::ODD;
use crate::{Context, Contexts, Decision, Id, Invalid, Requester, Scheduler, Time};

impl Scheduler {
    /// Gives up the rest of the running context's budget as if it had been used. Others of its priority have their
    /// turn, and it goes on with its next refill.
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

    /// Makes a ready context the first of its level, also before the running one.
    pub fn yield_to(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id) {
        self.follow(contexts);
        if let Some(level) = contexts.context(id).queued.checked_sub(1) {
            self.requeue(contexts, id, level.into(), true);
        }
    }

    /// Gives a context another priority. It goes last there. Says if [`Scheduler::schedule`] may come to another
    /// decision now, as [`Scheduler::wake`] does.
    #[inline(never)]
    pub fn set_priority(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        priority: u8,
        now: Time,
    ) -> bool {
        let context = contexts.context(id);
        if self.running != id.link() && context.flags & (WANTED | WAITS) == WANTED {
            context.priority = priority;
            let level = foreground(priority);
            self.requeue(contexts, id, level, false);
            return level > self.effective;
        }
        self.charge(contexts, now);
        self.change(contexts, id, now, |context| context.priority = priority);
        true
    }

    /// Gives a server another budget and period. Its used time comes again when it would have. The difference to a
    /// greater budget can be used at once; that to a smaller one is taken from the last refills. Without effect on
    /// other policies. True if [`Scheduler::schedule`] may now decide differently.
    ///
    /// # Errors
    /// [`Invalid::Budget`], [`Invalid::TooShort`]: the budget is as it was.
    #[inline(never)]
    pub fn set_budget(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        (budget, period): (Time, Time),
        now: Time,
    ) -> Result<bool, Invalid> {
        let context = contexts.context(id);
        let wanted = context.is_wanted();
        context.account.can_be(budget, period)?;
        if !context.account.is_server() {
            return Ok(false);
        }
        if wanted {
            self.charge(contexts, now);
            self.withdraw(contexts, id, now);
        }
        let (context, refills) = contexts.refills(id);
        context.set_budget(refills, (budget, period), now);
        if wanted {
            self.replace(contexts, id, now);
        }
        Ok(wanted)
    }

    /// Names the requester of the work that a PIBS context is woken for. During an activation only a higher
    /// priority counts. A requester with a lower one is to be named again when its work is [taken
    /// up](Scheduler::take_up). Without effect on other policies.
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
        let context = contexts.context(id);
        match context.account.is_active() && requester.priority <= context.priority {
            false => self.take_up(contexts, id, requester, now),
            true => context.account.fits(requester.period),
        }
    }

    /// Names the requester of the work that a PIBS context does from now on; its priority may be lower than the last
    /// one's. An activation goes on with the time that it has used. Without effect on other policies.
    ///
    /// # Errors
    /// [`Invalid::TooShort`]: nothing is changed.
    #[inline(never)]
    pub fn take_up(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        requester: Requester,
        now: Time,
    ) -> Result<(), Invalid> {
        self.charge(contexts, now);
        let context = contexts.context(id);
        let before = context.requester();
        if context.policy() != crate::Policy::Pibs || requester == before {
            return Ok(());
        }
        if requester.period != before.period {
            context.account.fits(requester.period)?;
        }
        self.change(contexts, id, now, |context| {
            context.priority = requester.priority;
            context.account.request(requester.period, now, requester.priority > before.priority);
        });
        Ok(())
    }

    /// Returns the scheduler without hints that only serve speed, so that two can be compared.
    #[cfg(any(test, feature = "host"))]
    pub fn without_hints(&self) -> Self {
        let mut without = self.clone();
        without.release.forget_hints();
        without
    }

    /// It has an alarm or wants to run already, its list changes, or it has no budget.
    #[inline(never)]
    pub(crate) fn wake_odd(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        now: Time,
    ) -> bool {
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

    /// It does not run, or not in the usual way.
    #[inline(never)]
    pub(crate) fn block_odd(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) {
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

    /// Handles any events: charges the running context, and takes it from its queue if it must leave.
    #[inline(never)]
    pub(crate) fn follow_all(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) {
        self.charge(contexts, now);
        self.release_due(contexts, now);
        match self.turn_is_over(contexts, now) {
            true => self.leave(contexts, now, false),
            false => self.follow(contexts),
        }
        self.make_way(contexts, now);
    }

    /// The highest is put on the processor, any way.
    #[inline(never)]
    pub(crate) fn enter_odd(
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

    /// Keeps the running context on the processor, in any state.
    #[inline(never)]
    pub(crate) fn stay_odd(
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
        let timer = self.release.next_slowly(self.level & !ODD, now.saturating_add(rest));
        Decision { run: Some(id), timer, switched: id.link() != before, alarm: false }
    }

    #[inline(never)]
    pub(crate) fn charge(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) {
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
    #[inline(never)]
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
        } else {
            self.queue(contexts, id, level, first);
        }
        level
    }

    /// Queues a context that is not queued at a level.
    #[inline]
    pub(crate) fn queue(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        level: u32,
        first: bool,
    ) {
        match first {
            true => self.ready.insert_first(contexts, id, level),
            false => self.ready.insert(contexts, id, level),
        }
    }

    /// Queues one that may be queued elsewhere.
    fn requeue(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        level: u32,
        first: bool,
    ) {
        self.ready.remove(contexts, id);
        self.queue(contexts, id, level, first);
    }

    /// Queues a context for its refill.
    fn wait(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, first: bool) {
        let context = contexts.context(id);
        let (priority, flags) = (context.priority, context.flags);
        let entry = Entry::new(id, context.account.eligible(), priority, false);
        self.wait_for(contexts, id, entry);
        if flags & BACKGROUND != 0 {
            self.queue(contexts, id, background(priority), first);
        }
    }

    /// Gives a context a place in the release queue.
    #[inline]
    pub(crate) fn wait_for(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        entry: Entry,
    ) {
        self.release.insert(contexts, id, entry);
    }

    #[inline(never)]
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
    #[inline(never)]
    pub(crate) fn withdraw(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) {
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
    #[inline(never)]
    pub(crate) fn replace(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) {
        let context = contexts.context(id);
        match context.is_wanted() {
            true => _ = self.place(contexts, id, now, false),
            false => self.release.set_priority(context),
        }
    }

    /// Refills and alarms have become due.
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
        contexts.refilled(id);
        let context = contexts.context(id);
        if context.queued != 0 {
            return self.rise(contexts, id, now);
        }
        let level = foreground(context.priority);
        self.queue(contexts, id, level, false);
    }

    /// A refill is due of a context that is in the background.
    fn rise(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) {
        let level = foreground(contexts.context(id).priority);
        let runs = self.running == id.link();
        self.requeue(contexts, id, level, runs);
        if !runs {
            return;
        }
        // It goes on above.
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

    /// Takes the running context off the processor and queues it anew.
    #[inline(never)]
    fn leave(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time, first: bool) {
        let Some(id) = self.running() else { return };
        self.vacate();
        let (context, refills) = contexts.refills(id);
        context.account.preempt(refills, now);
        self.unplace(contexts, id);
        self.place(contexts, id, now, first);
    }

    /// After a donation: queues the running context at its new level, still first.
    #[inline(never)]
    fn follow(&mut self, contexts: &mut (impl Contexts + ?Sized)) {
        let Some(id) = self.running().filter(|_| self.effective != self.level & !ODD) else {
            return;
        };
        let level = self.effective;
        self.requeue(contexts, id, level, true);
        self.release.set_priority(contexts.context(id));
        self.occupy(id, level, self.level & ODD);
    }

    /// Keeps the running context first of its level if it is preempted. A strict server's used time is then split
    /// off, after which it may have to wait.
    fn make_way(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) {
        let level = self.ready.highest();
        let next = self.ready.first(level);
        if next == self.running() || self.is_in_background() {
            return;
        }
        self.leave(contexts, now, true);
        // After `yield_to`: still behind the one that it was put behind.
        if let Some(id) = next.filter(|id| self.ready.first(level) != Some(*id)) {
            self.requeue(contexts, id, level, true);
        }
    }
}
