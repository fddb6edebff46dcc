//! Registers of a device in memory.

use crate::Moved;

/// A device's registers, or a part of them: a BAR, or a configuration space that can be read.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    start: u64,
    len: u64,
    writable: bool,
}

macro_rules! access {
    ($read:ident, $write:ident, $type:ty, $bits:literal) => {
        #[doc = concat!("Reads ", $bits, " bits.")]
        ///
        /// # Panics
        /// Beyond its end, or not at a multiple of its size.
        #[must_use]
        #[inline(always)]
        pub fn $read(self, offset: u64) -> $type {
            let at = self.at(offset, size_of::<$type>() as u64);
            // SAFETY: by `new`: registers, within their length, aligned.
            unsafe { <$type>::load(at) }
        }

        #[doc = concat!("Writes ", $bits, " bits.")]
        ///
        /// # Panics
        /// As for reading, or it cannot be written.
        #[inline(always)]
        pub fn $write(self, offset: u64, value: $type) {
            assert!(self.writable, "registers that can only be read");
            let at = self.at(offset, size_of::<$type>() as u64);
            // SAFETY: as for the read, and they may be written.
            unsafe { value.store(at) }
        }
    };
}

impl Registers {
    /// Makes registers of so many bytes.
    ///
    /// # Safety
    /// They lie there for as long as the program runs, and may be written if they are `writable`. An access to them
    /// leaves this program's world intact.
    #[must_use]
    pub const unsafe fn new(start: u64, len: u64, writable: bool) -> Self {
        Self { start, len, writable }
    }

    #[inline(always)]
    fn at(self, offset: u64, size: u64) -> u64 {
        let fits = offset.is_multiple_of(size) && offset < self.len && self.len - offset >= size;
        assert!(fits, "offset {offset:#x} of registers with {:#x} bytes", self.len);
        self.start + offset
    }

    /// Returns how many bytes there are.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.len
    }

    access!(read8, write8, u8, 8);
    access!(read16, write16, u16, 16);
    access!(read32, write32, u32, 32);
    access!(read64, write64, u64, 64);
}
