use crate::{World, mappings, threads, tree};
use bulkhead_arch::Entry;
use std::collections::HashMap;

impl World {
    /// What has to be true of all memory, between any two calls.
    ///
    /// # Errors
    /// What isn't.
    pub fn check(&self) -> Result<(), String> {
        let held = tree::held(self)?;
        tree::check(self, &held)?;
        threads::check(self)?;
        mappings::check(self, &held)
    }

    /// The same where it has to be.
    ///
    /// # Panics
    /// With what isn't.
    pub fn audit(&self) {
        if let Err(why) = self.check() {
            panic!("{why}");
        }
    }

    /// What the space in use maps, by address.
    #[must_use]
    pub fn mapped(&self) -> HashMap<u64, Entry> {
        mappings::mapped(self)
    }
}
