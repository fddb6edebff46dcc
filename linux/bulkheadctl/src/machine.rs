//! This sandbox's view of the others: names, the reports that it observes, the states that it may ask for.

use crate::Wrong;
use bulkhead_explain::{Exits, SandboxSnapshot};
use bulkhead_layout::hypercall::{CONTROL, DENIED, LOCK, NO_CALL, STATUS, STATUS_LOCKED};
use bulkhead_layout::map::{REPORT_STRIDE, REPORTS_GPA};
use bulkhead_layout::report::{self, State};
use bulkhead_linux::call;
use bulkhead_linux::devmem::{Info, Window};
use bulkhead_plan::RIGHTS;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// The machine, as far as this sandbox sees it.
pub struct Machine {
    /// The information page's content.
    pub info: Info,
    /// The reports that it observes, by sandbox.
    reports: Vec<Option<Window>>,
}

/// A state, and how often it was restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub state: State,
    pub restarts: u64,
    /// It runs what was loaded into it.
    pub loaded: bool,
    /// It has locked itself.
    pub locked: bool,
}

/// The known facts of a sandbox.
#[derive(Default)]
pub struct Known {
    pub status: Option<Status>,
    pub report: Option<SandboxSnapshot>,
}

impl Machine {
    /// Finds it all.
    pub fn open() -> Result<Self, Wrong> {
        let info = Info::read().map_err(|why| format!("the information page: {why}"))?;
        let mut reports: Vec<_> = info.sandboxes.iter().map(|_| None).collect();
        for window in info.windows.iter().filter(|window| window.report) {
            let index = window.gpa.wrapping_sub(REPORTS_GPA) / REPORT_STRIDE;
            let open = Window::open(window.gpa, window.size);
            let open = open.map_err(|why| format!("the report of {}: {why}", window.name))?;
            if let Some(slot) = reports.get_mut(index as usize) {
                *slot = Some(open);
            }
        }
        Ok(Self { info, reports })
    }

    /// A sandbox's index.
    pub fn index(&self, name: &str) -> Result<usize, Wrong> {
        self.info.sandbox(name).map_err(|why| why.to_string())
    }

    /// Sandboxes of these names; without any, all that this one observes or controls.
    pub fn named(&self, names: &[&str]) -> Result<Vec<usize>, Wrong> {
        if names.is_empty() {
            let all = 0..self.info.sandboxes.len();
            return Ok(all.filter(|&n| self.observes(n) || self.controls(n)).collect());
        }
        names.iter().map(|name| self.index(name)).collect()
    }

    /// Rights that the manifest gives it over that one's life.
    pub fn rights(&self, index: usize) -> impl Iterator<Item = &'static str> {
        let all = RIGHTS.into_iter().zip(self.info.rights);
        all.filter(move |(_, set)| set >> index & 1 != 0).map(|(name, _)| name)
    }

    /// Tells if the manifest lets it stop, start or restart that one, and so ask for its state.
    pub fn controls(&self, index: usize) -> bool {
        self.info.control >> index & 1 != 0
    }

    /// Tells if the manifest has that one end when this Linux takes the machine back.
    pub fn releases(&self, index: usize) -> bool {
        self.info.released >> index & 1 != 0
    }

    /// Tells if it sees that one's report.
    pub fn observes(&self, index: usize) -> bool {
        self.reports[index].is_some()
    }

    /// The channel through which it may load a program into that one, its address, and its bytes.
    pub fn loads(&self, index: usize) -> Option<(&str, u64, u64)> {
        let found = self.info.windows.iter().find(|window| window.loads == Some(index));
        found.map(|window| (window.name.as_str(), window.gpa, window.size))
    }

    /// Its view of a sandbox, without asking for facts that it has no right to.
    pub fn known(&self, index: usize) -> Known {
        let report = self.reports[index].as_ref().and_then(read);
        let status = match (&report, self.controls(index)) {
            (Some(seen), _) => Some(Status {
                state: seen.state,
                restarts: seen.report.restarts,
                loaded: seen.report.loaded != 0,
                locked: seen.report.locked != 0,
            }),
            (None, true) => self.status(index).ok(),
            (None, false) => None,
        };
        Known { status, report }
    }

    /// Asks the monitors for a sandbox's status.
    pub fn status(&self, index: usize) -> Result<Status, Wrong> {
        let answer = call(STATUS, index as u64, 0)?;
        let state = state(answer & 0xFF).ok_or_else(|| format!("a status of {answer:#x}"))?;
        let (restarts, loaded) = (answer >> 8 & u64::from(u32::MAX), answer >> 40 & 1 != 0);
        Ok(Status { state, restarts, loaded, locked: answer & STATUS_LOCKED != 0 })
    }

    /// Asks the monitors for something of a sandbox: their answer.
    pub fn control(&self, index: usize, request: u64) -> Result<u64, Wrong> {
        call(CONTROL, index as u64, request)
    }

    /// Locks this sandbox, or unlocks it: the monitor's answer. It is a call of the first core.
    pub fn lock(&self, locked: bool) -> Result<u64, Wrong> {
        let mut first = CpuSet::new();
        let pinned = first.set(0).and_then(|()| sched_setaffinity(Pid::from_raw(0), &first));
        pinned.map_err(|why| format!("core 0: {why}"))?;
        call(LOCK, u64::from(locked), 0)
    }

    /// Exits of a sandbox until now.
    pub fn exits(&self, seen: &SandboxSnapshot) -> Exits {
        bulkhead_explain::exits(&seen.cores, self.info.hz.max(1), bulkhead_linux::ticks())
    }
}

/// A denied call's answer.
pub const REFUSED: &str = "the monitors refused";

fn call(number: u64, first: u64, second: u64) -> Result<u64, Wrong> {
    call::allow().map_err(|why| format!("hypercalls, as root: {why}"))?;
    match call::call(number, first, second) {
        DENIED => Err(REFUSED.into()),
        NO_CALL if number == LOCK => {
            Err("this sandbox may not lock itself: it takes `lockable = true` in the manifest"
                .into())
        }
        NO_CALL => Err("there is no such hypercall: another version of Bulkhead".into()),
        answer => Ok(answer),
    }
}

fn state(number: u64) -> Option<State> {
    use State::{Absent, Exited, Failed, Launching, Running, Stopped};
    let all = [Absent, Launching, Running, Stopped, Exited, Failed];
    all.into_iter().find(|state| *state as u64 == number)
}

/// A report; `None` while there is none.
fn read(window: &Window) -> Option<SandboxSnapshot> {
    let ram = |at: u64, bytes: &mut [u8]| {
        let words = bytes.chunks_mut(8).enumerate();
        words.fold(true, |all, (n, chunk)| match window.word(at as usize + n * 8) {
            Some(word) => {
                chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
                all
            }
            None => false,
        })
    };
    let cores = window.word(std::mem::offset_of!(report::Report, cores))? as u32 as usize;
    bulkhead_explain::sandbox(&ram, 0, cores.min(bulkhead_layout::MAX_CORES))
}

const _: () = assert!(std::mem::offset_of!(report::Report, cores).is_multiple_of(8));
