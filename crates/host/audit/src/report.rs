//! The report of an audit.

use crate::claim::Place;
use serde::Serialize;

/// A rule: a guarantee that the auditor checks, each with tests of its own. Id and sentence are those of the register
/// of guarantees; a test of the harness compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Name in reports.
    pub name: &'static str,
    /// Sentence that holds.
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
    "nested-rights": "a guest reaches its memory with the rights that the manifest gives",
    "nested-missing": "a guest reaches all of the memory that the manifest gives it",
    "page-sizes": "a guest's memory is mapped by the largest pages that fit",
    "encoding": "an entry of a page table has no bit set that is reserved or needless",
    "shared-frames": "two parties reach a frame only where a channel or `observe` says so",
    "tables-unmapped": "no party reaches a table that confines another party",
    "links": "a guest reaches of a link what its monitor has written down",
    "role-given": "a sandbox reaches a role's memory while it has the role, and no other holder does then",
    "boot-code-unmapped": "no party reaches a frame that only the boot code used",
    "monitor-map": "a monitor reaches its own parts, its sandbox's memory and its devices' registers",
    "monitor-rights": "a monitor reaches its parts with the rights that the memory layout gives",
    "monitor-text": "a monitor's text is the program that was built",
    "write-xor-execute": "no frame of a monitor can be both written and executed",
    "control-block": "a guest's control block confines it",
    "instructions": "no guest runs an instruction for virtualization, system management or monitoring memory",
    "cache-instructions": "a guest's instruction for whole caches has no effect on the machine",
    "exceptions": "a guest that raises exceptions without end still takes exits",
    "shutdown": "a guest that shuts its processor down is ended, and no other is",
    "doorbell": "a guest that never exits can be stopped by its monitor",
    "host-state": "behind every guest stands the monitor of its own sandbox",
    "core-state": "every core runs in the sandbox that owns it, and spare cores sleep",
    "ports": "a guest reaches the ports of its devices, and no others",
    "registers": "a guest reaches the processor's registers that are on the allow-list, and no others",
    "iommu-control": "the IOMMU translates, from its own tables, without exceptions",
    "device-table": "every function's entry in the IOMMU's table confines it",
    "dma-map": "a function reaches the memory of its sandbox, and nothing else",
    "dma-rights": "a function reaches the memory of its sandbox with the sandbox's rights",
    "dma-missing": "a function reaches all of the memory of its sandbox",
    "dma-messages": "a message that a function forges by DMA is blocked, or remapped as its own are",
    "message-core": "a function's message goes to a core of its sandbox",
    "message-form": "a function's message is fixed or of lowest priority, by an edge, to one core",
    "message-vector": "a function's message has a vector from 16 on",
    "line-owner": "a line is programmed by its owner only, and a line without an owner is masked",
    "line-mode": "the interrupt of a line is a fixed one, with the trigger of its wiring",
    "line-core": "the interrupt of a line goes to a core of its owner, by a physical destination",
    "line-vector": "the interrupt of a line has a vector from 16 on",
    "line-level-vector": "a level-triggered line has a vector that no line of another sandbox has",
    "frames": "every frame of the machine's memory has an owner",
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the rule.
    pub rule: &'static str,
    /// State that was found, with names and numbers.
    pub message: String,
    /// The physical address that it is about, or of the table that says so.
    pub address: Option<u64>,
    /// Owner of that address.
    pub owner: String,
    /// The line of the manifest that it differs from.
    pub place: Place,
    /// State that would be right.
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
    /// Owner of the memory.
    pub owner: String,
}

/// Reach of a sandbox's function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dma {
    /// The function.
    pub function: String,
    /// Memory by DMA.
    pub memory: Vec<Reach>,
    /// Interrupts: core, vector.
    pub interrupts: Vec<(u32, u32)>,
}

/// Reach of one sandbox.
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
    /// Unmasked lines: pin, core, vector.
    pub lines: Vec<(u32, u32, u32)>,
}

/// Frames with one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Frames {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Owner of the frames.
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
    /// Remarks on things that were there and could not be looked at, or need not be.
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
