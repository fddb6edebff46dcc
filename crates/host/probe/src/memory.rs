//! Memory: what the firmware leaves free, and everything that is not RAM.
//!
//! A firmware's map differs a little from boot to boot, and a PC's with BIOS and
//! with UEFI differ more. A description has to fit them all, so it leaves out the ranges that either needs, on any
//! firmware. These are the lowest page, all from 0x9f000 to 1 MiB, and 8 to 16 MiB (UEFI's NVS). Up to 64 MiB at the
//! end of the RAM below 4 GiB, and 4 MiB of flash, are left out, too.

use bulkhead_manifest::raw_machine::{MemorySize, RamRange, Reserved};
use bulkhead_manifest::size;
use bulkhead_plan::Span;

const PAGE: u64 = 0x1000;
const MIB: u64 = 1 << 20;
const LOW_END: u64 = 0x9_F000;
const NVS: Span = Span { start: 8 * MIB, len: 8 * MIB };
const TOP: u64 = 64 * MIB;
const FOUR_GIB: u64 = 1 << 32;
const FLASH: Span = Span { start: FOUR_GIB - 4 * MIB, len: 4 * MIB };
/// The local APICs' page, and what interrupt messages are written to.
const LOCAL_APIC: Span = Span { start: 0xFEE0_0000, len: MIB };
/// Addresses that AMD's interconnect keeps (AMD I/O Virtualization 3.08, 2.1.2).
const HYPERTRANSPORT: Span = Span { start: 0xFD_0000_0000, len: 0x3_0000_0000 };

/// Returns a span without others, in pieces.
fn without(span: Span, others: &[Span]) -> Vec<Span> {
    let mut pieces = vec![span];
    for other in others {
        pieces = pieces
            .into_iter()
            .flat_map(|piece| {
                // Where `other` begins and ends in this piece, if it is in it at all.
                let low = other.start.clamp(piece.start, piece.end());
                let high = other.end().clamp(low, piece.end());
                let left = Span { start: piece.start, len: low - piece.start };
                let right = Span { start: high, len: piece.end() - high };
                match piece.overlaps(*other) {
                    true => [left, right],
                    false => [piece, Span { start: 0, len: 0 }],
                }
            })
            .filter(|piece| piece.len > 0)
            .collect();
    }
    pieces
}

/// End of the RAM that begins at `start`: the last free range below `limit`, and
/// what the firmware lists next to it without a gap.
fn end_of_ram(free: &[Span], rest: &[Span], start: u64, limit: u64) -> u64 {
    let inside = |span: &&Span| span.start >= start && span.start < limit;
    let mut end = free.iter().filter(inside).map(|span| span.end()).max().unwrap_or(start);
    for span in rest.iter().filter(inside) {
        if span.start == end {
            end = span.end();
        }
    }
    end.min(limit)
}

/// Memory in a description.
pub struct Memory {
    /// All RAM.
    pub size: MemorySize,
    /// Free RAM.
    pub ram: Vec<RamRange>,
    /// The rest.
    pub reserved: Vec<Reserved>,
}

/// Makes it of the firmware's map and of devices' registers.
pub fn describe(free: &[Span], rest: &[Span], devices: Vec<(String, Span)>) -> Memory {
    let low = end_of_ram(free, rest, 0, FOUR_GIB);
    let high = end_of_ram(free, rest, FOUR_GIB, u64::MAX);
    // A whole 64 MiB if the RAM ends at a multiple of it.
    let top = (low - 1) / TOP * TOP;
    let mut all: Vec<(String, Span)> = vec![
        ("interrupt vectors".into(), Span { start: 0, len: PAGE }),
        ("firmware (low)".into(), Span { start: LOW_END, len: MIB - LOW_END }),
        ("firmware (UEFI's NVS)".into(), NVS),
        ("firmware (top)".into(), Span { start: top, len: low - top }),
        ("local APIC".into(), LOCAL_APIC),
        ("firmware (flash)".into(), FLASH),
        ("HyperTransport".into(), HYPERTRANSPORT),
    ];
    all.extend(devices);
    let known: Vec<Span> = all.iter().map(|(_, span)| *span).collect();
    for span in rest.iter().filter(|span| span.len > 0) {
        let start = span.start / PAGE * PAGE;
        let whole = Span { start, len: span.end().next_multiple_of(PAGE) - start };
        for piece in without(whole, &known) {
            all.push(("reserved by the firmware".into(), piece));
        }
    }
    all.sort_by_key(|(_, span)| span.start);
    let taken: Vec<Span> = all.iter().map(|(_, span)| *span).collect();
    let whole = |span: &Span| {
        let start = span.start.next_multiple_of(PAGE);
        Span { start, len: (span.end() / PAGE * PAGE).saturating_sub(start) }
    };
    let ram = free.iter().map(whole).flat_map(|span| without(span, &taken));
    Memory {
        size: MemorySize {
            size: size::show(low + (high - FOUR_GIB)),
            below_4g: Some(size::show(low)),
        },
        ram: ram.map(|span| RamRange { start: span.start, end: span.end() }).collect(),
        reserved: all
            .into_iter()
            .map(|(name, span)| Reserved { name, start: span.start, end: span.end() })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_taken_out() {
        let span = |start, end| Span { start, len: end - start };
        assert_eq!(without(span(0, 10), &[span(3, 5)]), [span(0, 3), span(5, 10)]);
        assert_eq!(without(span(0, 10), &[span(0, 5), span(8, 20)]), [span(5, 8)]);
        assert_eq!(without(span(0, 10), &[span(0, 10)]), []);
        assert_eq!(without(span(0, 10), &[span(10, 12)]), [span(0, 10)]);
        assert_eq!(without(span(5, 10), &[span(0, 2)]), [span(5, 10)]);
    }
}
