//! The way from RIP to instruction bytes: segment, page tables, memory.

use crate::{Bytes, MAX_LEN, Mode};

const CR0_PG: u64 = 1 << 31;
const CR4_PSE: u64 = 1 << 4;
const CR4_PAE: u64 = 1 << 5;
const CR4_LA57: u64 = 1 << 12;
const EFER_LMA: u64 = 1 << 10;
const EFER_NXE: u64 = 1 << 11;
/// Attributes of a code segment in the VMCB's word.
const CS_L: u64 = 1 << 25;
const CS_D: u64 = 1 << 26;

const PRESENT: u64 = 1;
const PAGE_SIZE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
/// Bits 51:12 of an entry.
const ADDRESS: u64 = 0x000F_FFFF_FFFF_F000;
/// The page attribute bit of a large page's entry, below its address.
const LARGE_PAT: u64 = 1 << 12;

/// Most reads that a [`fetch`] makes: two pages in five levels, and three words.
pub const MAX_READS: u32 = 2 * 5 + 3;

/// Memory that the guest may change at any time.
pub trait Memory {
    /// Returns the 8 bytes at a guest-physical address, a multiple of 8 below 2^52, loaded
    /// once; `None` for all that is not the sandbox's RAM.
    fn word(&self, at: u64) -> Option<u64>;
}

/// The part of a core's state that decides where its instructions are, as the VMCB has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// CR0.
    pub cr0: u64,
    /// CR3.
    pub cr3: u64,
    /// CR4.
    pub cr4: u64,
    /// EFER.
    pub efer: u64,
    /// Selector, attributes and limit of CS: the word at offset 0x410 (APM2 appendix B). Only the attributes L and D
    /// count.
    pub cs: u64,
    /// Base of CS.
    pub cs_base: u64,
    /// RIP.
    pub rip: u64,
}

impl State {
    /// Returns the code's mode (APM2 4.8.1).
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self {
            s if s.efer & EFER_LMA != 0 && s.cs & CS_L != 0 => Mode::Bits64,
            s if s.cs & CS_D != 0 => Mode::Bits32,
            _ => Mode::Bits16,
        }
    }

    /// RIP after an instruction of this length in bytes.
    #[must_use]
    pub fn next_rip(&self, length: u8) -> u64 {
        self.within(self.rip.wrapping_add(length.into()))
    }

    /// Cuts an address to its mode: 64-bit code has all of it, other code 32 bits.
    fn within(&self, address: u64) -> u64 {
        if self.mode() == Mode::Bits64 { address } else { address & 0xFFFF_FFFF }
    }
}

/// Up to 15 bytes at CS:RIP, fewer where memory or a page ends. The segment's limit and the pages' rights are not
/// looked at: the processor has already executed the instruction there. Makes at most [`MAX_READS`] reads.
#[must_use]
pub fn fetch(memory: &impl Memory, state: &State) -> Bytes {
    let mut bytes = Bytes::default();
    // A base counts for nothing in 64-bit code (APM2 4.5.3).
    let base = if state.mode() == Mode::Bits64 { 0 } else { state.cs_base };
    let mut linear = state.within(base.wrapping_add(state.rip));
    let mut page = None;
    while bytes.len() < MAX_LEN {
        if bytes.is_empty() || linear & 0xFFF == 0 {
            page = walk(memory, state, linear & !0xFFF);
        }
        let skipped = (linear & 7) as u8;
        let word = page.and_then(|page| memory.word(page | linear & 0xFF8));
        let Some(word) = word else { break };
        let len = 8u8.saturating_sub(skipped);
        bytes.push(word >> (8 * skipped), len);
        linear = state.within(linear.wrapping_add(len.into()));
    }
    bytes
}

/// Walks from a linear to a guest-physical address, through the guest's page tables (APM2 5.2, 5.3). There are none,
/// 32-bit ones, PAE, 4 or 5 levels, with large pages. `None` if an entry is not present, has a reserved bit set, or is
/// not in the sandbox's RAM. Also `None` if the address is not canonical. Reads one word a level.
#[must_use]
pub fn walk(memory: &impl Memory, state: &State, linear: u64) -> Option<u64> {
    let State { cr0, cr3, cr4, efer, .. } = *state;
    let (long, pae) = (efer & EFER_LMA != 0, cr4 & CR4_PAE != 0);
    let linear = if long { linear } else { linear & 0xFFFF_FFFF };
    if cr0 & CR0_PG == 0 {
        return (!long).then_some(linear);
    }
    // Bits of an address that pick an entry of a table; levels; the first table.
    let (bits, levels, root) = match (long, pae) {
        (true, _) => (9, if cr4 & CR4_LA57 == 0 { 4 } else { 5 }, cr3 & ADDRESS),
        (false, true) => (9, 3, cr3 & 0xFFFF_FFE0),
        (false, false) => (10, 2, cr3 & 0xFFFF_F000),
    };
    let legacy = bits == 10;
    let unused = 64 - (12 + bits * levels);
    if long && ((linear << unused) as i64 >> unused) as u64 != linear {
        return None;
    }
    let unless = |usable: bool, bits: u64| if usable { 0 } else { bits };
    let always = unless(efer & EFER_NXE != 0, NO_EXECUTE) | unless(long, 0x7FF << 52);
    let mut table = root;
    for level in (0..levels).rev() {
        let shift = 12 + bits * level;
        let index = linear >> shift & ((1 << bits) - 1);
        let at = table + if legacy { 4 * index } else { 8 * index };
        let word = memory.word(at & !7)?;
        let entry = if legacy { word >> (at % 8 * 8) & 0xFFFF_FFFF } else { word };
        // The four entries at the top of PAE are of another kind.
        let reserved = always | unless(long || level != 2, NO_EXECUTE | 0x1E6);
        if entry & PRESENT == 0 || entry & reserved != 0 {
            return None;
        }
        if level == 0 || entry & PAGE_SIZE != 0 && (!legacy || cr4 & CR4_PSE != 0) {
            let within = (1 << shift) - 1;
            let (page, reserved) = match level {
                0 => (entry & ADDRESS, 0),
                // Bits 20:13 are bits 39:32 of the address.
                1 if legacy => (entry & 0xFFC0_0000 | (entry >> 13 & 0xFF) << 32, 1 << 21),
                1 | 2 => (entry & ADDRESS & !within, ADDRESS & within & !LARGE_PAT),
                _ => return None,
            };
            return (entry & reserved == 0).then_some(page | linear & within);
        }
        table = entry & ADDRESS;
    }
    None
}
