//! Text output: through the console hypercall, or straight to a device that was passed through. The program argument
//! says which one (`console=0x2f8` for a 16550, `console=e9` for a debug console port); without it the hypercall
//! serves.

use crate::hypercall;
use core::arch::asm;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU32, Ordering};

/// Bytes of one console hypercall.
const CHUNK: usize = 24;
/// Added to a port that takes bytes with no handshake.
const PLAIN: u32 = 1 << 16;

/// 0 = hypercall, else a port.
static PORT: AtomicU32 = AtomicU32::new(0);

/// Selects the device; `None` or nonsense selects the hypercall.
pub fn select(argument: Option<&str>) {
    let port = match argument {
        Some("e9") => 0xE9 | PLAIN,
        Some(text) => {
            crate::context::number(text).and_then(|n| u16::try_from(n).ok()).map_or(0, u32::from)
        }
        None => 0,
    };
    if port != 0 && port & PLAIN == 0 {
        uart_prepare(port as u16);
    }
    PORT.store(port, Ordering::Relaxed);
}

fn outb(port: u16, value: u8) {
    // SAFETY: console ports only; a port that was not granted is refused by the
    // monitor and touches no memory of this program.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack)) }
}

fn inb(port: u16) -> u8 {
    let value;
    // SAFETY: as for `outb`.
    unsafe { asm!("in al, dx", out("al") value, in("dx") port, options(nomem, nostack)) }
    value
}

/// 8 bits, 115,200 baud, no interrupts: after a reset a 16550 sends 5 bits at
/// whatever speed is left in its divisor.
fn uart_prepare(port: u16) {
    const DIVISOR_ACCESS: u8 = 0x80;
    const EIGHT_BITS: u8 = 3;
    for (register, value) in [(3, DIVISOR_ACCESS), (0, 1), (1, 0), (3, EIGHT_BITS), (1, 0)] {
        outb(port + register, value);
    }
}

/// Waits until the 16550's transmitter is empty; a limit, because a missing
/// device must not hang its guest.
fn uart_put(port: u16, byte: u8) {
    const EMPTY: u8 = 0x20;
    for _ in 0..100_000 {
        if inb(port + 5) & EMPTY != 0 {
            break;
        }
    }
    outb(port, byte);
}

/// Collects bytes, so that a line costs few hypercalls.
struct Writer {
    buffer: [u8; CHUNK],
    len: usize,
}

impl Writer {
    fn put(&mut self, byte: u8) {
        let port = PORT.load(Ordering::Relaxed);
        match port {
            0 => {
                self.buffer[self.len] = byte;
                self.len += 1;
                if self.len == CHUNK {
                    self.flush();
                }
            }
            _ if port & PLAIN != 0 => outb(port as u16, byte),
            _ => {
                if byte == b'\n' {
                    uart_put(port as u16, b'\r');
                }
                uart_put(port as u16, byte);
            }
        }
    }

    fn flush(&mut self) {
        if self.len > 0 {
            hypercall::console(&self.buffer[..self.len]);
            self.len = 0;
        }
    }
}

impl Write for Writer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| self.put(byte));
        Ok(())
    }
}

/// Prints one byte as it is to a selected device; without one, nothing.
pub fn byte(byte: u8) {
    match PORT.load(Ordering::Relaxed) {
        0 => {}
        port if port & PLAIN != 0 => outb(port as u16, byte),
        port => uart_put(port as u16, byte),
    }
}

/// Used by [`crate::print!`].
pub fn print(text: fmt::Arguments<'_>) {
    let mut writer = Writer { buffer: [0; CHUNK], len: 0 };
    // Writing cannot fail; a `Display` that does has said what it could.
    let _ = writer.write_fmt(text);
    writer.flush();
}

/// Prints to the guest's console.
#[macro_export]
macro_rules! print {
    ($($text:tt)*) => { $crate::console::print(::core::format_args!($($text)*)) };
}

/// Prints a line to the guest's console.
#[macro_export]
macro_rules! println {
    () => { $crate::print!("\n") };
    ($($text:tt)*) => {
        $crate::console::print(::core::format_args!("{}\n", ::core::format_args!($($text)*)))
    };
}
