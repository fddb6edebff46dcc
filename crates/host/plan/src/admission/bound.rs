//! The bound of Liu and Layland (1973), with blocking and PIBS.

use super::{Analysis, Refusal, Share};

/// The sum of utilizations against its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Sum of the contexts of at least that priority and of all PIBS contexts, blocking included.
    pub sum: Share,
    /// The greatest that it may be: n·(2^(1/n) - 1).
    pub limit: Share,
    /// n.
    pub contexts: usize,
}

/// A share that counts so many times.
pub(super) fn repeated(share: Share, times: u64) -> Share {
    (1..times).fold(share, |sum, _| sum.plus(share))
}

impl Analysis<'_> {
    /// The sum of utilizations for the contexts of at least a context's priority.
    ///
    /// # Errors
    /// [`Refusal::NotRateMonotonic`], [`Refusal::Blocked`], [`Refusal::Arrears`].
    pub fn utilization(&self, context: usize) -> Result<Sum, Refusal> {
        let (kernel, own) = (self.kernel, self.floor(context));
        let mut counted: Vec<usize> = self.above(context).chain([context]).collect();
        counted.sort_unstable();
        self.rate_monotonic(&counted)?;
        let arrears = |n: &usize| self.descends(*n) && (*n == context || self.floor(*n) < own);
        if let Some(by) = counted.iter().copied().find(arrears) {
            return Err(Refusal::Arrears { context, by });
        }
        let period = kernel.contexts[context].period();
        let blocked = self.blocked(context)?.saturating_add(self.entries(context));
        let blocked = Share::of(blocked.saturating_add(self.doorbells(period)), period);
        let all = counted.iter().map(|n| self.share(*n));
        let devices = (0..kernel.contexts.len()).map(|n| self.device_share(n, own, period));
        let sum = all.chain(devices).fold(blocked, Share::plus);
        Ok(Sum { sum, limit: Share::bound(counted.len() as u64), contexts: counted.len() })
    }

    /// The share of a context with the entries of its interrupts.
    pub(super) fn share(&self, context: usize) -> Share {
        repeated(self.kernel.share(context), self.times(context))
    }

    /// Checks that each longer period has a lower priority than all shorter ones.
    fn rate_monotonic(&self, contexts: &[usize]) -> Result<(), Refusal> {
        let period = |n: &usize| self.kernel.contexts[*n].period();
        let mut order = contexts.to_vec();
        order.sort_by_key(period);
        // The lowest priority of those with shorter periods than this group of equal ones.
        let mut lowest: Option<usize> = None;
        for group in order.chunk_by(|a, b| period(a) == period(b)) {
            for longer in group {
                if let Some(shorter) = lowest
                    && self.priorities(shorter).0 <= self.priorities(*longer).1
                {
                    return Err(Refusal::NotRateMonotonic { shorter, longer: *longer });
                }
            }
            let all = group.iter().copied().chain(lowest);
            lowest = all.min_by_key(|n| self.priorities(*n).0);
        }
        Ok(())
    }
}
