//! Shared memory that the manifest grants: channels and observed reports. Only
//! atomic access, because another sandbox may change it at any time.

use crate::Context;
use crate::context::text;
use core::sync::atomic::AtomicU64;

/// Where a window lies.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Channel, or observed sandbox.
    pub name: &'static str,
    /// Guest-physical address.
    pub gpa: u64,
    /// Bytes.
    pub size: u64,
    /// This sandbox may write it.
    pub writable: bool,
    /// It is an observed sandbox's report.
    pub report: bool,
}

impl Window {
    /// Its 64-bit words. A store through a window that is not writable is denied
    /// by the monitor.
    #[must_use]
    pub fn words(&self) -> &'static [AtomicU64] {
        // SAFETY: the information page is the monitor's word that this memory
        // is mapped and page-aligned for as long as the sandbox runs; atomics
        // allow for a second party that writes.
        unsafe {
            core::slice::from_raw_parts(self.gpa as *const AtomicU64, (self.size / 8) as usize)
        }
    }
}

/// All windows.
pub fn all(context: Context) -> impl Iterator<Item = Window> {
    let info = context.info();
    let count = (info.windows as usize).min(info.window.len());
    info.window[..count].iter().map(|w| Window {
        name: text(&w.name),
        gpa: w.gpa,
        size: w.size,
        writable: w.writable != 0,
        report: w.kind != 0,
    })
}

/// The channel of this name.
#[must_use]
pub fn channel(context: Context, name: &str) -> Option<Window> {
    all(context).find(|w| !w.report && w.name == name)
}

/// The report of the observed sandbox of this name.
#[must_use]
pub fn report(context: Context, name: &str) -> Option<Window> {
    all(context).find(|w| w.report && w.name == name)
}
