//! Decodes a guest's trapped memory access. The instruction is fetched through the guest's own page tables and decoded,
//! if it is a MOV.
//!
//! The guest may change its page tables and its code meanwhile. So each entry and each instruction byte is read once,
//! and that copy is used. Nothing here says *where* the access goes. The authority for that is the exit (EXITINFO2),
//! and for the direction EXITINFO1. A guest may show another instruction than the one that trapped. It then gets
//! another MOV's effect on its own registers, at the address that trapped.
//!
//! Nothing here can panic, and the number of reads is bounded ([`MAX_READS`]).
//! References are to the AMD64 Architecture Programmer's Manual, volumes 2 and 3
//! (APM2, APM3).
#![no_std]

mod decode;
mod fetch;

pub use decode::decode;
pub use fetch::{MAX_READS, Memory, State, fetch, walk};

/// Longest instruction.
const MAX_LEN: u8 = 15;

/// The mode that decides the length of addresses, operands and instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// 16-bit code.
    Bits16,
    /// 32-bit code, also in compatibility mode.
    Bits32,
    /// 64-bit code.
    Bits64,
}

/// Up to 15 bytes of an instruction, possibly with something behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    bits: u128,
    len: u8,
}

impl Bytes {
    /// Returns the first 15 of these.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut all = Self::default();
        bytes.iter().take(MAX_LEN.into()).for_each(|byte| all.push((*byte).into(), 1));
        all
    }

    /// Reads the bytes that a processor with decode assists left in the VMCB, as the words at offsets 0xD0 and 0xD8
    /// (APM2 15.8.4). Empty where it has none, or could not fetch.
    #[must_use]
    pub fn assisted(words: [u64; 2]) -> Self {
        let [low, high] = words;
        let bits = (u128::from(high) << 64 | u128::from(low)) >> 8;
        Self { bits, len: low as u8 & 0xF }
    }

    /// Returns how many there are, 0 to 15.
    #[must_use]
    pub fn len(&self) -> u8 {
        self.len
    }

    /// Tells if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts the lowest `len` bytes (at most 8) of a word behind, as far as they fit.
    fn push(&mut self, word: u64, len: u8) {
        let len = len.min(MAX_LEN.saturating_sub(self.len));
        let bits = u128::from(low(word, len));
        self.bits |= bits.wrapping_shl(8 * u32::from(self.len));
        self.len = self.len.saturating_add(len);
    }

    /// Takes the first `len` bytes (at most 8) as a little-endian integer.
    fn take(&mut self, len: u8) -> Option<u64> {
        self.len = self.len.checked_sub(len)?;
        let value = low(self.bits as u64, len);
        self.bits = self.bits.wrapping_shr(8 * u32::from(len));
        Some(value)
    }
}

/// Returns the lowest `len` bytes of a value, at most 8.
fn low(value: u64, len: u8) -> u64 {
    let unused = 64u32.saturating_sub(8 * u32::from(len));
    value & u64::MAX.checked_shr(unused).unwrap_or(0)
}

/// Returns the lowest `len` bytes of a value, 1 to 8, with the sign in all others.
fn sign_extended(value: u64, len: u8) -> u64 {
    let unused = 64u32.saturating_sub(8 * u32::from(len)) & 63;
    ((value << unused) as i64 >> unused) as u64
}

/// A general-purpose register, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// 0 to 15, as encodings count: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to R15.
    pub number: u8,
    /// Bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Bits 15:8 instead of 7:0: AH, CH, DH, BH.
    pub high: bool,
}

/// The direction, and both operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// From memory to a register that is as wide or wider.
    Read {
        /// Where to.
        to: Register,
        /// Extended with the sign instead of zeros.
        signed: bool,
    },
    /// From a register.
    Write(Register),
    /// An immediate value, extended or cut to the access's size.
    WriteImmediate(u64),
}

/// A MOV's effect on memory, without the address. Its performer compares the direction with the trap's (EXITINFO1 bit
/// 1, APM2 15.25.6). It refuses an address that is no multiple of `size`: the rest of the access could be on another
/// page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The direction, and both operands.
    pub operation: Operation,
    /// Bytes at memory: 1, 2, 4 or 8.
    pub size: u8,
    /// Bytes of the instruction: 2 to 15.
    pub length: u8,
}

/// The guest's general-purpose registers.
pub trait Registers {
    /// Returns all 64 bits of a register, by its number (see [`Register`]).
    fn get(&self, number: u8) -> u64;
    /// Replaces them.
    fn set(&mut self, number: u8, value: u64);
}

impl Access {
    /// Returns the value that memory gets, in the lowest `size` bytes; `None` if it is a read.
    #[must_use]
    pub fn written(&self, registers: &impl Registers) -> Option<u64> {
        match self.operation {
            Operation::Read { .. } => None,
            Operation::Write(from) => {
                let shift = if from.high { 8 } else { 0 };
                Some(low(registers.get(from.number) >> shift, from.size))
            }
            Operation::WriteImmediate(value) => Some(value),
        }
    }

    /// Gives the register the memory's value, in the lowest `size` bytes of `value`. A 32-bit register takes the upper
    /// half of its 64 bits with it, a smaller one leaves the rest (APM3 B.1). Does nothing if it is a write.
    pub fn complete(&self, registers: &mut impl Registers, value: u64) {
        let Operation::Read { to, signed } = self.operation else { return };
        let value = if signed { sign_extended(value, self.size) } else { low(value, self.size) };
        let merged = match (to.size, to.high) {
            (8, _) => value,
            (4, _) => low(value, 4),
            (_, true) => registers.get(to.number) & !0xFF00 | low(value, 1) << 8,
            (size, false) => {
                let mask = low(u64::MAX, size);
                registers.get(to.number) & !mask | value & mask
            }
        };
        registers.set(to.number, merged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct File([u64; 16]);

    impl Registers for File {
        fn get(&self, number: u8) -> u64 {
            self.0[usize::from(number)]
        }

        fn set(&mut self, number: u8, value: u64) {
            self.0[usize::from(number)] = value;
        }
    }

    const OLD: u64 = 0x1122_3344_5566_7788;
    /// A value with a sign bit at each width, and what memory did not have above it.
    const VALUE: u64 = 0xF1E2_D3C4_B5A6_97F8;

    fn read(to: Register, signed: bool, size: u8) -> u64 {
        let access = Access { operation: Operation::Read { to, signed }, size, length: 2 };
        let mut file = File([0; 16]);
        file.0[3] = OLD;
        assert_eq!(access.written(&file), None);
        access.complete(&mut file, VALUE);
        assert_eq!(file.0.iter().filter(|r| **r != 0).count(), 1);
        file.0[3]
    }

    #[test]
    fn reads_keep_what_the_processor_keeps() {
        let part = |size| Register { number: 3, size, high: false };
        assert_eq!(read(part(1), false, 1), 0x1122_3344_5566_77F8);
        assert_eq!(read(Register { high: true, ..part(1) }, false, 1), 0x1122_3344_5566_F888);
        assert_eq!(read(part(2), false, 2), 0x1122_3344_5566_97F8);
        assert_eq!(read(part(4), false, 4), 0xB5A6_97F8);
        assert_eq!(read(part(8), false, 8), VALUE);
        assert_eq!(read(part(2), true, 1), 0x1122_3344_5566_FFF8);
        assert_eq!(read(part(2), false, 1), 0x1122_3344_5566_00F8);
        assert_eq!(read(part(4), true, 2), 0xFFFF_97F8);
        assert_eq!(read(part(4), false, 1), 0xF8);
        assert_eq!(read(part(8), true, 1), 0xFFFF_FFFF_FFFF_FFF8);
        assert_eq!(read(part(8), false, 2), 0x97F8);
    }

    #[test]
    fn writes_take_the_part_that_is_named() {
        let mut file = File([0; 16]);
        file.0[3] = OLD;
        let mut write = |operation, size| {
            let access = Access { operation, size, length: 2 };
            access.complete(&mut file, VALUE);
            assert_eq!(file.0[3], OLD);
            access.written(&file)
        };
        let part = |size| Register { number: 3, size, high: false };
        assert_eq!(write(Operation::Write(part(1)), 1), Some(0x88));
        assert_eq!(write(Operation::Write(Register { high: true, ..part(1) }), 1), Some(0x77));
        assert_eq!(write(Operation::Write(part(2)), 2), Some(0x7788));
        assert_eq!(write(Operation::Write(part(4)), 4), Some(0x5566_7788));
        assert_eq!(write(Operation::Write(part(8)), 8), Some(OLD));
        assert_eq!(write(Operation::WriteImmediate(5), 2), Some(5));
    }

    #[test]
    fn decode_assists_are_a_count_and_bytes() {
        // mov eax, [rdi], and what stands behind it.
        let words = [0x7766_5544_3307_8B0F, 0xFFEE_DDCC_BBAA_9988];
        let bytes = [
            0x8B, 0x07, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE,
            0xFF,
        ];
        let mut taken = Bytes::assisted(words);
        assert_eq!((taken, taken.len()), (Bytes::new(&bytes), 15));
        for byte in bytes {
            assert_eq!(taken.take(1), Some(byte.into()));
        }
        assert_eq!(taken.take(1), None);
        assert!(Bytes::assisted([words[0] & !0xFF, words[1]]).is_empty());
        // Bits 7:4 of the count are reserved.
        let two = decode(Bytes::assisted([words[0] & !0xFF | 0x12, words[1]]), Mode::Bits64);
        assert_eq!(Bytes::assisted([words[0] & !0xFF | 0x12, words[1]]).len(), 2);
        assert_eq!(two.map(|a| (a.size, a.length)), Some((4, 2)));
        assert_eq!(decode(Bytes::assisted([words[0] & !0xFF | 1, words[1]]), Mode::Bits64), None);
    }
}
