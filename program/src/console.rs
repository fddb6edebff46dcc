//! Text for the sandbox's console, a piece in each call.

use crate::call::invoke;
use bulkhead_guest::packed;
use bulkhead_kernel_abi::{label, slot};
use core::fmt::{self, Write};

/// Writes bytes; zeros are left out.
pub fn write(bytes: &[u8]) {
    const PIECE: usize = 32;
    for piece in bytes.chunks(PIECE) {
        // A sandbox without a console takes nothing.
        let _ = invoke(slot::SANDBOX, label::PRINT, packed(piece));
    }
}

/// Lines gathered, so that those of several programs do not mix within one.
pub(crate) struct Line {
    bytes: [u8; 160],
    len: usize,
}

impl Line {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; 160], len: 0 }
    }

    pub(crate) fn flush(&mut self) {
        write(&self.bytes[..self.len]);
        self.len = 0;
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.len == self.bytes.len() {
                self.flush();
            }
            self.bytes[self.len] = byte;
            self.len += 1;
        }
        Ok(())
    }
}

#[doc(hidden)]
pub fn print(arguments: fmt::Arguments<'_>) {
    let mut line = Line::new();
    // It takes everything.
    let _ = line.write_fmt(arguments);
    line.flush();
}

/// Prints a line.
#[macro_export]
macro_rules! println {
    ($($arguments:tt)*) => {
        $crate::print(format_args!("{}\n", format_args!($($arguments)*)))
    };
}
