//! Configuration space by ports 0xCF8 and 0xCFC. One core at a time: the address port is one for all cores.

use super::cpu;
use crate::pci::Function;

const ADDRESS_PORT: u16 = 0xCF8;
const DATA_PORT: u16 = 0xCFC;

impl Function {
    /// As [`Self::read`], by ports; `offset` below 256.
    #[must_use]
    pub fn read_by_ports(self, offset: u8) -> u32 {
        self.select(offset);
        // SAFETY: the port is one of the two of configuration space, which the monitor mediates.
        unsafe { cpu::inl(DATA_PORT) }
    }

    /// As [`Self::write`], by ports.
    pub fn write_by_ports(self, offset: u8, value: u32) {
        self.select(offset);
        // SAFETY: the port is one of the two of configuration space, which the monitor mediates.
        unsafe { cpu::outl(DATA_PORT, value) }
    }

    fn select(self, offset: u8) {
        let address = 1 << 31 | u32::from(self.0) << 8 | u32::from(offset & 0xFC);
        // SAFETY: the address register, kept by the monitor.
        unsafe { cpu::outl(ADDRESS_PORT, address) }
    }
}
