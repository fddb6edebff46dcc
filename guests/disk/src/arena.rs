//! The memory that a disk is told of, and the common parts of all kinds of disk.

use core::cell::UnsafeCell;
use core::fmt;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Pages of data.
const DATA_PAGES: usize = 32;
/// Vectors: the first is an NVMe controller's admin queue's, the second that queue's for reads and writes.
pub const VECTORS: [u8; 2] = [0x60, 0x61];
/// Nanoseconds that a request may take.
pub const PATIENCE: u64 = 5_000_000_000;

/// All that the disk is told of: five pages for the driver's own use, then data.
#[repr(C, align(4096))]
pub struct Arena(UnsafeCell<[[u64; PAGE / 8]; PAGES]>);
const DATA: usize = 5;
const PAGES: usize = DATA + DATA_PAGES;

// SAFETY: only one core runs this program, and all access is volatile.
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena(UnsafeCell::new([[0; PAGE / 8]; PAGES]));

impl Arena {
    fn word(at: usize) -> *mut u64 {
        // SAFETY: within the arena, by the remainder.
        unsafe { ARENA.0.get().cast::<u64>().add(at % (PAGES * PAGE / 8)) }
    }

    /// Reads a word, which a device may have written.
    pub fn get(at: usize) -> u64 {
        // SAFETY: a word of the arena; volatile, as a device writes it, too.
        unsafe { Self::word(at).read_volatile() }
    }

    /// Writes a word.
    pub fn set(at: usize, value: u64) {
        // SAFETY: a word of the arena; volatile, as a device writes it, too.
        unsafe { Self::word(at).write_volatile(value) }
    }

    /// Its words.
    pub const WORDS: usize = PAGES * PAGE / 8;
    /// Words of a page.
    pub const PAGE_WORDS: usize = PAGE / 8;

    /// First word of a page of data.
    pub fn data(page: usize) -> usize {
        (DATA + page) * Self::PAGE_WORDS
    }

    /// Address of a page.
    pub fn address(page: usize) -> u64 {
        Self::word(page * Self::PAGE_WORDS) as u64
    }

    /// Address of a page of data.
    pub fn data_address(page: usize) -> u64 {
        Self::address(DATA + page)
    }
}

/// A read or a write of a page.
#[derive(Clone, Copy)]
pub struct Request {
    /// True if it is written to the disk; else it is read.
    pub write: bool,
    /// Page of data in the arena.
    pub page: usize,
    /// Page on the disk.
    pub place: u64,
}

/// Why it does not work.
#[derive(Clone, Copy)]
pub enum Wrong {
    /// There is no such function, or it lacks something.
    Absent(&'static str),
    /// No interrupt came.
    Silent,
    /// A request failed with this status.
    Status(u16),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(what) => write!(f, "no {what}"),
            Self::Silent => f.write_str("no interrupt came"),
            Self::Status(status) => write!(f, "a request failed with status {status:#x}"),
        }
    }
}
