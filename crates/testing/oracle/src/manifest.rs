//! A set as a manifest says it, for whoever reads of a miss.

use crate::campaign::Miss;
use crate::judge;
use crate::set::{Policy, Set};
use std::fmt::{self, Display, Formatter};

impl Display for Miss {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let by = if self.verdict.by_response { "response-time" } else { "utilization" };
        writeln!(f, "# {:?}, set {}: admitted by {by}, and late:", self.class, self.number)?;
        if let Some((thread, since)) = self.found.missed {
            let promise = self.verdict.promises[thread];
            let (job, piece) = (promise.job.min(promise.piece), promise.piece);
            writeln!(
                f,
                "# thread t{thread} from {since} ns on; promised: a job in {job} ns, a refill in {piece} ns"
            )?;
        }
        let Set { overhead, entry, doorbell, .. } = self.set;
        if (overhead, entry, doorbell) != (0, 0, None) {
            writeln!(
                f,
                "# an activation takes {overhead} ns, an entry {entry} ns; doorbells {doorbell:?}"
            )?;
        }
        for (n, (thread, pattern)) in self.set.threads.iter().zip(&self.patterns).enumerate() {
            let (job, offset) = (&thread.job, pattern.offset);
            writeln!(f, "# t{n} from {offset} ns, {} ns late each time: {job:?}", pattern.gap)?;
        }
        write!(f, "{}", Text::of(&self.set))
    }
}

/// A set as part of a manifest: its kernel's sandbox is `rt`.
#[derive(Debug)]
pub struct Text<'a> {
    /// The set.
    pub set: &'a Set,
    /// Beginning of all names.
    pub prefix: &'a str,
    /// Further lines of each program, threads' before servers'. A program without an entry gets no lines.
    pub programs: &'a [String],
    /// Further lines of each thread, in the order of programs.
    pub threads: &'a [String],
}

impl<'a> Text<'a> {
    /// Takes only the lines of the set itself.
    #[must_use]
    pub const fn of(set: &'a Set) -> Self {
        Self { set, prefix: "", programs: &[], threads: &[] }
    }

    fn contexts(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (n, thread) in self.set.threads.iter().enumerate() {
            writeln!(f, "[[context]]\nname = \"{}c{n}\"\nsandbox = \"rt\"", self.prefix)?;
            let period = thread.period;
            match thread.policy {
                Policy::Pibs(share) => {
                    writeln!(f, "policy = \"pibs\"\nutilization = \"{} %\"", share / 10_000)?;
                    writeln!(f, "period = \"{period} ns\"")?;
                    continue;
                }
                Policy::Full => writeln!(f, "policy = \"full\"")?,
                Policy::Sporadic | Policy::Strict => {
                    let strict = thread.policy == Policy::Strict;
                    let policy = if strict { "strict" } else { "sporadic" };
                    writeln!(f, "policy = \"{policy}\"\nbudget = \"{} ns\"", thread.budget)?;
                    writeln!(f, "refills = {}", thread.refills)?;
                    writeln!(f, "activations = {}", thread.activations)?;
                }
            }
            writeln!(f, "period = \"{period} ns\"")?;
            writeln!(f, "guaranteed = {}\nbackground = {}", thread.guaranteed, thread.background)?;
        }
        Ok(())
    }
}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (kernel, prefix) = (judge::kernel(self.set), self.prefix);
        self.contexts(f)?;
        let called =
            |n: &usize| kernel.programs.iter().flat_map(|p| &p.calls).any(|c| c.endpoint == *n);
        // A server without callers is left out: without a context it would never begin.
        let needed = |n: usize| n >= self.set.servers.len() || called(&n);
        for (_, endpoint) in kernel.endpoints.iter().enumerate().filter(|(n, _)| needed(*n)) {
            writeln!(f, "[[endpoint]]\nname = \"{prefix}{}\"\nsandbox = \"rt\"", endpoint.name)?;
            if let Some(longest) = endpoint.longest {
                writeln!(f, "longest = \"{longest} ns\"")?;
            }
        }
        for (n, (program, thread)) in kernel.programs.iter().zip(&kernel.threads).enumerate() {
            if !program.serves.iter().all(|endpoint| needed(*endpoint)) {
                continue;
            }
            let name = |n: usize| format!("{prefix}{}", kernel.endpoints[n].name);
            let calls: Vec<_> = program.calls.iter().map(|call| name(call.endpoint)).collect();
            let serves: Vec<_> = program.serves.iter().map(|n| name(*n)).collect();
            writeln!(f, "[[program]]\nname = \"{prefix}{}\"\nsandbox = \"rt\"", program.name)?;
            writeln!(f, "calls = {calls:?}\nserves = {serves:?}")?;
            further(self.programs, n, f)?;
            writeln!(
                f,
                "[[thread]]\nname = \"{prefix}{0}\"\nprogram = \"{prefix}{0}\"",
                thread.name
            )?;
            writeln!(f, "priority = {}", thread.priority)?;
            if let Some(context) = thread.context {
                writeln!(f, "context = \"{prefix}c{context}\"")?;
            }
            further(self.threads, n, f)?;
        }
        Ok(())
    }
}

fn further(lines: &[String], n: usize, f: &mut Formatter<'_>) -> fmt::Result {
    lines.get(n).map_or(Ok(()), |lines| writeln!(f, "{lines}"))
}
