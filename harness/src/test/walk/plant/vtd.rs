//! Errors in the tables and registers of a VT-d unit. Sandbox 0 is a victim with the disk 00:03.0 and the line 4.
//! Sandbox 1 is a rogue with 00:08.0 and the line 3.

use super::{EDU, Hand, IDLE, Plant, ROGUE, WARDEN};
use crate::test::spoil::ADDRESS;
use bulkhead_audit::x86_registers::Vtd;

/// As which function the IOAPIC sends.
const IOAPIC: u64 = 0xFF00;
/// 00:03.0, the other sandbox's.
const DISK: u64 = 0x18;
const PRESENT: u64 = 1;

impl Hand<'_> {
    /// Changes the unit's registers.
    fn unit(&mut self, change: impl FnOnce(&mut Vtd)) {
        if let Some(unit) = &mut self.registers.own.vtd {
            change(unit);
        }
    }

    fn vtd(&self) -> Vtd {
        self.registers.own.vtd.clone().unwrap_or_default()
    }

    /// Where a function's context entry is.
    fn context(&self, bdf: u64) -> u64 {
        let root = self.vtd().root & ADDRESS;
        (self.memory.word(root + (bdf >> 8) * 16) & ADDRESS) + (bdf & 0xFF) * 16
    }

    /// Where a requester's interrupt entry for a vector on a core is, and its number.
    fn interrupt(&self, bdf: u64, core: u64, vector: u64) -> (u64, u64) {
        let table = self.vtd().interrupts & ADDRESS;
        let is = |n: &u64| {
            let [low, high] = [0, 8].map(|part| self.memory.word(table + n * 16 + part));
            low & PRESENT != 0
                && (low >> 32, low >> 16 & 0xFF, high & 0xFFFF) == (core, vector, bdf)
        };
        let index = (0..1 << 16).find(is).unwrap_or_else(|| panic!("{bdf:x} has no entry"));
        (table + index * 16, index)
    }
}

/// An open entry of the IOAPIC with an index.
fn indexed(index: u64, vector: u64) -> u64 {
    index << 49 | 1 << 48 | vector
}

pub static PLANTS: &[Plant] = &[
    ("vtd-off", "iommu-control", |h| h.unit(|u| u.status &= !(1 << 31))),
    ("vtd-remaps-nothing", "iommu-control", |h| h.unit(|u| u.status &= !(1 << 25))),
    ("vtd-compatibility-format", "iommu-control", |h| h.unit(|u| u.status |= 1 << 23)),
    ("vtd-short-ids", "iommu-control", |h| h.unit(|u| u.interrupts &= !(1 << 11))),
    ("vtd-scalable", "iommu-control", |h| h.unit(|u| u.root |= 1 << 10)),
    ("vtd-protected-memory", "iommu-control", |h| h.unit(|u| u.protected |= 1 << 31)),
    ("vtd-function-passes", "device-table", |h| {
        h.memory.change(h.context(EDU), 2 << 2, 0);
    }),
    ("vtd-foreign-domain", "device-table", |h| {
        let domain = h.memory.word(h.context(DISK) + 8);
        h.memory.change(h.context(EDU) + 8, domain, u64::MAX);
    }),
    ("vtd-foreign-tables", "dma-map", |h| {
        let root = h.memory.word(h.context(DISK));
        h.memory.change(h.context(EDU), root, u64::MAX);
    }),
    ("vtd-unowned-with-tables", "dma-map", |h| {
        let words = [0, 8].map(|part| h.memory.word(h.context(EDU) + part));
        h.memory.change(h.context(IDLE), words[0], u64::MAX);
        h.memory.change(h.context(IDLE) + 8, words[1], u64::MAX);
    }),
    ("vtd-reads-only", "dma-rights", |h| {
        let root = h.memory.word(h.context(EDU)) & ADDRESS;
        h.memory.change(root, 0, 1 << 1);
    }),
    ("vtd-dma-taken-away", "dma-missing", |h| h.memory.change(h.context(EDU), 0, PRESENT)),
    ("vtd-reserved-bit", "device-table", |h| {
        let root = h.memory.word(h.context(EDU)) & ADDRESS;
        h.memory.change(root, 1 << 52, 0);
    }),
    ("vtd-entry-for-everybody", "dma-messages", |h| {
        let (at, _) = h.interrupt(EDU, 0, 0x70);
        h.memory.change(at + 8, 0, 0b11 << 18);
    }),
    ("vtd-entry-for-eight-functions", "dma-messages", |h| {
        let (at, _) = h.interrupt(EDU, 0, 0x70);
        h.memory.change(at + 8, 0b11 << 16, 0);
    }),
    ("vtd-entry-to-foreign-core", "message-core", |h| {
        let (at, _) = h.interrupt(EDU, 0, 0x70);
        h.memory.change(at, 1 << 32, 0);
    }),
    ("vtd-foreign-entry-for-function", "message-core", |h| {
        let (at, _) = h.interrupt(DISK, 1, 0x70);
        h.memory.change(at + 8, EDU, 0xFFFF);
    }),
    ("vtd-entry-as-nmi", "message-form", |h| {
        let (at, _) = h.interrupt(EDU, 0, 0x70);
        h.memory.change(at, 4 << 5, 0);
    }),
    ("vtd-entry-with-level", "message-form", |h| {
        let (at, _) = h.interrupt(EDU, 0, 0x70);
        h.memory.change(at, 1 << 4, 0);
    }),
    ("vtd-line-names-foreign-entry", "line-core", |h| {
        let (_, index) = h.interrupt(IOAPIC, 1, 0x70);
        h.line(3, indexed(index, 0x70));
    }),
    ("vtd-line-with-other-vector", "line-vector", |h| {
        let (_, index) = h.interrupt(IOAPIC, 0, 0x70);
        h.line(3, indexed(index, 0x71));
    }),
    ("vtd-line-of-nobody", "line-owner", |h| {
        let (_, index) = h.interrupt(IOAPIC, 0, 0x70);
        h.line(9, indexed(index, 0x70));
    }),
    ("vtd-interrupt-table-for-guest", "tables-unmapped", |h| {
        h.show(h.vtd().interrupts & ADDRESS);
    }),
    ("vtd-queue-for-guest", "tables-unmapped", |h| h.show(h.vtd().queue & ADDRESS)),
    ("vtd-root-table-for-monitor", "tables-unmapped", |h| h.lead(h.vtd().root & ADDRESS)),
    ("vtd-registers-for-monitor", "monitor-map", |h| h.lead(h.vtd().base)),
    ("vtd-foreign-ram-for-guest", "nested-map", |h| h.show(h.ram(WARDEN))),
    ("vtd-page-for-function", "dma-map", |h| {
        // The first page of the rogue's tables leads to the other's memory.
        let mut table = h.memory.word(h.context(EDU)) & ADDRESS;
        let ram = h.ram(WARDEN);
        let gpa = h.baked.plan.sandboxes[ROGUE].ram[0].gpa;
        for level in (0..4).rev() {
            let at = table + (gpa >> (12 + 9 * level) & 511) * 8;
            let entry = h.memory.word(at);
            if level == 0 || entry & 1 << 7 != 0 {
                h.memory.change(at, ram, ADDRESS);
                return;
            }
            table = entry & ADDRESS;
        }
    }),
];
