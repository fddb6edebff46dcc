//! ACPI's table of VT-d's units (DMAR), as a firmware could write it: lengths of blocks and of scopes are its claims.
//! All that stands before the first wrong length is found as it was written.

use crate::{Input, Seen};
use bulkhead_pci_fake::Words;
use bulkhead_plan::Bdf;
use bulkhead_probe::{Dmar, Iommu, dmar};

/// Bytes before the first block; the flags are the byte at 37 (VT-d 4.1, 8.1).
const HEADER: usize = 48;
const FLAGS: usize = 37;
/// Kinds of blocks.
const UNIT: u16 = 0;
const MEMORY: u16 = 1;
/// Bytes of a scope that names a function without bridges.
const DIRECT: u8 = 8;

/// Writes a table, and reads it.
pub fn run(bytes: &[u8]) -> Result<Seen, String> {
    let mut input = Input::new(bytes);
    let cut = match input.below(8) {
        7 => input.below(256),
        _ => usize::MAX,
    };
    let mut written = Written { cut, ..Written::default() };
    written.table.resize(HEADER, 0);
    written.table[FLAGS] = input.byte();
    written.right = HEADER <= cut;
    while !input.is_empty() {
        written.block(&mut input);
    }
    written.judge()
}

/// A table, and what stands before its first wrong length.
#[derive(Default)]
struct Written {
    table: Vec<u8>,
    /// Bytes of it that are there.
    cut: usize,
    /// No length was wrong so far.
    right: bool,
    /// Units that all functions are behind which no other unit names.
    all: Vec<Iommu>,
    /// Other units.
    some: Vec<Iommu>,
    reserved: Vec<(u64, u64, Vec<Bdf>)>,
    seen: Seen,
}

impl Written {
    fn block(&mut self, input: &mut Input) {
        let start = self.table.len();
        let (kind, flags) = (input.pick(&[UNIT, UNIT, MEMORY, 2]), input.byte());
        let segment = input.pick(&[0u16, 0, 0, 1]);
        self.table.extend(kind.to_le_bytes());
        self.table.extend([0, 0, flags, 0]);
        self.table.extend(segment.to_le_bytes());
        let first = input.next();
        let last = match input.below(8) {
            7 => input.next(),
            6 => u64::MAX,
            _ => first.wrapping_add(input.below(0x1_0000) as u64),
        };
        self.table.extend(first.to_le_bytes());
        if kind != UNIT {
            self.table.extend(last.to_le_bytes());
        }
        let named = self.scopes(input, if kind == UNIT { &[3] } else { &[1, 2] });
        let len = (self.table.len() - start) as u16;
        let claimed = match input.below(8) {
            7 => input.below(128) as u16,
            _ => len,
        };
        self.table[start + 2..start + 4].copy_from_slice(&claimed.to_le_bytes());
        self.right &= claimed == len && self.table.len() <= self.cut;
        let through = self.right && segment == 0 && kind <= MEMORY;
        let through = through && (kind == UNIT || first <= last && last < u64::MAX);
        self.seen.add(through);
        if through && kind == UNIT {
            let to = if flags & 1 != 0 { &mut self.all } else { &mut self.some };
            to.push(Iommu { base: first, ioapic: named.first().copied() });
        } else if through {
            self.reserved.push((first, last + 1, named));
        }
    }

    /// Writes up to three scopes. Returns the functions of these kinds that stand before one with a wrong length.
    fn scopes(&mut self, input: &mut Input, kinds: &[u8]) -> Vec<Bdf> {
        let (mut named, mut right) = (Vec::new(), true);
        for _ in 0..input.below(4) {
            let kind = input.pick(&[1, 2, 3, 4]);
            let [bus, device, function] = [(); 3].map(|()| input.byte());
            let len = input.pick(&[DIRECT, DIRECT, DIRECT, DIRECT, 10, 0, 200]);
            self.table.extend([kind, len, 0, 0, 0, bus, device, function]);
            self.table.extend((DIRECT..len.min(10)).map(|_| 0));
            right &= len == DIRECT || len == 10;
            if right && len == DIRECT && kinds.contains(&kind) && device < 32 && function < 8 {
                named.push(Bdf(u16::from_be_bytes([bus, device << 3 | function])));
            }
        }
        named
    }

    fn judge(mut self) -> Result<Seen, String> {
        let right = self.right;
        let interrupts = self.cut > FLAGS && self.table[FLAGS] & 1 != 0;
        self.table.truncate(self.cut);
        let found = dmar(&self.table);
        let units = [self.all, self.some].concat();
        let certain = Dmar { units, interrupts, reserved: self.reserved };
        // Behind a wrong length anything may be taken for a block.
        let mut rest = found.units.iter();
        let kept = certain.units.iter().all(|unit| rest.any(|other| other == unit))
            && found.reserved.starts_with(&certain.reserved)
            && found.interrupts == certain.interrupts
            && found.reserved.iter().all(|(first, end, _)| first < end);
        if kept && (found == certain || !right) {
            return Ok(self.seen);
        }
        Err(format!("{found:x?} was found, and written was {certain:x?}, then wrong: {}", !right))
    }
}
