//! The part of x86-64 that stays: encodings and the interrupt policy that a monitor carries, for AMD's secure virtual
//! machine and for Intel's VT-x. It has no privileged instruction.
//! `bulkhead_arch_x86` has them under their names, and the tables that the host bakes.
//! References are to the AMD64 Architecture Programmer's Manual, volume 2 (APM),
//! revision 3.42, and to Intel's manual (SDM), volume 3.
#![no_std]

pub mod cmos;
pub mod config;
pub mod icr;
pub mod msr;
pub mod port;
pub mod vmcb;
pub mod vmcs;
