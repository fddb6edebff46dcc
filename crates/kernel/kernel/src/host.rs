//! A machine of bytes, on which the host runs the kernel's code: to bake a system's first objects into an image, and to
//! test. A machine that checks keeps a map of the objects in memory. It panics when the kernel touches a place without
//! an object, or an object of another type. So a use after the end of an object, or a confusion of two types, fails
//! whatever test it happens in.

use crate::machine::{Layout, Machine, Object, REGISTERS, Ref, Time, Vectors};
use crate::{Cap, PageTable};
use bulkhead_arch::{Entry, Stage1};
use bulkhead_kernel_abi::{Code, Kind, Label, Status, label};
use bulkhead_layout::hypercall::{ACCEPT, BAD_ARGUMENT, BUSY, CLOSE, LOOK, OFFER, OK, RESTART};
use bulkhead_layout::link::{self, MAX_LINKS};
use bulkhead_trace::{Event, Record, Writer};
use core::cell::Cell;
use core::marker::PhantomData;
use std::string::String;
use std::vec::Vec;
use zerocopy::{FromBytes, IntoBytes};

/// A page of memory, bytes.
pub const PAGE: u32 = 4096;
/// Unit of the map: no object is smaller.
const GRANULE: u32 = 32;
/// The map: an object begins here.
const START: u8 = 1 << 7;
/// The map: the kernel's own words.
const WORDS: u8 = 0x7F;

/// Memory as bytes, and a record of the kernel's use of the rest of its machine.
#[derive(Clone)]
pub struct Host<L: Layout, P> {
    pages: Vec<PageTable>,
    base: u64,
    kernel_entry: Option<(u64, usize)>,
    map: Option<Vec<u8>>,
    accesses: Cell<u64>,
    /// The time, ns. Not 0.
    pub time: Time,
    /// The time that the timer is set for.
    pub timer: Time,
    /// How often it was set.
    pub timers: u64,
    /// The root table in use.
    pub space: u64,
    /// How often one was entered.
    pub entered: u64,
    /// The addresses that were to be forgotten since a root was entered last.
    pub forgotten: Vec<u64>,
    /// The vector registers in use.
    pub vectors: Option<Ref<Vectors>>,
    /// The thread pointer in use.
    pub pointer: u64,
    /// The running thread's leftovers in registers that no thread keeps.
    pub left: u32,
    /// The scripts that were played.
    pub played: Vec<u32>,
    /// Output of the console.
    pub console: String,
    /// True if the sandbox said that it had started; and the code with which it ended.
    pub life: (bool, Option<u32>),
    /// Accesses to registers of devices that only instructions reach.
    pub reached: Vec<L::Access>,
    /// How often an object was looked at.
    pub looks: Cell<u64>,
    /// Requests to its monitor.
    pub asked: Vec<[u64; 3]>,
    /// The links that the sandbox has, as a set.
    pub has: u32,
    /// True if the monitor answers that another core is at it.
    pub busy: bool,
    /// How long it takes for that, ns.
    pub answers_after: Time,
    /// Events that the kernel told, with their times, if the machine wants them.
    pub told: Option<(Writer, Vec<Record>)>,
    layout: PhantomData<(L, P)>,
}

impl<L: Layout, P: Stage1> Host<L, P> {
    /// `len` bytes, rounded up to whole pages, that are zero and lie at the physical address `base`.
    #[must_use]
    pub fn new(len: u32, base: u64) -> Self {
        Self {
            pages: std::vec![PageTable([0; 512]); len.div_ceil(PAGE) as usize],
            base,
            kernel_entry: None,
            map: None,
            accesses: Cell::new(0),
            time: 1,
            timer: Time::MAX,
            timers: 0,
            space: 0,
            entered: 0,
            forgotten: Vec::new(),
            vectors: None,
            pointer: 0,
            left: 0,
            played: Vec::new(),
            console: String::new(),
            life: (false, None),
            reached: Vec::new(),
            looks: Cell::new(0),
            asked: Vec::new(),
            has: 0,
            busy: false,
            answers_after: 0,
            told: None,
            layout: PhantomData,
        }
    }

    /// Returns a machine with so much memory, which checks.
    #[must_use]
    pub fn checked(len: u32, base: u64) -> Self {
        let granules = len.next_multiple_of(PAGE) / GRANULE;
        Self { map: Some(std::vec![0; granules as usize]), ..Self::new(len, base) }
    }

    /// With an entry for the kernel at an index of every root table.
    #[must_use]
    pub fn with_kernel_entry(mut self, entry: u64, index: usize) -> Self {
        self.kernel_entry = Some((entry, index));
        self
    }

    /// With a root table for the kernel alone: no space has an entry for it.
    #[must_use]
    pub fn with_own_root(mut self) -> Self {
        self.kernel_entry = None;
        self
    }

    /// Returns all of memory.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.pages.as_bytes()
    }

    /// Returns all of memory, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.pages.as_mut_bytes()
    }

    /// Lets the kernel have words at an offset that are no object.
    pub fn reserve_words(&mut self, at: u32, len: u32) {
        self.mark(at, len, WORDS);
    }

    /// Returns how often the kernel looked at memory or changed it.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.accesses.get()
    }

    /// Returns the kind of the object at an offset, if the machine checks.
    #[must_use]
    pub fn kind_at(&self, at: u32) -> Option<Kind> {
        let here = *self.map.as_ref()?.get((at / GRANULE) as usize)?;
        Kind::new(here & !START).filter(|kind| *kind != Kind::Null)
    }

    /// Tells if an object of a kind begins at an offset, if the machine checks.
    #[must_use]
    pub fn begins(&self, at: u32, kind: Kind) -> bool {
        let here = self.map.as_ref().and_then(|map| map.get((at / GRANULE) as usize));
        here.is_some_and(|here| *here == kind as u8 | START) && at % GRANULE == 0
    }

    /// Returns all objects in memory, by offset, if the machine checks.
    pub fn objects(&self) -> impl Iterator<Item = (u32, Kind)> + '_ {
        let map = self.map.as_deref().unwrap_or_default().iter().enumerate();
        map.filter(|(_, here)| **here & START != 0)
            .filter_map(|(n, here)| Some((n as u32 * GRANULE, Kind::new(*here & !START)?)))
    }

    fn mark(&mut self, at: u32, len: u32, kind: u8) {
        let Some(map) = &mut self.map else { return };
        let (first, end) = ((at / GRANULE) as usize, ((at + len) / GRANULE) as usize);
        map[first..end].fill(kind);
        if kind != 0 {
            map[first] |= START;
        }
    }

    /// That nothing lies there but memory of which things are made.
    fn check_free(&self, at: u32, len: u32) {
        let Some(map) = &self.map else { return };
        let range = (at / GRANULE) as usize..((at + len) / GRANULE) as usize;
        let taken = |here: &u8| *here & !START > Kind::Untyped as u8;
        if let Some(n) = map[range.clone()].iter().position(taken) {
            let lies = (range.start + n) as u32 * GRANULE;
            panic!("{len} bytes at {at:#x} are taken: {:?} at {lies:#x}", self.kind_at(lies));
        }
    }

    #[inline]
    fn check<T: Object>(&self, at: u32) {
        self.accesses.set(self.accesses.get() + 1);
        let Some(map) = &self.map else { return };
        let name = core::any::type_name::<T>();
        let len = size_of::<T>() as u32;
        assert!(at != 0 && at % align_of::<T>() as u32 == 0, "{name} at {at:#x}");
        let (first, last) =
            (map[(at / GRANULE) as usize], map[((at + len - 1) / GRANULE) as usize]);
        let fits = |here: u8| match here & !START {
            WORDS => T::IN == 0,
            kind => T::IN & 1 << kind != 0,
        };
        let whole = !T::WHOLE || first & START != 0 && (len <= GRANULE || last & START == 0);
        let lies = self.kind_at(at);
        assert!(fits(first) && fits(last) && whole, "{name} at {at:#x}, where {lies:?} lies");
    }

    /// Returns the frames, tables and addresses that a root table maps, by an entry's own words: address,
    /// level and entry. Whatever is in the tables is followed.
    #[must_use]
    pub fn walk(&self, root: u32) -> Vec<(u64, u32, Entry)> {
        let mut found = Vec::new();
        self.walk_table(root, P::LEVELS - 1, 0, &mut found);
        found
    }

    fn walk_table(&self, at: u32, level: u32, address: u64, found: &mut Vec<(u64, u32, Entry)>) {
        let table = &self.pages[(at / PAGE) as usize];
        for (n, entry) in table.0.iter().enumerate() {
            let kernels = self.kernel_entry.is_some_and(|(_, index)| n == index);
            if level == P::LEVELS - 1 && kernels || *entry == P::empty() {
                continue;
            }
            let address = address | (n as u64) << (12 + 9 * level);
            let entry = P::decode(*entry, level);
            found.push((address, level, entry));
            if let Entry::Table(next) = entry {
                self.walk_table((next - self.base) as u32, level - 1, address, found);
            }
        }
    }
}

const INSIDE: &str = "an object inside of memory, at a multiple of its alignment";

impl<L: Layout, P: Stage1> Machine for Host<L, P> {
    type Layout = L;
    type Pages = P;

    fn is_traced(&self) -> bool {
        self.told.is_some()
    }

    fn trace(&mut self, event: Event) {
        if let Some((writer, records)) = &mut self.told
            && writer.is_news(&event)
        {
            records.push(Record { ticks: self.time, event });
        }
    }

    #[inline]
    fn get<T: Object>(&self, at: Ref<T>) -> &T {
        self.looks.set(self.looks.get() + 1);
        self.check::<T>(at.at());
        T::ref_from_prefix(&self.pages.as_bytes()[at.at() as usize..]).expect(INSIDE).0
    }

    #[inline]
    fn get_mut<T: Object>(&mut self, at: Ref<T>) -> &mut T {
        self.looks.set(self.looks.get() + 1);
        self.check::<T>(at.at());
        T::mut_from_prefix(&mut self.pages.as_mut_bytes()[at.at() as usize..]).expect(INSIDE).0
    }

    fn with_tail<T: Object, U: Object>(&mut self, at: Ref<T>, count: usize) -> (&mut T, &mut [U]) {
        self.check::<T>(at.at());
        let tail = at.at() + size_of::<T>() as u32;
        if let Some(last) = count.checked_sub(1) {
            self.check::<U>(tail + (last * size_of::<U>()) as u32);
        }
        let bytes = &mut self.pages.as_mut_bytes()[at.at() as usize..];
        let (object, rest) = T::mut_from_prefix(bytes).expect(INSIDE);
        (object, <[U]>::mut_from_prefix_with_elems(rest, count).expect(INSIDE).0)
    }

    fn clear(&mut self, at: u32, len: u32) {
        self.check_free(at, len);
        self.pages.as_mut_bytes()[at as usize..][..len as usize].fill(0);
    }

    fn note(&mut self, at: u32, len: u32, kind: Option<Kind>) {
        match kind {
            Some(_) => self.check_free(at, len),
            None => assert!(
                self.map.as_ref().is_none_or(|map| map[(at / GRANULE) as usize] & START != 0),
                "nothing begins at {at:#x} that could end"
            ),
        }
        self.mark(at, len, kind.map_or(0, |kind| kind as u8));
    }

    fn physical(&self, at: u32) -> u64 {
        self.base + u64::from(at)
    }

    fn kernel_entry(&self) -> Option<(u64, usize)> {
        self.kernel_entry
    }

    fn enter_space(&mut self, root: u64) {
        self.space = root;
        self.entered += 1;
        self.forgotten.clear();
    }

    fn forget(&mut self, address: u64) {
        self.forgotten.push(address);
    }

    fn enter_thread(&mut self, pointer: u64) {
        (self.pointer, self.left) = (pointer, 0);
    }

    fn now(&mut self) -> Time {
        self.time
    }

    fn set_timer(&mut self, at: Time) {
        self.timer = at;
        self.timers += 1;
    }

    fn use_vectors(&mut self, area: Option<Ref<Vectors>>) {
        if let Some(area) = area {
            self.check::<Vectors>(area.at());
        }
        self.vectors = area;
    }

    /// Answers how many there were before: each read has another value.
    fn access(&mut self, access: L::Access) -> u64 {
        self.reached.push(access);
        self.reached.len() as u64 - 1
    }

    fn play(&mut self, script: u32) {
        self.played.push(script);
    }

    fn print(&mut self, text: &[u8]) {
        self.console.push_str(&String::from_utf8_lossy(text));
    }

    /// As a monitor with links does, all of which are free, and stand offered to it.
    fn ask(&mut self, call: u64, first: u64, second: u64) -> u64 {
        self.asked.push([call, first, second]);
        self.time += self.answers_after;
        let link = if call == OFFER { second } else { first } as u32 % MAX_LINKS as u32;
        let (bit, has) = (1 << link, self.has >> link & 1 != 0);
        match call {
            RESTART => return OK,
            LOOK => return if has { link::OPEN } else { link::IDLE },
            _ if self.busy => return BUSY,
            OFFER | ACCEPT if has => return BUSY,
            OFFER | ACCEPT => self.has |= bit,
            CLOSE if has => self.has &= !bit,
            _ => return BAD_ARGUMENT,
        }
        OK
    }

    fn ready(&mut self) {
        self.life.0 = true;
    }

    fn exit(&mut self, code: u32) {
        self.life.1 = Some(code);
    }
}

/// A processor that does not exist. Its registers have an order of their own, programs end elsewhere, and it reaches
/// registers of devices in a way of its own. Code that passes on it takes no other processor for granted.
#[derive(Clone, Copy, Debug)]
pub struct Odd;

/// An access to a register of the [`Odd`] processor's devices: its number, and the value of a write. The capability has
/// the first number in its upper half, and how many there are in the lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OddAccess(pub u64, pub Option<u64>);

impl Layout for Odd {
    const OP: usize = REGISTERS - 1;
    const NAMED: usize = 3;
    const INFO: usize = 20;
    const WORDS: usize = 9;
    const IP: usize = 1;
    const SP: usize = 18;
    const FLAGS: usize = 5;
    const ARGUMENTS: [usize; 2] = [15, 0];
    const ALL: usize = 7;
    const CALL_LEN: u64 = 3;
    const START_FLAGS: u64 = 0x5A5A;
    const START_VECTORS: (usize, u64) = (7, 0x77);
    const USER_END: u64 = 0x6FFF_FFC0_3000;
    type Access = OddAccess;

    fn access(cap: &Cap, method: Label, words: &[u64; 4]) -> Result<OddAccess, Status> {
        let (first, count) = (u64::from(cap.object >> 16), u64::from(cap.object & 0xFFFF));
        let &[number, _, value, _] = words;
        let last = first + count - 1;
        match method {
            label::IN | label::OUT if !(first..=last).contains(&number) => {
                Err(Status::new(Code::OutOfRange, 1, last))
            }
            label::IN => Ok(OddAccess(number, None)),
            // A register has 12 bits.
            label::OUT if value < 1 << 12 => Ok(OddAccess(number, Some(value))),
            label::OUT => Err(Status::new(Code::OutOfRange, 3, 0xFFF)),
            _ => Err(Status::new(Code::NoCall, 0, 0)),
        }
    }
}

/// Returns the capability of memory that nothing was made of yet: 2^`bits` bytes at a multiple of that.
#[must_use]
pub const fn memory(at: u32, bits: u8) -> Cap {
    Cap::original(Kind::Untyped, at, bits)
}
