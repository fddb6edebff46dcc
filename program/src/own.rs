//! A program's own use of its capabilities and its memory.

use crate::call::{Error, invoke};
use bulkhead_kernel_abi::{Address, Rights, label, slot};

/// Slots for capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(pub Address);

/// Memory to be mapped: 4 KiB or 2 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame(pub Address);

/// A page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table(pub Address);

impl Node {
    /// The program's own.
    pub const OWN: Self = Self(slot::NODE);

    /// Derives a capability with fewer rights into an empty slot, or with a badge that is not 0.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::Occupied`], [`bulkhead_kernel_abi::Code::NoCapability`], and those of
    /// [`label::COPY`].
    pub fn copy(self, to: Address, from: Address, rights: Rights, badge: u64) -> Result<(), Error> {
        invoke(self.0, label::COPY, [to.into(), from.into(), rights.0.into(), badge]).map(drop)
    }

    /// Moves a capability into an empty slot.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::Occupied`], [`bulkhead_kernel_abi::Code::NoCapability`],
    /// [`bulkhead_kernel_abi::Code::Upwards`].
    pub fn take(self, to: Address, from: Address) -> Result<(), Error> {
        invoke(self.0, label::MOVE, [to.into(), from.into(), 0, 0]).map(drop)
    }

    /// Deletes the capability in a slot, and those derived from it.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::OutOfRange`].
    pub fn delete(self, slot: Address) -> Result<(), Error> {
        invoke(self.0, label::DELETE, [slot.into(), 0, 0, 0]).map(drop)
    }

    /// Deletes those derived from the capability in a slot.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::OutOfRange`].
    pub fn revoke(self, slot: Address) -> Result<(), Error> {
        invoke(self.0, label::REVOKE, [slot.into(), 0, 0, 0]).map(drop)
    }
}

impl Frame {
    /// Maps it in the program's space, with at most the rights that its capability has.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::Occupied`], [`bulkhead_kernel_abi::Code::NoTable`], and those of [`label::MAP`].
    pub fn map(self, address: u64, rights: Rights) -> Result<(), Error> {
        invoke(self.0, label::MAP, [slot::SPACE.into(), address, rights.0.into(), 0]).map(drop)
    }

    /// Takes it out of where it is mapped.
    ///
    /// # Errors
    /// Never for a frame.
    pub fn unmap(self) -> Result<(), Error> {
        invoke(self.0, label::UNMAP, [0; 4]).map(drop)
    }

    /// Its address for devices.
    ///
    /// # Errors
    /// Never for a frame.
    pub fn physical(self) -> Result<u64, Error> {
        Ok(invoke(self.0, label::PHYSICAL, [0; 4])?[0])
    }
}

impl Table {
    /// Puts it where one is missing on the way to an address of the program's space.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::Occupied`], [`bulkhead_kernel_abi::Code::NoTable`].
    pub fn map(self, address: u64) -> Result<(), Error> {
        invoke(self.0, label::MAP_TABLE, [slot::SPACE.into(), address, 0, 0]).map(drop)
    }

    /// Takes it out, and with it all that is mapped through it.
    ///
    /// # Errors
    /// Never for a table.
    pub fn unmap(self) -> Result<(), Error> {
        invoke(self.0, label::UNMAP_TABLE, [0; 4]).map(drop)
    }
}
