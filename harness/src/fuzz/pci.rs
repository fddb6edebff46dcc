//! Random owners of PCI functions: any access to the configuration space and to the
//! MSI-X table, resets and restarts between them. The function that is not there
//! watches each write for what must not be.

use super::Random;
use bulkhead_pci_fake::{Fake, all, bridge};

/// One function of each kind with and without remapping, and a bridge.
pub struct Functions(Vec<Fake>);

impl Functions {
    /// As after power-on.
    pub fn new() -> Self {
        let own = all();
        let own = own.iter().flat_map(|f| [true, false].map(|remapped| Fake::new(f, remapped)));
        Self(own.chain([Fake::shown(bridge())]).collect())
    }

    /// One access to one of them; whether it was allowed.
    pub fn access(&self, random: &mut Random) -> Result<bool, String> {
        let which = random.below(self.0.len());
        let function = &self.0[which];
        let access = function.imagine(random.next());
        let done = function.access(access);
        function.wrong().map_err(|why| format!("function {which}, {access:x?}: {why}"))?;
        Ok(done.is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_owners_stay_inside() {
        const ROUNDS: usize = 30_000;
        let mut random = Random::new(7);
        let functions = Functions::new();
        let allowed = (0..ROUNDS).filter(|_| functions.access(&mut random).unwrap()).count();
        assert!((ROUNDS / 4..ROUNDS * 9 / 10).contains(&allowed), "{allowed} allowed");
    }
}
