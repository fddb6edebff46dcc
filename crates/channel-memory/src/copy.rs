//! Copies between a mapping and private memory.

use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

/// From so many bytes on the processor's own copy is faster than blocks (ERMS).
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LONG: usize = 1024;

/// Copies `len` bytes. Which of several values that others write meanwhile it reads is
/// not said, byte for byte.
///
/// # Safety
/// `from` is valid for reading so many bytes, `to` for writing, and they do not overlap.
/// Where others change the memory meanwhile, it is only accessed as here or atomically.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len >= LONG {
        // SAFETY: reads and writes what the caller vouches for; the direction flag is clear
        // (System V ABI) and so it goes upwards.
        unsafe {
            core::arch::asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rsi") from => _,
                inout("rdi") to => _,
                options(nostack, preserves_flags),
            );
        }
        return;
    }
    let mut done = 0;
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        while len - done >= 64 {
            // SAFETY: these 64 bytes are within what the caller vouches for.
            unsafe { block(from.add(done), to.add(done)) };
            done += 64;
        }
        while len - done >= 8 {
            // SAFETY: so are these 8; alignment does not matter to MOV.
            unsafe {
                core::arch::asm!(
                    "mov {word}, [{from}]",
                    "mov [{to}], {word}",
                    from = in(reg) from.add(done),
                    to = in(reg) to.add(done),
                    word = out(reg) _,
                    options(nostack, preserves_flags),
                );
            }
            done += 8;
        }
    }
    while done < len {
        // SAFETY: within; bytes have no alignment. The private side is nobody else's, so
        // that it is accessed atomically does no harm.
        unsafe {
            let byte = AtomicU8::from_ptr(from.add(done).cast_mut()).load(Relaxed);
            AtomicU8::from_ptr(to.add(done)).store(byte, Relaxed);
        }
        done += 1;
    }
}

/// Copies 64 bytes.
///
/// # Safety
/// As of [`copy`].
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
#[inline(always)]
unsafe fn block(from: *const u8, to: *mut u8) {
    // SAFETY: reads and writes 64 bytes that the caller vouches for.
    unsafe {
        core::arch::asm!(
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + 48], {d}",
            from = in(reg) from,
            to = in(reg) to,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// The same without vector registers, which monitors and the kernel do not use.
///
/// # Safety
/// As of [`copy`].
#[cfg(all(target_arch = "x86_64", not(target_feature = "sse2"), not(miri)))]
#[inline(always)]
unsafe fn block(from: *const u8, to: *mut u8) {
    // SAFETY: reads and writes 64 bytes that the caller vouches for.
    unsafe {
        core::arch::asm!(
            "mov {a}, [{from}]",
            "mov {b}, [{from} + 8]",
            "mov {c}, [{from} + 16]",
            "mov {d}, [{from} + 24]",
            "mov [{to}], {a}",
            "mov [{to} + 8], {b}",
            "mov [{to} + 16], {c}",
            "mov [{to} + 24], {d}",
            "mov {a}, [{from} + 32]",
            "mov {b}, [{from} + 40]",
            "mov {c}, [{from} + 48]",
            "mov {d}, [{from} + 56]",
            "mov [{to} + 32], {a}",
            "mov [{to} + 40], {b}",
            "mov [{to} + 48], {c}",
            "mov [{to} + 56], {d}",
            from = in(reg) from,
            to = in(reg) to,
            a = out(reg) _,
            b = out(reg) _,
            c = out(reg) _,
            d = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}
