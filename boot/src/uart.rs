//! Where the boot code's messages go: a 16550 and a debug console port, as the image says.

use bulkhead_cpu_x86::{inb, outb};
use bulkhead_handover::x86::Header;
use core::sync::atomic::{AtomicU16, Ordering};

/// Port of the 16550, and the debug port; 0: none. Atomics need no `unsafe`; the boot core alone writes them.
static UART: AtomicU16 = AtomicU16::new(0);
static DEBUG: AtomicU16 = AtomicU16::new(0);

/// Takes the ports from the image. It is not verified yet, so ports at which every PC has something else are not used.
/// These are all below 0x100 but the debug console, and PCI's, with the reset port among them.
pub fn init(header: &Header) {
    const DEBUG_CONSOLE: u16 = 0xE9;
    let usable = |port: u16| port >= 0x100 && port & !7 != 0xCF8;
    // A 16550 has eight registers, from a multiple of 8 on.
    let uart = Some(header.console).filter(|&p| usable(p) && p % 8 == 0);
    let debug = Some(header.debug_port).filter(|&p| usable(p) || p == DEBUG_CONSOLE);
    let uart = uart.unwrap_or(0);
    UART.store(uart, Ordering::Relaxed);
    DEBUG.store(debug.unwrap_or(0), Ordering::Relaxed);
    if uart != 0 {
        // SAFETY: the machine description says that a 16550 is there:
        // 115200 baud, 8 bits, no parity, FIFO, no interrupts.
        unsafe {
            // Interrupt enable; line control with DLAB; divisor 1; line control; FIFO control.
            for (register, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 7)] {
                outb(uart.wrapping_add(register), value);
            }
        }
    }
}

pub fn put(byte: u8) {
    let (uart, debug) = (UART.load(Ordering::Relaxed), DEBUG.load(Ordering::Relaxed));
    // SAFETY: as in `init`; a transmitter that never gets ready is given up on.
    unsafe {
        // First: the debug port takes a byte at once, so a hanging UART does not keep a message from it.
        if debug != 0 {
            outb(debug, byte);
        }
        if uart != 0 {
            let patience = 100_000;
            // Line status, bit 5: the transmitter's register is empty.
            let _ = (0..patience).find(|_| inb(uart.wrapping_add(5)) & 0x20 != 0);
            outb(uart, byte);
        }
    }
}
