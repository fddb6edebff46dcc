//! Earliest deadline first, for a scheduler that is a program: it tells when jobs are released and done, and
//! learns which one is to run. No clock, no kernel, no allocation: times are numbers of any unit, tasks are numbers
//! below `N`.
//!
//! A task has one job at a time. It waits for its release, is ready until it is done, and then waits for the next
//! release. Its deadline is a period after the release (Liu and Layland 1973). Both kinds lie in a heap of their own,
//! so each step takes O(log N), and finding the next one to run O(1).
#![no_std]

mod heap;

use heap::Heap;

/// A task's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Task {
    period: u64,
    /// Absolute deadline of its last release.
    deadline: u64,
}

/// Up to `N` tasks.
#[derive(Clone, Debug)]
pub struct Edf<const N: usize> {
    tasks: [Task; N],
    /// By release.
    waiting: Heap<N>,
    /// By deadline.
    ready: Heap<N>,
}

impl<const N: usize> Default for Edf<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Edf<N> {
    /// No tasks.
    #[must_use]
    pub const fn new() -> Self {
        let tasks = [Task { period: 0, deadline: 0 }; N];
        Self { tasks, waiting: Heap::new(), ready: Heap::new() }
    }

    /// A task, which begins to wait for its first release.
    ///
    /// # Panics
    /// It is not below `N`, or there already.
    pub fn add(&mut self, task: usize, period: u64, release: u64) {
        assert!(!self.waiting.has(task) && !self.ready.has(task), "task {task} is there");
        self.tasks[task] = Task { period, deadline: 0 };
        self.waiting.push(task, release);
    }

    /// Tells when the next job is released; `None`: all are.
    #[must_use]
    pub fn next_release(&self) -> Option<u64> {
        self.waiting.first().map(|(_, release)| release)
    }

    /// Releases the job that has waited longest for its release, if the time has come. It counts from `now`: a job that
    /// is released late has its deadline later, and its next release.
    pub fn release(&mut self, now: u64) -> Option<usize> {
        let (task, release) = self.waiting.first()?;
        if release > now {
            return None;
        }
        self.waiting.remove(task);
        let Task { period, deadline } = &mut self.tasks[task];
        *deadline = now.saturating_add(*period);
        self.ready.push(task, *deadline);
        Some(task)
    }

    /// Returns the ready task with the earliest deadline; of equal ones the lowest number.
    #[must_use]
    pub fn earliest(&self) -> Option<usize> {
        self.ready.first().map(|(task, _)| task)
    }

    /// A task's job is done; it waits for its next release. By how much it was too late, 0 if it was not.
    ///
    /// # Panics
    /// It has no job.
    pub fn done(&mut self, task: usize, now: u64) -> u64 {
        assert!(self.ready.has(task), "task {task} has no job");
        let deadline = self.tasks[task].deadline;
        self.ready.remove(task);
        // The deadline is a period after the release, as is the next release.
        self.waiting.push(task, deadline);
        now.saturating_sub(deadline)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn a_job_with_an_earlier_deadline_comes_first() {
        let mut edf = Edf::<4>::new();
        edf.add(0, 100, 0);
        edf.add(1, 30, 10);
        assert_eq!(edf.release(0), Some(0));
        assert_eq!((edf.release(0), edf.earliest(), edf.next_release()), (None, Some(0), Some(10)));
        assert_eq!(edf.release(12), Some(1));
        assert_eq!(edf.earliest(), Some(1), "42 comes before 100");
        assert_eq!(edf.done(1, 40), 0);
        assert_eq!((edf.earliest(), edf.next_release()), (Some(0), Some(42)));
        assert_eq!(edf.done(0, 105), 5);
        assert_eq!(edf.earliest(), None);
    }

    #[test]
    #[should_panic(expected = "task 2 has no job")]
    fn what_has_no_job_cannot_be_done() {
        Edf::<4>::new().done(2, 0);
    }

    /// Runs tasks with periods and demands tick by tick; how many jobs were late.
    fn simulate(tasks: &[(u64, u64)], until: u64) -> usize {
        let mut edf = Edf::<8>::new();
        let mut left = [0; 8];
        tasks.iter().enumerate().for_each(|(n, (period, _))| edf.add(n, *period, 0));
        let mut late = 0;
        for now in 0..until {
            while let Some(n) = edf.release(now) {
                left[n] = tasks[n].1;
            }
            let Some(n) = edf.earliest() else { continue };
            left[n] -= 1;
            if left[n] == 0 {
                late += usize::from(edf.done(n, now + 1) > 0);
            }
        }
        late
    }

    #[test]
    fn full_load_meets_all_deadlines_which_fixed_priorities_do_not() {
        // 2/5 + 4/7 = 34/35; rate-monotonic priorities miss the first deadline of the second task.
        assert_eq!(simulate(&[(5, 2), (7, 4)], 35_000), 0);
        assert!(simulate(&[(5, 3), (7, 4)], 35_000) > 0, "41/35 is too much for anybody");
    }

    proptest! {
        /// Liu's and Layland's theorem 7.
        #[test]
        fn whatever_loads_at_most_all_is_never_late(
            tasks in prop::collection::vec((1u64..40, 1u64..40), 1..8)
        ) {
            let tasks: Vec<_> = tasks.into_iter().map(|(a, b)| (a.max(b), a.min(b))).collect();
            let load: f64 = tasks.iter().map(|(period, demand)| *demand as f64 / *period as f64).sum();
            if load <= 1.0 {
                prop_assert_eq!(simulate(&tasks, 4_000), 0);
            }
        }
    }
}
