//! Channels made at run time (`docs/links.md`), for root, without a driver: hypercalls, and the link's memory through
//! `/dev/mem`. A process maps memory for as long as a [`Mapped`] lives, and its end closes. Beside that, an [`Info`]
//! has the [`Links`] of a bare guest.
//!
//! ```ignore
//! let info = Info::read()?;
//! let mapped = Mapped::offer(&info, info.sandbox("miner")?, TAG)?; // one, for a sandbox of its `links`
//! let mut out = Sender::<Order>::open(&mapped.pair(Kind::Queue, 64)?)?;
//! // ...
//! let link = info.offers().next()?;                                 // the other
//! let mapped = Mapped::accept(&info, &link, info.state(&link).epoch)?;
//! let mut orders = Receiver::<Order>::open(&mapped.pair(Kind::Queue, 64)?)?;
//! ```
//!
//! To Bulkhead a sandbox is one subject, so a link is its sandbox's, not a process's: a process that is killed leaves
//! it open.

use crate::call;
use crate::devmem::{Info, Registers};
use bulkhead_channel::layout::Kind;
use bulkhead_channel_memory::typed::Pair;
use bulkhead_layout::PAGE;
use bulkhead_layout::hypercall::DENIED;
use std::fs;
use std::io::{self, ErrorKind};
use std::ptr::NonNull;

pub use bulkhead_channel_memory::link::{Link, Links, Phase, Refused, State};

/// As an error: `PermissionDenied`, `ResourceBusy` or `NotFound`.
fn refused(why: Refused) -> io::Error {
    let (kind, text) = match why {
        Refused::Denied => (ErrorKind::PermissionDenied, "the manifest does not grant it"),
        Refused::Busy => (ErrorKind::ResourceBusy, "no link is free, or its last use is not over"),
        Refused::Nothing => (ErrorKind::NotFound, "there is no such offer, or nothing to close"),
    };
    io::Error::new(kind, text)
}

// SAFETY: nothing of a link is mapped here: a `Mapped` has it.
unsafe impl Links for Info {
    fn sandboxes(&self) -> [u32; 2] {
        [self.index as u32, self.sandboxes.len() as u32]
    }

    fn links(&self) -> impl Iterator<Item = Link> {
        self.links.iter().copied()
    }

    /// Makes a hypercall, which Linux lets to a thread that asks, if it is root's.
    fn call(&self, number: u64, first: u64, second: u64) -> u64 {
        call::allow().map_or(DENIED, |()| call::call(number, first, second))
    }

    fn base(&self, _: &Link) -> Option<NonNull<u8>> {
        None
    }
}

/// Closes this sandbox's end, or takes the offer back. A process that has it mapped ([`users`]) and goes on accessing
/// it is the sandbox's end.
///
/// # Errors
/// There is nothing to close, or another core is at it for long.
pub fn close(info: &Info, link: &Link) -> io::Result<()> {
    // A core is at it for some instructions.
    const TRIES: u32 = 1000;
    for _ in 0..TRIES {
        match info.close(link) {
            Err(Refused::Busy) => std::thread::yield_now(),
            done => return done.map_err(refused),
        }
    }
    Err(refused(Refused::Busy))
}

/// Returns the processes that have a link mapped by `/dev/mem`.
///
/// # Errors
/// There is no `/proc`.
pub fn users(link: &Link) -> io::Result<Vec<u32>> {
    let processes = fs::read_dir("/proc")?.flatten();
    let all = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let maps = |id: &u32| fs::read_to_string(format!("/proc/{id}/maps")).unwrap_or_default();
    Ok(all.filter(|id| maps(id).lines().any(|line| is_mapped(link, line))).collect())
}

/// Tells if a line of a process's `maps` is of a link.
fn is_mapped(link: &Link, line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [range, _, offset, _, _, "/dev/mem"] = words[..] else { return false };
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    let ends = range.split_once('-').map(|(start, end)| [start, end].map(number));
    let (Some([Some(start), Some(end)]), Some(offset)) = (ends, number(offset)) else {
        return false;
    };
    offset < link.start + link.size + PAGE
        && offset.saturating_add(end - start.min(end)) > link.start
}

/// A link that this program has, mapped. Its end is closed when this is dropped.
#[derive(Debug)]
pub struct Mapped<'a> {
    info: &'a Info,
    link: Link,
    /// There until it is dropped.
    memory: Option<Registers>,
}

impl<'a> Mapped<'a> {
    /// Maps a link, then does what makes it the sandbox's, if anything does: nothing can fail after that. It is touched
    /// later only.
    fn after(
        info: &'a Info,
        link: Link,
        made: impl FnOnce() -> Result<(), Refused>,
    ) -> io::Result<Self> {
        let memory = Registers::memory(link.start, link.size + PAGE)?;
        made().map_err(refused)?;
        Ok(Self { info, link, memory: Some(memory) })
    }

    /// Offers a link to a sandbox, by its index, with a tag that tells what for.
    ///
    /// # Errors
    /// It cannot be mapped; the manifest does not grant it; all links are in use.
    pub fn offer(info: &'a Info, to: usize, tag: u16) -> io::Result<Self> {
        let to = u32::try_from(to).map_err(|_| refused(Refused::Denied))?;
        let link = info.offer(to, tag).map_err(refused)?;
        Self::after(info, link, || Ok(())).inspect_err(|_| {
            let _ = close(info, &link);
        })
    }

    /// Accepts an offer, by its epoch.
    ///
    /// # Errors
    /// It cannot be mapped; the offer does not stand; the last use is not over.
    pub fn accept(info: &'a Info, link: &Link, epoch: u32) -> io::Result<Self> {
        Self::after(info, *link, || info.accept(link, epoch))
    }

    /// Goes on with what this sandbox has of it, by another process.
    ///
    /// # Errors
    /// It has nothing, or it cannot be mapped.
    pub fn open(info: &'a Info, link: &Link) -> io::Result<Self> {
        Self::after(info, *link, || match info.state(link).own {
            Phase::Open | Phase::Gone => Ok(()),
            Phase::Idle | Phase::Changing => Err(Refused::Nothing),
        })
    }

    /// Which it is.
    #[must_use]
    pub const fn link(&self) -> &Link {
        &self.link
    }

    /// Returns the address at which the link is mapped.
    #[must_use]
    pub fn base(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.memory.as_ref()?.address() as *mut u8)
    }

    /// Both regions, for messages of a kind and size that both ends agree on; its owner sends.
    #[must_use]
    pub fn pair(&self, kind: Kind, message: u32) -> Option<Pair<'_>> {
        let (base, len) = (self.base()?, usize::try_from(self.link.size).ok()?);
        // SAFETY: as many bytes and a page are mapped for as long as `self` lives. The monitor lets this side write its
        // own of both regions until this sandbox closes, also when the other one was taken from it. It closes after
        // unmapping.
        unsafe { Pair::new(base, len, (kind as u8, message), self.link.mine) }
    }

    /// Closes it.
    ///
    /// # Errors
    /// See [`close`].
    pub fn close(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        // Unmapped first: what is closed ends the sandbox that touches it.
        match self.memory.take() {
            Some(memory) => drop(memory),
            None => return Ok(()),
        }
        close(self.info, &self.link)
    }
}

impl Mapped<'static> {
    /// Keeps it mapped as long as the program runs. Only [`close`] closes it then.
    #[must_use]
    pub fn stay(self) -> &'static Self {
        Box::leak(Box::new(self))
    }
}

impl Drop for Mapped<'_> {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_maps_a_link_is_found() {
        let link = Link { number: 1, owner: 0, mine: true, start: 0xDC20_0000, size: 2 * PAGE };
        let line = |offset: &str, path: &str| {
            format!("7f2c1a000000-7f2c1a003000 rw-s {offset} 00:05 4                  {path}")
        };
        assert!(is_mapped(&link, &line("dc200000", "/dev/mem")));
        assert!(is_mapped(&link, &line("dc202000", "/dev/mem")));
        assert!(!is_mapped(&link, &line("dc203000", "/dev/mem")));
        assert!(!is_mapped(&link, &line("dc000000", "/dev/mem")));
        // One that begins before it, and reaches it.
        let all = "7f2c00000000-7f2c00800000 rw-s dc000000 00:06 5 /dev/mem";
        assert!(is_mapped(&link, all));
        assert!(!is_mapped(&link, &line("dc200000", "/tmp/mem")));
        assert!(!is_mapped(&link, "7f2c1a000000-7f2c1a003000 rw-p 00000000 00:00 0"));
    }
}
