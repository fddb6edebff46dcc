//! The processor and the devices of x86 that mediation reaches.

use crate::layout::{config, slice};
use crate::{Frame, Shell, apic};
use bulkhead_cpu_x86::{cpuid, inb, inl, outb, outl, rdmsr};
use bulkhead_decoder::State;
use bulkhead_ioapic::{Lines, Remapping, Shadow};
use bulkhead_monitor::{Devices, Layout, Monitor};
use bulkhead_monitor_abi::lock::Lock;
use bulkhead_monitor_abi::map::{GUEST_VA, LINES_VA};
use bulkhead_monitor_abi::mmio::Range;
use bulkhead_monitor_abi::monitor::{Ram, Slice};
use bulkhead_monitor_abi::pci::{Function, Register, Reset};
use bulkhead_monitor_abi::peer::BusMaster;
use bulkhead_monitor_abi::{PAGE, need};
use bulkhead_monitor_abi_x86::cmos;
use bulkhead_monitor_abi_x86::config::{Config, Leaf, Quiet};
use bulkhead_monitor_x86::contract::{RAX, X86};
use bulkhead_monitor_x86::{ioapic, pci};
use core::arch::asm;
use core::ptr::{read_volatile, write_volatile};
use core::sync::atomic::AtomicU32;

/// Number of RSP in encodings.
const RSP: u8 = 4;

impl<S: Shell> Devices for Frame<S> {
    fn silence_lines(&self) {
        // A constant: a monitor built without devices links nothing of this.
        if Self::has(need::DEVICES) {
            ioapic::silence(self);
        }
    }

    fn quiet(&self) -> Result<(), u64> {
        if Self::has(need::DEVICES) { pci::quiet(self) } else { Ok(()) }
    }

    fn hand_over(&self, role: u32) {
        if Self::has(need::DEVICES) {
            pci::hand_over(self, role);
        }
    }

    fn keep_off(&self, function: &BusMaster) {
        let register = function.at as *mut u16;
        // SAFETY: the command register of a function, in a configuration page that the host maps writable for this. The
        // cores of the function's sandbox are stopped, so nobody else writes it.
        unsafe { write_volatile(register, read_volatile(register) & !(function.bits as u16)) };
    }

    fn release(&self) {
        if Self::has(need::DEVICES) && self.lines().is_some() {
            self.line_lock().leave(self.config().sandbox);
        }
    }
}

impl<S: Shell> X86 for Frame<S> {
    #[inline(always)]
    fn register(&self, number: u8) -> u64 {
        match number {
            // RAX and RSP have no place in the frame that both shells share.
            RAX => S::rax(self),
            RSP => S::rsp(self),
            _ => self.place(number).get(),
        }
    }

    #[inline(always)]
    fn set_register(&self, number: u8, value: u64) {
        match number {
            RAX => S::set_rax(self, value),
            RSP => S::set_rsp(self, value),
            _ => self.place(number).set(value),
        }
    }

    #[inline(always)]
    fn state(&self) -> State {
        S::state(self)
    }

    fn jump(&self, rip: u64) {
        S::set_rip(self, rip);
        // The shadow of STI or MOV SS ended with the instruction that was carried out.
        S::unshadow(self);
    }

    fn fetched(&self) -> [u64; 2] {
        S::fetched(self)
    }

    fn set_efer(&self, value: u64) {
        S::set_efer(self, value);
    }

    #[inline(always)]
    fn rdmsr(&self, register: u32) -> u64 {
        // SAFETY: mediation reads registers that each processor with x2APIC has; reading changes nothing.
        unsafe { rdmsr(register) }
    }

    #[inline(always)]
    fn wrmsr(&self, register: u32, value: u64) {
        // Mediation has decided on the value. It is an interrupt to cores of this sandbox. Or it is this core's own
        // local vector table, with a fixed interrupt or masked.
        apic::write(self, register, value);
    }

    fn cpuid(&self, leaf: u32, sub: u32) -> [u32; 4] {
        // The processor's own answer: what a guest is shown of it is mediation's to decide.
        let raw = cpuid(leaf, sub);
        [raw.eax, raw.ebx, raw.ecx, raw.edx]
    }

    fn stop_cpuid_exits(&self) -> bool {
        S::stop_cpuid_exits(self)
    }

    #[inline(always)]
    fn x86(&self) -> &Config {
        config()
    }

    fn quiets(&self, part: Slice) -> &[Quiet] {
        slice(part)
    }

    fn linux_memory(&self) -> &[Ram] {
        slice(config().memory)
    }

    fn leaves(&self) -> &[Leaf] {
        slice(config().cpuid)
    }

    fn ranges(&self) -> &[Range] {
        slice(config().ranges)
    }

    fn functions(&self) -> &[Function] {
        slice(config().functions)
    }

    fn registers(&self, part: Slice) -> &[Register] {
        slice(part)
    }

    fn resets(&self, part: Slice) -> &[Reset] {
        slice(part)
    }

    fn lines(&self) -> Option<&Lines> {
        // A table with at most one entry: none is how the host says that there are no lines.
        slice::<Lines>(config().lines).first()
    }

    fn line_shadow(&self) -> &Shadow {
        // SAFETY: with lines, the host maps it there, writable; its fields are atomics.
        unsafe { &*((LINES_VA + PAGE) as *const Shadow) }
    }

    fn line_lock(&self) -> &Lock {
        // SAFETY: with a line of the machine's, the host maps it there, writable; its fields are atomics.
        unsafe { &*(LINES_VA as *const Lock) }
    }

    fn remapping(&self, at: u64) -> &Remapping {
        // SAFETY: the address is the host's, which maps the table there, writable, if messages may be remapped; its
        // fields are atomics.
        unsafe { &*(at as *const Remapping) }
    }

    fn cell(&self, at: u64) -> &AtomicU32 {
        // SAFETY: the host maps as many words of shadow as it numbered, and a page for a function's remapping table.
        // Numbers come from its configuration, and links are below `MAX_LINKS`.
        unsafe { &*(at as *const AtomicU32) }
    }

    fn load(&self, at: u64, size: u8) -> u64 {
        // SAFETY: aligned, in a trapped page, in one with a register that resets the function, or in the IOAPIC's. The
        // host maps them there, writable, where mediation has a use for them.
        unsafe {
            // By exactly that width: a register of a device may have no other.
            match size {
                1 => u64::from(read_volatile(at as *const u8)),
                2 => u64::from(read_volatile(at as *const u16)),
                4 => u64::from(read_volatile(at as *const u32)),
                _ => read_volatile(at as *const u64),
            }
        }
    }

    fn store(&self, at: u64, size: u8, value: u64) {
        // SAFETY: aligned, in a page as for `load`, which the host maps writable.
        unsafe {
            match size {
                // As for `load`: a wider write would change the registers beside it.
                1 => write_volatile(at as *mut u8, value as u8),
                2 => write_volatile(at as *mut u16, value as u16),
                4 => write_volatile(at as *mut u32, value as u32),
                _ => write_volatile(at as *mut u64, value),
            }
        }
    }

    fn load_config(&self, at: u64) -> u32 {
        let value;
        // SAFETY: a register in the function's configuration page, which the host
        // maps. By EAX, as AMD's processors want it (BKDG, MMIO configuration).
        unsafe { asm!("mov eax, [{}]", in(reg) at, out("eax") value, options(nostack, readonly)) };
        value
    }

    fn store_config(&self, at: u64, value: u32) {
        // SAFETY: a register in that page; only functions of the sandbox's own have registers that are written, and
        // their page is mapped writable.
        unsafe { asm!("mov [{}], eax", in(reg) at, in("eax") value, options(nostack)) };
    }

    fn load_address(&self) -> u32 {
        // SAFETY: a port that nobody but this sandbox' Linux uses then. A read has no effect.
        unsafe { inl(pci::ADDRESS_PORT as u16) }
    }

    fn store_address(&self, value: u32) {
        // SAFETY: a port that nobody but this sandbox' Linux uses then. It says which function port 0xCFC means, and
        // that port is this Linux' own.
        unsafe { outl(pci::ADDRESS_PORT as u16, value) }
    }

    fn load_clock(&self, index: u8) -> u8 {
        // SAFETY: ports of the clock, which this sandbox owns. Reads at these indices change nothing, and NMIs stay on.
        unsafe {
            // Two steps: the caller has the turn of its sandbox, so that no other core's index comes between.
            outb(cmos::INDEX_PORT as u16, index);
            inb(cmos::INDEX_PORT as u16 + 1)
        }
    }

    fn store_clock(&self, index: u8, value: u8) {
        // SAFETY: ports of the clock, which this sandbox owns. Mediation lets a write through only where it changes
        // nothing.
        unsafe {
            outb(cmos::INDEX_PORT as u16, index);
            outb(cmos::INDEX_PORT as u16 + 1, value);
        }
    }

    fn guest_word(&self, at: u64) -> u64 {
        // SAFETY: 8 aligned bytes of the sandbox's RAM, all of which the host maps
        // there; the guest may change them meanwhile.
        unsafe { read_volatile((GUEST_VA + at) as *const u64) }
    }
}
