//! Shared memory that the manifest grants: channels and observed reports. Only
//! atomic access, because another sandbox may change it at any time.

use crate::Context;
use bulkhead_channel_memory::typed::{Doorbell, Pair};
use bulkhead_guest::{text, windows};
use bulkhead_layout::info::{LINK, ROLE};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

/// Where a window lies.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// A channel's messages, as [`Pair::new`] takes them: kind (0 for raw pages) and size.
    messages: (u8, u32),
    doorbell: Option<Doorbell>,
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
        // SAFETY: the information page is the monitor's word that this memory is mapped and page-aligned for as long as
        // the sandbox runs. Atomics allow for a second party that writes.
        unsafe {
            core::slice::from_raw_parts(self.gpa as *const AtomicU64, (self.size / 8) as usize)
        }
    }

    /// Both regions of a channel of messages; `None` of raw pages and reports.
    #[must_use]
    pub fn pair(&self) -> Option<Pair<'static>> {
        let (base, len) = (NonNull::new(self.gpa as *mut u8)?, usize::try_from(self.size).ok()?);
        // SAFETY: by the monitor's word in the information page, the sender's region and the receiver's behind it are
        // mapped while the sandbox runs. It also says by `writable` which one may be written.
        let pair = unsafe { Pair::new(base, len, self.messages, self.writable) };
        pair.map(|pair| pair.with(self.doorbell))
    }
}

/// All windows.
pub fn all(context: Context) -> impl Iterator<Item = Window> {
    windows(context.info()).filter(|(w, _)| !matches!(w.kind, LINK | ROLE)).map(|(w, bell)| {
        Window {
            doorbell: Doorbell::told(bell, 0),
            name: text::of(&w.name),
            gpa: w.gpa,
            size: w.size,
            writable: w.writable != 0,
            report: w.kind == 1,
            messages: (w.messages as u8, w.message),
        }
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
