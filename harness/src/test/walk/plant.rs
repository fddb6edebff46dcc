//! One wrong entry of each kind, planted in a copy of a machine's memory: the
//! auditor has to find each by its rule.

use super::audit::Audit;
use super::given::{PAGE, host_save, part, vmcb};
use super::regime::entry_at;
use bulkhead_image::Baked;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A machine's memory with some words changed.
pub struct Planted<'a> {
    pub base: &'a dyn Fn(u64) -> u64,
    pub changes: RefCell<BTreeMap<u64, u64>>,
}

impl Planted<'_> {
    pub fn word(&self, at: u64) -> u64 {
        let changed = self.changes.borrow().get(&at).copied();
        changed.unwrap_or_else(|| (self.base)(at))
    }

    fn change(&self, at: u64, set: u64, clear: u64) {
        let word = self.word(at) & !clear | set;
        self.changes.borrow_mut().insert(at, word);
    }
}

/// Name, the rule that finds it, what is planted.
pub type Plant = (&'static str, &'static str, fn(&Hand));

/// Plants.
pub struct Hand<'a> {
    pub audit: &'a Audit<'a>,
    pub memory: &'a Planted<'a>,
}

const WRITE: u64 = 1 << 1;
const NO_EXECUTE: u64 = 1 << 63;
const ALL: u64 = 0b111;
const LARGE: u64 = 1 << 7;
/// Sandboxes of the audited system.
const WARDEN: usize = 0;
const ROGUE: usize = 1;
const BIG: usize = 2;
const INFO: u64 = 0xD000_0000;
const CHANNEL: u64 = 0xD200_0000;
const TEXT_VA: u64 = 0xFFFF_FFFF_8000_0000;
const CONFIG_VA: u64 = 0xFFFF_FFFF_8010_0000;
const MAILBOX_VA: u64 = 0xFFFF_FFFF_8040_0000;
const STACK_VA: u64 = 0xFFFF_FFFF_8050_2000;
/// Behind the configuration, unmapped, but under the same last table.
const FREE_VA: u64 = 0xFFFF_FFFF_8017_F000;

impl Hand<'_> {
    fn baked(&self) -> &Baked {
        self.audit.baked
    }

    fn ram(&self, sandbox: usize) -> u64 {
        self.baked().plan.sandboxes[sandbox].ram[0].hpa
    }

    fn nested(&self, sandbox: usize, gpa: u64, set: u64, clear: u64) {
        let at = entry_at(self.audit.words, self.audit.nested_root(sandbox), gpa);
        self.memory.change(at, set, clear);
    }

    fn monitor(&self, sandbox: usize, va: u64, set: u64, clear: u64) {
        let at = entry_at(self.audit.words, self.audit.monitor_root(sandbox), va);
        self.memory.change(at, set, clear);
    }

    /// An unused page of a monitor leads to a frame.
    fn lead(&self, sandbox: usize, frame: u64) {
        self.monitor(sandbox, FREE_VA, frame | 1 | NO_EXECUTE, u64::MAX);
    }

    fn vmcb(&self, sandbox: usize, core: usize, field: u64, set: u64, clear: u64) {
        self.memory.change(vmcb(self.baked(), sandbox, core) + field, set, clear);
    }
}

pub static PLANTS: &[Plant] = &[
    ("foreign-ram", "nested-map", |h| h.nested(ROGUE, 0x1000, h.ram(WARDEN) | ALL, u64::MAX)),
    ("foreign-ram-shared", "shared-frames", |h| {
        h.nested(ROGUE, 0x1000, h.ram(WARDEN) | ALL, u64::MAX)
    }),
    ("own-frames-swapped", "nested-map", |h| h.nested(ROGUE, 0x1000, h.ram(ROGUE) | ALL, u64::MAX)),
    ("beyond-ram", "nested-map", |h| {
        let memory = 8 << 20;
        h.nested(ROGUE, memory, (h.ram(ROGUE) + memory) | ALL | LARGE, u64::MAX);
    }),
    ("apic-page", "nested-map", |h| {
        h.nested(ROGUE, 0xFEE0_0000, 0xFEE0_0000 | ALL | LARGE, u64::MAX)
    }),
    ("monitor-text-for-guest", "nested-map", |h| {
        h.nested(
            ROGUE,
            0x1000,
            part(h.baked(), Some(WARDEN), "monitor text").start | ALL,
            u64::MAX,
        );
    }),
    ("nested-table-for-guest", "tables-unmapped", |h| {
        h.nested(ROGUE, 0x1000, h.audit.nested_root(ROGUE) | ALL, u64::MAX)
    }),
    ("port-map-for-guest", "tables-unmapped", |h| {
        h.nested(ROGUE, 0x1000, h.audit.port_bit(ROGUE, 0).0 | ALL, u64::MAX)
    }),
    ("boot-code-for-guest", "boot-code-unmapped", |h| {
        h.nested(ROGUE, 0x1000, 0x100_0000 | ALL, u64::MAX)
    }),
    ("page-taken-away", "nested-missing", |h| h.nested(ROGUE, 0x1000, 0, u64::MAX)),
    ("gibibyte-taken-away", "nested-missing", |h| h.nested(BIG, 0, 0, u64::MAX)),
    ("info-page-writable", "nested-rights", |h| h.nested(ROGUE, INFO, WRITE, 0)),
    ("channel-writable-for-reader", "nested-rights", |h| h.nested(ROGUE, CHANNEL, WRITE, 0)),
    ("channel-read-only-for-writer", "nested-rights", |h| h.nested(WARDEN, CHANNEL, 0, WRITE)),
    ("text-writable", "nested-rights", |h| h.nested(ROGUE, 0x20_0000, WRITE, 0)),
    ("data-executable", "nested-rights", |h| h.nested(ROGUE, 0x1000, 0, NO_EXECUTE)),
    ("small-pages-where-large-fit", "page-sizes", |h| {
        // A gibibyte as 512 pages of 2 MiB; the table lies in RAM that nobody has.
        let (table, ram) = (0x7000_0000, h.ram(BIG));
        for n in 0..512 {
            h.memory.change(table + n * 8, (ram + (n << 21)) | ALL | LARGE, u64::MAX);
        }
        h.nested(BIG, 0, table | ALL, u64::MAX);
    }),
    ("cacheability", "encoding", |h| h.nested(ROGUE, 0x1000, 1 << 4, 0)),
    ("reserved-bit", "encoding", |h| h.nested(ROGUE, 0x1000, 1 << 58, 0)),
    ("supervisor-page", "encoding", |h| h.nested(ROGUE, 0x1000, 0, 1 << 2)),
    ("monitor-maps-foreign-ram", "monitor-map", |h| h.lead(ROGUE, h.ram(WARDEN))),
    ("monitor-maps-foreign-ram-shared", "shared-frames", |h| h.lead(ROGUE, h.ram(WARDEN))),
    ("monitor-maps-other-monitor", "monitor-map", |h| {
        h.lead(ROGUE, part(h.baked(), Some(WARDEN), "stacks").start);
    }),
    ("monitor-maps-device", "monitor-map", |h| h.lead(ROGUE, 0xFEC0_0000)),
    ("monitor-maps-its-tables", "tables-unmapped", |h| h.lead(ROGUE, h.audit.monitor_root(ROGUE))),
    ("monitor-maps-nested-table", "tables-unmapped", |h| h.lead(ROGUE, h.audit.nested_root(ROGUE))),
    ("monitor-maps-host-save-area", "tables-unmapped", |h| {
        h.lead(ROGUE, host_save(h.baked(), ROGUE, 1))
    }),
    ("monitor-maps-boot-code", "boot-code-unmapped", |h| h.lead(ROGUE, 0x100_0000 + PAGE)),
    ("monitor-maps-compiled-manifest", "boot-code-unmapped", |h| {
        h.lead(ROGUE, h.baked().map.header)
    }),
    ("monitor-text-writable", "write-xor-execute", |h| h.monitor(ROGUE, TEXT_VA, WRITE, 0)),
    ("monitor-text-alias-writable", "write-xor-execute", |h| {
        h.lead(ROGUE, part(h.baked(), Some(ROGUE), "monitor text").start | WRITE);
    }),
    ("monitor-stack-executable", "monitor-rights", |h| h.monitor(ROGUE, STACK_VA, 0, NO_EXECUTE)),
    ("monitor-config-writable", "monitor-rights", |h| h.monitor(ROGUE, CONFIG_VA, WRITE, 0)),
    ("foreign-mailbox-writable", "monitor-rights", |h| h.monitor(ROGUE, MAILBOX_VA, WRITE, 0)),
    ("start-up-code-writable", "monitor-rights", |h| h.monitor(ROGUE, 0x8000, WRITE, 0)),
    ("monitor-page-taken-away", "monitor-map", |h| h.monitor(ROGUE, STACK_VA, 0, u64::MAX)),
    ("nested-paging-off", "vmcb", |h| h.vmcb(ROGUE, 0, 0x090, 0, 1)),
    ("second-core-without-its-tables", "vmcb", |h| {
        h.vmcb(ROGUE, 1, 0x0B0, h.audit.nested_root(WARDEN), u64::MAX)
    }),
    ("no-msr-intercept", "vmcb", |h| h.vmcb(ROGUE, 1, 0x008, 0, 1 << (32 + 28))),
    ("no-nmi-intercept", "vmcb", |h| h.vmcb(ROGUE, 0, 0x008, 0, 1 << (32 + 1))),
    ("no-stgi-intercept", "vmcb", |h| h.vmcb(ROGUE, 0, 0x010, 0, 1 << 4)),
    ("foreign-address-space", "vmcb", |h| h.vmcb(ROGUE, 0, 0x058, 1, 0xFFFF_FFFF)),
    ("foreign-root-on-core", "host-state", |h| {
        let at = host_save(h.baked(), ROGUE, 1) + 0x550;
        h.memory.change(at, h.audit.monitor_root(WARDEN), u64::MAX);
    }),
    ("core-in-boot-code", "host-state", |h| {
        h.memory.change(host_save(h.baked(), ROGUE, 0) + 0x578, 0x100_1000, u64::MAX);
    }),
    ("boot-codes-descriptors", "host-state", |h| {
        h.memory.change(host_save(h.baked(), ROGUE, 0) + 0x468, 0x100_1000, u64::MAX);
    }),
    ("foreign-port", "ports", |h| {
        let (at, bit) = h.audit.port_bit(ROGUE, 0x3F8);
        h.memory.change(at, 0, bit);
    }),
    ("own-port-closed", "ports", |h| {
        let (at, bit) = h.audit.port_bit(ROGUE, 0x2F8);
        h.memory.change(at, bit, 0);
    }),
    ("port-beyond-the-last", "ports", |h| {
        let (at, bit) = h.audit.port_bit(ROGUE, 0x1_0000);
        h.memory.change(at, 0, bit);
    }),
    ("vm-hsave-readable", "registers", |h| {
        let (at, shift) = h.audit.msr_bits(ROGUE, 0xC001_0117);
        h.memory.change(at, 0, 1 << shift);
    }),
    ("efer-writable", "registers", |h| {
        let (at, shift) = h.audit.msr_bits(ROGUE, 0xC000_0080);
        h.memory.change(at, 0, 2 << shift);
    }),
    ("eoi-trapped", "registers", |h| {
        let (at, shift) = h.audit.msr_bits(ROGUE, 0x80B);
        h.memory.change(at, 2 << shift, 0);
    }),
];
