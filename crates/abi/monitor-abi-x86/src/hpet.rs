//! Registers of the High Precision Event Timer (IA-PC HPET 1.0a, 2.3.3) under a Linux that runs already. A comparator
//! that sends messages would write any number to any address, past the IOMMU. So no guest sets one up.

/// Offset of the first comparator's registers.
pub const TIMER: u64 = 0x100;
/// Distance of two comparators.
pub const STRIDE: u64 = 0x20;
/// Most of them.
pub const MOST: u64 = 32;
/// Tn_FSB_EN_CNF, in a comparator's configuration (2.3.8): it sends messages.
pub const MESSAGES: u64 = 1 << 14;

/// Offsets in a comparator's registers.
const CONFIGURATION: u64 = 0;
const MESSAGE: u64 = 0x10;

/// Decides on a write of `size` bytes; the value that is stored. `None`: it is denied.
#[must_use]
pub const fn decide(offset: u64, size: u8, value: u64) -> Option<u64> {
    if !matches!(size, 4 | 8) || offset % size as u64 != 0 {
        return None;
    }
    if offset < TIMER {
        return Some(value);
    }
    match (offset - TIMER) % STRIDE {
        CONFIGURATION => Some(value & !MESSAGES),
        1..MESSAGE => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_write_sets_up_a_message() {
        for size in 0..=16u8 {
            for offset in 0..0x1000 {
                let found = decide(offset, size, u64::MAX);
                let aligned = matches!(size, 4 | 8) && offset % u64::from(size.max(1)) == 0;
                if !aligned {
                    assert_eq!(found, None, "{offset:#x} {size}");
                    continue;
                }
                // Bytes that the write covers, against the registers of the specification.
                let covers = |at: u64| offset <= at && at < offset + u64::from(size);
                let timer = |n: u64| TIMER + n * STRIDE;
                let route = (0..120).any(|n| (0x10..0x18).any(|at| covers(timer(n) + at)));
                assert!(!route || found.is_none(), "{offset:#x} {size}");
                // Bit 14 is in the second byte of the configuration.
                let enables = (0..120).any(|n| covers(timer(n) + 1));
                assert!(!enables || found == Some(!MESSAGES), "{offset:#x} {size}");
            }
        }
        assert_eq!(decide(0x10, 4, 3), Some(3));
        assert_eq!(decide(0xF0, 8, 77), Some(77));
        assert_eq!(decide(0x128, 4, 5), Some(5));
        assert_eq!(decide(0x120, 8, 0x4_0000_4104), Some(0x4_0000_0104));
    }
}
