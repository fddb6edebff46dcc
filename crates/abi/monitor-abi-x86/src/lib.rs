//! The part of x86-64 that stays: encodings and the interrupt policy that a monitor carries, for AMD's secure virtual
//! machine and for Intel's VT-x. It has no privileged instruction.
//! `bulkhead_arch_x86` has them under their names, and the tables that the host bakes.
//! References are to the AMD64 Architecture Programmer's Manual, volume 2 (APM),
//! revision 3.42, and to Intel's manual (SDM), volume 3.
#![no_std]

/// Physical address of the code that takes a core out of its monitor, back to the Linux that ran first. It lies in the
/// cores' start-up page, behind the table of cores, and is there under such a Linux only.
pub const WAY_BACK: u64 = 0x8E00;

pub mod cmos;
pub mod config;
pub mod debug;
pub mod hpet;
pub mod icr;
pub mod msr;
pub mod port;
pub mod vmcb;
pub mod vmcs;
pub mod xapic;
