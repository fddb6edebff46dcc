//! The memory that a disk is told of: a driver's, then data.

use bulkhead_disks::{Memory, ahci, nvme, virtio_blk};
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Pages of data.
const DATA_PAGES: usize = 32;
/// First page of data, behind a driver's memory.
const DATA: usize = nvme::MEMORY / PAGE;
const _: () = assert!(nvme::MEMORY.is_multiple_of(PAGE) && virtio_blk::MEMORY <= nvme::MEMORY);
const _: () = assert!(ahci::MEMORY <= nvme::MEMORY);

/// All that the disk is told of.
#[repr(C, align(4096))]
struct Words([AtomicU64; Arena::WORDS]);

static ARENA: Words = Words([const { AtomicU64::new(0) }; Arena::WORDS]);

/// Access to it.
#[derive(Clone, Copy)]
pub struct Arena;

impl Arena {
    /// Its words.
    pub const WORDS: usize = (DATA + DATA_PAGES) * Self::PAGE_WORDS;
    /// Words of a page.
    pub const PAGE_WORDS: usize = PAGE / 8;

    fn word(at: usize) -> &'static AtomicU64 {
        &ARENA.0[at % Self::WORDS]
    }

    /// Reads a word, which a device may have written.
    pub fn get(at: usize) -> u64 {
        Self::word(at).load(Ordering::Acquire)
    }

    /// Writes a word.
    pub fn set(at: usize, value: u64) {
        Self::word(at).store(value, Ordering::Release);
    }

    /// First word of a page of data.
    pub fn data(page: usize) -> usize {
        (DATA + page) * Self::PAGE_WORDS
    }

    /// Address of a page of data.
    pub fn data_address(page: usize) -> u64 {
        core::ptr::from_ref(Self::word(Self::data(page))) as u64
    }
}

impl Memory for Arena {
    fn bytes(&self) -> usize {
        DATA * PAGE
    }
    fn address(&self) -> u64 {
        core::ptr::from_ref(&ARENA) as u64
    }
    fn get(&self, at: usize) -> u64 {
        Self::get(at / 8)
    }
    fn set(&self, at: usize, value: u64) {
        Self::set(at / 8, value);
    }
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}
