//! Sums of the pages that a watchdog looks at ([`bulkhead_layout::watch`]).

use crate::Error;
use crate::guest::{Guest, Piece};
use crate::monitor::Input;
use bulkhead_layout::PAGE;
use bulkhead_layout::map::GUEST_VA;
use bulkhead_layout::watch::{FixedPage, PART, PARTS, sum};
use std::collections::BTreeMap;

/// Most words that a tick sums up.
const MOST: u64 = 8192;

/// Lists the pages of a sandbox's guest and of its monitor, and how many parts of pages a tick looks at.
///
/// # Errors
/// There are more than ticks can look at in the time that the manifest gives.
pub fn pages(input: &Input) -> Result<(Vec<FixedPage>, u64), Error> {
    let sandbox = &input.plan.sandboxes[input.index];
    let Some((watch, time)) = sandbox.watch.and_then(|watch| Some((watch, watch.sweep?))) else {
        return Ok((Vec::new(), 0));
    };
    let text = input.program.segments.iter().filter(|segment| !segment.rights.write);
    let text = text.map(|s| Piece { gpa: s.address, bytes: s.bytes.clone() });
    let text: Vec<_> = text.collect();
    let own = text.iter().map(|s| {
        let first = s.gpa / PAGE * PAGE;
        (first, (s.gpa + s.bytes.len() as u64).next_multiple_of(PAGE))
    });
    let mut all = fixed(&own.collect::<Vec<_>>(), &text);
    let guest: &Guest = input.guest;
    let guests = fixed(&guest.fixed, &guest.pieces).into_iter();
    all.extend(guests.map(|page| FixedPage { at: GUEST_VA + page.at, ..page }));
    let parts = all.len() as u64 * u64::from(PARTS);
    // A change may come right behind the look at it, and shows when its page is at its end.
    let ticks = (time / watch.period).saturating_sub(1).max(1);
    let each = (parts + u64::from(PARTS)).div_ceil(ticks);
    if each * PART as u64 > MOST {
        return Err(Error::Program(format!(
            "sandbox {}: {} KiB in its `sweep` are more than {MOST} words for each tick: allow more time, or shorten \
             `watchdog`",
            sandbox.name,
            (all.len() as u64 * PAGE) >> 10
        )));
    }
    Ok((all, each))
}

/// Sums up pages of these ranges, which hold pieces and zeros.
fn fixed(ranges: &[(u64, u64)], pieces: &[Piece]) -> Vec<FixedPage> {
    let pages = ranges.iter().flat_map(|&(first, end)| (first..end).step_by(PAGE as usize));
    let mut pages: BTreeMap<u64, Vec<u8>> = pages.map(|at| (at, vec![0; PAGE as usize])).collect();
    for piece in pieces {
        let end = piece.gpa + piece.bytes.len() as u64;
        let first = (piece.gpa / PAGE * PAGE..end).step_by(PAGE as usize);
        for page in first {
            let Some(bytes) = pages.get_mut(&page) else { continue };
            let (from, to) = (piece.gpa.max(page), end.min(page + PAGE));
            bytes[(from - page) as usize..(to - page) as usize].copy_from_slice(
                &piece.bytes[(from - piece.gpa) as usize..(to - piece.gpa) as usize],
            );
        }
    }
    let words = |bytes: &[u8]| -> Vec<u64> {
        let word = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("8 bytes"));
        bytes.chunks_exact(8).map(word).collect()
    };
    let of_page = |bytes: &[u8]| words(bytes).as_chunks().0.iter().fold(0, sum);
    pages.iter().map(|(at, bytes)| FixedPage { at: *at, sum: of_page(bytes) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_the_sums_of_what_lies_there() {
        let piece = |gpa, len| Piece { gpa, bytes: vec![1; len] };
        let pieces = [piece(0x1FF8, 16), piece(0x3000, 8), piece(0x5000, 8)];
        let word = 0x0101_0101_0101_0101;
        let page = |at, sum| FixedPage { at, sum };
        let found = fixed(&[(0x1000, 0x4000)], &pieces);
        assert_eq!(found, [page(0x1000, word), page(0x2000, word), page(0x3000, word)]);
        assert_eq!(fixed(&[(0x4000, 0x5000)], &pieces), [page(0x4000, 0)]);
    }
}
