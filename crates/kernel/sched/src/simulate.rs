//! A core in simulated time: threads that follow programs, under the scheduler itself.
//! Decisions cost nothing here; [`crate::admission`] has the kernel's overhead.

use std::vec::Vec;

use crate::{Context, Contexts, Decision, Id, PLACES, Refill, Scheduler, Time};

/// A context with its refills on the heap.
pub type Simulated = (Context, Vec<Refill>);

/// Next step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Computes for so many ticks.
    Run(Time),
    /// Sleeps until a time, if it is not past.
    Until(Time),
    /// Its job is done. Sleeps until the next one, so many ticks after the release of this one, if
    /// that is not past.
    Every(Time),
    /// Sleeps until it is signalled, if it was not since it last waited.
    Wait,
    /// Wakes the thread of a context; a PIBS context works for the signaller's.
    Signal(Id),
    /// Calls a passive server: the steps that follow are its work, with its priority, on this budget.
    Call(u8),
    /// Has the answer, and goes on with its own priority.
    Answer(u8),
}

/// A thread on a context of its own.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Context that it runs on.
    pub context: Simulated,
    /// Time at which it exists and its first job is released.
    pub start: Time,
    /// Steps that it takes.
    pub program: Vec<Step>,
    /// The step after the last one; `None`: the thread ends there.
    pub repeat: Option<usize>,
}

/// A stretch of time with one context, or none, on the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Its begin.
    pub begin: Time,
    /// Up to when.
    pub end: Time,
    /// Context that runs; `None`: the core is idle.
    pub context: Option<Id>,
    /// Its priority; 0 if the core is idle.
    pub priority: u8,
    /// Without budget, below all priorities.
    pub background: bool,
    /// It is a passive server's work.
    pub served: bool,
}

/// A job of a thread, from release to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its context.
    pub context: Id,
    /// Time at which it could begin.
    pub released: Time,
    /// When it was done.
    pub done: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Awake,
    Until(Time),
    Waiting,
    Ended,
}

#[derive(Clone, Debug)]
struct Course {
    program: Vec<Step>,
    repeat: Option<usize>,
    at: usize,
    left: Time,
    released: Time,
    signalled: bool,
    served: bool,
    /// It sleeps by the scheduler's alarm.
    alarm: bool,
    state: State,
}

/// A core and its threads.
#[derive(Clone, Debug)]
pub struct Simulation {
    contexts: Vec<Simulated>,
    courses: Vec<Course>,
    scheduler: Scheduler,
    /// Sleepers are the scheduler's, not the simulation's.
    alarms: bool,
    now: Time,
    slices: Vec<Slice>,
    jobs: Vec<Job>,
    timers: u64,
}

impl Simulation {
    /// Returns a core at time 0; contexts are numbered in the order given.
    ///
    /// # Panics
    /// If a thread repeats steps that take no time, or there are more than [`PLACES`].
    pub fn new(threads: impl IntoIterator<Item = Thread>) -> Self {
        let (mut contexts, mut courses) = (Vec::new(), Vec::new());
        for Thread { context, start, program, repeat } in threads {
            let takes_time = |from: usize| {
                program[from..].iter().any(|step| matches!(step, Step::Run(1..) | Step::Wait))
            };
            assert!(repeat.is_none_or(takes_time), "thread {} never runs", contexts.len());
            contexts.push(context);
            let (released, state) = (start, State::Until(start));
            courses.push(Course {
                program,
                repeat,
                at: 0,
                left: 0,
                released,
                signalled: false,
                served: false,
                alarm: false,
                state,
            });
        }
        let mut scheduler = Scheduler::new(0);
        for _ in &contexts {
            assert_eq!(scheduler.reserve(), Ok(()), "at most {PLACES} threads");
        }
        let (slices, jobs) = (Vec::new(), Vec::new());
        Self { contexts, courses, scheduler, alarms: false, now: 0, slices, jobs, timers: 0 }
    }

    /// Wakes sleeping contexts by the scheduler's alarm, instead of by a caller that always comes in time.
    pub fn with_alarms(mut self) -> Self {
        self.alarms = true;
        self
    }

    /// Returns the time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the contexts as they are.
    pub fn contexts(&self) -> &[Simulated] {
        &self.contexts
    }

    /// Returns the slices of time, without gaps.
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// Returns the jobs that are done, in the order of their ends.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Returns how often the scheduler was called because its time had come, and for nothing else.
    pub fn timers(&self) -> u64 {
        self.timers
    }

    /// Returns how long a context ran.
    pub fn used(&self, context: Id) -> Time {
        let own = self.slices.iter().filter(|slice| slice.context == Some(context));
        own.map(|slice| slice.end - slice.begin).sum()
    }

    /// Goes on until `end`.
    pub fn run(&mut self, end: Time) {
        while self.now < end {
            self.step(end);
        }
        let _ = self.settle();
    }

    /// All that happens now, then on to the next moment at which something may happen, `end` at the
    /// latest.
    pub fn step(&mut self, end: Time) {
        let decision = self.settle();
        let left = decision.run.map(|id| self.course(id).left);
        let sleepers = self.courses.iter().filter_map(|course| match course.state {
            State::Until(time) if !course.alarm => Some(time),
            _ => None,
        });
        let done = left.map(|left| self.now.saturating_add(left));
        let other = sleepers.chain(done).chain([end]).min().unwrap_or(end);
        let next = decision.timer.min(other);
        self.timers += u64::from(next < other);
        self.pass(decision, next.max(self.now));
    }

    /// All that happens now.
    fn settle(&mut self) -> Decision {
        let now = self.now;
        // A thread that is done at the end of its budget is done.
        if let Some(id) = self.scheduler.running() {
            self.go_on(id);
        }
        for n in 0..self.courses.len() {
            let course = &self.courses[n];
            if matches!(course.state, State::Until(time) if time <= now) && !course.alarm {
                self.wake(Id::of(n as u32));
            }
        }
        loop {
            let decision = self.scheduler.schedule(&mut self.contexts[..], now);
            if let Some(id) = decision.run.filter(|_| decision.alarm) {
                self.course(id).state = State::Awake;
            }
            match decision.run {
                Some(id) if self.course(id).left == 0 => self.go_on(id),
                _ => return decision,
            }
        }
    }

    fn pass(&mut self, decision: Decision, until: Time) {
        let (begin, end, context) = (self.now, until, decision.run);
        let priority = context.map_or(0, |id| self.contexts[..].context(id).priority());
        let background = self.scheduler.is_in_background();
        self.now = until;
        if let Some(id) = context {
            self.course(id).left -= end - begin;
        }
        let served = context.is_some_and(|id| self.course(id).served);
        let slice = Slice { begin, end, context, priority, background, served };
        match self.slices.last_mut() {
            Some(last) if Slice { begin: last.begin, ..slice } == Slice { end, ..*last } => {
                last.end = end;
            }
            _ if begin < end => self.slices.push(slice),
            _ => (),
        }
    }

    fn course(&mut self, id: Id) -> &mut Course {
        &mut self.courses[id.index()]
    }

    fn wake(&mut self, id: Id) {
        self.course(id).state = State::Awake;
        self.scheduler.wake(&mut self.contexts[..], id, self.now);
    }

    /// Takes the running thread's steps, until it computes or sleeps.
    fn go_on(&mut self, id: Id) {
        while self.course(id).left == 0 && self.course(id).state == State::Awake {
            let course = self.course(id);
            let Some(step) = course.program.get(course.at).copied() else {
                self.sleep(id, State::Ended);
                return;
            };
            course.at += 1;
            if course.at == course.program.len() {
                course.at = course.repeat.unwrap_or(course.at);
            }
            self.take(id, step);
        }
    }

    fn take(&mut self, id: Id, step: Step) {
        let now = self.now;
        match step {
            Step::Run(ticks) => self.course(id).left = ticks,
            Step::Until(time) => self.sleep_until(id, time),
            Step::Every(period) => {
                let released = self.course(id).released;
                self.jobs.push(Job { context: id, released, done: now });
                self.course(id).released = released.saturating_add(period);
                self.sleep_until(id, released.saturating_add(period));
            }
            Step::Wait => match core::mem::take(&mut self.course(id).signalled) {
                true => (),
                false => self.sleep(id, State::Waiting),
            },
            Step::Signal(other) => self.signal(id, other),
            // It runs, and whether it still does is decided after each step.
            Step::Call(priority) | Step::Answer(priority) => {
                self.course(id).served = matches!(step, Step::Call(_));
                let _ = self.scheduler.donate(&mut self.contexts[..], priority);
            }
        }
    }

    fn sleep_until(&mut self, id: Id, time: Time) {
        if time > self.now {
            self.course(id).state = State::Until(time);
            self.course(id).alarm = self.alarms;
            match self.alarms {
                true => {
                    self.scheduler.block_until(&mut self.contexts[..], id, self.now, time);
                }
                false => self.scheduler.block(&mut self.contexts[..], id, self.now),
            }
        }
    }

    fn sleep(&mut self, id: Id, state: State) {
        self.course(id).state = state;
        self.scheduler.block(&mut self.contexts[..], id, self.now);
    }

    fn signal(&mut self, from: Id, to: Id) {
        let requester = self.contexts[..].context(from).requester();
        // A requester with too short a period for the server's U is served as the last one was.
        let _ = self.scheduler.request(&mut self.contexts[..], to, requester, self.now);
        match self.course(to).state {
            State::Waiting => self.wake(to),
            _ => self.course(to).signalled = true,
        }
    }
}
