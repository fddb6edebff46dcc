//! A split virtqueue (virtio 1.2, 2.7) on the device's side: it takes available chains, and says which it has used.
//! Neither side suppresses the other's notifications in the rings. A side that sleeps says so by its armed word, as
//! in every channel.

use crate::layout::*;
use bulkhead_channel::{Bytes, Memory, Word};

/// The driver wrote something impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupted;

/// Bytes of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Offset of the first byte, from the section's beginning.
    pub at: usize,
    /// Number of bytes.
    pub len: usize,
}

impl Part {
    const NONE: Self = Self { at: 0, len: 0 };
}

/// Buffers that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Number of its session: heads of another session are other chains.
    session: u64,
    head: u16,
    /// Part that the device reads, in the driver's section.
    pub reads: Part,
    /// Part that it may write, in its own section.
    pub writes: Part,
}

/// A queue of one session.
#[derive(Debug)]
pub struct Queue<M: Memory> {
    desc: M::Bytes,
    avail: M::Bytes,
    available: M::Word,
    used: M::Bytes,
    told: M::Word,
    num: u16,
    session: u64,
    taken: u16,
    done: u16,
    /// The first entry of `used` shares the word that tells how many there are.
    first: u32,
    /// Bytes of a section.
    section: usize,
}

/// A descriptor.
struct Descriptor {
    at: u64,
    len: usize,
    flags: u16,
    next: u16,
}

impl<M: Memory> Queue<M> {
    pub(crate) fn open(
        mine: &M,
        theirs: &M,
        section: usize,
        number: usize,
        num: u16,
        session: u64,
    ) -> Option<Self> {
        let size = usize::from(num);
        Some(Self {
            desc: theirs.bytes(desc(number), 16 * size)?,
            avail: theirs.bytes(avail(number), 4 + 2 * size)?,
            available: theirs.word(avail(number))?,
            used: mine.bytes(used(number), 4 + 8 * size)?,
            told: mine.word(used(number))?,
            num,
            session,
            taken: 0,
            done: 0,
            first: 0,
            section,
        })
    }

    /// Returns the next chain that the driver has made available.
    ///
    /// # Errors
    /// [`Corrupted`].
    pub fn take(&mut self) -> Result<Option<Chain>, Corrupted> {
        let index = (self.available.acquire() >> 16) as u16;
        let waiting = index.wrapping_sub(self.taken);
        if waiting == 0 {
            return Ok(None);
        }
        if waiting > self.num {
            return Err(Corrupted);
        }
        let mut head = [0; 2];
        self.avail.read(4 + 2 * self.slot(self.taken), &mut head);
        let chain = self.chain(u16::from_le_bytes(head))?;
        self.taken = self.taken.wrapping_add(1);
        Ok(Some(chain))
    }

    /// Tells if there is no chain; an impossible index counts as one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        (self.available.acquire() >> 16) as u16 == self.taken
    }

    /// Gives back so many that were taken last and not used, so that they come again.
    pub fn untake(&mut self, count: u16) {
        self.taken = self.taken.wrapping_sub(count);
    }

    /// Returns a used chain, with that many bytes written. The driver sees it after [`Queue::tell`]. A chain of an
    /// older session is ignored.
    pub fn used(&mut self, chain: &Chain, written: usize) {
        if chain.session != self.session {
            return;
        }
        let slot = self.slot(self.done);
        let (id, len) = (u32::from(chain.head), written.min(chain.writes.len) as u32);
        if slot == 0 {
            self.first = id;
        }
        let entry = u64::from(id) | u64::from(len) << 32;
        self.used.write(4 + 8 * slot, &entry.to_le_bytes());
        self.done = self.done.wrapping_add(1);
    }

    /// Tells the driver of all that was used.
    pub fn tell(&mut self) {
        self.told.release(u64::from(self.done) << 16 | u64::from(self.first) << 32);
    }

    fn slot(&self, index: u16) -> usize {
        usize::from(index & (self.num - 1))
    }

    fn chain(&self, head: u16) -> Result<Chain, Corrupted> {
        let first = self.descriptor(head)?;
        let (reads, writes) = match first.flags {
            0 => (self.inside(&first, 0)?, Part::NONE),
            WRITE => (Part::NONE, self.inside(&first, self.section)?),
            NEXT => {
                let second = self.descriptor(first.next)?;
                let writes = self.inside(&second, self.section)?;
                (
                    self.inside(&first, 0)?,
                    if second.flags == WRITE { writes } else { return Err(Corrupted) },
                )
            }
            _ => return Err(Corrupted),
        };
        Ok(Chain { session: self.session, head, reads, writes })
    }

    /// Returns a descriptor, read once.
    fn descriptor(&self, number: u16) -> Result<Descriptor, Corrupted> {
        let mut bytes = [0; 16];
        if !self.desc.read(16 * usize::from(number), &mut bytes) {
            return Err(Corrupted);
        }
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let at = (0..8).rev().fold(0, |word, n| word << 8 | u64::from(bytes[n]));
        let len = u32::from(half(8)) | u32::from(half(10)) << 16;
        Ok(Descriptor { at, len: len as usize, flags: half(12), next: half(14) })
    }

    /// Returns the part of a descriptor's bytes in the section that begins there, if they are all buffers of it.
    fn inside(&self, one: &Descriptor, begins: usize) -> Result<Part, Corrupted> {
        let at = usize::try_from(one.at).ok().and_then(|at| at.checked_sub(begins));
        let at = at.filter(|at| *at >= POOL).ok_or(Corrupted)?;
        let end = at.checked_add(one.len).ok_or(Corrupted)?;
        let fits = one.len > 0 && end <= self.section;
        fits.then_some(Part { at, len: one.len }).ok_or(Corrupted)
    }
}
