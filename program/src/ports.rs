//! I/O ports, where the architecture has them: a program reads and writes them by calls.

use crate::call::{Error, invoke};
use crate::names::Program;
use bulkhead_kernel_abi::{Address, Kind, Rights, label};

/// Ports of a device, the first range of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports(pub Address);

impl Ports {
    /// Reads a byte.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::OutOfRange`]: not one of them.
    pub fn read8(self, port: u16) -> Result<u8, Error> {
        Ok(invoke(self.0, label::IN, [port.into(), 1, 0, 0])?[0] as u8)
    }

    /// Writes a byte.
    ///
    /// # Errors
    /// As [`Ports::read8`].
    pub fn write8(self, port: u16, value: u8) -> Result<(), Error> {
        invoke(self.0, label::OUT, [port.into(), 1, value.into(), 0]).map(drop)
    }
}

impl Program {
    /// Ports of a device that it drives, by the device's name; of a PCI function `pci:BB:DD.F:N` are those of BAR N.
    ///
    /// # Panics
    /// The manifest does not give it that.
    #[must_use]
    #[track_caller]
    pub fn ports(self, device: &str) -> Ports {
        Ports(self.address(device, Kind::Ports, Rights::NONE))
    }
}
