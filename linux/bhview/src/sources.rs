//! Where the view's data come from: windows that the info page names.

use bulkhead_layout::report::{CONSOLE, CoreReport, DENIALS, Denial, KIND_NAMES, MAGIC, Report};
use bulkhead_layout::telemetry;
use bulkhead_linux::devmem::{Info, Window};
use std::mem::offset_of;

/// Name of the channel that holds the telemetry page.
const CHANNEL: &str = "telemetry";
/// Names of [`bulkhead_layout::report::State`].
const STATES: [&str; 6] = ["absent", "launching", "running", "stopped", "exited", "failed"];

/// The reports and channels that this sandbox may see.
pub struct Sources {
    /// Name of this sandbox.
    pub name: String,
    telemetry: Option<Window>,
    reports: Vec<(String, Window)>,
}

/// An observed sandbox.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: &'static str,
    /// Launches after the first one.
    pub restarts: u64,
    /// Accesses denied to it.
    pub denials: u64,
    /// Kind and address of the last one.
    pub last: Option<(&'static str, u64)>,
}

impl Sources {
    /// Finds them through the info page.
    pub fn open() -> std::io::Result<Self> {
        let info = Info::read()?;
        let reports = info.windows.iter().filter(|window| window.report);
        let reports = reports
            .map(|window| Ok((window.name.clone(), info.window(&window.name, true)?)))
            .collect::<std::io::Result<Vec<_>>>()?;
        Ok(Self { telemetry: info.window(CHANNEL, false).ok(), reports, name: info.name })
    }

    /// The newest telemetry.
    pub fn telemetry(&self) -> Option<telemetry::Record> {
        telemetry::read(self.telemetry.as_ref()?.words())
    }

    /// Every observed sandbox now.
    pub fn observed(&self) -> Vec<Observed> {
        let reports = self.reports.iter();
        reports.filter_map(|(name, window)| observe(name, window)).collect()
    }
}

/// Reads a report; `None` while there is none.
fn observe(name: &str, window: &Window) -> Option<Observed> {
    if window.word(offset_of!(Report, magic))? != MAGIC {
        return None;
    }
    let state = window.word(offset_of!(Report, state))? as u32;
    let cores = window.word(offset_of!(Report, cores))? as u32;
    let mut observed = Observed {
        name: name.to_owned(),
        state: STATES.get(state as usize).copied().unwrap_or("?"),
        restarts: window.word(offset_of!(Report, restarts))?,
        ..Observed::default()
    };
    let mut newest = 0;
    for core in 0..cores as usize {
        let at = size_of::<Report>() + core * size_of::<CoreReport>();
        let denials = window.word(at + offset_of!(CoreReport, denials))?;
        observed.denials += denials;
        if let Some((tsc, kind, address)) = last_denial(window, at, denials)
            && tsc >= newest
        {
            newest = tsc;
            observed.last = Some((kind, address));
        }
    }
    Some(observed)
}

/// Time stamp, kind and address of a core's last denial.
fn last_denial(window: &Window, core: usize, denials: u64) -> Option<(u64, &'static str, u64)> {
    let index = denials.checked_sub(1)? as usize % DENIALS;
    let at = core + offset_of!(CoreReport, ring) + index * size_of::<Denial>();
    let ticks = window.word(at + offset_of!(Denial, ticks))?;
    let address = window.word(at + offset_of!(Denial, address))?;
    let kind = window.word(at + offset_of!(Denial, kind))? as u16;
    // In flux or overwritten meanwhile: leave it out.
    let steady = window.word(at + offset_of!(Denial, seq))? == denials;
    steady.then_some((ticks, KIND_NAMES.get(usize::from(kind))?, address))
}

const _: () = assert!(CONSOLE.is_multiple_of(8) && offset_of!(Denial, kind).is_multiple_of(8));
const _: () = assert!(offset_of!(Report, state).is_multiple_of(8));
const _: () = assert!(offset_of!(Report, cores).is_multiple_of(8));
