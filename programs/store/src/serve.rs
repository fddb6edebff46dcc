//! Drives a disk, and serves it to clients in other sandboxes, each by a channel of kind `virtio` (docs/store.md).
//!
//! Arguments:
//!
//! * `disk=CHANNEL:FIRST:SECTORS`, or `disk=CHANNEL:FIRST:SECTORS:ro`: a client, and its part of the disk in sectors of
//!   512 bytes; 0 sectors are all from `FIRST` on. One for each channel;
//! * `share=N` (default 8): most requests of a client in a round;
//! * `queues=N` (default 1): queues of each client's device;
//! * `spin=MICROSECONDS` (default 2): longest time that it looks before it sleeps, where the channels are `adaptive`;
//! * `port=N` (default 0): port of the disk, if the function is an AHCI controller;
//! * `complaint=MS` (default 1000): how long it must have run before it believes a client that its answers cannot be.
//!
//! It needs the function, memory `rings` for the device, and the notification `work`, which the device's interrupt and
//! the clients' doorbells signal. Without doorbells it looks all the time.
//!
//! With memory `progress` it has a guard ([`crate::progress`]), which lets the whole sandbox begin anew. Then it ends
//! itself wherever its own state or the disk's cannot be trusted any more. The disk names something impossible or
//! answers a request of nobody's, or a client finds an impossible answer. It mends nothing, because it cannot know
//! what else is wrong.

use crate::disk::AnyDisk;
use crate::progress::Progress;
use bulkhead_disks::Wrong;
use bulkhead_program::bell::{Port, SLEEP};
use bulkhead_program::channel::adaptive::Spin;
use bulkhead_program::typed::Mapping;
use bulkhead_program::{
    FOREVER, Guest, Handler, Notification, Program, now, println, ready, wait_until,
};
use bulkhead_store::disk::{Disk, Failed, Full, Info, Request};
use bulkhead_store::{Client, News, Sections, Share, Store, Terms};
use core::fmt;

/// Clients, at most.
pub const CLIENTS: usize = 8;
/// Nanoseconds that a request may take at the disk before that is reset.
const PATIENCE: u64 = 5_000_000_000;
/// Name of the memory for the device, and of the notification.
pub const RINGS: &str = "rings";
const WORK: &str = "work";

type Clients = Store<Mapping<'static>, Port, CLIENTS>;

/// Longest time that the disk's reset takes, ns.
const RESET: u64 = 8_000_000_000;

/// A disk that its driver knows to be sound, or not.
pub trait Driven: Disk {
    /// Returns why the disk is silent, if it is.
    fn fault(&self) -> Option<Wrong>;
    /// Looks if the disk says that it has failed.
    fn check(&mut self);
}

/// A client's channel.
pub type Channel = Sections<Mapping<'static>>;

/// Serves the clients. `wrap` has the disk after its reset, and the clients' channels before the first word there. A
/// test's program puts a disk of its own around it.
pub fn store<D: Driven>(
    program: Program,
    wrap: impl FnOnce(AnyDisk, [Option<Channel>; CLIENTS]) -> D,
) -> u32 {
    match serve(program, wrap) {
        Ok(()) => 0,
        Err(why) => {
            println!("{}: {why}", program.name());
            1
        }
    }
}

/// Reason why the program ends.
enum Why {
    /// The manifest's, or a client's.
    Text(&'static str),
    /// The disk's.
    Disk(Wrong),
    /// A client's, by its channel.
    Client(&'static str),
}

impl From<&'static str> for Why {
    fn from(text: &'static str) -> Self {
        Self::Text(text)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Disk(wrong) => wrong.fmt(f),
            Self::Client(name) => write!(f, "{name} has given up on its device"),
        }
    }
}

/// A client as the arguments have it.
struct Asked {
    name: &'static str,
    share: Share,
}

/// The arguments `disk=`, in their order.
fn asked(program: Program, sectors: u64) -> impl Iterator<Item = Option<Asked>> {
    let words = program.args().split_ascii_whitespace();
    words.filter_map(|word| word.strip_prefix("disk=")).map(move |text| {
        let mut parts = text.split(':');
        let name = parts.next()?;
        let first = parts.next()?.parse().ok()?;
        let count = match parts.next()?.parse().ok()? {
            0 => sectors.checked_sub(first)?,
            count => count,
        };
        let read_only = match parts.next() {
            None => false,
            Some("ro") => true,
            Some(_) => return None,
        };
        let share = Share { first, sectors: count, read_only };
        parts.next().is_none().then_some(Asked { name, share })
    })
}

fn serve<D: Driven>(
    program: Program,
    wrap: impl FnOnce(AnyDisk, [Option<Channel>; CLIENTS]) -> D,
) -> Result<(), Why> {
    let progress = Progress::find(program);
    let busy = |nanos| progress.iter().for_each(|progress| progress.busy(nanos));
    // Its reset is over before a word is said at a channel: no page of a section is used again before that.
    busy(RESET);
    let disk = AnyDisk::open(program, RINGS).map_err(Why::Disk)?;
    busy(0);
    let info = *disk.info();
    println!("{}: {} sectors", program.name(), info.sectors);
    let number = |name, default| program.number(name).unwrap_or(default);
    let terms = Terms {
        share: number("share", 8) as u16,
        queues: number("queues", 1) as usize,
        patience: PATIENCE,
    };
    let mut channels = [const { None }; CLIENTS];
    for (n, asked) in asked(program, info.sectors).enumerate() {
        let name = asked.ok_or("an argument `disk=` makes no sense")?.name;
        *channels.get_mut(n).ok_or("too many clients")? = Some(channel(program, name));
    }
    let mut disk = Watched { disk: wrap(disk, channels), progress };
    let mut clients = Clients::new(terms);
    let (mut woken, mut adaptive, mut names) = (false, false, [""; CLIENTS]);
    for (n, asked) in asked(program, info.sectors).flatten().enumerate() {
        let Asked { name, share } = asked;
        let pair = program.pair(name);
        let [_, bell] = pair.doorbells();
        woken |= bell.is_some();
        adaptive |= bell.is_some_and(|bell| bell.adaptive);
        let sections = channel(program, name);
        let client =
            Client::open(sections, &info, share, name, terms.queues, program.caller(&pair))
                .map_err(|_| "a part is not on the disk, or its channel is too small")?;
        if !clients.add(client) {
            return Err("too many clients".into());
        }
        names[n] = name;
    }
    let sleep = woken.then(|| Sleep {
        work: program.waits(WORK),
        handler: program.interrupt(WORK),
        spin: match adaptive {
            true => Spin::new(number("spin", SLEEP / 1_000) * 1_000),
            false => Spin::NEVER,
        },
    });
    // A guard says so itself, when it has heard the first answer.
    if disk.progress.is_none() {
        ready();
    }
    let believes = now().saturating_add(number("complaint", 1_000).saturating_mul(1_000_000));
    Server { program, disk: &mut disk, clients: &mut clients, names, believes }.run(sleep)
}

/// Returns the sections of a client's channel.
#[must_use]
pub fn channel(program: Program, name: &str) -> Channel {
    let (pair, bus) = program.pair_for_device(name);
    let len = pair.shape().tx_bytes().unwrap_or(0);
    Sections { mine: *pair.rx(), theirs: *pair.tx(), len, bus }
}

/// A disk with a driver that says when it waits for it.
struct Watched<D> {
    disk: D,
    progress: Option<Progress>,
}

impl<D: Driven> Disk for Watched<D> {
    fn info(&self) -> &Info {
        self.disk.info()
    }
    fn submit(&mut self, request: &Request) -> Result<(), Full> {
        self.disk.submit(request)
    }
    fn ring(&mut self) {
        self.disk.ring();
    }
    fn completed(&mut self) -> Option<(u16, Result<(), Failed>)> {
        self.disk.completed()
    }
    fn interrupts(&mut self, wanted: bool) {
        self.disk.interrupts(wanted);
    }
    fn reset(&mut self) -> Result<(), Failed> {
        if let Some(progress) = &self.progress {
            progress.busy(RESET);
        }
        let done = self.disk.reset();
        if let Some(progress) = &self.progress {
            progress.busy(0);
        }
        done
    }
}

/// Where it sleeps, and how long it looks before.
struct Sleep {
    work: Notification,
    handler: Handler,
    spin: Spin,
}

struct Server<'a, D> {
    program: Program,
    disk: &'a mut Watched<D>,
    clients: &'a mut Clients,
    names: [&'static str; CLIENTS],
    /// Time from which on a client's complaint ends the driver.
    believes: u64,
}

impl<D: Driven> Server<'_, D> {
    fn run(&mut self, mut sleep: Option<Sleep>) -> Result<(), Why> {
        loop {
            if self.round()? {
                continue;
            }
            let Some(sleep) = &mut sleep else {
                core::hint::spin_loop();
                continue;
            };
            let begun = now();
            let mut found = false;
            while !found && now() - begun < sleep.spin.time() {
                core::hint::spin_loop();
                found = self.round()?;
            }
            if found {
                sleep.spin.learn(now() - begun);
                continue;
            }
            // The requests to be woken, then one more look: what comes after that look rings.
            let _ = sleep.handler.acknowledge();
            self.disk.interrupts(true);
            self.clients.arm(true);
            let mut ticks = 0;
            if !self.round()? {
                let until = if self.clients.under_way() > 0 { now() + PATIENCE } else { FOREVER };
                wait_until(sleep.work, until).map_err(|_| "it cannot wait for its notification")?;
                ticks = SLEEP;
            }
            self.clients.arm(false);
            self.disk.interrupts(false);
            sleep.spin.learn((now() - begun).saturating_sub(ticks));
        }
    }

    /// A round, and a look whether all is sound. Returns true if there was anything to do.
    fn round(&mut self) -> Result<bool, Why> {
        let (program, names) = (self.program, &self.names);
        if self.disk.progress.as_ref().is_some_and(Progress::answer) {
            self.disk.disk.check();
        }
        let mut news = |client: usize, news: News| {
            let said = match news {
                News::Begun(_) => "begins",
                News::Lost => "is gone",
                News::Corrupted => "wrote what cannot be",
            };
            println!("{}: {} {said}", program.name(), names[client]);
        };
        let busy = self.clients.round(self.disk, now(), &mut news).map_err(|_| {
            let dead = Why::Text("the disk does not answer, and cannot be reset");
            self.disk.disk.fault().map_or(dead, Why::Disk)
        })?;
        let complaint = self.clients.complaint();
        if self.disk.progress.is_none() {
            complaint.into_iter().for_each(|client| self.clients.renew(client));
            return Ok(busy);
        }
        if let Some(wrong) = self.disk.disk.fault() {
            return Err(Why::Disk(wrong));
        }
        if self.clients.strays() > 0 {
            return Err("the disk answers a request of nobody's".into());
        }
        match complaint {
            Some(client) if now() >= self.believes => Err(Why::Client(self.names[client])),
            Some(client) => {
                println!("{}: {} gets its device anew", program.name(), self.names[client]);
                self.clients.renew(client);
                Ok(true)
            }
            None => Ok(busy),
        }
    }
}
