//! The disk's function as the drivers see it, and time.

use bulkhead_disks::{Clock, Configuration};
use bulkhead_sdk::pci::{Function, register};
use bulkhead_sdk::{Registers, time};

/// Configuration space.
pub struct Space(pub Function);

impl Configuration for Space {
    fn read(&self, at: u16) -> u32 {
        self.0.read(at)
    }
}

/// Time of the core.
pub struct Time;

impl Clock for Time {
    fn now(&self) -> u64 {
        time::nanos(time::counter())
    }
}

/// Finds a BAR of memory, and asks for its size (PCI 3.0, 6.2.5.1).
pub fn bar(function: Function, number: u8) -> Option<Registers> {
    let start = function.bar(number.into())?;
    let at = register::BAR + 4 * u16::from(number);
    let old = function.read(at);
    function.write(at, u32::MAX);
    let bytes = u64::from(!(function.read(at) & !0xF)) + 1;
    function.write(at, old);
    // SAFETY: the function's registers, mapped. The drivers tell it of the arena only.
    Some(unsafe { Registers::new(start, bytes, true) })
}
