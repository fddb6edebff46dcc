//! Privileged instructions, each in a function of its own.

pub use bulkhead_cpu_x86::rdtsc;
use core::arch::asm;
use core::fmt;

/// The debug console, a byte at a time.
pub struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| outb(0xE9, byte));
        Ok(())
    }
}

/// OUT.
pub fn outb(port: u16, value: u8) {
    // SAFETY: the programs own the machine; the ports used have no effect on memory.
    unsafe { bulkhead_cpu_x86::outb(port, value) }
}

/// RDMSR.
#[must_use]
pub fn rdmsr(msr: u32) -> u64 {
    // SAFETY: reads a register; an absent one faults, and the fault is reported.
    unsafe { bulkhead_cpu_x86::rdmsr(msr) }
}

/// WRMSR.
pub fn wrmsr(msr: u32, value: u64) {
    // SAFETY: the callers write local APIC, EFER and SVM registers with values
    // that leave this program's memory as the compiler expects it.
    unsafe { bulkhead_cpu_x86::wrmsr(msr, value) }
}

/// CPUID: EAX, EBX, ECX, EDX.
#[must_use]
pub fn cpuid(leaf: u32, sub: u32) -> [u32; 4] {
    let r = core::arch::x86_64::__cpuid_count(leaf, sub);
    [r.eax, r.ebx, r.ecx, r.edx]
}

/// Turns x2APIC mode and the local APIC on.
pub fn x2apic_on() {
    wrmsr(0x1B, rdmsr(0x1B) | 0xC00);
    wrmsr(0x80F, 0x1FF);
}

/// Enables interrupts and halts until one came.
pub fn wait_interrupt() {
    // SAFETY: the interrupt handler saves what it uses and writes only the slot
    // at the base of the stack block, which the compiler doesn't know.
    unsafe { asm!("sti", "hlt", "cli") }
}

/// Lets pending interrupts in for a moment.
pub fn poll_interrupt() {
    // SAFETY: as in `wait_interrupt`.
    unsafe { asm!("sti", "nop", "cli") }
}

/// Ends the machine: QEMU's isa-debug-exit at 0xF4, Bochs' port 0x8900.
pub fn power_off() -> ! {
    b"Shutdown".iter().for_each(|byte| outb(0x8900, *byte));
    outb(0xF4, 0);
    loop {
        // SAFETY: interrupts are off; the core sleeps for good.
        unsafe { asm!("cli", "hlt") }
    }
}
