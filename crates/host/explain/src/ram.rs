//! The machine's RAM, wherever it comes from: QEMU's memory file, a dump.

use zerocopy::{FromBytes, IntoBytes};

/// Reads bytes at a physical address; false where there is no RAM. Another
/// processor may be writing them meanwhile.
pub type Read<'a> = dyn Fn(u64, &mut [u8]) -> bool + 'a;

/// Reads a structure.
pub(crate) fn get<T: FromBytes + IntoBytes>(ram: &Read, pa: u64) -> Option<T> {
    let mut value = T::new_zeroed();
    ram(pa, value.as_mut_bytes()).then_some(value)
}
