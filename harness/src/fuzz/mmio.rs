//! Random guests for the decoder of trapped accesses: code, page tables and registers
//! of any kind, and another core that writes into them between two reads.

use super::Random;
use bulkhead_mmio::{
    Access, Bytes, MAX_READS, Memory, Mode, Operation, Register, Registers, State, decode, fetch,
    walk,
};
use std::cell::RefCell;

const RAM: u64 = 0x1_0000;
const WORDS: usize = 4 * 512;

/// A guest's memory, and what was done to it since the last trap.
pub struct Guest {
    words: Vec<u64>,
    random: Random,
    reads: u32,
    refused: bool,
    wrong: Option<String>,
}

/// The guest as a monitor sees it.
struct Seen(RefCell<Guest>);

impl Memory for Seen {
    fn word(&self, at: u64) -> Option<u64> {
        let mut guest = self.0.borrow_mut();
        guest.reads += 1;
        if at % 8 != 0 || at >> 52 != 0 {
            guest.wrong = Some(format!("a read at {at:#x}"));
        }
        if guest.refused {
            guest.wrong = Some(format!("a read at {at:#x} after one that was refused"));
        }
        if guest.random.below(4) == 0 {
            guest.write();
        }
        let place = at.checked_sub(RAM).map(|offset| (offset / 8) as usize);
        let word = place.and_then(|n| guest.words.get(n).copied());
        guest.refused = word.is_none();
        word
    }
}

impl Guest {
    /// With memory that is filled.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let words = (0..WORDS).map(|_| word(&mut random)).collect();
        Self { words, random, reads: 0, refused: false, wrong: None }
    }

    fn write(&mut self) {
        let at = self.random.below(WORDS);
        self.words[at] = word(&mut self.random);
    }

    /// Traps once; itself, and whether there was an access.
    pub fn trap(mut self) -> Result<(Self, bool), String> {
        (self.reads, self.refused) = (0, false);
        let mut state = state(&mut self.random);
        let other = self.random.next();
        let seen = Seen(RefCell::new(self));
        let bytes = fetch(&seen, &state);
        let access = decode(bytes, state.mode());
        let mut this = seen.0.into_inner();
        if let Some(why) = this.wrong {
            return Err(why);
        }
        if this.reads > MAX_READS || bytes.len() > 15 {
            return Err(format!("{} reads for {} bytes", this.reads, bytes.len()));
        }
        if let Some(access) = access {
            effect(&access, &mut this.random)?;
            state.rip = state.next_rip(access.length);
        }
        // A walk alone, to any address.
        (this.reads, this.refused) = (0, false);
        let seen = Seen(RefCell::new(this));
        let found = walk(&seen, &state, other);
        let this = seen.0.into_inner();
        if this.reads > 5 || found.is_some_and(|at| at >> 52 != 0) {
            return Err(format!("{} reads of tables to {found:x?}", this.reads));
        }
        Ok((this, access.is_some()))
    }
}

/// A word that may be an entry of a table, code, or both.
fn word(random: &mut Random) -> u64 {
    let entry = RAM + random.below(WORDS / 512) as u64 * 4096;
    match random.below(8) {
        0..4 => entry | 0x63,
        4 => entry | 0xE3 | (random.next() & 0x1F) << random.below(60),
        5 => (entry | 0x63) << 32 | entry | 0x63,
        6 => u64::from_le_bytes(std::array::from_fn(|_| byte(random))),
        _ => random.next(),
    }
}

/// A byte that MOVs have, or any.
fn byte(random: &mut Random) -> u8 {
    const COMMON: [u8; 16] = [
        0x66, 0x67, 0x44, 0x48, 0x64, 0x88, 0x89, 0x8A, 0x8B, 0xA1, 0xA3, 0xC6, 0xC7, 0x0F, 0xB6,
        0xBF,
    ];
    match random.below(3) {
        0 => random.next() as u8,
        _ => COMMON[random.below(COMMON.len())],
    }
}

fn state(random: &mut Random) -> State {
    let mut any = |bits: u64| random.next() & bits;
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
    match random.below(8) {
        0 => state.rip = random.next(),
        1 => state.rip = random.next() >> random.below(64),
        2 => state.rip |= 0xFF0,
        3 => state.cr3 = random.next(),
        4 => state.cs_base = random.next(),
        5 => state.cr0 |= 1 << 31,
        _ => state.cs_base = 0,
    }
    state
}

struct File([u64; 16], Vec<u8>);

impl Registers for File {
    fn get(&self, number: u8) -> u64 {
        self.0[usize::from(number)]
    }

    fn set(&mut self, number: u8, value: u64) {
        self.0[usize::from(number)] = value;
        self.1.push(number);
    }
}

/// An access has the sizes that there are, and only its own effect.
fn effect(access: &Access, random: &mut Random) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{what}: {access:?}"));
    let is_size = |size: u8| [1, 2, 4, 8].contains(&size);
    let fits = |value: u64| access.size == 8 || value >> (8 * access.size) == 0;
    if !is_size(access.size) || !(2..=15).contains(&access.length) {
        return wrong("a size that there is not");
    }
    let mut file = File(std::array::from_fn(|_| random.next()), Vec::new());
    let old = file.0;
    let written = access.written(&file);
    access.complete(&mut file, random.next());
    let right =
        |r: Register| r.number < 16 && is_size(r.size) && (!r.high || r.size == 1 && r.number < 4);
    match (access.operation, written) {
        (Operation::Read { to, .. }, None) => {
            let n = usize::from(to.number);
            let kept = match (to.size, to.high) {
                (8, _) => 0,
                // They are cleared.
                (4, _) if file.0[n] >> 32 == 0 => 0,
                (4, _) => return wrong("a 32-bit register with more"),
                (2, _) => !0xFFFF,
                (_, true) => !0xFF00,
                (_, false) => !0xFF,
            };
            if !right(to) || to.size < access.size || file.1 != [to.number] {
                return wrong("not its register");
            }
            if (file.0[n] ^ old[n]) & kept != 0 {
                return wrong("more than its part of a register");
            }
        }
        (Operation::Write(from), Some(value)) => {
            if !right(from) || from.size != access.size || !fits(value) || file.0 != old {
                return wrong("not the write of a register");
            }
        }
        (Operation::WriteImmediate(_), Some(value)) => {
            if !fits(value) || file.0 != old {
                return wrong("not the write of a value");
            }
        }
        _ => return wrong("neither read nor write"),
    }
    Ok(())
}

/// Decodes any bytes: only those that belong to the instruction count, and all of them
/// are needed. Whether it was one.
pub fn code(random: &mut Random) -> Result<bool, String> {
    let code: [u8; 15] = std::array::from_fn(|_| byte(random));
    let mode = [Mode::Bits16, Mode::Bits32, Mode::Bits64][random.below(3)];
    let found = decode(Bytes::new(&code), mode);
    let assists = u128::from_le_bytes(std::array::from_fn(|n| match n {
        0 => 15,
        n => code[n - 1],
    }));
    if decode(Bytes::assisted([assists as u64, (assists >> 64) as u64]), mode) != found {
        return Err(format!("{mode:?} {code:02x?} is another with decode assists"));
    }
    let Some(access) = found else { return Ok(false) };
    effect(&access, random)?;
    let own = code.get(..access.length.into()).ok_or_else(|| format!("too long: {access:?}"))?;
    let fewer = &own[..own.len() - 1];
    if decode(Bytes::new(own), mode) != found || decode(Bytes::new(fewer), mode).is_some() {
        return Err(format!("{mode:?} {code:02x?} has not {} bytes", own.len()));
    }
    Ok(true)
}
