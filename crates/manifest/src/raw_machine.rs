//! What a machine description may say, version 1. The file is written by hand
//! for an emulator and by a probe for a real machine.

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
    /// x2APIC IDs of its cores. A manifest's core number is an index here.
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
    /// How QEMU emulates it.
    pub qemu: Option<Qemu>,
}

/// Architectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Arch {
    /// x86-64 with AMD's SVM.
    #[serde(rename = "x86-64-svm")]
    X8664Svm,
}

/// All RAM of a machine.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemorySize {
    /// Its size, such as `"6 GiB"`.
    pub size: String,
    /// How much of it lies from address 0 on; the rest starts at 4 GiB.
    pub below_4g: String,
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
    /// What is there.
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
    /// What it is, such as `uart16550`.
    pub class: String,
    /// Its I/O ports: pairs of first and last.
    #[serde(default)]
    pub ports: Vec<[u16; 2]>,
    /// Its ISA interrupt or GSI.
    pub irq: Option<u32>,
    /// Why no sandbox can own it.
    pub nobody: Option<String>,
}

/// How QEMU emulates a machine.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Qemu {
    /// Arguments, without cores, memory, serial ports and kernel.
    #[serde(default)]
    pub args: Vec<String>,
}
