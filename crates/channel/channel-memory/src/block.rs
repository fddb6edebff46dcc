//! Blocks of 64 bytes between a mapping and registers. These are vector registers where the target has them (monitors
//! and the kernel do without), and words elsewhere and under Miri. Between a mapping and other memory they can be
//! vector registers even if the compiler uses none. The builder then says by the feature `vectors` that they exist,
//! and that interrupts save them.

pub use between::copy;
pub use way::{load, store};

#[cfg(all(target_arch = "x86_64", any(target_feature = "sse2", feature = "vectors"), not(miri)))]
mod between {
    use core::arch::asm;

    /// Copies a block, `OUT` of the mapping or into it.
    ///
    /// # Safety
    /// The 64 bytes are readable at `from`, writable at `to`, and do not overlap. Others may change or read one
    /// of them meanwhile.
    #[inline(always)]
    pub unsafe fn copy<const OUT: bool>(from: *const u8, to: *mut u8) {
        // SAFETY: the caller guarantees these accesses. Where the compiler does not use the registers, they hold no
        // value of its own.
        unsafe {
            asm!(
                "movups xmm0, [{from}]",
                "movups xmm1, [{from} + 16]",
                "movups xmm2, [{from} + 32]",
                "movups xmm3, [{from} + 48]",
                "movups [{to}], xmm0",
                "movups [{to} + 16], xmm1",
                "movups [{to} + 32], xmm2",
                "movups [{to} + 48], xmm3",
                from = in(reg) from,
                to = in(reg) to,
                out("xmm0") _,
                out("xmm1") _,
                out("xmm2") _,
                out("xmm3") _,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(all(
    target_arch = "x86_64",
    any(target_feature = "sse2", feature = "vectors"),
    not(miri)
)))]
mod between {
    use bulkhead_channel::BLOCK;
    use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

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
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
mod way {

    use bulkhead_channel::BLOCK;
    use core::arch::asm;
    use core::arch::x86_64::__m128i;

    /// Reads a block.
    ///
    /// # Safety
    /// The 64 bytes are readable. Others may change them meanwhile.
    #[inline(always)]
    pub unsafe fn load(from: *const u8) -> [u64; BLOCK] {
        let (a, b, c, d): (__m128i, __m128i, __m128i, __m128i);
        // SAFETY: the caller guarantees these reads.
        unsafe {
            asm!(
                "movups {a}, [{from}]",
                "movups {b}, [{from} + 16]",
                "movups {c}, [{from} + 32]",
                "movups {d}, [{from} + 48]",
                from = in(reg) from,
                a = out(xmm_reg) a,
                b = out(xmm_reg) b,
                c = out(xmm_reg) c,
                d = out(xmm_reg) d,
                options(nostack, preserves_flags, readonly),
            );
        }
        // SAFETY: both are 64 bytes, of which any value is one.
        unsafe { core::mem::transmute::<[__m128i; 4], [u64; BLOCK]>([a, b, c, d]) }
    }

    /// Writes a block.
    ///
    /// # Safety
    /// The 64 bytes are writable. Others may read them meanwhile.
    #[inline(always)]
    pub unsafe fn store(to: *mut u8, words: [u64; BLOCK]) {
        // SAFETY: both are 64 bytes, of which any value is one.
        let [a, b, c, d] = unsafe { core::mem::transmute::<[u64; BLOCK], [__m128i; 4]>(words) };
        // SAFETY: the caller guarantees these writes.
        unsafe {
            asm!(
                "movups [{to}], {a}",
                "movups [{to} + 16], {b}",
                "movups [{to} + 32], {c}",
                "movups [{to} + 48], {d}",
                to = in(reg) to,
                a = in(xmm_reg) a,
                b = in(xmm_reg) b,
                c = in(xmm_reg) c,
                d = in(xmm_reg) d,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2", not(miri))))]
mod way {
    use bulkhead_channel::BLOCK;
    use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

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
}
