//! Another driver of a virtio network device (virtio 1.2, 5.1), to stand in for [`crate::VirtioNet`]: slower, stricter,
//! and written by itself. Only the steps by which the device is switched on are common
//! ([`bulkhead_device::virtio::Transport`]).
//!
//! It asks for no interrupt: its caller looks. Few frames are under way, one descriptor each, all in memory of the
//! driver's. The device gets copies. Whatever it gives back is compared:
//!
//! * the descriptor, and its place in the available ring, with what the driver wrote;
//! * the order with the order in which they were given;
//! * the length with a frame's bounds;
//! * the packet's header with the only one that these features allow.
//!
//! The first difference makes the card silent.

use crate::buffers::{HEADER, LONGEST, MEMORY, QUEUES, SIZE};
use crate::{Card, Mac, Received};
use bulkhead_device::virtio::{Parts, Queue, Transport};
use bulkhead_device::{Clock, Configuration, Memory, Registers, Wrong, clear};

/// Frames to send that are under way, at most, and buffers to receive into.
pub const SENDS: u16 = 8;
/// Buffers to receive into.
pub const RECEIVES: u16 = 32;

/// Bytes of the shortest frame: an Ethernet header.
const ETHERNET: usize = 14;
/// Offset of a packet to send in its buffer: the frame behind the header begins at a multiple of eight.
const PACKET: usize = 4;
/// Features (5.1.3): the address, and whether there is a link.
const MAC: u64 = 1 << 5;
const STATUS: u64 = 1 << 16;
/// The device's configuration (5.1.4).
const STATUS_AT: u64 = 6;
const BYTES: u64 = 8;
/// No interrupts (2.7.7).
const QUIET: u64 = 1;
/// A descriptor that the device writes (2.7.5).
const WRITES: u64 = 2;

/// A ring of one queue.
#[derive(Debug)]
struct Ring {
    queue: Queue,
    parts: Parts,
    /// First buffer, and their number.
    first: usize,
    count: u16,
    writes: bool,
    /// Chains given to the device and taken back, all that were.
    given: u16,
    taken: u16,
}

impl Ring {
    const fn new(number: usize, first: usize, count: u16, writes: bool) -> Self {
        let at = number * 3 * 4096;
        let parts = Parts { descriptors: at, available: at + 4096, used: at + 2 * 4096 };
        Self { queue: Queue::none(parts), parts, first, count, writes, given: 0, taken: 0 }
    }

    /// Offset of a buffer.
    const fn buffer(&self, number: u16) -> usize {
        QUEUES + SIZE * (self.first + (number % self.count) as usize)
    }

    /// The words of a descriptor.
    fn descriptor(&self, memory: &impl Memory, number: u16, (at, len): (usize, usize)) -> [u64; 2] {
        let flags = if self.writes { WRITES } else { 0 };
        [memory.address() + (self.buffer(number) + at) as u64, len as u64 | flags << 32]
    }

    /// The word of the available ring that has an index, and the place of that in it. Index 0 are the flags, 1 is the
    /// number of chains, and the chains begin at 2.
    const fn available(&self, index: usize) -> (usize, usize) {
        (self.parts.available + index / 4 * 8, index % 4 * 16)
    }

    fn set(&self, memory: &impl Memory, index: usize, value: u16) {
        let (at, shift) = self.available(index);
        memory.set(at, memory.get(at) & !(0xFFFF << shift) | u64::from(value) << shift);
    }

    fn get(&self, memory: &impl Memory, index: usize) -> u16 {
        let (at, shift) = self.available(index);
        (memory.get(at) >> shift) as u16
    }

    fn slot(&self, number: u16) -> usize {
        2 + usize::from(number % self.queue.size())
    }

    /// Gives the next buffer, with a part of it for the device.
    fn give(&mut self, memory: &impl Memory, part: (usize, usize)) {
        let number = self.given % self.count;
        for (n, word) in self.descriptor(memory, number, part).into_iter().enumerate() {
            memory.set(self.parts.descriptors + 16 * usize::from(number) + 8 * n, word);
        }
        self.set(memory, self.slot(self.given), number);
        self.given = self.given.wrapping_add(1);
        self.set(memory, 1, self.given);
    }

    const fn under_way(&self) -> u16 {
        self.given.wrapping_sub(self.taken)
    }

    /// Takes the oldest buffer back, if the device has used it: its number, and the bytes that it says to have written.
    /// `part` is the part that it was given.
    fn take(
        &mut self,
        memory: &impl Memory,
        part: impl FnOnce(u16) -> (usize, usize),
    ) -> Result<Option<(u16, usize)>, Wrong> {
        let index = (memory.get(self.parts.used) >> 16) as u16;
        match index.wrapping_sub(self.taken) {
            0 => return Ok(None),
            news if news > self.under_way() => return Err(Wrong::Lies("index of the used ring")),
            _ => {}
        }
        let number = self.taken % self.count;
        let element = self.parts.used + 8 * usize::from(self.taken % self.queue.size());
        if (memory.get(element) >> 32) as u32 != u32::from(number) {
            return Err(Wrong::Lies("order of the used ring"));
        }
        let at = self.parts.descriptors + 16 * usize::from(number);
        if [memory.get(at), memory.get(at + 8)] != self.descriptor(memory, number, part(number)) {
            return Err(Wrong::Lies("descriptor that was the driver's"));
        }
        let heads = (self.get(memory, self.slot(self.taken)), self.get(memory, 1));
        if heads != (number, self.given) {
            return Err(Wrong::Lies("available ring"));
        }
        self.taken = self.taken.wrapping_add(1);
        Ok(Some((number, memory.get(element + 8) as u32 as usize)))
    }
}

/// A virtio network card, driven with care.
#[derive(Debug)]
pub struct StrictNet<R, M, C> {
    device: Transport<R>,
    memory: M,
    clock: C,
    mac: Mac,
    tells: bool,
    receive: Ring,
    send: Ring,
    /// Bytes of the packets under way.
    lens: [usize; SENDS as usize],
    /// The buffer that was received into last is the caller's.
    held: bool,
    fresh: [bool; 2],
    fault: Option<Wrong>,
}

impl<R: Registers, M: Memory, C: Clock> StrictNet<R, M, C> {
    /// Switches the device on. `bars` has its registers by the number of a BAR, and `memory` at least [`MEMORY`] bytes.
    ///
    /// # Errors
    /// It lacks something, lies, or its reset does not end.
    pub fn new(
        configuration: &impl Configuration,
        bars: impl Fn(u8) -> Option<R>,
        memory: M,
        clock: C,
    ) -> Result<Self, Wrong> {
        let device = Transport::find(configuration, bars, BYTES)?;
        let mut card = Self {
            device,
            memory,
            clock,
            mac: [0; 6],
            tells: false,
            receive: Ring::new(0, SENDS as usize, RECEIVES, true),
            send: Ring::new(1, 0, SENDS, false),
            lens: [0; SENDS as usize],
            held: false,
            fresh: [false; 2],
            fault: None,
        };
        card.mac = card.start()?;
        Ok(card)
    }

    fn start(&mut self) -> Result<Mac, Wrong> {
        self.set_up().inspect_err(|_| self.device.off())
    }

    fn set_up(&mut self) -> Result<Mac, Wrong> {
        self.device.reset(&self.clock)?;
        clear(&self.memory, MEMORY)?;
        let features = self.device.negotiate(MAC | STATUS)?;
        if features & MAC == 0 {
            return Err(Wrong::Lacks("address"));
        }
        self.tells = features & STATUS != 0;
        let mac = self.device.described(|config| [0, 1, 2, 3, 4, 5].map(|n| config.read8(n)))?;
        if mac == [0; 6] || mac[0] & 1 != 0 {
            return Err(Wrong::Lies("address"));
        }
        let memory = &self.memory;
        for (number, ring) in [&mut self.receive, &mut self.send].into_iter().enumerate() {
            // A vector is set up and stays unused: the flag says so to the device.
            ring.queue = self.device.queue(number as u16, ring.count, memory, ring.parts, 0)?;
            (ring.given, ring.taken) = (0, 0);
            ring.set(memory, 0, QUIET as u16);
        }
        self.held = false;
        (0..RECEIVES).for_each(|_| self.receive.give(&self.memory, (0, SIZE)));
        self.fresh = [true, false];
        self.memory.fence();
        self.device.begin();
        self.ring();
        Ok(mac)
    }

    /// Takes a frame. Its packet has no flags, no segmentation and one buffer (5.1.6).
    fn take(&mut self) -> Result<Option<Received>, Wrong> {
        let Some((number, len)) = self.receive.take(&self.memory, |_| (0, SIZE))? else {
            return Ok(None);
        };
        let frame = len.checked_sub(HEADER).filter(|len| (ETHERNET..=LONGEST).contains(len));
        let frame = frame.ok_or(Wrong::Lies("length of a packet"))?;
        let at = self.receive.buffer(number);
        let counted = self.memory.get(at + 8) as u32;
        // Flags, kind and four lengths are zero. The number of buffers is 1, or 0 in QEMU 10.0, which leaves it out.
        if self.memory.get(at) != 0 || counted & 0xFFFF != 0 || counted >> 16 > 1 {
            return Err(Wrong::Lies("header of a packet"));
        }
        self.held = true;
        Ok(Some(Received { buffer: number, len: frame }))
    }

    fn heed<T>(&mut self, found: Result<Option<T>, Wrong>) -> Option<T> {
        found.unwrap_or_else(|wrong| {
            self.fault = Some(wrong);
            None
        })
    }
}

impl<R: Registers, M: Memory, C: Clock> Card for StrictNet<R, M, C> {
    fn mac(&self) -> Mac {
        self.mac
    }

    fn link(&self) -> bool {
        !self.tells || self.device.config.read16(STATUS_AT) & 1 != 0
    }

    /// A frame's rest at an address of the caller's is refused: the device reads memory of the driver's only.
    fn send(&mut self, head: &[u8], rest: Option<(u64, u32)>) -> Option<u16> {
        let fits = (ETHERNET..=LONGEST).contains(&head.len()) && rest.is_none();
        if self.fault.is_some() || !fits || self.send.under_way() == SENDS {
            return None;
        }
        let number = self.send.given % SENDS;
        let at = self.send.buffer(number);
        self.memory.set(at, 0);
        self.memory.set(at + 8, 0);
        for (n, some) in head.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..some.len()].copy_from_slice(some);
            self.memory.set(at + PACKET + HEADER + 8 * n, u64::from_le_bytes(word));
        }
        let len = HEADER + head.len();
        self.lens[usize::from(number)] = len;
        self.send.give(&self.memory, (PACKET, len));
        self.fresh[1] = true;
        Some(number)
    }

    fn sent(&mut self) -> Option<u16> {
        if self.fault.is_some() {
            return None;
        }
        let lens = self.lens;
        let taken = self.send.take(&self.memory, |number| (PACKET, lens[usize::from(number)]));
        self.heed(taken).map(|(number, _)| number)
    }

    fn receive(&mut self) -> Option<Received> {
        if self.fault.is_some() || self.held {
            return None;
        }
        let taken = self.take();
        self.heed(taken)
    }

    fn read(&self, number: u16, at: usize) -> u64 {
        if at < SIZE { self.memory.get(self.receive.buffer(number) + at) } else { 0 }
    }

    fn give_back(&mut self, number: u16) {
        if self.held && number == self.receive.taken.wrapping_sub(1) % RECEIVES {
            self.held = false;
            self.receive.give(&self.memory, (0, SIZE));
            self.fresh[0] = true;
        }
    }

    fn ring(&mut self) {
        if self.fault.is_some() {
            return;
        }
        for (fresh, ring) in self.fresh.iter_mut().zip([&self.receive, &self.send]) {
            if core::mem::take(fresh) {
                self.device.notify(&ring.queue);
            }
        }
    }

    /// There are none.
    fn interrupts(&mut self, _: bool) {}

    fn reset(&mut self) -> Result<(), Wrong> {
        self.fault = None;
        self.fault = match self.start() {
            Ok(mac) if mac == self.mac => None,
            Ok(_) => Some(Wrong::Lies("address that a reset changes")),
            Err(wrong) => Some(wrong),
        };
        self.fault.inspect(|_| self.device.off()).map_or(Ok(()), Err)
    }

    fn check(&mut self) {
        self.fault = self.fault.or(self.device.failed());
    }

    fn fault(&self) -> Option<Wrong> {
        self.fault
    }
}
