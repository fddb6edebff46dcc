//! All vector registers of a thread: 16 of AVX, eight of x87, and the two that control them.

use core::arch::asm;

/// Value after a reset (APM volume 1, sections 4.2.2 and 6.2.3).
const MXCSR: u32 = 0x1F80;
const FCW: u16 = 0x37F;

/// The registers' contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct State {
    ymm: [[u64; 4]; 16],
    /// Numbers of 64 bits, which 80 hold unchanged.
    x87: [u64; 8],
    mxcsr: u32,
    fcw: u16,
}

impl State {
    /// Contents that tell threads and rounds apart.
    pub fn of(thread: u64, round: u64) -> Self {
        let word = |n: u64| (thread << 56 | round << 16 | n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let ymm = core::array::from_fn(|n| core::array::from_fn(|m| word(n as u64 * 4 + m as u64)));
        // Normal numbers: exponent 0, any fraction.
        let x87 = core::array::from_fn(|n| 0x3FF << 52 | word(64 + n as u64) >> 12);
        // Rounding as the round says; precision of the x87 registers is all of it.
        let rounding = round & 3;
        let (mxcsr, fcw) = (MXCSR | (rounding as u32) << 13, FCW | (rounding as u16) << 10);
        Self { ymm, x87, mxcsr, fcw }
    }

    /// Tells if the registers are those of a thread that has used none yet.
    pub fn is_fresh(&self) -> bool {
        self.ymm == [[0; 4]; 16] && (self.mxcsr, self.fcw) == (MXCSR, FCW)
    }

    /// The registers as they are, but those of x87, which may be empty.
    pub fn now() -> Self {
        let mut state = Self { ymm: [[0; 4]; 16], x87: [0; 8], mxcsr: 0, fcw: 0 };
        // SAFETY: stores into `state` as much as its layout has room for; only this code uses such registers.
        unsafe {
            asm!(
                ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
                "vmovdqu [{at} + 32 * \\n], ymm\\n",
                ".endr",
                "stmxcsr [{at} + 576]",
                "fnstcw [{at} + 580]",
                at = in(reg) &raw mut state,
                options(nostack)
            );
        }
        state
    }

    /// Loads the registers, counts down with nothing in between, and stores them again.
    pub fn hold(&self, count: u64) -> Self {
        let mut after = Self { ymm: [[0; 4]; 16], x87: [0; 8], mxcsr: 0, fcw: 0 };
        // SAFETY: loads from one state and stores into another as much as their layout has room for. Only this code
        // uses such registers, and the x87 stack is empty before and after.
        unsafe {
            asm!(
                "fninit",
                "fldcw [{from} + 580]",
                ".irp n, 7, 6, 5, 4, 3, 2, 1, 0",
                "fld qword ptr [{from} + 512 + 8 * \\n]",
                ".endr",
                "ldmxcsr [{from} + 576]",
                ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
                "vmovdqu ymm\\n, [{from} + 32 * \\n]",
                ".endr",
                "2:",
                "dec {count}",
                "jnz 2b",
                ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
                "vmovdqu [{to} + 32 * \\n], ymm\\n",
                ".endr",
                "stmxcsr [{to} + 576]",
                ".irp n, 0, 1, 2, 3, 4, 5, 6, 7",
                "fstp qword ptr [{to} + 512 + 8 * \\n]",
                ".endr",
                "fnstcw [{to} + 580]",
                from = in(reg) self,
                to = in(reg) &raw mut after,
                count = inout(reg) count.max(1) => _,
                options(nostack)
            );
        }
        after
    }
}

/// 1/3, which is not exact: with exceptions wrongly unmasked, it would end here.
pub fn third() -> u64 {
    let third: u64;
    // SAFETY: only registers that no other code uses.
    unsafe {
        asm!(
            "mov {t}, 1",
            "cvtsi2sd xmm0, {t}",
            "mov {t}, 3",
            "cvtsi2sd xmm1, {t}",
            "divsd xmm0, xmm1",
            "movq {t}, xmm0",
            t = out(reg) third,
            options(nostack, nomem)
        );
    }
    third
}

/// Words of x87's eight registers, of the 16 of SSE, and of their upper halves.
pub const SAVED: usize = 16 + 32 + 32;

/// XSAVE's image of them (APM volume 2, section 11.5.2).
pub fn saved() -> [u64; SAVED] {
    /// Legacy area, header, and AVX's component, at its place without compaction.
    #[repr(C, align(64))]
    struct Area {
        words: [u64; 104],
    }
    let mut area = Area { words: [0; 104] };
    // SAFETY: components 0 to 2 take 832 bytes, which the area has.
    unsafe {
        asm!("xsave64 [{}]", in(reg) &raw mut area, in("eax") 7, in("edx") 0, options(nostack));
    }
    core::array::from_fn(|n| area.words[if n < 48 { 4 + n } else { 72 + n - 48 }])
}
