//! Errors in the tables, bitmaps and VMCSs of a machine with VT-x. Sandboxes are those of the machine with SVM, without
//! functions and without a Linux. A warden is on core 0, a rogue on cores 1 and 2, a big one on core 3.

use super::{BIG, Hand, PLANTS, Plant, ROGUE, WARDEN, vmcb};
use bulkhead_audit::memory::Words;
use bulkhead_audit::vmcs::Vmcs;

pub const IO_BITMAP_A: u16 = 0x2000;
pub const EPT_POINTER: u16 = 0x201A;
const IO_BITMAP_B: u16 = 0x2002;
const MSR_BITMAP: u16 = 0x2004;
const PIN: u16 = 0x4000;
const PRIMARY: u16 = 0x4002;
const EXIT: u16 = 0x400C;
const ENTRY: u16 = 0x4012;
const SECONDARY: u16 = 0x401E;
/// EPT: memory type; its value for write-back memory.
const TYPE: u64 = 0b111 << 3;
const WRITE_BACK: u64 = 6 << 3;
const ALL: u64 = 0b111;

/// Plants that say nothing of a table's format. Their words are wrong in either format.
const SHARED: [&str; 46] = [
    "foreign-ram",
    "foreign-ram-shared",
    "own-frames-swapped",
    "monitor-text-for-guest",
    "nested-table-for-guest",
    "port-map-for-guest",
    "boot-code-for-guest",
    "page-taken-away",
    "info-page-writable",
    "channel-writable-for-reader",
    "channel-read-only-for-writer",
    "text-writable",
    "receipts-writable-for-sender",
    "program-writable-for-its-reader",
    "program-writable-for-its-readers-monitor",
    "armed-word-writable-for-senders-monitor",
    "end-read-only-for-its-monitor",
    "link-for-two-others",
    "link-leads-elsewhere",
    "link-longer-than-it-is",
    "link-taken-by-text",
    "link-left-behind",
    "link-replaced-by-monitors-stack",
    "link-replaced-by-anothers-page",
    "link-for-others-monitor",
    "monitor-has-other-table-for-link",
    "monitor-maps-messages",
    "monitor-maps-foreign-ram",
    "monitor-maps-foreign-ram-shared",
    "monitor-maps-other-monitor",
    "monitor-maps-local-apic",
    "monitor-maps-its-tables",
    "monitor-maps-nested-table",
    "monitor-maps-boot-code",
    "monitor-maps-compiled-manifest",
    "monitor-text-writable",
    "monitor-stack-executable",
    "monitor-config-writable",
    "monitor-page-taken-away",
    "monitor-text-changed",
    "foreign-port",
    "own-port-closed",
    "spare-core-awake",
    "core-that-is-not-there",
    "line-of-nobody",
    "frames-not-described",
];

/// All plants for such a machine.
pub fn plants() -> Vec<Plant> {
    let shared = PLANTS.iter().filter(|(name, ..)| SHARED.contains(name));
    let all: Vec<_> = shared.chain(OWN).copied().collect();
    assert_eq!(all.len(), SHARED.len() + OWN.len(), "a name of the list is no plant");
    all
}

impl Hand<'_> {
    /// Where a field of a core's VMCS of rogue's is in memory.
    fn field(&self, core: usize, field: u16) -> u64 {
        Vmcs::new(&Words::new(&self.memory), vmcb(self.baked, ROGUE, core)).address(field)
    }

    /// Changes bits of a field.
    fn vmcs(&mut self, core: usize, field: u16, set: u64, clear: u64) {
        self.memory.change(self.field(core, field), set, clear);
    }

    /// Replaces a field of 64 bits.
    fn whole(&mut self, core: usize, field: u16, value: u64) {
        self.vmcs(core, field, value, u64::MAX);
    }

    /// Changes the bit of an MSR in rogue's bitmap; writes are 2 KiB behind reads.
    fn exits(&mut self, msr: u64, writes: bool, set: bool) {
        let map = self.memory.word(self.field(0, MSR_BITMAP));
        let half = if msr >> 16 == 0xC000 { 0x400 } else { 0 };
        let n = msr & 0x1FFF;
        let at = map + half + u64::from(writes) * 0x800 + n / 64 * 8;
        let bit = 1 << (n % 64);
        self.memory.change(at, if set { bit } else { 0 }, bit);
    }
}

static OWN: &[Plant] = &[
    ("executable-data", "nested-rights", |h| h.nested(ROGUE, 0x1000, 1 << 2, 0)),
    ("uncached-memory", "encoding", |h| h.nested(ROGUE, 0x1000, 0, TYPE)),
    ("write-through-memory", "encoding", |h| h.nested(ROGUE, 0x1000, 4 << 3, TYPE)),
    ("pat-ignored", "encoding", |h| h.nested(ROGUE, 0x1000, 1 << 6, 0)),
    ("reserved-bit-of-ept", "encoding", |h| h.nested(ROGUE, 0x1000, 1 << 58, 0)),
    ("dirty-page-of-ept", "encoding", |h| h.nested(ROGUE, 0x1000, 1 << 9, 0)),
    ("write-without-read", "encoding", |h| h.nested(ROGUE, 0x1000, 0, 1)),
    ("beyond-ram-of-ept", "nested-map", |h| {
        h.nested(ROGUE, 8 << 20, (h.ram(ROGUE) + (8 << 20)) | ALL | WRITE_BACK | 1 << 7, u64::MAX);
    }),
    ("small-pages-of-ept", "page-sizes", |h| {
        // 2 MiB as 512 pages; the table lies in RAM that nobody has.
        let (table, ram) = (0x5000_0000, h.ram(BIG));
        for n in 0..512 {
            h.memory.change(table + n * 8, (ram + (n << 12)) | ALL | WRITE_BACK, u64::MAX);
        }
        h.nested(BIG, 0, table | ALL, u64::MAX);
    }),
    ("port-of-the-second-bitmap", "ports", |h| {
        let (at, bit) = h.port(ROGUE, 0x8900);
        h.memory.change(at, 0, bit);
    }),
    ("efer-written", "registers", |h| h.exits(0xC000_0080, true, false)),
    ("feature-control-written", "registers", |h| h.exits(0x3A, true, false)),
    ("vmx-capabilities-read", "registers", |h| h.exits(0x480, false, false)),
    ("icr-written", "registers", |h| h.exits(0x830, true, false)),
    ("eoi-exits", "registers", |h| h.exits(0x80B, true, true)),
    ("external-interrupts-exit", "control-block", |h| h.vmcs(0, PIN, 1, 0)),
    ("no-nmi-exits", "control-block", |h| h.vmcs(1, PIN, 0, 1 << 3)),
    ("virtual-nmis", "control-block", |h| h.vmcs(0, PIN, 1 << 5, 0)),
    ("no-io-bitmaps", "control-block", |h| h.vmcs(0, PRIMARY, 0, 1 << 25)),
    ("no-msr-bitmap", "control-block", |h| h.vmcs(1, PRIMARY, 0, 1 << 28)),
    ("no-mwait-exits", "control-block", |h| h.vmcs(0, PRIMARY, 0, 1 << 10)),
    ("no-secondary-controls", "control-block", |h| h.vmcs(0, PRIMARY, 0, 1 << 31)),
    ("cr3-exits", "control-block", |h| h.vmcs(0, PRIMARY, 1 << 15, 0)),
    ("no-ept", "control-block", |h| h.vmcs(0, SECONDARY, 0, 1 << 1)),
    ("no-vpid", "control-block", |h| h.vmcs(0, SECONDARY, 0, 1 << 5)),
    ("vm-functions", "control-block", |h| h.vmcs(0, SECONDARY, 1 << 13, 0)),
    ("shadow-vmcs", "control-block", |h| h.vmcs(0, SECONDARY, 1 << 14, 0)),
    ("host-in-32-bit-mode", "control-block", |h| h.vmcs(0, EXIT, 0, 1 << 9)),
    ("interrupts-acknowledged", "control-block", |h| h.vmcs(0, EXIT, 1 << 15, 0)),
    ("guests-efer-stays", "control-block", |h| h.vmcs(0, EXIT, 0, 1 << 21)),
    ("monitors-efer-stays", "control-block", |h| h.vmcs(0, ENTRY, 0, 1 << 15)),
    ("entry-to-smm", "control-block", |h| h.vmcs(0, ENTRY, 1 << 10, 0)),
    ("cr3-target", "control-block", |h| h.vmcs(0, 0x400A, 1, 0)),
    ("exit-stores-msrs", "control-block", |h| h.vmcs(0, 0x400E, 1, 0)),
    ("exit-loads-msrs", "control-block", |h| h.vmcs(0, 0x4010, 1, 0)),
    ("entry-loads-msrs", "control-block", |h| h.vmcs(1, 0x4014, 2, 0)),
    ("no-alignment-exits", "control-block", |h| h.vmcs(0, 0x4004, 0, 1 << 17)),
    ("page-fault-match", "control-block", |h| h.vmcs(0, 0x4008, 1, 0)),
    ("page-fault-mask", "control-block", |h| h.vmcs(0, 0x4006, 1, 0)),
    ("tsc-offset", "control-block", |h| h.whole(0, 0x2010, 0x1000)),
    ("link-pointer", "control-block", |h| h.whole(0, 0x2800, 0)),
    ("cache-disable-of-the-guest", "control-block", |h| h.vmcs(0, 0x6000, 0, 1 << 30)),
    ("vmxe-of-the-guest", "control-block", |h| h.vmcs(0, 0x6002, 0, 1 << 13)),
    ("cr0-without-cache", "control-block", |h| h.vmcs(0, 0x6800, 1 << 30, 0)),
    ("cr4-without-vmxe", "control-block", |h| h.vmcs(0, 0x6804, 0, 1 << 13)),
    ("monitor-without-write-protection", "control-block", |h| h.vmcs(0, 0x6C00, 0, 1 << 16)),
    ("monitor-without-nxe", "control-block", |h| h.vmcs(0, 0x2C02, 0, 1 << 11)),
    ("monitor-without-pae", "control-block", |h| h.vmcs(0, 0x6C04, 0, 1 << 5)),
    ("accessed-and-dirty-flags", "control-block", |h| h.vmcs(0, EPT_POINTER, 1 << 6, 0)),
    ("foreign-vpid", "control-block", |h| h.vmcs(0, 0, 1, 0xFFFF)),
    ("foreign-tables-on-second-core", "control-block", |h| {
        let root = h.nested_root(WARDEN);
        h.vmcs(1, EPT_POINTER, root, !0xFFF);
    }),
    ("foreign-ports-on-second-core", "control-block", |h| {
        let (at, _) = h.port(WARDEN, 0x8000);
        h.whole(1, IO_BITMAP_B, at);
    }),
    ("foreign-msrs-on-second-core", "control-block", |h| {
        h.whole(1, MSR_BITMAP, h.part(ROGUE, "stacks"))
    }),
    ("foreign-vmcs", "control-block", |h| {
        let other = vmcb(h.baked, WARDEN, 0);
        h.core(2).own.vmcs = Some(other);
    }),
    ("no-vmcs", "host-state", |h| h.core(1).own.vmcs = None),
    ("foreign-root-in-vmcs", "host-state", |h| h.whole(1, 0x6C02, h.monitor_root(WARDEN))),
    ("host-elsewhere-in-its-text", "host-state", |h| {
        let at = h.field(0, 0x6C16);
        let rip = h.memory.word(at);
        h.memory.change(at, rip + 0x200, u64::MAX);
    }),
    ("host-in-boot-code", "host-state", |h| h.whole(0, 0x6C16, 0x100_1000)),
    ("host-stack-in-boot-code", "host-state", |h| h.whole(0, 0x6C14, 0x100_1000)),
    ("boot-codes-gdt", "host-state", |h| h.whole(0, 0x6C0C, 0x100_1000)),
    ("boot-codes-idt", "host-state", |h| h.whole(0, 0x6C0E, 0x100_1000)),
    ("core-in-the-wardens-monitor", "core-state", |h| {
        let root = h.monitor_root(WARDEN);
        h.core(1).root = root;
    }),
    ("line-to-the-wardens-core", "line-core", |h| h.line(3, 0x0000_0000_0000_0030)),
    ("line-as-an-smi", "line-mode", |h| h.line(3, 0x0100_0000_0000_0230)),
];
