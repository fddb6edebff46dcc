//! Measures how long an interrupt takes: from the access by which a serial port (COM2) raises its line to the first
//! statement of the handler. One program runs in a sandbox and on the machine itself.
//!
//! Arguments: `rounds=N` (default 100); `bare`: there is no monitor that answers a
//! hypercall, so it never ends. Exit code 1: an interrupt did not come.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::{Context, apic, cpu, hypercall, interrupt, line, mark, marker, println};
use core::sync::atomic::{AtomicU64, Ordering};

bulkhead_sdk::entry!(guest);

const VECTOR: u8 = 0x60;
const PORT: u16 = 0x2F8;
const LINE: u32 = line::of_isa(3);
/// Registers (16550D, table II).
const DATA: u16 = 0;
const INTERRUPT_ENABLE: u16 = 1;
const INTERRUPT_IDENTIFICATION: u16 = 2;
const LINE_CONTROL: u16 = 3;
const MODEM_CONTROL: u16 = 4;
const LINE_STATUS: u16 = 5;
const MODEM_STATUS: u16 = 6;
/// The transmitter is empty, so this raises the line at once.
const TRANSMITTER_EMPTY: u8 = 2;
/// How often to look for an interrupt that is due.
const PATIENCE: u32 = 100_000;

static ARRIVED: AtomicU64 = AtomicU64::new(0);

fn out(register: u16, value: u8) {
    // SAFETY: a serial port; it reads and writes no memory.
    unsafe { cpu::outb(PORT + register, value) }
}

fn input(register: u16) -> u8 {
    // SAFETY: a serial port; it reads and writes no memory.
    unsafe { cpu::inb(PORT + register) }
}

fn on_interrupt(_: &mut interrupt::Frame, _: u64) {
    mark!(marker::END | marker::id::IO_IRQ);
    out(INTERRUPT_ENABLE, 0);
    let _ = input(INTERRUPT_IDENTIFICATION);
    ARRIVED.fetch_add(1, Ordering::Relaxed);
}

/// Raises the line, and waits for the handler. Returns true if it came.
fn round() -> bool {
    let before = ARRIVED.load(Ordering::Relaxed);
    mark!(marker::BEGIN | marker::id::IO_IRQ);
    out(INTERRUPT_ENABLE, TRANSMITTER_EMPTY);
    (0..PATIENCE).any(|_| ARRIVED.load(Ordering::Relaxed) != before)
}

fn guest(context: Context) -> u32 {
    let bare = context.arg("bare").is_some();
    let rounds = context.arg_u64("rounds").unwrap_or(100);
    // Eight bits; the port's second output lets its interrupts through.
    let setup = [(INTERRUPT_ENABLE, 0), (LINE_CONTROL, 3), (MODEM_CONTROL, 8)];
    setup.into_iter().for_each(|(register, value)| out(register, value));
    for register in [LINE_STATUS, DATA, INTERRUPT_IDENTIFICATION, MODEM_STATUS] {
        let _ = input(register);
    }
    line::attach(LINE, apic::id(), VECTOR, on_interrupt);
    if !bare {
        hypercall::ready();
    }
    interrupt::enable();
    let arrived = (0..rounds).filter(|_| round()).count() as u64;
    println!("irq: {arrived} of {rounds} interrupts arrived");
    println!("irq: done");
    if bare {
        loop {
            interrupt::wait();
        }
    }
    u32::from(arrived != rounds)
}
