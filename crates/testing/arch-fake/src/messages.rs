//! Messages of functions on the odd machine, as a monitor treats them. A guest names a core and an interrupt: the
//! doorbell's address, the core's identity in place of the upper half, and the interrupt as data. The function has the
//! number of an entry in their place, which its owner's monitor makes in the function's own table.

use crate::target::Odd;
use bulkhead_image::Target;
use bulkhead_layout::pci::{Function, Register};
use bulkhead_pci::{Denied, Hardware};
use core::ops::Range;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Address to which messages are written; its upper half is [`UPPER`].
pub const DOORBELL: u32 = 0xC000_0000;
/// Upper half of the address that the hardware knows.
pub const UPPER: u32 = 2;
/// Interrupts that messages may raise: doorbells lie below, and lines above.
pub const INTERRUPTS: Range<u32> = 1000..2900;

/// A monitor's view of one function, with registers that hold what is written.
pub struct Mediated {
    function: Function,
    registers: Vec<Register>,
    cores: Vec<u32>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    config: BTreeMap<u16, u32>,
    page: BTreeMap<u64, u32>,
    shadow: Vec<u32>,
    table: Vec<u64>,
}

impl Mediated {
    /// Knows a function as its monitor does, at the launch. `slots`: entries of its table.
    #[must_use]
    pub fn new(function: Function, registers: Vec<Register>, cores: &[u32], slots: usize) -> Self {
        const MASKED: [u32; 4] = [0, 0, 0, 1];
        let shadow = [vec![0; function.shadow as usize], MASKED.repeat(function.vectors as usize)];
        let (shadow, table) = (shadow.concat(), vec![0; slots]);
        let state = State { shadow, table, ..State::default() };
        Self { function, registers, cores: cores.to_vec(), state: state.into() }
    }

    /// Writes a word of the guest's into the function's table of messages.
    ///
    /// # Errors
    /// See [`bulkhead_pci::table`].
    pub fn write(&self, vector: u64, word: u64, value: u32) -> Result<(), Denied> {
        let at = self.function.table + 16 * vector + 4 * word;
        bulkhead_pci::table(self, &self.function, at, 4, Some(value.into())).map(drop)
    }

    /// Reads a word of that table, as the hardware has it.
    #[must_use]
    pub fn has(&self, vector: u64, word: u64) -> u32 {
        self.page(self.function.table + 16 * vector + 4 * word, 4) as u32
    }

    /// Returns the entries that the monitor has made.
    #[must_use]
    pub fn entries(&self) -> Vec<u64> {
        self.state.borrow().table.iter().copied().take_while(|entry| *entry != 0).collect()
    }
}

impl Hardware for Mediated {
    fn registers(&self, _: &Function) -> &[Register] {
        &self.registers
    }

    fn config(&self, _: &Function, offset: u16) -> u32 {
        self.state.borrow().config.get(&offset).copied().unwrap_or(0)
    }

    fn set_config(&self, _: &Function, offset: u16, value: u32) {
        self.state.borrow_mut().config.insert(offset, value);
    }

    fn shadow(&self, word: u32) -> u32 {
        self.state.borrow().shadow[word as usize]
    }

    fn set_shadow(&self, word: u32, value: u32) {
        self.state.borrow_mut().shadow[word as usize] = value;
    }

    fn page(&self, address: u64, _: u8) -> u64 {
        self.state.borrow().page.get(&address).copied().unwrap_or(0).into()
    }

    fn set_page(&self, address: u64, _: u8, value: u64) {
        self.state.borrow_mut().page.insert(address, value as u32);
    }

    fn wait(&self, _: u32, done: impl Fn() -> bool) -> bool {
        done()
    }

    fn message(
        &self,
        _: &Function,
        [address, core, interrupt]: [u32; 3],
    ) -> Result<[u32; 3], Denied> {
        let own = self.cores.contains(&core) && INTERRUPTS.contains(&interrupt);
        if address != DOORBELL || !own {
            return Err(Denied);
        }
        let wanted = Odd::signal(core, interrupt);
        let table = &mut self.state.borrow_mut().table;
        let fits = |entry: &u64| [0, wanted].contains(entry);
        let slot = table.iter().position(fits).ok_or(Denied)?;
        table[slot] = wanted;
        Ok([DOORBELL, UPPER, slot as u32])
    }

    fn sends(&self, [_, core, interrupt]: [u32; 3]) -> u64 {
        Odd::signal(core, interrupt)
    }

    fn ring(&self, _: u32) {}

    fn line(&self, _: u32) -> u64 {
        0
    }

    fn aim(&self, _: usize, _: u64) {}
}
