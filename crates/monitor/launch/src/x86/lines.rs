//! Result of the boot code's test if the IOMMU sees the IOAPIC's messages.

use bulkhead_handover::image::BootReport;
use bulkhead_handover::x86::LineTest;

/// Vector in the IOAPIC's entry of the test, and the slot that this entry names.
pub const DIRECT: u8 = 0x31;
/// Vector in that slot.
pub const REMAPPED: u8 = 0x32;

/// Path of the IOAPIC's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Third word of the device table entry of the IOAPIC's requester ID.
    pub word: u64,
    /// True if monitors put slots into the IOAPIC.
    pub slots: bool,
    /// Code in the boot report.
    pub found: u64,
}

/// Decides by the vectors that arrived, as a set of those from 0 to 63.
///
/// # Errors
/// Why the system cannot start here.
pub fn settle(test: &LineTest, arrived: u64) -> Result<Settled, &'static str> {
    let says = |flag| test.flags & flag != 0;
    match (arrived >> DIRECT & 1 != 0, arrived >> REMAPPED & 1 != 0) {
        (true, false) if says(LineTest::SAID_SEEN) => Err(
            "this machine's IOMMU does not see them, and the machine description says remaps_lines = true: leave it out",
        ),
        (false, true) if says(LineTest::SAID_UNSEEN) => Err(
            "this machine's IOMMU remaps them, and the machine description says remaps_lines = false: leave it out",
        ),
        (false, true) if says(LineTest::REFUSED) => Err(
            "this machine's IOMMU sees them, and would have to let all messages pass for a level-triggered one: a device \
             could then send any interrupt to any core by DMA; give that device an edge-triggered line or messages",
        ),
        (true, false) => Ok(Settled { word: test.unseen, slots: false, found: BootReport::UNSEEN }),
        (false, true) => {
            let slots = says(LineTest::SLOTS);
            Ok(Settled { word: test.seen, slots, found: BootReport::SEEN })
        }
        (true, true) => Err("the 8254's line arrived both remapped and not: use another machine"),
        (false, false) => Err(
            "the 8254's line was fired, and nothing arrived: the IOAPIC, its requester ID or the 8254's irq is not what \
             the machine description says",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: u64 = 1 << REMAPPED;
    const UNSEEN: u64 = 1 << DIRECT;

    fn test(flags: u32) -> LineTest {
        LineTest { seen: 7, unseen: 8, flags, ..LineTest::default() }
    }

    #[test]
    fn what_arrives_decides() {
        let settled = |word, slots, found| Ok(Settled { word, slots, found });
        let slots = test(LineTest::SLOTS);
        assert_eq!(settle(&slots, SEEN), settled(7, true, BootReport::SEEN));
        assert_eq!(settle(&slots, UNSEEN), settled(8, false, BootReport::UNSEEN));
        assert_eq!(settle(&test(0), SEEN), settled(7, false, BootReport::SEEN));
        // Vectors that were not asked for prove nothing.
        assert_eq!(settle(&slots, SEEN | 1 << 0x30), settled(7, true, BootReport::SEEN));
    }

    #[test]
    fn what_cannot_be_right_is_refused() {
        let wrong = |flags, arrived| settle(&test(flags), arrived).unwrap_err();
        assert!(wrong(0, 0).contains("nothing arrived"));
        assert!(wrong(0, SEEN | UNSEEN).contains("both"));
        assert!(wrong(LineTest::REFUSED, SEEN).contains("level-triggered"));
        assert!(settle(&test(LineTest::REFUSED), UNSEEN).is_ok());
        assert!(wrong(LineTest::SAID_SEEN, UNSEEN).contains("remaps_lines = true"));
        assert!(settle(&test(LineTest::SAID_SEEN), SEEN).is_ok());
        assert!(wrong(LineTest::SAID_UNSEEN, SEEN).contains("remaps_lines = false"));
        assert!(settle(&test(LineTest::SAID_UNSEEN), UNSEEN).is_ok());
    }
}
