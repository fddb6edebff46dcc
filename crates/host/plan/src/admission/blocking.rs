//! Blocking: contexts below keep one waiting in passive servers for a time that is bounded here. Waits that are in no
//! sum are named.

use super::calls::keeps;
use super::{Analysis, Refusal, Term};
use crate::kernel::Policy;
use std::cmp::Ordering;

/// Contexts of a lower priority that keep one waiting in servers of a higher one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocking {
    /// The context with the longest call.
    pub by: usize,
    /// The endpoint that it calls.
    pub endpoint: usize,
    /// Number of other contexts that can wait at one time in the middle of calls.
    pub others: usize,
    /// Sum of their times, in nanoseconds; `None`: no limit.
    pub time: Option<u64>,
}

/// Why a wait of a context is in no sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanalysed {
    /// A call, of itself or of a server that it calls, is answered by a thread with a context of its own.
    Answer {
        /// The endpoint that is called.
        endpoint: usize,
    },
    /// A passive server that it calls can be in another's call that waits without time.
    Occupied {
        /// The server's endpoint.
        endpoint: usize,
    },
    /// It comes to a passive server from a higher priority. So it can preempt the server in another's call, and then
    /// wait for it. Or another context comes so, waits, and is in the server as the last of the server's
    /// priority, which this one has, too. Its refill comes later by each of these waits, and they add up.
    Below {
        /// The endpoint that it calls.
        endpoint: usize,
    },
}

impl Analysis<'_> {
    /// Waits of a context that are in no sum.
    #[must_use]
    pub fn unanalysed(&self, context: usize) -> Vec<Unanalysed> {
        let mut all = Vec::new();
        for endpoint in &self.called[context] {
            if let Some(endpoint) = self.calls.waits_for(*endpoint) {
                all.push(Unanalysed::Answer { endpoint });
            }
            let mut occupied = self.calls.occupied(*endpoint);
            if let Some(endpoint) = occupied.find(|endpoint| self.others(context, *endpoint)) {
                all.push(Unanalysed::Occupied { endpoint });
            }
            if let Some(endpoint) = self.below(context, *endpoint) {
                all.push(Unanalysed::Below { endpoint });
            }
        }
        all
    }

    /// Returns the endpoint of a passive server that a call reaches, and that another context's call can occupy while
    /// this context runs.
    fn below(&self, context: usize, endpoint: usize) -> Option<usize> {
        let waits = |(n, low): &(usize, u8)| {
            let from = |by: usize| Some(self.calls_from(by, *n)?.cmp(low));
            let mut others = (0..self.called.len()).filter(|by| *by != context).filter_map(from);
            match from(context) {
                Some(Ordering::Greater) => others.next().is_some(),
                Some(Ordering::Equal) => others.any(|other| other == Ordering::Greater),
                _ => false,
            }
        };
        self.calls.passive(endpoint).find(waits).map(|(endpoint, _)| endpoint)
    }

    /// The highest priority from which a context's call comes to an endpoint: its own, or a server's on the way.
    fn calls_from(&self, context: usize, endpoint: usize) -> Option<u8> {
        let own = self.priorities(context).1;
        let called = self.called[context].iter().filter(|n| self.calls.reaches(**n, endpoint));
        called.map(|n| self.calls.on_the_way(*n, endpoint).fold(own, u8::max)).max()
    }

    /// True if another context calls the endpoint, too.
    fn others(&self, context: usize, endpoint: usize) -> bool {
        let calls =
            |by: usize| self.called[by].iter().any(|called| self.calls.reaches(*called, endpoint));
        (0..self.called.len()).any(|by| by != context && calls(by))
    }

    /// Returns the longest call by a context that keeps a priority waiting: its endpoint and its time; `None`: no
    /// limit.
    fn longest(&self, by: usize, own: u8) -> Option<(usize, Option<u64>)> {
        let endpoints = self.called[by].iter().copied();
        let above = endpoints.filter(|n| self.reach(*n).is_some_and(|(_, high)| high >= own));
        let calls = above.map(|n| (n, self.kernel.endpoints[n].longest));
        calls.max_by_key(|(_, time)| time.unwrap_or(u64::MAX))
    }

    /// Tells if a call by a context that keeps a priority waiting can itself be without time in the middle.
    fn stops(&self, by: usize, own: u8) -> bool {
        let above = |n: &&usize| self.reach(**n).is_some_and(|(_, high)| high >= own);
        let mut endpoints = self.called[by].iter().filter(above);
        endpoints.any(|n| !keeps(self.kernel, by, *n) || self.calls.occupied(*n).next().is_some())
    }

    /// Returns the time of a call with the kernel's own, if the call goes on with another activation. The activation
    /// of a PIBS context can end in the call, and the next one begins at the server's priority.
    fn with_beginnings(&self, by: usize, time: u64) -> u64 {
        let Policy::Pibs { utilization, .. } = self.kernel.contexts[by].policy else { return time };
        let overhead = self.kernel.overhead;
        let budgets = self.works(by).iter().map(|(_, period)| utilization.of(*period));
        let left = budgets.min().unwrap_or(0).saturating_sub(overhead);
        match (overhead, left) {
            (0, _) => time,
            _ if !self.counts(Term::Beginnings) => time,
            (_, 0) => u64::MAX,
            _ => time.saturating_add(time.div_ceil(left).saturating_mul(overhead)),
        }
    }

    /// Finds the contexts below one that can keep it waiting, and their time. The time is the longest of the calls
    /// that run to their ends, and all calls that can wait in the middle. The former come one at a time.
    #[must_use]
    pub fn blocking(&self, context: usize) -> Option<Blocking> {
        let own = self.floor(context);
        let below = |other: &usize| *other != context && self.lowest(*other) < own;
        let (mut longest, mut alone, mut stopped, mut others) = (None, 0, 0, 0);
        for by in (0..self.kernel.contexts.len()).filter(below) {
            let Some((endpoint, time)) = self.longest(by, own) else { continue };
            let time = self.with_beginnings(by, time.unwrap_or(u64::MAX));
            longest = longest.max(Some((time, std::cmp::Reverse(by), endpoint)));
            match self.stops(by, own) && self.counts(Term::Stopped) {
                true => {
                    // After each wait in the middle it begins anew, at the server's priority.
                    let begins = self.kernel.contexts[by].activations.into();
                    let time = time.saturating_add(self.kernel.overhead.saturating_mul(begins));
                    (stopped, others) = (time.saturating_add(stopped), others + 1);
                }
                false => alone = time.max(alone),
            }
        }
        let (most, std::cmp::Reverse(by), endpoint) = longest?;
        let time = alone.saturating_add(stopped);
        let others = others - usize::from(others > 0 && self.stops(by, own));
        Some(Blocking { by, endpoint, others, time: (most < u64::MAX).then_some(time) })
    }

    /// Returns the kernel's time for contexts below that go on in the middle of a call, at a server's priority.
    /// Each time they do so by a timer that comes in the time of the running thread.
    pub(super) fn goes_on(&self, context: usize) -> u64 {
        let (own, overhead) = (self.floor(context), self.kernel.overhead);
        let below = |other: &usize| *other != context && self.lowest(*other) < own;
        let of = |by: usize| {
            let (_, time) = self.longest(by, own).filter(|_| self.stops(by, own))?;
            let begins = self.kernel.contexts[by].activations.into();
            let time = time.unwrap_or(u64::MAX);
            let more = self.with_beginnings(by, time) - time;
            Some(overhead.saturating_mul(begins).saturating_add(more))
        };
        let all = (0..self.kernel.contexts.len()).filter(below).filter_map(of);
        all.fold(0, u64::saturating_add)
    }

    /// Longest time for which a context is blocked, in nanoseconds.
    pub(super) fn blocked(&self, context: usize) -> Result<u64, Refusal> {
        match self.blocking(context) {
            None => Ok(0),
            Some(blocking) => blocking.time.ok_or(Refusal::Blocked { context, blocking }),
        }
    }
}
