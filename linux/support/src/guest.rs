//! A process of a Linux as the environment of scenarios. Its mappings stay, also when it is closed, so
//! that tests see what comes of that.

use crate::arch::{Architecture, This};
use crate::bell::Bed;
use crate::channel::Channel;
use crate::devmem::Info;
use crate::link::{self, Link, Refused, Slot, Slots};
use bulkhead_channel::adaptive::Sleeper;
use bulkhead_channel::bell::{Caller, Ring};
use bulkhead_channel_memory::Mapping;
pub use bulkhead_channel_memory::guest::Guest;
use bulkhead_channel_memory::typed::Pair;
use bulkhead_layout::hypercall::{DENIED, RESTART, SLOT};
use std::cell::RefCell;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// A process.
#[derive(Debug)]
pub struct Process {
    begun: Instant,
    args: Vec<&'static str>,
    /// Ends of channels that it has opened.
    pub channels: Vec<&'static Channel>,
    /// Page of the sandbox, if it uses slots.
    pub info: Option<&'static Info>,
    /// Slots that it has mapped.
    links: RefCell<Vec<&'static Link<'static>>>,
}

impl Process {
    /// Makes one of arguments `key=value`.
    #[must_use]
    pub fn new(args: &[&str]) -> Self {
        let args = args.iter().map(|arg| &*String::leak((*arg).to_owned())).collect();
        let (channels, links) = (Vec::new(), RefCell::default());
        Self { begun: Instant::now(), args, channels, info: None, links }
    }

    fn info(&self) -> Result<&'static Info, Refused> {
        self.info.ok_or(Refused::Nothing)
    }

    /// Keeps it mapped.
    fn keep(&self, link: io::Result<Link<'static>>) -> Result<Slot, Refused> {
        let link = link.map_err(|why| match why.kind() {
            ErrorKind::ResourceBusy => Refused::Busy,
            ErrorKind::PermissionDenied => Refused::Denied,
            _ => Refused::Nothing,
        })?;
        let slot = *link.slot();
        self.links.borrow_mut().push(link.stay());
        Ok(slot)
    }
}

/// A doorbell to ring by its number: channels ring by the register, so that tests see both.
#[derive(Debug)]
pub struct Bell(u16);

impl Ring for Bell {
    fn ring(&mut self) {
        This::ring(self.0);
    }
}

impl Guest for Process {
    type Ring = Bell;
    type Bed = Bed;

    fn caller(&self, pair: &Pair<'static>) -> Option<Caller<Mapping<'static>, Bell>> {
        let doorbell = pair.doorbell().filter(|_| pair.sends())?;
        This::allow_bells().ok()?;
        Some(Caller::new(pair.bell().ok()?, Bell(doorbell.at)))
    }

    fn sleeper(&self, pair: &Pair<'static>) -> Option<Sleeper<Mapping<'static>, Bed>> {
        let doorbell = pair.doorbell().filter(|_| !pair.sends())?;
        let arm = pair.arm().ok()?;
        // No role sleeps for more than one channel.
        let wakes = |pair: Pair<'_>| pair.doorbell().is_some() && !pair.sends();
        let channel = self.channels.iter().find(|channel| channel.pair().is_some_and(wakes));
        let bed = Bed::open(channel?);
        let bed = bed.map_err(|why| self.say(format_args!("it cannot sleep: {why}"))).ok()?;
        Some(Sleeper::new(arm, Bed::spin(doorbell), bed))
    }

    fn interrupts(&self, bed: &Bed) -> u64 {
        bed.interrupts().into()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn sleep_until(&self, nanos: u64) {
        std::thread::sleep(Duration::from_nanos(nanos.saturating_sub(self.now())));
    }

    fn say(&self, line: Arguments<'_>) {
        println!("bhchannel: {line}");
        // The next step can be the end of this sandbox.
        let _ = std::io::stdout().flush();
    }

    fn arg(&self, key: &str) -> Option<&'static str> {
        self.args.iter().find_map(|arg| arg.strip_prefix(key)?.strip_prefix('='))
    }

    /// Monitors' words of slots outlive a Linux: one that has had a slot has lived before.
    fn life(&self) -> u64 {
        self.slots().any(|slot| self.call(SLOT, slot.number.into(), 0) != 0).into()
    }

    fn restart(&self) {
        self.call(RESTART, 0, 0);
    }
}

// SAFETY: a link has mapped the slot and a page behind it, and stays.
unsafe impl Slots for Process {
    fn sandboxes(&self) -> [u32; 2] {
        self.info.map_or([0; 2], Slots::sandboxes)
    }

    fn slots(&self) -> impl Iterator<Item = Slot> {
        self.info.into_iter().flat_map(Slots::slots)
    }

    fn call(&self, number: u64, first: u64, second: u64) -> u64 {
        self.info.map_or(DENIED, |info| info.call(number, first, second))
    }

    fn base(&self, slot: &Slot) -> Option<NonNull<u8>> {
        self.links.borrow().iter().rev().find(|link| link.slot() == slot)?.base()
    }

    fn offer(&self, to: u32, tag: u16) -> Result<Slot, Refused> {
        self.keep(Link::offer(self.info()?, to as usize, tag))
    }

    fn accept(&self, slot: &Slot, epoch: u32) -> Result<(), Refused> {
        self.keep(Link::accept(self.info()?, slot, epoch)).map(drop)
    }

    fn close(&self, slot: &Slot) -> Result<(), Refused> {
        link::close(self.info()?, slot).map_err(|_| Refused::Nothing)
    }
}
