//! Address spaces of programs.

use super::build::{Build, Place};
use super::target::Kernels;
pub use bulkhead_kernel::abi::at;
use bulkhead_kernel::abi::{Code, Kind, Rights, label};
use bulkhead_layout::PAGE;

impl<K: Kernels> Build<K> {
    /// Makes frames of 4 KiB for so many bytes; the first one's place, and their offset in memory.
    pub fn frames(&mut self, len: u64) -> Result<(Place, u32), String> {
        let count = len.div_ceil(PAGE) as u32;
        let first = self.make(Kind::Frame, 12, count)?;
        Ok((first, self.cap(first).object << 12))
    }

    /// Maps frames side by side, with the tables that they need.
    pub fn map(
        &mut self,
        space: Place,
        frames: Place,
        count: u32,
        address: u64,
        rights: Rights,
    ) -> Result<(), String> {
        for n in 0..count {
            self.map_one(space, frames + n, address + u64::from(n) * PAGE, rights)?;
        }
        Ok(())
    }

    fn map_one(
        &mut self,
        space: Place,
        frame: Place,
        address: u64,
        rights: Rights,
    ) -> Result<(), String> {
        loop {
            let words = [u64::from(space), address, u64::from(rights.0), 0];
            match self.try_call(frame, label::MAP, words) {
                Err(status) if status.code() == Some(Code::NoTable) => {
                    let table = self.make(Kind::Table, 0, 1)?;
                    self.call(table, label::MAP_TABLE, [u64::from(space), address, 0, 0])?;
                }
                Err(status) => return Err(format!("{address:#x} cannot be mapped: {status:x?}")),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Maps frames that are mapped elsewhere already: by capabilities derived for it.
    pub fn map_again(
        &mut self,
        space: Place,
        frames: Place,
        count: u32,
        address: u64,
        rights: Rights,
    ) -> Result<(), String> {
        for n in 0..count {
            let derived = self.slot()?;
            self.give(1, derived, frames + n, rights, 0)?;
            self.map_one(space, derived, address + u64::from(n) * PAGE, rights)?;
        }
        Ok(())
    }
}
