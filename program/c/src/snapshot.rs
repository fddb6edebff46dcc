//! Snapshots for programs in C: `program/include/bulkhead-program.h` declares these functions.

use bulkhead_program::snapshot::Snapshots;
use bulkhead_program::{Endpoint, Memory};
use core::slice;

/// `struct bulkhead_snapshots`.
#[derive(Debug)]
#[repr(C)]
pub struct Found {
    keeper: u32,
    kept: *const u8,
    len: u64,
}

impl Found {
    fn snapshots(&self) -> Option<Snapshots> {
        let kept = Memory { start: self.kept.cast_mut(), len: self.len as usize, writable: false };
        Snapshots::of(Endpoint(self.keeper), kept)
    }
}

/// # Safety
/// `bulkhead_snapshot_find` has filled `found`, and `generation` points to a word.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_snapshot_last(found: &Found, generation: *mut u64) -> bool {
    let Some(Ok(last)) = found.snapshots().map(|snapshots| snapshots.last()) else { return false };
    // SAFETY: the caller's word.
    unsafe { generation.write(last.map_or(0, |last| last.generation())) };
    true
}

/// # Safety
/// `bulkhead_snapshot_find` has filled `found`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_snapshot_take(found: &Found, changed: u64) -> bool {
    found.snapshots().is_some_and(|snapshots| snapshots.take(changed).is_ok())
}

/// # Safety
/// `bulkhead_snapshot_find` has filled `found`, and `to` points to so many words, which nobody else uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_snapshot_read(
    found: &Found,
    page: usize,
    to: *mut u64,
    words: usize,
) -> bool {
    // SAFETY: the caller's word.
    let to = unsafe { slice::from_raw_parts_mut(to, words) };
    let offered = found.snapshots().and_then(|snapshots| snapshots.offered());
    offered.is_some_and(|last| last.read(page, to))
}
