//! The auditor: reads the memory and the registers of a machine, and walks every table that confines somebody. It
//! compares what they allow with what the manifest says (design, invariants 1, 2, 3 and 9).
//!
//! Nothing here is shared with what builds the tables or runs under them: no other crate of this project is a
//! dependency. Every bit and offset is written from the manuals, which each back end names. Where tables lie is asked
//! of the processors and of the IOMMU ([`registers`]), not of the image.
//!
//! ```text
//!  Claim: what should be (from the manifest's plan, by the caller)
//!  Memory + Registers: what is          ──► audit() ──► Report: who can touch what,
//!    (a running QEMU's, or a dump's)                     findings, every frame's owner
//! ```

mod access;
pub mod arch;
mod check;
pub mod claim;
mod cores;
pub mod dma;
pub mod dump;
mod elf;
mod frames;
mod given;
mod meet;
pub mod memory;
mod monitor;
pub mod paging;
pub mod registers;
pub mod render;
mod report;
mod role;
mod x86;

#[cfg(test)]
mod fake;

pub use check::{Context, audit};
pub use claim::Claim;
pub use elf::segments;
pub use given::Given;
pub use memory::{Memory, RamFile};
pub use registers::Registers;
pub use report::{Access, Finding, Frames, RULES, Report, Rule};
pub use x86::{Svm, Vmx, registers as x86_registers, vmcs};
