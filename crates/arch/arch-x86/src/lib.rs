//! x86-64 with AMD's secure virtual machine and with Intel's VT-x: encodings and
//! policies, without a privileged instruction. References are to the AMD64
//! Architecture Programmer's Manual, volume 2 (APM), revision 3.42, and to Intel's
//! Software Developer's Manual, volume 3 (SDM), revision 085.
#![no_std]

pub mod bitmap;
pub mod cpuid;
pub mod entry;
pub mod ept;
pub mod iommu;
pub mod msr;
mod pages;
pub mod start;
pub mod vmcb;
pub mod vmcs;
pub mod vtd;

pub use bulkhead_monitor_abi_x86::{cmos, config, icr};
pub use pages::LongMode;
