//! Channels made at run time (`docs/connecting.md`), for root, without a driver: hypercalls by their port, and the
//! slot's memory through `/dev/mem`. It works as in a bare guest (`sdk/src/link.rs`), except that it is a process's.
//! Memory is mapped for as long as a [`Link`] lives, and its end closes.
//!
//! ```ignore
//! let info = Info::read()?;
//! let link = link::offer(&info, info.sandbox("miner")?, TAG)?;    // one, for a sandbox of its `may_connect`
//! let mut out = Sender::<Order>::open(&link.pair(Kind::Queue, 64)?)?;
//! // ...
//! let slot = link::offers(&info)?.pop()?;                          // the other
//! let link = slot.accept(slot.state()?.epoch)?;
//! let mut orders = Receiver::<Order>::open(&link.pair(Kind::Queue, 64)?)?;
//! ```
//!
//! To Bulkhead a sandbox is one subject, so a slot is its sandbox's, not a process's: a process that is killed leaves
//! it open.

use crate::devmem::{Info, Registers};
use crate::port;
use bulkhead_channel::layout::Kind;
use bulkhead_channel_memory::typed::Pair;
use bulkhead_layout::{PAGE, slot};
use std::fs;
use std::io::{self, ErrorKind};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

pub use bulkhead_layout::slot::{Phase, Refused, State};

/// A slot that this sandbox may offer or be offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its number.
    pub number: u32,
    /// Index of the sandbox that offers it.
    pub owner: u32,
    /// Its name.
    pub name: String,
    /// True if that is this sandbox.
    pub mine: bool,
    /// Guest-physical address of the owner's memory; a page of the other's lies behind it.
    pub gpa: u64,
    /// Bytes of it.
    pub size: u64,
}

/// As an error: `PermissionDenied`, `ResourceBusy` or `NotFound`.
fn refused(why: Refused) -> io::Error {
    let (kind, text) = match why {
        Refused::Denied => (ErrorKind::PermissionDenied, "the manifest does not grant it"),
        Refused::Busy => (ErrorKind::ResourceBusy, "no slot is free, or its last use is not over"),
        Refused::Nothing => (ErrorKind::NotFound, "there is no such offer, or nothing to close"),
    };
    io::Error::new(kind, text)
}

/// Makes calls by the port, which Linux gives to a thread that asks.
fn by_port<T>(calls: impl FnOnce(fn(u64, u64, u64) -> u64) -> Result<T, Refused>) -> io::Result<T> {
    port::allow_calls()?;
    calls(port::call).map_err(refused)
}

impl Slot {
    /// Reads its state now.
    ///
    /// # Errors
    /// This is not root's program.
    pub fn state(&self) -> io::Result<State> {
        by_port(|call| slot::state(self.number, self.mine, call))
    }

    /// Accepts an offer, by its epoch.
    ///
    /// # Errors
    /// It cannot be mapped; the offer does not stand; the last use is not over.
    pub fn accept(&self, epoch: u32) -> io::Result<Link> {
        Link::after(self.clone(), || by_port(|call| slot::accept(self.number, epoch, call)))
    }

    /// Goes on with this sandbox's side of it, from another process.
    ///
    /// # Errors
    /// It has nothing, or it cannot be mapped.
    pub fn open(&self) -> io::Result<Link> {
        Link::after(self.clone(), || match self.state()?.own {
            Phase::Open | Phase::Gone => Ok(()),
            Phase::Idle | Phase::Changing => Err(refused(Refused::Nothing)),
        })
    }

    /// Closes this sandbox's end, or takes the offer back. A process that has it mapped ([`Slot::users`]) and goes on
    /// accessing it is the sandbox's end.
    ///
    /// # Errors
    /// There is nothing to close, or another core is at it for long.
    pub fn close(&self) -> io::Result<()> {
        // A core is at it for some instructions.
        const TRIES: u32 = 1000;
        for _ in 0..TRIES {
            match by_port(|call| slot::close(self.number, call)) {
                Err(why) if why.kind() == ErrorKind::ResourceBusy => std::thread::yield_now(),
                done => return done,
            }
        }
        Err(refused(Refused::Busy))
    }

    /// Processes that have it mapped by `/dev/mem`.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn users(&self) -> io::Result<Vec<u32>> {
        let processes = fs::read_dir("/proc")?.flatten();
        let all = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let maps = |id: &u32| fs::read_to_string(format!("/proc/{id}/maps")).unwrap_or_default();
        Ok(all.filter(|id| maps(id).lines().any(|line| self.is_mapped(line))).collect())
    }

    /// Tells if a line of a process's `maps` is of this slot.
    fn is_mapped(&self, line: &str) -> bool {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [range, _, offset, _, _, "/dev/mem"] = words[..] else { return false };
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        let ends = range.split_once('-').map(|(start, end)| [start, end].map(number));
        let (Some([Some(start), Some(end)]), Some(offset)) = (ends, number(offset)) else {
            return false;
        };
        offset < self.gpa + self.size + PAGE
            && offset.saturating_add(end - start.min(end)) > self.gpa
    }
}

/// Slots that stand offered to this sandbox.
///
/// # Errors
/// This is not root's program.
pub fn offers(info: &Info) -> io::Result<Vec<Slot>> {
    let mut offered = Vec::new();
    for slot in info.slots.iter().filter(|slot| !slot.mine) {
        if slot.state()?.offered(info.index as u32) {
            offered.push(slot.clone());
        }
    }
    Ok(offered)
}

/// Offers a slot to a sandbox, by its index, with a tag that tells its use.
///
/// # Errors
/// It cannot be mapped; the manifest does not grant it; all slots are in use.
pub fn offer(info: &Info, to: usize, tag: u16) -> io::Result<Link> {
    let own = || info.slots.iter().filter(|slot| slot.mine);
    let to = u32::try_from(to).map_err(|_| refused(Refused::Denied))?;
    let number = by_port(|call| slot::offer(own().map(|slot| slot.number), (to, tag), call))?;
    let slot = own().find(|slot| slot.number == number).ok_or_else(|| refused(Refused::Nothing))?;
    Link::after(slot.clone(), || Ok(())).inspect_err(|_| {
        let _ = slot.close();
    })
}

/// A slot that this program has, mapped. Its end is closed when this is dropped.
#[derive(Debug)]
pub struct Link {
    slot: Slot,
    /// There until it is dropped.
    memory: Option<Registers>,
}

impl Link {
    /// Maps a slot, then makes it the sandbox's by `made`: nothing can fail after that. It is touched later only.
    fn after(slot: Slot, made: impl FnOnce() -> io::Result<()>) -> io::Result<Self> {
        let memory = Registers::memory(slot.gpa, slot.size + PAGE)?;
        made()?;
        Ok(Self { slot, memory: Some(memory) })
    }

    /// Which it is.
    #[must_use]
    pub const fn slot(&self) -> &Slot {
        &self.slot
    }

    /// The 64-bit words of the owner's memory, and of the other's page behind it. A store to the other's memory is
    /// denied, and ends the sandbox.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        self.memory.as_ref().map_or(&[], Registers::words)
    }

    /// Both regions, for messages of a kind and size that both ends agree on; its owner sends.
    #[must_use]
    pub fn pair(&self, kind: Kind, message: u32) -> Option<Pair<'_>> {
        let base = NonNull::new(self.memory.as_ref()?.address() as *mut u8)?;
        let len = usize::try_from(self.slot.size).ok()?;
        // SAFETY: as many bytes and a page are mapped for as long as `self` lives. The monitor lets this side write its
        // own of both regions until this sandbox closes, also when the other one was taken from it. It closes after
        // unmapping.
        unsafe { Pair::new(base, len, (kind as u8, message), self.slot.mine) }
    }

    /// Keeps it mapped as long as the program runs. Only [`Slot::close`] closes it then.
    #[must_use]
    pub fn stay(self) -> &'static Self {
        Box::leak(Box::new(self))
    }

    /// Closes it.
    ///
    /// # Errors
    /// See [`Slot::close`].
    pub fn close(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        // Unmapped first: a sandbox that touches a closed slot ends.
        match self.memory.take() {
            Some(memory) => drop(memory),
            None => return Ok(()),
        }
        self.slot.close()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_maps_a_slot_is_found() {
        let name = String::from("one");
        let slot = Slot { number: 1, owner: 0, name, mine: true, gpa: 0xDC20_0000, size: 2 * PAGE };
        let line = |offset: &str, path: &str| {
            format!("7f2c1a000000-7f2c1a003000 rw-s {offset} 00:05 4                  {path}")
        };
        assert!(slot.is_mapped(&line("dc200000", "/dev/mem")));
        assert!(slot.is_mapped(&line("dc202000", "/dev/mem")));
        assert!(!slot.is_mapped(&line("dc203000", "/dev/mem")));
        assert!(!slot.is_mapped(&line("dc000000", "/dev/mem")));
        // One that begins before it, and reaches it.
        let all = "7f2c00000000-7f2c00800000 rw-s dc000000 00:06 5 /dev/mem";
        assert!(slot.is_mapped(all));
        assert!(!slot.is_mapped(&line("dc200000", "/tmp/mem")));
        assert!(!slot.is_mapped("7f2c1a000000-7f2c1a003000 rw-p 00000000 00:00 0"));
    }
}
