//! The ring that a traced kernel writes, at the end of its memory.

use bulkhead_cpu_x86::rdtsc;
use bulkhead_kernel::Event;
use bulkhead_kernel_x86::WINDOW;
use bulkhead_trace::ring::HEAD;
use bulkhead_trace::{Head, Ring, Slot, Writer};

/// A ring, and its writer's state.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    at: u64,
    records: usize,
    writer: Writer,
}

impl Default for Trace {
    fn default() -> Self {
        Self::NONE
    }
}

/// Mark of a kernel that can trace: the image builder looks for it.
#[unsafe(no_mangle)]
#[used]
static TRACES: u8 = 1;

impl Trace {
    /// No ring.
    pub const NONE: Self = Self { at: 0, records: 0, writer: Writer::new() };

    /// Takes the ring at an offset, if there is one.
    pub fn begin(&mut self, at: u32, records: u32, tsc_hz: u64) {
        (self.at, self.records) = (WINDOW + u64::from(at), records as usize);
        if let Some(ring) = self.ring() {
            // A ring of a former life begins anew: its unread records are gone.
            Writer::begin(ring, rdtsc(), tsc_hz);
        }
    }

    /// Tells if there is a ring.
    #[inline(always)]
    pub const fn is_on(&self) -> bool {
        self.records != 0
    }

    #[inline(always)]
    fn ring(&self) -> Option<Ring<'static>> {
        // A kernel to trace may have no ring: then an event costs this look.
        if !self.is_on() {
            return None;
        }
        // SAFETY: the host has set a page and so many records aside at the end of the kernel's memory, aligned. They
        // are part of no object, and hold only atomics.
        unsafe {
            let head = &*(self.at as *const Head);
            // A reader outside of the sandbox looks on: both sides use atomics alone.
            let slots = core::slice::from_raw_parts((self.at + HEAD) as *const Slot, self.records);
            Some(Ring { head, slots })
        }
    }

    /// Adds an event. Where its kind is known, the rest of it is a few stores.
    #[inline(always)]
    pub fn write(&mut self, event: Event) {
        if let Some(ring) = self.ring() {
            self.writer.write(ring, rdtsc(), event);
        }
    }
}
