//! Devices for text behind ports: a 16550, or a debug console port, which takes bytes with no handshake.

use super::cpu;

/// Added to a port that takes bytes with no handshake.
const PLAIN: u32 = 1 << 16;

/// `0x2f8` is a 16550, `e9` a debug console port.
pub(crate) fn find(name: &str) -> Option<u32> {
    if name == "e9" {
        return Some(0xE9 | PLAIN);
    }
    let port = bulkhead_guest::text::number(name).and_then(|n| u16::try_from(n).ok())?;
    prepare(port);
    Some(port.into())
}

/// A 16550 ends a line by two bytes.
pub(crate) fn put(device: u32, byte: u8, lines: bool) {
    let port = device as u16;
    if device & PLAIN != 0 {
        return outb(port, byte);
    }
    if lines && byte == b'\n' {
        send(port, b'\r');
    }
    send(port, byte);
}

fn outb(port: u16, value: u8) {
    // SAFETY: console ports only; a port that was not granted is refused by the
    // monitor and touches no memory of this program.
    unsafe { cpu::outb(port, value) }
}

/// 8 bits, 115,200 baud, no interrupts: after a reset a 16550 sends 5 bits at
/// whatever speed is left in its divisor.
fn prepare(port: u16) {
    const DIVISOR_ACCESS: u8 = 0x80;
    const EIGHT_BITS: u8 = 3;
    for (register, value) in [(3, DIVISOR_ACCESS), (0, 1), (1, 0), (3, EIGHT_BITS), (1, 0)] {
        outb(port + register, value);
    }
}

/// Waits until the 16550's transmitter is empty; a limit, because a missing
/// device must not hang its guest.
fn send(port: u16, byte: u8) {
    const EMPTY: u8 = 0x20;
    for _ in 0..100_000 {
        // SAFETY: as for `outb`.
        if unsafe { cpu::inb(port + 5) } & EMPTY != 0 {
            break;
        }
    }
    outb(port, byte);
}
