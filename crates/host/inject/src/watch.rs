//! A machine seen from outside: its sandboxes' states, records and consoles, read while it stands.

use crate::{Error, Result, Stand, System};
use bulkhead_explain::{Core, Sandbox, Snapshot, report, snapshot};
use bulkhead_layout::report::{CONDITION_NAMES, Cause, State};
use std::collections::{BTreeMap, BTreeSet};

/// Deeds of a sandbox until a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deeds {
    /// Its state.
    pub state: &'static str,
    /// Exit code of a guest that ended.
    pub exit_code: Option<u32>,
    /// Launches after the first.
    pub lives: u64,
    /// Answers of its ladders.
    pub answers: u64,
    /// Denied accesses and failures by condition.
    pub records: BTreeMap<&'static str, u64>,
    /// Causes of its exits.
    pub causes: BTreeSet<&'static str>,
    /// All that it printed.
    pub console: String,
    /// Bytes of that until the last look before the run's end.
    pub said: usize,
}

/// The first record of a sandbox from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Clock of the processor.
    pub ticks: u64,
    /// Its condition.
    pub condition: &'static str,
}

/// Consoles at a look.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// Bytes read of each core's console, by sandbox.
    read: Vec<Vec<u64>>,
    /// Bytes of each sandbox's text.
    said: Vec<usize>,
}

/// Looks at a machine again and again.
pub struct Watch<'a> {
    system: &'a System,
    /// Bytes read of each core's console, by sandbox.
    read: Vec<Vec<u64>>,
    /// Consoles, by sandbox.
    consoles: Vec<String>,
    /// Bytes of them until the last look before the run's end.
    said: Vec<usize>,
    /// The last look.
    last: Option<Snapshot>,
}

impl<'a> Watch<'a> {
    /// Before the first look.
    pub fn new(system: &'a System) -> Self {
        let sandboxes = &system.baked.plan.sandboxes;
        let read = sandboxes.iter().map(|s| vec![0; s.cores.len()]).collect();
        let consoles = vec![String::new(); sandboxes.len()];
        Self { system, read, said: vec![0; consoles.len()], consoles, last: None }
    }

    /// In the middle of a run that was `heard` so far, and prints all that `deeds` tell by its end. A console's ring
    /// would not have all of that any more.
    pub fn resumed(system: &'a System, heard: &Heard, deeds: &[Deeds]) -> Self {
        let new = Self::new(system);
        if heard.said.len() != new.consoles.len() || deeds.len() != heard.said.len() {
            return new;
        }
        let consoles =
            deeds.iter().zip(&heard.said).map(|(deeds, said)| deeds.console[..*said].into());
        Self { read: heard.read.clone(), consoles: consoles.collect(), ..new }
    }

    /// How far consoles were read.
    pub fn heard(&self) -> Heard {
        Heard { read: self.read.clone(), said: self.consoles.iter().map(String::len).collect() }
    }

    /// Looks. False: the machine has not come so far that it has reports.
    ///
    /// # Errors
    /// The boot stopped with an error.
    pub fn look(&mut self, stand: &Stand) -> Result<bool> {
        let read = |pa: u64, bytes: &mut [u8]| stand.ram().read(pa, bytes).is_ok();
        let Some(seen) = snapshot(&read, &self.system.baked) else { return Ok(false) };
        if let Some(boot) = seen.boot.filter(|boot| boot.error != 0) {
            return Err(Error::Other(format!("the boot stopped with error {}", boot.error)));
        }
        for (index, sandbox) in seen.sandboxes.iter().enumerate() {
            for (nth, core) in sandbox.cores.iter().enumerate() {
                let (text, lost) = core.console_since(self.read[index][nth]);
                if lost > 0 {
                    self.consoles[index] += &format!("\n({lost} bytes lost)\n");
                }
                self.consoles[index] += &text.text();
                self.read[index][nth] = core.console_written;
            }
        }
        let there = !seen.sandboxes.is_empty();
        self.last = Some(seen);
        let ends = self.system.ends();
        if ends.is_empty() || !self.have_ended(&ends) {
            self.said = self.consoles.iter().map(String::len).collect();
        }
        Ok(there)
    }

    /// The last look.
    pub fn last(&self) -> Option<&Snapshot> {
        self.last.as_ref()
    }

    /// When the last sandbox had booted, by the processors' clock.
    pub fn booted(&self) -> u64 {
        let cores = self.last.iter().flat_map(|last| &last.sandboxes).flat_map(|s| &s.cores);
        cores.map(|core| core.steady_ticks).max().unwrap_or(0)
    }

    /// Text of a sandbox so far.
    pub fn console(&self, index: usize) -> &str {
        &self.consoles[index]
    }

    /// Launches of a sandbox after its first.
    pub fn lives(&self, index: usize) -> u64 {
        self.sandbox(index).map_or(0, |sandbox| sandbox.report.restarts)
    }

    /// State of a sandbox.
    pub fn state(&self, index: usize) -> State {
        self.sandbox(index).map_or(State::Absent, |sandbox| sandbox.state)
    }

    fn sandbox(&self, index: usize) -> Option<&bulkhead_explain::SandboxSnapshot> {
        self.last.as_ref()?.sandboxes.get(index)
    }

    /// Tells if all sandboxes that start with the machine run and have booted, and watchdogs have begun: under SVM
    /// their first tick comes late.
    pub fn is_steady(&self) -> bool {
        let Some(last) = &self.last else { return false };
        let mut all = last.sandboxes.iter().zip(&self.system.baked.plan.sandboxes);
        !last.sandboxes.is_empty()
            && all.all(|(now, planned)| {
                let booted = now.cores.first().is_some_and(|core| core.steady_ticks != 0);
                let ticks = |core: &Core| core.exits[Cause::Watchdog as usize] > 0;
                let watched = planned.watch.is_none() || now.cores.iter().all(ticks);
                let runs = now.state == State::Running && booted && watched;
                !planned.autostart || is_over(now.state) || runs
            })
    }

    /// Tells if sandboxes have ended.
    pub fn have_ended(&self, sandboxes: &[usize]) -> bool {
        sandboxes.iter().all(|index| is_over(self.state(*index)))
    }

    /// Lists the deeds of each sandbox.
    pub fn deeds(&self) -> Vec<Deeds> {
        let Some(last) = &self.last else { return Vec::new() };
        let report = report(&self.system.baked, last, &[], last.latest());
        let consoles = self.consoles.iter().zip(&self.said);
        report
            .sandboxes
            .iter()
            .zip(consoles)
            .map(|(s, (text, said))| deeds(s, text, *said))
            .collect()
    }

    /// The first record of the target from a time on, by the processors' clock.
    pub fn record_since(&self, is_since: impl Fn(u64) -> bool) -> Option<Record> {
        let sandbox = self.sandbox(self.system.target)?;
        let kept = sandbox.cores.iter().flat_map(|core| &core.kept);
        let first = kept.filter(|d| is_since(d.ticks)).min_by_key(|d| d.ticks)?;
        let condition = CONDITION_NAMES.get(usize::from(first.condition)).copied();
        Some(Record { ticks: first.ticks, condition: condition.unwrap_or("?") })
    }
}

fn is_over(state: State) -> bool {
    matches!(state, State::Stopped | State::Exited | State::Failed)
}

fn deeds(sandbox: &Sandbox, console: &str, said: usize) -> Deeds {
    Deeds {
        state: sandbox.state,
        exit_code: sandbox.exit_code,
        lives: sandbox.restarts,
        answers: sandbox.deeds,
        records: sandbox.by_condition.iter().map(|all| (all.condition, all.count)).collect(),
        causes: sandbox.exits.steady.keys().copied().collect(),
        console: console.to_owned(),
        said,
    }
}
