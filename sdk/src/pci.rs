//! PCI functions of the sandbox: its own at their physical addresses, and nothing else. Finding and setting up costs
//! exits; a driver's later use of its registers, its memory and its interrupts costs none.
//!
//! A device's addresses are guest-physical ones, which are also this program's. It may read and write the sandbox's RAM
//! and channels, with their rights, and nothing else. Registers above 4 GiB need [`crate::paging::map_everything`].

use crate::arch::{Architecture, This};
use crate::interrupt::{self, Handler};
use bulkhead_guest::Moved;
use bulkhead_layout::map::ECAM_GPA;

/// Registers of every function's configuration space (PCI 3.0, 6.1).
pub mod register {
    /// Vendor in the lower half, device in the upper.
    pub const ID: u16 = 0x00;
    /// Command in the lower half, status in the upper.
    pub const COMMAND: u16 = 0x04;
    /// Class, subclass and interface above the revision.
    pub const CLASS: u16 = 0x08;
    /// Header type in bits 23:16; its bit 7: there are more functions.
    pub const HEADER: u16 = 0x0C;
    /// First base address register.
    pub const BAR: u16 = 0x10;
    /// Offset of the first capability, in its lowest byte.
    pub const CAPABILITIES: u16 = 0x34;
}

/// [`register::COMMAND`]: the function answers in memory.
pub const MEMORY: u32 = 1 << 1;
/// [`register::COMMAND`]: the function may access memory and send messages.
pub const BUS_MASTER: u32 = 1 << 2;
/// ID of the MSI capability.
pub const MSI: u8 = 0x05;
/// ID of the MSI-X capability.
pub const MSIX: u8 = 0x11;
/// Value of a read of an absent register.
pub const ABSENT: u32 = u32::MAX;

/// A function: bus in bits 15:8, device in 7:3, function in 2:0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(pub u16);

/// All functions that the sandbox sees on the first `buses` buses: its own, bridges
/// above them, placeholders.
pub fn all(buses: u16) -> impl Iterator<Item = Function> {
    let there = |f: &Function| f.read(register::ID) != ABSENT;
    (0..buses << 8).map(Function).filter(there)
}

/// The first function with this vendor and device on the first two buses.
#[must_use]
pub fn find(vendor: u16, device: u16) -> Option<Function> {
    let id = u32::from(vendor) | u32::from(device) << 16;
    all(2).find(|f| f.read(register::ID) == id)
}

/// The first function of this class (class, subclass and interface, as 0x010802)
/// on the first two buses.
#[must_use]
pub fn find_class(class: u32) -> Option<Function> {
    all(2).find(|f| f.read(register::CLASS) >> 8 == class)
}

impl Function {
    /// Address of its configuration page.
    #[must_use]
    pub const fn page(self) -> u64 {
        ECAM_GPA + ((self.0 as u64) << 12)
    }

    /// Reads a 32-bit register; `offset` is a multiple of 4 below 4096.
    #[must_use]
    pub fn read(self, offset: u16) -> u32 {
        // SAFETY: configuration space, which the first page tables map; a read
        // there changes nothing that this program relies on.
        unsafe { u32::load(self.page() + u64::from(offset & 0xFFC)) }
    }

    /// Writes a 32-bit register. A write that the sandbox may not make is denied.
    pub fn write(self, offset: u16, value: u32) {
        // SAFETY: configuration space, which the first page tables map. A function that this lets go has its DMA
        // confined to addresses that its owner's drivers name.
        unsafe { value.store(self.page() + u64::from(offset & 0xFFC)) }
    }

    /// Offset of its first capability with this ID.
    #[must_use]
    pub fn capability(self, id: u8) -> Option<u16> {
        // A list of 48 entries fills the space: more would be a loop.
        let mut at = self.read(register::CAPABILITIES) as u16 & 0xFC;
        for _ in 0..48 {
            if at < 0x40 {
                return None;
            }
            let head = self.read(at);
            if head as u8 == id {
                return Some(at);
            }
            at = (head >> 8) as u16 & 0xFC;
        }
        None
    }

    /// Address of memory BAR `number`, 0 to 5. `None` if it is one of ports, the
    /// upper half of another one, or absent.
    #[must_use]
    pub fn bar(self, number: u16) -> Option<u64> {
        let at = register::BAR + 4 * number;
        let low = self.read(at);
        if number > 5 || low & 1 != 0 {
            return None;
        }
        let wide = low >> 1 & 3 == 2 && number < 5;
        let high = if wide { self.read(at + 4) } else { 0 };
        let address = u64::from(low & !0xF) | u64::from(high) << 32;
        (address != 0).then_some(address)
    }

    /// Lets it answer in memory, access memory and send messages.
    pub fn enable(self) {
        self.write(register::COMMAND, MEMORY | BUS_MASTER);
    }

    /// Entries of its MSI-X table.
    #[must_use]
    pub fn msix_vectors(self) -> u16 {
        let control = self.capability(MSIX).map_or(0, |at| self.read(at) >> 16);
        if control == 0 { 0 } else { (control as u16 & 0x7FF) + 1 }
    }

    /// Lets an entry of its MSI-X table raise an interrupt on the core with this
    /// hardware ID, sets the handler, and switches MSI-X on. False if there is no such
    /// entry. A core of another sandbox is denied. Call [`Self::enable`] before.
    pub fn msix(self, entry: u16, core: u32, number: u8, handler: Handler) -> bool {
        const ENABLE: u32 = 1 << 31;
        const MASK_ALL: u32 = 1 << 30;
        if entry >= self.msix_vectors() {
            return false;
        }
        let Some(at) = self.capability(MSIX) else { return false };
        let place = self.read(at + 4);
        let Some(bar) = self.bar(place as u16 & 7) else { return false };
        interrupt::set(number, handler);
        let entry = bar + u64::from(place & !7) + 16 * u64::from(entry);
        let [address, upper, data] = This::message(core, number);
        for (offset, value) in [(12, 1), (0, address), (4, upper), (8, data), (12, 0)] {
            // SAFETY: its MSI-X table (PCI 3.0, 6.8.2), where the monitor checks each write; the interrupt has its
            // handler.
            unsafe { value.store(entry + offset) }
        }
        self.write(at, self.read(at) & !MASK_ALL | ENABLE);
        true
    }

    /// Lets its MSI raise an interrupt on the core with this hardware ID, and sets the
    /// handler. False if it has no MSI. A core of another sandbox is denied.
    pub fn msi(self, core: u32, number: u8, handler: Handler) -> bool {
        const ENABLE: u32 = 1 << 16;
        const WIDE: u32 = 1 << 23;
        let Some(at) = self.capability(MSI) else { return false };
        let control = self.read(at);
        self.write(at, control & !ENABLE);
        interrupt::set(number, handler);
        let [address, upper, data] = This::message(core, number);
        self.write(at + 4, address);
        if control & WIDE != 0 {
            self.write(at + 8, upper);
            self.write(at + 12, data);
        } else {
            self.write(at + 8, data);
        }
        self.write(at, control | ENABLE);
        true
    }
}
