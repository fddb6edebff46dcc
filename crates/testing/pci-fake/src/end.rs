//! A channel's end that is not there: its owner's accesses, and their effects. The rules for it are worked out here
//! from the writes, by the specifications (PCI 3.0, 6.8; ivshmem version 2). They do not use the monitor's tables.

use crate::{Access, CORES, Words};
use bulkhead_image::{end, pci::Shadow};
use bulkhead_layout::PAGE;
use bulkhead_layout::pci::{Function, Register, Reset};
use bulkhead_pci::x86::{self, Routes};
use bulkhead_pci::{Denied, Hardware};
use bulkhead_plan::{self as plan, Bdf, Span};
use std::cell::{Cell, RefCell};

/// Registers that a guest sees.
const CONTROL: u64 = 0x08;
const DOORBELL: u64 = 0x0C;
const STATE: u64 = 0x10;
/// Where its guest sees its registers, and its MSI-X table behind them.
const GUEST: u64 = 0xD080_0000;
/// Offset of its MSI-X capability.
const MSIX: u16 = 0x98;
/// Gives the bits of its configuration that no write changes: status, the capability's number.
fn fresh(word: u16) -> u32 {
    match 4 * word {
        0x04 => 0x0018_0000,
        MSIX => 0x11,
        _ => 0,
    }
}

/// The line's message, while it sends anything.
pub const LINE: u64 = 5 << 32 | 0x61;

/// An end, and what its owner's monitor has said to others.
pub struct End {
    /// The function as its owner's monitor knows it.
    pub function: Function,
    registers: Vec<Register>,
    resets: Vec<Reset>,
    fresh: Vec<u32>,
    shadow: RefCell<Vec<u32>>,
    config: RefCell<Vec<u32>>,
    page: RefCell<Vec<u32>>,
    /// State that peers see.
    pub state: Cell<u64>,
    /// Message of the line.
    pub line: Cell<u64>,
    /// Where interrupts are said to go.
    pub aim: Cell<u64>,
    /// How often it rang.
    pub rings: Cell<u32>,
    wrong: RefCell<Option<String>>,
}

impl End {
    /// The end of this number, 0 or 1, that rings the other one, or is woken by it, or both.
    #[must_use]
    pub fn new(id: u32, rings: bool, woken: bool) -> Self {
        let bell = plan::Bell::new(plan::Arch::Svm, 3, 2, false);
        let own = plan::End {
            region: 0,
            id,
            peers: vec![0, 1],
            bdf: Bdf(0x80),
            more: false,
            registers: GUEST,
            rings: rings.then_some(bell),
            woken: woken
                .then_some(plan::Woken { bell, pin: Some(plan::Pin { number: 1, line: 16 }) }),
            memory: Span { start: 0xD200_0000, len: 4 * PAGE },
        };
        let mut shadow = Shadow::default();
        let described = end::described(0, &own, &mut shadow);
        Self {
            function: described.function,
            registers: described.registers,
            resets: described.resets,
            fresh: shadow.words.clone(),
            shadow: RefCell::new(shadow.words),
            config: RefCell::new((0..1024).map(fresh).collect()),
            page: RefCell::new(vec![0; 1024]),
            state: Cell::new(0),
            line: Cell::new(0),
            aim: Cell::new(0),
            rings: Cell::new(0),
            wrong: RefCell::new(None),
        }
    }

    /// Does it. A write gives 0.
    ///
    /// # Errors
    /// It is denied.
    pub fn access(&self, access: Access) -> Result<u64, Denied> {
        let f = &self.function;
        match access {
            Access::Config(offset, size, write) => {
                bulkhead_pci::config(self, f, offset & 0xFFF, size, write).map(u64::from)
            }
            Access::Table(offset, size, write) => {
                bulkhead_pci::table(self, f, f.trap + offset % f.trap_len, size, write)
            }
            Access::Restart => {
                self.line.set(0);
                let stopped = bulkhead_pci::stop(self, f, &self.resets);
                self.shadow.borrow_mut().clone_from(&self.fresh);
                if stopped.is_err() || self.aim.get() != 0 || self.state.get() != 0 {
                    self.complain(format!("{:#x} is left of a life", self.aim.get()));
                }
                Ok(0)
            }
            // The line's entry, as the guest's own table has it.
            Access::Race(any) => {
                self.line.set(if any % 2 == 0 { 0 } else { LINE });
                bulkhead_pci::aim(self, f)?;
                Ok(0)
            }
            Access::Slow(_) => Ok(0),
        }
    }

    /// An access that numbers stand for.
    pub fn imagine(&self, words: &mut impl Words) -> Access {
        let size = words.pick(&[4, 4, 4, 4, 4, 1, 2, 8]) as u8;
        let (at, value) = match words.below(12) {
            0 => return [Access::Restart, Access::Race(words.below(256) as u8)][words.below(2)],
            1 => return Access::Race(words.below(256) as u8),
            2 | 3 => {
                let value = words.pick(&[0, 1 << 31, 1 << 31, 3 << 30, 1 << 30, u64::MAX]);
                return Access::Config(MSIX, size, words.written(value).map(|v| v as u32));
            }
            4 => {
                let (at, value) = (words.below(0x110) as u16, words.bits() as u32);
                return Access::Config(at, size, Some(value));
            }
            5 | 6 => (CONTROL, words.pick(&[1, 1, 1, 0, u64::MAX])),
            7 => (DOORBELL, words.pick(&[0x1_0000, 0, 0x1_0001, 0x2_0000, u64::MAX])),
            8 => (STATE, words.next()),
            9 => (words.next() % (2 * PAGE), words.next()),
            _ => {
                let part = words.below(4);
                (PAGE + 4 * part as u64, words.message(part))
            }
        };
        Access::Table(at, size, words.written(value))
    }

    /// Where interrupts are to go by what its owner can read of it.
    fn expected(&self) -> u64 {
        let shadow = self.shadow.borrow();
        let control = self.config.borrow()[usize::from(MSIX) / 4] >> 30;
        if self.page.borrow()[2] & 1 == 0 || shadow.len() < 4 {
            return 0;
        }
        let [address, upper, data, mask] = shadow[shadow.len() - 4..] else { return 0 };
        let (core, vector) = (address >> 12 & 0xFF, data & 0xFF);
        let right = address & 0xFFF0_0FFF == 0xFEE0_0000
            && upper == 0
            && data & !0x41FF == 0
            && vector >= 16
            && core != 0xFF
            && CORES.contains(&core);
        match control {
            0b10 if mask & 1 == 0 && right => u64::from(core) << 32 | u64::from(vector),
            0b10 | 0b11 => 0,
            _ => self.line.get(),
        }
    }

    /// Tells a state that it must not have.
    ///
    /// # Errors
    /// The first such thing.
    pub fn wrong(&self) -> Result<(), String> {
        let (found, expected) = (self.aim.get(), self.expected());
        if self.function.woken != 0 && found != expected {
            self.complain(format!("interrupts go to {found:#x}, not {expected:#x}"));
        }
        self.wrong.borrow().clone().map_or(Ok(()), Err)
    }

    fn complain(&self, what: String) {
        self.wrong.borrow_mut().get_or_insert(what);
    }

    fn register(&self, address: u64, size: u8) -> Option<usize> {
        let at = address.checked_sub(self.function.end).filter(|at| size == 4 && *at < PAGE);
        if at.is_none() {
            self.complain(format!("{size} bytes at {address:#x}"));
        }
        at.map(|at| at as usize / 4)
    }
}

impl Hardware for End {
    fn registers(&self, _: &Function) -> &[Register] {
        &self.registers
    }

    fn config(&self, _: &Function, offset: u16) -> u32 {
        self.config.borrow()[usize::from(offset) / 4]
    }

    fn set_config(&self, _: &Function, offset: u16, value: u32) {
        let bars = 0x10..0x28;
        let allowed = match offset {
            0x04 => 0x407,
            // With the pin that it is shown with.
            0x3C => 0x1FF,
            // BARs are what they were: the page is memory.
            _ if bars.contains(&offset) => u32::MAX,
            MSIX if self.function.woken != 0 => 3 << 30,
            _ => 0,
        };
        let mut config = self.config.borrow_mut();
        let place = &mut config[usize::from(offset) / 4];
        if (*place ^ value) & !allowed != 0 {
            self.complain(format!("{value:#x} at {offset:#x}"));
        }
        *place = value;
    }

    fn shadow(&self, word: u32) -> u32 {
        self.shadow.borrow()[word as usize]
    }

    fn set_shadow(&self, word: u32, value: u32) {
        self.shadow.borrow_mut()[word as usize] = value;
    }

    fn wait(&self, _: u32, _: impl Fn() -> bool) -> bool {
        true
    }

    fn page(&self, address: u64, size: u8) -> u64 {
        self.register(address, size).map_or(0, |n| self.page.borrow()[n].into())
    }

    fn set_page(&self, address: u64, size: u8, value: u64) {
        if address == self.function.state {
            return self.state.set(value);
        }
        if let Some(n) = self.register(address, size) {
            if ![CONTROL, STATE].contains(&(4 * n as u64)) || n == 2 && value > 1 {
                self.complain(format!("{value:#x} in register {:#x}", 4 * n));
            }
            self.page.borrow_mut()[n] = value as u32;
        }
    }

    fn message(&self, function: &Function, wanted: [u32; 3]) -> Result<[u32; 3], Denied> {
        x86::message(self, function, wanted)
    }

    fn sends(&self, message: [u32; 3]) -> u64 {
        x86::sends(message)
    }

    fn ring(&self, bell: u32) {
        if bell != 3 {
            self.complain(format!("doorbell {bell} is rung"));
        }
        self.rings.set(self.rings.get() + 1);
    }

    fn line(&self, line: u32) -> u64 {
        if line != 16 {
            self.complain(format!("line {line} is asked for"));
        }
        self.line.get()
    }

    fn aim(&self, word: usize, icr: u64) {
        if word != 2 {
            self.complain(format!("word {word} is written"));
        }
        self.aim.set(icr);
    }
}

impl Routes for End {
    fn owns_core(&self, id: u32) -> bool {
        CORES.contains(&id)
    }

    fn entry(&self, core: u32, vector: u8) -> u32 {
        self.complain(format!("the entry of vector {vector} on core {core}"));
        0
    }

    fn remap(&self, _: &Function, _: usize) -> Option<u32> {
        None
    }

    fn set_remap(&self, _: &Function, slot: usize, _: u32) -> bool {
        self.complain(format!("remapping entry {slot}"));
        false
    }
}
