//! PCI functions, the IOMMU and the interrupt controller, as the machine description has them
//! and as the manifest grants them.

use crate::{Facts, Place, Ports, Span};
use std::fmt;
use std::str::FromStr;

/// Bus, device and function of a PCI function, as a requester ID: bus in bits
/// 15:8, device in 7:3, function in 2:0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bdf(pub u16);

impl Bdf {
    /// Its bus.
    #[must_use]
    pub const fn bus(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Its device on that bus, 0 to 31.
    #[must_use]
    pub const fn device(self) -> u8 {
        (self.0 >> 3) as u8 & 0x1F
    }

    /// Its function in that device, 0 to 7.
    #[must_use]
    pub const fn function(self) -> u8 {
        self.0 as u8 & 7
    }

    /// Function 0 of its device.
    #[must_use]
    pub const fn first(self) -> Self {
        Self(self.0 & !7)
    }
}

impl fmt::Display for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}:{:02x}.{}", self.bus(), self.device(), self.function())
    }
}

impl FromStr for Bdf {
    type Err = String;

    /// `"00:1f.2"`; segment `0000:` may precede it.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no bus, device and function such as `00:1f.2`");
        let short = text.strip_prefix("0000:").unwrap_or(text);
        let (bus, rest) = short.split_once(':').ok_or_else(wrong)?;
        let (device, function) = rest.split_once('.').ok_or_else(wrong)?;
        let number = |digits: &str, len: usize, max: u16| {
            let plain = digits.len() == len && digits.bytes().all(|b| b.is_ascii_hexdigit());
            let value = u16::from_str_radix(digits, 16).ok().filter(|n| plain && *n <= max);
            value.ok_or_else(wrong)
        };
        let (bus, device) = (number(bus, 2, 255)?, number(device, 2, 31)?);
        Ok(Self(bus << 8 | device << 3 | number(function, 1, 7)?))
    }
}

/// How an interrupt line signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trigger {
    /// Edge-triggered, active high.
    #[default]
    Edge,
    /// Level-triggered, active high.
    LevelHigh,
    /// Level-triggered, active low.
    LevelLow,
}

/// The host bridge of PCI segment 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PciRoot {
    /// Address of the memory-mapped configuration space of bus 0.
    pub ecam: u64,
    /// Register of function 00:00.0 that holds that address, if the boot code is to write it there.
    pub ecam_register: Option<u16>,
    /// Last bus that it covers.
    pub last_bus: u8,
    /// Memory that the host bridge decodes for PCI.
    pub memory: Vec<Span>,
    /// Ports that it decodes for BARs.
    pub ports: Vec<Ports>,
}

impl PciRoot {
    /// The whole configuration space.
    #[must_use]
    pub const fn space(&self, facts: &Facts) -> Span {
        let last = facts.configuration(self.ecam, Bdf((self.last_bus as u16) << 8 | 0xFF));
        Span { start: self.ecam, len: last.end() - self.ecam }
    }
}

/// Kind of range that a base address register decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarKind {
    /// Ports.
    Io,
    /// Memory.
    Memory {
        /// The register has 64 bits and takes two numbers.
        wide: bool,
        /// Reads have no side effects.
        prefetchable: bool,
    },
}

impl BarKind {
    /// The register's low bits, which are fixed (PCI 3.0, 6.2.5.1).
    #[must_use]
    pub const fn low_bits(self) -> u32 {
        match self {
            Self::Io => 1,
            Self::Memory { wide, prefetchable } => (wide as u32) << 2 | (prefetchable as u32) << 3,
        }
    }
}

/// A base address register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Its number, 0 to 5.
    pub number: u8,
    /// Kind of its range.
    pub kind: BarKind,
    /// Addresses or ports.
    pub span: Span,
}

/// Power management capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pm {
    /// Offset in the configuration space.
    pub at: u8,
    /// Going from D3hot to D0 resets the function.
    pub resets: bool,
}

/// MSI capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Msi {
    /// Offset in the configuration space.
    pub at: u8,
    /// Its address has 64 bits.
    pub wide: bool,
    /// It has mask bits.
    pub masks: bool,
}

/// MSI-X capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Msix {
    /// Offset in the configuration space.
    pub at: u8,
    /// Entries of its table.
    pub vectors: u16,
    /// Physical address of its table.
    pub table: u64,
    /// Physical address of its pending bits.
    pub pba: u64,
}

/// A capability with a function-level reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resettable {
    /// Offset in the configuration space.
    pub at: u8,
    /// It has a function-level reset.
    pub flr: bool,
}

/// A step of a function's own reset. A register in a memory BAR is written, if at all, and then read until it shows
/// that the function is at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetStep {
    /// Physical address of the register, a multiple of its size.
    pub at: u64,
    /// Its bytes: 1, 2 or 4.
    pub size: u8,
    /// Value that is written, if one is.
    pub write: Option<u32>,
    /// Bits that the write leaves as they are.
    pub keep: u32,
    /// Bits that are compared.
    pub mask: u32,
    /// Value of these bits when it is at rest.
    pub value: u32,
    /// Milliseconds until it must be at rest.
    pub within: u32,
}

/// Ranges that a PCI-to-PCI bridge forwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bridge {
    /// Bus behind it.
    pub secondary: u8,
    /// Last bus behind it.
    pub subordinate: u8,
    /// Memory window.
    pub memory: Option<Span>,
    /// Prefetchable memory window.
    pub prefetchable: Option<Span>,
    /// Ports.
    pub ports: Option<Ports>,
    /// Offset of its access control services in the extended configuration space, if they have source validation
    /// (PCIe 5.0, 7.7.8.2). It then refuses requests with a bus number that is not behind it.
    pub acs: Option<u16>,
}

/// A PCI function; by default one without anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Its address.
    pub bdf: Bdf,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Class, subclass and programming interface.
    pub class: u32,
    /// Requester IDs other than its own under which its DMA can appear.
    pub requesters: Vec<Bdf>,
    /// IOMMU group.
    pub group: Option<u32>,
    /// Number of its line at the controller, if it has one.
    pub irq: Option<u32>,
    /// Interrupt pin that the line's owner sees: 1 for A to 4 for D, 0 without a line. It need not be the hardware's;
    /// functions of one device that share a line share a pin.
    pub pin: u8,
    /// Its base address registers.
    pub bars: Vec<Bar>,
    /// Power management capability.
    pub pm: Option<Pm>,
    /// MSI capability.
    pub msi: Option<Msi>,
    /// MSI-X capability.
    pub msix: Option<Msix>,
    /// PCI Express capability.
    pub pcie: Option<Resettable>,
    /// Advanced features capability.
    pub af: Option<Resettable>,
    /// How its own registers reset it. With a function-level reset: how they do so faster, if the function shows it.
    pub reset: Vec<ResetStep>,
    /// Ranges that it forwards, if it is a bridge.
    pub bridge: Option<Bridge>,
    /// Reason why no sandbox can own it, if there is one.
    pub nobody: Option<String>,
    /// Place of its description.
    pub place: Place,
}

impl Function {
    /// Pages with its MSI-X table, to which every access is mediated.
    #[must_use]
    pub fn trapped(&self, page: u64) -> Option<Span> {
        let table = |msix: Msix| Span { start: msix.table, len: u64::from(msix.vectors) * 16 };
        self.msix.map(|msix| table(msix).pages_of(page))
    }

    /// Returns the reason why the DMA of two functions cannot be told apart, if there is one. They are in one group, or
    /// have a requester ID in common.
    #[must_use]
    pub fn alike(&self, other: &Self) -> Option<String> {
        let ids = |f: &Self| f.requesters.clone().into_iter().chain([f.bdf]);
        match self.group {
            Some(group) if other.group == Some(group) => {
                Some(format!("are in IOMMU group {group}"))
            }
            _ => {
                let common = ids(self).find(|id| ids(other).any(|one| one == *id))?;
                Some(format!("both appear as {common}"))
            }
        }
    }

    /// Returns the part of a BAR that its owner reaches: all of it, or the pages beside the trapped ones.
    #[must_use]
    pub fn mapped(&self, bar: &Bar, page: u64) -> Vec<Span> {
        match self.trapped(page) {
            Some(trapped) if trapped.overlaps(bar.span) => {
                bar.span.pages_of(page).without(trapped).collect()
            }
            _ => vec![bar.span],
        }
    }
}

/// A PCI function that a sandbox owns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// The function.
    pub function: Function,
    /// The manifest accepts that nothing confines its DMA.
    pub unconfined: bool,
    /// It signals by its interrupt line: it has neither MSI nor MSI-X, or the
    /// manifest asks for the line.
    pub line: bool,
    /// The role that it belongs to: the sandbox has it while it has that one.
    pub role: Option<usize>,
    /// Line of the manifest that grants it.
    pub place: Place,
}

/// Kinds of IOMMUs. x86's know a requester ID of the IOAPIC's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IommuKind {
    /// AMD-Vi.
    AmdVi {
        /// Requester ID of the IOAPIC.
        ioapic: Option<Bdf>,
        /// True if the IOAPIC's messages are among those that are remapped; `None`: the boot code finds out.
        remaps_lines: Option<bool>,
    },
    /// Intel VT-d. The IOAPIC's messages are among those that are remapped.
    VtD {
        /// Requester ID of the IOAPIC.
        ioapic: Option<Bdf>,
    },
    /// One that no machine description names: a test's.
    Other,
}

impl Default for IommuKind {
    fn default() -> Self {
        Self::AmdVi { ioapic: None, remaps_lines: None }
    }
}

/// An IOMMU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Iommu {
    /// Its kind.
    pub kind: IommuKind,
    /// Address of its registers.
    pub base: u64,
    /// It remaps interrupts.
    pub remaps_interrupts: bool,
}

impl Iommu {
    /// Requester ID of the IOAPIC's interrupt messages.
    #[must_use]
    pub const fn ioapic(&self) -> Option<Bdf> {
        match self.kind {
            IommuKind::AmdVi { ioapic, .. } | IommuKind::VtD { ioapic } => ioapic,
            IommuKind::Other => None,
        }
    }

    /// True if the IOAPIC's messages are among those that it remaps; `None`: the boot code finds out.
    #[must_use]
    pub const fn remaps_lines(&self) -> Option<bool> {
        match self.kind {
            IommuKind::AmdVi { remaps_lines, .. } => remaps_lines,
            IommuKind::VtD { .. } => Some(self.remaps_interrupts),
            IommuKind::Other => Some(false),
        }
    }

    /// Its registers, without the counters that some have behind them (AMD IOMMU specification, 3.3).
    #[must_use]
    pub const fn registers(&self) -> Span {
        let len = if self.is_vtd() { 0x1000 } else { 0x4000 };
        Span { start: self.base, len }
    }

    /// True if it is Intel's.
    #[must_use]
    pub const fn is_vtd(&self) -> bool {
        matches!(self.kind, IommuKind::VtD { .. })
    }
}

/// Controllers that take interrupts from lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// x86's.
    Ioapic(Ioapic),
    /// One that no machine description names: a test's. It has a page of registers for each line.
    Other {
        /// Page of the first line.
        base: u64,
    },
}

impl Controller {
    /// Returns the address of its first register.
    #[must_use]
    pub const fn base(&self) -> u64 {
        match self {
            Self::Ioapic(ioapic) => ioapic.base,
            Self::Other { base } => *base,
        }
    }
}

impl Controller {
    /// Returns how many lines it says that it has.
    #[must_use]
    pub const fn lines(&self) -> u32 {
        match self {
            Self::Ioapic(ioapic) => ioapic.lines,
            Self::Other { .. } => 0,
        }
    }
}

/// An IOAPIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ioapic {
    /// Address of its registers.
    pub base: u64,
    /// Its lines, from 0.
    pub lines: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for text in ["00:00.0", "00:1f.2", "ff:1f.7"] {
            assert_eq!(text.parse::<Bdf>().unwrap().to_string(), text);
        }
        assert_eq!("0000:01:02.3".parse::<Bdf>().unwrap(), Bdf(0x0113));
        for text in ["", "1:2.3", "00:20.0", "00:00.8", "00:00", "00:00.0.0", "+0:00.0"] {
            assert!(text.parse::<Bdf>().is_err(), "{text}");
        }
    }

    #[test]
    fn fixed_bits_of_a_bar() {
        assert_eq!(BarKind::Io.low_bits(), 1);
        assert_eq!(BarKind::Memory { wide: true, prefetchable: true }.low_bits(), 0xC);
    }
}
