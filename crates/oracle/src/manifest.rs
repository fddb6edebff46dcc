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
        for (n, (thread, pattern)) in self.set.threads.iter().zip(&self.patterns).enumerate() {
            let (job, offset) = (&thread.job, pattern.offset);
            writeln!(f, "# t{n} from {offset} ns, {} ns late each time: {job:?}", pattern.gap)?;
        }
        write!(f, "{}", Text(&self.set))
    }
}

/// A set as part of a manifest.
#[derive(Debug)]
pub struct Text<'a>(pub &'a Set);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kernel = judge::kernel(self.0);
        for (n, thread) in self.0.threads.iter().enumerate() {
            writeln!(f, "[[context]]\nname = \"c{n}\"\nsandbox = \"rt\"")?;
            match thread.policy {
                Policy::Pibs(share) => {
                    writeln!(f, "policy = \"pibs\"\nutilization = \"{} %\"", share / 10_000)?
                }
                Policy::Full => writeln!(f, "policy = \"full\"")?,
                Policy::Sporadic | Policy::Strict => {
                    let strict = thread.policy == Policy::Strict;
                    let policy = if strict { "strict" } else { "sporadic" };
                    writeln!(f, "policy = \"{policy}\"\nbudget = \"{} ns\"", thread.budget)?;
                    writeln!(
                        f,
                        "refills = {}\nactivations = {}",
                        thread.refills, thread.activations
                    )?;
                }
            }
            writeln!(f, "period = \"{} ns\"", thread.period)?;
            writeln!(f, "guaranteed = {}\nbackground = {}", thread.guaranteed, thread.background)?;
        }
        for endpoint in &kernel.endpoints {
            writeln!(f, "[[endpoint]]\nname = \"{}\"\nsandbox = \"rt\"", endpoint.name)?;
            if let Some(longest) = endpoint.longest {
                writeln!(f, "longest = \"{longest} ns\"")?;
            }
        }
        for (program, thread) in kernel.programs.iter().zip(&kernel.threads) {
            let names = |list: Vec<usize>| {
                list.into_iter().map(|n| kernel.endpoints[n].name.clone()).collect::<Vec<_>>()
            };
            let calls = names(program.calls.iter().map(|call| call.endpoint).collect());
            let serves = names(program.serves.clone());
            writeln!(f, "[[program]]\nname = \"{}\"\nsandbox = \"rt\"", program.name)?;
            writeln!(f, "calls = {calls:?}\nserves = {serves:?}")?;
            writeln!(f, "[[thread]]\nname = \"{0}\"\nprogram = \"{0}\"", thread.name)?;
            writeln!(f, "priority = {}", thread.priority)?;
            if let Some(context) = thread.context {
                writeln!(f, "context = \"c{context}\"")?;
            }
        }
        Ok(())
    }
}
