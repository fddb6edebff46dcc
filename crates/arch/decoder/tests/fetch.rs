//! The page walk against a model that is written out for each kind of paging, and the fetch. The fetch is judged by its
//! bytes and its end; a guest that changes its tables meanwhile gets nothing more.

use bulkhead_decoder::{Bytes, MAX_READS, Memory, Mode, State, fetch, walk};
use std::cell::{Cell, RefCell};

/// Numbers that repeat in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

const RAM: u64 = 0x1_0000;
const PAGES: u64 = 8;
const PG: u64 = 1 << 31;
const PSE: u64 = 1 << 4;
const PAE: u64 = 1 << 5;
const LA57: u64 = 1 << 12;
const LMA: u64 = 1 << 10;
const NXE: u64 = 1 << 11;
const CS_L: u64 = 1 << 25;
const CS_D: u64 = 1 << 26;

/// A few pages of RAM that notes each read.
struct Ram {
    words: Vec<u64>,
    read: RefCell<Vec<u64>>,
}

impl Ram {
    fn new(fill: impl FnMut(u64) -> u64) -> Self {
        Self { words: (0..PAGES * 512).map(fill).collect(), read: RefCell::default() }
    }

    /// The words read since the last time.
    fn taken(&self) -> Vec<u64> {
        self.read.take()
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        for (at, byte) in (at - RAM..).zip(bytes) {
            let (word, shift) = (&mut self.words[at as usize / 8], at % 8 * 8);
            *word = *word & !(0xFF << shift) | u64::from(*byte) << shift;
        }
    }

    fn u64(&self, at: u64) -> Option<u64> {
        self.words.get((at.checked_sub(RAM)? / 8) as usize).copied()
    }

    fn u32(&self, at: u64) -> Option<u64> {
        Some((self.u64(at)? >> if at.is_multiple_of(8) { 0 } else { 32 }) & 0xFFFF_FFFF)
    }
}

impl Memory for Ram {
    fn word(&self, at: u64) -> Option<u64> {
        assert!(at.is_multiple_of(8) && at < 1 << 52, "{at:#x}");
        let word = self.u64(at)?;
        self.read.borrow_mut().push(at);
        Some(word)
    }
}

/// Bits `high` to `low` of a value.
fn field(value: u64, high: u32, low: u32) -> u64 {
    value >> low & ((1 << (high - low + 1)) - 1)
}

/// An address from the bits of an entry, and of the linear address below them.
fn join(entry: u64, linear: u64, low: u32) -> u64 {
    field(entry, 51, low) << low | field(linear, low - 1, 0)
}

/// Figures 5-9 to 5-22 of APM2, one by one.
fn model(ram: &Ram, s: &State, linear: u64) -> Option<u64> {
    let bad = |entry: u64| {
        field(entry, 0, 0) == 0
            || field(entry, 63, 63) == 1 && s.efer & NXE == 0
            || s.efer & LMA == 0 && field(entry, 62, 52) != 0
    };
    let large = |entry: u64| field(entry, 7, 7) == 1;
    // The last two levels with entries of 8 bytes.
    let last = |table: u64| {
        let pde = ram.u64(table + 8 * field(linear, 29, 21)).filter(|e| !bad(*e))?;
        if large(pde) {
            return (field(pde, 20, 13) == 0).then_some(join(pde, linear, 21));
        }
        let table = join(pde, 0, 12);
        let pte = ram.u64(table + 8 * field(linear, 20, 12)).filter(|e| !bad(*e))?;
        Some(join(pte, linear, 12))
    };
    if s.cr0 & PG == 0 {
        // There is no long mode without paging.
        return (s.efer & LMA == 0).then_some(field(linear, 31, 0));
    }
    if s.efer & LMA != 0 {
        let top = if s.cr4 & LA57 != 0 { 56 } else { 47 };
        if linear >> top != 0 && linear >> top != u64::MAX >> top {
            return None;
        }
        let mut table = join(s.cr3, 0, 12);
        if s.cr4 & LA57 != 0 {
            let pml5e = ram.u64(table + 8 * field(linear, 56, 48))?;
            if bad(pml5e) || large(pml5e) {
                return None;
            }
            table = join(pml5e, 0, 12);
        }
        let pml4e = ram.u64(table + 8 * field(linear, 47, 39))?;
        if bad(pml4e) || large(pml4e) {
            return None;
        }
        let pdpe = ram.u64(join(pml4e, 0, 12) + 8 * field(linear, 38, 30))?;
        if bad(pdpe) || large(pdpe) && field(pdpe, 29, 13) != 0 {
            return None;
        }
        return if large(pdpe) { Some(join(pdpe, linear, 30)) } else { last(join(pdpe, 0, 12)) };
    }
    if s.cr4 & PAE != 0 {
        let pdpe = ram.u64((field(s.cr3, 31, 5) << 5) + 8 * field(linear, 31, 30))?;
        let reserved = field(pdpe, 63, 52) | field(pdpe, 8, 5) | field(pdpe, 2, 1);
        return if bad(pdpe) || reserved != 0 { None } else { last(join(pdpe, 0, 12)) };
    }
    let pde = ram.u32((field(s.cr3, 31, 12) << 12) + 4 * field(linear, 31, 22))?;
    if bad(pde) {
        return None;
    }
    if large(pde) && s.cr4 & PSE != 0 {
        let high = field(pde, 20, 13) << 32 | field(pde, 31, 22) << 22;
        return (field(pde, 21, 21) == 0).then_some(high | field(linear, 21, 0));
    }
    let pte = ram.u32((field(pde, 31, 12) << 12) + 4 * field(linear, 21, 12))?;
    (!bad(pte)).then_some(field(pte, 31, 12) << 12 | field(linear, 11, 0))
}

/// An entry that often leads on, in both sizes if `small`.
fn entry(random: &mut Random, small: bool) -> u64 {
    let page = page(random.below(PAGES + 1));
    // Accessed, dirty, user, writable, available.
    let mut entry = page | random.next() & 0xE60 | u64::from(!random.one_in(12));
    if random.one_in(4) {
        entry |= 0b110;
    } else {
        entry &= !0x1E0;
    }
    if random.one_in(4) {
        entry = 0x81 | random.next() & 0x000F_FFFF_C000_0000 | random.below(4) << 12;
        entry |= if random.one_in(2) { random.next() & 0x3FFF_E000 } else { 0 };
        entry &= if random.one_in(2) { !0x1F_E000 } else { u64::MAX };
    }
    if random.one_in(8) {
        entry ^= 1 << random.below(64);
    }
    if small { entry & 0xFFFF_FFFF | entry << 32 } else { entry }
}

fn state(random: &mut Random) -> State {
    let (cr4, efer) = match random.below(5) {
        0 | 1 => (PAE, LMA),
        2 => (PAE | LA57, LMA),
        3 => (PAE, 0),
        _ => (if random.one_in(3) { 0 } else { PSE }, 0),
    };
    State {
        cr0: 1 | if random.one_in(50) { 0 } else { PG },
        cr3: page(random.below(PAGES)) + (random.next() & 0xFF8),
        cr4,
        efer: efer | if random.one_in(3) { 0 } else { NXE },
        cs: random.next() & (CS_L | CS_D),
        cs_base: if random.one_in(2) { random.next() & 0xFFFF_FFFF } else { 0 },
        rip: random.next(),
    }
}

#[test]
fn the_walk_is_the_models() {
    let mut random = Random(57);
    // Found and not found, for: none, 32-bit, PAE, 4 and 5 levels.
    let mut seen = [[0u32; 2]; 5];
    for round in 0..300 {
        let ram = Ram::new(|_| entry(&mut random, round % 5 == 4));
        for _ in 0..1000 {
            let state = state(&mut random);
            let linear = match random.below(4) {
                0 => random.next(),
                1 => random.next() | 0xFFFF << 47,
                _ => random.next() >> (8 + random.below(10)),
            };
            let found = walk(&ram, &state, linear);
            assert_eq!(found, model(&ram, &state, linear), "{state:x?} {linear:#x}");
            assert!(ram.taken().len() <= 5);
            let kind = match state.cr4 {
                _ if state.cr0 & PG == 0 => 0,
                0 | PSE => 1,
                _ if state.efer & LMA == 0 => 2,
                PAE => 3,
                _ => 4,
            };
            seen[kind][usize::from(found.is_none())] += 1;
        }
    }
    let enough = |n: &u32| *n > 1000;
    assert!(seen[0][0] > 1000 && seen[1..].iter().flatten().all(enough), "{seen:?}");
}

/// Another core writes between any two reads.
struct Changing {
    random: RefCell<Random>,
    reads: Cell<u32>,
    refused: Cell<bool>,
}

impl Memory for Changing {
    fn word(&self, at: u64) -> Option<u64> {
        assert!(at.is_multiple_of(8) && at < 1 << 52, "{at:#x}");
        assert!(!self.refused.get(), "a read after one that was refused");
        self.reads.set(self.reads.get() + 1);
        let inside = (RAM..page(PAGES)).contains(&at);
        self.refused.set(!inside);
        inside.then(|| entry(&mut self.random.borrow_mut(), false))
    }
}

#[test]
fn tables_that_change_lead_nowhere() {
    let mut random = Random(99);
    let (mut most, mut refused) = (0, 0);
    for _ in 0..200_000 {
        let mut state = state(&mut random);
        if random.one_in(2) {
            // Where a page ends.
            state.rip |= 0xFFF & !random.below(16);
        }
        if random.one_in(2) {
            state.rip &= 0x7FFF_FFFF_FFFF;
        }
        let seed = RefCell::new(Random(random.next()));
        let memory = Changing { random: seed, reads: Cell::new(0), refused: Cell::new(false) };
        let bytes = fetch(&memory, &state);
        assert!(bytes.len() <= 15);
        assert!(memory.reads.get() <= MAX_READS, "{}", memory.reads.get());
        most = most.max(memory.reads.get());
        refused += u32::from(memory.refused.get());
    }
    assert_eq!(most, MAX_READS);
    assert!(refused > 1000, "{refused}");
}

const TEXT: [u8; 15] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

#[test]
fn each_byte_is_copied_once() {
    for at in 0..16 {
        let mut ram = Ram::new(|_| u64::MAX);
        let state = State { rip: RAM + 0x100 + at, cs: CS_D, ..State::default() };
        ram.put(state.rip, &TEXT);
        assert_eq!(fetch(&ram, &state), Bytes::new(&TEXT));
        let words = (state.rip / 8..=(state.rip + 14) / 8).map(|w| w * 8);
        assert_eq!(ram.taken(), words.collect::<Vec<_>>());
    }
}

/// The RAM's page of this number, and as an entry.
fn page(number: u64) -> u64 {
    RAM + number * 4096
}

fn present(number: u64) -> u64 {
    page(number) | 1
}

/// 4 levels: two pages of code that lie apart, under tables in the first pages.
fn paged() -> (Ram, State) {
    let mut ram = Ram::new(|_| 0);
    for level in 0..3 {
        ram.words[level * 512] = present(level as u64 + 1);
    }
    ram.words[3 * 512 + 1] = present(6);
    ram.words[3 * 512 + 2] = present(4);
    let state = State {
        cr0: PG | 1,
        cr3: RAM,
        cr4: PAE,
        efer: LMA,
        cs: CS_L,
        cs_base: 0x1234,
        rip: 0x2000 - 6,
    };
    ram.put(page(7) - 6, &TEXT[..6]);
    ram.put(page(4), &TEXT[6..]);
    (ram, state)
}

#[test]
fn a_page_boundary_is_crossed() {
    let (mut ram, state) = paged();
    assert_eq!(fetch(&ram, &state), Bytes::new(&TEXT));
    assert_eq!(ram.taken().len(), 4 + 1 + 4 + 2);
    // Without the second page there is the part in the first.
    ram.words[3 * 512 + 2] = 0;
    assert_eq!(fetch(&ram, &state), Bytes::new(&TEXT[..6]));
    ram.words[3 * 512 + 1] = 0;
    assert!(fetch(&ram, &state).is_empty());
}

#[test]
fn a_boundary_of_ram_ends_it() {
    let mut ram = Ram::new(|_| 0);
    ram.put(page(PAGES) - 8, &TEXT[..8]);
    let state = State { rip: page(PAGES) - 8, cs: CS_D, ..State::default() };
    assert_eq!(fetch(&ram, &state), Bytes::new(&TEXT[..8]));
    assert!(fetch(&ram, &State { rip: page(PAGES), ..state }).is_empty());
    assert!(fetch(&ram, &State { rip: RAM - 8, ..state }).is_empty());
}

#[test]
fn addresses_are_as_wide_as_the_mode() {
    let mut ram = Ram::new(|_| 0);
    ram.put(RAM + 0x230, &TEXT);
    // Real mode, and 32-bit code with a base that wraps at 4 GiB.
    let real = State { cs_base: RAM + 0x200, rip: 0x30, ..State::default() };
    let wrapped = State { cs_base: 0xFFFF_F000, rip: RAM + 0x1230, cs: CS_D, ..real };
    for state in [real, wrapped] {
        assert_eq!(fetch(&ram, &state), Bytes::new(&TEXT));
    }
    assert_eq!(State { rip: 0xFFFF_FFFF, ..wrapped }.next_rip(2), 1);
    let (_, long) = paged();
    assert_eq!(State { rip: 0xFFFF_FFFF, ..long }.next_rip(2), 0x1_0000_0001);
}

#[test]
fn modes() {
    let mode = |efer, cs| State { efer, cs, ..State::default() }.mode();
    assert_eq!(mode(LMA, CS_L), Mode::Bits64);
    assert_eq!(mode(LMA, CS_D), Mode::Bits32);
    assert_eq!(mode(LMA, 0), Mode::Bits16);
    assert_eq!(mode(0, CS_L), Mode::Bits16);
    assert_eq!(mode(0, CS_L | CS_D), Mode::Bits32);
}
