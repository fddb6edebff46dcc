//! The PC that the boot code runs on: memory, cores, interrupt controllers.

use crate::clock::{self, Measured};
use crate::trampoline;
use bulkhead_arch::{BootMachine, CoreStart};
use bulkhead_cpu_x86::{cpuid, outb, rdmsr, rdtsc, wrmsr};
use bulkhead_firmware::{Memory, acpi, multiboot};
use bulkhead_handover::x86::TRAMPOLINE_PA;
use bulkhead_launch::RecordMemory;
use bulkhead_monitor_abi_x86::{icr, msr};

/// The first 4 GiB, mapped to themselves.
pub struct LowMemory;

impl Memory for LowMemory {
    fn bytes(&self, pa: u64, len: usize) -> Option<&[u8]> {
        // Addresses come out of the loader's and the firmware's tables: they are claims.
        if pa == 0 || pa.checked_add(len as u64)? > 1 << 32 {
            return None;
        }
        // SAFETY: mapped, not null, and nobody writes to the loader's and the
        // firmware's tables while they are parsed.
        Some(unsafe { core::slice::from_raw_parts(pa as *const u8, len) })
    }
}

impl RecordMemory for LowMemory {
    fn zero(&mut self, dst: u64, len: u64) {
        // SAFETY: verified: a sandbox's memory or a channel, free RAM in the first 4 GiB, of which nobody has a
        // reference.
        unsafe { core::ptr::write_bytes(dst as *mut u64, 0, len as usize / 8) }
    }

    fn copy(&mut self, dst: u64, src: u64, len: u64) {
        // SAFETY: the destination as for `zero`; the source is the image, which no sandbox's memory overlaps.
        unsafe {
            core::ptr::copy_nonoverlapping(src as *const u64, dst as *mut u64, len as usize / 8)
        }
    }

    // Refused by the check.
    fn store(&mut self, _: u64, _: u64) {}
}

/// The machine.
pub struct Pc {
    loader: multiboot::Info,
    tables: acpi::Tables,
    /// Slots of the start-up code's table in use, and that of the last core started.
    slots: usize,
    last: usize,
}

impl Pc {
    pub fn new(loader: multiboot::Info, tables: acpi::Tables) -> Self {
        Self { loader, tables, slots: 0, last: 0 }
    }

    /// Masks the interrupt controllers: what the firmware left live would reach
    /// a guest.
    pub fn silence(&self) {
        // SAFETY: the PICs' mask registers, and I/O APICs that the MADT names;
        // nobody handles interrupts at this point.
        unsafe {
            // OCW1, the mask registers of both 8259As.
            outb(0x21, 0xFF);
            outb(0xA1, 0xFF);
            for &base in self.tables.ioapics() {
                let (index, window) = (base as u64 as *mut u32, (base as u64 + 0x10) as *mut u32);
                // Register 1, the version: bits 23:16 have the index of the last entry (82093AA, 3.2.2).
                index.write_volatile(1);
                // The number of entries differs between controllers, and the MADT does not tell it.
                let last = window.read_volatile() >> 16 & 0xFF;
                for entry in 0..=last {
                    // The lower half of an entry has its mask, bit 16. The upper half has no effect then.
                    index.write_volatile(0x10 + 2 * entry);
                    window.write_volatile(1 << 16);
                }
            }
        }
    }

    /// Sends all other cores into their wait for a start-up, measures the clocks
    /// meanwhile, and goes to x2APIC mode.
    pub fn reset_other_cores(&mut self, pm_timer: u16) -> Measured {
        const X2APIC: u64 = 0b11 << 10;
        const INIT_ALL_OTHERS: u32 = 3 << 18 | 1 << 14 | 5 << 8;
        // The page is ready before any core can be sent to it.
        trampoline::install();
        // SAFETY: nothing runs on the other cores yet but the firmware's wait.
        unsafe {
            if rdmsr(msr::APIC_BASE) & 1 << 10 != 0 {
                wrmsr(msr::X2APIC_ICR, u64::from(INIT_ALL_OTHERS));
            } else {
                (0xFEE0_0300 as *mut u32).write_volatile(INIT_ALL_OTHERS);
            }
            // INIT takes 10 ms, for which the clocks are measured.
            let measured = clock::measure(pm_timer);
            // Afterwards, since under icount QEMU cannot read the counter of x2APIC mode.
            wrmsr(msr::APIC_BASE, rdmsr(msr::APIC_BASE) | X2APIC);
            // Firmware opens the pin of NMIs on this core. Without a slot it rests, and has no handler.
            wrmsr(msr::X2APIC_LINT1, icr::MASKED);
            measured
        }
    }
}

impl BootMachine for Pc {
    fn is_ram(&self, start: u64, len: u64) -> bool {
        self.loader.covers(start, len)
    }

    fn has_core(&self, id: u32) -> bool {
        self.tables.cores().contains(&id)
    }

    fn this_core(&self) -> u32 {
        // As the start-up code finds a core's ID: the two have to agree.
        if cpuid(0, 0).eax >= 0xB && cpuid(0xB, 0).ebx != 0 {
            cpuid(0xB, 0).edx
        } else {
            cpuid(1, 0).ebx >> 24
        }
    }

    fn start_core(&mut self, id: u32, start: CoreStart, spare: Option<CoreStart>) {
        const STARTUP: u64 = 1 << 14 | 6 << 8;
        // The slot is complete before the SIPI that lets a core read it.
        self.last = self.slots;
        self.slots += trampoline::direct(self.slots, id, start, spare);
        // SAFETY: the core waits for this since its INIT, and the page is ready.
        unsafe { wrmsr(msr::X2APIC_ICR, u64::from(id) << 32 | STARTUP | TRAMPOLINE_PA >> 12) };
    }

    fn wait_for(&mut self, id: u32) -> bool {
        const STARTUP: u64 = 1 << 14 | 6 << 8;
        // A second start-up after a while, as the MultiProcessor Specification
        // has it; a core that runs already ignores it.
        for again in 0..2 {
            let begin = rdtsc();
            // A core that does not come is no reason to hang: it is told, with its ID.
            while rdtsc() - begin < ARRIVAL {
                if trampoline::has_arrived(self.last) {
                    return true;
                }
                core::hint::spin_loop();
            }
            if again == 0 {
                // SAFETY: as in `start_core`.
                unsafe {
                    wrmsr(msr::X2APIC_ICR, u64::from(id) << 32 | STARTUP | TRAMPOLINE_PA >> 12)
                };
            }
        }
        false
    }
}

/// TSC ticks to wait for a core: a tenth of a second or so.
const ARRIVAL: u64 = 300_000_000;

/// Sleeps for good: the error is on the console and in the report.
pub fn give_up() -> ! {
    loop {
        // SAFETY: sleeps for good.
        unsafe { core::arch::asm!("cli", "hlt", options(nomem, nostack)) };
    }
}
