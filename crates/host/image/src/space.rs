//! Address spaces as lists of ranges: a sandbox's, its monitor's, its devices'. The tables of a space derive from the
//! list, and so does the record of the pages that monitors map.

use crate::Error;
use crate::pages::Pages;
use bulkhead_arch::{Memory, PageFormat, Rights, Run, map};

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub at: u64,
    /// Physical address behind it.
    pub pa: u64,
    /// Bytes.
    pub len: u64,
    /// Rights to it.
    pub rights: Rights,
    /// Type of the memory.
    pub memory: Memory,
    /// Reason for it.
    pub why: &'static str,
}

/// An address space.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// Its ranges, in the order in which the tables get them.
    pub regions: Vec<Region>,
}

impl Space {
    /// Adds memory.
    pub fn add(&mut self, at: u64, pa: u64, len: u64, rights: Rights, why: &'static str) {
        self.regions.push(Region { at, pa, len, rights, memory: Memory::Normal, why });
    }

    /// Adds registers of a device.
    pub fn device(&mut self, at: u64, pa: u64, len: u64, rights: Rights, why: &'static str) {
        self.regions.push(Region { at, pa, len, rights, memory: Memory::Device, why });
    }

    /// Bakes its tables, with the largest pages that fit, below a root if there is one. Returns the root, if anything
    /// is mapped.
    ///
    /// # Errors
    /// Two ranges overlap, or one has no whole pages: a fault in the plan.
    pub fn bake<F: PageFormat>(
        &self,
        pages: &mut Pages,
        root: Option<u64>,
    ) -> Result<Option<u64>, Error> {
        self.regions.iter().try_fold(root, |root, &Region { at, pa, len, rights, memory, .. }| {
            Ok(Some(map::<F>(pages, root, Run { va: at, pa, len, rights, memory })?))
        })
    }

    /// True if it leads to a physical address.
    #[must_use]
    pub fn reaches(&self, pa: u64) -> bool {
        self.regions.iter().any(|region| pa.wrapping_sub(region.pa) < region.len)
    }
}

/// The address spaces of a sandbox.
#[derive(Clone, Debug, Default)]
pub struct Spaces {
    /// Its monitor's.
    pub monitor: Space,
    /// Its guest's, without links.
    pub guest: Space,
}
