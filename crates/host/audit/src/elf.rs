//! Loadable segments of a 64-bit ELF file (System V ABI, chapter 5).

use crate::claim::Segment;
use crate::memory::little;

/// The segments that take memory. `None`: no such file, or a damaged one.
#[must_use]
pub fn segments(file: &[u8]) -> Option<Vec<Segment>> {
    let int = |at: u64, len: usize| {
        let at = usize::try_from(at).ok()?;
        Some(little(file.get(at..at.checked_add(len)?)?))
    };
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (int(32, 8)?, int(54, 2)?, int(56, 2)?);
    let mut out = Vec::new();
    for n in 0..count {
        let h = table.checked_add(n * size)?;
        let (kind, flags, offset) = (int(h, 4)?, int(h + 4, 4)?, int(h + 8, 8)?);
        let (address, stored, len) = (int(h + 16, 8)?, int(h + 32, 8)?, int(h + 40, 8)?);
        if kind == 1 && len > 0 {
            let from = usize::try_from(offset).ok()?;
            let to = from.checked_add(usize::try_from(stored).ok()?)?;
            let bytes = file.get(from..to)?.to_vec();
            out.push(Segment {
                address,
                len,
                write: flags & 2 != 0,
                execute: flags & 1 != 0,
                bytes,
            });
        }
    }
    Some(out)
}
