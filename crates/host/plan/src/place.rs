//! Memory placement: the physical addresses of the sandboxes' RAM and of the channels. It is pure arithmetic over
//! ranges, so that it can be tested without a machine. Two things stay true: every result lies in one piece of free
//! RAM, and no two results overlap each other or the image.

use crate::{Facts, Span};

/// A range of memory that somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Bytes, a multiple of a page.
    pub len: u64,
    /// Address at which it has to lie, if one is given.
    pub at: Option<u64>,
    /// It has to end below [`Facts::boot_sees`].
    pub low: bool,
}

/// Why a wish was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `at` is not in one piece of the machine's free RAM. `holds` is the piece
    /// in which it starts, if there is one.
    Outside {
        /// The RAM in which the range starts.
        holds: Option<Span>,
    },
    /// `at` overlaps the image.
    OnImage,
    /// `at` overlaps an earlier wish that also said where.
    OnOther {
        /// Its index.
        other: usize,
    },
    /// No free piece is large enough.
    NoRoom {
        /// The largest piece that was left, aligned as the wish needs it; of a low one, below [`Facts::boot_sees`].
        largest: u64,
    },
}

/// Alignment that lets the largest nested pages map `len` bytes.
#[must_use]
pub const fn alignment(facts: &Facts, len: u64, huge: bool) -> u64 {
    if huge && len >= facts.huge && len.is_multiple_of(facts.huge) {
        facts.huge
    } else if len >= facts.large {
        facts.large
    } else {
        facts.page
    }
}

/// Places all wishes: those with an address first, then the largest first, each at the lowest address that fits.
/// Wishes that have to lie below [`Facts::boot_sees`] go first if large ones would leave them no room. Alignment to
/// huge pages is tried, and given up for all wishes if the rest fits only without it.
///
/// # Errors
/// The refused wishes by index, each with its reason.
pub fn place(
    facts: &Facts,
    ram: &[Span],
    image: Span,
    wishes: &[Wish],
) -> Result<Vec<u64>, Vec<(usize, Refusal)>> {
    let tried = |huge, low_first| place_ordered(facts, ram, image, wishes, huge, low_first);
    tried(true, false)
        .or_else(|_| tried(true, true))
        .or_else(|_| tried(false, false))
        .or_else(|_| tried(false, true))
}

fn place_ordered(
    facts: &Facts,
    ram: &[Span],
    image: Span,
    wishes: &[Wish],
    huge: bool,
    low_first: bool,
) -> Result<Vec<u64>, Vec<(usize, Refusal)>> {
    let mut free: Vec<Span> = ram.iter().filter_map(|piece| above(*piece, facts.lowest)).collect();
    take(&mut free, image);
    let mut placed: Vec<Option<u64>> = vec![None; wishes.len()];
    let mut refused = Vec::new();

    for (index, wish) in wishes.iter().enumerate() {
        let Some(at) = wish.at else { continue };
        let span = Span { start: at, len: wish.len };
        match fixed(facts, (ram, image), wishes, index, span) {
            Ok(()) => {
                take(&mut free, span);
                placed[index] = Some(at);
            }
            Err(why) => refused.push((index, why)),
        }
    }

    let mut order: Vec<usize> = (0..wishes.len()).filter(|i| wishes[*i].at.is_none()).collect();
    let first = |index: usize| low_first && wishes[index].low;
    order.sort_by_key(|index| core::cmp::Reverse((first(*index), wishes[*index].len)));
    for index in order {
        let Wish { len, low, .. } = wishes[index];
        let free_here = if low {
            free.iter().filter_map(|piece| below(*piece, facts.boot_sees)).collect()
        } else {
            free.clone()
        };
        let fit = |huge| lowest_fit(&free_here, image, len, alignment(facts, len, huge));
        match fit(huge).or_else(|| fit(false)) {
            Some(start) => {
                take(&mut free, Span { start, len });
                placed[index] = Some(start);
            }
            None => {
                let largest = largest(&free_here, image, alignment(facts, len, false));
                refused.push((index, Refusal::NoRoom { largest }));
            }
        }
    }
    if refused.is_empty() { Ok(placed.into_iter().flatten().collect()) } else { Err(refused) }
}

/// Tells if a wish with an address can be granted.
fn fixed(
    facts: &Facts,
    (ram, image): (&[Span], Span),
    wishes: &[Wish],
    index: usize,
    span: Span,
) -> Result<(), Refusal> {
    let holds = ram
        .iter()
        .filter_map(|piece| above(*piece, facts.lowest))
        .find(|piece| piece.contains(span.start));
    if !holds.is_some_and(|piece| piece.encloses(span)) {
        return Err(Refusal::Outside { holds });
    }
    if image.overlaps(span) {
        return Err(Refusal::OnImage);
    }
    let clash = wishes[..index].iter().position(|other| {
        other.at.is_some_and(|start| Span { start, len: other.len }.overlaps(span))
    });
    clash.map_or(Ok(()), |other| Err(Refusal::OnOther { other }))
}

/// Returns the part of a piece at or above `low`.
fn above(piece: Span, low: u64) -> Option<Span> {
    let start = piece.start.max(low);
    (start < piece.end()).then(|| Span { start, len: piece.end() - start })
}

/// Returns the part of a piece below `high`.
fn below(piece: Span, high: u64) -> Option<Span> {
    let end = piece.end().min(high);
    (piece.start < end).then(|| Span { start: piece.start, len: end - piece.start })
}

/// Removes `span` from the free list.
fn take(free: &mut Vec<Span>, span: Span) {
    let old = core::mem::take(free);
    for piece in old {
        if !piece.overlaps(span) {
            free.push(piece);
            continue;
        }
        if piece.start < span.start {
            free.push(Span { start: piece.start, len: span.start - piece.start });
        }
        if span.end() < piece.end() {
            free.push(Span { start: span.end(), len: piece.end() - span.end() });
        }
    }
}

/// Finds the lowest aligned address after the image with `len` free bytes. Memory before the image is left to the
/// firmware and the boot loader. The boot code still reads their information while the first sandboxes are launched.
fn lowest_fit(free: &[Span], image: Span, len: u64, align: u64) -> Option<u64> {
    free.iter().filter_map(|piece| above(*piece, image.start)).find_map(|piece| {
        let start = piece.start.checked_next_multiple_of(align)?;
        piece.encloses(Span { start, len }).then_some(start)
    })
}

fn largest(free: &[Span], image: Span, align: u64) -> u64 {
    free.iter()
        .filter_map(|piece| above(*piece, image.start))
        .map(|piece| {
            let start = piece.start.next_multiple_of(align);
            piece.end().saturating_sub(start)
        })
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const X86: &Facts = crate::Arch::Svm.facts();
    const IMAGE: Span = Span { start: 16 * MIB, len: 5 * MIB };

    fn ram() -> Vec<Span> {
        vec![
            Span { start: 0x1000, len: 0x9_E000 },
            Span { start: MIB, len: 7 * MIB },
            Span { start: 16 * MIB, len: 1968 * MIB },
            Span { start: 4 << 30, len: 4 << 30 },
        ]
    }

    fn anywhere(len: u64) -> Wish {
        Wish { len, at: None, low: false }
    }

    #[test]
    fn starts_after_the_image_aligned() {
        let placed = place(X86, &ram(), IMAGE, &[anywhere(16 * MIB), anywhere(0x1_0000)]).unwrap();
        assert_eq!(placed, [22 * MIB, 21 * MIB]);
    }

    #[test]
    fn larger_ones_come_first() {
        let placed = place(X86, &ram(), IMAGE, &[anywhere(4 * MIB), anywhere(8 * MIB)]).unwrap();
        assert_eq!(placed, [30 * MIB, 22 * MIB]);
    }

    #[test]
    fn whole_gibibytes_get_huge_pages() {
        assert_eq!(place(X86, &ram(), IMAGE, &[anywhere(X86.huge)]).unwrap(), [4 * X86.huge]);
    }

    #[test]
    fn huge_alignment_is_given_up_before_the_wish() {
        let piece = [Span { start: 16 * MIB, len: 1200 * MIB }];
        assert_eq!(place(X86, &piece, IMAGE, &[anywhere(X86.huge)]).unwrap(), [22 * MIB]);
    }

    #[test]
    fn at_is_honoured_and_kept_free_of_others() {
        let wishes = [anywhere(8 * MIB), Wish { len: 16 * MIB, at: Some(22 * MIB), low: false }];
        assert_eq!(place(X86, &ram(), IMAGE, &wishes).unwrap(), [38 * MIB, 22 * MIB]);
    }

    #[test]
    fn refusals_name_the_reason() {
        let at = |start| Wish { len: 4 * MIB, at: Some(start), low: false };
        let refused =
            place(X86, &ram(), IMAGE, &[at(0x3000), at(16 * MIB), at(5 << 30), at(5 << 30)])
                .unwrap_err();
        assert_eq!(
            refused,
            [
                (0, Refusal::Outside { holds: None }),
                (1, Refusal::OnImage),
                (3, Refusal::OnOther { other: 2 }),
            ]
        );
        let refused = place(X86, &ram(), IMAGE, &[anywhere(5 << 30)]).unwrap_err();
        assert_eq!(refused, [(0, Refusal::NoRoom { largest: 4 << 30 })]);
    }

    fn low(len: u64) -> Wish {
        Wish { low: true, ..anywhere(len) }
    }

    /// Large ones take the RAM below 4 GiB only where that leaves room for those that have to lie there.
    #[test]
    fn low_ones_lie_low_whatever_is_larger() {
        // 1,963 MiB are free below.
        let large = anywhere(1900 * MIB);
        assert_eq!(
            place(X86, &ram(), IMAGE, &[large, low(60 * MIB)]).unwrap(),
            [22 * MIB, 1922 * MIB]
        );
        assert_eq!(
            place(X86, &ram(), IMAGE, &[large, low(64 * MIB)]).unwrap(),
            [4 << 30, 22 * MIB]
        );
        // A wish with an address stays there, and larger ones that are low share the rest.
        let at = Wish { len: 1000 * MIB, at: Some(22 * MIB), low: false };
        let placed =
            place(X86, &ram(), IMAGE, &[at, anywhere(900 * MIB), low(MIB), low(200 * MIB)])
                .unwrap();
        assert_eq!(placed, [22 * MIB, 4 << 30, 21 * MIB, 1022 * MIB]);
    }

    #[test]
    fn a_low_one_that_fits_only_above_is_refused() {
        let refused = place(X86, &ram(), IMAGE, &[low(3 << 30)]).unwrap_err();
        assert_eq!(refused, [(0, Refusal::NoRoom { largest: 1962 * MIB })]);
    }

    proptest! {
        /// Whatever is wished: results are free RAM, disjoint, clear of the image, aligned.
        #[test]
        fn results_never_overlap(
            sizes in prop::collection::vec((1u64..600_000, prop::option::of(0u64..3_000_000)), 0..12),
            image in 1u64..400_000,
        ) {
            let image = Span { start: 16 * MIB, len: image * X86.page };
            let wishes: Vec<Wish> = sizes
                .iter()
                .map(|(pages, at)| {
                    let at = at.map(|page| page * X86.page);
                    // Some of those that may lie anywhere have to lie low.
                    Wish { len: pages * X86.page, at, low: at.is_none() && pages % 3 == 0 }
                })
                .collect();
            let Ok(placed) = place(X86, &ram(), image, &wishes) else { return Ok(()) };
            prop_assert_eq!(placed.len(), wishes.len());
            let spans: Vec<Span> = placed
                .iter()
                .zip(&wishes)
                .map(|(start, wish)| Span { start: *start, len: wish.len })
                .collect();
            for (i, span) in spans.iter().enumerate() {
                prop_assert!(ram().iter().any(|piece| piece.encloses(*span)));
                prop_assert!(!span.overlaps(image));
                prop_assert!(span.start >= X86.lowest);
                prop_assert!(!wishes[i].low || span.end() <= X86.boot_sees);
                prop_assert!(spans[..i].iter().all(|other| !other.overlaps(*span)));
                if wishes[i].at.is_none() {
                    prop_assert!(span.start.is_multiple_of(alignment(X86, span.len, false)));
                } else {
                    prop_assert_eq!(Some(span.start), wishes[i].at);
                }
            }
        }
    }
}
