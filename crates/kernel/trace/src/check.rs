//! Statements that hold for every timeline.

use crate::{Event, Item, Timeline};
use std::collections::{BTreeMap, VecDeque};
use std::format;
use std::string::String;
use std::vec::Vec;

/// Time that a context may use, under the sporadic or the strict policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// C, ns, with the kernel's charges.
    pub budget: u64,
    /// T, ns.
    pub period: u64,
    /// True if the policy is strict.
    pub strict: bool,
}

/// Sums of a timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// How long each thread ran, ns.
    pub threads: BTreeMap<u32, u64>,
    /// How long each context was on the processor, ns.
    pub contexts: BTreeMap<u32, u64>,
    /// Donations.
    pub donations: u64,
    /// Those that have not ended, as thread that gave and thread that has it.
    pub open: Vec<(u32, u32)>,
}

struct Checked<'a> {
    timeline: &'a Timeline,
    budgets: &'a BTreeMap<u32, Budget>,
    slack: u64,
    figures: Figures,
    /// Running thread, its context, and the time since.
    runs: Option<(u32, u32, u64)>,
    /// The thread that has each context, as far as that was told.
    with: BTreeMap<u32, u32>,
    /// The donations of each context, as giver and receiver, the last one last.
    lent: BTreeMap<u32, Vec<(u32, u32)>>,
    /// When a context of `budgets` ran, from when to when; of a strict one only as far as that still counts.
    ran: BTreeMap<u32, VecDeque<(u64, u64)>>,
    now: u64,
}

/// Adds up a timeline in which nothing is lost, and checks these:
///
/// * Time does not go back.
/// * One thread runs at most.
/// * A context changes hands only by donations, and goes back to one of its givers. That holds as long as programs bind
///   no contexts themselves.
/// * No context of `budgets` runs longer than it may. A strict one runs at most C in each T. A sporadic one's refills
///   come T after it *wanted* to run. So it runs at most C for each period begun since the clock's beginning, and once
///   more.
///
/// `slack` ns may be added to each C: between a decision and its record lies the kernel's own time.
///
/// # Errors
/// The statement that does not hold, and when.
pub fn check(
    timeline: &Timeline,
    budgets: &BTreeMap<u32, Budget>,
    slack: u64,
) -> Result<Figures, String> {
    let mut checked = Checked {
        timeline,
        budgets,
        slack,
        figures: Figures::default(),
        runs: None,
        with: BTreeMap::new(),
        lent: BTreeMap::new(),
        ran: BTreeMap::new(),
        now: 0,
    };
    for (n, item) in timeline.items.iter().enumerate() {
        let at = checked.now;
        checked.item(item).map_err(|why| format!("item {n}, at {at} ns: {item:?}: {why}"))?;
    }
    let open = checked.lent.into_values().flatten();
    Ok(Figures { open: open.collect(), ..checked.figures })
}

impl Checked<'_> {
    fn item(&mut self, item: &Item) -> Result<(), String> {
        let Item::Record(record) = item else { return Err("records are missing".into()) };
        let now = self.timeline.nanoseconds(record.ticks);
        if now < self.now {
            return Err(format!("it is before {}", self.now));
        }
        self.now = now;
        match record.event {
            Event::Run { thread, context, .. } => {
                self.stop()?;
                let with = *self.with.entry(context).or_insert(thread);
                if with != thread {
                    return Err(format!("{context:#x} is with {with:#x}"));
                }
                self.runs = (thread != 0).then_some((thread, context, now));
            }
            Event::Leave { context, .. } => {
                if self.runs.is_none_or(|(_, on, _)| on != context) {
                    return Err(format!("{:x?} runs", self.runs));
                }
                self.stop()?;
            }
            Event::Donate { from, to, context } => {
                self.figures.donations += 1;
                let with = self.with.insert(context as u32, to).unwrap_or(from);
                if with != from {
                    return Err(format!("{with:#x} has it"));
                }
                self.lent.entry(context as u32).or_default().push((from, to));
            }
            Event::Lend { to, context, .. } => _ = self.with.insert(context as u32, to),
            Event::Return { from, to, context } => {
                match to {
                    0 => _ = self.with.remove(&(context as u32)),
                    _ => _ = self.with.insert(context as u32, to),
                }
                let lent = self.lent.entry(context as u32).or_default();
                match lent.iter().rposition(|(gave, _)| *gave == to) {
                    Some(n) => lent.truncate(n),
                    // It goes back to a thread that a notification lent it to, or was lent before the first record.
                    None if lent.is_empty() => (),
                    None => return Err(format!("{to:#x} gave it to nobody; {from:#x} had it")),
                }
            }
            _ => (),
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<(), String> {
        let Some((thread, context, since)) = self.runs.take() else { return Ok(()) };
        let ran = self.now - since;
        *self.figures.threads.entry(thread).or_default() += ran;
        *self.figures.contexts.entry(context).or_default() += ran;
        let Some(budget) = self.budgets.get(&context).copied() else { return Ok(()) };
        let all = self.ran.entry(context).or_default();
        all.push_back((since, self.now));
        let from = self.now.saturating_sub(budget.period);
        while budget.strict && all.front().is_some_and(|(_, end)| *end <= from) {
            all.pop_front();
        }
        let (used, periods) = match budget.strict {
            true => (all.iter().map(|(since, end)| end - since.max(&from)).sum(), 1),
            false => (self.figures.contexts[&context], self.now.div_ceil(budget.period) + 1),
        };
        match used <= periods * (budget.budget + self.slack) {
            true => Ok(()),
            false => {
                Err(format!("{context:#x} has run {used} ns in {periods} periods of {budget:?}"))
            }
        }
    }
}
