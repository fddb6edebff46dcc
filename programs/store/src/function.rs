//! The PCI function that a program drives, found among its grants: registers, memory and time for its driver.

use bulkhead_disks::{Clock, Memory, Wrong};
use bulkhead_program::abi::{Grant, Name};
use bulkhead_program::{Program, Registers, now};
use core::sync::atomic::{Ordering, fence};

/// A function.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    program: Program,
    name: &'static str,
}

impl Function {
    /// Finds the first function that the manifest gives the program.
    ///
    /// # Errors
    /// There is none.
    pub fn find(program: Program) -> Result<Self, Wrong> {
        let name = program.names().find_map(|name| registers(name)?.strip_suffix(":config"));
        let name = name.ok_or(Wrong::Lacks("PCI function in the manifest"))?;
        Ok(Self { program, name })
    }

    /// Returns its configuration space.
    ///
    /// # Errors
    /// The program does not have it.
    pub fn configuration(&self) -> Result<Registers, Wrong> {
        self.part("config").ok_or(Wrong::Lacks("configuration space"))
    }

    /// Returns the registers of a BAR.
    #[must_use]
    pub fn bar(&self, number: u8) -> Option<Registers> {
        self.part(core::str::from_utf8(&[b'0' + number % 10]).ok()?)
    }

    fn part(&self, part: &str) -> Option<Registers> {
        let is =
            |name: &&str| name.strip_prefix(self.name)?.strip_prefix(':')?.eq(part).then_some(());
        let mut names = self.program.names().filter_map(registers);
        Some(self.program.registers(names.find(|name| is(name).is_some())?))
    }
}

/// The name of a grant of registers or memory.
fn registers(name: &'static Name) -> Option<&'static str> {
    let Some(Grant::Memory(_)) = name.grant() else { return None };
    Some(core::str::from_utf8(&name.name).ok()?.trim_end_matches('\0'))
}

/// Memory for the device's queues.
pub struct Queues {
    own: bulkhead_program::Memory,
    address: u64,
}

impl Queues {
    /// Finds the memory, which the device reaches.
    ///
    /// # Panics
    /// The manifest does not give the program that, or its device.
    #[must_use]
    pub fn find(program: Program, name: &str) -> Self {
        let (own, address) = program.memory_for_device(name);
        Self { own, address }
    }
}

impl Memory for Queues {
    fn bytes(&self) -> usize {
        self.own.len
    }
    fn address(&self) -> u64 {
        self.address
    }
    fn get(&self, at: usize) -> u64 {
        self.own.words().get(at / 8).map_or(0, |word| word.load(Ordering::Acquire))
    }
    fn set(&self, at: usize, value: u64) {
        if let Some(word) = self.own.words().get(at / 8) {
            word.store(value, Ordering::Release);
        }
    }
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// The program's clock.
pub struct Now;

impl Clock for Now {
    fn now(&self) -> u64 {
        now()
    }
}
