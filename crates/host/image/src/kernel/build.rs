//! Memory, the kernel's own objects, and methods called on the host.

use super::target::{KernelMemory, Kernels, State};
use super::{Ground, offset};
use crate::elf::Program;
use crate::guest::{Piece, Trace};
use bulkhead_kernel::abi::{Kind, Label, Rights, Status, label};
use bulkhead_kernel::host::memory;
use bulkhead_kernel::{
    Answer, Cap, Core, Kernel, Machine as _, PageTable, Ref, Root, SLOT_BITS, Slot, plant,
};
use bulkhead_layout::PAGE;
use bulkhead_plan::kernel::{self as plan, Driven};
use bulkhead_sched::{Scheduler, Time};

/// First byte that objects are made of.
const OBJECTS: u32 = 4 << 20;
/// Slots of the first node, as a power of two.
const NODE_BITS: u8 = bulkhead_plan::kernel::PLACE_BITS;

/// A system in the making.
pub struct Build<K: Kernels> {
    /// Where it is built for.
    pub ground: Ground,
    machine: KernelMemory<K>,
    core: Box<Core>,
    root: Root,
    /// Next empty slot of the first node.
    next: u32,
    /// Slots with memory to make objects of.
    memory: Vec<u32>,
    clock: u32,
    window: Option<(u64, usize)>,
    /// The table with the kernel's own pages of devices, and the addresses of those.
    device_table: u32,
    device_pages: Vec<u64>,
    /// Interrupts in use, and their objects.
    interrupts: Vec<(u32, u32)>,
    /// Interrupts of devices, and the places of their objects.
    routes: Vec<(Driven, u16, Place)>,
    /// Writes to devices at the start.
    script: Vec<(u64, u32)>,
    /// Offsets of pages that programs cannot write: first, end.
    pub fixed: Vec<(u32, u32)>,
    trace: Option<Trace>,
}

/// Where a capability lies in the first node.
pub type Place = u32;

impl<K: Kernels> Build<K> {
    /// Memory with the kernel's own things in it.
    pub fn new(
        ground: Ground,
        len: u64,
        image: &Program,
        kernel: &plan::Kernel,
    ) -> Result<Self, String> {
        let last = kernel.ring().saturating_add(kernel.for_devices());
        let end = len.checked_sub(last).filter(|end| *end >= u64::from(OBJECTS) + (1 << 20));
        let (len, end) = { u32::try_from(len).ok() }
            .zip(end.map(|end| end as u32))
            .ok_or("a kernel needs at least 5 MiB beside its trace and what devices reach, and takes at most 2 GiB")?;
        let (first, flat) = image.flat();
        let start = offset::<K>(first).ok_or("its kernel is not linked for the window")?;
        let mut next = (start + flat.len() as u32).next_multiple_of(PAGE as u32);
        let mut take = |len: u32, align: u32| {
            let at = next.next_multiple_of(align);
            next = at + len.next_multiple_of(PAGE as u32);
            at
        };
        let clock = take(PAGE as u32, PAGE as u32);
        let pages = len / PAGE as u32;
        let spaces = take(pages.div_ceil(64) * 8, PAGE as u32);
        let node = take(1 << (NODE_BITS + SLOT_BITS), 1 << (NODE_BITS + SLOT_BITS));
        let mut tables = Vec::new();
        for _ in 0..K::TABLES {
            tables.push(take(PAGE as u32, PAGE as u32));
        }
        if next > OBJECTS {
            return Err(format!("its kernel reaches {next:#x}, beyond {OBJECTS:#x}"));
        }
        let mut machine = KernelMemory::<K>::new(len, ground.base);
        let window = K::window(&mut machine, &tables, image, len)?;
        if let Some((entry, index)) = window {
            machine = machine.with_kernel_entry(entry, index);
        }
        let root = Root { first: Ref::new(node), slots: 1 << NODE_BITS };
        let own_space = ground.base + u64::from(tables[0]);
        let mut build = Self {
            ground,
            machine,
            core: Box::new(core(own_space, spaces, pages)),
            root,
            next: 2,
            memory: Vec::new(),
            clock,
            window,
            device_table: tables[K::TABLES - 1],
            device_pages: Vec::new(),
            interrupts: Vec::new(),
            routes: Vec::new(),
            script: Vec::new(),
            fixed: Vec::new(),
            trace: (kernel.trace > 0).then(|| Trace::new(len - kernel.ring() as u32, kernel.trace)),
        };
        // The first node lies in itself, so it can't be an original that ends with its slot.
        let own = Cap { flags: 0, ..Cap::original(Kind::Node, node, NODE_BITS) };
        plant(&mut build.machine, root.first.nth(1), own);
        build.plant_memory(OBJECTS, end)?;
        Ok(build)
    }

    /// Lists the pages of the kernel's and its programs' text and constants, as addresses of the sandbox.
    pub fn fixed(&self, image: &Program) -> Vec<(u64, u64)> {
        let own = image.segments.iter().filter(|s| !s.rights.write).filter_map(|s| {
            let first = offset::<K>(s.address)?;
            let end = first.checked_add(u32::try_from(s.size).ok()?)?;
            Some((first / PAGE as u32 * PAGE as u32, end.next_multiple_of(PAGE as u32)))
        });
        let all = own.chain(self.fixed.iter().copied());
        let at = |offset: u32| self.ground.start + u64::from(offset);
        all.map(|(first, end)| (at(first), at(end))).collect()
    }

    /// All memory of a range, as pieces of powers of two.
    fn plant_memory(&mut self, mut at: u32, end: u32) -> Result<(), String> {
        while at < end {
            let bits = at.trailing_zeros().min((end - at).ilog2());
            if bits < 12 {
                break;
            }
            let place = self.put(memory(at, bits as u8))?;
            self.memory.push(place);
            at += 1 << bits;
        }
        // Small pieces first: large ones stay whole.
        let mut memory = std::mem::take(&mut self.memory);
        memory.sort_by_key(|place| self.cap(*place).bits);
        self.memory = memory;
        Ok(())
    }

    /// Returns the capability in a slot.
    pub fn cap(&self, place: Place) -> Cap {
        self.machine.get(self.at(place)).cap
    }

    /// The frame with the clock, as a capability that only the host can make.
    pub fn clock(&self) -> u32 {
        self.clock
    }

    /// Where the kernel tells what it does, if it is to.
    pub fn trace(&mut self) -> Option<&mut Trace> {
        self.trace.as_mut()
    }

    /// The machine.
    pub fn machine(&mut self) -> &mut KernelMemory<K> {
        &mut self.machine
    }

    /// The slot at a place.
    pub fn at(&self, place: Place) -> Ref<Slot> {
        self.root.first.nth(place)
    }

    /// An empty slot.
    pub fn slot(&mut self) -> Result<Place, String> {
        self.slots(1)
    }

    /// Empty slots, side by side.
    fn slots(&mut self, count: u32) -> Result<Place, String> {
        let first = self.next;
        let end = first.checked_add(count).filter(|end| *end <= self.root.slots);
        self.next = end.ok_or_else(|| {
            format!(
                "it needs more than the {} objects and pages that a kernel's image has room for: less heap, shared memory or registers of devices",
                self.root.slots
            )
        })?;
        Ok(first)
    }

    /// Puts a capability that no call makes into an empty slot.
    pub fn put(&mut self, cap: Cap) -> Result<Place, String> {
        let place = self.slot()?;
        plant(&mut self.machine, self.root.first.nth(place), cap);
        Ok(place)
    }

    fn kernel(&mut self) -> Kernel<'_, KernelMemory<K>> {
        Kernel { machine: &mut self.machine, core: &mut self.core }
    }

    /// Calls a method of the capability at a place.
    pub fn try_call(
        &mut self,
        place: Place,
        method: Label,
        words: [u64; 4],
    ) -> Result<[u64; 4], Status> {
        let (root, slot) = (self.root, self.at(place));
        loop {
            let answer: Answer = self.kernel().invoke(root, slot, method, &words);
            if let Some(words) = answer? {
                return Ok(words);
            }
        }
    }

    /// Makes a call that only a lack of memory can make fail.
    pub fn call(
        &mut self,
        place: Place,
        method: Label,
        words: [u64; 4],
    ) -> Result<[u64; 4], String> {
        self.try_call(place, method, words).map_err(|status| {
            let kind = self.cap(place).kind();
            format!(
                "{kind:?}, method {method}, {words:x?}: {:?} of word {}, {}",
                status.code(),
                status.argument(),
                status.detail()
            )
        })
    }

    /// Makes objects side by side; the place of the first one's capability.
    pub fn make(&mut self, kind: Kind, bits: u8, count: u32) -> Result<Place, String> {
        let first = self.slots(count)?;
        let mut made = 0;
        while made < count {
            let some = (count - made).min(256);
            self.make_some(kind, bits, some, first + made)?;
            made += some;
        }
        Ok(first)
    }

    fn make_some(&mut self, kind: Kind, bits: u8, count: u32, first: Place) -> Result<(), String> {
        let word = kind as u64 | u64::from(bits) << 8 | u64::from(count) << 16;
        for place in self.memory.clone() {
            if self.try_call(place, label::RETYPE, [word, 1, u64::from(first), 0]).is_ok() {
                return Ok(());
            }
        }
        Err(format!("its memory does not suffice for {count} of {kind:?}: give it more"))
    }

    /// Derives a capability into another node.
    pub fn give(
        &mut self,
        node: Place,
        slot: u32,
        from: Place,
        rights: Rights,
        badge: u64,
    ) -> Result<(), String> {
        let words = [u64::from(slot), u64::from(from), u64::from(rights.0), badge];
        self.call(node, label::COPY, words).map(drop)
    }

    /// Notes the object of a device's interrupt.
    pub fn route(&mut self, device: Driven, number: u16, place: Place) {
        self.routes.push((device, number, place));
    }

    /// Returns the object of a device's interrupt, if it is there.
    pub fn routed(&self, device: Driven, number: u16) -> Option<Place> {
        let mut all = self.routes.iter();
        all.find(|(of, n, _)| (*of, *n) == (device, number)).map(|(_, _, place)| *place)
    }

    /// Lists the interrupts in use.
    pub fn taken(&self) -> Vec<u32> {
        self.interrupts.iter().map(|(number, _)| *number).collect()
    }

    /// Makes the object of an interrupt: of a level-triggered line, if it is `held`.
    pub fn interrupt(
        &mut self,
        number: u32,
        scripts: [u32; 2],
        held: bool,
    ) -> Result<Place, String> {
        if self.interrupts.iter().any(|(used, _)| *used == number) {
            return Err(format!("devices and doorbells both take interrupt {number:#x}"));
        }
        let memory = self.make(Kind::Untyped, 6, 1)?;
        let at = self.cap(memory).object;
        let cap = self.kernel().make_interrupt(at, number, scripts, held);
        self.interrupts.push((number, at));
        self.put(cap)
    }

    /// Makes the object of a link made at run time, at an offset behind the last one.
    pub fn link(
        &mut self,
        at: u32,
        names: [u32; 2],
        table: u32,
        space: Place,
    ) -> Result<Place, String> {
        let space = self.at(space);
        let cap = self.kernel().make_link(at, names, table, space);
        self.put(cap)
    }

    /// Frames side by side in memory that is left out for them.
    pub fn frames_at(&mut self, at: u64, len: u64) -> Result<Place, String> {
        let first = self.next;
        for page in 0..len / PAGE {
            self.put(Cap::original(Kind::Frame, (at / PAGE + page) as u32, 12))?;
        }
        Ok(first)
    }

    /// Has a device's register written at the start.
    pub fn at_start(&mut self, physical: u64, value: u32) -> Result<(), String> {
        let address = self.device_address(physical)?;
        self.script.push((address, value));
        Ok(())
    }

    /// Where the kernel sees a device's register.
    fn device_address(&mut self, physical: u64) -> Result<u64, String> {
        let (first, most) = K::DEVICES;
        let page = physical / PAGE * PAGE;
        let known = self.device_pages.iter().position(|known| *known == page);
        let n = known.unwrap_or(self.device_pages.len());
        if known.is_none() {
            if n == most {
                return Err(format!("more than {most} pages of devices' registers"));
            }
            self.device_pages.push(page);
            let entry = K::device_page(page);
            let table = Ref::<PageTable>::new(self.device_table);
            self.machine.get_mut(table).0[n] = entry;
        }
        Ok(first + n as u64 * PAGE + physical % PAGE)
    }

    /// Puts a script into memory; its offset.
    pub fn script(&mut self, writes: &[(u64, u32)]) -> Result<u32, String> {
        let seen = { writes.iter() }
            .map(|(at, value)| Ok((self.device_address(*at)?, *value)))
            .collect::<Result<Vec<_>, String>>()?;
        self.put_script(&seen)
    }

    /// The script that ends the service of an interrupt.
    pub fn end_of_interrupt(&mut self) -> Result<u32, String> {
        self.put_script(&[K::END_OF_INTERRUPT])
    }

    fn put_script(&mut self, writes: &[(u64, u32)]) -> Result<u32, String> {
        let bytes = K::script(writes);
        let bits = bytes.len().next_power_of_two().trailing_zeros() as u8;
        let memory = self.make(Kind::Untyped, bits, 1)?;
        let at = self.cap(memory).object as usize;
        self.machine.bytes_mut()[at..at + bytes.len()].copy_from_slice(&bytes);
        Ok(at as u32)
    }

    /// The memory's contents: what is not zero.
    pub fn finish(mut self, image: &Program) -> Result<Vec<Piece>, String> {
        let baked = offset::<K>(image.symbol("BAKED").map_err(|e| e.to_string())?);
        let baked = baked.ok_or("its kernel's BAKED is not in the window")?;
        let (first, flat) = image.flat();
        let start = offset::<K>(first).unwrap_or(0) as usize;
        self.core.timer = Time::MAX;
        let script = std::mem::take(&mut self.script);
        let script = if script.is_empty() { 0 } else { self.put_script(&script)? };
        let state = K::state(State {
            core: *self.core,
            base: self.machine.physical(0),
            clock: self.clock,
            window: self.window,
            script,
            interrupts: self.interrupts,
            alone: self.ground.alone,
            trace: self.trace.as_ref().map_or((0, 0), |trace| (trace.at, trace.records as u32)),
        })?;
        let bytes = self.machine.bytes_mut();
        bytes[start..start + flat.len()].copy_from_slice(&flat);
        let baked = baked as usize..baked as usize + state.len();
        if baked.start < start || baked.end > start + flat.len() {
            return Err(format!("its kernel's BAKED has no room for {:#x} bytes", state.len()));
        }
        bytes[baked].copy_from_slice(&state);
        Ok(pieces(self.machine.bytes(), self.ground.start))
    }
}

fn core(own_space: u64, spaces: u32, pages: u32) -> Core {
    Core {
        current: Ref::NONE,
        vectors_of: Ref::NONE,
        space: own_space,
        own_space,
        now: 0,
        timer: Time::MAX,
        spaces,
        pages,
        undecided: 1,
        cost: bulkhead_plan::kernel::OVERHEAD as u32,
        links: Ref::NONE,
        link_count: 0,
        scheduler: Scheduler::new(0),
    }
}

/// Runs of pages that are not all zero, in memory that begins at an address.
fn pieces(bytes: &[u8], start: u64) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (n, page) in bytes.chunks(PAGE as usize).enumerate() {
        if page.iter().all(|byte| *byte == 0) {
            continue;
        }
        let gpa = start + n as u64 * PAGE;
        match pieces.last_mut() {
            Some(last) if last.gpa + last.bytes.len() as u64 == gpa => last.bytes.extend(page),
            _ => pieces.push(Piece { gpa, bytes: page.to_vec() }),
        }
    }
    pieces
}
