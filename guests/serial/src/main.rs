//! Writes lines to a 16550 by interrupts: whenever the transmitter is empty it raises its line, and the handler gives
//! it the next bytes. The handler also reads the bytes that come in, and writes them back.
//!
//! Arguments:
//!
//! * `port=NUMBER` and `line=NUMBER` of the port;
//! * `lines=N` to write;
//! * `life=N` lives, of which each but the last ends in the middle, with an interrupt on its way;
//! * `echo` goes on until a `q` comes in;
//! * `stay` goes on for 20 s, and tells of each further interrupt.
//!
//! Exit code 1: an interrupt came unasked; 2: none came.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::{Context, apic, cpu, hypercall, interrupt, line, println, time};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

bulkhead_sdk::entry!(guest);

const VECTOR: u8 = 0x60;
/// Registers (16550D, table II).
const DATA: u16 = 0;
const INTERRUPT_ENABLE: u16 = 1;
const INTERRUPT_IDENTIFICATION: u16 = 2;
const FIFO_CONTROL: u16 = 2;
const LINE_CONTROL: u16 = 3;
const MODEM_CONTROL: u16 = 4;
const LINE_STATUS: u16 = 5;
const MODEM_STATUS: u16 = 6;
/// Received data, transmitter empty.
const BOTH: u8 = 3;
/// Bytes of the transmitter's FIFO.
const FIFO: u32 = 16;
/// Bytes of a line.
const LINE: u32 = 64;

static PORT: AtomicU32 = AtomicU32::new(0);
static SERIAL: AtomicU32 = AtomicU32::new(0);
static WRITTEN: AtomicU32 = AtomicU32::new(0);
static WANTED: AtomicU32 = AtomicU32::new(0);
static INTERRUPTS: AtomicU32 = AtomicU32::new(0);
static STRAY: AtomicU32 = AtomicU32::new(0);
static QUIT: AtomicBool = AtomicBool::new(false);

fn out(register: u16, value: u8) {
    // SAFETY: a port of the sandbox's, as its argument says; else it is refused.
    unsafe { cpu::outb(PORT.load(Ordering::Relaxed) as u16 + register, value) }
}

fn input(register: u16) -> u8 {
    // SAFETY: a port of the sandbox's, as its argument says; else it is refused.
    unsafe { cpu::inb(PORT.load(Ordering::Relaxed) as u16 + register) }
}

/// Byte `n` of everything that is written: lines of sandbox and line number.
fn byte(n: u32) -> u8 {
    let (line, at) = (n / LINE, n % LINE);
    match at {
        0 => b'A' + SERIAL.load(Ordering::Relaxed) as u8,
        1..=4 => b'0' + (line / 10u32.pow(4 - at) % 10) as u8,
        62 => b'\r',
        63 => b'\n',
        _ => b'a' + (n % 26) as u8,
    }
}

fn on_interrupt(_: &mut interrupt::Frame, _: u64) {
    const NONE: u8 = 1;
    const READY: u8 = 1;
    const EMPTY: u8 = 1 << 5;
    INTERRUPTS.fetch_add(1, Ordering::Relaxed);
    // An edge comes once: until the port wants nothing, its line does not fall. The
    // identification names one cause at a time; reading "transmitter empty" clears it.
    while input(INTERRUPT_IDENTIFICATION) & NONE == 0 {
        while input(LINE_STATUS) & READY != 0 {
            let byte = input(DATA);
            out(DATA, byte);
            QUIT.fetch_or(byte == b'q', Ordering::Relaxed);
        }
        let _ = input(MODEM_STATUS);
    }
    if input(LINE_STATUS) & EMPTY != 0 {
        let from = WRITTEN.load(Ordering::Relaxed);
        let end = WANTED.load(Ordering::Relaxed).min(from + FIFO);
        (from..end).for_each(|n| out(DATA, byte(n)));
        WRITTEN.store(end, Ordering::Relaxed);
    }
}

fn stray(frame: &mut interrupt::Frame, _: u64) {
    STRAY.store(frame.vector as u32, Ordering::Relaxed);
}

fn guest(context: Context) -> u32 {
    let (Some(port), Some(irq)) = (context.arg_u64("port"), context.arg_u64("line")) else {
        println!("serial: arguments are missing");
        return 3;
    };
    PORT.store(port as u32, Ordering::Relaxed);
    SERIAL.store(context.info().sandbox, Ordering::Relaxed);
    let line = line::of_isa(irq as u32);
    // Nothing of a former life is left.
    for vector in [VECTOR, line::vector(context.info(), line).unwrap_or(VECTOR)] {
        interrupt::set(vector, stray);
    }
    interrupt::enable();
    time::sleep(1_000_000);
    interrupt::disable();
    let masked = line::read(0x10 + 2 * line);
    if STRAY.load(Ordering::Relaxed) != 0 || masked != 1 << 16 {
        println!("serial: an interrupt came, or its line is open: {masked:#x}");
        return 1;
    }
    out(INTERRUPT_ENABLE, 0);
    out(LINE_CONTROL, 0x83);
    out(DATA, 1);
    out(INTERRUPT_ENABLE, 0);
    out(LINE_CONTROL, 3);
    out(FIFO_CONTROL, 7);
    out(MODEM_CONTROL, 0xB);
    for register in [LINE_STATUS, DATA, INTERRUPT_IDENTIFICATION, MODEM_STATUS] {
        let _ = input(register);
    }
    // A level-triggered line has its vector from the host.
    let vector = line::vector(context.info(), line).unwrap_or(VECTOR);
    line::attach(line, apic::id(), vector, on_interrupt);
    let wanted = context.arg_u64("lines").unwrap_or(10) as u32 * LINE;
    WANTED.store(wanted, Ordering::Relaxed);
    hypercall::ready();
    // The transmitter is empty, so this raises the line.
    out(INTERRUPT_ENABLE, BOTH);
    let last = context.incarnation() + 1 >= context.arg_u64("life").unwrap_or(1);
    let due = time::counter() + time::ticks(20_000_000_000);
    let (stays, mut told) = (context.arg("stay").is_some(), 0);
    loop {
        time::arm(due);
        interrupt::wait();
        let written = WRITTEN.load(Ordering::Relaxed);
        let interrupts = INTERRUPTS.load(Ordering::Relaxed);
        if stays && written >= wanted && interrupts != told {
            println!("serial: {interrupts} interrupts");
            told = interrupts;
        }
        if !last && written > wanted / 2 {
            hypercall::restart();
        }
        if written >= wanted
            && !stays
            && (context.arg("echo").is_none() || QUIT.load(Ordering::Relaxed))
        {
            break;
        }
        if time::counter() > due {
            println!("serial: only {written} bytes");
            return 2;
        }
    }
    let interrupts = INTERRUPTS.load(Ordering::Relaxed);
    println!("serial: {wanted} bytes by {interrupts} interrupts");
    0
}
