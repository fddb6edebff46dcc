//! Requests under way, each in a slot by which the device names it.

use bulkhead_store::disk::{Failed, Full, Info, Operation, Request};

/// Slots, at most.
pub const SLOTS: usize = 64;

/// A request's tag and its end.
pub type Answer = (u16, Result<(), Failed>);

/// Requests under way.
#[derive(Debug)]
pub struct Flights {
    depth: u16,
    tags: [u16; SLOTS],
    /// Slots of requests for the device, and of those that it was told of.
    fresh: u64,
    told: u64,
    /// Slots of requests that need no device, and are done or have failed.
    done: u64,
    failed: u64,
}

impl Flights {
    /// Makes as many slots as a disk has room for.
    pub const fn new(depth: u16) -> Self {
        let depth = if depth as usize > SLOTS { SLOTS as u16 } else { depth };
        Self { depth, tags: [0; SLOTS], fresh: 0, told: 0, done: 0, failed: 0 }
    }

    /// Takes a request, and returns its slot. `None`: it needs no device.
    pub fn take(&mut self, request: &Request, info: &Info) -> Result<Option<usize>, Full> {
        let free = !(self.fresh | self.told | self.done | self.failed);
        let slot = free.trailing_zeros() as usize;
        if slot >= self.depth.into() {
            return Err(Full);
        }
        self.tags[slot % SLOTS] = request.tag;
        let flush = request.operation == Operation::Flush;
        let set = match (flush, flush && !info.flush, possible(request, info)) {
            (true, false, _) | (false, _, true) => &mut self.fresh,
            // Without a cache all that was written is durable.
            (true, true, _) => &mut self.done,
            (false, _, false) => &mut self.failed,
        };
        *set |= 1 << slot;
        let device = self.fresh & 1 << slot != 0;
        Ok(device.then_some(slot))
    }

    /// The device is about to be told of all requests for it. Returns the slots of those that it does not know yet.
    pub fn tell(&mut self) -> u64 {
        self.told |= self.fresh;
        core::mem::take(&mut self.fresh)
    }

    /// Requests that the device was told of.
    pub const fn told(&self) -> u16 {
        self.told.count_ones() as u16
    }

    /// Returns a request that needed no device.
    pub fn settled(&mut self) -> Option<Answer> {
        let all = self.done | self.failed;
        if all == 0 {
            return None;
        }
        let slot = all.trailing_zeros() as usize;
        let result = if self.failed & 1 << slot != 0 { Err(Failed) } else { Ok(()) };
        self.done &= !(1 << slot);
        self.failed &= !(1 << slot);
        Some((self.tags[slot % SLOTS], result))
    }

    /// Frees a slot that the device names, and returns its request's tag. `None`: it was told of no such
    /// request.
    pub fn land(&mut self, slot: usize) -> Option<u16> {
        if slot >= SLOTS || self.told & 1 << slot == 0 {
            return None;
        }
        self.told &= !(1 << slot);
        Some(self.tags[slot])
    }
}

/// Tells if a disk can read or write these bytes, or has a request for this range.
fn possible(request: &Request, info: &Info) -> bool {
    let (len, block) = (u64::from(request.len), u64::from(info.block));
    let end = request.sector.checked_add(len / 512);
    let (most, writes) = match request.operation {
        Operation::Discard => (u64::from(info.discard) * 512, true),
        Operation::Zero { .. } => (u64::from(info.zero) * 512, true),
        operation => (u64::from(info.most), operation == Operation::Write),
    };
    len != 0
        && len <= most
        && len.is_multiple_of(block)
        && request.sector.is_multiple_of(block / 512)
        && end.is_some_and(|end| end <= info.sectors)
        && request.address.is_multiple_of(4)
        && request.address.checked_add(len).is_some()
        && !(writes && info.read_only)
}
