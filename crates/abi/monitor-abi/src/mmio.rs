//! Ranges of registers that sandboxes share: pages of a device, of which each sandbox has some registers. No guest
//! reaches such a page. Its monitor makes an access for it that lies in one of its ranges.

use crate::PAGE;
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Registers of a sandbox, within one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Range {
    /// Address of the first byte, for the guest and in the machine.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// 1: it writes them, too.
    pub write: u64,
}

/// Tells if a sandbox has registers in the page of an address.
#[must_use]
pub fn on_page(ranges: &[Range], address: u64) -> bool {
    ranges.iter().any(|range| range.start / PAGE == address / PAGE)
}

/// Tells if a sandbox may make an access of `size` bytes, a power of two: it is aligned, and lies in one range.
#[must_use]
pub fn allows(ranges: &[Range], address: u64, size: u8, writes: bool) -> bool {
    let size = u64::from(size);
    let within = |range: &Range| {
        let offset = address.wrapping_sub(range.start);
        // No range ends behind its page, so nothing overflows.
        offset < range.len && size <= range.len - offset && (range.write != 0 || !writes)
    };
    address & size.wrapping_sub(1) == 0 && ranges.iter().any(within)
}

const _: () = assert!(size_of::<Range>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    const RANGES: [Range; 2] =
        [Range { start: 0x1010, len: 6, write: 1 }, Range { start: 0x1018, len: 8, write: 0 }];

    #[test]
    fn all_accesses_near_the_ranges() {
        for at in 0x1000..0x1030 {
            for size in [1, 2, 4, 8] {
                let all = at..at + u64::from(size);
                let inside =
                    |start: u64, len: u64| all.clone().all(|b| b >= start && b < start + len);
                let aligned = at % u64::from(size) == 0;
                let (own, read) = (inside(0x1010, 6), inside(0x1018, 8));
                assert_eq!(allows(&RANGES, at, size, false), aligned && (own || read), "{at:#x}");
                assert_eq!(allows(&RANGES, at, size, true), aligned && own, "{at:#x}, {size}");
            }
        }
    }

    #[test]
    fn the_ends_of_the_addresses() {
        for address in [0, u64::MAX, u64::MAX - 7] {
            assert!(!allows(&RANGES, address, 8, false) && !on_page(&RANGES, address));
        }
        assert!(on_page(&RANGES, 0x1FFF) && !on_page(&RANGES, 0x2000));
        assert!(!allows(&[], 0x1010, 1, false));
    }
}
