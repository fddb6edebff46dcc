//! What stays of x86-64 with AMD's secure virtual machine or Intel's VT-x: the encodings and the
//! interrupt policy that a monitor carries, without a privileged instruction.
//! `bulkhead_arch_x86` has them under the same names, and what the host bakes.
//! References are to the AMD64 Architecture Programmer's Manual, volume 2 (APM),
//! revision 3.42, and to Intel's manual (SDM), volume 3.
#![no_std]

pub mod icr;
pub mod msr;
pub mod vmcb;
pub mod vmcs;
