//! A record of its own of each capability, its slot and its parent. Each accepted call changes it by the book
//! (`docs/kernel-calls.md`). The kernel's memory is compared with it after every call. So authority can't appear from
//! nowhere, and a revocation has to reach all derived capabilities and no others.

use crate::World;
use crate::lines::Lines;
use crate::tree::must;
use bulkhead_kernel::abi::{Buffer, Info, Kind, Op, Rights, label};
use bulkhead_kernel::{Cap, Interrupt, Machine as _, Place, Ref, SLOT_BITS, Slot, Thread, size};
use std::collections::{BTreeMap, BTreeSet, HashMap};

type Checked<T = ()> = Result<T, String>;

/// A capability, as it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Given {
    /// The slot of its parent; `None`: it was there from the start.
    from: Option<u32>,
    kind: Kind,
    rights: u8,
    object: u32,
    bits: u8,
    /// Badge of an endpoint or notification.
    badge: u64,
    original: bool,
}

impl Given {
    fn of(cap: &Cap, from: Option<u32>) -> Self {
        let badged = matches!(cap.kind(), Kind::Endpoint | Kind::Notification);
        Self {
            from,
            kind: cap.kind(),
            rights: cap.rights,
            object: cap.object,
            bits: cap.bits,
            badge: if badged { cap.data } else { 0 },
            original: cap.is_original(),
        }
    }

    /// The capability derived from it, which lies in `slot`.
    fn derive(self, slot: u32, rights: u8, badge: u64) -> Self {
        let badge = if badge == 0 { self.badge } else { badge };
        Self { from: Some(slot), rights: self.rights & rights, badge, original: false, ..self }
    }

    /// One of a node's slots that can be named.
    fn slot(&self, index: u64) -> Option<u32> {
        let named = self.kind == Kind::Node && index != 0 && index < 1 << self.bits;
        named.then(|| self.object + ((index as u32) << SLOT_BITS))
    }

    /// First byte of its object and one past the last, if it is memory.
    fn extent(&self) -> Option<(u64, u64)> {
        let at = u64::from(self.object);
        let (at, bits) = match self.kind {
            Kind::Null | Kind::Control | Kind::Ports | Kind::Sandbox => return None,
            Kind::Frame => (at << 12, self.bits),
            Kind::Node => (at, self.bits + SLOT_BITS),
            _ => (at, self.bits),
        };
        Some((at, at + (1 << bits)))
    }

    /// True if slots lie in its object, which end with it.
    fn has_slots(&self) -> bool {
        self.original
            && matches!(self.kind, Kind::Node | Kind::Thread | Kind::Interrupt | Kind::Link)
    }
}

/// A call, and how it ended.
#[derive(Clone, Copy, Debug)]
pub struct Called {
    /// Thread that made it.
    pub by: Ref<Thread>,
    /// Its registers: operation, names, the message's description, words.
    pub registers: (u64, u64, u64, [u64; 4]),
    /// True if it was done; `None` if it is to be made once more, or its thread is gone.
    pub done: Option<bool>,
    /// The answer's first word.
    pub answer: u64,
}

/// The record.
#[derive(Clone, Debug, Default)]
pub struct Ghost {
    given: BTreeMap<u32, Given>,
    /// Threads that may send capabilities along with their present message.
    grants: HashMap<u32, bool>,
    /// Which interrupts are kept back.
    pub lines: Lines,
    /// How many capabilities came and went, by how.
    pub seen: BTreeMap<&'static str, u64>,
}

impl Ghost {
    /// Records a system as it is.
    ///
    /// # Errors
    /// A list of capabilities that is broken.
    pub fn of(world: &World) -> Checked<Self> {
        let mut ghost = Self::default();
        for n in 1..world.root().slots {
            let slot = world.slot(n);
            let Slot { cap, previous, .. } = *world.machine.get(slot);
            if !cap.is(Kind::Null) && previous.is_none() {
                ghost.given.insert(slot.at(), Given::of(&cap, None));
            }
        }
        let roots: Vec<u32> = ghost.given.keys().copied().collect();
        for (slot, given) in ghost.unknown(world, roots)?.0 {
            ghost.given.insert(slot, given);
        }
        for (at, _) in world.machine.objects().filter(|(_, kind)| *kind == Kind::Interrupt) {
            ghost.lines.add(at, world.machine.get(Ref::<Interrupt>::new(at)));
        }
        Ok(ghost)
    }

    /// Records a call: its effect, and that the kernel did nothing else.
    ///
    /// # Errors
    /// The capability that is not as it was given.
    pub fn call(&mut self, world: &World, called: &Called) -> Checked {
        let (op, named, _, _) = called.registers;
        let Some(op) = Op::new(op as u8) else { return self.compare(world) };
        let first = self.resolve(called.by, named & 0xFFFF_FFFF);
        let cap = first.and_then(|slot| self.given.get(&slot)).copied();
        match (first, cap) {
            (Some(slot), Some(cap)) if op == Op::Call && cap.kind != Kind::Endpoint => {
                self.method(world, called, slot, cap)
            }
            _ => self.message(world, called, op, cap),
        }
    }

    /// An event came that may change no thread's capabilities.
    ///
    /// # Errors
    /// The capability that is not as it was given.
    pub fn compare(&self, world: &World) -> Checked {
        let (unknown, missing) = self.differences(world)?;
        let first = unknown.first();
        must!(first.is_none(), "{first:x?} was not given, or should have gone");
        must!(missing == 0, "{missing} capabilities are gone: {:x?}", self.gone(world)?);
        self.lines.compare(world)
    }

    fn method(&mut self, world: &World, called: &Called, slot: u32, cap: Given) -> Checked {
        let (_, _, info, words) = called.registers;
        let method = Info(info).label();
        let deletes = cap.kind == Kind::Node && matches!(method, label::DELETE | label::REVOKE);
        match called.done {
            None if deletes => return self.partly(world, cap, method, words[0]),
            Some(true) => (),
            _ => return self.compare(world),
        }
        let named = |word: u64| self.resolve(called.by, word).and_then(|slot| self.named(slot));
        match (cap.kind, method) {
            (Kind::Untyped, label::RETYPE) => {
                let (_, node) = named(words[1]).ok_or("made into nothing")?;
                self.made(slot, node, words, called.answer)?;
            }
            (Kind::Node, label::COPY) => {
                let (from, of) = named(words[1]).ok_or("copied from nothing")?;
                let sole = matches!(of.kind, Kind::Untyped | Kind::Table);
                let badged = matches!(of.kind, Kind::Endpoint | Kind::Notification);
                must!(!sole, "a second {of:x?}");
                must!(words[3] == 0 || badged && of.badge == 0, "a badge for {of:x?}");
                let to = cap.slot(words[0]).ok_or("copied to nowhere")?;
                self.put("copied", to, of.derive(from, words[2] as u8, words[3]))?;
            }
            (Kind::Node, label::MOVE) => {
                let (from, of) = named(words[1]).ok_or("moved from nothing")?;
                let to = cap.slot(words[0]).ok_or("moved to nowhere")?;
                self.put("moved", to, of)?;
                self.given.remove(&from);
                let children = self.given.values_mut().filter(|given| given.from == Some(from));
                children.for_each(|given| given.from = Some(to));
            }
            (Kind::Node, label::DELETE | label::REVOKE) => {
                let going = self.going(cap.slot(words[0]), method == label::DELETE);
                let how = if method == label::DELETE { "deleted" } else { "revoked" };
                *self.seen.entry(how).or_default() += going.len() as u64;
                self.given.retain(|slot, _| !going.contains(slot));
            }
            (Kind::Thread, label::CONFIGURE) => {
                let kept = [words[0], words[1], words[2]].map(named);
                for (place, from) in
                    [Place::Root, Place::Space, Place::Buffer].into_iter().zip(kept)
                {
                    self.keep(place_in(cap.object, place), from);
                }
            }
            (Kind::Thread, label::SET_FAULT) => {
                let from = named(words[0]);
                self.keep(place_in(cap.object, Place::Fault), from);
            }
            (Kind::Thread, label::SET_TIMEOUT) => {
                let from = named(words[0]);
                self.keep(place_in(cap.object, Place::Timeout), from);
            }
            (Kind::Interrupt, label::SET_NOTIFICATION) => {
                let from = named(words[0]);
                self.keep(cap.object, from);
            }
            (Kind::Interrupt, label::ACKNOWLEDGE) => self.lines.acknowledged(cap.object),
            _ => (),
        }
        self.compare(world)
    }

    /// Objects were made of the memory of a slot.
    fn made(&mut self, slot: u32, node: Given, words: [u64; 4], answer: u64) -> Checked {
        let (kind, bits) = (words[0] as u8, (words[0] >> 8) as u8);
        let kind = Kind::new(kind).ok_or("made of no kind")?;
        let log = size(kind, bits).map_err(|_| "made of no size")?;
        let memory = self.given[&slot];
        let (begin, end) = memory.extent().ok_or("made of no memory")?;
        let family = self.given.values().filter(|given| given.from == Some(slot));
        let mut taken: Vec<_> = family.filter_map(Given::extent).collect();
        for n in 0..words[0] >> 16 {
            let at = answer + (n << log);
            let apart = taken.iter().all(|(from, to)| at + (1 << log) <= *from || at >= *to);
            must!(at >= begin && at + (1 << log) <= end, "{at:#x} is not of {memory:x?}");
            must!(apart, "at {at:#x} lies something already");
            taken.push((at, at + (1 << log)));
            let object = if kind == Kind::Frame { at >> 12 } else { at } as u32;
            let bits = if kind == Kind::Node { bits } else { log };
            let made = Given {
                from: Some(slot),
                kind,
                rights: Rights::ALL.0,
                object,
                bits,
                badge: 0,
                original: true,
            };
            self.put("made", node.slot(words[2] + n).ok_or("made nowhere")?, made)?;
        }
        Ok(())
    }

    fn put(&mut self, how: &'static str, slot: u32, given: Given) -> Checked {
        *self.seen.entry(how).or_default() += 1;
        let before = self.given.insert(slot, given);
        must!(before.is_none(), "{given:x?} went over {before:x?}");
        Ok(())
    }

    /// An object keeps a capability instead of the former one.
    fn keep(&mut self, place: u32, from: Option<(u32, Given)>) {
        match from {
            Some((slot, of)) => self.given.insert(place, of.derive(slot, Rights::ALL.0, 0)),
            None => self.given.remove(&place),
        };
    }

    /// Lists the slots that go with a slot: derived ones, and those in objects that end.
    fn going(&self, slot: Option<u32>, itself: bool) -> BTreeSet<u32> {
        let mut going = BTreeSet::new();
        let children = |at: u32| {
            self.given
                .iter()
                .filter(move |(_, given)| given.from == Some(at))
                .map(|(slot, _)| *slot)
        };
        let slot = slot.filter(|slot| self.given.contains_key(slot));
        let mut next: Vec<u32> = match itself {
            true => slot.into_iter().collect(),
            false => slot.into_iter().flat_map(children).collect(),
        };
        while let Some(at) = next.pop() {
            if going.insert(at) {
                next.extend(children(at));
                let ends = self.given.get(&at).filter(|given| given.has_slots());
                if let Some((begin, end)) = ends.and_then(Given::extent) {
                    next.extend(self.given.range(begin as u32..end as u32).map(|(slot, _)| *slot));
                }
            }
        }
        going
    }

    /// A deletion is not over, or its thread went with it: nothing is gone beyond that which has to go.
    fn partly(&mut self, world: &World, node: Given, method: u64, index: u64) -> Checked {
        let going = self.going(node.slot(index), method == label::DELETE);
        let gone = self.gone(world)?;
        let wrong = gone.iter().find(|slot| !going.contains(slot));
        must!(wrong.is_none(), "{wrong:x?} is gone, which was not to be deleted");
        *self.seen.entry("deleted in part").or_default() += gone.len() as u64;
        self.given.retain(|slot, _| !gone.contains(slot));
        self.compare(world)
    }

    /// A message, with which a capability may have come along; two if it was an answer, too.
    fn message(&mut self, world: &World, called: &Called, op: Op, cap: Option<Given>) -> Checked {
        let (_, named, ..) = called.registers;
        let may = |cap: Option<Given>| cap.is_some_and(|cap| Rights(cap.rights).has(Rights::GRANT));
        let grants = match op {
            Op::Reply | Op::ReplyRecv => true,
            Op::NbSendRecv | Op::NbSendWait => may(self
                .resolve(called.by, named >> 32)
                .and_then(|slot| self.given.get(&slot))
                .copied()),
            _ => may(cap),
        };
        self.grants.insert(called.by.at(), grants);
        let (unknown, missing) = self.differences(world)?;
        must!(missing == 0, "a message took {:x?} away", self.gone(world)?);
        let most =
            if matches!(op, Op::ReplyRecv | Op::NbSendRecv | Op::NbSendWait) { 2 } else { 1 };
        must!(unknown.len() <= most, "{unknown:x?} came with one message");
        for (slot, new) in unknown {
            let came = self.came_along(world, called.by, slot, new)?;
            must!(came, "nobody sent {new:x?} to {slot:#x}");
            self.put("sent", slot, new)?;
        }
        Ok(())
    }

    /// Tells if a capability came from the slot in its sender's buffer to the slot in its receiver's.
    fn came_along(&self, world: &World, by: Ref<Thread>, slot: u32, new: Given) -> Checked<bool> {
        let m = &world.machine;
        let from = new.from.ok_or(format!("{new:x?} comes from nowhere"))?;
        let of = self.given[&from];
        let sole = matches!(of.kind, Kind::Untyped | Kind::Table);
        must!(new == of.derive(from, Rights::ALL.0, 0) && !sole, "{new:x?} came of {of:x?}");
        let threads = self.given.values().filter(|g| g.original && g.kind == Kind::Thread);
        let buffers: Vec<(Ref<Thread>, &Buffer)> = threads
            .map(|thread| Ref::<Thread>::new(thread.object))
            .filter_map(|at| Some((at, m.get(m.get(at).buffer.some()?))))
            .collect();
        let sent = |(at, buffer): &&(Ref<Thread>, &Buffer)| {
            let granted = self.grants.get(&at.at()).is_some_and(|grants| *grants);
            granted && self.resolve(*at, buffer.cap & 0xFFFF_FFFF) == Some(from)
        };
        let got = |(at, buffer): &&(Ref<Thread>, &Buffer)| {
            let told = world.came(crate::Thread { cap: 0, at: *at, context: 0 });
            told.info.has_cap() && self.resolve(*at, buffer.receive & 0xFFFF_FFFF) == Some(slot)
        };
        let mut senders = buffers.iter().filter(sent).map(|(at, _)| *at);
        let receivers: Vec<_> = buffers.iter().filter(got).map(|(at, _)| *at).collect();
        Ok(senders.any(|from| receivers.iter().any(|to| from != *to && (from == by || *to == by))))
    }

    /// The slot that a thread names, by its grants.
    fn resolve(&self, thread: Ref<Thread>, address: u64) -> Option<u32> {
        let root = self.given.get(&place_in(thread.at(), Place::Root))?;
        match address >> 16 {
            0 => root.slot(address),
            node => self.given.get(&root.slot(node)?)?.slot(address & 0xFFFF),
        }
    }

    fn named(&self, slot: u32) -> Option<(u32, Given)> {
        self.given.get(&slot).map(|given| (slot, *given))
    }

    /// Lists the kernel's capabilities that were not given, and counts the given ones that the kernel lacks.
    fn differences(&self, world: &World) -> Checked<(Vec<(u32, Given)>, usize)> {
        let roots = self.given.iter().filter(|(_, given)| given.from.is_none());
        // Those from the start stay in their lists' beginnings, unless they went.
        let there = |slot: &u32| !world.machine.get(Ref::<Slot>::new(*slot)).cap.is(Kind::Null);
        let roots: Vec<u32> = roots.map(|(slot, _)| *slot).filter(there).collect();
        let (unknown, known) = self.unknown(world, roots)?;
        Ok((unknown, self.given.len() - known))
    }

    /// Lists the capabilities in the lists of some slots that were not given, and counts those that were.
    fn unknown(&self, world: &World, roots: Vec<u32>) -> Checked<(Vec<(u32, Given)>, usize)> {
        let m = &world.machine;
        let (mut unknown, mut known, mut path) = (Vec::new(), 0, Vec::new());
        for root in roots {
            let mut next = Some(Ref::<Slot>::new(root));
            path.clear();
            while let Some(slot) = next {
                let Slot { cap, depth, next: after, .. } = *m.get(slot);
                path.truncate(depth.into());
                let real = Given::of(&cap, path.last().copied());
                path.push(slot.at());
                must!(path.len() == usize::from(depth) + 1, "{slot:?} has depth {depth}");
                match self.given.get(&slot.at()) {
                    Some(given) if *given == real => known += 1,
                    Some(given) => return Err(format!("{slot:?}: {real:x?}, given {given:x?}")),
                    None => unknown.push((slot.at(), real)),
                }
                must!(known + unknown.len() < 1 << 16, "the list of {root:#x} has no end");
                self.lives(world, &real)?;
                next = after.some();
            }
        }
        Ok((unknown, known))
    }

    /// Checks that an object that can be named is there.
    fn lives(&self, world: &World, given: &Given) -> Checked {
        if given.kind == Kind::Untyped {
            return Ok(());
        }
        let Some((at, _)) = given.extent() else { return Ok(()) };
        must!(world.machine.begins(at as u32, given.kind), "{given:x?} outlived its object");
        Ok(())
    }

    /// Lists the given capabilities that are not there.
    fn gone(&self, world: &World) -> Checked<BTreeSet<u32>> {
        let m = &world.machine;
        // Where a node was, nothing may be looked at any more.
        let is_slot = |slot: u32| {
            let kind = m.kind_at(slot);
            matches!(kind, Some(Kind::Node | Kind::Thread | Kind::Interrupt | Kind::Link))
        };
        let there = |slot: u32| is_slot(slot) && !m.get(Ref::<Slot>::new(slot)).cap.is(Kind::Null);
        Ok(self.given.keys().copied().filter(|slot| !there(*slot)).collect())
    }
}

/// Where a thread keeps something.
fn place_in(thread: u32, place: Place) -> u32 {
    let first = thread + core::mem::offset_of!(Thread, slots) as u32;
    first + ((place as u32 - 1) << SLOT_BITS)
}
