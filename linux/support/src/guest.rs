//! A process of a Linux as the environment of code for all guests. Its mappings stay, also when it is closed, so
//! that tests see what comes of that.

use crate::arch::{Architecture, This};
use crate::bell::{self, Bed};
use crate::channel::{Channel, named};
use crate::devmem::Info;
use crate::link::{self, Link, Links, Mapped, Refused};
use bulkhead_channel::bell::Ring;
pub use bulkhead_channel_memory::guest::Guest;
use bulkhead_channel_memory::typed::{Doorbell, Pair};
use bulkhead_guest::{Here, Instructions};
use bulkhead_layout::hypercall::{DENIED, LOOK, RESTART};
use std::cell::RefCell;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// A process.
#[derive(Debug)]
pub struct Process {
    begun: Instant,
    args: &'static str,
    /// Ends of channels that it has opened.
    channels: RefCell<Vec<&'static Channel>>,
    /// Page of the sandbox, if it uses links.
    pub info: Option<&'static Info>,
    /// Links that it has mapped.
    mapped: RefCell<Vec<&'static Mapped<'static>>>,
}

impl Process {
    /// Makes one of arguments `key=value`.
    #[must_use]
    pub fn new(args: &[&str]) -> Self {
        let (channels, mapped) = Default::default();
        Self { begun: Instant::now(), args: args.join(" ").leak(), channels, info: None, mapped }
    }

    /// Opens the ends of a channel, and keeps them.
    fn open(&self, name: &str) -> io::Result<Vec<&'static Channel>> {
        let ends: Vec<_> = named(name)?
            .iter()
            .map(|end| end.open().map(Channel::stay))
            .collect::<io::Result<_>>()?;
        self.channels.borrow_mut().extend(&ends);
        Ok(ends)
    }

    fn info(&self) -> Result<&'static Info, Refused> {
        self.info.ok_or(Refused::Nothing)
    }

    /// Keeps it mapped.
    fn keep(&self, mapped: io::Result<Mapped<'static>>) -> Result<Link, Refused> {
        let mapped = mapped.map_err(|why| match why.kind() {
            ErrorKind::ResourceBusy => Refused::Busy,
            ErrorKind::PermissionDenied => Refused::Denied,
            _ => Refused::Nothing,
        })?;
        let link = *mapped.link();
        self.mapped.borrow_mut().push(mapped.stay());
        Ok(link)
    }
}

/// A doorbell to ring by its number: channels ring by the register, so that tests see both.
#[derive(Debug)]
pub struct Bell(u16);

impl Ring for Bell {
    fn ring(&mut self) {
        Here::ring(self.0);
    }
}

impl Guest for Process {
    type Ring = Bell;
    type Bed = Bed;

    fn name(&self) -> &str {
        "bhchannel"
    }

    fn args(&self) -> &'static str {
        self.args
    }

    fn pairs(&self, name: &str) -> impl Iterator<Item = Pair<'static>> {
        let opened = self.open(name).inspect_err(|why| self.say(format_args!("{name}: {why}")));
        opened.into_iter().flatten().filter_map(|channel| channel.pair())
    }

    fn ring(&self, doorbell: Doorbell) -> Option<Bell> {
        This::allow_bells().ok()?;
        Some(Bell(doorbell.at))
    }

    fn bed(&self, doorbell: Doorbell) -> Option<Bed> {
        let channels = self.channels.borrow();
        let wakes = |pair: Pair<'_>| pair.doorbells()[1] == Some(doorbell);
        let channel = channels.iter().find(|channel| channel.pair().is_some_and(wakes));
        let bed = Bed::open(channel?);
        bed.inspect_err(|why| self.say(format_args!("it cannot sleep: {why}"))).ok()
    }

    fn cost(&self) -> u64 {
        bell::SLEEP
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
        println!("{}: {line}", self.name());
        // The next step can be the end of this sandbox.
        let _ = std::io::stdout().flush();
    }

    /// Monitors' words of links outlive a Linux: one that has had a link has lived before.
    fn life(&self) -> u64 {
        self.links().any(|link| self.call(LOOK, link.number.into(), 0) != 0).into()
    }

    fn restart(&self) {
        self.call(RESTART, 0, 0);
    }
}

// SAFETY: a `Mapped` has the link and a page behind it, and stays.
unsafe impl Links for Process {
    fn sandboxes(&self) -> [u32; 2] {
        self.info.map_or([0; 2], Links::sandboxes)
    }

    fn links(&self) -> impl Iterator<Item = Link> {
        self.info.into_iter().flat_map(Links::links)
    }

    fn call(&self, number: u64, first: u64, second: u64) -> u64 {
        self.info.map_or(DENIED, |info| info.call(number, first, second))
    }

    fn base(&self, link: &Link) -> Option<NonNull<u8>> {
        self.mapped.borrow().iter().rev().find(|mapped| mapped.link() == link)?.base()
    }

    fn offer(&self, to: u32, tag: u16) -> Result<Link, Refused> {
        self.keep(Mapped::offer(self.info()?, to as usize, tag))
    }

    fn accept(&self, link: &Link, epoch: u32) -> Result<(), Refused> {
        self.keep(Mapped::accept(self.info()?, link, epoch)).map(drop)
    }

    fn close(&self, link: &Link) -> Result<(), Refused> {
        link::close(self.info()?, link).map_err(|_| Refused::Nothing)
    }
}
