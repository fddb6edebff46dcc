//! Touches devices that its manifest may not give it, as a driver would that has no grants yet. These are a serial
//! port, the RTC, the reset port, a PCI function's configuration, control of a sandbox, and at last a register in
//! memory. Exits with the number of things that answered.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::{Context, cpu, fault, hypercall, println};

bulkhead_sdk::entry!(guest);

/// COM2's line status.
const SERIAL: u16 = 0x2FD;
const RTC: u16 = 0x70;
const RESET: u16 = 0x92;
/// `edu` of the q35 machine, 00:08.0: its configuration, and its registers.
const EDU: u32 = 0x8000_4000;
const EDU_ID: u32 = 0x11E8_1234;
const EDU_REGISTERS: u64 = 0xFEA0_0000;

fn guest(context: Context) -> u32 {
    // SAFETY: status and configuration are only read; the index port of the RTC
    // takes a register's number.
    let (serial, rtc, reset, id) = unsafe {
        cpu::outb(RTC, 0);
        cpu::outl(0xCF8, EDU);
        (cpu::inb(SERIAL), cpu::inb(RTC + 1), cpu::inb(RESET), cpu::inl(0xCFC))
    };
    let answers = [serial != 0xFF, rtc != 0xFF, reset != 0xFF, id == EDU_ID];
    println!("pupil: serial, RTC, reset port, PCI answered: {answers:?}");
    if context.arg("control").is_some() {
        println!("pupil: control of sandbox 1: {:#x}", hypercall::control(1, 1));
    }
    if context.arg("memory").is_some() {
        // SAFETY: a register that identifies the device; a fault is caught.
        let register = unsafe { fault::try_read(EDU_REGISTERS) };
        println!("pupil: memory answered: {register:x?}");
    }
    answers.into_iter().filter(|answer| *answer).count() as u32
}
