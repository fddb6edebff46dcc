//! The manifest's grants to a program, by name.

use crate::objects::{Context, Endpoint, Handler, Notification, Reply, Thread};
use bulkhead_channel_memory::typed::{Doorbell, Pair};
use bulkhead_guest::{Registers, text};
use bulkhead_kernel_abi::name::{Capability, Memory as Region, Messages};
use bulkhead_kernel_abi::{Address, Buffer, Clock, Grant, Kind, Name, Page, Rights};
use core::fmt::Display;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

/// A program, as its manifest has it.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    page: &'static Page,
    thread: u32,
}

/// Memory that a program shares with others.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// First byte.
    pub start: *mut u8,
    /// Bytes.
    pub len: usize,
    /// True if it may be written.
    pub writable: bool,
}

impl Memory {
    /// Its 64-bit words. Other programs may change them at any time, hence atomic. A store to memory that may not be
    /// written is an exception.
    #[must_use]
    pub fn words(&self) -> &'static [AtomicU64] {
        // SAFETY: memory that the manifest gave the program for as long as it runs, whole pages of it; atomics
        // allow for others that write.
        unsafe { core::slice::from_raw_parts(self.start.cast(), self.len / 8) }
    }
}

impl Program {
    pub(crate) const fn new(page: &'static Page, thread: u32) -> Self {
        Self { page, thread }
    }

    /// Its page.
    #[must_use]
    pub const fn page(self) -> &'static Page {
        self.page
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        text::of(&self.page.name)
    }

    /// The number of the thread that asks, from 0, in the manifest's order.
    #[must_use]
    pub const fn thread(self) -> u32 {
        self.thread
    }

    /// Its arguments.
    #[must_use]
    pub fn args(self) -> &'static str {
        text::of(&self.page.args)
    }

    /// The value of `name=value` in its arguments.
    #[must_use]
    pub fn arg(self, name: &str) -> Option<&'static str> {
        text::value(self.args(), name)
    }

    /// Reads the argument as a number.
    #[must_use]
    pub fn number(self, name: &str) -> Option<u64> {
        text::number(self.arg(name)?)
    }

    /// The buffer of the asking thread: the part of its messages that doesn't fit into registers. The kernel reads and
    /// writes it in calls.
    #[must_use]
    pub fn buffer(self) -> *mut Buffer {
        (self.page.buffers as *mut Buffer).wrapping_add(self.thread as usize)
    }

    /// Slots of its root node that are empty, for capabilities that it makes and is given: the first one, and one past
    /// the last.
    #[must_use]
    pub fn free(self) -> [Address; 2] {
        self.page.free
    }

    /// All that it was given.
    pub fn names(self) -> impl Iterator<Item = &'static Name> {
        self.page.names().iter()
    }

    /// Returns the first grant of a name that is what is looked for.
    pub(crate) fn find<T>(self, name: &str, fits: impl Fn(Grant) -> Option<T>) -> Option<T> {
        self.names().filter(|entry| entry.is(name)).find_map(|entry| entry.grant().and_then(&fits))
    }

    /// Returns the first grant of a name that is what the program needs.
    ///
    /// # Panics
    /// The manifest gives it none.
    #[track_caller]
    fn need<T>(self, what: impl Display, name: &str, fits: impl Fn(Grant) -> Option<T>) -> T {
        match self.find(name, fits) {
            Some(found) => found,
            None => panic!("the manifest gives {} no {what} {name}", self.name()),
        }
    }

    #[track_caller]
    pub(crate) fn address(self, name: &str, kind: Kind, rights: Rights) -> Address {
        self.need(format_args!("{kind:?}"), name, capability(kind, rights))
    }

    /// An endpoint that it may call.
    ///
    /// # Panics
    /// The manifest does not give it that; so do those below.
    #[must_use]
    #[track_caller]
    pub fn endpoint(self, name: &str) -> Endpoint {
        Endpoint(self.address(name, Kind::Endpoint, Rights::CALL))
    }

    /// An endpoint that it serves.
    #[must_use]
    #[track_caller]
    pub fn serves(self, name: &str) -> Endpoint {
        Endpoint(self.address(name, Kind::Endpoint, Rights::READ))
    }

    /// A notification that it may signal.
    #[must_use]
    #[track_caller]
    pub fn signals(self, name: &str) -> Notification {
        Notification(self.address(name, Kind::Notification, Rights::WRITE))
    }

    /// Finds a notification, if it may signal that.
    #[must_use]
    pub fn find_signals(self, name: &str) -> Option<Notification> {
        self.find(name, capability(Kind::Notification, Rights::WRITE)).map(Notification)
    }

    /// A notification that it may wait for.
    #[must_use]
    #[track_caller]
    pub fn waits(self, name: &str) -> Notification {
        Notification(self.address(name, Kind::Notification, Rights::READ))
    }

    /// A thread's reply object, by the thread's name.
    #[must_use]
    #[track_caller]
    pub fn reply(self, thread: &str) -> Reply {
        Reply(self.address(thread, Kind::Reply, Rights::NONE))
    }

    /// The reply object of its first thread, whatever that is called.
    ///
    /// # Panics
    /// It has no thread.
    #[must_use]
    #[track_caller]
    pub fn own_reply(self) -> Reply {
        // Its own threads' come first.
        let mut all = self.names().filter_map(|entry| match entry.grant()? {
            Grant::Capability(it) if it.kind == Kind::Reply => Some(Reply(it.address)),
            _ => None,
        });
        match all.next() {
            Some(reply) => reply,
            None => panic!("{} has no thread", self.name()),
        }
    }

    /// A thread that it manages.
    #[must_use]
    #[track_caller]
    pub fn manages(self, thread: &str) -> Thread {
        Thread(self.address(thread, Kind::Thread, Rights::NONE))
    }

    /// All threads that it manages, in the manifest's order, by name.
    pub fn threads(self) -> impl Iterator<Item = (&'static str, Thread)> {
        self.names().filter_map(|entry| match entry.grant()? {
            Grant::Capability(Capability { kind: Kind::Thread, address, .. }) => {
                Some((text::of(&entry.name), Thread(address)))
            }
            _ => None,
        })
    }

    /// A context that it manages.
    #[must_use]
    #[track_caller]
    pub fn context(self, name: &str) -> Context {
        self.need("context", name, |grant| match grant {
            Grant::Context(it) => Some(Context(it.address)),
            _ => None,
        })
    }

    /// An interrupt that it handles.
    #[must_use]
    #[track_caller]
    pub fn interrupt(self, name: &str) -> Handler {
        Handler(self.address(name, Kind::Interrupt, Rights::NONE))
    }

    /// Shared memory, or a channel's.
    ///
    /// # Panics
    /// The manifest does not give it that.
    #[must_use]
    #[track_caller]
    pub fn memory(self, name: &str) -> Memory {
        self.need("memory", name, region).0
    }

    /// Registers of a device that it drives: `pci:BB:DD.F:N` is BAR N of a function, `pci:BB:DD.F:config` its
    /// configuration space. A channel can be read and written so, too.
    ///
    /// # Panics
    /// The manifest does not give it that.
    #[must_use]
    #[track_caller]
    pub fn registers(self, name: &str) -> Registers {
        let Memory { start, len, writable } = self.memory(name);
        // SAFETY: the manifest gave the program this memory, which stays mapped.
        unsafe { Registers::new(start as u64, len as u64, writable) }
    }

    /// Finds the memory, if the manifest gives the program that.
    #[must_use]
    pub fn find_memory(self, name: &str) -> Option<Memory> {
        self.find(name, region).map(|(memory, _)| memory)
    }

    /// Ends of a channel, with the address by which a device finds each, or 0.
    pub(crate) fn found_pairs(self, name: &str) -> impl Iterator<Item = (Pair<'static>, u32)> {
        self.names().filter(move |entry| entry.is(name)).filter_map(|entry| {
            let Grant::Messages(it) = entry.grant()? else { return None };
            let base = NonNull::new(it.start as *mut u8)?;
            // SAFETY: by the kernel's word, the program's page, the sender's region and the receiver's behind it stay
            // mapped for as long as the program runs. The page says which of them may be written.
            let pair = unsafe { Pair::new(base, it.len as usize, (it.kind, it.message), it.sends) };
            let doorbell = |at: u16| {
                let bell = Doorbell { at, adaptive: it.adaptive, right: it.right };
                (at != 0).then_some(bell)
            };
            let pair = pair?.with(doorbell(it.bell)).with_back(doorbell(it.back));
            Some((pair, it.device))
        })
    }

    /// Index of a sandbox that it may offer a link.
    ///
    /// # Panics
    /// The manifest does not let it.
    #[must_use]
    #[track_caller]
    pub fn sandbox(self, name: &str) -> u32 {
        self.need("sandbox", name, |grant| match grant {
            Grant::Sandbox(it) => Some(it.index),
            _ => None,
        })
    }

    /// Shared memory that its device reaches, and the address by which that finds it. The manifest names it in `dma`.
    ///
    /// # Panics
    /// The manifest does not.
    #[must_use]
    #[track_caller]
    pub fn memory_for_device(self, name: &str) -> (Memory, u64) {
        let (memory, device) = self.need("memory", name, region);
        assert!(device != 0, "no device of {} reaches memory {name}", self.name());
        (memory, device.into())
    }

    /// The end of a channel that its device reaches, and the address by which the device finds the sender's region. The
    /// receiver's lies behind that. The manifest names the channel in `dma`. An address in a virtio chain counts from
    /// there on, too.
    ///
    /// # Panics
    /// The manifest does not.
    #[must_use]
    #[track_caller]
    pub fn pair_for_device(self, name: &str) -> (Pair<'static>, u64) {
        match self.found_pairs(name).next() {
            Some((pair, device)) if device != 0 => (pair, device.into()),
            _ => panic!("no device of {} reaches messages {name}", self.name()),
        }
    }

    pub(crate) fn clock(self) -> &'static Clock {
        // SAFETY: the kernel's page, which it fills before any program runs and never changes.
        unsafe { &*(self.page.clock as *const Clock) }
    }
}

/// Finds capabilities of a kind with some rights.
fn capability(kind: Kind, rights: Rights) -> impl Fn(Grant) -> Option<Address> {
    move |grant| match grant {
        Grant::Capability(it) if it.kind == kind && it.rights.has(rights) => Some(it.address),
        _ => None,
    }
}

/// Returns the memory of a grant that has some, and its address for a device or 0.
fn region(grant: Grant) -> Option<(Memory, u32)> {
    let (start, len, writable, device) = match grant {
        Grant::Memory(Region { write, device, start, len }) => (start, len, write, device),
        Grant::Messages(Messages { sends, start, len, .. }) => (start, len.into(), sends, 0),
        _ => return None,
    };
    Some((Memory { start: start as *mut u8, len: len as usize, writable }, device))
}
