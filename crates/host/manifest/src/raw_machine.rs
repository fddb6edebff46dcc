//! The format of a machine description, version 1. Its author is a person for an emulator, and a probe for a real
//! machine.

mod x86;

pub use x86::{Arch, HpetEntry, IoapicEntry, IommuEntry, IommuKind};

use schemars::JsonSchema;
use serde::Deserialize;

/// A machine: its cores, memory map and devices.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineFile {
    /// Version of the format; 1 if it is not given.
    pub version: Option<u32>,
    /// Its name.
    pub name: String,
    /// Its architecture.
    pub arch: Arch,
    /// Identities of its cores, as their interrupt controllers have them. A manifest's core number is an index here.
    pub cores: Vec<u32>,
    /// Device for the boot code's messages, of class `uart16550`.
    pub console: Option<String>,
    /// Debug console port to which the boot code copies its messages.
    pub debug_port: Option<u16>,
    /// All its RAM.
    pub memory: MemorySize,
    /// RAM that the firmware leaves free.
    #[serde(default)]
    pub ram: Vec<RamRange>,
    /// Memory-mapped devices and firmware.
    #[serde(default)]
    pub reserved: Vec<Reserved>,
    /// Devices that a manifest can name.
    #[serde(default)]
    pub device: Vec<DeviceEntry>,
    /// Its PCI host bridge; without one no PCI function can be granted.
    pub pci: Option<PciRoot>,
    /// Its PCI functions.
    #[serde(default)]
    pub function: Vec<FunctionEntry>,
    /// Unit that confines the DMA of its PCI functions.
    pub iommu: Option<IommuEntry>,
    /// Controller that takes interrupts from lines.
    pub ioapic: Option<IoapicEntry>,
    /// Timers beside its cores, for watchdogs.
    pub hpet: Option<HpetEntry>,
    /// Emulator in which `bulkhead run` boots it; QEMU if it is not given.
    pub emulator: Option<Emulator>,
    /// How QEMU emulates it.
    pub qemu: Option<Qemu>,
}

/// Emulators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Emulator {
    /// QEMU.
    #[default]
    Qemu,
    /// Bochs.
    Bochs,
    /// The machine is real: its image boots there.
    None,
}

/// All RAM of a machine.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemorySize {
    /// Its size, such as `"6 GiB"`.
    pub size: String,
    /// How much of it lies from address 0 on; the rest starts at 4 GiB. A PC needs it.
    pub below_4g: Option<String>,
}

/// RAM that the firmware leaves free: `start` to `end`, `end` not included.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RamRange {
    /// First address.
    pub start: u64,
    /// Address after the last one.
    pub end: u64,
}

/// Addresses that are no sandbox's: `start` to `end`, `end` not included.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reserved {
    /// Name of its content.
    pub name: String,
    /// First address.
    pub start: u64,
    /// Address after the last one.
    pub end: u64,
}

/// A device.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceEntry {
    /// As manifests name it.
    pub name: String,
    /// Its kind, such as `uart16550`.
    pub class: String,
    /// Its I/O ports: pairs of first and last.
    #[serde(default)]
    pub ports: Vec<[u16; 2]>,
    /// Pages of its registers: pairs of the first address and the one behind the last.
    #[serde(default)]
    pub mmio: Vec<[u64; 2]>,
    /// Its ISA interrupt or GSI.
    pub irq: Option<u32>,
    /// How that line signals; edge if it is not given.
    pub trigger: Option<Trigger>,
    /// Why no sandbox can own it.
    pub nobody: Option<String>,
}

/// How an interrupt line signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// Edge-triggered, active high, as ISA devices do.
    #[default]
    Edge,
    /// Level-triggered, active high.
    LevelHigh,
    /// Level-triggered, active low, as PCI devices do.
    LevelLow,
}

/// A register with the address of the memory-mapped configuration space, such as PCIEXBAR.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EcamRegister {
    /// Offset in the configuration space of function 00:00.0. The register has 64 bits: the address and, in bit 0,
    /// whether it is decoded.
    pub at: u8,
}

/// The PCI host bridge (PCI segment 0).
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PciRoot {
    /// Address of the memory-mapped configuration space (ECAM) of bus 0.
    pub ecam: u64,
    /// Register by which the boot code puts it there, if firmwares put it elsewhere.
    pub ecam_register: Option<EcamRegister>,
    /// Last bus that it covers, from 0.
    pub last_bus: u8,
    /// Memory that the host bridge decodes for PCI: pairs of first address and
    /// the one after the last.
    pub memory: Vec<[u64; 2]>,
    /// Ports that it decodes for BARs: pairs of first and last.
    #[serde(default)]
    pub ports: Vec<[u16; 2]>,
}

/// A PCI function.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionEntry {
    /// Bus, device and function, such as `"00:1f.2"`.
    pub address: String,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Class, subclass and programming interface, such as `0x010802`.
    pub class: u32,
    /// Requester IDs other than its own under which its DMA can appear.
    #[serde(default)]
    pub requesters: Vec<String>,
    /// IOMMU group: functions of one group cannot be told apart by the IOMMU.
    pub group: Option<u32>,
    /// GSI of its interrupt line (INTx), if it has one.
    pub gsi: Option<u32>,
    /// Its base address registers.
    #[serde(default)]
    pub bars: Vec<BarEntry>,
    /// Power management capability.
    pub pm: Option<PmEntry>,
    /// MSI capability.
    pub msi: Option<MsiEntry>,
    /// MSI-X capability.
    pub msix: Option<MsixEntry>,
    /// PCI Express capability.
    pub pcie: Option<PcieEntry>,
    /// Advanced features capability of conventional PCI.
    pub af: Option<PcieEntry>,
    /// How its own registers reset it, for a function that has no other reset. A function with FLR gets that only if
    /// these registers do not show in time what they should.
    #[serde(default)]
    pub reset: Vec<ResetEntry>,
    /// Ranges that it forwards, if it is a PCI-to-PCI bridge.
    pub bridge: Option<BridgeEntry>,
    /// Why no sandbox can own it.
    pub nobody: Option<String>,
}

/// A base address register.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BarEntry {
    /// Its number, 0 to 5; a 64-bit one takes the next number, too.
    pub bar: u8,
    /// Kind of its range.
    pub kind: BarKind,
    /// First address or port.
    pub start: u64,
    /// Bytes or ports, a power of two.
    pub size: u64,
}

/// Kind of range that a base address register decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BarKind {
    /// Ports.
    Io,
    /// Memory, 32-bit address.
    Memory,
    /// Prefetchable memory, 32-bit address.
    MemoryPrefetchable,
    /// Memory, 64-bit address.
    Memory64,
    /// Prefetchable memory, 64-bit address.
    Memory64Prefetchable,
}

/// A power management capability.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PmEntry {
    /// Offset in the configuration space.
    pub at: u8,
    /// True if a change from D3hot to D0 resets the function.
    #[serde(default)]
    pub resets: bool,
}

/// An MSI capability.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MsiEntry {
    /// Offset in the configuration space.
    pub at: u8,
    /// True if its address has 64 bits.
    #[serde(default)]
    pub wide: bool,
    /// True if it has mask bits.
    #[serde(default)]
    pub masks: bool,
}

/// An MSI-X capability.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MsixEntry {
    /// Offset in the configuration space.
    pub at: u8,
    /// Entries of its table, 1 to 2048.
    pub vectors: u16,
    /// BAR and offset of its table.
    pub table: [u32; 2],
    /// BAR and offset of its pending bits.
    pub pba: [u32; 2],
}

/// A capability by which a function can be reset.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PcieEntry {
    /// Offset in the configuration space.
    pub at: u8,
    /// True if it has a function-level reset.
    #[serde(default)]
    pub flr: bool,
}

/// A step of a function's own reset. A register in a memory BAR is written, if at all, and then read until it shows
/// that the function is at rest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetEntry {
    /// Number of the BAR.
    pub bar: u8,
    /// Offset of the register in it, a multiple of its size.
    pub at: u32,
    /// Bytes of the register: 1, 2 or 4.
    pub size: u8,
    /// Value that is written; without it the step only reads.
    pub write: Option<u32>,
    /// Bits that the write leaves as they are.
    pub keep: Option<u32>,
    /// Bits that are compared.
    pub mask: u32,
    /// Value of these bits when the function is at rest.
    pub value: u32,
    /// Milliseconds until the function must be at rest, 1 to 1000.
    pub within: u32,
}

/// Ranges that a PCI-to-PCI bridge forwards.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BridgeEntry {
    /// Bus behind it.
    pub secondary: u8,
    /// Last bus behind it.
    pub subordinate: u8,
    /// Memory window: first address and the one after the last.
    pub memory: Option<[u64; 2]>,
    /// Prefetchable memory window, likewise.
    pub prefetchable: Option<[u64; 2]>,
    /// Ports: first and last.
    pub ports: Option<[u16; 2]>,
    /// Offset of its access control services (ACS) in the extended configuration space, if they
    /// have source validation.
    pub acs: Option<u16>,
}

/// How QEMU emulates a machine.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Qemu {
    /// Arguments, without cores, memory, serial ports and kernel.
    #[serde(default)]
    pub args: Vec<String>,
    /// Names of drives that the arguments use; a manifest's `[[run.drive]]` puts
    /// a file there.
    #[serde(default)]
    pub drives: Vec<String>,
    /// Names of networks that the arguments use; each is one of QEMU's own, in
    /// which the host is 10.0.2.2.
    #[serde(default)]
    pub networks: Vec<String>,
}
