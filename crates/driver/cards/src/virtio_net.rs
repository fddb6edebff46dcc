//! A virtio network device behind PCI (virtio 1.2, 4.1 and 5.1): a queue each way, with one interrupt for both.
//!
//! Without a control queue the device takes all addresses. A packet that is received lies in one buffer, with its
//! header in front. One that is sent has two descriptors: the headers, and the rest.

use crate::buffers::{BUFFERS, HEADER, LONGEST, MEMORY, PLACES, SIZE, buffer, fill};
use crate::{Card, Mac, Received};
use bulkhead_device::virtio::{Parts, Queue, Transport};
use bulkhead_device::{Clock, Configuration, Memory, Registers, Wrong, clear};

/// Vendor and device of a network card without legacy interface (4.1.2, 5.1.1), as configuration space has them.
pub const ID: u32 = 0x1041_1AF4;

/// Queues (5.1.2).
const RECEIVE: (u16, Parts) = (0, Parts { descriptors: 0, available: 4096, used: 8192 });
const SEND: (u16, Parts) = (1, Parts { descriptors: 12288, available: 16384, used: 20480 });

/// Features (5.1.3).
mod feature {
    pub const MAC: u64 = 1 << 5;
    pub const STATUS: u64 = 1 << 16;
    pub const KNOWN: u64 = MAC | STATUS;
}

/// The device's configuration (5.1.4).
mod config {
    pub const MAC: u64 = 0;
    pub const STATUS: u64 = 6;
    pub const BYTES: u64 = 8;
    pub const LINK_UP: u16 = 1;
}

/// Numbers of a set of up to 256.
#[derive(Clone, Copy, Debug, Default)]
struct Set([u64; BUFFERS / 64]);

impl Set {
    fn insert(&mut self, n: usize) {
        if let Some(word) = self.0.get_mut(n / 64) {
            *word |= 1 << (n % 64);
        }
    }
    /// Tells if it was there.
    fn remove(&mut self, n: usize) -> bool {
        let Some(word) = self.0.get_mut(n / 64) else { return false };
        let there = *word & 1 << (n % 64) != 0;
        *word &= !(1 << (n % 64));
        there
    }
    fn first(&self) -> Option<usize> {
        let at = self.0.iter().position(|word| *word != 0)?;
        Some(64 * at + self.0.get(at)?.trailing_zeros() as usize)
    }
}

/// A virtio network card.
#[derive(Debug)]
pub struct VirtioNet<R, M, C> {
    device: Transport<R>,
    memory: M,
    clock: C,
    vector: u16,
    mac: Mac,
    /// The device says whether there is a link.
    tells: bool,
    receive: Queue,
    send: Queue,
    /// Buffers that the device has, and places that are free.
    given: Set,
    free: Set,
    /// How many buffers it has, and how many frames.
    buffers: u16,
    frames: u16,
    /// There is news for the device, on either queue.
    refilled: bool,
    fresh: bool,
    quiet: bool,
    fault: Option<Wrong>,
}

impl<R: Registers, M: Memory, C: Clock> VirtioNet<R, M, C> {
    /// Switches the device on. `bars` has its registers by the number of a BAR, and `memory` at least
    /// [`MEMORY`] bytes. `vector` is the entry of its interrupt among its messages.
    ///
    /// # Errors
    /// It lacks something, lies, or its reset does not end.
    pub fn new(
        configuration: &impl Configuration,
        bars: impl Fn(u8) -> Option<R>,
        memory: M,
        clock: C,
        vector: u16,
    ) -> Result<Self, Wrong> {
        let device = Transport::find(configuration, bars, config::BYTES)?;
        let mut card = Self {
            device,
            memory,
            clock,
            vector,
            mac: [0; 6],
            tells: false,
            receive: Queue::none(RECEIVE.1),
            send: Queue::none(SEND.1),
            given: Set::default(),
            free: Set::default(),
            buffers: 0,
            frames: 0,
            refilled: false,
            fresh: false,
            quiet: true,
            fault: None,
        };
        card.mac = card.start()?;
        Ok(card)
    }

    /// Resets the device, and sets it up. If that fails the device is off, as far as it obeys.
    fn start(&mut self) -> Result<Mac, Wrong> {
        self.set_up().inspect_err(|_| self.device.off())
    }

    fn set_up(&mut self) -> Result<Mac, Wrong> {
        self.device.reset(&self.clock)?;
        clear(&self.memory, MEMORY)?;
        let features = self.device.negotiate(feature::KNOWN)?;
        if features & feature::MAC == 0 {
            return Err(Wrong::Lacks("address"));
        }
        self.tells = features & feature::STATUS != 0;
        let mac = self
            .device
            .described(|config| [0, 1, 2, 3, 4, 5].map(|n| config.read8(config::MAC + n)))?;
        let queue = |(number, parts), least| {
            self.device.queue(number, least, &self.memory, parts, self.vector)
        };
        (self.receive, self.send) = (queue(RECEIVE, 2)?, queue(SEND, 4)?);
        (self.given, self.free, self.buffers, self.frames) = (Set::default(), Set::default(), 0, 0);
        (0..usize::from(self.send.size() / 2).min(PLACES))
            .for_each(|place| self.free.insert(place));
        (0..self.receive.size()).for_each(|number| self.give_back(number));
        self.hush();
        self.device.begin();
        self.ring();
        Ok(mac)
    }

    fn hush(&self) {
        self.receive.quiet(&self.memory, self.quiet);
        self.send.quiet(&self.memory, self.quiet);
    }

    /// Takes the next frame. One of no or too many bytes is dropped.
    fn take(&mut self) -> Result<Option<Received>, Wrong> {
        loop {
            let Some((head, len)) = self.receive.used(&self.memory, self.buffers)? else {
                return Ok(None);
            };
            if !self.given.remove(head as usize) {
                return Err(Wrong::Lies("head in the used ring"));
            }
            self.receive.took();
            self.buffers -= 1;
            let frame = (len as usize).checked_sub(HEADER);
            match frame.filter(|len| (1..=LONGEST).contains(len)) {
                Some(len) => return Ok(Some(Received { buffer: head as u16, len })),
                None if len as usize > SIZE => return Err(Wrong::Lies("length of a packet")),
                None => self.give_back(head as u16),
            }
        }
    }

    /// Takes the place of a frame that was sent.
    fn land(&mut self) -> Result<Option<u16>, Wrong> {
        let Some((head, _)) = self.send.used(&self.memory, self.frames)? else { return Ok(None) };
        let place = head as usize / 2;
        let known = head % 2 == 0 && head < u32::from(self.send.size());
        if !known || self.free.remove(place) {
            return Err(Wrong::Lies("head in the used ring"));
        }
        self.free.insert(place);
        self.send.took();
        self.frames -= 1;
        Ok(Some(place as u16))
    }

    /// The value, or why there is none any more.
    fn heed<T>(&mut self, found: Result<Option<T>, Wrong>) -> Option<T> {
        found.unwrap_or_else(|wrong| {
            self.fault = Some(wrong);
            None
        })
    }
}

impl<R: Registers, M: Memory, C: Clock> Card for VirtioNet<R, M, C> {
    fn mac(&self) -> Mac {
        self.mac
    }

    fn link(&self) -> bool {
        !self.tells || self.device.config.read16(config::STATUS) & config::LINK_UP != 0
    }

    fn send(&mut self, head: &[u8], rest: Option<(u64, u32)>) -> Option<u16> {
        let place = self.free.first().filter(|_| self.fault.is_none())?;
        let [first, second] = fill(&self.memory, place, HEADER, head, rest)?;
        self.free.remove(place);
        self.send.describe(&self.memory, 2 * place, first, false, false);
        self.send.describe(&self.memory, 2 * place + 1, second, false, true);
        self.send.put(&self.memory, 2 * place as u16);
        self.frames += 1;
        self.fresh = true;
        Some(place as u16)
    }

    fn sent(&mut self) -> Option<u16> {
        if self.fault.is_some() || self.frames == 0 {
            return None;
        }
        let landed = self.land();
        self.heed(landed)
    }

    fn receive(&mut self) -> Option<Received> {
        if self.fault.is_some() {
            return None;
        }
        let taken = self.take();
        self.heed(taken)
    }

    fn read(&self, number: u16, at: usize) -> u64 {
        if at < SIZE { self.memory.get(buffer(number) + at) } else { 0 }
    }

    fn give_back(&mut self, number: u16) {
        let n = usize::from(number);
        if number >= self.receive.size() || self.given.remove(n) {
            // One that the device has stays there.
            self.given.insert(n);
            return;
        }
        self.given.insert(n);
        let part = (self.memory.address() + buffer(number) as u64, SIZE as u32);
        self.receive.describe(&self.memory, n, part, true, true);
        self.receive.put(&self.memory, number);
        self.buffers += 1;
        self.refilled = true;
    }

    fn ring(&mut self) {
        if self.fault.is_some() {
            return;
        }
        if core::mem::take(&mut self.refilled) {
            self.receive.publish(&self.memory);
            self.device.notify(&self.receive);
        }
        if core::mem::take(&mut self.fresh) {
            self.send.publish(&self.memory);
            self.device.notify(&self.send);
        }
    }

    fn interrupts(&mut self, wanted: bool) {
        self.quiet = !wanted;
        self.hush();
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
        self.fault.inspect(|_| self.device.off()).map_or(Ok(()), Err)
    }

    fn check(&mut self) {
        self.fault = self.fault.or(self.device.failed());
    }

    fn fault(&self) -> Option<Wrong> {
        self.fault
    }
}
