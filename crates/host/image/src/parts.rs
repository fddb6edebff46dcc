//! The parts of an image, and those that several monitors see.

use crate::space::Spaces;
use std::collections::BTreeMap;

/// A part of the image, for plans, reports and measurements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Physical address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Its sandbox.
    pub owner: Option<usize>,
    /// Description of its content.
    pub what: &'static str,
    /// Its owner's monitor maps all of it; without an owner, monitors do.
    pub mapped: bool,
}

impl Part {
    /// Makes a part that ends before an address; whether it is mapped is not known yet.
    pub fn new(start: u64, end: u64, owner: Option<usize>, what: &'static str) -> Self {
        Self { start, len: end - start, owner, what, mapped: false }
    }

    /// Finds out if monitors map it: by their address spaces, in the order of the sandboxes.
    pub fn look(&mut self, spaces: &[Spaces], page: u64) {
        let mut all = (self.start..self.start + self.len).step_by(page as usize);
        self.mapped = all.all(|pa| {
            let seen = |space: &Spaces| space.monitor.reaches(pa);
            self.owner.map_or(spaces.iter().any(seen), |owner| spaces.get(owner).is_some_and(seen))
        });
    }
}

/// Pages that more than one monitor maps.
#[derive(Default)]
pub struct Shared {
    pub mailboxes: u64,
    pub reports: Vec<u64>,
    /// Pages with the states of the peers of channels that a Linux has an end of, by the channel's first region.
    pub states: BTreeMap<usize, u64>,
}
