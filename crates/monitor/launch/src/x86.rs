//! Checks that only x86-64 has: of its part of the header, and of its interrupt lines.

pub mod lines;

use crate::verify::{Own, aligned, inside, overlap};
use bulkhead_handover::PAGE;
use bulkhead_handover::image::Range;
use bulkhead_handover::x86::{Header, MONITORS_VMX, TRAMPOLINE_PA};

impl Own for Header {
    // It stays for ever, for a core that an INIT from outside has reset: no sandbox may write there.
    const START_CODE: Option<Range> = Some(Range { start: TRAMPOLINE_PA, len: PAGE });

    // An NMI before the first instruction reads the vectors of real mode, and pushes below SS:SP, which are 0.
    const TAKEN: &[Range] =
        &[Range { start: 0, len: PAGE }, Range { start: 0x1_0000 - PAGE, len: PAGE }];

    fn check(&self) -> Result<(), &'static str> {
        let checks = [
            // The sandboxes follow this part: with another length they would be read from elsewhere.
            (self.own == Self::OWN, "the header's own part"),
            (iommu(self), "IOMMU"),
            (self.monitors <= MONITORS_VMX, "the kind of monitors"),
        ];
        checks.iter().find(|(ok, _)| !ok).map_or(Ok(()), |(_, what)| Err(what))
    }

    fn tables(&self) -> impl Iterator<Item = Range> {
        tables(self).into_iter()
    }
}

fn tables(Header { iommu, .. }: &Header) -> [Range; 3] {
    [iommu.device_table, iommu.commands, iommu.events]
}

/// Checks that all tables of an IOMMU lie in the image, apart from each other and of the sizes that the hardware knows.
fn iommu(header: &Header) -> bool {
    let iommu = header.iommu;
    let [a, b, c] = tables(header);
    if iommu.base == 0 {
        // Another kind's, if there is one.
        return a.len == 0 || aligned(a) && inside(a, header.image) && !overlap(a, header.boot);
    }
    iommu.base % PAGE == 0
        // The boot code sees the first 4 GiB.
        && iommu.base < 1 << 32
        && [a, b, c].iter().all(|&r| aligned(r) && r.len > 0 && inside(r, header.image))
        // The register of the device table has 9 bits for its pages, less one (AMD IOMMU specification, 3.4.1).
        && a.len <= 512 * PAGE
        // 512 entries of 16 bytes: the boot code writes that size to the rings' registers.
        && (b.len, c.len) == (2 * PAGE, 2 * PAGE)
        && !(overlap(a, b) || overlap(b, c) || overlap(a, c))
        && ![a, b, c].iter().any(|&r| overlap(r, header.boot))
        && lines(header)
}

/// Checks that the entry lies in the device table, the remapping table apart from all else that the IOMMU has.
fn lines(header: &Header) -> bool {
    let (test, iommu) = (header.iommu.lines, header.iommu);
    let entry = Range { start: test.entry, len: 32 };
    let table = Range { start: test.table, len: PAGE };
    // The test writes to the table before anything else is known of the IOAPIC, so none of it is taken on trust.
    test.entry == 0
        || test.entry % 32 == 0
            && inside(entry, iommu.device_table)
            && aligned(table)
            && inside(table, header.image)
            && !overlap(table, header.boot)
            && !tables(header).iter().any(|&other| overlap(table, other))
            && test.ioapic % PAGE == 0
            && test.ioapic < 1 << 32
            && test.line < 32
}
