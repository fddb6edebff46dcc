//! Text output: through the console hypercall, or straight to a device that was passed through. The program argument
//! says which one (`console=0x2f8` for a 16550, `console=e9` for a debug console port); without it the hypercall
//! serves.

use crate::arch::{Architecture, This};
use crate::hypercall;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU32, Ordering};

/// Bytes of one console hypercall.
const CHUNK: usize = 24;
/// 0 = hypercall, else a device of the architecture's.
static DEVICE: AtomicU32 = AtomicU32::new(0);

/// Selects the device; `None` or nonsense selects the hypercall.
pub fn select(argument: Option<&str>) {
    DEVICE.store(argument.and_then(This::console).unwrap_or(0), Ordering::Relaxed);
}

/// Collects bytes, so that a line costs few hypercalls.
struct Writer {
    buffer: [u8; CHUNK],
    len: usize,
}

impl Writer {
    fn put(&mut self, byte: u8) {
        match DEVICE.load(Ordering::Relaxed) {
            0 => {
                self.buffer[self.len] = byte;
                self.len += 1;
                if self.len == CHUNK {
                    self.flush();
                }
            }
            device => This::put(device, byte, true),
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
    match DEVICE.load(Ordering::Relaxed) {
        0 => {}
        device => This::put(device, byte, false),
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
