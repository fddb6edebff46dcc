//! The making of operations: from a monitor's requests, near them, or anything; and from inputs that reached something
//! new.

use crate::code::{
    ACCEPT_IT, CPUID, ENTRY, HANG, IN, LINE, LOADS, MESSAGE, NO_MOVES, OTHERS, OUT, RDMSR,
    SHUTDOWN, STACK, STORES, STRINGS, TABLE, UNALIGNED, VMMCALL, WRMSR,
};
use crate::random::Random;
use crate::{CODE, OPEN, Op, R8, RAX, RBX, RCX, RDI, RDX, RSI, SCRATCH, SNIPPET, SNIPPETS, USER};
use bulkhead_sdk::layout::hypercall as call;
use bulkhead_sdk::layout::map::ECAM_GPA;

/// The IOAPIC's page.
pub const IOAPIC: u64 = 0xFEC0_0000;
/// Where [`Maker::last`] finds an address outside of the sandbox, and a descriptor table of nothing.
pub const OUTSIDE: u64 = SCRATCH + 0x800;
const NOTHING: u64 = SCRATCH + 0x900;
const ICR: u32 = 0x830;
const TIMER: u32 = 0x838;
const SELF_IPI: u32 = 0x83F;
const EFER: u32 = 0xC000_0080;
const PAGE: u64 = 4096;
/// Counts of an APIC's timer are at least that: with a period of a few instructions nothing else gets on.
const TIMER_COUNT: u64 = 1 << 22;
/// Counters of the PIT: the first one raises interrupts, with a period of a microsecond if it is told to.
const COUNTERS: [u16; 2] = [0x40, 0x42];
/// One operation in so many that would end their sandbox is made: [`Maker::last`] chooses a life's end.
const RARE: usize = 200;
/// Turns in which [`Maker::last`] takes each kind of way to end a life; the last turn is for those that share one.
pub const WAYS: u64 = 8;
/// Ways that share the last turn.
const LAST: u64 = 4;

/// A few numbers.
#[derive(Clone, Debug, Default)]
pub struct List {
    items: [u64; 24],
    len: usize,
}

impl List {
    /// Adds one; an item without room is left out.
    pub fn push(&mut self, item: u64) {
        if let Some(place) = self.items.get_mut(self.len) {
            *place = item;
            self.len += 1;
        }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[u64] {
        &self.items[..self.len]
    }
}

/// Targets of a sandbox.
#[derive(Clone, Debug, Default)]
pub struct Aims {
    /// x2APIC IDs of the own cores, the first one's first.
    pub own: List,
    /// Configuration pages of functions: own ones, bridges, others.
    pub functions: List,
    /// Other pages that monitors answer for, and own channels.
    pub pages: List,
    /// MSI capabilities of own functions.
    pub capabilities: List,
    /// MSI-X tables of own functions.
    pub tables: List,
    /// Registers of a function that computes from the values written at their beginning, for minutes if those are
    /// large.
    pub computes: List,
    /// Pages that may be read only.
    pub read_only: List,
    /// Sandboxes in the machine.
    pub sandboxes: u32,
}

/// Makes operations for one core.
#[derive(Clone, Debug)]
pub struct Maker {
    /// Its numbers.
    pub random: Random,
    aims: Aims,
}

impl Maker {
    /// With its targets.
    #[must_use]
    pub const fn new(aims: Aims, seed: u64) -> Self {
        Self { random: Random::new(seed), aims }
    }

    /// A value that means something to some register, or anything.
    fn value(&mut self) -> u64 {
        let any = self.random.next();
        match any >> 61 {
            0 => self.random.next(),
            1 => any & 0xFFFF_FFFF,
            2 => 1 << (any & 63),
            3 => u64::MAX << (any & 63),
            4 => any & any >> 16 & 0xFFFF,
            5 => self.random.pick(&[
                0,
                1,
                2,
                0xFF,
                0x100,
                0xFFFF,
                0x8000_0000,
                0xFEE0_0000,
                0xFFFF_FFFF,
            ]),
            _ => any & 0xFF,
        }
    }

    /// An operation from nothing.
    pub fn fresh(&mut self) -> Op {
        loop {
            let op = self.any();
            if let Some(op) = self.tame(op) {
                return op;
            }
        }
    }

    /// One of an input, changed or not.
    pub fn mutated(&mut self, mut op: Op) -> Op {
        let n = self.random.below(6);
        match self.random.below(8) {
            0 => op.registers[n] = self.value(),
            1 => op.registers[n] ^= 1 << self.random.below(64),
            2 => op.registers[n] ^= 1 << self.random.below(16),
            3 => {
                op.registers[n] =
                    op.registers[n].wrapping_add(self.random.below(9) as u64).wrapping_sub(4)
            }
            4 => op.how ^= OPEN,
            _ => {}
        }
        match self.tame(op) {
            Some(op) => op,
            None => self.fresh(),
        }
    }

    fn any(&mut self) -> Op {
        let mut op = Op::default();
        let filler = self.random.next();
        for (n, register) in op.registers.iter_mut().enumerate() {
            *register = filler.rotate_left(5 * n as u32);
        }
        for n in [RAX, RCX, RDX, RBX, RSI, RDI] {
            op.registers[n] = self.value();
        }
        match self.random.below(100) {
            0..20 => self.msr(&mut op),
            20..32 => self.icr(&mut op),
            32..48 => self.port(&mut op),
            48..74 => self.memory(&mut op),
            74..92 => self.call(&mut op),
            92..95 => self.cpuid(&mut op),
            _ => self.other(&mut op),
        }
        let flags = self.random.next();
        if flags & 3 == 0 {
            op.how |= OPEN;
        }
        if flags >> 2 & 15 == 0 {
            op.how |= USER;
        }
        op
    }

    fn msr(&mut self, op: &mut Op) {
        // It leaves out registers that the rest of the program needs, see `tame`.
        const KNOWN: [u32; 28] = [
            0x1B,
            0x832,
            0x833,
            0x834,
            0x835,
            0x836,
            0x837,
            0x838,
            0x83E,
            SELF_IPI,
            0x80B,
            0x808,
            EFER,
            0x10,
            0x3B,
            0x48,
            0x49,
            0x8B,
            0xC001_0114,
            0xC001_0117,
            0x6E0,
            0x1A0,
            0x2FF,
            0xCE,
            0xC001_0015,
            0xC000_0103,
            0x17,
            0xC1,
        ];
        let register = match self.random.below(8) {
            0..3 => 0x800 + self.random.below(0x100) as u32,
            3..7 => self.random.pick(&KNOWN),
            _ => {
                let any = self.random.next() as u32 & 0x1FFF;
                any | self.random.pick(&[0, 0, 0xC000_2000, 0xC001_0000, 0x8000_0000])
            }
        };
        op.how = if self.random.one_in(3) { RDMSR } else { WRMSR } as u64;
        op.registers[RCX] = register.into();
        let mut value = self.value();
        if register == EFER {
            // LME, LMA and NXE as they are, mostly: without them this program is no more.
            value = 0xD01
                ^ self.random.pick(&[
                    0,
                    1 << 12,
                    1 << 13,
                    1 << 14,
                    1 << 15,
                    1 << 21,
                    1 << 8,
                    1 << 10,
                    1 << 40,
                ]);
        } else if (0x832..=0x837).contains(&register) {
            value = self.vector() | self.random.next() & 0xFFF_FF00;
        }
        (op.registers[RAX], op.registers[RDX]) = (value & 0xFFFF_FFFF, value >> 32);
    }

    fn vector(&mut self) -> u64 {
        let low = self.random.one_in(20);
        (if low { self.random.below(32) } else { 32 + self.random.below(0x4E) }) as u64
    }

    fn icr(&mut self, op: &mut Op) {
        let id = self.random.pick(self.aims.own.all()) as u32;
        let destination = match self.random.below(8) {
            0 => self.random.next() as u32,
            1 => u32::MAX,
            2 => self.random.below(16) as u32,
            3 => id >> 4 << 16 | 1 << (id & 15),
            4 => self.random.below(0x100) as u32,
            _ => id,
        };
        let mode = match self.random.below(64) {
            0 => 5,
            1 => 6,
            2..8 => self.random.below(8) as u64,
            8..20 => 4,
            _ => 0,
        };
        let bits = self.random.next() & self.random.next();
        let low = self.vector()
            | mode << 8
            | (bits & 0xF) << 11
            | (bits >> 4 & 3) << 14
            | (bits >> 6 & 3) << 18;
        let low = if self.random.one_in(8) { low ^ 1 << self.random.below(32) } else { low };
        op.how = WRMSR as u64;
        op.registers[RCX] = ICR.into();
        (op.registers[RAX], op.registers[RDX]) = (low & 0xFFFF_FFFF, destination.into());
    }

    fn port(&mut self, op: &mut Op) {
        let port = match self.random.below(16) {
            0 | 1 => 0xCF8,
            2..5 => 0xCFC + self.random.below(4) as u64,
            5 | 6 => u64::from(call::BELL_PORT) + self.random.below(12) as u64,
            7 | 8 => u64::from(call::CALL_PORT),
            9 => 0x5658,
            10 => 0x2F8 + self.random.below(8) as u64,
            11 => self.random.pick(&[
                0x20, 0x21, 0x40, 0x43, 0x60, 0x61, 0x64, 0x70, 0x71, 0x80, 0xB2, 0xCF9, 0xE9,
                0xF4, 0x3F8,
            ]),
            12 if self.random.one_in(20) => call::POWER_PORT.into(),
            _ => self.random.below(0x1_0000) as u64,
        };
        op.registers[RDX] = port;
        let width = if self.random.one_in(2) { 2 } else { self.random.below(3) };
        let string = self.random.one_in(12);
        let to = if self.random.one_in(2) { IN } else { OUT };
        op.how = if string { STRINGS.start + self.random.below(STRINGS.len()) } else { to + width }
            as u64;
        match port {
            0xCF8 => {
                let function = self.random.pick(self.aims.functions.all()) - ECAM_GPA;
                let register = self.random.below(64) as u64 * 4;
                op.registers[RAX] = 1 << 31 | function >> 4 & 0xFF_FF00 | register;
            }
            0x5658 => {
                op.how = (IN + 2) as u64;
                op.registers[RAX] = 0x564D_5868;
                op.registers[RCX] = self.random.pick(&[10, 45, 68, 1]);
            }
            _ if port == u64::from(call::CALL_PORT) => {
                op.how = (IN + 2) as u64;
                self.arguments(op);
            }
            _ => {}
        }
    }

    /// An address that a monitor answers for, or beside it.
    fn address(&mut self) -> u64 {
        const REGISTERS: [u64; 18] = [
            0, 4, 6, 0xC, 0x10, 0x14, 0x24, 0x30, 0x34, 0x3C, 0x40, 0x44, 0x48, 0x4C, 0x50, 0x60,
            0x70, 0x90,
        ];
        if self.random.one_in(2) {
            let page = self.random.pick(self.aims.functions.all());
            return page
                + match self.random.below(4) {
                    0 => self.random.below(0xFF8) as u64,
                    1 => self.random.below(0x100) as u64,
                    _ => self.random.pick(&REGISTERS) + self.random.pick(&[0, 0, 0, 1, 2, 3]),
                };
        }
        let page = self.random.pick(self.aims.pages.all());
        page + match self.random.below(4) {
            0 => self.random.below(0xFF8) as u64,
            1 => self.random.below(16) as u64 * 4,
            _ if page == IOAPIC => self.random.pick(&[0, 0x10, 0x10, 0x40]),
            _ => self.random.below(0x40) as u64 * 4,
        }
    }

    /// An APIC ID: of an own core mostly, of a core that the machine has, or any.
    fn core(&mut self) -> u64 {
        match self.random.below(8) {
            0 => self.random.below(0x100) as u64,
            1 => self.random.below(8) as u64,
            _ => self.random.pick(self.aims.own.all()),
        }
    }

    /// Changes an entry of the IOAPIC: of a line that a sandbox of the system has, of a channel's, or of any.
    fn line(&mut self, op: &mut Op) {
        let line = match self.random.below(4) {
            0 => self.random.below(26) as u64,
            1 => self.random.pick(&[16, 20, 23]),
            _ => self.random.pick(&[0, 2, 3, 8]),
        };
        let half = self.random.below(3) as u64 / 2;
        op.how = LINE as u64;
        op.registers[RAX] = 0x10 + 2 * line + half;
        let core = self.core();
        let mode = if self.random.one_in(3) { self.random.next() & 0x1_FF00 } else { 0 };
        op.registers[RDX] = if half == 0 { self.vector() | mode } else { core << 24 };
    }

    /// The target of a function's messages: a core of its own mostly, or any; switched on or off, masked or not.
    fn message(&mut self, op: &mut Op) {
        let core = self.core();
        let spoilt =
            |random: &mut Random| if random.one_in(12) { 1 << random.below(32) } else { 0 };
        op.registers[RAX] = (0xFEE0_0000 | core << 12) ^ spoilt(&mut self.random);
        op.registers[RDX] = spoilt(&mut self.random);
        op.registers[RSI] = self.vector() ^ spoilt(&mut self.random);
        let rare = self.random.one_in(4);
        (op.how, op.registers[RDI]) = match self.random.one_in(2) {
            true => (MESSAGE as u64, if rare { 0 } else { 1 << 16 }),
            false => (ENTRY as u64, rare.into()),
        };
    }

    fn memory(&mut self, op: &mut Op) {
        match self.random.below(12) {
            0 => return self.line(op),
            1 => return self.message(op),
            _ => {}
        }
        op.registers[RBX] = self.address();
        let page = op.registers[RBX] & !(PAGE - 1);
        let moves = if self.random.one_in(2) { LOADS } else { STORES };
        op.how = (moves.start + self.random.below(moves.len())) as u64;
        // Half of the written values mean something there.
        if self.random.one_in(2) {
            return;
        }
        let core = self.core();
        let message = self.random.pick(&[0xFEE0_0000 | core << 12, 0xFEE0_0000, 0xFEE0_1000]);
        let mode = if self.random.one_in(4) { self.random.next() & 0x1_FF00 } else { 0 };
        let entry = self.vector() | mode;
        op.registers[RAX] = match self.random.below(4) {
            0 => message,
            1 => entry,
            2 if page == IOAPIC => self.random.below(0x44) as u64,
            2 => core << 24,
            _ => self.random.below(8) as u64,
        };
    }

    fn call(&mut self, op: &mut Op) {
        op.how = VMMCALL as u64;
        self.arguments(op);
        if op.registers[RAX] == call::ACCEPT && self.random.one_in(2) {
            op.how = ACCEPT_IT as u64;
            (op.registers[RAX], op.registers[RSI]) = (call::LOOK, 1);
        }
    }

    /// A call's registers, most of them valid.
    fn arguments(&mut self, op: &mut Op) {
        let number = match self.random.below(16) {
            0 => self.random.next(),
            1 => call::NULL + self.random.below(16) as u64,
            2 => call::CONSOLE,
            3 | 4 => self.random.pick(&[call::CONTROL, call::STATUS]),
            5..8 => call::OFFER,
            8..10 => call::ACCEPT,
            10..12 => call::CLOSE,
            12..14 => call::LOOK,
            _ => self.random.pick(&[call::NULL, call::READY]),
        };
        op.registers[RAX] = number;
        op.registers[R8] = self.random.next();
        if self.random.one_in(8) {
            return;
        }
        let sandbox = self.random.below(self.aims.sandboxes as usize + 1) as u64;
        let link = self.random.below(3) as u64;
        (op.registers[RDI], op.registers[RSI]) = match number {
            call::CONSOLE => (self.random.below(27) as u64, self.random.next()),
            call::CONTROL => (sandbox, self.random.below(5) as u64),
            call::OFFER => (sandbox, link | (self.random.next() & 0xFFFF) << 16),
            // Epochs count from 1.
            call::ACCEPT => (link, 1 + self.random.below(40) as u64),
            call::CLOSE | call::LOOK => (link, self.random.below(3) as u64),
            _ => (sandbox, self.value()),
        };
    }

    fn cpuid(&mut self, op: &mut Op) {
        const LEAVES: [u64; 9] =
            [0, 1, 7, 0xB, 0xD, 0x8000_0001, 0x8000_0008, 0x8000_000A, 0x4000_0000];
        op.how = CPUID as u64;
        op.registers[RAX] = self.random.pick(&LEAVES);
    }

    fn other(&mut self, op: &mut Op) {
        op.how = (OTHERS.start + self.random.below(OTHERS.len())) as u64;
        if self.random.one_in(12) {
            op.how = UNALIGNED as u64 | USER;
        }
    }

    /// A place, or another one where it is none of these; `None`: there is none.
    fn one_of(&mut self, place: u64, list: impl Fn(&Aims) -> &List) -> Option<u64> {
        let all = list(&self.aims).all();
        if all.contains(&place) {
            return Some(place);
        }
        (!all.is_empty()).then(|| self.random.pick(list(&self.aims).all()))
    }

    /// An operation within what this program survives, mostly. `None`: it may not be made at all.
    fn tame(&mut self, mut op: Op) -> Option<Op> {
        let snippet = op.snippet();
        let register = op.registers[RCX] as u32;
        if LOADS.contains(&snippet) || STORES.contains(&snippet) {
            let (page, offset) = (op.registers[RBX] & !(PAGE - 1), op.registers[RBX] & (PAGE - 1));
            let known = [&self.aims.functions, &self.aims.pages];
            if offset > PAGE - 8 || !known.iter().any(|pages| pages.all().contains(&page)) {
                op.registers[RBX] = self.address();
            }
            if self.aims.computes.all().contains(&(op.registers[RBX] & !0xFF)) {
                op.registers[RBX] |= 0x60;
            }
            if snippet == STACK {
                op.how |= USER;
            }
        } else if snippet == LINE {
            op.registers[RBX] = IOAPIC;
        } else if snippet == MESSAGE {
            op.registers[RBX] = self.one_of(op.registers[RBX], |aims| &aims.capabilities)?;
        } else if snippet == ENTRY {
            let table = op.registers[RBX] & !(PAGE - 1);
            let entry = 16 * self.random.below(4) as u64;
            op.registers[RBX] = self.one_of(table, |aims| &aims.tables)? + entry;
        } else if STRINGS.contains(&snippet) {
            (op.registers[RSI], op.registers[RDI]) = (SCRATCH, SCRATCH + PAGE);
            if op.registers[RDX] as u16 == COUNTERS[0] {
                op.registers[RDX] = COUNTERS[1].into();
            }
            op.registers[RCX] = 1 + (op.registers[RCX] & 3);
        } else if OTHERS.contains(&snippet) || snippet == UNALIGNED {
            // Descriptors and addresses that must not have a host's meaning.
            op.registers[RAX] = self.random.pick(&[SCRATCH, 0, 1, 15]);
            (op.registers[RBX], op.registers[RCX]) = (SCRATCH, op.registers[RCX] & 3);
        } else if (OUT..OUT + 3).contains(&snippet) && op.registers[RDX] as u16 == COUNTERS[0] {
            op.registers[RDX] = COUNTERS[1].into();
        } else if snippet == WRMSR {
            op.registers[RAX] = survivable(register, op.registers[RAX])?;
        }
        if snippet == RDMSR || snippet == WRMSR {
            // QEMU looks up the whole of RCX in the permission map, a processor ECX: docs/limits.md.
            op.registers[RCX] = register.into();
        }
        if ends(&op) && !self.random.one_in(RARE) {
            return None;
        }
        op.how &= USER | OPEN | 0xFF;
        Some(placed(op))
    }

    /// An operation that ends the sandbox, or, rarely, has it hang. Exits and denials that come by nothing else have a
    /// turn each among [`WAYS`]. So none of them is left to chance in a run of few lives.
    pub fn last(&mut self, turn: u64) -> Op {
        let mut op = Op::default();
        match turn % WAYS {
            1 => {
                // CALL [RBX].
                op.how = (NO_MOVES.start + 9) as u64;
                op.registers[RBX] = OUTSIDE;
            }
            2 => {
                op.how = LOADS.start as u64;
                op.registers[RBX] = self.random.next() & 0x7F_FFFF_FFFF;
            }
            3 => {
                let first = self.aims.own.all().first().copied().unwrap_or(0);
                op.how = WRMSR as u64;
                (op.registers[RCX], op.registers[RDX]) = (ICR.into(), first);
                op.registers[RAX] = 0x4500;
            }
            4 => {
                op.how = OUT as u64;
                op.registers[RDX] = call::POWER_PORT.into();
                op.registers[RAX] =
                    self.random.pick(&[call::POWER_OFF, call::POWER_RESTART]).into();
            }
            5 => {
                op.how = (NO_MOVES.start + self.random.below(NO_MOVES.len())) as u64;
                op.registers[RBX] = self.random.pick(self.aims.pages.all());
            }
            6 if !self.aims.read_only.all().is_empty() => {
                op.how = STORES.start as u64;
                op.registers[RBX] = self.random.pick(self.aims.read_only.all());
            }
            7 => match turn / WAYS % LAST {
                0 => op.how = HANG as u64,
                1 => {
                    op.how = VMMCALL as u64;
                    (op.registers[RAX], op.registers[RDI]) = (call::EXIT, self.random.next());
                }
                _ => {
                    op.how = VMMCALL as u64;
                    op.registers[RAX] = call::RESTART;
                }
            },
            _ => {
                op.how = SHUTDOWN as u64;
                op.registers[RBX] = NOTHING;
            }
        }
        placed(op)
    }
}

/// With the address of its snippet.
fn placed(mut op: Op) -> Op {
    let at = op.snippet() as u64 + if op.how & USER != 0 { SNIPPETS } else { 0 };
    op.target = CODE + at * SNIPPET;
    op
}

/// Returns the value that may be written to a register, if any. This program needs FS and GS bases, SYSCALL and page
/// attributes. An interrupt must not have the vector of an exception with an error code, which would be missing. No
/// core must start where this program starts its own.
fn survivable(register: u32, value: u64) -> Option<u64> {
    const START: u64 = 8;
    match register {
        0xC000_0081..=0xC000_0084 | 0xC000_0100..=0xC000_0102 | 0x277 => None,
        ICR if value >> 8 & 7 == 6 && value & 0xFF == START => Some(value + 1),
        TIMER if value as u32 != 0 => Some(value | TIMER_COUNT),
        ICR | SELF_IPI | 0x832..=0x837 if matches!(value & 0xFF, 17 | 21 | 29 | 30) => {
            Some(value ^ 2)
        }
        _ => Some(value),
    }
}

/// Tells if an operation is likely to end its sandbox.
fn ends(op: &Op) -> bool {
    let [rax, rcx, rdx] = [RAX, RCX, RDX].map(|n| op.registers[n]);
    let snippet = op.snippet();
    let calls = matches!(snippet, VMMCALL | ACCEPT_IT)
        || snippet == IN + 2 && rdx as u16 == call::CALL_PORT;
    let writes = |register: u32| snippet == WRMSR && rcx as u32 == register;
    let sends = (OUT..OUT + 3).contains(&snippet) && rdx as u16 == call::POWER_PORT;
    calls && matches!(rax, call::EXIT | call::RESTART)
        || writes(ICR) && rax >> 8 & 7 == 5
        || writes(EFER) && rax & 0xD00 != 0xD00
        || sends && matches!(rax as u8, call::POWER_OFF | call::POWER_RESTART)
        || snippet >= NO_MOVES.start && snippet < TABLE.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maker(seed: u64) -> Maker {
        let list = |items: &[u64]| {
            let mut list = List::default();
            items.iter().for_each(|item| list.push(*item));
            list
        };
        let aims = Aims {
            own: list(&[1, 2]),
            functions: list(&[ECAM_GPA, ECAM_GPA + 0x4_0000]),
            pages: list(&[IOAPIC, 0xFEB0_0000]),
            capabilities: list(&[ECAM_GPA + 0x4_0040]),
            tables: list(&[0xFEB0_1000]),
            computes: list(&[0xFEB0_0000]),
            read_only: list(&[0xD200_0000]),
            sandboxes: 4,
        };
        Maker::new(aims, seed)
    }

    #[test]
    fn a_seed_makes_the_same_again() {
        let made = |seed| {
            let mut maker = maker(seed);
            (0..1000).map(|_| maker.fresh()).collect::<Vec<_>>()
        };
        assert_eq!(made(1), made(1));
        assert_ne!(made(1), made(2));
    }

    #[test]
    fn every_snippet_is_made_and_none_that_the_program_does_not_survive() {
        let mut maker = maker(7);
        let (mut made, mut ended) = ([false; TABLE.len()], 0);
        let mut op = maker.fresh();
        for n in 0..400_000 {
            op = if n % 2 == 0 { maker.fresh() } else { maker.mutated(op) };
            made[op.snippet()] = true;
            ended += u32::from(ends(&op));
            let register = op.registers[RCX] as u32;
            assert!(op.snippet() != WRMSR || register != 0xC000_0101);
            let moves = LOADS.contains(&op.snippet()) || STORES.contains(&op.snippet());
            let page = op.registers[RBX] & !0xFFF;
            assert!(
                !moves
                    || [&maker.aims.functions, &maker.aims.pages]
                        .iter()
                        .any(|l| l.all().contains(&page))
            );
            assert!(op.target >= CODE && op.target < CODE + 2 * SNIPPETS * SNIPPET);
        }
        assert!((2..200).contains(&ended), "{ended}");
        let ways: Vec<_> = (0..LAST * WAYS).map(|turn| maker.last(turn)).collect();
        assert!(ways.iter().any(|op| op.snippet() == SHUTDOWN));
        assert!(ways.iter().any(|op| op.snippet() == HANG));
        for turn in 0..2000 {
            made[maker.last(turn).snippet()] = true;
        }
        let never: Vec<_> = (0..TABLE.len()).filter(|n| !made[*n]).collect();
        assert!(never.is_empty(), "{never:?}");
    }
}
