use crate::{World, mappings, threads, tree};
use bulkhead_arch::Entry;
use std::collections::HashMap;

impl World {
    /// Checks the statements that hold for all memory, between any two calls.
    ///
    /// # Errors
    /// The statement that does not hold.
    pub fn check(&self) -> Result<(), String> {
        let held = tree::held(self)?;
        tree::check(self, &held)?;
        threads::check(self)?;
        mappings::check(self, &held)
    }

    /// Checks memory where it has to be right.
    ///
    /// # Panics
    /// With the statement that does not hold.
    pub fn audit(&self) {
        if let Err(why) = self.check() {
            panic!("{why}");
        }
    }

    /// Lists the mappings of the space in use, by address.
    #[must_use]
    pub fn mapped(&self) -> HashMap<u64, Entry> {
        mappings::mapped(self)
    }
}
