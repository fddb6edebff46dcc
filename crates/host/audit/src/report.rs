//! What an audit says.

use crate::claim::Place;
use serde::Serialize;

/// A rule: what is looked at, each with tests of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Name in reports.
    pub name: &'static str,
    /// What holds.
    pub what: &'static str,
}

macro_rules! rules {
    ($($name:literal: $what:literal,)*) => {
        /// All rules, in the order of reports.
        pub const RULES: &[Rule] = &[$(Rule { name: $name, what: $what }),*];
    };
}

rules! {
    "nested-map": "a guest reaches the memory that the manifest gives it, and nothing else",
    "nested-rights": "with the rights that the manifest gives",
    "nested-missing": "all of that memory",
    "page-sizes": "nested pages are the largest that fit",
    "encoding": "page-table entries have no bits set that have no business there",
    "shared-frames": "two parties reach a frame only where a channel or `observe` says so",
    "tables-unmapped": "nobody reaches a table that confines somebody",
    "slots": "a guest has of a slot what its monitor says",
    "boot-code-unmapped": "nobody reaches what only the boot code used",
    "monitor-map": "a monitor reaches its own parts and its sandbox's memory",
    "monitor-rights": "with the rights that the memory layout gives",
    "monitor-text": "a monitor's text is the program's",
    "write-xor-execute": "no frame of a monitor can be written and executed",
    "vmcb": "a guest's control block confines it",
    "host-state": "behind every guest stands its own monitor",
    "core-state": "every core runs in the sandbox that owns it, and the others sleep",
    "ports": "a guest reaches its devices' ports, and no others",
    "registers": "a guest reaches the MSRs of the policy, and no others",
    "iommu-control": "the IOMMU translates, from its own tables, without exceptions",
    "device-table": "every function's entry confines it",
    "dma-map": "a function reaches its sandbox's memory, and nothing else",
    "dma-rights": "with its sandbox's rights",
    "dma-missing": "all of that memory",
    "interrupt-tables": "a function's interrupts arrive at its sandbox's cores, fixed and on its own vectors",
    "interrupt-lines": "a line's interrupt arrives at its owner's cores; all others are masked",
    "frames": "every frame has an owner",
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the rule.
    pub rule: &'static str,
    /// What is, with names and numbers.
    pub message: String,
    /// The physical address that it is about, or of the table that says so.
    pub address: Option<u64>,
    /// Whose that address is.
    pub owner: String,
    /// The line of the manifest that it differs from.
    pub place: Place,
    /// What would be right.
    pub right: String,
    /// It may be gone in a moment: its core's monitor is at work, on its way into the guest.
    #[serde(skip)]
    pub on_its_way: bool,
}

/// Memory that a party reaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reach {
    /// Address by which it does: guest-physical, or a device's.
    pub address: u64,
    /// Physical.
    pub frame: u64,
    /// Bytes.
    pub len: u64,
    /// `r`, `rw`, `rx` or `rwx`.
    pub rights: &'static str,
    /// Whose it is.
    pub owner: String,
}

/// What a function of a sandbox may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dma {
    /// The function.
    pub function: String,
    /// Memory by DMA.
    pub memory: Vec<Reach>,
    /// Interrupts: APIC ID, vector.
    pub interrupts: Vec<(u32, u8)>,
}

/// Who can touch what: one sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Access {
    /// Sandbox.
    pub sandbox: String,
    /// Memory in its nested tables.
    pub memory: Vec<Reach>,
    /// Open ports, first and last.
    pub ports: Vec<(u32, u32)>,
    /// MSRs read without an exit, first and last.
    pub msrs_read: Vec<(u32, u32)>,
    /// MSRs written without an exit.
    pub msrs_written: Vec<(u32, u32)>,
    /// Its functions.
    pub devices: Vec<Dma>,
    /// Unmasked lines: pin, APIC ID, vector.
    pub lines: Vec<(u32, u32, u8)>,
}

/// Frames with one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Frames {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Whose.
    pub owner: String,
}

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The system.
    pub system: String,
    /// By sandbox.
    pub access: Vec<Access>,
    /// The whole of physical memory, ascending, without gaps in RAM.
    pub frames: Vec<Frames>,
    /// Differences.
    pub findings: Vec<Finding>,
    /// What was there and could not be looked at, or need not be.
    pub remarks: Vec<String>,
    /// Tables walked.
    pub tables: usize,
    /// Nested pages by their size: bytes, how many.
    pub pages: Vec<(u64, usize)>,
}

/// Rights in letters.
pub fn letters(write: bool, execute: bool) -> &'static str {
    match (write, execute) {
        (false, false) => "r",
        (true, false) => "rw",
        (false, true) => "rx",
        (true, true) => "rwx",
    }
}
