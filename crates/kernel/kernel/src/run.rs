//! The running thread: the kernel's messages to the scheduler, and its use of the answers.

use crate::core::{Store, context, id};
use crate::{Context, Core, Event, Kernel, Machine, Ref, State, Thread};
use bulkhead_kernel_abi::{Code, Status};
use bulkhead_sched::Time;

impl<M: Machine> Kernel<'_, M> {
    /// Returns the time of this entry.
    pub(crate) fn now(&mut self) -> Time {
        // Read once in an entry, so that all its steps agree on the time.
        if self.core.now == 0 {
            self.core.now = self.machine.now();
        }
        self.core.now
    }

    pub(crate) fn set_state(&mut self, thread: Ref<Thread>, state: State) {
        self.machine.get_mut(thread).state = state as u8;
    }

    /// Lets a thread run from now on, if it has a context.
    #[inline(never)]
    pub(crate) fn ready(&mut self, thread: Ref<Thread>) {
        self.set_state(thread, State::Running);
        let Thread { context, priority, .. } = *self.machine.get(thread);
        let Some(id) = id(context) else { return };
        let held = self.machine.get(context);
        // The scheduler has a place for it from when it is given time.
        if held.is_set == 0 {
            return;
        }
        let (other, now) = (held.time.priority() != priority, self.now());
        let store = &mut Store(&mut *self.machine);
        let mut decide = false;
        if self.core.scheduler.running() == Some(id) {
            // Also if it has that priority already: an earlier change may still be undecided.
            decide = !self.core.scheduler.donate(store, priority);
        } else if other {
            decide = self.core.scheduler.set_priority(store, id, priority, now);
        }
        decide |= self.core.scheduler.wake(store, id, now);
        self.core.undecided |= u32::from(decide);
    }

    /// Lets nothing run on a context, until something is woken on it or `until` has come.
    #[inline(never)]
    pub(crate) fn rest(&mut self, context: Ref<Context>, until: Time) {
        let Some(id) = id(context) else { return };
        if self.machine.get(context).is_set == 0 {
            return;
        }
        let now = self.now();
        let store = &mut Store(&mut *self.machine);
        let decide = self.core.scheduler.block_until(store, id, now, until);
        self.trace_leave(context);
        self.core.undecided |= u32::from(decide);
    }

    /// Stops a thread: it waits for something.
    #[inline(never)]
    pub(crate) fn stop(&mut self, thread: Ref<Thread>, state: State, until: Time) {
        self.set_state(thread, state);
        let context = self.machine.get(thread).context;
        self.rest(context, until);
    }

    /// Stops a thread that could not go on. The context that it runs on goes back at once where it came from: the
    /// thread's handler may come late, or never.
    #[inline(never)]
    pub(crate) fn halt(&mut self, thread: Ref<Thread>) {
        self.stop(thread, State::Stopped, Time::MAX);
        self.give_back(thread);
    }

    /// Hands a context to another thread, or to none; it runs there if it ran before or the thread can run.
    #[inline(never)]
    pub(crate) fn hand(&mut self, context: Ref<Context>, to: Ref<Thread>) {
        let from = core::mem::replace(&mut self.machine.get_mut(context).thread, to);
        // First out of the old holder: at no time have two threads one context.
        if let Some(from) = from.some() {
            self.machine.get_mut(from).context = Ref::NONE;
        }
        if let Some(to) = to.some() {
            self.machine.get_mut(to).context = context;
        }
        let runs = to.some().is_some_and(|to| self.machine.get(to).state == State::Running as u8);
        if runs { self.ready(to) } else { self.rest(context, Time::MAX) }
    }

    /// Tells if a thread runs on time that is not its own.
    pub(crate) fn is_borrowed(&self, thread: Ref<Thread>) -> bool {
        let context = self.machine.get(thread).context;
        !context.is_none() && self.machine.get(context).home != thread
    }

    /// Gives borrowed time back: a thread that waits for messages keeps none. The context goes to the caller that it
    /// came from, which waits on for the answer, or to the notification.
    #[inline(never)]
    pub(crate) fn give_back(&mut self, thread: Ref<Thread>) {
        if !self.is_borrowed(thread) {
            return;
        }
        let context = self.machine.get(thread).context;
        match self.machine.get(context).reply.some() {
            Some(reply) => self.unstack(reply, context),
            None => {
                let Context { home, notification, .. } = *self.machine.get(context);
                let free = home.some().filter(|home| self.machine.get(*home).context.is_none());
                self.trace_return(thread, free.unwrap_or(Ref::NONE), context);
                self.hand(context, free.unwrap_or(Ref::NONE));
                // A signal that came meanwhile may have had to wait for it.
                if let Some(notification) = notification.some() {
                    self.offer(notification);
                }
            }
        }
    }

    /// Starts the first threads. The host woke them by another clock.
    pub fn start(&mut self) {
        // The host's current thread has not run here.
        self.core.current = Ref::NONE;
        let now = self.now();
        self.core.scheduler.start(&mut Store(&mut *self.machine), now);
        self.core.undecided = 1;
        self.decide();
    }

    /// Decides which thread runs, at the end of an entry that changed something, and goes there.
    pub fn decide(&mut self) {
        // Telling a handler of the end of a budget, or a thread of its deadline, can change it again.
        while self.core.undecided != 0 {
            let given_up = core::mem::take(&mut self.core.undecided) & Core::GIVEN_UP != 0;
            let now = self.now();
            let before = self.core.scheduler.running();
            let decision = self.core.scheduler.schedule(&mut Store(&mut *self.machine), now);
            let run = decision.run.map(context);
            if decision.alarm {
                self.time_out(run.unwrap_or(Ref::NONE));
            }
            if let Some(before) = before.filter(|before| Some(*before) != decision.run) {
                self.trace_leave(context(before));
                self.exhausted(context(before), now, given_up);
            } else if let Some(before) = before {
                self.overrun(context(before));
            }
            if self.core.undecided == 0 && decision.timer != self.core.timer {
                self.core.timer = decision.timer;
                self.machine.set_timer(decision.timer);
            }
        }
        // Also without a decision: the running thread may have lent or returned its context.
        let running = self.core.scheduler.running().map(context);
        let next = running.map_or(Ref::NONE, |running| self.machine.get(running).thread);
        // Also from no thread: the one that ran before that may have been another one, or be gone.
        let before = core::mem::replace(&mut self.core.current, next);
        // The next entry reads the clock anew.
        self.core.now = 0;
        self.trace_run();
        self.enter(before);
    }

    /// Makes the processor the current thread's, which was another thread's before, or none's.
    #[inline(always)]
    pub(crate) fn enter(&mut self, before: Ref<Thread>) {
        let Some(current) = self.core.current.some() else { return };
        let Thread { space, flags, pointer, .. } = *self.machine.get(current);
        if before != current {
            self.machine.enter_thread(pointer);
        }
        // Threads of one program share the space. A thread without one never runs.
        if space != self.core.space && space != 0 {
            self.core.space = space;
            self.machine.enter_space(space);
        }
        let vectors = flags & Thread::VECTORS != 0;
        let owner = if vectors { current } else { Ref::NONE };
        // Only a change of the owner saves and loads them.
        if owner != self.core.vectors_of {
            self.core.vectors_of = owner;
            self.machine.use_vectors(owner.some().map(crate::vectors));
        }
    }

    /// Handles the timer's interrupt.
    pub fn timer(&mut self) {
        self.timer_came();
        if !self.fast_timeout() && !self.fast_refill() {
            self.core.undecided = 1;
            self.decide();
        }
    }

    /// Handles the timer without the short ways, which must not make a difference.
    #[cfg(any(test, feature = "host"))]
    pub fn timer_slowly(&mut self) {
        self.timer_came();
        self.core.undecided = 1;
        self.decide();
    }

    #[inline(always)]
    fn timer_came(&mut self) {
        self.trace(|kernel| Event::Timer {
            thread: kernel.core.current.at(),
            due: kernel.core.timer,
        });
        self.core.timer = Time::MAX;
    }

    /// Ends a wait with a deadline that has come before its signal or message.
    #[inline(never)]
    fn time_out(&mut self, context: Ref<Context>) {
        let thread = self.machine.get(context).thread;
        // The context's thread has gone meanwhile.
        if thread.is_none() {
            return;
        }
        self.trace(|_| Event::Deadline { thread: thread.at(), context: context.at() });
        self.leave_queue(thread);
        let status = Status::new(Code::TimedOut, 0, 0);
        self.machine.get_mut(thread).registers.answer::<M::Layout>(status.0, 0, 0);
        if let Some(reply) = core::mem::take(&mut self.machine.get_mut(thread).reply).some() {
            self.machine.get_mut(reply).receiver = Ref::NONE;
        }
        self.ready(thread);
    }
}
