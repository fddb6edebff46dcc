//! One wrong entry of each kind, planted in a copy of a machine's memory or
//! registers: the auditor has to find each by its rule. Where things lie is asked of
//! the image's builder here, so that a plant does not depend on what it tests.

mod card;
mod late;
mod store;
mod vmx;
mod vtd;

pub use card::PLANTS as CARD;
pub use late::PLANTS as LATE;
pub use store::PLANTS as STORE;
pub use vmx::plants as vmx;
pub use vtd::PLANTS as VTD;

use bulkhead_audit::claim::Range;
use bulkhead_audit::memory::Words;
use bulkhead_audit::paging::entry_at;
use bulkhead_audit::vmcs::Vmcs;
use bulkhead_audit::{Claim, Memory, RamFile, Registers};
use bulkhead_image::{Baked, Part};
use bulkhead_layout::image::Sandbox;
use bulkhead_layout::x86::Header;
use bulkhead_plan::{Arch, Channel};
use std::collections::BTreeMap;
use std::mem::offset_of;

const PAGE: u64 = 4096;

/// A machine's memory with some words changed.
pub struct Planted<'a> {
    pub base: &'a RamFile,
    pub changes: BTreeMap<u64, u64>,
}

impl Memory for Planted<'_> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let there = self.base.read(address, bytes);
        let end = address + bytes.len() as u64;
        for (&at, word) in self.changes.range(address.saturating_sub(7)..end) {
            for (n, byte) in
                (at..).zip(word.to_le_bytes()).filter(|(n, _)| (address..end).contains(n))
            {
                bytes[(n - address) as usize] = byte;
            }
        }
        there
    }

    fn data(&self) -> Vec<Range> {
        self.base.data()
    }
}

impl Planted<'_> {
    fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn change(&mut self, at: u64, set: u64, clear: u64) {
        let word = self.word(at) & !clear | set;
        self.changes.insert(at, word);
    }
}

/// Name, the rule that finds it, what is planted.
pub type Plant = (&'static str, &'static str, fn(&mut Hand));

/// Plants.
pub struct Hand<'a> {
    pub memory: Planted<'a>,
    pub baked: &'a Baked,
    pub claim: Claim,
    pub registers: Registers,
}

const WRITE: u64 = 1 << 1;
const NO_EXECUTE: u64 = 1 << 63;
const ALL: u64 = 0b111;
/// Present, a user's, not executable.
const READ: u64 = 0b101 | NO_EXECUTE;
const LARGE: u64 = 1 << 7;
/// Sandboxes of the audited system.
const WARDEN: usize = 0;
const ROGUE: usize = 1;
const BIG: usize = 2;
const INFO: u64 = 0xD000_0000;
const CHANNEL: u64 = 0xD200_0000;
/// Shared registers: a page of warden's that the big one reads, and one with ranges of both.
const PANEL: u64 = 0xFED1_D000;
const DIALS: u64 = 0xFED1_E000;
const TEXT_VA: u64 = 0xFFFF_FFFF_8000_0000;
const CONFIG_VA: u64 = 0xFFFF_FFFF_8010_0000;
const MAILBOX_VA: u64 = 0xFFFF_FFFF_8040_0000;
const LINK_TABLES_VA: u64 = 0xFFFF_FFFF_80A0_0000;
const GUEST_VA: u64 = 0xFFFF_9000_0000_0000;
const STACK_VA: u64 = 0xFFFF_FFFF_8050_2000;
/// An address behind the configuration, unmapped, but under its last table.
const FREE_VA: u64 = 0xFFFF_FFFF_8017_F000;

/// 00:08.0, rogue's; 00:1f.2, nobody's.
const EDU: u64 = 0x40;
const IDLE: u64 = 0xFA;
/// As which function the IOAPIC sends, where the IOMMU lets its messages pass.
const IOAPIC: u64 = 0xA0;
/// EFER.
const EFER: u64 = 0xC000_0080;

/// A part of the image, by its owner and the beginning of its name.
fn part<'a>(baked: &'a Baked, owner: Option<usize>, what: &str) -> &'a Part {
    let found = baked.map.parts.iter().find(|p| p.owner == owner && p.what.starts_with(what));
    found.unwrap_or_else(|| panic!("the image has no part {what:?} of {owner:?}"))
}

/// Where a core's VMCB lies.
fn vmcb(baked: &Baked, sandbox: usize, core: usize) -> u64 {
    const STACK: u64 = 0x2000;
    let cores = baked.plan.sandboxes[sandbox].cores.len() as u64;
    part(baked, Some(sandbox), "stacks").start + cores * STACK + core as u64 * PAGE
}

/// Where a core's host state is saved.
fn host_save(baked: &Baked, sandbox: usize, core: usize) -> u64 {
    part(baked, Some(sandbox), "host save").start + core as u64 * PAGE
}

impl Hand<'_> {
    fn ram(&self, sandbox: usize) -> u64 {
        self.baked.plan.sandboxes[sandbox].ram[0].hpa
    }

    /// A channel's region.
    fn region(&self, title: &str) -> &Channel {
        let mut all = self.baked.plan.channels.iter();
        all.find(|region| region.title() == title).expect("a channel of the audited system")
    }

    fn part(&self, sandbox: usize, what: &str) -> u64 {
        part(self.baked, Some(sandbox), what).start
    }

    /// Root of a sandbox's monitor's tables, from the compiled manifest.
    fn monitor_root(&self, sandbox: usize) -> u64 {
        let at = size_of::<Header>()
            + sandbox * size_of::<Sandbox>()
            + offset_of!(Sandbox, monitor_root);
        self.memory.word(self.baked.map.header + at as u64)
    }

    /// Root of a sandbox's nested tables, from its first core's control block.
    fn nested_root(&self, sandbox: usize) -> u64 {
        self.memory.word(self.block(sandbox, vmx::EPT_POINTER, 0x0B0)) & !(PAGE - 1)
    }

    /// Address of a field of a first core's VMCS, or of a VMCB's at an offset.
    fn block(&self, sandbox: usize, field: u16, offset: u64) -> u64 {
        let at = vmcb(self.baked, sandbox, 0);
        match self.baked.plan.machine.arch {
            Arch::Vmx => Vmcs::new(&Words::new(&self.memory), at).address(field),
            _ => at + offset,
        }
    }

    /// A port's word and bit in the I/O permission map. VT-x' second bitmap follows the first.
    fn port(&self, sandbox: usize, port: u64) -> (u64, u64) {
        let map = self.memory.word(self.block(sandbox, vmx::IO_BITMAP_A, 0x040));
        (map + port / 64 * 8, 1 << (port % 64))
    }

    /// An MSR's word in its permission map, and where its two bits are.
    fn msr(&self, sandbox: usize, msr: u64) -> (u64, u64) {
        let map = self.memory.word(vmcb(self.baked, sandbox, 0) + 0x048);
        let vector = match msr >> 16 {
            0xC000 => 0x800,
            0xC001 => 0x1000,
            _ => 0,
        };
        let bit = (msr & 0x1FFF) * 2;
        (map + vector + bit / 64 * 8, bit % 64)
    }

    fn nested(&mut self, sandbox: usize, gpa: u64, set: u64, clear: u64) {
        let (words, format) = (Words::new(&self.memory), self.claim.arch.nested());
        let at = entry_at(&words, format, self.nested_root(sandbox), gpa);
        self.memory.change(at, set, clear);
    }

    /// An entry of the link.
    fn link(&mut self, sandbox: usize, at: u64, entry: u64) {
        self.nested(sandbox, self.baked.plan.links[0].gpa + at, entry, u64::MAX);
    }

    /// A page of RAM leads to a frame.
    fn show(&mut self, frame: u64) {
        self.nested(ROGUE, 0x1000, frame | ALL, u64::MAX);
    }

    /// Entries of a guest's tables, and a word of its own memory, are text that a terminal would obey.
    pub fn forge(&mut self) {
        const TEXT: u64 = u64::from_le_bytes(*b"\x1b]0;own\x07");
        self.link(ROGUE, 0, TEXT);
        self.show(TEXT & 0x000F_FFFF_FFFF_F000);
        let ram = self.baked.plan.sandboxes[ROGUE].ram[0].hpa;
        self.memory.change(ram, TEXT, u64::MAX);
    }

    fn monitor(&mut self, sandbox: usize, va: u64, set: u64, clear: u64) {
        let words = Words::new(&self.memory);
        let at = entry_at(&words, self.claim.arch.own(), self.monitor_root(sandbox), va);
        self.memory.change(at, set, clear);
    }

    /// An unused page of rogue's monitor leads to a frame.
    fn lead(&mut self, frame: u64) {
        self.monitor(ROGUE, FREE_VA, frame | 1 | NO_EXECUTE, u64::MAX);
    }

    fn vmcb(&mut self, core: usize, field: u64, set: u64, clear: u64) {
        self.memory.change(vmcb(self.baked, ROGUE, core) + field, set, clear);
    }

    /// Changes the host's state behind a core of rogue's.
    fn host(&mut self, core: usize, field: u64, value: u64) {
        self.memory.change(host_save(self.baked, ROGUE, core) + field, value, u64::MAX);
    }

    /// Changes an MSR's bits in rogue's map: 1 reads, 2 writes.
    fn msr_bits(&mut self, msr: u64, set: u64, clear: u64) {
        let (at, shift) = self.msr(ROGUE, msr);
        self.memory.change(at, set << shift, clear << shift);
    }

    /// Where a quadword of a function's device table entry lies, and the address in it.
    fn entry(&self, bdf: u64, quad: u64) -> (u64, u64) {
        const ADDRESS: u64 = 0x000F_FFFF_FFFF_F000;
        let table = self.registers.own.iommu.as_ref().map_or(0, |i| i.device_table & ADDRESS);
        let at = table + bdf * 32 + quad * 8;
        (at, self.memory.word(at) & ADDRESS)
    }

    /// Changes a function's device table entry.
    fn device(&mut self, bdf: u64, quad: u64, set: u64, clear: u64) {
        self.memory.change(self.entry(bdf, quad).0, set, clear);
    }

    /// Writes a redirection entry of the IOAPIC.
    fn line(&mut self, pin: usize, entry: u64) {
        if let Some(ioapic) = &mut self.registers.own.ioapic {
            ioapic.entries[pin] = entry;
        }
    }

    /// Returns a core's registers.
    fn core(&mut self, number: usize) -> &mut bulkhead_audit::registers::Core {
        let mut cores = self.registers.cores.iter_mut();
        cores.find(|c| c.number == number).unwrap_or_else(|| panic!("there is no core {number}"))
    }
}

pub static PLANTS: &[Plant] = &[
    ("foreign-ram", "nested-map", |h| h.show(h.ram(WARDEN))),
    ("foreign-ram-shared", "shared-frames", |h| h.show(h.ram(WARDEN))),
    ("own-frames-swapped", "nested-map", |h| h.show(h.ram(ROGUE))),
    ("beyond-ram", "nested-map", |h| {
        let memory = 8 << 20;
        h.nested(ROGUE, memory, (h.ram(ROGUE) + memory) | ALL | LARGE, u64::MAX);
    }),
    ("apic-page", "nested-map", |h| {
        h.nested(ROGUE, 0xFEE0_0000, 0xFEE0_0000 | ALL | LARGE, u64::MAX)
    }),
    ("monitor-text-for-guest", "nested-map", |h| {
        h.show(h.part(WARDEN, "monitor text"));
    }),
    ("nested-table-for-guest", "tables-unmapped", |h| h.show(h.nested_root(ROGUE))),
    ("port-map-for-guest", "tables-unmapped", |h| h.show(h.port(ROGUE, 0).0)),
    ("boot-code-for-guest", "boot-code-unmapped", |h| h.show(0x100_0000)),
    ("page-taken-away", "nested-missing", |h| h.nested(ROGUE, 0x1000, 0, u64::MAX)),
    ("gibibyte-taken-away", "nested-missing", |h| h.nested(BIG, 0, 0, u64::MAX)),
    ("foreign-registers", "shared-frames", |h| h.show(PANEL)),
    ("foreign-registers-of-ranges", "nested-map", |h| h.show(DIALS)),
    ("registers-writable-for-reader", "nested-rights", |h| h.nested(BIG, PANEL, WRITE, 0)),
    ("monitor-maps-foreign-registers", "shared-frames", |h| h.lead(DIALS)),
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
    ("receipts-writable-for-sender", "nested-rights", |h| {
        h.nested(ROGUE, h.region("calls rx").gpa, WRITE, 0);
    }),
    ("program-writable-for-its-reader", "nested-rights", |h| {
        h.nested(BIG, h.region("lessons").gpa, WRITE, 0);
    }),
    ("program-writable-for-its-readers-monitor", "monitor-rights", |h| {
        h.monitor(BIG, GUEST_VA + h.region("lessons").gpa, WRITE, 0);
    }),
    ("armed-word-writable-for-senders-monitor", "monitor-rights", |h| {
        h.monitor(ROGUE, GUEST_VA + h.region("calls rx").gpa, WRITE, 0);
    }),
    ("end-read-only-for-its-monitor", "monitor-rights", |h| {
        h.monitor(ROGUE, GUEST_VA + h.region("calls tx").gpa, 0, WRITE);
    }),
    ("link-for-two-others", "shared-frames", |h| {
        h.link(ROGUE, 0, h.baked.plan.links[0].hpa | READ);
        h.link(BIG, 0, h.baked.plan.links[0].hpa | READ);
    }),
    ("link-writable-for-other", "nested-rights", |h| {
        h.link(ROGUE, 0, h.baked.plan.links[0].hpa | READ | WRITE);
    }),
    ("link-executable", "nested-rights", |h| {
        h.link(WARDEN, 0, h.baked.plan.links[0].hpa | ALL);
    }),
    ("link-leads-elsewhere", "nested-map", |h| h.link(ROGUE, 0, h.ram(WARDEN) | READ)),
    ("link-longer-than-it-is", "nested-map", |h| {
        let len = h.baked.plan.links[0].len;
        h.link(ROGUE, len, (h.baked.plan.links[0].hpa + len) | READ);
    }),
    ("link-taken-by-text", "nested-map", |h| {
        h.link(ROGUE, 0, h.part(ROGUE, "monitor text") | READ);
    }),
    ("link-left-behind", "links", |h| h.link(WARDEN, 0, h.baked.plan.links[0].hpa | READ | WRITE)),
    ("link-replaced-by-monitors-stack", "nested-map", |h| {
        let at = h.baked.plan.links[0].len - PAGE;
        h.link(ROGUE, at, h.part(ROGUE, "stacks") | READ | WRITE);
    }),
    ("link-replaced-by-anothers-page", "nested-map", |h| {
        let (at, image) = (h.baked.plan.links[0].len - PAGE, h.baked.plan.image);
        let frame = image.start + image.len - PAGE;
        for guest in [ROGUE, BIG] {
            h.link(guest, at, frame | READ | WRITE);
        }
    }),
    ("link-for-others-monitor", "monitor-map", |h| h.lead(h.baked.plan.links[0].hpa)),
    ("monitor-has-other-table-for-link", "tables-unmapped", |h| {
        h.monitor(ROGUE, LINK_TABLES_VA, h.nested_root(ROGUE) | 1 | WRITE | NO_EXECUTE, u64::MAX);
    }),
    ("monitor-maps-messages", "monitor-map", |h| h.lead(h.region("calls tx").hpa + PAGE)),
    ("monitor-maps-foreign-ram", "monitor-map", |h| h.lead(h.ram(WARDEN))),
    ("monitor-maps-foreign-ram-shared", "shared-frames", |h| h.lead(h.ram(WARDEN))),
    ("monitor-maps-other-monitor", "monitor-map", |h| {
        h.lead(h.part(WARDEN, "stacks"));
    }),
    ("monitor-maps-device", "monitor-map", |h| h.lead(0xFED0_0000)),
    ("monitor-maps-local-apic", "monitor-map", |h| h.lead(0xFEE0_0000)),
    ("monitor-without-lines-maps-ioapic", "monitor-map", |h| {
        h.claim.sandboxes[ROGUE].lines.clear();
        h.lead(0xFEC0_0000);
    }),
    ("monitor-maps-its-tables", "tables-unmapped", |h| h.lead(h.monitor_root(ROGUE))),
    ("monitor-maps-nested-table", "tables-unmapped", |h| h.lead(h.nested_root(ROGUE))),
    ("monitor-maps-host-save-area", "tables-unmapped", |h| h.lead(host_save(h.baked, ROGUE, 1))),
    ("monitor-maps-boot-code", "boot-code-unmapped", |h| h.lead(0x100_0000 + PAGE)),
    ("monitor-maps-compiled-manifest", "boot-code-unmapped", |h| h.lead(h.baked.map.header)),
    ("monitor-text-writable", "write-xor-execute", |h| h.monitor(ROGUE, TEXT_VA, WRITE, 0)),
    ("monitor-text-alias-writable", "write-xor-execute", |h| {
        h.lead(h.part(ROGUE, "monitor text") | WRITE);
    }),
    ("monitor-stack-executable", "monitor-rights", |h| h.monitor(ROGUE, STACK_VA, 0, NO_EXECUTE)),
    ("monitor-config-writable", "monitor-rights", |h| h.monitor(ROGUE, CONFIG_VA, WRITE, 0)),
    ("foreign-mailbox-writable", "monitor-rights", |h| h.monitor(ROGUE, MAILBOX_VA, WRITE, 0)),
    ("start-up-code-writable", "monitor-rights", |h| h.monitor(ROGUE, 0x8000, WRITE, 0)),
    ("monitor-page-taken-away", "monitor-map", |h| h.monitor(ROGUE, STACK_VA, 0, u64::MAX)),
    ("nested-paging-off", "control-block", |h| h.vmcb(0, 0x090, 0, 1)),
    ("second-core-without-its-tables", "control-block", |h| {
        h.vmcb(1, 0x0B0, h.nested_root(WARDEN), u64::MAX)
    }),
    ("no-msr-intercept", "registers", |h| h.vmcb(1, 0x008, 0, 1 << (32 + 28))),
    ("no-nmi-intercept", "doorbell", |h| h.vmcb(0, 0x008, 0, 1 << (32 + 1))),
    ("no-stgi-intercept", "instructions", |h| h.vmcb(0, 0x010, 0, 1 << 4)),
    ("no-debug-exception-intercept", "exceptions", |h| h.vmcb(1, 0x008, 0, 1 << 1)),
    ("no-invd-intercept", "cache-instructions", |h| h.vmcb(0, 0x008, 0, 1 << (32 + 22))),
    ("no-shutdown-intercept", "shutdown", |h| h.vmcb(0, 0x008, 0, 1 << (32 + 31))),
    ("foreign-address-space", "control-block", |h| h.vmcb(0, 0x058, 1, 0xFFFF_FFFF)),
    ("foreign-root-on-core", "host-state", |h| {
        h.host(1, 0x550, h.monitor_root(WARDEN));
    }),
    ("core-in-boot-code", "host-state", |h| {
        h.host(0, 0x578, 0x100_1000);
    }),
    ("boot-codes-descriptors", "host-state", |h| {
        h.host(0, 0x468, 0x100_1000);
    }),
    ("foreign-port", "ports", |h| {
        let (at, bit) = h.port(ROGUE, 0x3F8);
        h.memory.change(at, 0, bit);
    }),
    ("own-port-closed", "ports", |h| {
        let (at, bit) = h.port(ROGUE, 0x2F8);
        h.memory.change(at, bit, 0);
    }),
    ("port-beyond-the-last", "ports", |h| {
        let (at, bit) = h.port(ROGUE, 0x1_0000);
        h.memory.change(at, 0, bit);
    }),
    ("vm-hsave-readable", "registers", |h| {
        h.msr_bits(0xC001_0117, 0, 1);
    }),
    ("efer-writable", "registers", |h| {
        h.msr_bits(EFER, 0, 2);
    }),
    ("eoi-trapped", "registers", |h| {
        h.msr_bits(0x80B, 2, 0);
    }),
    ("monitor-text-changed", "monitor-text", |h| {
        h.memory.change(h.part(ROGUE, "monitor text") + 0x40, 0, u64::MAX);
    }),
    ("other-mailboxes", "monitor-map", |h| {
        h.monitor(ROGUE, MAILBOX_VA, h.part(ROGUE, "stacks") | 1 | NO_EXECUTE, u64::MAX);
    }),
    ("foreign-control-block", "control-block", |h| {
        let (page, block) = (h.ram(BIG) - PAGE, vmcb(h.baked, ROGUE, 1));
        (0..PAGE).step_by(8).for_each(|n| {
            let word = h.memory.word(block + n);
            h.memory.change(page + n, word, u64::MAX);
        });
        h.host(1, 0x5F8, page);
    }),
    ("two-hosts-on-one-control-block", "host-state", |h| {
        h.host(1, 0x5F8, vmcb(h.baked, WARDEN, 0));
    }),
    ("no-host-behind-a-guest", "host-state", |h| h.host(0, 0x4D0, 0)),
    ("core-in-another-guest", "core-state", |h| {
        let linux = h.core(4).clone();
        *h.core(1) = bulkhead_audit::registers::Core { number: 1, ..linux };
    }),
    ("spare-core-awake", "core-state", |h| {
        let number = 5;
        h.registers.cores.push(bulkhead_audit::registers::Core { number, ..Default::default() });
    }),
    ("core-that-is-not-there", "core-state", |h| h.registers.cores.retain(|c| c.number != 3)),
    ("legacy-line-open", "line-owner", |h| h.registers.own.pic_masks = Some([0xFE, 0xFF])),
    ("line-of-nobody", "line-owner", |h| h.line(9, 0x0100_0000_0000_0030)),
    ("line-to-foreign-core", "line-core", |h| {
        h.device(IOAPIC, 2, 1 | 1 << 60, 3 << 60);
        h.line(3, 0x0000_0000_0000_0030);
    }),
    ("line-as-smi", "line-mode", |h| {
        h.device(IOAPIC, 2, 1 | 1 << 60, 3 << 60);
        h.line(3, 0x0100_0000_0000_0230);
    }),
    ("line-as-level", "line-mode", |h| h.line(3, 0x0100_0000_0000_8030)),
    ("frames-not-described", "frames", |h| {
        h.claim.reserved.retain(|r| !r.1.contains(0));
    }),
    ("iommu-off", "iommu-control", |h| {
        h.registers.own.iommu.iter_mut().for_each(|i| i.control = 0);
    }),
    ("unowned-function-not-valid", "device-table", |h| h.device(IDLE, 0, 0, 1)),
    ("owned-function-untranslated", "dma-map", |h| h.device(EDU, 0, 0, 7 << 9)),
    ("unowned-function-with-tables", "dma-map", |h| {
        let (at, _) = h.entry(EDU, 0);
        let entry = h.memory.word(at);
        h.device(IDLE, 0, entry, 0);
    }),
    ("dma-reads-only", "dma-rights", |h| h.device(EDU, 0, 0, 1 << 62)),
    ("dma-taken-away", "dma-missing", |h| h.device(EDU, 0, 0, 3 << 61)),
    ("messages-pass", "dma-messages", |h| h.device(EDU, 2, 1 << 60, 3 << 60)),
    ("message-to-foreign-core", "message-core", |h| {
        let (_, table) = h.entry(EDU, 2);
        h.memory.change(table, 1 | 0x31 << 16, u64::MAX);
    }),
    ("remapping-table-for-guest", "tables-unmapped", |h| h.show(h.entry(EDU, 2).1)),
    ("device-table-for-monitor", "tables-unmapped", |h| h.lead(h.entry(0, 0).0)),
];
