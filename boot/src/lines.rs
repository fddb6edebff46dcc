//! Finds out whether the IOMMU sees the IOAPIC's messages, and settles how they are sent: remapped or direct. The
//! 8254's line is fired once, with an entry that means one vector to the IOMMU and another one without it
//! (docs/decisions/0029-lines-tested-at-boot.md). This privileged code is gone with the boot code.

use crate::Stop;
use crate::machine::Pc;
use bulkhead_arch::BootMachine;
use bulkhead_cpu_x86::{outb, rdmsr, rdtsc, wrmsr};
use bulkhead_handover::image::BootReport;
use bulkhead_handover::x86::{Iommu, LineTest};
use bulkhead_ioapic::{MASKED, Message, Remapping, SELECT, TABLE, WINDOW};
use bulkhead_launch::x86::lines::{DIRECT, REMAPPED, settle as decide};
use bulkhead_monitor_abi_x86::msr;
use core::arch::asm;
use core::ptr::{addr_of, addr_of_mut};
use core::sync::atomic::Ordering;

/// TSC ticks that the line may take: a tenth of a second or so.
const PATIENCE: u64 = 300_000_000;
/// Ticks of the 8254 (1.193182 MHz) until it fires.
const COUNT: u8 = 2;
/// APIC enabled, spurious vector 0xFF (APM volume 2, 16.4.7).
const SVR_ENABLED: u64 = 0x1FF;

core::arch::global_asm!(".section .text", "boot_nothing:", "   iretq");

unsafe extern "C" {
    fn boot_nothing();
}

/// Every vector leads to a return.
static mut IDT: [[u64; 2]; 256] = [[0; 2]; 256];

/// Tests, and leaves device table and remapping table as they have to be from now on; what was found.
///
/// # Errors
/// The system cannot keep interrupt lines apart on this machine.
pub fn settle(iommu: &Iommu, pc: &Pc) -> Result<u64, Stop> {
    let test = &iommu.lines;
    if iommu.base == 0 || test.entry == 0 {
        return Ok(BootReport::UNTESTED);
    }
    let Ok(core @ 0..=0xFE) = u8::try_from(pc.this_core()) else {
        return Err(Stop::Lines("the IOAPIC cannot reach this core, whose APIC ID is above 254"));
    };
    // SAFETY: verified: a page of the sealed part; all of it is atomic, and no monitor runs yet.
    let table = unsafe { &*(test.table as *const Remapping) };
    let slot = &table.slots[usize::from(DIRECT)];
    let message = Message { core, vector: REMAPPED, mode: 0, logical: false };
    slot.store(message.remapped(), Ordering::Release);
    let settled = decide(test, fire(test, core)).map_err(Stop::Lines)?;
    slot.store(0, Ordering::Release);
    table.applies.store(settled.slots.into(), Ordering::Release);
    // SAFETY: verified: an entry of the device table, aligned; the IOMMU alone reads it.
    unsafe { (test.entry as *mut u64).add(2).write_volatile(settled.word) };
    // From the start: nothing of the test is left in its caches.
    crate::iommu::confine(iommu)?;
    Ok(settled.found)
}

/// Fires the line; which of the vectors 0 to 63 arrived. Nothing is left pending.
fn fire(test: &LineTest, core: u8) -> u64 {
    const ONE_SHOT: u8 = 0x30; // counter 0, low and high byte, mode 0
    // SAFETY: this core's APIC, the IOAPIC by the verified image, and the 8254 by the machine description. Every
    // vector has a gate while interrupts are on.
    unsafe {
        let spurious = rdmsr(msr::X2APIC_SVR);
        wrmsr(msr::X2APIC_SVR, SVR_ENABLED);
        load_idt();
        drain();
        entry(test, [u32::from(DIRECT), u32::from(core) << 24]);
        outb(0x43, ONE_SHOT);
        outb(0x40, COUNT);
        outb(0x40, 0);
        let begin = rdtsc();
        let mut arrived = 0;
        while arrived == 0 && rdtsc() - begin < PATIENCE {
            arrived = rdmsr(msr::X2APIC_IRR) | rdmsr(msr::X2APIC_IRR + 1) << 32;
        }
        entry(test, MASKED);
        drain();
        wrmsr(msr::X2APIC_SVR, spurious);
        arrived
    }
}

/// Writes the line's entry of the IOAPIC.
///
/// # Safety
/// The test's registers are the IOAPIC's.
unsafe fn entry(test: &LineTest, [low, high]: [u32; 2]) {
    let at = TABLE + 2 * test.line;
    for (register, value) in [(at, MASKED[0]), (at + 1, high), (at, low)] {
        // SAFETY: the caller vouches for them; identity-mapped.
        unsafe {
            ((test.ioapic + SELECT) as *mut u32).write_volatile(register);
            ((test.ioapic + WINDOW) as *mut u32).write_volatile(value);
        }
    }
}

/// Gives every vector a gate that returns.
///
/// # Safety
/// One core calls it, once.
unsafe fn load_idt() {
    const GATE: u64 = 0x8E00 << 32 | 0x18 << 16; // present, 64-bit interrupt gate, the code segment of `entry`
    let to = boot_nothing as *const () as u64;
    let gate = [to & 0xFFFF | GATE | (to >> 16 & 0xFFFF) << 48, to >> 32];
    // SAFETY: nobody else uses it.
    unsafe { addr_of_mut!(IDT).write([gate; 256]) };
    let (limit, base) = (size_of::<[[u64; 2]; 256]>() as u64 - 1, addr_of!(IDT) as u64);
    let pointer = [limit | base << 16, base >> 48];
    // SAFETY: limit and address of a table that stays.
    unsafe { asm!("lidt [{}]", in(reg) &pointer, options(nostack, preserves_flags, readonly)) };
}

/// Takes and ends all that is pending, also what the firmware left.
///
/// # Safety
/// Every vector has a gate.
unsafe fn drain() {
    // SAFETY: as the caller says; the APIC is in x2APIC mode.
    unsafe {
        for _ in 0..256 {
            let pending = (0..8).any(|word| rdmsr(msr::X2APIC_IRR + word) != 0);
            if !pending {
                break;
            }
            asm!("sti", "nop", "nop", "cli");
            wrmsr(msr::X2APIC_EOI, 0);
        }
    }
}
