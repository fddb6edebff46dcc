//! A channel's memory as it is mapped: the only code of channels that is not safe.
//!
//! The peer writes to this memory while it is read here, and no table prevents it. So no reference to it exists,
//! except to an atomic word. Messages are copied by atomic words, or by instructions that the compiler does not see
//! into. To the language both are reads of *some* value. The words of the protocol tell which value it is, and if two
//! halves of a message belong together.
#![no_std]

pub mod any;
mod arch;
mod copy;
pub mod guest;
pub mod link;
pub mod number;
pub mod typed;
pub mod waiting;

use bulkhead_channel::{BLOCK, Bytes, Lane, Memory, Word, fits};
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU64, fence};

/// True if copies use the processor's vector registers.
pub const VECTORS: bool = cfg!(feature = "vectors");

/// A region as this side sees it.
#[derive(Clone, Copy, Debug)]
pub struct Mapping<'a> {
    base: NonNull<u8>,
    len: usize,
    life: PhantomData<&'a AtomicU64>,
}

// SAFETY: it stands for memory with other users at any time. Every access to it is atomic or a copy by instructions;
// no part of it belongs to a thread.
unsafe impl Send for Mapping<'_> {}
// SAFETY: see `Send`; it has no state of its own.
unsafe impl Sync for Mapping<'_> {}

impl Mapping<'_> {
    /// Maps the `len` bytes at `base`; `None` if that is not aligned to eight bytes.
    ///
    /// # Safety
    /// For the whole lifetime they are mapped readable, and writable too if an end that writes them is opened on this
    /// mapping. This program accesses them only through such mappings. Accesses by others do not matter.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, len: usize) -> Option<Self> {
        let aligned = base.addr().get() % 8 == 0 && isize::try_from(len).is_ok();
        aligned.then_some(Self { base, len, life: PhantomData })
    }
}

/// A word of it.
#[derive(Clone, Copy, Debug)]
pub struct Cell<'a>(&'a AtomicU64);

impl Word for Cell<'_> {
    #[inline]
    fn relaxed(&self) -> u64 {
        self.0.load(Relaxed)
    }

    #[inline]
    fn acquire(&self) -> u64 {
        // Not an acquiring load: for memory that is mapped read-only, the language allows only relaxed ones.
        let value = self.0.load(Relaxed);
        fence(Acquire);
        value
    }

    #[inline]
    fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    #[inline]
    fn release(&self, value: u64) {
        self.0.store(value, Release);
    }

    #[inline]
    fn fenced(&self, value: u64) {
        arch::fenced(self.0, value);
    }
}

/// Bytes of it.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    base: NonNull<u8>,
    len: usize,
    life: PhantomData<&'a AtomicU64>,
}

// SAFETY: as of `Mapping`.
unsafe impl Send for Run<'_> {}
// SAFETY: as of `Mapping`.
unsafe impl Sync for Run<'_> {}

impl Run<'_> {
    #[inline]
    const fn inside(&self, at: usize, len: usize) -> bool {
        len <= self.len && at <= self.len - len
    }

    /// Returns an aligned word inside.
    #[inline]
    fn at(&self, at: usize) -> Option<&AtomicU64> {
        if !self.inside(at, 8) || at % 8 != 0 {
            return None;
        }
        // SAFETY: the word lies within the run, hence in the mapping. By contract that is mapped and only accessed
        // atomically here; base and offset are aligned.
        Some(unsafe { AtomicU64::from_ptr(self.base.add(at).cast().as_ptr()) })
    }
}

impl Bytes for Run<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn read(&self, at: usize, to: &mut [u8]) -> bool {
        let inside = self.inside(at, to.len());
        if inside {
            // SAFETY: so many bytes lie within the mapping, which is readable. The slice does
            // not overlap it, because this program accesses it through mappings alone.
            unsafe { copy::out(self.base.add(at).as_ptr(), to) };
        }
        inside
    }

    #[inline]
    fn write(&self, at: usize, from: &[u8]) -> bool {
        let inside = self.inside(at, from.len());
        if inside {
            // SAFETY: as in `read`, the other way round. The mapping is writable if an end that writes was opened on
            // it, and no other end calls this.
            unsafe { copy::into(from, self.base.add(at).as_ptr()) };
        }
        inside
    }

    #[inline]
    fn word(&self, at: usize) -> u64 {
        self.at(at).map_or(0, |word| word.load(Relaxed))
    }

    #[inline]
    fn set_word(&self, at: usize, value: u64) {
        if let Some(word) = self.at(at) {
            word.store(value, Relaxed);
        }
    }

    #[inline]
    fn blocks(&self, at: usize, count: usize) -> impl Iterator<Item = [u64; BLOCK]> {
        let count = if fits(self.len, at, count) { count } else { 0 };
        // SAFETY: block `n` lies within the mapping, which is readable.
        (0..count).map(move |n| unsafe { arch::load(self.base.as_ptr().add(at + 8 * BLOCK * n)) })
    }

    #[inline]
    fn fill(&self, at: usize, count: usize, mut block: impl FnMut(usize) -> [u64; BLOCK]) {
        for n in 0..if fits(self.len, at, count) { count } else { 0 } {
            // SAFETY: block `n` lies within the mapping, which is writable where an end that writes
            // was opened on it.
            unsafe { arch::store(self.base.as_ptr().add(at + 8 * BLOCK * n), block(n)) };
        }
    }
}

/// A slot of a ring in it, by its address.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    now: NonNull<u8>,
    first: NonNull<u8>,
    /// Behind the last slot.
    end: NonNull<u8>,
    stride: usize,
    life: PhantomData<&'a AtomicU64>,
}

// SAFETY: as of `Mapping`.
unsafe impl Send for Place<'_> {}
// SAFETY: as of `Mapping`.
unsafe impl Sync for Place<'_> {}

impl Place<'_> {
    /// Returns the slot's address: `stride` bytes from there lie in the mapping.
    #[inline(always)]
    pub(crate) const fn address(&self) -> NonNull<u8> {
        self.now
    }
}

impl Lane for Place<'_> {
    #[inline]
    fn at(&self) -> usize {
        self.now.addr().get() - self.first.addr().get()
    }

    #[inline(always)]
    fn step(&mut self) {
        // SAFETY: one slot on is within the ring or at its end.
        let next = unsafe { self.now.add(self.stride) };
        self.now = if next == self.end { self.first } else { next };
    }

    #[inline]
    fn go(&mut self, slots: u32) {
        let len = self.end.addr().get() - self.first.addr().get();
        // Not more than once around, whatever is asked for, so both are below twice the length.
        let at = self.at() + (slots as usize * self.stride).min(len);
        let at = if at >= len { at - len } else { at };
        // SAFETY: `at` is below the ring's length, and a multiple of the stride as all parts of the sum are.
        self.now = unsafe { self.first.add(at) };
    }

    fn restart(&mut self) {
        self.now = self.first;
    }
}

impl<'a> Memory for Mapping<'a> {
    type Word = Cell<'a>;
    type Bytes = Run<'a>;
    type Lane = Place<'a>;

    fn word(&self, at: usize) -> Option<Cell<'a>> {
        let run = self.bytes(at, 8)?;
        // SAFETY: as in `Run::at`: `bytes` has checked that the word is inside and aligned.
        Some(Cell(unsafe { AtomicU64::from_ptr(run.base.cast().as_ptr()) }))
    }

    fn bytes(&self, at: usize, len: usize) -> Option<Run<'a>> {
        if at % 8 != 0 || at.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: the offset is within the mapping or at its end.
        let base = unsafe { self.base.add(at) };
        Some(Run { base, len, life: PhantomData })
    }

    fn lane(&self, at: usize, stride: usize, slots: u32) -> Option<Place<'a>> {
        let len = stride.checked_mul(slots as usize).filter(|len| *len > 0)?;
        let first = self.bytes(at, len)?.base;
        // SAFETY: `bytes` has checked that so many lie in the mapping.
        let end = unsafe { first.add(len) };
        Some(Place { now: first, first, end, stride, life: PhantomData })
    }

    #[inline]
    fn fence(&self) {
        arch::fence();
    }
}
