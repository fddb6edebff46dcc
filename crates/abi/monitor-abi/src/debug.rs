//! A debugger's page: it stops the guest, looks at it, changes it, and lets it go on. Only in a sandbox
//! into which the manifest lets a debugger. That sandbox' monitor has the page; no guest does.
//!
//! The debugger writes [`Page::argument`] and [`Page::data`], then [`Page::request`], and wakes the monitor. That
//! answers by [`Page::answer`], and sleeps again. Whoever writes the page rules over this one guest, and over nothing
//! else: each address is checked.

use core::sync::atomic::AtomicU64;

/// Request: stop. The guest runs until then.
pub const STOP: u8 = 1;
/// Request: go on.
pub const GO: u8 = 2;
/// Request: go on for one instruction, without an interrupt before it.
pub const STEP: u8 = 3;
/// Request: go on with the exception that stopped the guest, which is its own.
pub const REFLECT: u8 = 4;
/// Request: copy memory of the guest to [`Page::data`]. Arguments: guest-physical address, bytes; multiples of 8.
pub const READ: u8 = 5;
/// Request: copy [`Page::data`] to memory of the guest, likewise.
pub const WRITE: u8 = 6;
/// Request: take those of [`Page::registers`] that can be changed.
pub const REGISTERS: u8 = 7;

/// State: the guest runs.
pub const RUNS: u64 = 0;
/// State: it is stopped, because it was asked for.
pub const STOPPED: u64 = 1;
/// State: it is stopped at the architecture's breakpoint instruction, and has not executed it.
pub const BROKE: u64 = 2;
/// State: it is stopped after one instruction.
pub const STEPPED: u64 = 3;

/// Number of registers, at most. The architecture has a place for each.
pub const COUNT: usize = 32;
/// Bytes of memory in a request, at most.
pub const MOST: usize = 2048;

/// The page.
#[repr(C, align(4096))]
pub struct Page {
    /// The debugger's: `number << 8 | request`.
    pub request: AtomicU64,
    /// The monitor's: the last request that was carried out.
    pub answer: AtomicU64,
    /// The monitor's: 1 if it could not be.
    pub refused: AtomicU64,
    /// The monitor's: [`RUNS`] and its like.
    pub state: AtomicU64,
    /// The debugger's.
    pub argument: [AtomicU64; 2],
    /// The monitor's: the guest goes on for one instruction.
    pub stepping: AtomicU64,
    /// The debugger's: 1 while it is there. Without one a breakpoint instruction is the guest's own.
    pub attached: AtomicU64,
    /// The guest's registers while it is stopped.
    pub registers: [AtomicU64; COUNT],
    /// Its registers for numbers with a fraction and for vectors, as the architecture stores them. The debugger does
    /// not change them.
    pub extended: [AtomicU64; 64],
    /// Bytes of memory.
    pub data: [AtomicU64; MOST / 8],
    /// Nothing.
    pub rest: [AtomicU64; 152],
}

const _: () = assert!(size_of::<Page>() == 4096);
