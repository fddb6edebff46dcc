//! Objects out of memory.

use crate::lookup::Root;
use crate::objects::{refills, size};
use crate::{Cap, Context, Interrupt, Kernel, Layout, Machine, Ref, Slot, space, tree};
use bulkhead_kernel_abi::{Code, Kind, Status};

/// Most objects that one call makes.
pub const MOST: u64 = 256;
/// Bytes that one entry into the kernel zeroes at most.
const CLEAR: u32 = 16 << 10;

/// Memory of which objects are made, as its capability has it.
#[derive(Clone, Copy, Debug)]
struct Memory {
    /// Bytes in use, from the beginning.
    used: u32,
    /// Bytes zeroed behind them.
    cleared: u32,
}

impl Memory {
    fn of(cap: &Cap) -> Self {
        Self { used: cap.data as u32, cleared: (cap.data >> 32) as u32 }
    }

    fn pack(self) -> u64 {
        u64::from(self.used) | u64::from(self.cleared) << 32
    }
}

impl<M: Machine> Kernel<'_, M> {
    /// Makes objects ([`bulkhead_kernel_abi::label::RETYPE`]).
    #[inline(never)]
    pub(crate) fn retype(
        &mut self,
        root: Root,
        slot: Ref<Slot>,
        words: &[u64; 4],
    ) -> crate::invoke::Outcome {
        let Slot { cap, depth, .. } = *self.machine.get(slot);
        let kind = Kind::new(words[0] as u8).ok_or(Status::new(Code::OutOfRange, 1, 0))?;
        let bits = (words[0] >> 8) as u8;
        let count = words[0] >> 16;
        let log = match kind {
            Kind::Null => Err([0, 0]),
            _ => size(kind, bits),
        };
        let log = log.map_err(|[_, most]| Status::new(Code::OutOfRange, 1, u64::from(most)))?;
        if count == 0 || count > MOST {
            return Err(Status::new(Code::OutOfRange, 1, MOST));
        }
        // All checks come before the first change: an error leaves everything as it was.
        tree::derivable(self.machine, slot, 0)?;
        let node = root.find(self.machine, words[1], Kind::Node, 2)?;
        let node = self.machine.get(node).cap;
        let places = Root::node(&node).ok_or(Status::new(Code::BadState, 2, 0))?;
        let object = Cap { bits, ..Cap::original(kind, 0, log) };
        if !tree::may_lie(&object, depth + 1, node.data) {
            return Err(Status::new(Code::Upwards, 2, node.data));
        }
        let end = words[2].checked_add(count).filter(|end| *end <= u64::from(places.slots));
        // Slot 0 stays empty, so that address 0 names nothing.
        if words[2] == 0 || end.is_none() {
            return Err(Status::new(Code::OutOfRange, 3, u64::from(places.slots) - 1));
        }
        let first = words[2] as u32;
        for n in first..first + count as u32 {
            if !self.machine.get(places.first.nth(n)).cap.is(Kind::Null) {
                return Err(Status::new(Code::Occupied, 3, u64::from(n)));
            }
        }
        let fresh = !tree::has_children(self.machine, slot);
        let mut memory = Memory::of(&cap);
        if fresh && memory.used != 0 {
            // No object made of it is left: all of it can be used again.
            memory = Memory { used: 0, cleared: 0 };
        }
        // Objects are aligned to their size: tables and frames have to be, and the others need no second rule.
        let start = (cap.object + memory.used).next_multiple_of(1 << log) - cap.object;
        let needed = u64::from(start) + (count << log);
        let total = 1u64 << cap.bits;
        if needed > total {
            return Err(Status::new(Code::NoMemory, 1, total - u64::from(memory.used)));
        }
        // Before the zeroing, which goes on from here when the call is made again.
        self.machine.get_mut(slot).cap.data = memory.pack();
        // An object made of this memory zeroes it then.
        if kind != Kind::Untyped && !self.zeroed(slot, needed as u32) {
            return Err(crate::invoke::AGAIN);
        }
        for n in 0..count as u32 {
            let at = cap.object + start + (n << log);
            let cap = self.make(kind, at, bits, log, depth + 1);
            tree::insert(self.machine, slot, places.first.nth(first + n), cap);
        }
        // Zeroed bytes behind the new objects are kept for the next call.
        let left = Memory::of(&self.machine.get(slot).cap).cleared;
        let used = needed as u32;
        let cleared = (memory.used + left).saturating_sub(used);
        self.machine.get_mut(slot).cap.data = Memory { used, cleared }.pack();
        Ok(u64::from(cap.object + start))
    }

    /// Zeroes memory up to an offset, a part in each entry. Returns true if all is done.
    fn zeroed(&mut self, slot: Ref<Slot>, end: u32) -> bool {
        let cap = self.machine.get(slot).cap;
        let memory = Memory::of(&cap);
        let from = memory.used + memory.cleared;
        if from >= end {
            return true;
        }
        let len = (end - from).min(CLEAR);
        self.machine.clear(cap.object + from, len);
        let cleared = memory.cleared + len;
        self.machine.get_mut(slot).cap.data = Memory { cleared, ..memory }.pack();
        from + len >= end
    }

    /// Makes an object in zeroed memory.
    fn make(&mut self, kind: Kind, at: u32, bits: u8, log: u8, depth: u16) -> Cap {
        if kind != Kind::Untyped {
            self.machine.note(at, 1 << log, Some(kind));
        }
        let mut cap = Cap::original(kind, at, log);
        match kind {
            Kind::Node => (cap.bits, cap.data) = (bits, u64::from(depth)),
            Kind::Frame => cap.object = at >> 12,
            Kind::Space => space::begin(self, at),
            Kind::Table => space::begin_table(self, at),
            // The initial state of vector registers has one word that is not 0.
            Kind::Thread => {
                let (word, value) = <M::Layout as Layout>::START_VECTORS;
                self.machine.get_mut(crate::vectors(cap.at())).0[word] = value;
            }
            Kind::Context => {
                let context = self.machine.get_mut(cap.at::<Context>());
                context.refills = refills(log);
            }
            _ => (),
        }
        cap
    }

    /// Makes an interrupt's object, which no call can: the manifest says which program may have which. `mask` and
    /// `unmask` are scripts ([`Machine::play`]), or 0; one that is `held` is masked as soon as it has come.
    pub fn make_interrupt(
        &mut self,
        at: u32,
        number: u32,
        [mask, unmask]: [u32; 2],
        held: bool,
    ) -> Cap {
        self.machine.clear(at, size_of::<Interrupt>() as u32);
        self.machine.note(at, size_of::<Interrupt>() as u32, Some(Kind::Interrupt));
        let interrupt = self.machine.get_mut(Ref::<Interrupt>::new(at));
        (interrupt.number, interrupt.mask, interrupt.unmask) = (number, mask, unmask);
        interrupt.rests = if held { Interrupt::CAME } else { 0 };
        interrupt.state = interrupt.rests;
        Cap::original(Kind::Interrupt, at, 6)
    }
}
