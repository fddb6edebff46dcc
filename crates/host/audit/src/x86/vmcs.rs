//! Fields of a VMCS in memory, as Bochs lays them out.
//!
//! The manual gives a VMCS no layout: VMREAD alone shows a field (SDM volume 3, 25.11.3). Bochs 2.7 and 3.0 have one of
//! their own (`VMCS_Mapping` in their `cpu/vmcs.cc`). `vmx/layout` of `make test` compares this file with VMREAD, field
//! by field. Another processor has another layout, so a dump of one cannot be audited.
//!
//! ```text
//!  0     revision of the region
//!  8     1 from VMLAUNCH to VMCLEAR
//!  0x10  16 groups of 64 fields, 4 bytes each, by bits of the encoding:
//!        group = width (14:13) * 4 + type (11:10), field = bits 9:0
//! ```
//!
//! So a field of 64 bits takes its own place and that of its high half. Access rights are rotated left by 8 bits: Bochs
//! keeps them as the second word of a descriptor has them.

use crate::memory::Words;

const FIELDS: u64 = 0x10;
/// Access rights of the guest's segments: ES to TR.
const RIGHTS: std::ops::RangeInclusive<u16> = 0x4814..=0x4822;

/// A VMCS at a physical address.
#[derive(Clone, Copy)]
pub struct Vmcs<'a> {
    words: &'a Words<'a>,
    at: u64,
}

impl<'a> Vmcs<'a> {
    /// The region at an address.
    #[must_use]
    pub fn new(words: &'a Words<'a>, at: u64) -> Self {
        Self { words, at }
    }

    /// Offset of a field in the region.
    #[must_use]
    pub fn offset(field: u16) -> u64 {
        let group = u64::from(field >> 13 & 0b11) << 2 | u64::from(field >> 10 & 0b11);
        FIELDS + (group * 64 + u64::from(field & 0x3FF)) * 4
    }

    /// Value of a field as VMREAD gives it; 0 where there is no memory.
    #[must_use]
    pub fn field(&self, field: u16) -> u64 {
        let word = self.words.word(self.at + Self::offset(field)).unwrap_or(0);
        match field >> 13 & 0b11 {
            0 => word & 0xFFFF,
            2 if RIGHTS.contains(&field) => u64::from((word as u32).rotate_right(8)),
            2 => word & 0xFFFF_FFFF,
            _ => word,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn fields_have_places_and_widths_of_their_own() {
        assert_eq!(Vmcs::offset(0), 0x10);
        // VPID, guest ES, I/O bitmap A, pin controls, CR0 mask, host RIP.
        let all = [0x0800, 0x2000, 0x4000, 0x6000, 0x6C16].map(Vmcs::offset);
        assert_eq!(all, [0x210, 0x410, 0x810, 0xC10, 0xF68]);
        let at = 0x5000;
        let memory = Fake::new(&[
            (at + 0x10, 0xFFFF_0001),
            (at + 0x410, 0x1_2345_6000),
            (at + 0x810, 0xFFFF_FFFF_0000_001E),
            (at + Vmcs::offset(0x4816), 0xA0_9B00),
        ]);
        let words = Words::new(&memory);
        let vmcs = Vmcs::new(&words, at);
        let read = [0, 0x2000, 0x4000, 0x4816].map(|field| vmcs.field(field));
        assert_eq!(read, [1, 0x1_2345_6000, 0x1E, 0xA09B]);
    }
}
