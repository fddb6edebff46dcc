//! Fields of a VMCS in memory, as Bochs lays them out.
//!
//! The manual gives a VMCS no layout: VMREAD alone shows a field (SDM volume 3, 25.11.3). Bochs 2.7 and 3.0 each have
//! one of their own (`VMCS_Mapping` in their `cpu/vmcs.cc`). `vmx/layout` of `make test` compares this file with
//! VMREAD, field by field. Another processor has another layout, so a dump of one cannot be audited.
//!
//! ```text
//!  0     revision of the region
//!  8     1 from VMLAUNCH to VMCLEAR
//!  0x10  16 groups of fields, 4 bytes each, by bits of the encoding:
//!        group = width (14:13) * 4 + type (11:10), field = bits 9:0
//! ```
//!
//! The two differ in how many fields a group of each width has. So a field of 64 bits takes its own place and that of
//! its high half. Access rights are rotated left by 8 bits: Bochs keeps them as the second word of a descriptor has
//! them.

use crate::memory::Words;

const FIELDS: u64 = 0x10;
/// Fields of a group in Bochs 2.7, by width: 16 bits, 64, 32, natural.
const OLD: [u64; 4] = [64; 4];
/// Bochs 3.0's.
const NEW: [u64; 4] = [32, 80, 48, 48];
/// CR0 of the host, which is never 0 in a VMCS that a monitor has written.
const HOST_CR0: u16 = 0x6C00;
/// Access rights of the guest's segments: ES to TR.
const RIGHTS: std::ops::RangeInclusive<u16> = 0x4814..=0x4822;

/// A VMCS at a physical address.
#[derive(Clone, Copy)]
pub struct Vmcs<'a> {
    words: &'a Words<'a>,
    at: u64,
    groups: &'static [u64; 4],
}

fn offset(groups: &[u64; 4], field: u16) -> u64 {
    let (width, kind) = (usize::from(field >> 13 & 0b11), u64::from(field >> 10 & 0b11));
    let before = groups[..width].iter().sum::<u64>() * 4 + groups[width] * kind;
    FIELDS + (before + u64::from(field & 0x3FF)) * 4
}

impl<'a> Vmcs<'a> {
    /// The region at an address. Both versions have one revision, so the host's CR0 tells: in Bochs 3.0 no field lies
    /// where 2.7 has it.
    #[must_use]
    pub fn new(words: &'a Words<'a>, at: u64) -> Self {
        let old = words.word(at + offset(&OLD, HOST_CR0)).unwrap_or(0) != 0;
        Self { words, at, groups: if old { &OLD } else { &NEW } }
    }

    /// Physical address of a field.
    #[must_use]
    pub fn address(&self, field: u16) -> u64 {
        self.at + offset(self.groups, field)
    }

    /// Value of a field as VMREAD gives it; 0 where there is no memory.
    #[must_use]
    pub fn field(&self, field: u16) -> u64 {
        let word = self.words.word(self.address(field)).unwrap_or(0);
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
        // VPID, guest ES, I/O bitmap A, pin controls, CR0 mask, host RIP.
        let places =
            |groups| [0, 0x0800, 0x2000, 0x4000, 0x6000, 0x6C16].map(|f| offset(groups, f));
        assert_eq!(places(&OLD), [0x10, 0x210, 0x410, 0x810, 0xC10, 0xF68]);
        assert_eq!(places(&NEW), [0x10, 0x110, 0x210, 0x710, 0xA10, 0xCA8]);
        assert!(
            (0..=u16::MAX).all(|f| f & 0x3FF >= 48 || offset(&NEW, f) < offset(&OLD, HOST_CR0))
        );
        let at = 0x5000;
        for groups in [&OLD, &NEW] {
            let place = |field| at + offset(groups, field);
            let memory = Fake::new(&[
                (place(HOST_CR0), 0x8001_0033),
                (place(0), 0xFFFF_0001),
                (place(0x2000), 0x1_2345_6000),
                (place(0x4000), 0xFFFF_FFFF_0000_001E),
                (place(0x4816), 0xA0_9B00),
            ]);
            let words = Words::new(&memory);
            let vmcs = Vmcs::new(&words, at);
            let read = [0, 0x2000, 0x4000, 0x4816].map(|field| vmcs.field(field));
            assert_eq!(read, [1, 0x1_2345_6000, 0x1E, 0xA09B]);
        }
    }
}
