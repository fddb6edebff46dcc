//! x86-64: blocks are vector registers where the target has them (monitors and the kernel do without). Between a
//! mapping and other memory they can be vector registers even if the compiler uses none. The builder then says by the
//! feature `vectors` that they exist, and that interrupts save them.

#[cfg(not(any(target_feature = "sse2", feature = "vectors")))]
pub use super::any::copy;
#[cfg(not(target_feature = "sse2"))]
pub use super::any::{load, store};
#[cfg(any(target_feature = "sse2", feature = "vectors"))]
pub use between::copy;
#[cfg(target_feature = "sse2")]
pub use blocks::{load, store};
use core::arch::asm;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicU64, compiler_fence};

/// [`long`] exists.
pub const CAN_MOVE: bool = true;

/// Copies by one instruction.
///
/// # Safety
/// So many bytes are readable at `from`, writable at `to`, and they do not overlap.
pub unsafe fn long(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees these accesses. They go upwards: the direction flag is clear (System V ABI).
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Stores a word, before every later access of this core.
#[inline]
pub fn fenced(word: &AtomicU64, value: u64) {
    // SAFETY: XCHG stores to a word that is valid for it, and changes nothing else. It is a full fence (AMD64 APM
    // volume 2, 7.3.2). The compiler moves no access across it, because for all it knows the instruction accesses
    // any memory.
    unsafe {
        asm!(
            "xchg [{at}], {value}",
            at = in(reg) word.as_ptr(),
            value = inout(reg) value => _,
            options(nostack, preserves_flags),
        );
    }
    compiler_fence(SeqCst);
}

/// Orders all accesses of this core.
#[inline]
pub fn fence() {
    // SAFETY: writes a byte of the stack back as it is. A locked instruction is a full fence
    // (AMD64 APM volume 2, 7.3.2), in half of the time that MFENCE takes.
    unsafe {
        asm!("lock or byte ptr [rsp], 0");
    }
    compiler_fence(SeqCst);
}

#[cfg(any(target_feature = "sse2", feature = "vectors"))]
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

#[cfg(target_feature = "sse2")]
mod blocks {
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
