//! Kinds of faults.

use bulkhead_program::abi::{Grant, name::Messages};
use bulkhead_program::channel::page::{Hello, Phase};
use bulkhead_program::channel::{Bytes, Memory, Word};
use bulkhead_program::{FOREVER, Guest, Program, wait_until};
use bulkhead_scenarios::planted;
use bulkhead_store::disk::{Disk, Operation, Request};
use bulkhead_virtio::layout::{HELLO, NUM, POOL, avail, desc, used};
use store_programs::disk::AnyDisk;
use store_programs::serve::Channel;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A read at address 0.
    Crash,
    /// A loop without an end.
    Spin,
    /// A wait that does not end.
    Sleep,
    /// A write to the kernel's memory.
    Kernel,
    /// A write to the client's section, which the driver may read.
    Client,
    /// Garbage over the own stack: all that the driver knows.
    State,
    /// Garbage over the rings that it shares with the disk.
    Rings,
    /// The disk is told to write to memory that is not the driver's.
    Dma,
    /// A used index that is too far on.
    Index,
    /// An answer to a request that there is none of.
    Id,
    /// An answer with more bytes than there was room for.
    Length,
    /// An answer with a success of fewer bytes than were asked for.
    Short,
    /// An answer with a status that there is none of.
    Status,
}

/// All kinds, in the order of their names ([`planted::KINDS`]).
const KINDS: [Kind; planted::KINDS.len()] = [
    Kind::Crash,
    Kind::Spin,
    Kind::Sleep,
    Kind::Kernel,
    Kind::Client,
    Kind::State,
    Kind::Rings,
    Kind::Dma,
    Kind::Index,
    Kind::Id,
    Kind::Length,
    Kind::Short,
    Kind::Status,
];

/// The things that a fault reaches.
pub struct Planted<'a> {
    /// The driver's program.
    pub program: Program,
    /// Its disk.
    pub disk: &'a mut AnyDisk,
    /// Its first client's channel.
    pub channel: &'a Channel,
    /// Name of that.
    pub name: &'static str,
}

impl Kind {
    /// The kind of the fault of a number, of those that an argument lists. `None`: it lists none.
    pub fn of(listed: Option<&str>, number: u64) -> Option<Self> {
        let Some(listed) = listed else { return Self::at(number as usize % KINDS.len()) };
        let count = listed.split(',').count();
        let name = listed.split(',').nth(number as usize % count)?;
        Self::at(planted::KINDS.iter().position(|known| *known == name)?)
    }

    /// The kind at a place of [`planted::KINDS`].
    pub fn at(place: usize) -> Option<Self> {
        KINDS.get(place).copied()
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        let place = KINDS.iter().position(|kind| *kind == self);
        place.map_or("", |place| planted::KINDS[place])
    }

    /// Plants it.
    pub fn plant(self, planted: &mut Planted<'_>) {
        match self {
            Self::Crash => wild(8, false),
            Self::Spin => loop {
                core::hint::spin_loop();
            },
            Self::Sleep => loop {
                let _ = wait_until(planted.program.waits("work"), FOREVER);
            },
            Self::Kernel => wild(0xFFFF_8000_0020_0000, true),
            Self::Client => wild(planted.client(), true),
            Self::State => scribble_stack(),
            Self::Rings => planted.scribble_rings(),
            Self::Dma => planted.trespass(),
            Self::Index => planted.tell(|queue| (queue.index + 1000, None)),
            Self::Id => planted.tell(|queue| (queue.index + 1, Some((u32::from(u16::MAX), 1)))),
            Self::Length => planted.tell(|queue| (queue.index + 1, Some((queue.head, u32::MAX)))),
            Self::Short => planted.answer(0, 1),
            Self::Status => planted.answer(0x37, 0),
        }
    }
}

/// The queue as the client sees it.
struct Queue {
    /// Answers so far.
    index: u16,
    /// The newest request.
    head: u32,
}

impl Planted<'_> {
    /// Address of the client's section.
    fn client(&self) -> u64 {
        let messages = |grant| match grant {
            Some(Grant::Messages(Messages { start, .. })) => Some(start),
            _ => None,
        };
        self.program.names().find_map(|name| messages(name.grant())).unwrap_or(0) + POOL as u64
    }

    fn queue(&self) -> Queue {
        let half = |section: &dyn Fn(usize, &mut [u8]), at: usize| {
            let mut bytes = [0; 2];
            section(at, &mut bytes);
            u16::from_le_bytes(bytes)
        };
        let mine = |at: usize, to: &mut [u8]| {
            let _ = self.channel.mine.bytes(used(0), 4096).is_some_and(|ring| ring.read(at, to));
        };
        let theirs = |at: usize, to: &mut [u8]| {
            let _ = self.channel.theirs.bytes(avail(0), 4096).is_some_and(|ring| ring.read(at, to));
        };
        let given = half(&theirs, 2);
        let newest = usize::from(given.wrapping_sub(1)) % self.size();
        Queue { index: half(&mine, 2), head: half(&theirs, 4 + 2 * newest).into() }
    }

    /// Size that the client has chosen for its queue.
    fn size(&self) -> usize {
        let sizes = self.channel.theirs.word(bulkhead_virtio::layout::SIZES);
        usize::from(sizes.map_or(0, |sizes| sizes.acquire()) as u16).clamp(1, NUM)
    }

    /// Writes a used index, and the element before it, where the client looks next.
    fn tell(&self, lie: impl Fn(&Queue) -> (u16, Option<(u32, u32)>)) {
        let queue = self.queue();
        let Some(ring) = self.channel.mine.bytes(used(0), 4096) else { return };
        let (index, element) = lie(&queue);
        if let Some((id, len)) = element {
            let at = 4 + 8 * (usize::from(queue.index) % self.size());
            ring.write(at, &id.to_le_bytes());
            ring.write(at + 4, &len.to_le_bytes());
        }
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
        ring.write(2, &index.to_le_bytes());
        // The client sees it before the driver writes its own word there again. If not, this driver answers nobody.
        let pair = self.program.pairs(self.name).next();
        if let Some(mut caller) = pair.and_then(|pair| self.program.caller(&pair)) {
            caller.ring();
        }
        let there = || {
            let hello = self.channel.theirs.word(HELLO).map_or(0, |word| word.acquire());
            Hello::of(hello).phase == Phase::Open
        };
        while there() {
            core::hint::spin_loop();
        }
    }

    /// Answers the newest request with a status, and so many bytes too few.
    fn answer(&self, status: u8, missing: u32) {
        let head = self.queue().head;
        let table = self.channel.theirs.bytes(desc(0), 4096);
        let word = |descriptor: u32, at| {
            table.as_ref().map_or(0, |table| table.word(16 * descriptor as usize + at))
        };
        // The second descriptor of its two: the device's part.
        let next = (word(head, 8) >> 48) as u32 & 0xFF;
        let (address, len) = (word(next, 0), word(next, 8) as u32);
        let at = (address as usize).saturating_sub(self.channel.len) + (len as usize).max(1) - 1;
        if let Some(byte) = self.channel.mine.bytes(at, 1) {
            byte.write(0, &[status]);
        }
        self.tell(|queue| (queue.index + 1, Some((head, len - missing))));
    }

    fn scribble_rings(&self) {
        let words = self.program.memory("rings").words();
        for (n, word) in words.iter().enumerate() {
            // Each half is no index, no identifier, and no address.
            let garbage = (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            word.store(garbage | 0x8080_8080_8080_8080, core::sync::atomic::Ordering::Release);
        }
    }

    /// A read to the beginning of the sandbox's memory, where the kernel is.
    fn trespass(&mut self) {
        const KERNEL: u64 = 2 << 20;
        let request = Request {
            tag: u16::MAX,
            operation: Operation::Read,
            sector: 0,
            address: KERNEL,
            len: 512,
        };
        if self.disk.submit(&request).is_ok() {
            self.disk.ring();
        }
    }
}

/// Reads or writes an address that nothing vouches for.
pub fn wild(address: u64, write: bool) {
    let at = address as *mut u64;
    // SAFETY: none. The kernel's tables refuse the access, which is what this is for.
    unsafe {
        if write {
            at.write_volatile(!0);
        } else {
            let _ = at.read_volatile();
        }
    }
}

/// Overwrites the stack from here up to its end, where the kernel's tables end the loop: the driver's clients, flights
/// and returns lie there.
#[inline(never)]
fn scribble_stack() {
    let mut here = 0u64;
    let mut at = core::ptr::addr_of_mut!(here);
    loop {
        // SAFETY: none. All of this is the thread's own stack, and nothing is used of it again.
        unsafe {
            at.write_volatile(0x5A5A_5A5A_5A5A_5A5A);
            at = at.add(1);
        }
    }
}
