//! Statements about a kernel's time before it runs: shares, response times, the result of each admission test, and a
//! simulated schedule.

pub mod json;
pub mod picture;
pub mod simulate;
pub mod table;

use bulkhead_plan::admission::{Analysis, Blocking, Refusal, Share, Unanalysed};
use bulkhead_plan::kernel::{Kernel, Policy, Test};
use bulkhead_plan::{Guest, System, Wanted};
use simulate::Simulated;

/// Judges all kernels of a system.
///
/// # Errors
/// A schedule that cannot be simulated; with its sandbox.
pub fn reports(system: &System, duration: Option<u64>) -> Result<Vec<Report<'_>>, String> {
    system.sandboxes.iter().filter_map(|wanted| of(wanted, duration).transpose()).collect()
}

/// Judges the kernel of a sandbox, if it has one.
fn of(wanted: &Wanted, duration: Option<u64>) -> Result<Option<Report<'_>>, String> {
    let (sandbox, core) = (&wanted.sandbox, wanted.sandbox.cores.first());
    let (Guest::Kernel(kernel), Some(core)) = (&sandbox.guest, core) else { return Ok(None) };
    let report = Report::new(&sandbox.name, *core, kernel, duration);
    report.map(Some).map_err(|why| format!("`{}`: {why}", sandbox.name))
}

/// A kernel, judged.
pub struct Report<'a> {
    /// Its sandbox.
    pub name: &'a str,
    /// The core of the machine that it runs on.
    pub core: usize,
    /// It.
    pub kernel: &'a Kernel,
    /// The effects of the contexts on each other.
    pub analysis: Analysis<'a>,
    /// A row for each context.
    pub rows: Vec<Row>,
    /// Every test, with its refusals.
    pub verdicts: Vec<(Test, Vec<Refusal>)>,
    /// Calls that never begin or never end.
    pub never: Vec<Refusal>,
    /// A run in which all contexts use their whole budgets.
    pub simulated: Simulated,
}

/// A context, judged.
pub struct Row {
    /// Its share of the core, with the kernel's charges; for a PIBS context (2-U)·U.
    pub share: Share,
    /// The calls that keep it waiting from below.
    pub blocking: Option<Blocking>,
    /// Its response time in nanoseconds, if it is a server.
    pub response: Option<Result<u64, Refusal>>,
    /// The most of its budget that others' timers, interrupts and doorbells take, in nanoseconds, if it has a response
    /// time.
    pub entered: Option<u64>,
    /// The longest from release to end that was simulated, in nanoseconds.
    pub seen: Option<u64>,
    /// The waits that the response time does not count.
    pub unanalysed: Vec<Unanalysed>,
}

impl Row {
    /// Tells if the simulation shows more than the response time: an error of the analysis, or a wait that it does not
    /// know of.
    #[must_use]
    pub fn exceeds(&self) -> bool {
        let response = self.response.and_then(Result::ok);
        response.zip(self.seen).is_some_and(|(response, seen)| seen > response)
    }
}

impl<'a> Report<'a> {
    /// Judges a kernel. `duration`: how long to simulate, in nanoseconds.
    ///
    /// # Errors
    /// A schedule that cannot be simulated.
    pub fn new(
        name: &'a str,
        core: usize,
        kernel: &'a Kernel,
        duration: Option<u64>,
    ) -> Result<Self, String> {
        let (simulated, analysis) = (simulate::run(kernel, duration)?, Analysis::new(kernel));
        let row = |context: usize| Row {
            share: kernel.share(context),
            blocking: analysis.blocking(context),
            response: kernel.is_server(context).then(|| analysis.response(context)),
            entered: kernel.is_server(context).then(|| analysis.entered(context).ok()).flatten(),
            seen: simulated.longest(context),
            unanalysed: analysis.unanalysed(context),
        };
        let verdicts = [Test::Bound, Test::Response, Test::None]
            .map(|test| (test, analysis.refusals(test)))
            .to_vec();
        let rows = (0..kernel.contexts.len()).map(row).collect();
        let never = analysis.refusals(Test::None);
        Ok(Self { name, core, kernel, analysis, rows, verdicts, never, simulated })
    }

    /// Tells if the test that the manifest asks for admits it.
    #[must_use]
    pub fn admitted(&self) -> bool {
        let asked = self.verdicts.iter().find(|(test, _)| *test == self.kernel.admission);
        asked.is_none_or(|(_, refusals)| refusals.is_empty())
    }

    /// Lists guaranteed contexts for which the simulation takes longer than the response time.
    pub fn exceeding(&self) -> impl Iterator<Item = usize> {
        let exceeds = |context: &usize| self.rows[*context].exceeds();
        self.kernel.guaranteed().filter(exceeds)
    }

    /// How often others' rights over its sandbox's life can ring in a second, at most.
    #[must_use]
    pub fn doorbells(&self) -> u64 {
        let most = |every: &u64| 1_000_000_000 / every.max(&1) + 1;
        self.kernel.doorbells.iter().map(most).sum()
    }

    /// Tells if it is admitted, and if nothing in the simulation contradicts its response times.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.admitted() && self.exceeding().next().is_none()
    }

    /// By how much more than the core has is given out.
    #[must_use]
    pub fn overcommitted(&self) -> Share {
        self.kernel.sum().above(Share::of(1, 1))
    }

    /// The part of the sum that the kernel itself spends; for a PIBS context that is within U.
    #[must_use]
    pub fn overhead(&self) -> Share {
        let spent = self.kernel.contexts.iter().map(|context| match context.policy {
            Policy::Sporadic(server) | Policy::Strict(server) => {
                Share::of(context.gross(self.kernel.overhead) - server.budget, server.period)
            }
            _ => Share(0),
        });
        spent.fold(Share(0), Share::plus)
    }
}

/// The priorities at which a context runs, for people.
#[must_use]
pub fn priority(report: &Report<'_>, context: usize) -> String {
    let (low, high) = report.analysis.priorities(context);
    match report.kernel.contexts[context].policy {
        Policy::Pibs { .. } => format!("requester's, else {high}"),
        _ if low == high => high.to_string(),
        _ => format!("{low} to {high}"),
    }
}

/// Why a context is refused, in a sentence.
#[must_use]
pub fn why(kernel: &Kernel, refusal: Refusal) -> String {
    let name = |context: usize| &kernel.contexts[context].name;
    let show = bulkhead_manifest::time::show;
    match refusal {
        Refusal::Late { context, response } => {
            let late = response.saturating_sub(kernel.contexts[context].period());
            format!("{} can come {} late or more", name(context), show(late))
        }
        Refusal::Blocked { context, blocking } => format!(
            "{} can wait for {} for ever: no `longest` of {}",
            name(context),
            name(blocking.by),
            kernel.endpoints[blocking.endpoint].name
        ),
        Refusal::Arrears { context, by } if by == context => {
            format!("it does not apply: {} calls a server below itself", name(by))
        }
        Refusal::Arrears { context, by } => {
            format!("{} calls a server below {}, late by any time", name(by), name(context))
        }
        Refusal::Short { context, endpoint, needed } => {
            let endpoint = &kernel.endpoints[endpoint].name;
            let needed = show(needed);
            format!("{} never begins a call of {endpoint}: it needs {needed}", name(context))
        }
        Refusal::Circle { context, endpoint } => {
            let endpoint = &kernel.endpoints[endpoint].name;
            format!("{} can wait for ever: a call of {endpoint} comes back", name(context))
        }
        Refusal::Delayed { context, by } => {
            format!("{} is strict, and can wait for {}", name(context), name(by))
        }
        Refusal::NotRateMonotonic { shorter, longer } => format!(
            "it does not apply: {} has a shorter period than {} and no higher priority",
            name(shorter),
            name(longer)
        ),
        Refusal::Above { context, sum } => format!(
            "from {} on up the sum is {}, {} too much",
            name(context),
            sum.sum,
            sum.sum.above(sum.limit)
        ),
    }
}

/// A wait that is in no response time, in a few words.
#[must_use]
pub fn wait(kernel: &Kernel, unanalysed: Unanalysed) -> String {
    match unanalysed {
        Unanalysed::Answer { endpoint } => {
            format!(
                "answer of {}, by a thread with a context of its own",
                kernel.endpoints[endpoint].name
            )
        }
        Unanalysed::Occupied { endpoint } => {
            format!(
                "server of {}, which another caller can occupy without time",
                kernel.endpoints[endpoint].name
            )
        }
        Unanalysed::Below { endpoint } => {
            format!(
                "server of {}, which is not above all that call it and can be in another's call",
                kernel.endpoints[endpoint].name
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_manifest::{Options, load};
    use bulkhead_plan::Guest;
    use std::path::Path;

    /// An error of the analysis, as the simulation would show it, is no success.
    #[test]
    fn a_simulation_that_takes_longer_than_a_response_time_fails() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/manifests/sched.toml");
        let options = Options { skip_files: true, ..Options::default() };
        let checked = load(&path, &options).expect("a manifest that is right");
        let mut kernels = checked.system.sandboxes.iter().filter_map(|s| match &s.sandbox.guest {
            Guest::Kernel(kernel) => Some(kernel),
            _ => None,
        });
        let kernel = kernels.next().expect("a kernel");
        let mut report = Report::new("rt", 0, kernel, None).expect("a schedule");
        assert!(report.holds());
        let context = kernel.guaranteed().next().expect("a guaranteed context");
        let response = report.rows[context].response.expect("a server").expect("in time");
        report.rows[context].seen = Some(response);
        assert!(report.holds());
        report.rows[context].seen = Some(response + 1);
        assert_eq!(report.exceeding().collect::<Vec<_>>(), [context]);
        assert!(!report.holds() && report.admitted());
    }
}
