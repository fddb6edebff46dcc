//! Time that PIBS contexts take: the priorities, and the periods, with which they work.

use super::bound::repeated;
use super::{Analysis, Share};
use crate::kernel::{Policy, Utilization};
use bulkhead_sched::admission::interference;

impl Analysis<'_> {
    /// Returns the priorities and periods, in nanoseconds, with which a PIBS context works. They are its own, and
    /// those of all contexts that can ask it, themselves or in a server. Other policies have an empty list.
    #[must_use]
    pub fn works(&self, context: usize) -> &[(u8, u64)] {
        &self.works[context]
    }

    pub(super) fn work_of(&self, pibs: usize) -> Vec<(u8, u64)> {
        if !self.kernel.is_pibs(pibs) {
            return Vec::new();
        }
        let mut seen = vec![false; self.kernel.contexts.len()];
        let (mut open, mut works) = (vec![pibs], Vec::new());
        seen[pibs] = true;
        while let Some(context) = open.pop() {
            let ((low, high), period) =
                (self.priorities(context), self.kernel.contexts[context].period());
            works.extend([(low, period), (high, period)]);
            if self.kernel.is_pibs(context) {
                let asks = |by: &usize| !seen[*by] && self.asks(*by, context);
                let found: Vec<usize> = (0..seen.len()).filter(asks).collect();
                found.iter().for_each(|by| seen[*by] = true);
                open.extend(found);
            }
        }
        works.sort_unstable();
        works.dedup();
        works
    }

    /// Tells if a context's thread may call or signal the user of a PIBS context, itself or in a server.
    fn asks(&self, by: usize, pibs: usize) -> bool {
        let kernel = self.kernel;
        let mut programs = kernel.users(pibs).map(|n| &kernel.programs[kernel.threads[n].program]);
        let signals = |notification: usize| {
            let mut from = kernel.users(by).map(|n| &kernel.programs[kernel.threads[n].program]);
            from.any(|program| program.signals.iter().any(|s| s.notification == notification))
        };
        programs.any(|program| {
            let serves = |called: &usize| {
                program.serves.iter().any(|endpoint| self.calls.reaches(*called, *endpoint))
            };
            self.called[by].iter().any(serves) || program.waits.iter().any(|n| signals(*n))
        })
    }

    /// The lowest priority at which a context's own threads run.
    pub(super) fn lowest(&self, context: usize) -> u8 {
        let works = self.works(context).iter().map(|(priority, _)| *priority);
        works.min().unwrap_or(self.priorities(context).0)
    }

    /// Part of a time, in nanoseconds, that a PIBS context takes at a priority or above.
    pub(super) fn device(&self, pibs: usize, own: u8, time: u64) -> u64 {
        let work = self.device_at(pibs, own).map(|(u, longest)| interference(u, longest, time));
        work.unwrap_or(0).saturating_mul(self.times(pibs))
    }

    /// The share that a PIBS context takes of a period at a priority or above.
    pub(super) fn device_share(&self, pibs: usize, own: u8, period: u64) -> Share {
        let share = self.device_at(pibs, own).map(|(u, longest)| match longest <= period {
            true => Share::of_pibs(u),
            false => Share::of(interference(u, longest, period), period),
        });
        repeated(share.unwrap_or(Share(0)), self.times(pibs))
    }

    /// U of a PIBS context, and the longest of the periods for which it works at a priority or above.
    fn device_at(&self, pibs: usize, own: u8) -> Option<(Utilization, u64)> {
        let Policy::Pibs { utilization, .. } = self.kernel.contexts[pibs].policy else {
            return None;
        };
        let at = self.works(pibs).iter().filter(|(priority, _)| *priority >= own);
        Some((utilization, at.map(|(_, period)| *period).max()?))
    }
}
