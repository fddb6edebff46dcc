//! x86-64: interrupts and timer are the local APIC's, and text goes to ports.

pub mod apic;
#[cfg(target_os = "none")]
mod cores;
#[cfg(not(target_os = "none"))]
#[path = "x86/cores_host.rs"]
mod cores;
pub mod cpu;
pub mod fault;
pub mod idt;
pub mod line;
pub mod paging;
mod pci;
mod percpu;
#[cfg(target_os = "none")]
mod start;
mod timer;
mod uart;
pub mod user;

use super::Architecture;
use crate::Context;
use crate::cores::Entry;
use bulkhead_layout::info::Info;
use core::arch::asm;

pub(crate) struct X86;

impl Architecture for X86 {
    fn setup(info: &Info) {
        timer::setup(info);
    }

    fn number(frame: &idt::Frame) -> u8 {
        frame.vector as u8
    }

    fn enable() {
        // SAFETY: the IDT is loaded before `main`, every vector has an entry.
        unsafe { asm!("sti", options(nostack)) }
    }

    fn disable() {
        // SAFETY: masks interrupts on this core.
        unsafe { asm!("cli", options(nostack)) }
    }

    fn is_enabled() -> bool {
        const IF: u64 = 1 << 9;
        cpu::flags() & IF != 0
    }

    fn wait() {
        // SAFETY: STI holds interrupts off for one instruction, so the wake-up
        // cannot fall between it and HLT.
        unsafe { asm!("sti", "hlt", "cli", options(nostack)) }
    }

    fn message(core: u32, interrupt: u8) -> [u32; 3] {
        apic::message(core, interrupt)
    }

    fn use_timer(interrupt: u8) {
        timer::use_vector(interrupt);
    }

    fn arm(due: u64) {
        timer::arm(due);
    }

    fn disarm() {
        timer::disarm();
    }

    fn start_core(context: Context, index: usize, entry: Entry) -> bool {
        cores::start(context, index, entry)
    }

    fn core() -> usize {
        percpu::index()
    }

    fn stop() -> ! {
        loop {
            // SAFETY: masks interrupts and sleeps; nothing else can be done here.
            unsafe { asm!("cli", "hlt", options(nomem, nostack)) }
        }
    }

    fn console(name: &str) -> Option<u32> {
        uart::find(name)
    }

    fn put(device: u32, byte: u8, lines: bool) {
        uart::put(device, byte, lines);
    }
}
