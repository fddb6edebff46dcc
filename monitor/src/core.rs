//! One core's view: where its frame, VMCB, state and counters lie. All of it is
//! found from the frame's address, so it costs no lookup.

use crate::vmrun::Frame;
use ::core::cell::Cell;
use ::core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use bulkhead_cpu_x86::rdtsc;
use bulkhead_resident::MAX_SANDBOXES;
use bulkhead_resident::lock::{Lock, Pace};
use bulkhead_resident::map::{
    CONFIG_VA, CORE_REPORT, CORE_STACK, CORE_STRIDE, CORE_VMCB, CORES_VA, MAILBOX_VA, REPORT_VA,
};
use bulkhead_resident::monitor::{Config, Mailbox, Slice};
use bulkhead_resident::report::{CoreReport, Report};
use bulkhead_resident_x86::vmcb;

/// A core's state, at the base of its stack.
#[repr(C)]
pub struct Local {
    /// Set by the NMI handler; the first byte, as the handler knows it.
    pub doorbell: Cell<u8>,
    /// How often the sandbox had been restarted when this core last began.
    pub incarnation: Cell<u32>,
    /// What the sandbox's other cores touch, away from what an exit needs.
    pub shared: Shared,
}

/// The part of a core's state that the sandbox's other cores touch.
#[repr(C, align(64))]
pub struct Shared {
    /// Requests: [`crate::ipi`]'s bits.
    pub signals: AtomicU32,
    /// While this core waits for a SIPI: 1 + the [`Shared::life`] that it has seen; else 0.
    pub parked: AtomicU32,
    /// The first core's: odd while the guest lives, even while it does not.
    pub life: AtomicU32,
    /// The first core's: what the guest wrote to the PCI address port.
    pub pci_address: AtomicU32,
    /// The first core's: what the guest wrote to the real-time clock's index port.
    pub cmos_index: AtomicU8,
    /// The first core's: which core has the sandbox's PCI functions and its IOAPIC's table.
    pub own: Lock,
    /// The first core's: how often cores were to empty their TLBs.
    pub flushes: AtomicU64,
    /// What that was when this core did so last.
    pub flushed: AtomicU64,
}

/// A VMCB as 64-bit words, read and written by offset.
pub struct Vmcb([Cell<u64>; 512]);

impl Vmcb {
    /// The word at a byte offset that is a multiple of 8.
    #[inline(always)]
    pub fn get(&self, offset: u16) -> u64 {
        self.0[offset as usize / 8 % 512].get()
    }

    /// Sets it.
    #[inline(always)]
    pub fn set(&self, offset: u16, value: u64) {
        self.0[offset as usize / 8 % 512].set(value);
    }

    /// Current privilege level of the guest.
    #[inline(always)]
    pub fn cpl(&self) -> u8 {
        (self.get(vmcb::CPL_WORD) >> 24) as u8
    }
}

/// A core, by its frame.
#[derive(Clone, Copy)]
pub struct Core {
    pub frame: &'static Frame,
}

impl Core {
    #[inline(always)]
    fn block(self) -> u64 {
        ::core::ptr::from_ref(self.frame) as u64 & !(CORE_STRIDE - 1)
    }

    /// Its VMCB.
    #[inline(always)]
    pub fn vmcb(self) -> &'static Vmcb {
        // SAFETY: the host maps this core's VMCB there, writable; only this core
        // (and the processor while the guest runs) accesses it.
        unsafe { &*((self.block() + CORE_VMCB) as *const Vmcb) }
    }

    /// Its state.
    #[inline(always)]
    pub fn local(self) -> &'static Local {
        // SAFETY: as above; what other cores touch in it is atomic.
        unsafe { &*((self.block() + CORE_STACK) as *const Local) }
    }

    /// Its counters and records.
    #[inline(always)]
    pub fn counters(self) -> *mut CoreReport {
        (self.block() + CORE_REPORT) as *mut CoreReport
    }

    /// Its number in the sandbox.
    #[inline(always)]
    pub fn index(self) -> u32 {
        ((self.block() - CORES_VA) / CORE_STRIDE) as u32
    }

    /// Whether this is the sandbox's first core.
    pub fn is_first(self) -> bool {
        self.index() == 0
    }
}

/// What others may touch of core number `index` of this sandbox, below [`Config::cores`].
pub fn shared_of(index: u32) -> &'static Shared {
    let local = CORES_VA + u64::from(index) * CORE_STRIDE + CORE_STACK;
    // SAFETY: the host maps a block for each core below `config().cores`, and
    // every caller's index comes from a position in `apic_ids` below that.
    unsafe { &(*(local as *const Local)).shared }
}

/// Does something with registers that this sandbox' cores share; `None` if this core's turn has not come: its guest
/// executes the instruction again, and doorbells are heard in between.
pub fn alone<T>(work: impl FnOnce() -> T) -> Option<T> {
    shared_of(0).own.with(here(), PACE, rdtsc, work)
}

/// For a turn with a lock, in TSC ticks: a millisecond or so in all, and some microseconds for a core that is late for
/// its own. Holders need a microsecond.
pub const PACE: Pace = Pace { patience: 4_000_000, turn: 40_000 };

/// This core's number in the sandbox, by its stack.
pub fn here() -> u32 {
    let on_stack = 0u8;
    let at = ::core::ptr::from_ref(&on_stack) as u64;
    (at.wrapping_sub(CORES_VA) / CORE_STRIDE) as u32
}

/// The configuration.
#[inline(always)]
pub fn config() -> &'static Config {
    // SAFETY: the host maps it there, read-only for everybody.
    unsafe { &*(CONFIG_VA as *const Config) }
}

/// A part of the configuration.
pub fn slice<T>(part: Slice) -> &'static [T] {
    // SAFETY: the host placed `len` elements of the type that the field's
    // documentation names at that offset, in the read-only configuration.
    unsafe {
        ::core::slice::from_raw_parts(
            (CONFIG_VA + u64::from(part.offset)) as *const T,
            part.len as usize,
        )
    }
}

/// The sandbox's report, written by the first core.
pub fn report() -> *mut Report {
    REPORT_VA as *mut Report
}

/// A monitor's mailbox; for the own one, writable.
pub fn mailbox(sandbox: u32) -> &'static Mailbox {
    let sandbox = u64::from(sandbox) % MAX_SANDBOXES as u64;
    // SAFETY: every caller's index is below `config().sandboxes`, and the host
    // maps that many mailboxes. Its fields are atomics.
    unsafe { &*((MAILBOX_VA + sandbox * size_of::<Mailbox>() as u64) as *const Mailbox) }
}
