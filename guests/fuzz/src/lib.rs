//! The interface between the guest that makes random exits and its test driver, and the making of its operations. The
//! guest makes and executes them by itself, at the machine's full speed; the driver watches, and takes no part in a
//! single one.
//!
//! The guest's own RAM is cleared by a restart. Data that has to outlive that lies in its *book*, a channel that it
//! alone writes. Its next operation depends on the seed and on the book.
#![cfg_attr(target_os = "none", no_std)]

pub mod code;
pub mod make;
pub mod random;

use core::fmt;

/// Guest-physical address of the mail; a word each, as follows.
pub const MAIL: u64 = 0x32_0000;
/// By the guest: 1 + its incarnation, once it waits for its audit. By a keeper: 1.
pub const READY: u64 = MAIL;
/// By the driver: the [`READY`] that it has audited. For a keeper: 1 ends the run.
pub const TOLD: u64 = MAIL + 8;
/// By a keeper: 1 + the index of a sandbox that did not come back.
pub const LOST: u64 = MAIL + 16;
/// By the counting plugin: instructions of the own monitor that ran for the first time.
pub const NEWS: u64 = MAIL + 64;

/// Where snippets are executed.
pub const CODE: u64 = 0x3B_0000;
/// Bytes of a snippet, with its end.
pub const SNIPPET: u64 = 32;
/// Snippets for CPL 0; as many for CPL 3 lie behind them.
pub const SNIPPETS: u64 = 128;
/// Own memory that operations may write.
pub const SCRATCH: u64 = 0x3C_0000;

/// Bits 63:32 of RCX that are tried with RDMSR and WRMSR.
pub const HIGH: [u64; 7] = [0, 1, 2, 3, 4, 8, 1 << 31];

/// Name of the channel with a sandbox's book, before the sandbox' name.
pub const BOOK: &str = "book-";
/// Bytes of a book.
pub const BOOK_SIZE: u64 = 128 << 10;
/// Cores that make exits.
pub const CORES: usize = 8;
/// Operations that are kept for each core: its last ones.
pub const TRAIL: usize = 16;
/// Operations of an input worth keeping: the one with the find, and those before it.
pub const INPUT: usize = 4;
/// Inputs worth keeping.
pub const CORPUS: usize = 192;

/// Offsets in a book.
pub mod book {
    use super::{BOOK_SIZE, CORES, CORPUS, INPUT, Op, TRAIL};

    /// Rounds of the first core in this life, and the life in bits 63:32: it moves as long as the guest is alive.
    pub const BEAT: u64 = 0;
    /// Inputs kept so far.
    pub const KEPT: u64 = 8;
    /// Lives that were ended by an operation made for that.
    pub const ENDED: u64 = 16;
    /// By core: operations so far, in all lives.
    pub const DONE: u64 = 64;
    /// By core: its last operations, by their number.
    pub const TRAILS: u64 = 4096;
    /// Inputs.
    pub const INPUTS: u64 = 8 * 4096;

    const OP: u64 = size_of::<Op>() as u64;
    const _: () = assert!(TRAILS + (CORES * TRAIL) as u64 * OP <= INPUTS);
    const _: () = assert!(INPUTS + (CORPUS * INPUT) as u64 * OP <= BOOK_SIZE);

    /// Offset of a core's operation in its trail.
    #[must_use]
    pub const fn trail(core: usize, n: u64) -> u64 {
        TRAILS + ((core % CORES * TRAIL) as u64 + n % TRAIL as u64) * OP
    }

    /// Offset of an operation of an input.
    #[must_use]
    pub const fn input(n: usize, step: usize) -> u64 {
        INPUTS + ((n % CORPUS * INPUT) + step % INPUT) as u64 * OP
    }
}

/// In [`Op::how`]: execute at CPL 3, with an IOPL that lets it use ports.
pub const USER: u64 = 1 << 32;
/// In [`Op::how`]: let interrupts in afterwards.
pub const OPEN: u64 = 1 << 33;

/// Numbers of registers in [`Op::registers`].
pub const RAX: usize = 0;
/// RCX.
pub const RCX: usize = 1;
/// RDX.
pub const RDX: usize = 2;
/// RBX.
pub const RBX: usize = 3;
/// RSI.
pub const RSI: usize = 4;
/// RDI.
pub const RDI: usize = 5;
/// R8.
pub const R8: usize = 7;

/// One operation: a snippet of [`code`], and the registers that it finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Op {
    /// Number of its snippet in bits 31:0, and flags.
    pub how: u64,
    /// RAX, RCX, RDX, RBX, RSI, RDI, RBP, R8 to R14.
    pub registers: [u64; 14],
    /// Where the snippet lies.
    pub target: u64,
}

const _: () = assert!(size_of::<Op>() == 128);

impl Op {
    /// Number of its snippet.
    #[must_use]
    pub const fn snippet(&self) -> usize {
        self.how as u32 as usize % code::TABLE.len()
    }

    /// From the words of a book, which may hold anything.
    #[must_use]
    pub fn from_words(words: [u64; 16]) -> Self {
        let mut registers = [0; 14];
        registers.copy_from_slice(&words[1..15]);
        Self { how: words[0], registers, target: words[15] }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in code::TABLE[self.snippet()] {
            write!(f, "{byte:02x}")?;
        }
        let [rax, rcx, rdx, rbx, rsi, rdi, _, r8, ..] = self.registers;
        write!(
            f,
            " rax={rax:#x} rcx={rcx:#x} rdx={rdx:#x} rbx={rbx:#x} rsi={rsi:#x} rdi={rdi:#x} r8={r8:#x}"
        )?;
        let flag = |bit: u64, name| if self.how & bit != 0 { name } else { "" };
        write!(f, "{}{}", flag(USER, " at CPL 3"), flag(OPEN, " then STI"))
    }
}
