//! A PCI function that is not there, for tests of a monitor's accesses. It has registers that can be written, that
//! cannot, and that a 1 clears; BARs that move; resets; MSI, an MSI-X table, a remapping table.
//!
//! It knows by itself the deeds that must never be done to it ([`Fake::wrong`]). Its rules are written from the
//! specifications, not from the tables that the host bakes.

mod end;
mod nvme;
mod rules;
mod samples;

pub use end::{End, LINE};
pub use nvme::Left;
pub use samples::{all, bridge};

use bulkhead_image::pci::{Described, Shadow, own};
use bulkhead_layout::pci::{Function, Register, Reset, SLOTS};
use bulkhead_pci::x86::{self, Routes};
use bulkhead_pci::{Denied, Hardware};
use bulkhead_plan as plan;
use bulkhead_random::SplitMix64;
use std::cell::RefCell;

/// An act of a guest on its function, or of the monitor for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To the configuration space: offset, bytes, what it writes.
    Config(u16, u8, Option<u32>),
    /// To the trapped pages: offset in them, bytes, what it writes.
    Table(u64, u8, Option<u64>),
    /// The sandbox starts anew.
    Restart,
    /// Another core's message takes a free entry of the remapping table first.
    Race(u8),
    /// So many of the next writes find the function in a reset.
    Slow(u8),
}

/// The function and its owner.
pub struct Fake {
    described: plan::Function,
    line: bool,
    function: Function,
    registers: Vec<Register>,
    resets: Vec<Reset>,
    fresh: Vec<u32>,
    state: RefCell<State>,
}

struct State {
    config: Vec<u32>,
    page: Vec<u8>,
    shadow: Vec<u32>,
    remap: Option<Vec<u32>>,
    /// Entries that the IOMMU holds, as they were when they were filled.
    held: Vec<u32>,
    /// The monitor sends commands to the IOMMU.
    commands: bool,
    race: Option<u8>,
    slow: u8,
    left: u8,
    /// Its own register says how many more reads find it at work.
    busy: u8,
    /// It does not come to rest.
    hangs: bool,
    /// Its registers, if it is an NVMe controller.
    controller: Option<nvme::Controller>,
    /// Lives of its sandbox.
    lives: usize,
    /// Milliseconds that waits took to their ends.
    waited: u32,
    /// It is not there any more.
    gone: bool,
    wrong: Option<String>,
}

/// Reads of the register that resets a function until it is at rest.
const BUSY: u8 = 3;
/// Device control after a reset, of the bits that an owner writes (PCIe 5.0, 7.5.3.4).
const TUNED: u32 = 0x2810;
/// And as often a wait looks.
const LOOKS: u8 = 8;

/// Cores of the owner; one of them has the ID that means all cores in a message.
pub const CORES: [u32; 4] = [1, 5, 200, 255];

/// Where the function's own remapping table is said to be.
const TABLE: u64 = 1 << 32;
/// The first entry of the function's in a table that is everybody's: some of its entries have 16 bits.
pub const FIRST: u32 = 0x7E00;

mod at {
    pub const COMMAND: u16 = 0x04;
    pub const BARS: u16 = 0x10;
    pub const ROM: u16 = 0x30;
    pub const INTERRUPT: u16 = 0x3C;
}

impl Fake {
    /// A function as after power-on, owned by [`CORES`].
    #[must_use]
    pub fn new(granted: &plan::Granted, remapped: bool) -> Self {
        let mut shadow = Shadow::default();
        let Described { mut function, registers, resets } =
            own(granted, &mut shadow, bulkhead_layout::PAGE);
        function.bdf = u32::from(granted.function.bdf.0);
        function.remap_va = if remapped { TABLE } else { 0 };
        let described = granted.function.clone();
        Self::with(described, granted.line, function, registers, resets, shadow.words, remapped)
    }

    /// As [`Self::new`], with a remapping table that all functions share and nobody changes: its entries begin with
    /// [`FIRST`].
    #[must_use]
    pub fn indexed(granted: &plan::Granted) -> Self {
        let mut fake = Self::new(granted, false);
        fake.function.remap_va = FIRST.into();
        fake
    }

    /// A bridge above one, which is only shown.
    #[must_use]
    pub fn shown(described: plan::Function) -> Self {
        let function = Function::default();
        let registers = bulkhead_image::pci::bridge();
        Self::with(described, false, function, registers, Vec::new(), Vec::new(), false)
    }

    fn with(
        described: plan::Function,
        line: bool,
        function: Function,
        registers: Vec<Register>,
        resets: Vec<Reset>,
        fresh: Vec<u32>,
        remapped: bool,
    ) -> Self {
        let state = State {
            config: vec![0; 1024],
            page: vec![0x5A; function.trap_len as usize],
            shadow: fresh.clone(),
            remap: remapped.then(|| vec![0; SLOTS]),
            held: vec![0; SLOTS],
            commands: false,
            race: None,
            slow: 0,
            left: 0,
            busy: BUSY,
            hangs: false,
            controller: None,
            lives: 0,
            waited: 0,
            gone: false,
            wrong: None,
        };
        let state = RefCell::new(state);
        let fake = Self { described, line, function, registers, resets, fresh, state };
        fake.power_on();
        if fake.is_nvme() {
            fake.leave(Left::Works);
        }
        fake
    }

    /// As [`Self::new`], with a remapping table that is full of messages of before. The monitor can have the IOMMU
    /// forget them.
    #[must_use]
    pub fn crowded(granted: &plan::Granted) -> Self {
        let fake = Self::new(granted, true);
        let mut state = fake.state.borrow_mut();
        let old: Vec<u32> =
            (0..SLOTS as u32).map(|n| 1 | CORES[0] << 8 | (n % 240 + 16) << 16).collect();
        (state.held, state.remap, state.commands) = (old.clone(), Some(old), true);
        drop(state);
        fake
    }

    /// It is not there any more: all reads give ones.
    pub fn vanish(&self) {
        self.state.borrow_mut().gone = true;
    }

    /// Sets a register of the hardware, past all checks.
    pub fn force(&self, offset: u16, value: u32) {
        self.state.borrow_mut().config[usize::from(offset) / 4] = value;
    }

    /// Returns the milliseconds that the monitor has waited in vain, or for a time to be over, and begins anew.
    pub fn waited(&self) -> u32 {
        std::mem::take(&mut self.state.borrow_mut().waited)
    }

    /// It does not come to rest any more.
    pub fn hang(&self) {
        self.state.borrow_mut().hangs = true;
    }

    /// Tells if the register that resets it shows that it is at work.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.state.borrow().busy > 0
    }

    /// Returns the steps that stop it.
    #[must_use]
    pub fn steps(&self) -> &[Reset] {
        &self.resets
    }

    /// Tells if an access is one to the register that resets it.
    fn resets(&self, address: u64, size: u8) -> bool {
        self.described.reset.iter().any(|step| (step.at, step.size) == (address, size))
    }

    /// Tells if it can be written at all.
    fn is_own(&self) -> bool {
        self.described.bridge.is_none()
    }

    fn power_on(&self) {
        let mut state = self.state.borrow_mut();
        for (n, word) in state.config.iter_mut().enumerate() {
            let at = 4 * n as u16;
            // Whatever a 1 clears is set; what nobody may write has a pattern.
            *word = 0x1234_5678 & self.writable(at) | self.cleared_by_one(at);
        }
        let f = &self.described;
        state.config[0] = u32::from(f.vendor) | u32::from(f.device) << 16;
        state.config[2] = f.class << 8;
        state.config[usize::from(at::INTERRUPT) / 4] = 0x0000_0105;
        // The boot code has switched its reports of errors off.
        if let Some(pcie) = f.pcie {
            state.config[usize::from(pcie.at + 8) / 4] &= !rules::REPORTS;
        }
        // And a port's source validation on.
        if let Some(acs) = f.bridge.and_then(|bridge| bridge.acs) {
            let first = usize::from(acs) / 4;
            state.config[first..first + 2].copy_from_slice(&[0x0001_000D, 0x001F_005F]);
        }
        drop(state);
        self.reset();
    }

    /// Resets the function: BARs and command are 0, there is no message, and the MSI-X table is masked.
    fn reset(&self) {
        let mut state = self.state.borrow_mut();
        let f = &self.described;
        for bar in 0..6 {
            state.config[usize::from(at::BARS) / 4 + bar] = 0;
        }
        for (offset, low) in self.bars().map(|bar| (bar.0, bar.2)) {
            state.config[usize::from(offset) / 4] = low;
        }
        state.config[1] &= 0xFFFF_0000;
        let capabilities = [
            f.pm.map(|c| (c.at, 0x01, 1)),
            f.msi.map(|c| (c.at, 0x05, 6)),
            f.msix.map(|c| (c.at, 0x11, 1)),
            f.af.map(|c| (c.at, 0x13, 1)),
        ];
        for (at, id, words) in capabilities.into_iter().flatten() {
            let first = usize::from(at) / 4;
            state.config[first] = id;
            (1..words).for_each(|n| {
                state.config[first + n] &= self.cleared_by_one(4 * (first + n) as u16)
            });
        }
        if let Some(pm) = f.pm {
            state.config[usize::from(pm.at) / 4 + 1] &= !3;
        }
        if let Some(msi) = f.msi {
            // 64 bits, masks, up to 8 messages.
            let control = 3 << 17 | u32::from(msi.wide) << 23 | u32::from(msi.masks) << 24;
            state.config[usize::from(msi.at) / 4] |= control;
        }
        if let Some(msix) = f.msix {
            state.config[usize::from(msix.at) / 4] |= u32::from(msix.vectors - 1) << 16;
            for vector in 0..u64::from(msix.vectors) {
                let at = (msix.table + 16 * vector - self.function.trap) as usize;
                state.page[at..at + 12].fill(0xEE);
                state.page[at + 12..at + 16].copy_from_slice(&[1, 0, 0, 0]);
            }
        }
        if let Some(pcie) = f.pcie.filter(|pcie| pcie.flr) {
            // Relaxed ordering, no snoop, reads of 512 bytes.
            let control = &mut state.config[usize::from(pcie.at + 8) / 4];
            *control = *control & !rules::TUNING | TUNED;
        }
        if let Some(controller) = &mut state.controller {
            controller.reset();
        }
        state.left = state.slow;
    }

    /// Halves of its BARs: offset, address bits, low bits, where they belong.
    fn bars(&self) -> impl Iterator<Item = (u16, u32, u32, u32)> + '_ {
        self.described.bars.iter().flat_map(|bar| {
            let offset = at::BARS + 4 * u16::from(bar.number);
            let size = !(bar.span.len - 1);
            let (bits, wide) = match bar.kind {
                plan::BarKind::Io => (!0b11, false),
                plan::BarKind::Memory { wide, .. } => (!0xF, wide),
            };
            let low = (offset, size as u32 & bits, bar.kind.low_bits(), bar.span.start as u32);
            let high = (offset + 4, (size >> 32) as u32, 0, (bar.span.start >> 32) as u32);
            [Some(low), wide.then_some(high)].into_iter().flatten()
        })
    }

    /// Bits of a register that hold what is written.
    fn writable(&self, offset: u16) -> u32 {
        let f = &self.described;
        let is = |capability: Option<u8>, after: u16| {
            capability.is_some_and(|at| offset == u16::from(at) + after)
        };
        if let Some((_, bits, ..)) = self.bars().find(|bar| bar.0 == offset) {
            return bits;
        }
        match offset {
            at::COMMAND => 0x0547,
            0x0C => 0x0000_FFFF,
            at::ROM => 0xFFFF_F801,
            at::INTERRUPT => 0xFF,
            // A bridge's buses and windows.
            0x18..0x30 if !self.is_own() => 0x00FF_FFF0,
            _ if is(f.pm.map(|c| c.at), 4) => 0x0103,
            _ if is(f.pcie.map(|c| c.at), 8) => 0x7FFF,
            // Link control.
            _ if is(f.pcie.map(|c| c.at), 16) => 0x01FB,
            _ if is(f.msix.map(|c| c.at), 0) => 3 << 30,
            // An extended capability.
            0x108 | 0x10C | 0x200 => u32::MAX,
            _ => f.msi.map_or(0, |msi| {
                let at = u16::from(msi.at);
                let data = at + if msi.wide { 12 } else { 8 };
                match offset.wrapping_sub(at) {
                    0 => 0b111 << 20 | 1 << 16,
                    4 => !0b11,
                    _ if offset == data => 0xFFFF,
                    8 if msi.wide => u32::MAX,
                    _ if msi.masks && offset == data + 4 => u32::MAX,
                    _ => 0,
                }
            }),
        }
    }

    /// Bits that are cleared where a 1 is written.
    fn cleared_by_one(&self, offset: u16) -> u32 {
        let f = &self.described;
        match offset {
            at::COMMAND => 0xF900_0000,
            0x1C if !self.is_own() => 0xF900_0000,
            0x104 => 0x0007_F030,
            _ if f.pm.is_some_and(|c| offset == u16::from(c.at) + 4) => 1 << 15,
            _ if f.pcie.is_some_and(|c| offset == u16::from(c.at) + 8) => 0xF << 16,
            _ => 0,
        }
    }

    fn complain(&self, what: String) {
        self.state.borrow_mut().wrong.get_or_insert(what);
    }

    /// A register of the hardware.
    #[must_use]
    pub fn hardware(&self, offset: u16) -> u32 {
        self.state.borrow().config.get(usize::from(offset) / 4).copied().unwrap_or(u32::MAX)
    }

    /// An entry of the hardware's MSI-X table: address, upper half, data, control.
    #[must_use]
    pub fn entry(&self, vector: u32) -> [u32; 4] {
        let at = (self.function.table - self.function.trap) as usize + 16 * vector as usize;
        let state = self.state.borrow();
        let word = |n: usize| state.page.get(at + 4 * n..at + 4 * n + 4);
        std::array::from_fn(|n| {
            word(n).map_or(0, |w| w.iter().rev().fold(0, |v, b| v << 8 | u32::from(*b)))
        })
    }

    /// An entry of the remapping table.
    #[must_use]
    pub fn slot(&self, slot: usize) -> u32 {
        self.state.borrow().remap.as_ref().and_then(|t| t.get(slot)).copied().unwrap_or(0)
    }

    /// Returns the function as the monitor knows it.
    #[must_use]
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Returns the function of the machine description.
    #[must_use]
    pub fn described(&self) -> &plan::Function {
        &self.described
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
            Access::Table(..) if f.trap_len == 0 => Err(Denied),
            Access::Table(offset, size, write) => {
                bulkhead_pci::table(self, f, f.trap + offset % f.trap_len, size, write)
            }
            Access::Restart => {
                bulkhead_pci::stop(self, f, &self.resets).map_err(|_| Denied)?;
                self.at_rest();
                let mut state = self.state.borrow_mut();
                state.shadow.clone_from(&self.fresh);
                // At rest; the next life has it at work again.
                state.lives += 1;
                let left = Left::ALL[state.lives % Left::ALL.len()];
                if self.is_nvme() {
                    state.controller = Some(nvme::Controller::new(left));
                } else if std::mem::replace(&mut state.busy, BUSY) > 0
                    && !self.described.reset.is_empty()
                {
                    state.wrong.get_or_insert("it is at work yet".to_owned());
                }
                Ok(0)
            }
            Access::Race(vector) => {
                self.state.borrow_mut().race = Some(vector | 16);
                Ok(0)
            }
            Access::Slow(writes) => {
                self.state.borrow_mut().slow = writes % 4;
                Ok(0)
            }
        }
    }

    /// An access that numbers stand for: near what drivers do, most times.
    pub fn imagine(&self, words: &mut impl Words) -> Access {
        let f = &self.described;
        let wide = f.msi.is_some_and(|msi| msi.wide);
        let any = words.next();
        let (low, size) = match words.below(4) {
            0 => (words.below(4) as u16, words.pick(&[1, 1, 2, 2, 3, 4, 8]) as u8),
            _ => (0, 4),
        };
        let capability = |at: Option<u8>| at.map_or(any as u16 & 0xFFC, u16::from);
        let (at, value) = match words.below(16) {
            0 if words.below(8) > 0 => return Access::Race(any as u8),
            0 => return [Access::Restart, Access::Slow(any as u8)][words.below(2)],
            1 => (any as u16, {
                let part = words.below(4);
                words.message(part)
            }),
            2 => (0x10 + 4 * words.below(8) as u16, words.bits()),
            3 => (4, words.pick(&[0, 7, 0x407, 0x547, 0xFFFF_FFFF])),
            4..6 => (4, words.pick(&[2, 3, 6, 7])),
            6 => (capability(f.msi.map(|c| c.at)), words.pick(&[0, 1 << 16, 0x71 << 16])),
            7 => (capability(f.msix.map(|c| c.at)), words.pick(&[0, 1 << 31, 3 << 30])),
            8 => (capability(f.pcie.map(|c| c.at)) + 8, words.pick(&[0, 0, 0xFF, 0x7FFF, 1 << 15])),
            9 => (capability(f.pm.map(|c| c.at)) + 4, words.pick(&[0, 0, 0, 1 << 15, 0xFFFF, 3])),
            10 => (capability(f.af.map(|c| c.at)) + 4, words.pick(&[0, 0, 0, 1])),
            11 => (words.pick(&[0x18, 0x1C, 0x30, 0x38, 0x3C, 0x3C]) as u16, words.bits()),
            12 | 13 => {
                let n = words.below(5);
                let part = if wide { n.min(2) } else { 2 * n.min(1) };
                (capability(f.msi.map(|c| c.at)) + 4 + 4 * n as u16, words.message(part))
            }
            _ => {
                let (entry, n) = (words.below(4), words.below(4));
                let both = words.message(n) | words.message((n + 1) % 4) << 32;
                let value = if size == 8 { both } else { both & 0xFFFF_FFFF };
                let at = self.function.table.wrapping_sub(self.function.trap);
                let at = at + (16 * entry + 4 * n) as u64 + u64::from(low);
                let at = if words.below(16) == 0 { any } else { at };
                return Access::Table(at, size, words.written(value));
            }
        };
        let value = if words.below(8) == 0 { words.next() } else { value };
        Access::Config(at.wrapping_add(low), size, words.written(value).map(|value| value as u32))
    }

    /// Tells a deed that must not be done to it.
    ///
    /// # Errors
    /// The first such thing.
    pub fn wrong(&self) -> Result<(), String> {
        self.state.borrow().wrong.clone().map_or(Ok(()), Err)
    }
}

/// Where the numbers for [`Fake::imagine`] come from.
pub trait Words {
    /// The next one.
    fn next(&mut self) -> u64;

    /// One below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// One of these.
    fn pick(&mut self, from: &[u64]) -> u64 {
        from[self.below(from.len())]
    }

    /// Few bits, or many.
    fn bits(&mut self) -> u64 {
        match self.below(4) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << self.below(32),
            _ => self.next() & self.next(),
        }
    }

    /// A part of a message: address, upper half, data, mask.
    fn message(&mut self, part: usize) -> u64 {
        match part {
            _ if self.below(8) == 0 => self.next() & 0xFFFF_FFFF,
            0 => 0xFEE0_0000 | self.pick(&[1, 1, 5, 200, 255, 0, 2]) << 12,
            1 => 0,
            2 => self.pick(&[0x31, 0x32, 0x10, 0xFE, 0x131, 0x4031, 0x0F, 0x431, 0x8031]),
            _ => self.below(2) as u64,
        }
    }

    /// Mostly a write.
    fn written(&mut self, value: u64) -> Option<u64> {
        (self.below(8) > 0).then_some(value)
    }
}

impl Words for SplitMix64 {
    fn next(&mut self) -> u64 {
        self.any()
    }
}

impl Hardware for Fake {
    fn registers(&self, _: &Function) -> &[Register] {
        &self.registers
    }

    fn config(&self, _: &Function, offset: u16) -> u32 {
        if self.state.borrow().gone {
            return u32::MAX;
        }
        if offset % 4 != 0 || offset >= 4096 {
            self.complain(format!("a read at {offset:#x}"));
        }
        self.hardware(offset)
    }

    fn set_config(&self, _: &Function, offset: u16, value: u32) {
        if self.state.borrow().gone {
            return;
        }
        let n = usize::from(offset) / 4;
        let Some(old) = self.state.borrow().config.get(n).copied().filter(|_| offset % 4 == 0)
        else {
            return self.complain(format!("a write at {offset:#x}"));
        };
        let (holds, clears) = (self.writable(offset), self.cleared_by_one(offset));
        let new = old & !holds | value & holds;
        self.before_write(offset, old, new, value & clears & old);
        {
            let mut state = self.state.borrow_mut();
            if state.left > 0 {
                // It is in a reset.
                state.left -= 1;
                return;
            }
            state.config[n] = new & !(value & clears);
        }
        let f = &self.described;
        let flr = f.pcie.is_some_and(|c| c.flr && offset == u16::from(c.at) + 8)
            && value & 1 << 15 != 0
            || f.af.is_some_and(|c| c.flr && offset == u16::from(c.at) + 4) && value & 1 != 0;
        let wakes = f.pm.is_some_and(|c| c.resets && offset == u16::from(c.at) + 4)
            && old & 3 == 3
            && new & 3 == 0;
        if flr || wakes {
            self.reset();
        }
        self.after_write();
    }

    fn shadow(&self, word: u32) -> u32 {
        let found = self.state.borrow().shadow.get(word as usize).copied();
        found.unwrap_or_else(|| {
            self.complain(format!("shadow {word} is read"));
            0
        })
    }

    fn set_shadow(&self, word: u32, value: u32) {
        if let Some(place) = self.state.borrow_mut().shadow.get_mut(word as usize) {
            *place = value;
            return;
        }
        self.complain(format!("shadow {word} is written"));
    }

    fn wait(&self, milliseconds: u32, done: impl Fn() -> bool) -> bool {
        let done = milliseconds > 0 && (0..LOOKS).any(|_| done());
        self.state.borrow_mut().waited += if done { 0 } else { milliseconds };
        done
    }

    fn page(&self, address: u64, size: u8) -> u64 {
        if self.state.borrow().gone || self.resets(address, size) && !self.decodes() {
            return u64::MAX;
        }
        if self.resets(address, size) {
            if self.is_nvme() {
                return self.read_controller(address).into();
            }
            let mut state = self.state.borrow_mut();
            state.busy = state.busy.saturating_sub(u8::from(!state.hangs));
            return u64::from(state.busy);
        }
        let Some(at) = self.place(address, size) else { return 0 };
        if !self.decodes() {
            return u64::MAX;
        }
        let state = self.state.borrow();
        state.page[at..at + usize::from(size)].iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))
    }

    fn set_page(&self, address: u64, size: u8, value: u64) {
        if self.state.borrow().gone || self.resets(address, size) && !self.decodes() {
            return;
        }
        if self.resets(address, size) {
            if self.is_nvme() {
                return self.write_controller(address, value as u32);
            }
            if self.hardware(at::COMMAND) & 0b110 != 0b010 || value != 0 {
                self.complain(format!("{value:#x} resets it while it can reach memory"));
            }
            return;
        }
        let Some(at) = self.place(address, size) else { return };
        if self.decodes() {
            let bytes = value.to_le_bytes();
            self.state.borrow_mut().page[at..at + usize::from(size)]
                .copy_from_slice(&bytes[..usize::from(size)]);
        }
        self.after_write();
    }

    fn message(&self, function: &Function, wanted: [u32; 3]) -> Result<[u32; 3], Denied> {
        x86::message(self, function, wanted)
    }

    fn sends(&self, message: [u32; 3]) -> u64 {
        x86::sends(message)
    }

    fn ring(&self, bell: u32) {
        self.complain(format!("doorbell {bell} is rung"));
    }

    fn line(&self, line: u32) -> u64 {
        self.complain(format!("line {line} is asked for"));
        0
    }

    fn aim(&self, word: usize, _: u64) {
        self.complain(format!("word {word} is written"));
    }
}

impl Routes for Fake {
    fn owns_core(&self, id: u32) -> bool {
        CORES.contains(&id)
    }

    fn entry(&self, core: u32, vector: u8) -> u32 {
        let nth = CORES.iter().position(|own| *own == core).unwrap_or(CORES.len());
        nth as u32 * 256 + u32::from(vector)
    }

    fn remap(&self, _: &Function, slot: usize) -> Option<u32> {
        let state = self.state.borrow();
        state.remap.as_ref().map(|table| table.get(slot).copied().unwrap_or(u32::MAX))
    }

    fn set_remap(&self, _: &Function, slot: usize, entry: u32) -> bool {
        let mut state = self.state.borrow_mut();
        let race = state.race.take();
        let Some(place) = state.remap.as_mut().and_then(|table| table.get_mut(slot)) else {
            drop(state);
            self.complain(format!("remapping entry {slot}"));
            return false;
        };
        if let Some(vector) = race.filter(|_| *place == 0) {
            *place = 1 | CORES[0] << 8 | u32::from(vector) << 16;
        }
        let free = *place == 0;
        if free {
            *place = entry;
        }
        let now = *place;
        let held = &mut state.held[slot];
        let stale = *held != 0 && *held != now;
        *held = now;
        drop(state);
        if stale {
            self.complain(format!("entry {slot}, which the IOMMU holds, is another's"));
        }
        free
    }

    fn empty(&self, function: &Function) -> bool {
        let used = x86::used(self, function);
        let mut state = self.state.borrow_mut();
        let can = state.commands;
        for slot in (0..SLOTS).filter(|slot| can && used[slot / 64] >> (slot % 64) & 1 == 0) {
            state.held[slot] = 0;
            if let Some(table) = &mut state.remap {
                table[slot] = 0;
            }
        }
        can
    }
}
