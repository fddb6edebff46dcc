//! Snapshots: state of this guest that outlives it, where the manifest has `snapshot` and answers a failure with
//! `restart warm`.
//!
//! A guest puts its state on pages of its own ([`Paged`]), and names them with [`keep`] in each life. It calls [`take`]
//! when the state is whole, with the pages that have changed. In the next life [`last`] has the newest whole snapshot.

use crate::{Context, hypercall};
use bulkhead_layout::PAGE;
use bulkhead_layout::hypercall::{BUSY, KEEP, OK, SNAPSHOT};
use bulkhead_layout::map::SNAPSHOTS_GPA;
use bulkhead_layout::snapshot::{Head, Offer, offered, place};

/// State on pages of its own.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Paged<T>(pub T);

/// A refused call, with the monitor's word: one of [`hypercall`]'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub u64);

/// Returns the most bytes of a snapshot; 0: this guest takes none.
#[must_use]
pub fn room(context: Context) -> u64 {
    context.info().snapshot
}

/// Names pages of memory for the snapshots of this life, behind those that were named before. On the first core.
///
/// # Errors
/// It is not all this sandbox's RAM, not at a page's start, or more than there is [`room`] for.
pub fn keep(at: *const u8, bytes: usize) -> Result<(), Refused> {
    match hypercall::raw(KEEP, at as u64, (bytes as u64).div_ceil(PAGE), 0, 0) {
        OK => Ok(()),
        why => Err(Refused(why)),
    }
}

/// Takes a snapshot of all pages that were named. `changed` is the set of those that have changed since the last one:
/// bit 0 is the page that was named first. After [`keep`] all new pages count as changed. On the first core.
///
/// The state has to stay as it is until this returns: a monitor copies a few pages in a call.
///
/// # Errors
/// No page was named.
pub fn take(changed: u64) -> Result<(), Refused> {
    let mut changed = changed;
    loop {
        match step(changed) {
            OK => return Ok(()),
            BUSY => changed = 0,
            why => return Err(Refused(why)),
        }
    }
}

/// Makes one call of [`take`], and returns the monitor's word.
pub fn step(changed: u64) -> u64 {
    hypercall::raw(SNAPSHOT, changed, 0, 0, 0)
}

/// The snapshot that this life may begin with. It stays as it is until this life's second snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Last {
    offer: Offer,
    room: u64,
}

/// Finds it. There is none in a life that began cold, and where none was whole.
#[must_use]
pub fn last(context: Context) -> Option<Last> {
    let room = room(context) / PAGE;
    if room == 0 {
        return None;
    }
    // SAFETY: the information page is the monitor's word that the page is mapped, read-only, as long as the sandbox
    // runs; its fields are atomics.
    let head = unsafe { &*(SNAPSHOTS_GPA as *const Head) };
    offered(head, room).map(|offer| Last { offer, room })
}

impl Last {
    /// Returns its number.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.offer.generation
    }

    /// Returns its pages, in the order of their naming.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.offer.pages
    }

    /// Copies words of it from the start of a page on. False: it does not have so many.
    pub fn read(&self, page: usize, to: &mut [u64]) -> bool {
        if !self.offer.holds(page, to.len()) {
            return false;
        }
        let from = SNAPSHOTS_GPA + place(self.room, self.offer.buffer, page);
        for (word, at) in to.iter_mut().zip((from..).step_by(8)) {
            // SAFETY: a word of the snapshot's pages, as compared above, which the monitor maps as `last` says.
            *word = unsafe { core::ptr::read_volatile(at as *const u64) };
        }
        true
    }
}
