//! The part of a monitor that is x86 and neither SVM nor VT-x. It mediates model-specific registers, ports, CPUID,
//! interprocessor interrupts, PCI, the IOAPIC and the clock, over [`X86`]. A shell decodes an exit and calls these.
#![no_std]
#![forbid(unsafe_code)]

pub mod contract;
pub mod cpuid;
mod hpet;
pub mod ioapic;
mod iommu;
pub mod ipi;
pub mod memory;
pub mod mmio;
pub mod msr;
pub mod pci;
pub mod port;
mod rtc;
mod vmware;
pub mod xapic;

pub use contract::X86;

/// Bytes of CPUID, RDMSR, WRMSR, INVD and WBINVD: the shortest encodings, which compilers use. They count where a
/// processor does not save the next instruction's address.
pub const TWO_BYTES: u8 = 2;
