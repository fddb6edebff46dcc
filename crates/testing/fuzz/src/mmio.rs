//! Guests of the decoder of trapped accesses: code, page tables and registers of any
//! kind, and another core that writes into them between two reads.

use crate::{Input, Seen};
use bulkhead_decoder::{MAX_READS, Memory, Mode, State, decode, fetch, walk};
use bulkhead_laws::mmio::{decoded, effect};
use bulkhead_pci_fake::Words;
use bulkhead_random::SplitMix64;
use std::cell::RefCell;

const RAM: u64 = 0x1_0000;
const WORDS: usize = 4 * 512;

/// Decodes instructions alone, and in traps of a guest with changing memory.
pub fn run(bytes: &[u8]) -> Result<Seen, String> {
    let mut input = Input::new(bytes);
    let mut guest = Guest::new(input.byte().into());
    let mut seen = Seen::default();
    while !input.is_empty() {
        if input.below(2) == 0 {
            seen.add(code(&mut input)?);
            continue;
        }
        let (next, trapped);
        (next, input, trapped) = guest.trap(input)?;
        guest = next;
        seen.add(trapped);
    }
    Ok(seen)
}

/// A guest's memory, and what was done to it since the last trap.
struct Guest {
    words: Vec<u64>,
    reads: u32,
    refused: bool,
    wrong: Option<String>,
}

/// The guest as a monitor sees it, and what its other core will do.
struct Shown<'a>(RefCell<(Guest, Input<'a>)>);

impl Memory for Shown<'_> {
    fn word(&self, at: u64) -> Option<u64> {
        let (guest, input) = &mut *self.0.borrow_mut();
        guest.reads += 1;
        if at % 8 != 0 || at >> 52 != 0 {
            guest.wrong = Some(format!("a read at {at:#x}"));
        }
        if guest.refused {
            guest.wrong = Some(format!("a read at {at:#x} after one that was refused"));
        }
        if input.below(4) == 3 {
            guest.words[input.below(WORDS)] = word(input);
        }
        let place = at.checked_sub(RAM).map(|offset| (offset / 8) as usize);
        let word = place.and_then(|n| guest.words.get(n).copied());
        guest.refused = word.is_none();
        word
    }
}

impl Guest {
    /// With memory that is filled.
    fn new(seed: u64) -> Self {
        let mut random = SplitMix64(seed);
        let filled = (0..WORDS).map(|_| {
            let bytes: [[u8; 8]; 4] = std::array::from_fn(|_| random.any().to_le_bytes());
            word(&mut Input::new(bytes.as_flattened()))
        });
        Self { words: filled.collect(), reads: 0, refused: false, wrong: None }
    }

    /// Traps once; itself, what is left of the input, and whether there was an access.
    fn trap(mut self, mut input: Input) -> Result<(Self, Input, bool), String> {
        (self.reads, self.refused) = (0, false);
        let mut state = state(&mut input);
        let seen = Shown(RefCell::new((self, input)));
        let bytes = fetch(&seen, &state);
        let access = decode(bytes, state.mode());
        let (mut this, mut input) = seen.0.into_inner();
        if let Some(why) = this.wrong {
            return Err(why);
        }
        if this.reads > MAX_READS || bytes.len() > 15 {
            return Err(format!("{} reads for {} bytes", this.reads, bytes.len()));
        }
        if let Some(access) = access {
            let [held, given] = [input.next(), input.next()];
            effect(&access, held, given).map_err(|why| format!("{why}: {access:?}"))?;
            state.rip = state.next_rip(access.length);
        }
        // A walk alone, to any address.
        let other = input.next();
        (this.reads, this.refused) = (0, false);
        let seen = Shown(RefCell::new((this, input)));
        let found = walk(&seen, &state, other);
        let (this, input) = seen.0.into_inner();
        if this.reads > 5 || found.is_some_and(|at| at >> 52 != 0) {
            return Err(format!("{} reads of tables to {found:x?}", this.reads));
        }
        Ok((this, input, access.is_some()))
    }
}

/// A word that may be an entry of a table, code, or both.
fn word(input: &mut Input) -> u64 {
    let entry = RAM + input.below(WORDS / 512) as u64 * 4096;
    match input.below(8) {
        0..4 => entry | 0x63,
        4 => entry | 0xE3 | u64::from(input.byte() & 0x1F) << input.below(60),
        5 => (entry | 0x63) << 32 | entry | 0x63,
        6 => u64::from_le_bytes(std::array::from_fn(|_| byte(input))),
        _ => input.next(),
    }
}

/// A byte that MOVs have, or any.
fn byte(input: &mut Input) -> u8 {
    const COMMON: [u8; 16] = [
        0x66, 0x67, 0x44, 0x48, 0x64, 0x88, 0x89, 0x8A, 0x8B, 0xA1, 0xA3, 0xC6, 0xC7, 0x0F, 0xB6,
        0xBF,
    ];
    match input.below(3) {
        0 => input.byte(),
        _ => COMMON[input.below(COMMON.len())],
    }
}

fn state(input: &mut Input) -> State {
    let mut any = |bits: u64| (input.below(0x1_0000) as u64 * 0x1_0001) & bits;
    let mut state = State {
        // PG; PSE, PAE and LA57; LMA and NXE; L and D.
        cr0: 1 | any(1 << 31),
        cr3: RAM + any(0x3FFF),
        cr4: any(1 << 12 | 1 << 5 | 1 << 4),
        efer: any(1 << 11 | 1 << 10),
        cs: any(1 << 26 | 1 << 25),
        cs_base: any(RAM | 0x3FF0),
        rip: RAM + any(0x3FFF),
    };
    match input.below(8) {
        0 => state.rip = input.next(),
        1 => state.rip = input.next() >> input.below(64),
        2 => state.rip |= 0xFF0,
        3 => state.cr3 = input.next(),
        4 => state.cs_base = input.next(),
        5 => state.cr0 |= 1 << 31,
        _ => state.cs_base = 0,
    }
    state
}

/// Decodes any bytes: only those that belong to the instruction count, and all of them are needed. Returns true if it
/// was one.
fn code(input: &mut Input) -> Result<bool, String> {
    let code: [u8; 15] = std::array::from_fn(|_| byte(input));
    let mode = [Mode::Bits16, Mode::Bits32, Mode::Bits64][input.below(3)];
    decoded(&code, mode).map_err(|why| format!("{mode:?} {code:02x?}: {why}"))
}
