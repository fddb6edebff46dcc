//! Copies between a mapping and private memory. Which of several values that the peer
//! writes meanwhile is read is not said, byte for byte.

use crate::arch;
use bulkhead_channel::BLOCK;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU64};

/// Bytes of a block.
const BYTES: usize = 8 * BLOCK;

/// From so many bytes on the processor's own copy is faster than blocks, where it has one.
const LONG: usize = 1024;

/// Copies out of a mapping.
///
/// # Safety
/// As many bytes as the slice has are readable, and no part of it.
#[inline(always)]
pub unsafe fn out(from: *const u8, to: &mut [u8]) {
    if to.len() >= LONG && arch::CAN_MOVE {
        // SAFETY: readable as the caller says; the slice is writable.
        unsafe { arch::long(from, to.as_mut_ptr(), to.len()) };
        return;
    }
    let (blocks, rest) = to.as_chunks_mut::<BYTES>();
    let mut at = from;
    for to in blocks {
        // SAFETY: a block for each of the slice's, as the caller says.
        unsafe { arch::copy::<true>(at, to.as_mut_ptr()) };
        at = at.wrapping_add(BYTES);
    }
    let whole = at.addr() % 8 == 0;
    let (words, rest) = rest.as_chunks_mut::<8>();
    for to in words {
        *to = if whole {
            // SAFETY: readable as said, and aligned.
            unsafe { AtomicU64::from_ptr(at.cast_mut().cast()) }.load(Relaxed).to_ne_bytes()
        } else {
            // SAFETY: readable as said; bytes are always aligned.
            core::array::from_fn(|n| unsafe { byte(at.wrapping_add(n).cast_mut()) }.load(Relaxed))
        };
        at = at.wrapping_add(8);
    }
    for (n, to) in rest.iter_mut().enumerate() {
        // SAFETY: the caller guarantees this byte, like the words before it.
        *to = unsafe { byte(at.wrapping_add(n).cast_mut()) }.load(Relaxed);
    }
}

/// Copies into a mapping.
///
/// # Safety
/// As many bytes as the slice has are writable, and no part of it.
#[inline(always)]
pub unsafe fn into(from: &[u8], to: *mut u8) {
    if from.len() >= LONG && arch::CAN_MOVE {
        // SAFETY: writable as the caller says; the slice is readable.
        unsafe { arch::long(from.as_ptr(), to, from.len()) };
        return;
    }
    let (blocks, rest) = from.as_chunks::<BYTES>();
    let mut at = to;
    for from in blocks {
        // SAFETY: a block for each of the slice's, as the caller says.
        unsafe { arch::copy::<false>(from.as_ptr(), at) };
        at = at.wrapping_add(BYTES);
    }
    let whole = at.addr() % 8 == 0;
    let (words, rest) = rest.as_chunks::<8>();
    for from in words {
        if whole {
            // SAFETY: writable as said, and aligned.
            unsafe { AtomicU64::from_ptr(at.cast()) }.store(u64::from_ne_bytes(*from), Relaxed);
        } else {
            for (n, from) in from.iter().enumerate() {
                // SAFETY: writable as said; bytes are always aligned.
                unsafe { byte(at.wrapping_add(n)) }.store(*from, Relaxed);
            }
        }
        at = at.wrapping_add(8);
    }
    for (n, from) in rest.iter().enumerate() {
        // SAFETY: the caller guarantees this byte, like the words before it.
        unsafe { byte(at.wrapping_add(n)) }.store(*from, Relaxed);
    }
}

/// Returns a byte of a mapping.
///
/// # Safety
/// It is readable, and for stores writable.
unsafe fn byte<'a>(at: *mut u8) -> &'a AtomicU8 {
    // SAFETY: as the caller says.
    unsafe { AtomicU8::from_ptr(at) }
}
