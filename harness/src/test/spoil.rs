//! Changes to a baked image: damage for the boot code to find, and planted errors. A planted error takes one rule out
//! of the tables that confine a guest.

use bulkhead_arch_x86::vmcb;
use bulkhead_image::Baked;
use bulkhead_layout::image::{BootReport, ConfigOp, Range, Sandbox, checksum};
use bulkhead_layout::map::IMAGE_PA;
use bulkhead_layout::monitor::{Config, Slice};
use bulkhead_layout::pci::{Function, Register};
use bulkhead_layout::record::Op;
use bulkhead_layout::x86::{Header, LineTest};
use bulkhead_plan::{Bdf, IommuKind};
use std::mem::offset_of;
use zerocopy::{FromBytes, IntoBytes};

/// An image's bytes and where things lie in them.
pub struct Spoil<'a> {
    bytes: &'a mut Vec<u8>,
    baked: &'a Baked,
}

const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;
/// In an I/O page table.
const IO_WRITE: u64 = 1 << 62;
/// Address of a table or page in an entry.
pub const ADDRESS: u64 = 0x000F_FFFF_FFFF_F000;

impl<'a> Spoil<'a> {
    pub fn new(bytes: &'a mut Vec<u8>, baked: &'a Baked) -> Self {
        Self { bytes, baked }
    }

    /// A word at a physical address of the image.
    pub fn word(&self, pa: u64) -> u64 {
        let at = (pa - IMAGE_PA) as usize;
        let bytes = self.bytes[at..at + 8].try_into();
        bytes.map_or(0, u64::from_le_bytes)
    }

    pub fn set_word(&mut self, pa: u64, value: u64) {
        let at = (pa - IMAGE_PA) as usize;
        self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// Changes the header.
    pub fn header(&mut self, change: impl FnOnce(&mut Header)) {
        self.at(self.baked.map.header, change);
    }

    /// Changes a sandbox's description.
    pub fn sandbox(&mut self, index: usize, change: impl FnOnce(&mut Sandbox)) {
        let at = size_of::<Header>() + index * size_of::<Sandbox>();
        self.at(self.baked.map.header + at as u64, change);
    }

    fn at<T: FromBytes + IntoBytes>(&mut self, pa: u64, change: impl FnOnce(&mut T)) {
        let at = (pa - IMAGE_PA) as usize;
        let place = &mut self.bytes[at..at + size_of::<T>()];
        let mut value = T::new_zeroed();
        value.as_mut_bytes().copy_from_slice(place);
        change(&mut value);
        place.copy_from_slice(value.as_mut_bytes());
    }

    /// Makes the checksum right again, so that the next check is the one that tells.
    pub fn seal(&mut self) {
        let (start, mut len) = (self.baked.map.header, 0);
        self.header(|h| len = h.sealed);
        let words = (start..start + len).step_by(8).skip(2);
        let sum = checksum(words.map(|pa| self.word(pa)).collect::<Vec<_>>().into_iter());
        self.header(|h| h.checksum = sum);
    }

    /// Flips a bit in the middle of the sealed part.
    pub fn flip(&mut self) {
        let (start, mut len) = (self.baked.map.header, 0);
        self.header(|h| len = h.sealed);
        let middle = start + len / 2 / 8 * 8;
        self.set_word(middle, self.word(middle) ^ 1 << 17);
    }

    fn slice(&self, at: u64) -> Slice {
        let word = self.word(at);
        Slice { offset: word as u32, len: (word >> 32) as u32 }
    }

    /// Where the IOMMU's device table is.
    pub fn device_table(&mut self) -> Range {
        let mut found = Range::default();
        self.header(|h| found = h.iommu.device_table);
        found
    }

    /// Where a requester's entry has its page tables' root, and its messages' table.
    pub fn requester(&mut self, bdf: Bdf) -> (u64, u64) {
        const ENTRY: u64 = 32;
        let at = self.device_table().start + ENTRY * u64::from(bdf.0);
        (at, at + 16)
    }

    /// Where a requester's I/O page tables, its own entry and its interrupt entries are.
    pub fn of_iommu(&mut self, bdf: Bdf) -> [u64; 3] {
        match self.baked.plan.machine.iommu.map(|iommu| iommu.kind) {
            Some(IommuKind::VtD { .. }) => {
                let entry = self.context(bdf);
                [self.word(entry) & ADDRESS, entry, self.interrupts(bdf)[0]]
            }
            _ => {
                let (root, messages) = self.requester(bdf);
                [self.word(root) & ADDRESS, root, self.word(messages) & ADDRESS]
            }
        }
    }

    /// The last value that the boot code writes to a 64-bit register of a VT-d unit.
    pub fn unit(&mut self, offset: u16) -> u64 {
        let sandboxes = self.baked.plan.sandboxes.len() * size_of::<Sandbox>();
        let first = self.baked.map.header + (size_of::<Header>() + sandboxes) as u64;
        let (mut count, mut value) = (0, 0);
        self.header(|h| count = h.config_ops);
        for n in 0..u64::from(count) {
            let mut op = ConfigOp::default();
            self.at(first + n * size_of::<ConfigOp>() as u64, |found: &mut ConfigOp| op = *found);
            let shift = match op.offset.wrapping_sub(offset) {
                _ if op.kind != ConfigOp::SET => continue,
                0 => 0,
                4 => 32,
                _ => continue,
            };
            value = value & !(0xFFFF_FFFF << shift) | u64::from(op.value) << shift;
        }
        value
    }

    /// Where a requester's context entry is.
    pub fn context(&mut self, bdf: Bdf) -> u64 {
        let root = self.unit(0x20) & ADDRESS;
        let table = self.word(root + u64::from(bdf.bus()) * 16) & ADDRESS;
        table + u64::from(bdf.0 & 0xFF) * 16
    }

    /// Where the interrupt entries are that take a requester's messages.
    pub fn interrupts(&mut self, bdf: Bdf) -> Vec<u64> {
        let register = self.unit(0xB8);
        let all = (0..2 << (register & 0xF)).map(|n| (register & ADDRESS) + n * 16);
        let own = |at: &u64| self.word(*at) & PRESENT != 0 && self.word(at + 8) as u16 == bdf.0;
        all.filter(own).collect()
    }

    /// Lets all requesters use the interrupt entries that take one's messages.
    pub fn take_from_all(&mut self, bdf: Bdf) {
        const VALIDATION: u64 = 0b11 << 18;
        for at in self.interrupts(bdf) {
            self.set_word(at + 8, self.word(at + 8) & !VALIDATION);
        }
    }

    /// Takes a requester's interrupt remapping away, so that its messages pass.
    pub fn pass_messages(&mut self, bdf: Bdf) {
        const VALID: u64 = 1;
        let (_, messages) = self.requester(bdf);
        self.set_word(messages, self.word(messages) & !VALID);
        // The IOAPIC's are settled by the boot code.
        self.header(|h| {
            let lines = &mut h.iommu.lines;
            if lines.entry + 16 == messages {
                (lines.seen, lines.unseen) = (lines.seen & !VALID, lines.unseen & !VALID);
            }
        });
    }

    /// Writes what the boot code writes once it has found out about interrupt lines.
    pub fn settle(&mut self, found: u64) {
        let mut test = LineTest::default();
        self.header(|h| test = h.iommu.lines);
        let word = match found {
            BootReport::SEEN => test.seen,
            BootReport::UNSEEN => test.unseen,
            _ => return,
        };
        self.set_word(test.entry + 16, word);
    }

    /// Changes a register of a function that a sandbox sees.
    pub fn register(&mut self, sandbox: usize, bdf: Bdf, offset: u16, to: Register) {
        let is = |p: &&bulkhead_image::Part| {
            p.owner == Some(sandbox) && p.what.starts_with("configuration")
        };
        let config = self.baked.map.parts.iter().find(is).map_or(IMAGE_PA, |p| p.start);
        let functions = self.slice(config + offset_of!(Config, functions) as u64);
        for n in 0..u64::from(functions.len) {
            let function = config + u64::from(functions.offset) + n * size_of::<Function>() as u64;
            let registers = self.slice(function + offset_of!(Function, registers) as u64);
            let mut same = false;
            self.at(function, |f: &mut Function| same = f.bdf == u32::from(bdf.0));
            for m in 0..u64::from(if same { registers.len } else { 0 }) {
                let at = config + u64::from(registers.offset) + m * size_of::<Register>() as u64;
                self.at(at, |r: &mut Register| {
                    if r.offset == offset {
                        *r = Register { offset, ..to };
                    }
                });
            }
        }
    }

    /// The last entry of a requester's I/O page tables for an address.
    fn io_entry(&mut self, bdf: Bdf, gpa: u64) -> u64 {
        let (root, _) = self.requester(bdf);
        let mut table = self.word(root) & ADDRESS;
        for level in (0..4).rev() {
            let at = table + (gpa >> (12 + 9 * level) & 511) * 8;
            let entry = self.word(at);
            // The number of the level below; 0: a page.
            if level == 0 || entry & PRESENT == 0 || entry >> 9 & 7 == 0 {
                return at;
            }
            table = entry & ADDRESS;
        }
        table
    }

    /// Lets a requester write where its I/O page tables map an address.
    pub fn let_write(&mut self, bdf: Bdf, gpa: u64) {
        let at = self.io_entry(bdf, gpa);
        let entry = self.word(at);
        if entry & PRESENT != 0 {
            self.set_word(at, entry | IO_WRITE);
        }
    }

    /// Lets a requester read and write at an address of the machine: a page of the
    /// size at which its tables have room for it.
    pub fn let_reach(&mut self, bdf: Bdf, pa: u64, size: u64) {
        const IO_READ: u64 = 1 << 61;
        let at = self.io_entry(bdf, pa);
        self.set_word(at, pa & !(size - 1) | PRESENT | IO_READ | IO_WRITE);
    }

    /// Where the value lies that a sandbox's VMCBs get at an offset: for a first
    /// core's launch, and for a further core's.
    fn stores(&self, sandbox: usize, offset: u16) -> Vec<u64> {
        let is = |p: &&bulkhead_image::Part| {
            p.owner == Some(sandbox) && p.what.starts_with("configuration")
        };
        let parts = self.baked.map.parts.iter();
        let config = parts.filter(is).map(|p| p.start).next().unwrap_or(IMAGE_PA);
        let slice = |field: usize| self.slice(config + field as u64);
        let slices = [offset_of!(Config, start.first_state), offset_of!(Config, start.other_state)]
            .map(slice);
        let ops = slices.into_iter().flat_map(|s| {
            (0..u64::from(s.len))
                .map(move |n| config + u64::from(s.offset) + n * size_of::<Op>() as u64)
        });
        let is = |op: &u64| self.word(op + offset_of!(Op, dst) as u64) == u64::from(offset);
        ops.filter(is).map(|op| op + offset_of!(Op, src) as u64).collect()
    }

    /// Reads the value that a sandbox's VMCBs get at an offset.
    pub fn vmcb(&self, sandbox: usize, offset: u16) -> u64 {
        self.stores(sandbox, offset).first().map_or(0, |&pa| self.word(pa))
    }

    /// Takes bits out of what a sandbox's VMCBs get at an offset.
    pub fn without(&mut self, sandbox: usize, offset: u16, bits: u64) {
        for pa in self.stores(sandbox, offset) {
            self.set_word(pa, self.word(pa) & !bits);
        }
    }

    /// Takes intercepts away, numbered as in `vmcb::intercept`.
    pub fn without_intercepts(&mut self, sandbox: usize, bits: u64) {
        self.without(sandbox, vmcb::INTERCEPT_LOW, bits << 32);
        self.without(sandbox, vmcb::INTERCEPT_HIGH, bits >> 32);
    }

    /// Lets a sandbox use a port.
    pub fn allow_port(&mut self, sandbox: usize, port: u16) {
        let at = self.vmcb(sandbox, vmcb::IOPM) + u64::from(port / 64 * 8);
        self.set_word(at, self.word(at) & !(1 << (port % 64)));
    }

    /// Lets a sandbox read and write an MSR.
    pub fn allow_msr(&mut self, sandbox: usize, msr: u32) {
        let Some(bit) = bulkhead_arch_x86::bitmap::msr_bit(msr) else {
            return;
        };
        let at = self.vmcb(sandbox, vmcb::MSRPM) + bit as u64 / 64 * 8;
        self.set_word(at, self.word(at) & !(0b11 << (bit % 64)));
    }

    /// The entry of a sandbox's nested tables for an address, wherever the walk ends.
    pub fn entry(&self, sandbox: usize, gpa: u64) -> u64 {
        let mut table = self.vmcb(sandbox, vmcb::N_CR3);
        for level in (0..4).rev() {
            let at = table + (gpa >> (12 + 9 * level) & 511) * 8;
            let entry = self.word(at);
            if level == 0 || entry & PRESENT == 0 || entry & LARGE != 0 && level < 3 {
                return at;
            }
            table = entry & ADDRESS;
        }
        table
    }

    /// Maps an address to a machine's one, with all rights, as a page of the size
    /// at which the tables have room for it.
    pub fn expose(&mut self, sandbox: usize, gpa: u64, hpa: u64, size: u64) {
        const ALL: u64 = 0b111;
        let at = self.entry(sandbox, gpa);
        self.set_word(at, hpa & !(size - 1) | ALL | if size > 4096 { LARGE } else { 0 });
    }

    /// Changes rights in the entry for an address.
    pub fn rights(&mut self, sandbox: usize, gpa: u64, set: u64, clear: u64) {
        let at = self.entry(sandbox, gpa);
        self.set_word(at, self.word(at) & !clear | set);
    }
}
