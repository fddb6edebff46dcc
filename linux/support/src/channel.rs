//! Channels of a Linux sandbox: functions of PCI that speak ivshmem version 2. They are found by the channel's name and
//! mapped through `/sys`, so that only root's rights are needed: no driver, no module. [`crate::bell`] waits for
//! interrupts.

use crate::devmem::Registers;
use bulkhead_channel::layout::Kind;
use bulkhead_channel_memory::Mapping;
use bulkhead_channel_memory::typed::{Doorbell, Pair};
use bulkhead_layout::PAGE;
use bulkhead_layout::ivshmem::*;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::ptr::NonNull;

const FUNCTIONS: &str = "/sys/bus/pci/devices";
/// An end of a channel, as its function's configuration describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The channel's name in the manifest.
    pub name: String,
    /// Its function's folder.
    pub path: PathBuf,
    /// The kind that it carries; `None`: raw pages.
    pub kind: Option<Kind>,
    /// Bytes of a message, where all have as many; otherwise 0.
    pub message: u32,
    /// Bytes of the sender's part of the shared memory, and of each receiver's.
    pub section: u64,
    /// How the receiver is woken, if it is. For a sender it has the port that rings.
    pub doorbell: Option<Doorbell>,
}

impl End {
    /// Reads a function's configuration; `None` if it is no channel's end.
    fn of(path: PathBuf) -> Option<Self> {
        let config = std::fs::read(path.join("config")).ok()?;
        let mut end = Self::parse(&config)?;
        end.path = path;
        Some(end)
    }

    /// Reads a configuration space.
    fn parse(config: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(config.get(at..at + 4)?.try_into().ok()?));
        if word(0)? != IDS {
            return None;
        }
        let mut at = usize::from(*config.get(0x34)?);
        let mut own = Vec::new();
        // 48 capabilities fill the space: a circle ends there.
        for _ in 0..48 {
            if config.get(at) == Some(&VENDOR_SPECIFIC) {
                own.push(at);
            }
            at = usize::from(*config.get(at + 1)?);
            if at == 0 {
                break;
            }
        }
        let [shared, named] = own[..] else { return None };
        if word(named + NAMED)? != MAGIC {
            return None;
        }
        let name = config.get(named + NAME..named + NAMED_LEN)?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(Self {
            name: String::from_utf8_lossy(name).into_owned(),
            path: PathBuf::new(),
            kind: Kind::of(word(named + MESSAGES)? as u8),
            message: word(named + MESSAGE)?,
            doorbell: Doorbell::told(word(named + NOTIFY)?, 0),
            section: u64::from(word(shared + SECTION_SIZE)?)
                | u64::from(word(shared + SECTION_SIZE + 4)?) << 32,
        })
    }

    /// Its function's address on the bus.
    #[must_use]
    pub fn address(&self) -> &str {
        self.path.file_name().and_then(OsStr::to_str).unwrap_or_default()
    }

    /// The name of the driver that has its function, if one has.
    #[must_use]
    pub fn driver(&self) -> Option<String> {
        let link = std::fs::read_link(self.path.join("driver")).ok()?;
        Some(link.file_name()?.to_string_lossy().into_owned())
    }

    /// Maps it.
    ///
    /// # Errors
    /// `/sys` refuses: not root, or locked down.
    pub fn open(&self) -> io::Result<Channel> {
        // A driver has done so itself, and then no other program may.
        if self.driver().is_none() {
            std::fs::write(self.path.join("enable"), "1")?;
        }
        let resource = |name: &str, length: usize| {
            let path = self.path.join(name);
            Registers::map(&path.display().to_string(), 0, length)
        };
        let length = std::fs::metadata(self.path.join("resource2"))?.len();
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::InvalidData)?;
        let (sections, rest) =
            if self.kind == Some(Kind::Virtio) { (2, PAGE) } else { (1, 2 * PAGE) };
        let all = self.section.checked_mul(sections).and_then(|all| all.checked_add(rest));
        let fits = all.is_some_and(|all| all <= length as u64);
        if !fits {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a window that is too small"));
        }
        let registers = resource("resource0", PAGE as usize)?;
        Ok(Channel { end: self.clone(), registers, memory: resource("resource2", length)? })
    }
}

/// All ends of channels that this sandbox has, in the manifest's order.
///
/// # Errors
/// There is no `/sys`.
pub fn all() -> io::Result<Vec<End>> {
    let mut paths: Vec<_> =
        std::fs::read_dir(FUNCTIONS)?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths.into_iter().filter_map(End::of).collect())
}

/// The ends of a channel: one, or as the sender of messages one for each receiver.
///
/// # Errors
/// There is none of that name.
pub fn named(name: &str) -> io::Result<Vec<End>> {
    let found: Vec<_> = all()?.into_iter().filter(|end| end.name == name).collect();
    if found.is_empty() {
        let why = format!("this sandbox has no channel {name}");
        return Err(io::Error::new(io::ErrorKind::NotFound, why));
    }
    Ok(found)
}

/// A channel that is mapped.
#[derive(Debug)]
pub struct Channel {
    end: End,
    registers: Registers,
    memory: Registers,
}

impl Channel {
    /// Its description.
    #[must_use]
    pub fn end(&self) -> &End {
        &self.end
    }

    /// Its number among the peers; the sender's is 0.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.registers.get32(ID as usize)
    }

    /// How many peers there are.
    #[must_use]
    pub fn peers(&self) -> u32 {
        self.registers.get32(PEERS as usize)
    }

    /// The page of its registers, of which the monitor takes writes.
    #[must_use]
    pub const fn registers(&self) -> &Registers {
        &self.registers
    }

    /// Its view of the shared memory: the peers' states, then their sections.
    #[must_use]
    pub fn memory(&self) -> &Registers {
        &self.memory
    }

    /// Its own state, which begins as 0 and has the peers' meaning.
    #[must_use]
    pub fn state(&self) -> u32 {
        self.registers.get32(STATE as usize)
    }

    /// Changes it.
    pub fn set_state(&self, state: u32) {
        self.registers.set32(STATE as usize, state);
    }

    /// The state of a peer; of one without a state register 1.
    ///
    /// # Panics
    /// There is no such peer.
    #[must_use]
    pub fn state_of(&self, peer: u32) -> u32 {
        assert!(peer < self.peers(), "peer {peer}");
        self.memory.get32(4 * peer as usize)
    }

    /// Keeps it mapped as long as the program runs.
    #[must_use]
    pub fn stay(self) -> &'static Self {
        Box::leak(Box::new(self))
    }

    /// Its messages; `None` if it carries raw pages.
    #[must_use]
    pub fn pair(&self) -> Option<Pair<'_>> {
        let (kind, len) = (self.end.kind? as u8, usize::try_from(self.end.section).ok()?);
        let base = NonNull::new((self.memory.address() + PAGE as usize) as *mut u8)?;
        let sends = self.id() == 0;
        // SAFETY: `open` has seen that the section and the page behind it are within the mapping, which stays as long
        // as `self`. The monitor lets this side write its own of the two.
        let pair = unsafe { Pair::new(base, len, (kind, self.end.message), sends) };
        pair.map(|pair| pair.with(self.end.doorbell))
    }

    /// The words of a peer's part of a channel of raw pages: the sender's, `peer` 0, is the only one.
    #[must_use]
    pub fn mapping(&self) -> Option<Mapping<'_>> {
        let base = NonNull::new((self.memory.address() + PAGE as usize) as *mut u8)?;
        // SAFETY: as in `pair`, for as long as `self` lives.
        unsafe { Mapping::new(base, self.end.section as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration with the two capabilities.
    fn config() -> Vec<u8> {
        let mut config = vec![0; 256];
        let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &IDS.to_le_bytes());
        put(0x34, &[0x40]);
        put(0x40, &[9, 0x60, 0x18, 0]);
        put(0x50, &0x2000u64.to_le_bytes());
        put(0x60, &[9, 0, 52, 0]);
        put(0x64, b"BHCH");
        put(0x68, &[1, 0, 0, 0, 64]);
        put(0x70, b"orders");
        put(0x90, &0x1_0641u32.to_le_bytes());
        config
    }

    #[test]
    fn a_configuration_says_which_channel_it_is() {
        let end = End::parse(&config()).unwrap();
        assert_eq!((end.name.as_str(), end.kind, end.message), ("orders", Some(Kind::Queue), 64));
        assert_eq!(end.section, 0x2000);
        assert_eq!(end.doorbell, Some(Doorbell { at: 0x641, adaptive: true, right: 0 }));
    }

    #[test]
    fn what_is_no_channel_is_none() {
        for (at, byte) in [(0, 0), (0x34, 0), (0x41, 0), (0x61, 0x40), (0x64, 0), (0x34, 0xFF)] {
            let mut config = config();
            config[at] = byte;
            assert_eq!(End::parse(&config), None, "{at:#x}");
        }
        for len in [0x70, 0x90] {
            assert_eq!(End::parse(&config()[..len]), None);
        }
    }
}
