//! Entry, exceptions, secondary cores and the timer's interrupt.

use crate::cpu::{self, cpuid, wrmsr};
use crate::println;
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

global_asm!(include_str!("start.s"));

/// Vector of the local timer.
pub const TIMER: u8 = 0x40;
/// Size of a core's stack; the timer's time stamp lies at its base.
const STACK: usize = 16384;

/// Values that the boot loader handed over.
#[derive(Clone, Copy)]
pub struct Boot {
    /// 0x2BADB002 for multiboot 1.
    pub magic: u32,
    /// Address of its information.
    pub info: u32,
}

/// A multiboot 1 module.
#[derive(Clone, Copy)]
pub struct Module {
    /// First byte.
    pub start: u32,
    /// End.
    pub end: u32,
}

impl Boot {
    fn word(&self, address: u32) -> u32 {
        // SAFETY: the loader's information lies in identity-mapped RAM that this
        // program never writes.
        unsafe { core::ptr::read_unaligned(address as usize as *const u32) }
    }

    /// Command line (multiboot 1).
    #[must_use]
    pub fn command_line(&self) -> &'static str {
        if self.magic != 0x2BAD_B002 || self.word(self.info) & 4 == 0 {
            return "";
        }
        let at = self.word(self.info + 16) as usize as *const core::ffi::c_char;
        // SAFETY: as in `word`; the loader's string ends with a zero.
        unsafe { core::ffi::CStr::from_ptr(at) }.to_str().unwrap_or("")
    }

    /// Returns a number from the command line, `key=value`.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        let mut words = self.command_line().split(' ');
        words.find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
    }

    /// First module (multiboot 1).
    #[must_use]
    pub fn module(&self) -> Option<Module> {
        let present = self.magic == 0x2BAD_B002
            && self.word(self.info) & 8 != 0
            && self.word(self.info + 20) > 0;
        let list = self.word(self.info + 24);
        present.then(|| Module { start: self.word(list), end: self.word(list + 4) })
    }
}

unsafe extern "C" {
    static trampoline: u8;
    static trampoline_end: u8;
    static mut idt: [[u64; 2]; 256];
    static stacks: u8;
    static cores_started: AtomicU32;
    fn timer_entry();
    fn fault_entry();
    fn nmi_entry();
}

static CORE_MAIN: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

fn gate(handler: unsafe extern "C" fn()) -> [u64; 2] {
    let at = handler as usize as u64;
    [at & 0xFFFF | 0x10 << 16 | 0x8E00 << 32 | (at >> 16 & 0xFFFF) << 48, at >> 32]
}

/// Fills the interrupt table, masks the legacy PIC, turns the local APIC on.
pub fn install() {
    let table = &raw mut idt;
    for vector in 0..256 {
        let handler = match vector {
            2 => nmi_entry,
            0..32 => fault_entry,
            _ => timer_entry,
        };
        // SAFETY: one core runs, interrupts are off, the index is in bounds.
        unsafe { (*table)[vector] = gate(handler) }
    }
    cpu::outb(0x21, 0xFF);
    cpu::outb(0xA1, 0xFF);
    if has_x2apic() {
        cpu::x2apic_on();
    }
}

#[unsafe(no_mangle)]
extern "C" fn bare_fault(a: u64, b: u64, c: u64) -> ! {
    println!("fault: {a:#x} {b:#x} {c:#x}");
    cpu::power_off()
}

#[unsafe(no_mangle)]
extern "C" fn bare_core() -> ! {
    cpu::x2apic_on();
    let main = CORE_MAIN.load(Ordering::Acquire);
    // SAFETY: `start_cores` stored a `fn() -> !` before it started this core.
    let main: fn() -> ! = unsafe { core::mem::transmute(main) };
    main()
}

/// Starts all other cores in `main`, one by one, and waits for `count` of them.
/// Each call may start another set: `INIT` takes a core back from anything.
pub fn start_cores(count: u32, main: fn() -> !) {
    CORE_MAIN.store(main as *mut (), Ordering::Release);
    // SAFETY: symbols of start.s; 0x8000 is RAM that nothing else uses here.
    let started = unsafe {
        let (from, end) = (&raw const trampoline, &raw const trampoline_end);
        core::ptr::copy_nonoverlapping(from, 0x8000 as *mut u8, end as usize - from as usize);
        &cores_started
    };
    started.store(0, Ordering::SeqCst);
    wrmsr(0x830, 0xC_4500); // INIT, all but this one
    delay(10_000_000);
    wrmsr(0x830, 0xC_4608); // SIPI, vector 8
    delay(200_000);
    while started.load(Ordering::SeqCst) < count {
        core::hint::spin_loop();
    }
}

/// Waits for TSC ticks.
pub fn delay(ticks: u64) {
    let end = cpu::rdtsc() + ticks;
    while cpu::rdtsc() < end {}
}

/// This core's number by the order of starting: 0, 1, …
#[must_use]
pub fn core_number() -> usize {
    (stack_block() - &raw const stacks as usize) / STACK
}

fn stack_block() -> usize {
    let rsp: usize;
    // SAFETY: reads RSP.
    unsafe { asm!("mov {}, rsp", out(reg) rsp, options(nomem, nostack, preserves_flags)) }
    rsp & !(STACK - 1)
}

/// Returns the time stamp of this core's last timer interrupt; the slot is cleared.
#[must_use]
pub fn take_tick() -> Option<u64> {
    let slot = stack_block() as *mut u64;
    // SAFETY: the base of this core's stack block, far below its stack; written
    // by its own interrupt handler, and interrupts are off here.
    let tick = unsafe { slot.read_volatile() };
    // SAFETY: that slot; nothing else writes it while interrupts are off.
    unsafe { slot.write_volatile(0) };
    (tick != 0).then_some(tick)
}

/// Arms the local timer: ticks at divide by 1.
pub fn arm(ticks: u32, periodic: bool) {
    wrmsr(0x83E, 0xB);
    wrmsr(0x832, u64::from(TIMER) | u64::from(periodic) << 17);
    wrmsr(0x838, ticks.into());
}

/// Tells if this CPU has x2APIC.
#[must_use]
pub fn has_x2apic() -> bool {
    cpuid(1, 0)[2] >> 21 & 1 == 1
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    println!("panic: {info}");
    cpu::power_off()
}
