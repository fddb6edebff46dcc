//! Any architecture, in the language's own words: blocks are words or bytes that are read and written atomically.
//! An architecture with a module takes from here what it lacks.
#![allow(dead_code, reason = "an architecture takes only what it lacks")]

use bulkhead_channel::BLOCK;
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU8, AtomicU64, compiler_fence};

/// There is no [`long`].
pub const CAN_MOVE: bool = false;

/// Copies nothing.
///
/// # Safety
/// It does nothing, so nothing has to hold.
pub unsafe fn long(_: *const u8, _: *mut u8, _: usize) {}

/// Stores a word, before every later access of this core.
#[inline]
pub fn fenced(word: &AtomicU64, value: u64) {
    word.store(value, Release);
    fence();
    compiler_fence(SeqCst);
}

/// Orders all accesses of this core.
#[inline]
pub fn fence() {
    core::sync::atomic::fence(SeqCst);
}

/// Copies a block, `OUT` of the mapping or into it.
///
/// # Safety
/// The 64 bytes are readable at `from`, writable at `to`, and do not overlap. Others may change or read the
/// mapping's bytes meanwhile, atomically; the other bytes are this program's alone.
#[inline(always)]
pub unsafe fn copy<const OUT: bool>(from: *const u8, to: *mut u8) {
    let whole = (from.addr() | to.addr()) % 8 == 0;
    for n in 0..if whole { BLOCK } else { 0 } {
        // SAFETY: both are aligned, and the caller guarantees word `n`. Only the mapping's is taken for an atomic
        // one: memory borrowed for reading must not be.
        unsafe {
            let (from, to) = (from.add(8 * n).cast::<u64>(), to.add(8 * n).cast::<u64>());
            if OUT {
                to.write(AtomicU64::from_ptr(from.cast_mut()).load(Relaxed));
            } else {
                AtomicU64::from_ptr(to).store(from.read(), Relaxed);
            }
        }
    }
    for n in 0..if whole { 0 } else { 8 * BLOCK } {
        // SAFETY: the caller guarantees byte `n`; bytes are always aligned.
        unsafe {
            let (from, to) = (from.add(n), to.add(n));
            if OUT {
                to.write(AtomicU8::from_ptr(from.cast_mut()).load(Relaxed));
            } else {
                AtomicU8::from_ptr(to).store(from.read(), Relaxed);
            }
        }
    }
}

/// Reads a block.
///
/// # Safety
/// The 64 bytes are readable, and accessed atomically alone. Others may change them meanwhile.
#[inline(always)]
pub unsafe fn load(from: *const u8) -> [u64; BLOCK] {
    // SAFETY: the caller guarantees each word, and each byte of it.
    let at = |n: usize| unsafe { from.cast_mut().add(8 * n) };
    if from.addr() % 8 == 0 {
        return core::array::from_fn(|n| {
            // SAFETY: aligned, and readable as said.
            unsafe { AtomicU64::from_ptr(at(n).cast()) }.load(Relaxed)
        });
    }
    core::array::from_fn(|n| {
        // SAFETY: readable as said; bytes are always aligned.
        let byte = |b| unsafe { AtomicU8::from_ptr(at(n).add(b)) }.load(Relaxed);
        u64::from_le_bytes(core::array::from_fn(byte))
    })
}

/// Writes a block.
///
/// # Safety
/// The 64 bytes are writable, and accessed atomically alone. Others may read them meanwhile.
#[inline(always)]
pub unsafe fn store(to: *mut u8, words: [u64; BLOCK]) {
    if to.addr() % 8 == 0 {
        for (n, word) in words.into_iter().enumerate() {
            // SAFETY: aligned, and the caller guarantees word `n`.
            unsafe { AtomicU64::from_ptr(to.add(8 * n).cast()) }.store(word, Relaxed);
        }
        return;
    }
    for (n, byte) in words.iter().flat_map(|word| word.to_le_bytes()).enumerate() {
        // SAFETY: writable as the caller says; bytes are always aligned.
        unsafe { AtomicU8::from_ptr(to.add(n)) }.store(byte, Relaxed);
    }
}
