//! Channels made at run time (`docs/links.md`): one interface for a bare guest, a program of the kernel and a
//! process of a Linux. One sandbox offers a link, memory that the manifest has set aside for it, another accepts, and
//! either closes.
//!
//! ```ignore
//! let link = context.offer(miner, TAG)?;                      // one, for a sandbox of its `links`
//! let mut out = Sender::<Order>::open(&context.ends(&link, Kind::Queue, 64)?)?;
//! // ...
//! let link = program.offers().next()?;                        // the other
//! program.accept(&link, program.state(&link).epoch)?;
//! let mut orders = Receiver::<Order>::open(&program.ends(&link, Kind::Queue, 64)?)?;
//! ```

use crate::typed::Pair;
use bulkhead_channel::layout::Kind;
use bulkhead_guest::windows;
use bulkhead_layout::info::{Info, LINK};
use bulkhead_layout::{PAGE, party};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

pub use bulkhead_layout::party::{Phase, Refused, State};

/// A link that this sandbox may offer or be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Number of the link.
    pub number: u32,
    /// Index of the sandbox that offers it.
    pub owner: u32,
    /// This sandbox offers it.
    pub mine: bool,
    /// Address of the owner's region, as the guest's page tells it; the other end's page lies behind it.
    pub start: u64,
    /// Bytes of the owner's region.
    pub size: u64,
}

impl Link {
    /// All of an information page.
    pub fn all(info: &Info) -> impl Iterator<Item = Self> {
        windows(info).filter(|(window, _)| window.kind == LINK).map(|(window, _)| Self {
            number: window.message,
            owner: window.messages,
            mine: window.writable != 0,
            start: window.gpa,
            size: window.size,
        })
    }
}

/// The links of a guest, and its calls about them.
///
/// # Safety
/// At [`Links::base`] lie `size` bytes of the link and a page, and nothing else of this program. An access that the
/// sandbox may not make reaches no memory of this program: it is denied, or an exception.
pub unsafe trait Links {
    /// Returns the own sandbox's index, and the number of sandboxes.
    fn sandboxes(&self) -> [u32; 2];

    /// Returns all links that this sandbox may offer or be offered.
    fn links(&self) -> impl Iterator<Item = Link>;

    /// Makes a hypercall with two arguments.
    fn call(&self, number: u64, first: u64, second: u64) -> u64;

    /// Returns the address at which this program finds a link; `None` if it has not mapped it.
    fn base(&self, link: &Link) -> Option<NonNull<u8>> {
        NonNull::new(link.start as *mut u8)
    }

    /// Returns the state of a link.
    fn state(&self, link: &Link) -> State {
        let state =
            party::state(link.number, link.mine, |n, first, second| self.call(n, first, second));
        state.unwrap_or(State::of(0, 0, link.mine))
    }

    /// Returns the links that stand offered to this sandbox.
    fn offers(&self) -> impl Iterator<Item = Link> {
        let [me, _] = self.sandboxes();
        self.links().filter(move |link| !link.mine && self.state(link).offered(me))
    }

    /// Offers a link to a sandbox, by its index, with a tag that tells what for.
    ///
    /// # Errors
    /// See [`Refused`].
    fn offer(&self, to: u32, tag: u16) -> Result<Link, Refused> {
        let own = || self.links().filter(|link| link.mine);
        let call = |n, first, second| self.call(n, first, second);
        let number = party::offer(own().map(|link| link.number), (to, tag), call)?;
        own().find(|link| link.number == number).ok_or(Refused::Nothing)
    }

    /// Accepts an offer, by its epoch.
    ///
    /// # Errors
    /// See [`Refused`].
    fn accept(&self, link: &Link, epoch: u32) -> Result<(), Refused> {
        party::accept(link.number, epoch, |n, first, second| self.call(n, first, second))
    }

    /// Closes this end, or takes the offer back. An access to the link's memory is denied from then on.
    ///
    /// # Errors
    /// See [`Refused`].
    fn close(&self, link: &Link) -> Result<(), Refused> {
        party::close(link.number, |n, first, second| self.call(n, first, second))
    }

    /// Returns the 64-bit words of the owner's region, and of the other end's page behind it. An access is denied while
    /// the link is not [`Phase::Open`] here, as is a store to the peer's part.
    fn words(&self, link: &Link) -> Option<&'static [AtomicU64]> {
        let len = usize::try_from(link.size + PAGE).ok()? / 8;
        // SAFETY: the trait's: nothing of this program's lies there, and a denied access reaches none of it. Atomics
        // allow for a second party that writes.
        Some(unsafe { core::slice::from_raw_parts(self.base(link)?.as_ptr().cast(), len) })
    }

    /// Returns both regions, for messages of a kind and size that both ends agree on; the owner sends. An access while
    /// the link is not [`Phase::Open`] here is denied.
    fn ends(&self, link: &Link, kind: Kind, message: u32) -> Option<Pair<'static>> {
        let len = usize::try_from(link.size).ok()?;
        // SAFETY: as in `words`; `mine` says which region may be written.
        unsafe { Pair::new(self.base(link)?, len, (kind as u8, message), link.mine) }
    }
}
