//! Control registers that the monitor has a part in: the guest sees its own values, and faults as on the machine.

use bulkhead_sdk::fault::{DB, Fault, GP, UD, catch};
use bulkhead_sdk::{cpu, println};
use core::arch::asm;

const NE: u64 = 1 << 5;
const NW: u64 = 1 << 29;
const CD: u64 = 1 << 30;
const VMXE: u64 = 1 << 13;
const OSXSAVE: u64 = 1 << 18;

fn set_cr0(value: u64) -> Result<(), Fault> {
    // SAFETY: the bits that the checks change are NE, NW and CD, of which no memory depends.
    unsafe { catch(|| asm!("mov cr0, {}", in(reg) value, options(nostack))) }
}

fn set_cr4(value: u64) -> Result<(), Fault> {
    // SAFETY: the bits that the checks change are VMXE and OSXSAVE.
    unsafe { catch(|| asm!("mov cr4, {}", in(reg) value, options(nostack))) }
}

fn set_xcr(register: u32, value: u64) -> Result<(), Fault> {
    let (low, high) = (value as u32, (value >> 32) as u32);
    // SAFETY: this program has no extended state.
    unsafe {
        catch(
            || asm!("xsetbv", in("ecx") register, in("eax") low, in("edx") high, options(nostack)),
        )
    }
}

fn get_xcr0() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a register, after CR4.OSXSAVE was set.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack))
    };
    u64::from(high) << 32 | u64::from(low)
}

fn single_step() -> Result<(), Fault> {
    const TF: u64 = 1 << 8;
    // SAFETY: the exception after the NOP ends it.
    unsafe {
        catch(|| {
            asm!("pushfq", "or qword ptr [rsp], {}", "popfq", "nop", "nop", const TF);
        })
    }
}

fn dr6() -> u64 {
    let value;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, dr6", out(reg) value, options(nomem, nostack)) };
    value
}

fn faults(result: Result<(), Fault>, vector: u8) -> bool {
    result.is_err_and(|fault| fault.vector == vector && fault.error == 0)
}

/// Changes CD: what the guest reads of it.
pub fn toggle() {
    let _ = set_cr0(cpu::cr0() ^ CD);
}

/// Checks; the number of those that failed.
pub fn check() -> u32 {
    let (cr0, cr4) = (cpu::cr0(), cpu::cr4());
    let mut wrong = 0;
    let mut ensure = |right: bool, what: &str| {
        println!("ring: {what}: {}", if right { "ok" } else { "WRONG" });
        wrong += u32::from(!right);
    };
    ensure(set_cr0(cr0 | CD).is_ok() && cpu::cr0() == cr0 | CD, "CD is set");
    ensure(set_cr0(cr0 | CD | NW).is_ok() && cpu::cr0() == cr0 | CD | NW, "NW is set");
    ensure(set_cr0(cr0).is_ok() && cpu::cr0() == cr0, "both are clear");
    ensure(faults(set_cr0(cr0 | NW), GP) && cpu::cr0() == cr0, "NW without CD faults");
    ensure(set_cr0(cr0 & !NE).is_ok() && cpu::cr0() & NE == 0, "NE is clear");
    ensure(set_cr0(cr0 | NE).is_ok() && cpu::cr0() & NE != 0, "NE is set");
    ensure(cr4 & VMXE == 0 && faults(set_cr4(cr4 | VMXE), GP), "VMXE faults");
    ensure(set_cr4(cr4 | OSXSAVE).is_ok() && cpu::cpuid(1, 0)[2] >> 27 & 1 == 1, "OSXSAVE shows");
    ensure(get_xcr0() == 1, "XCR0 is as after a reset");
    ensure(set_xcr(0, 3).is_ok() && get_xcr0() == 3, "XCR0 is set");
    ensure(faults(set_xcr(0, 0), GP) && faults(set_xcr(0, 5), GP), "XCR0 has no such value");
    ensure(faults(set_xcr(1, 1), GP) && get_xcr0() == 3, "there is no XCR1");
    ensure(set_xcr(0, 1).is_ok() && set_cr4(cr4).is_ok() && cpu::cr4() == cr4, "OSXSAVE is clear");
    ensure(cpu::cpuid(1, 0)[2] >> 27 & 1 == 0, "OSXSAVE does not show");
    let before = dr6();
    ensure(before == 0xFFFF_0FF0, "DR6 is as after a reset");
    let stepped = single_step();
    ensure(faults(stepped, DB) && dr6() == before | 1 << 14, "a single step tells its reason");
    // SAFETY: it faults.
    let off = unsafe { catch(|| asm!(".byte 0x0f, 0x01, 0xc4", options(nostack))) };
    ensure(faults(off, UD), "VMXOFF is undefined");
    println!("ring: {wrong} wrong");
    wrong
}
