//! One core's scheduler: the context with the highest priority that has budget and a thread that
//! wants to run.
//!
//! The caller says what happens ([`Scheduler::wake`], [`Scheduler::block`], …), in the order in
//! which it happens, and then asks [`Scheduler::schedule`], which also says when to ask again at
//! the latest. Within a priority: first come, first served; who is preempted stays first, who
//! has used up a refill goes last. What the kernel itself uses between two decisions is charged
//! to who ran before.

use crate::ready::{Ready, background, foreground};
use crate::release::Release;
use crate::{Context, Contexts, Id, Invalid, Requester, Time};

/// Who runs from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    /// Nobody: the core is idle.
    pub run: Option<Id>,
    /// Whether that is another one than before.
    pub switched: bool,
    /// When to call [`Scheduler::schedule`] again at the latest: the end of a budget, or a refill
    /// of somebody with a higher priority. Never: nothing can happen by itself.
    pub timer: Option<Time>,
}

/// Who is on the processor.
#[derive(Clone, Copy, Debug)]
struct Running {
    id: Id,
    level: u16,
}

/// A core's scheduler. `S` holds an [`Id`] for each context that may wait for budget.
#[derive(Clone, Debug)]
pub struct Scheduler<S> {
    ready: Ready,
    release: Release<S>,
    running: Option<Running>,
    /// Up to when all use is charged.
    charged: Time,
}

impl<S: AsRef<[Id]> + AsMut<[Id]>> Scheduler<S> {
    /// A scheduler for as many contexts as `ids` is long, whatever its content.
    pub fn new(ids: S, now: Time) -> Self {
        let (ready, release) = (Ready::new(), Release::new(ids));
        Self { ready, release, running: None, charged: now }
    }

    /// How many contexts it has room for. Who lets more of them wake than these may see a panic.
    pub fn limit(&self) -> usize {
        self.release.limit()
    }

    /// Who runs.
    pub fn running(&self) -> Option<Id> {
        self.running.map(|running| running.id)
    }

    /// Whether who runs does so below all priorities.
    pub fn is_in_background(&self) -> bool {
        self.running.is_some_and(|running| running.level < foreground(0))
    }

    /// A thread wants to run on a context. Without effect if one wanted to already.
    pub fn wake(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) {
        let context = contexts.context(id);
        if !context.wanted {
            context.wanted = true;
            context.wake(now);
            self.place(contexts, id, now, false);
        }
    }

    /// No thread wants to run on a context any more.
    pub fn block(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) {
        self.charge(contexts, now);
        if self.running() == Some(id) {
            self.running = None;
        }
        self.unplace(contexts, id);
        let context = contexts.context(id);
        if context.wanted {
            context.wanted = false;
            context.block(now);
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

    /// Gives a server another budget and period ([`crate::Server::set`]). Without effect on other
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
        let mut result = Ok(());
        self.change(contexts, id, now, |context| result = context.set_budget(budget, period, now));
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
        let Some(pibs) = context.pibs() else { return Ok(()) };
        pibs.fits(requester.period)?;
        if !pibs.is_active() || higher {
            self.change(contexts, id, now, |context| {
                context.priority = requester.priority;
                if let Some(pibs) = context.pibs() {
                    pibs.request(requester.period, now);
                }
            });
        }
        Ok(())
    }

    /// Who runs from now on, and until when at most.
    pub fn schedule(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) -> Decision {
        let before = self.running();
        self.charge(contexts, now);
        while let Some(id) = self.release.due(contexts, now) {
            self.release_one(contexts, id, now);
        }
        if self.turn_is_over(contexts, now) {
            self.leave(contexts, now, false);
        }
        let level = self.running.map(|running| running.level);
        if self.ready.highest() > level {
            self.leave(contexts, now, true);
            self.enter(contexts, now);
        }
        Decision {
            run: self.running(),
            switched: self.running() != before,
            timer: self.timer(contexts, now),
        }
    }

    fn charge(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) {
        let ticks = now.saturating_sub(self.charged);
        self.charged += ticks;
        if let Some(Running { id, level }) = self.running {
            let context = contexts.context(id);
            context.consumed = context.consumed.saturating_add(ticks);
            match level >= foreground(0) {
                true => context.charge(ticks),
                false => context.turn = context.turn.saturating_add(ticks),
            }
        }
    }

    /// Queues a context that wants to run and doesn't.
    fn place(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time, first: bool) {
        let context = contexts.context(id);
        let (priority, in_background) = (context.priority, context.background);
        let waits = context.links.place.is_some();
        let ready = context.eligible() <= now;
        if ready == waits {
            match ready {
                true => self.release.remove(contexts, id),
                false => self.release.insert(contexts, id),
            }
        }
        if ready {
            return self.ready.insert(contexts, id, foreground(priority), first);
        }
        if in_background {
            self.ready.insert(contexts, id, background(priority), first);
        }
    }

    /// Changes a context while it is in no queue, and queues it last if it wants to run.
    fn change<C: Contexts + ?Sized>(
        &mut self,
        contexts: &mut C,
        id: Id,
        now: Time,
        change: impl FnOnce(&mut Context<C::Refills>),
    ) {
        if self.running() == Some(id) {
            self.stop(contexts, now);
        }
        self.unplace(contexts, id);
        change(contexts.context(id));
        if contexts.context(id).wanted {
            self.place(contexts, id, now, false);
        }
    }

    fn unplace(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id) {
        self.ready.remove(contexts, id);
        self.release.remove(contexts, id);
    }

    /// A refill has become due.
    fn release_one(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, now: Time) {
        self.unplace(contexts, id);
        let level = foreground(contexts.context(id).priority);
        match &mut self.running {
            // It ran in the background and goes on above.
            Some(running) if running.id == id => {
                running.level = level;
                contexts.context(id).dispatch(now);
            }
            _ => self.ready.insert(contexts, id, level, false),
        }
    }

    fn turn_is_over(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) -> bool {
        let Some(Running { id, level }) = self.running else { return false };
        let context = contexts.context(id);
        if level >= foreground(0) {
            return context.settle(now);
        }
        let over = context.turn >= context.budget();
        context.turn = if over { 0 } else { context.turn };
        over
    }

    /// Takes who runs off the processor and queues it.
    fn leave(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time, first: bool) {
        let Some(Running { id, .. }) = self.running else { return };
        self.stop(contexts, now);
        self.place(contexts, id, now, first);
    }

    fn stop(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) {
        if let Some(Running { id, .. }) = self.running.take() {
            contexts.context(id).preempt(now);
        }
    }

    fn enter(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) {
        let Some(level) = self.ready.highest() else { return };
        let Some(id) = self.ready.first(level) else { return };
        self.ready.remove(contexts, id);
        if level >= foreground(0) {
            contexts.context(id).dispatch(now);
        }
        self.running = Some(Running { id, level });
    }

    fn timer(&self, contexts: &mut (impl Contexts + ?Sized), now: Time) -> Option<Time> {
        let release = self.release.next_above(contexts, self.running.map(|r| r.level));
        let Some(Running { id, level }) = self.running else { return release };
        let context = contexts.context(id);
        let left = match level >= foreground(0) {
            true => context.left(),
            false => context.budget().saturating_sub(context.turn),
        };
        let end = now.saturating_add(left);
        Some(release.map_or(end, |release| release.min(end)))
    }
}
