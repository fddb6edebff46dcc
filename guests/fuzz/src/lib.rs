//! What the guest that makes random exits and its test driver agree on. The driver writes into the guest's memory; the
//! guest executes what it finds there. So an input needs no boot, and the guest no idea of what is worth a try.
//!
//! The driver writes [`Op`]s and snippets of code, then [`WANTED`]. The cores take operations in turn, by [`TAKEN`].
//! The first core says in [`DONE`] that all are through. A restart clears the memory, and so whatever was under way.
#![cfg_attr(target_os = "none", no_std)]

/// Guest-physical address of the mail; a word each, as follows.
pub const MAIL: u64 = 0x32_0000;
/// By the guest: 1 + its incarnation, once it takes inputs.
pub const READY: u64 = MAIL;
/// By the driver: number of the input to be run, from 1; or, for a keeper, 1 + a command.
pub const WANTED: u64 = MAIL + 8;
/// By the guest: number of the last one that was run.
pub const DONE: u64 = MAIL + 16;
/// By the driver: operations in it, at most [`OPS_MOST`].
pub const OPS_COUNT: u64 = MAIL + 24;
/// By the driver: cores that take part.
pub const CORES: u64 = MAIL + 32;
/// Operations that cores have taken.
pub const TAKEN: u64 = MAIL + 40;

/// Where the driver leaves snippets; the guest copies them to [`CODE`], so that the emulator sees them change.
pub const STAGE: u64 = 0x32_1000;
/// Where they are executed.
pub const CODE: u64 = 0x3B_0000;
/// Bytes of a snippet, with the instruction that ends it.
pub const SNIPPET: u64 = 32;
/// Snippets at most.
pub const SNIPPETS_MOST: u64 = 256;
/// Where operations lie.
pub const OPS: u64 = 0x33_0000;
/// Operations at most.
pub const OPS_MOST: u64 = 4096;

/// In [`Op::how`]: execute at CPL 3, with an IOPL that lets it use ports. The snippet ends with [`BACK`].
pub const USER: u64 = 1 << 32;
/// In [`Op::how`]: let interrupts in afterwards.
pub const OPEN: u64 = 1 << 33;
/// What ends a snippet at CPL 0: RET.
pub const RETURN: &[u8] = &[0xC3];
/// What ends one at CPL 3: INT 81h, by which the SDK comes back.
pub const BACK: &[u8] = &[0xCD, 0x81];

/// One operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Op {
    /// Number of its snippet in bits 31:0, and flags.
    pub how: u64,
    /// RAX, RCX, RDX, RBX, RSI, RDI, RBP, R8 to R14, as the snippet finds them.
    pub registers: [u64; 14],
    /// For the guest: where the snippet lies.
    pub target: u64,
}

const _: () = assert!(size_of::<Op>() == 128);
const _: () = assert!(STAGE + SNIPPET * SNIPPETS_MOST <= OPS && OPS + 128 * OPS_MOST <= CODE);

/// A keeper's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Command {
    /// Exit with code 0.
    Exit = 0,
    /// Start sandbox `n`, in bits 63:8.
    Start = 1,
    /// Restart it.
    Restart = 2,
}
