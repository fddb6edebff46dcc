//! Registers of a stopped machine, as a debugger shows them, or from a dump as `registers.json`.

use crate::x86::registers as own;
use serde::{Deserialize, Serialize};

/// A core. While a core runs a guest, the processor shows the guest's registers; the host's are in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// Number of the core in the machine.
    pub number: usize,
    /// Instruction pointer.
    pub pc: u64,
    /// Root of its tables.
    pub root: u64,
    /// It sleeps, or waits to be started.
    #[serde(default)]
    pub halted: bool,
    /// Physical address of the control block of the last guest, where it is known.
    #[serde(default)]
    pub block: Option<u64>,
    /// The host's root of tables, instruction pointer and stack pointer behind the guest, where they are known.
    #[serde(default)]
    pub host: Option<[u64; 3]>,
    /// Registers that only its architecture has.
    #[serde(flatten)]
    pub own: own::Core,
}

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registers {
    /// Cores, ascending.
    pub cores: Vec<Core>,
    /// Registers of units that only its architecture has.
    #[serde(flatten)]
    pub own: own::Units,
}

impl Registers {
    /// Tells if a core is on the tables at a root. A core in its monitor is on its monitor's. A guest that puts their
    /// address into its own root makes a reader look again, and no more.
    #[must_use]
    pub fn is_on_tables(&self, number: usize, root: u64) -> bool {
        self.cores.iter().any(|c| c.number == number && c.root & !0xFFF == root)
    }
}

#[cfg(test)]
mod tests {
    use super::{Core, Registers};

    #[test]
    fn only_the_core_itself_is_on_its_monitors_tables() {
        let core = |number, root| Core { number, root, ..Core::default() };
        let registers =
            Registers { cores: vec![core(0, 0x5000), core(2, 0x7018)], ..Registers::default() };
        assert!(registers.is_on_tables(0, 0x5000));
        assert!(registers.is_on_tables(2, 0x7000), "attributes are no part of the address");
        assert!(!registers.is_on_tables(2, 0x5000), "another core's");
        assert!(!registers.is_on_tables(1, 0x5000), "no such core");
    }
}
