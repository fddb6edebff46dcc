//! Intel's 82574 (82574 GbE Controller Family Datasheet, rev. 3.4; QEMU's e1000e): one queue each way of legacy
//! descriptors (7.1.5, 7.2.10), message-signalled interrupts by one vector for all causes.
//!
//! Descriptors are used in their order, so a place is two of them, and the oldest place is free first. Packets to any
//! address are received: the card's clients have addresses of their own.

use crate::buffers::{BUFFERS, HEADER, LONGEST, MEMORY, PLACES, SIZE, buffer, fill};
use crate::{Card, Mac, Received};
use bulkhead_device::{Clock, Memory, Registers, Window, Wrong, clear, wait};

/// Vendor and device, as configuration space has them.
pub const ID: u32 = 0x10D3_8086;
/// BAR of its registers, and their bytes.
pub const BAR: u8 = 0;
const BYTES: u64 = 0x2_0000;

/// Nanoseconds that a reset, or the end of all accesses to memory before it, may take (4.2: some milliseconds).
const RESET: u64 = 1_000_000_000;
/// Nanoseconds of silence after a reset (4.6.1: registers can be read after 1 ms).
const PAUSE: u64 = 1_000_000;

/// Offsets of the rings in the memory.
const RECEIVED: usize = 0;
const SENT: usize = 4096;
/// Descriptors of each.
const NUM: u32 = 256;
const _: () = assert!(NUM as usize == BUFFERS && NUM as usize == 2 * PLACES);

/// Registers (10.1.2).
mod register {
    pub const CTRL: u64 = 0x0000;
    pub const STATUS: u64 = 0x0008;
    pub const CTRL_EXT: u64 = 0x0018;
    pub const ICR: u64 = 0x00C0;
    pub const IMS: u64 = 0x00D0;
    pub const IMC: u64 = 0x00D8;
    pub const EIAC: u64 = 0x00DC;
    pub const IVAR: u64 = 0x00E4;
    pub const RCTL: u64 = 0x0100;
    pub const TCTL: u64 = 0x0400;
    pub const TIPG: u64 = 0x0410;
    /// Base (64 bits), bytes, head, tail of the receive ring; those of the other one lie behind it.
    pub const RECEIVE: u64 = 0x2800;
    pub const SEND: u64 = 0x3800;
    pub const LEN: u64 = 0x08;
    pub const HEAD: u64 = 0x10;
    pub const TAIL: u64 = 0x18;
    /// Thresholds of a ring.
    pub const CONTROL: u64 = 0x28;
    pub const RFCTL: u64 = 0x5008;
    pub const RAL: u64 = 0x5400;
    pub const RAH: u64 = 0x5404;
}

/// Device control and status (10.2.2).
mod device {
    pub const MASTER_DISABLE: u32 = 1 << 2;
    pub const LINK_UP: u32 = 1 << 6;
    pub const RESET: u32 = 1 << 26;
    pub const STATUS_LINK_UP: u32 = 1 << 1;
    pub const STATUS_MASTER: u32 = 1 << 19;
}

/// Causes of interrupts (10.2.4.1): a receive and a transmit queue, as messages.
const CAUSES: u32 = 1 << 20 | 1 << 22;
/// Each cause by vector `n` (10.2.4.9): receive queue 0, transmit queue 0, others.
const fn vectors(n: u16) -> u32 {
    let entry = 8 | n as u32 & 7;
    entry | entry << 8 | entry << 16
}

/// Receive control (10.2.5.1): on, all addresses, broadcasts, buffers of 2,048 bytes, without the check sequence.
const RECEIVES: u32 = 1 << 1 | 1 << 3 | 1 << 4 | 1 << 15 | 1 << 26;
/// Transmit control (10.2.6.1): on, short packets padded, collisions as the datasheet has them.
const SENDS: u32 = 1 << 1 | 1 << 3 | 0x0F << 4 | 0x3F << 12;
/// Gaps between packets (10.2.6.2).
const GAPS: u32 = 8 | 8 << 10 | 6 << 20;

/// Status of a receive descriptor (7.1.5.1), from bit 32 of its second half on.
const DONE: u64 = 1 << 32;
const END: u64 = 1 << 33;
const ERRORS: u64 = 0xFF << 40;
/// Command of a transmit descriptor (7.2.10.1): end of packet, check sequence, report.
const LAST: u64 = 1 << 24;
const SUM: u64 = 1 << 25;
const REPORT: u64 = 1 << 27;

/// The card.
#[derive(Debug)]
pub struct E1000e<R, M, C> {
    registers: Window<R>,
    memory: M,
    clock: C,
    vector: u16,
    mac: Mac,
    /// Descriptor that is received into next; descriptors given back, all that were.
    next: u32,
    given: u32,
    /// The buffer that `next` was is still the caller's, and a frame's further buffers are dropped.
    held: bool,
    torn: bool,
    /// Places taken, sent and seen, all that were.
    taken: u32,
    done: u32,
    /// Tails that the card knows.
    told: [u32; 2],
    fault: Option<Wrong>,
}

impl<R: Registers, M: Memory, C: Clock> E1000e<R, M, C> {
    /// Switches the card on; `memory` has at least [`MEMORY`] bytes. `vector` is the entry of its interrupt among its
    /// messages.
    ///
    /// # Errors
    /// It lacks something, or its reset does not end.
    pub fn new(registers: R, memory: M, clock: C, vector: u16) -> Result<Self, Wrong> {
        let registers = Window::new(registers, 0, BYTES).ok_or(Wrong::Lacks("registers"))?;
        let mut card = Self {
            registers,
            memory,
            clock,
            vector,
            mac: [0; 6],
            next: 0,
            given: 0,
            held: false,
            torn: false,
            taken: 0,
            done: 0,
            told: [0; 2],
            fault: None,
        };
        card.mac = card.start()?;
        Ok(card)
    }

    fn start(&mut self) -> Result<Mac, Wrong> {
        self.quiesce()?;
        clear(&self.memory, MEMORY)?;
        let registers = &self.registers;
        let [low, high] = [register::RAL, register::RAH].map(|at| registers.read32(at));
        let bytes = (u64::from(low) | u64::from(high) << 32).to_le_bytes();
        let [a, b, c, d, e, f, ..] = bytes;
        let mac = [a, b, c, d, e, f];
        if mac == [0; 6] || a & 1 != 0 {
            return Err(Wrong::Lacks("address"));
        }
        registers.write32(register::CTRL, registers.read32(register::CTRL) | device::LINK_UP);
        registers.write32(register::RFCTL, 0);
        for (ring, at) in [(register::RECEIVE, RECEIVED), (register::SEND, SENT)] {
            registers.write64(ring, self.memory.address() + at as u64);
            registers.write32(ring + register::LEN, 16 * NUM);
            registers.write32(ring + register::HEAD, 0);
            registers.write32(ring + register::TAIL, 0);
            // Write back each descriptor (10.2.5.10, 10.2.6.9).
            registers.write32(ring + register::CONTROL, 1 << 16 | 1 << 24);
        }
        (self.next, self.given, self.held, self.torn) = (0, 0, false, false);
        (self.taken, self.done, self.told) = (0, 0, [0; 2]);
        for number in 0..NUM {
            self.describe(number);
        }
        // A tail at the head means an empty ring, so one descriptor stays the driver's.
        self.given = NUM - 1;
        let registers = &self.registers;
        registers.write32(register::IVAR, vectors(self.vector));
        registers.write32(register::EIAC, 0);
        registers.write32(register::TIPG, GAPS);
        registers.write32(register::TCTL, SENDS);
        registers.write32(register::RCTL, RECEIVES);
        self.ring();
        Ok(mac)
    }

    /// Ends all accesses to memory (5.2.5.3), then resets the card. Its messages go on as they were set up.
    fn quiesce(&self) -> Result<(), Wrong> {
        let registers = &self.registers;
        registers.write32(register::IMC, u32::MAX);
        registers.write32(register::RCTL, 0);
        registers.write32(register::TCTL, 1 << 3);
        let control = registers.read32(register::CTRL);
        registers.write32(register::CTRL, control | device::MASTER_DISABLE);
        let over =
            || (registers.read32(register::STATUS) & device::STATUS_MASTER == 0).then_some(());
        wait(&self.clock, RESET, over).ok_or(Wrong::Silent("end of its accesses to memory"))?;
        registers.write32(register::CTRL, control | device::RESET);
        let begun = self.clock.now();
        let reset = || {
            let rests = self.clock.now().wrapping_sub(begun) >= PAUSE;
            (rests && registers.read32(register::CTRL) & device::RESET == 0).then_some(())
        };
        wait(&self.clock, RESET, reset).ok_or(Wrong::Silent("end of its reset"))?;
        registers.write32(register::IMC, u32::MAX);
        let extended = registers.read32(register::CTRL_EXT);
        registers.write32(register::CTRL_EXT, extended);
        let _ = registers.read32(register::ICR);
        Ok(())
    }

    /// Writes a descriptor to receive into.
    fn describe(&self, number: u32) {
        let at = RECEIVED + 16 * (number % NUM) as usize;
        // Where virtio's header would end.
        let into = buffer((number % NUM) as u16) + HEADER;
        self.memory.set(at + 8, 0);
        self.memory.set(at, self.memory.address() + into as u64);
    }

    /// Looks at the next descriptor: `None` if the card has not written it.
    fn take(&mut self) -> Option<u64> {
        let behind = self.given.wrapping_sub(self.next);
        // Buffers that were given back and not yet received into: a ring's, at most.
        if self.held || behind == 0 || behind > NUM {
            return None;
        }
        let status = self.memory.get(RECEIVED + 16 * (self.next % NUM) as usize + 8);
        (status & DONE != 0).then_some(status)
    }

    /// Gives the buffer of the descriptor that was looked at back.
    fn drop_next(&mut self) {
        // The one that stayed the driver's goes to the card, and this one is the driver's.
        self.describe(self.next);
        self.next = self.next.wrapping_add(1);
        self.given = self.given.wrapping_add(1);
    }
}

impl<R: Registers, M: Memory, C: Clock> Card for E1000e<R, M, C> {
    fn mac(&self) -> Mac {
        self.mac
    }

    fn link(&self) -> bool {
        self.registers.read32(register::STATUS) & device::STATUS_LINK_UP != 0
    }

    fn send(&mut self, head: &[u8], rest: Option<(u64, u32)>) -> Option<u16> {
        // A tail at the head means an empty ring.
        if self.fault.is_some() || self.taken.wrapping_sub(self.done) >= PLACES as u32 - 1 {
            return None;
        }
        let place = self.taken as usize % PLACES;
        let parts = fill(&self.memory, place, 0, head, rest)?;
        for (n, (address, len)) in parts.into_iter().enumerate() {
            let at = SENT + 16 * (2 * place + n);
            let last = if n == 1 { LAST | REPORT } else { 0 };
            self.memory.set(at, address);
            self.memory.set(at + 8, u64::from(len) | SUM | last);
        }
        self.taken = self.taken.wrapping_add(1);
        Some(place as u16)
    }

    fn sent(&mut self) -> Option<u16> {
        if self.fault.is_some() || self.done == self.told[1] {
            return None;
        }
        let place = self.done as usize % PLACES;
        let status = self.memory.get(SENT + 16 * (2 * place + 1) + 8);
        if status & DONE == 0 {
            return None;
        }
        self.done = self.done.wrapping_add(1);
        Some(place as u16)
    }

    fn receive(&mut self) -> Option<Received> {
        // A ring's worth of garbage ends the look.
        for _ in 0..NUM {
            let status = self.take().filter(|_| self.fault.is_none())?;
            let len = status as u16 as usize;
            if len > SIZE {
                self.fault = Some(Wrong::Lies("length of a packet"));
                return None;
            }
            let (ends, torn) = (status & END != 0, self.torn);
            self.torn = !ends;
            if ends && !torn && status & ERRORS == 0 && (1..=LONGEST).contains(&len) {
                self.held = true;
                return Some(Received { buffer: (self.next % NUM) as u16, len });
            }
            self.drop_next();
        }
        None
    }

    fn read(&self, number: u16, at: usize) -> u64 {
        if at < SIZE { self.memory.get(buffer(number) + at) } else { 0 }
    }

    fn give_back(&mut self, number: u16) {
        if self.held && u32::from(number) == self.next % NUM {
            self.held = false;
            self.drop_next();
        }
    }

    fn ring(&mut self) {
        if self.fault.is_some() {
            return;
        }
        let now = [self.given, self.taken];
        let tails = [(register::RECEIVE, self.given % NUM), (register::SEND, 2 * self.taken % NUM)];
        for (n, (ring, tail)) in tails.into_iter().enumerate() {
            if self.told[n] != now[n] {
                self.told[n] = now[n];
                self.registers.write32(ring + register::TAIL, tail);
            }
        }
    }

    fn interrupts(&mut self, wanted: bool) {
        if wanted {
            // A frame that came before the look that follows needs no interrupt.
            self.registers.write32(register::ICR, CAUSES);
            self.registers.write32(register::IMS, CAUSES);
        } else {
            self.registers.write32(register::IMC, u32::MAX);
        }
        self.memory.fence();
    }

    fn reset(&mut self) -> Result<(), Wrong> {
        // Else it would not be told of its buffers.
        self.fault = None;
        self.fault = match self.start() {
            Ok(mac) if mac == self.mac => None,
            Ok(_) => Some(Wrong::Lies("address that a reset changes")),
            Err(wrong) => Some(wrong),
        };
        self.fault.map_or(Ok(()), Err)
    }

    fn check(&mut self) {
        // Registers of a card that is gone read as ones.
        if self.fault.is_none() && self.registers.read32(register::STATUS) == u32::MAX {
            self.fault = Some(Wrong::Failed("go on", u16::MAX));
        }
    }

    fn fault(&self) -> Option<Wrong> {
        self.fault
    }
}
