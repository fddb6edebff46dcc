//! The guest, by its monitor's page.

use crate::{Error, translate};
use bulkhead_layout::debug::{
    BROKE, COUNT, GO, MOST, Page, READ, REFLECT, REGISTERS, RUNS, STEP, STEPPED, STOP, WRITE,
};
use bulkhead_layout::x86::debug::{BREAKPOINT, RIP};
use std::collections::BTreeMap;
use std::io;
use std::mem::offset_of;
use std::time::{Duration, Instant};

/// Time for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
const NAP: Duration = Duration::from_micros(100);

/// The way to a monitor's page.
pub trait Wire {
    /// Reads the word at an offset of the page.
    ///
    /// # Errors
    /// The page cannot be reached.
    fn word(&self, at: usize) -> io::Result<u64>;
    /// Writes one.
    ///
    /// # Errors
    /// Likewise.
    fn set_word(&self, at: usize, value: u64) -> io::Result<()>;
    /// Wakes the monitor.
    ///
    /// # Errors
    /// Likewise.
    fn wake(&self) -> io::Result<()>;
    /// Tells if the guest has ended, and its exit code, if it has left one.
    ///
    /// # Errors
    /// Likewise.
    fn ended(&self) -> io::Result<Option<u8>>;
}

/// A guest that is debugged.
pub struct Guest<W> {
    wire: W,
    /// Number of the last request.
    number: u64,
    /// Breakpoints by their addresses: the guest-physical one, and the byte below.
    breakpoints: BTreeMap<u64, (u64, u8)>,
    /// Where it stopped.
    at: u64,
    registers: [u64; COUNT],
    /// Registers were changed, and the monitor does not know yet.
    changed: bool,
    /// A breakpoint of its own, behind an instruction that is stepped over.
    behind: Option<u64>,
}

impl<W: Wire> Guest<W> {
    /// Takes the way to its monitor.
    pub fn new(wire: W) -> Self {
        Self {
            wire,
            number: 0,
            breakpoints: BTreeMap::new(),
            at: 0,
            registers: [0; COUNT],
            changed: false,
            behind: None,
        }
    }

    /// The registers while it is stopped.
    pub(crate) fn registers(&self) -> &[u64; COUNT] {
        &self.registers
    }

    /// Those that can be changed.
    pub(crate) fn change(&mut self, number: usize, value: u64) {
        self.changed |= self.registers[number] != value;
        self.registers[number] = value;
    }

    /// A word of what FXSAVE has left.
    pub(crate) fn fpu(&self, number: usize) -> Result<u64, Error> {
        Ok(self.wire.word(offset_of!(Page, extended) + number * 8)?)
    }

    /// Tells if it has ended.
    pub(crate) fn ended(&self) -> Result<Option<u8>, Error> {
        Ok(self.wire.ended()?)
    }

    /// Makes a request.
    fn request(&mut self, what: u8) -> Result<bool, Error> {
        const NAMES: [&str; 8] =
            ["", "stop", "go on", "step", "go on", "read", "write", "take registers"];
        // A debugger of before may have left a number.
        if self.number == 0 {
            self.number = self.wire.word(offset_of!(Page, answer))? >> 8;
        }
        self.number += 1;
        let request = self.number << 8 | u64::from(what);
        self.wire.set_word(offset_of!(Page, request), request)?;
        self.wire.wake()?;
        let due = Instant::now() + PATIENCE;
        while self.wire.word(offset_of!(Page, answer))? != request {
            let ended = self.ended()?.is_some();
            if ended || Instant::now() > due {
                // The next life is not to find it.
                let answer = self.wire.word(offset_of!(Page, answer))?;
                self.wire.set_word(offset_of!(Page, request), answer)?;
            }
            if ended {
                return Err(Error::Ended);
            }
            if Instant::now() > due {
                return Err(Error::Silent(NAMES[usize::from(what)], PATIENCE.as_secs()));
            }
            std::thread::sleep(NAP);
        }
        Ok(self.wire.word(offset_of!(Page, refused))? == 0)
    }

    /// Tells why it is stopped; `None`: it runs.
    fn stopped(&self) -> Result<Option<u64>, Error> {
        let state = self.wire.word(offset_of!(Page, state))?;
        Ok((state != RUNS).then_some(state))
    }

    /// Likewise, and reads its registers.
    pub(crate) fn has_stopped(&mut self) -> Result<Option<u64>, Error> {
        let Some(why) = self.stopped()? else { return Ok(None) };
        self.look()?;
        let Some(behind) = self.behind.take() else { return Ok(Some(why)) };
        self.clear_breakpoint(behind)?;
        let over = why == BROKE && self.registers[RIP] == behind;
        Ok(Some(if over { STEPPED } else { why }))
    }

    /// Stops it, if it runs.
    ///
    /// # Errors
    /// Its monitor does not answer.
    pub fn stop(&mut self) -> Result<(), Error> {
        self.wire.set_word(offset_of!(Page, attached), 1)?;
        self.request(STOP)?;
        self.has_stopped().map(|_| ())
    }

    /// Reads the registers of a guest that has stopped.
    fn look(&mut self) -> Result<(), Error> {
        for (n, register) in self.registers.iter_mut().enumerate() {
            *register = self.wire.word(offset_of!(Page, registers) + n * 8)?;
        }
        self.changed = false;
        self.at = self.registers[RIP];
        Ok(())
    }

    /// Lets it go on, for one instruction or for good.
    pub(crate) fn resume(&mut self, steps: bool) -> Result<(), Error> {
        let moved = self.registers[RIP] != self.at;
        let own = self.stopped()? == Some(BROKE) && !moved && self.is_own()?;
        if self.changed {
            for (n, register) in self.registers.iter().enumerate() {
                self.wire.set_word(offset_of!(Page, registers) + n * 8, *register)?;
            }
            self.request(REGISTERS)?;
        }
        let what = match (own, steps) {
            (true, _) => REFLECT,
            (false, true) if !self.waits()? => STEP,
            _ => GO,
        };
        self.request(what).map(|_| ())
    }

    /// Tells if it stands at a breakpoint instruction of its own.
    fn is_own(&mut self) -> Result<bool, Error> {
        let at = self.registers[RIP];
        let mut byte = [0];
        Ok(self.read(at, &mut byte)? == 1
            && byte[0] == BREAKPOINT
            && !self.breakpoints.contains_key(&at))
    }

    /// Tells if its next instruction waits for an interrupt, or goes to a handler. Then there is a breakpoint behind
    /// it: no step goes through a handler.
    fn waits(&mut self) -> Result<bool, Error> {
        let mut bytes = [0; 2];
        let there = self.read(self.registers[RIP], &mut bytes)?;
        let len = match (there, bytes) {
            // HLT; then SYSCALL, SYSENTER, INT n.
            (1.., [0xF4, _]) => 1,
            (2, [0x0F, 0x05 | 0x34] | [0xCD, _]) => 2,
            _ => return Ok(false),
        };
        let behind = self.registers[RIP].wrapping_add(len);
        if !self.breakpoints.contains_key(&behind) && self.set_breakpoint(behind)? {
            self.behind = Some(behind);
        }
        Ok(true)
    }

    /// Reads a word of guest-physical memory.
    fn physical(&mut self, at: u64) -> Result<Option<u64>, Error> {
        self.wire.set_word(offset_of!(Page, argument), at & !7)?;
        self.wire.set_word(offset_of!(Page, argument) + 8, 8)?;
        if !self.request(READ)? {
            return Ok(None);
        }
        Ok(Some(self.wire.word(offset_of!(Page, data))?))
    }

    fn place(&mut self, address: u64) -> Result<Option<u64>, Error> {
        let registers = self.registers;
        let mut wrong = None;
        let found = translate(&registers, address, |at| match self.physical(at) {
            Ok(word) => word,
            Err(error) => {
                wrong = Some(error);
                None
            }
        });
        wrong.map_or(Ok(found), Err)
    }

    /// Reads memory at an address of its own, without what breakpoints have changed. Returns how many bytes there are.
    ///
    /// # Errors
    /// Its monitor does not answer.
    pub fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<usize, Error> {
        let mut done = 0;
        while done < bytes.len() {
            let at = address.wrapping_add(done as u64);
            let in_page = (4096 - at % 4096) as usize;
            let before = (at % 8) as usize;
            let len = (bytes.len() - done).min(in_page).min(MOST - 8);
            let Some(place) = self.place(at)? else { break };
            let all = (before + len).next_multiple_of(8);
            self.wire.set_word(offset_of!(Page, argument), place & !7)?;
            self.wire.set_word(offset_of!(Page, argument) + 8, all as u64)?;
            if !self.request(READ)? {
                break;
            }
            for n in 0..len {
                let word = self.wire.word(offset_of!(Page, data) + (before + n) / 8 * 8)?;
                bytes[done + n] = word.to_le_bytes()[(before + n) % 8];
            }
            done += len;
        }
        for (at, (_, byte)) in &self.breakpoints {
            if let Some(offset) = at.checked_sub(address).filter(|offset| *offset < done as u64) {
                bytes[offset as usize] = *byte;
            }
        }
        Ok(done)
    }

    /// Writes memory at an address of its own. False if some of it is not there: then nothing is written behind it.
    ///
    /// # Errors
    /// Its monitor does not answer.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<bool, Error> {
        // Breakpoints stay where they are.
        let mut bytes = bytes.to_vec();
        for (at, (_, below)) in &mut self.breakpoints {
            let offset = at.checked_sub(address).map(|offset| offset as usize);
            if let Some(byte) = offset.and_then(|offset| bytes.get_mut(offset)) {
                *below = std::mem::replace(byte, BREAKPOINT);
            }
        }
        self.store(address, &bytes)
    }

    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<bool, Error> {
        let mut done = 0;
        while done < bytes.len() {
            let at = address.wrapping_add(done as u64);
            let Some(place) = self.place(at)? else { return Ok(false) };
            let before = (at % 8) as usize;
            let len = (bytes.len() - done).min(8 - before);
            let Some(word) = self.physical(place)? else { return Ok(false) };
            let mut all = word.to_le_bytes();
            all[before..before + len].copy_from_slice(&bytes[done..done + len]);
            if !self.put(place, u64::from_le_bytes(all))? {
                return Ok(false);
            }
            done += len;
        }
        Ok(true)
    }

    /// Writes the word of guest-physical memory that has this address.
    fn put(&mut self, place: u64, word: u64) -> Result<bool, Error> {
        self.wire.set_word(offset_of!(Page, argument), place & !7)?;
        self.wire.set_word(offset_of!(Page, argument) + 8, 8)?;
        self.wire.set_word(offset_of!(Page, data), word)?;
        self.request(WRITE)
    }

    /// Sets a breakpoint. False if there is no memory.
    pub(crate) fn set_breakpoint(&mut self, address: u64) -> Result<bool, Error> {
        let mut byte = [0];
        if self.breakpoints.contains_key(&address) {
            return Ok(true);
        }
        let Some(place) = self.place(address)? else { return Ok(false) };
        if self.read(address, &mut byte)? == 0 || !self.store(address, &[BREAKPOINT])? {
            return Ok(false);
        }
        self.breakpoints.insert(address, (place, byte[0]));
        Ok(true)
    }

    /// Takes one away. False if there was none. Other tables may be in use by now, so it goes by the physical address.
    /// A new life, or another program, may have other bytes there: they stay.
    pub(crate) fn clear_breakpoint(&mut self, address: u64) -> Result<bool, Error> {
        let Some(&(place, below)) = self.breakpoints.get(&address) else { return Ok(false) };
        if let Some(word) = self.physical(place)? {
            let mut all = word.to_le_bytes();
            let byte = &mut all[(place % 8) as usize];
            if *byte == BREAKPOINT {
                *byte = below;
                self.put(place, u64::from_le_bytes(all))?;
            }
        }
        self.breakpoints.remove(&address);
        Ok(true)
    }

    /// Lets it go on without breakpoints, if it is stopped or can be.
    ///
    /// # Errors
    /// Its monitor does not answer.
    pub fn leave(&mut self) -> Result<(), Error> {
        if self.ended()?.is_some() {
            return Ok(self.wire.set_word(offset_of!(Page, attached), 0)?);
        }
        if !self.breakpoints.is_empty() && self.stopped()?.is_none() {
            self.stop()?;
        }
        let places: Vec<_> = self.breakpoints.keys().copied().collect();
        for address in places {
            self.clear_breakpoint(address)?;
        }
        self.wire.set_word(offset_of!(Page, attached), 0)?;
        match self.stopped()? {
            Some(_) => self.resume(false),
            None => Ok(()),
        }
    }
}
