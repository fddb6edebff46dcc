//! Response times (Joseph and Pandya 1986), with blocking and PIBS.
//!
//! A context that calls a server below itself is judged at that server's priority. It can be kept there, and come back
//! above others with a budget that it has missed. This adds nothing to their sums if the context itself is in time.
//! All work of at least the server's priority is then done within its response time, which is at most its period. So
//! a context that waits meanwhile sees one budget of it, which is in the sums. A context without a guarantee may come
//! back with several, and is refused ([`Refusal::Arrears`]).

use super::{Analysis, Refusal, Share, Term};

/// Load above a context that counts as the whole core, 1 - 2^-10: the search for a response time would take long, and
/// find little.
const BUSY: Share = Share((1 << 40) - (1 << 30));

/// Most entries of a source of interrupts until its driver has acknowledged them.
const ENTRIES: u64 = 2;

impl Analysis<'_> {
    /// A context's response time: from a refill until it is used up, in nanoseconds.
    ///
    /// # Errors
    /// [`Refusal::Late`], [`Refusal::Blocked`], [`Refusal::Arrears`].
    pub fn response(&self, context: usize) -> Result<u64, Refusal> {
        let (kernel, own) = (self.kernel, self.floor(context));
        let period = kernel.contexts[context].period();
        // The entry of its own doorbell comes in its own budget, or while it waits.
        let gross = self.demand(context, self.drivers[context]);
        let blocked = self.blocked(context)?.saturating_add(self.entries(context));
        let alone = gross.saturating_add(blocked);
        self.comes_back(context)?;
        let others: Vec<(u64, u64)> = { self.above(context) }
            .map(|n| (kernel.contexts[n].period(), self.demand(n, true)))
            .collect();
        let late = |response: u64| Err(Refusal::Late { context, response });
        if self.share_above(context) > BUSY {
            return late(alone.max(period.saturating_add(1)));
        }
        let mut response = alone;
        while response <= period {
            let servers = others
                .iter()
                .map(|(period, gross)| response.div_ceil(*period).saturating_mul(*gross));
            let devices = (0..kernel.contexts.len()).map(|n| self.device(n, own, response));
            let all = servers.chain(devices).chain([self.doorbells(response)]);
            let again = all.fold(alone, u64::saturating_add);
            if again == response {
                return Ok(response);
            }
            response = again;
        }
        late(response)
    }

    /// Returns the time of the interrupts that come before their drivers run: two from each source. Further ones come
    /// after acknowledgements, so they are bounded by the budgets of drivers above ([`Analysis::times`]). Drivers below
    /// do not run meanwhile.
    pub(super) fn entries(&self, context: usize) -> u64 {
        let others = self.sources.iter().enumerate().filter(|(other, _)| *other != context);
        let sources = others.map(|(_, sources)| *sources).fold(0, u64::saturating_add);
        sources.saturating_mul(ENTRIES).saturating_mul(self.kernel.entry)
    }

    /// How often the time of a context counts in others' sums. An acknowledgement brings two entries at most. The
    /// second one masks its source, and the acknowledgement then lifts the mask in the driver's time. Twice the
    /// driver's own time is counted for entries; those of a storm took less than half of that
    /// (`kernel.interrupt_share`).
    pub(super) fn times(&self, context: usize) -> u64 {
        if self.sources[context] > 0 && self.counts(Term::Interrupts) { 1 + ENTRIES } else { 1 }
    }

    /// Time of doorbells of others' rights within a time, wherever it begins.
    pub(super) fn doorbells(&self, time: u64) -> u64 {
        let first = u64::from(self.counts(Term::Doorbell));
        let most = |every: &u64| (time / every.max(&1)).saturating_add(first);
        let count = self.kernel.doorbells.iter().map(most).fold(0, u64::saturating_add);
        count.saturating_mul(self.kernel.doorbell)
    }

    /// Returns the most time that others' timers, interrupts and doorbells take of a context's own budget until it is
    /// used up. The kernel charges an entry to the running thread. A job has the rest of the budget.
    ///
    /// # Errors
    /// As [`Analysis::response`].
    pub fn entered(&self, context: usize) -> Result<u64, Refusal> {
        self.entered_within(context, self.response(context)?)
    }

    /// Returns the most time of a context's own budget that others' entries take within a time from its refill on.
    ///
    /// # Errors
    /// [`Refusal::Arrears`], and as [`Analysis::response`] of the contexts that come back.
    pub fn entered_within(&self, context: usize, response: u64) -> Result<u64, Refusal> {
        let (kernel, own) = (self.kernel, self.floor(context));
        self.comes_back(context)?;
        let mut sum = self.entries(context).saturating_add(self.doorbells(response));
        sum = sum.saturating_add(self.goes_on(context));
        // Each activation of one above comes by a timer or a call, and goes by a switch back: the overhead has both.
        for n in self.above(context) {
            let other = &kernel.contexts[n];
            let switches = kernel.overhead.saturating_mul(other.activations.into());
            let demand = self.demand(n, true).saturating_sub(self.demand(n, false));
            let times = response.div_ceil(other.period().max(1));
            sum = sum.saturating_add(times.saturating_mul(switches.saturating_add(demand)));
            // The last activations of a job may come in this time though its first one came before.
            let more = other.activations > 1 && self.counts(Term::Activations);
            sum = sum.saturating_add(if more { switches } else { 0 });
        }
        // An activation of a driver takes as much of its own budget, at least, and so do its interrupts.
        if kernel.overhead > 0 || kernel.entry > 0 {
            let devices = (0..kernel.contexts.len()).map(|n| self.device(n, own, response));
            sum = devices.fold(sum, u64::saturating_add);
        }
        Ok(sum)
    }

    /// Time that a context with a budget takes in a period; `entries`: with those of the interrupts that it serves.
    fn demand(&self, context: usize, entries: bool) -> u64 {
        let gross = self.kernel.contexts[context].gross(self.kernel.overhead);
        gross.saturating_mul(if entries { self.times(context) } else { 1 })
    }

    /// Looks for contexts above one that work in servers below it, and can come back from there with any number of
    /// budgets.
    fn comes_back(&self, context: usize) -> Result<(), Refusal> {
        let own = self.floor(context);
        for by in self.above(context).filter(|n| self.descends(*n) && self.floor(*n) < own) {
            match self.kernel.contexts[by].guaranteed && self.kernel.is_server(by) {
                _ if !self.counts(Term::Arrears) => {}
                true => drop(self.response(by)?),
                false => return Err(Refusal::Arrears { context, by }),
            }
        }
        Ok(())
    }

    /// True if a context calls a server below itself.
    pub(super) fn descends(&self, context: usize) -> bool {
        self.floor(context) < self.priorities(context).0
    }

    /// The servers, and full contexts, of at least a context's priority, without itself.
    pub(super) fn above(&self, context: usize) -> impl Iterator<Item = usize> {
        let own = self.floor(context);
        let others = (0..self.kernel.contexts.len()).filter(move |n| *n != context);
        others.filter(move |n| !self.kernel.is_pibs(*n) && self.priorities(*n).1 >= own)
    }

    /// All others that come before a context.
    pub(super) fn before(&self, context: usize) -> impl Iterator<Item = usize> {
        let own = self.floor(context);
        let others = (0..self.kernel.contexts.len()).filter(move |n| *n != context);
        others.filter(move |n| match self.kernel.is_pibs(*n) {
            true => self.works(*n).iter().any(|(priority, _)| *priority >= own),
            false => self.priorities(*n).1 >= own,
        })
    }

    /// Their share.
    fn share_above(&self, context: usize) -> Share {
        let each = self.kernel.doorbell;
        let doorbells = self.kernel.doorbells.iter().map(|every| Share::of(each, *every));
        self.before(context).map(|n| self.share(n)).chain(doorbells).fold(Share(0), Share::plus)
    }
}
