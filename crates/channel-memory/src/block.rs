//! Blocks of 64 bytes between a mapping and registers: vector registers where the target
//! has them (monitors and the kernel do without), words elsewhere and under Miri.

pub use way::{load, store};

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
        // SAFETY: reads what the caller vouches for.
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
        // SAFETY: writes what the caller vouches for.
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
        core::array::from_fn(|n| {
            // SAFETY: word `n` is within what the caller vouches for.
            let at = unsafe { from.cast_mut().add(8 * n) };
            if at.addr() % 8 == 0 {
                // SAFETY: aligned, and readable as said.
                return unsafe { AtomicU64::from_ptr(at.cast()) }.load(Relaxed);
            }
            // SAFETY: readable as said; bytes are always aligned.
            let byte = |n| unsafe { AtomicU8::from_ptr(at.add(n)) }.load(Relaxed);
            u64::from_le_bytes(core::array::from_fn(byte))
        })
    }

    /// Writes a block.
    ///
    /// # Safety
    /// The 64 bytes are writable, and accessed atomically alone. Others may read them meanwhile.
    #[inline(always)]
    pub unsafe fn store(to: *mut u8, words: [u64; BLOCK]) {
        for (n, word) in words.into_iter().enumerate() {
            // SAFETY: word `n` is within what the caller vouches for.
            let at = unsafe { to.add(8 * n) };
            if at.addr() % 8 == 0 {
                // SAFETY: aligned, and writable as said.
                unsafe { AtomicU64::from_ptr(at.cast()) }.store(word, Relaxed);
                continue;
            }
            for (n, byte) in word.to_le_bytes().into_iter().enumerate() {
                // SAFETY: writable as said; bytes are always aligned.
                unsafe { AtomicU8::from_ptr(at.add(n)) }.store(byte, Relaxed);
            }
        }
    }
}
