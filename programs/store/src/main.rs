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
//! * `trespass=1`: before it serves, it tells the disk to write to memory that the disk must not reach.
//!
//! It needs the function, memory `rings` for the device, and the notification `work`, which the device's interrupt and
//! the clients' doorbells signal. Without doorbells it looks all the time.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod disk;

use bulkhead_disks::Wrong;
use bulkhead_program::bell::{Port, SLEEP, caller};
use bulkhead_program::channel::adaptive::Spin;
use bulkhead_program::channel::{Bytes, Memory};
use bulkhead_program::typed::Mapping;
use bulkhead_program::{FOREVER, Handler, Notification, Program, now, println, ready, wait_until};
use bulkhead_store::disk::{Disk, Operation, Request};
use bulkhead_store::{Client, News, Sections, Share, Store, Terms};
use bulkhead_virtio::layout::POOL;
use core::fmt;
use disk::AnyDisk;

bulkhead_program::entry!(store);

/// Clients, at most.
const CLIENTS: usize = 8;
/// Nanoseconds that a request may take at the disk before that is reset.
const PATIENCE: u64 = 5_000_000_000;
/// Name of the memory for the device, and of the notification.
const RINGS: &str = "rings";
const WORK: &str = "work";

type Clients = Store<Mapping<'static>, Port, CLIENTS>;

fn store(program: Program) -> u32 {
    match serve(program) {
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

fn serve(program: Program) -> Result<(), Why> {
    let mut disk = AnyDisk::open(program, RINGS).map_err(Why::Disk)?;
    let info = *disk.info();
    println!("{}: {} sectors", program.name(), info.sectors);
    let number = |name, default| program.number(name).unwrap_or(default);
    let terms = Terms {
        share: number("share", 8) as u16,
        queues: number("queues", 1) as usize,
        patience: PATIENCE,
    };
    let mut clients = Clients::new(terms);
    let (mut woken, mut adaptive, mut names) = (false, false, [""; CLIENTS]);
    for (n, asked) in asked(program, info.sectors).enumerate() {
        let Asked { name, share } = asked.ok_or("an argument `disk=` makes no sense")?;
        let (pair, bus) = program.pair_for_device(name);
        let (mine, theirs, len) = (*pair.rx(), *pair.tx(), pair.shape().tx_bytes().unwrap_or(0));
        let sections = Sections { mine, theirs, len, bus };
        let [_, bell] = pair.doorbells();
        woken |= bell.is_some();
        adaptive |= bell.is_some_and(|bell| bell.adaptive);
        let client = Client::open(sections, &info, share, name, terms.queues, caller(&pair))
            .map_err(|_| "a part is not on the disk, or its channel is too small")?;
        if !clients.add(client) {
            return Err("too many clients".into());
        }
        names[n] = name;
    }
    if program.number("trespass").is_some() {
        trespass(program, &mut disk, names[0])?;
    }
    let sleep = woken.then(|| Sleep {
        work: program.waits(WORK),
        handler: program.interrupt(WORK),
        spin: match adaptive {
            true => Spin::new(number("spin", SLEEP / 1_000) * 1_000),
            false => Spin::NEVER,
        },
    });
    ready();
    run(program, &mut disk, &mut clients, &names, sleep)
}

/// Where it sleeps, and how long it looks before.
struct Sleep {
    work: Notification,
    handler: Handler,
    spin: Spin,
}

fn run(
    program: Program,
    disk: &mut AnyDisk,
    clients: &mut Clients,
    names: &[&str; CLIENTS],
    mut sleep: Option<Sleep>,
) -> Result<(), Why> {
    let round = |clients: &mut Clients, disk: &mut AnyDisk| {
        let mut news = |client: usize, news: News| {
            let said = match news {
                News::Begun(_) => "begins",
                News::Lost => "is gone",
                News::Corrupted => "wrote what cannot be",
            };
            println!("{}: {} {said}", program.name(), names[client]);
        };
        let busy = clients.round(disk, now(), &mut news);
        let dead = Why::Text("the disk does not answer, and cannot be reset");
        busy.map_err(|_| disk.fault().map_or(dead, Why::Disk))
    };
    loop {
        if round(clients, disk)? {
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
            found = round(clients, disk)?;
        }
        if found {
            sleep.spin.learn(now() - begun);
            continue;
        }
        // The requests to be woken, then one more look: what comes after that look rings.
        let _ = sleep.handler.acknowledge();
        disk.interrupts(true);
        clients.arm(true);
        let mut ticks = 0;
        if !round(clients, disk)? {
            let until = if clients.under_way() > 0 { now() + PATIENCE } else { FOREVER };
            wait_until(sleep.work, until).map_err(|_| "it cannot wait for its notification")?;
            ticks = SLEEP;
        }
        clients.arm(false);
        disk.interrupts(false);
        sleep.spin.learn((now() - begun).saturating_sub(ticks));
    }
}

/// Lets the disk write to memory that it must not reach: the client's section, both headers, the kernel. No memory that
/// the program sees there may have the disk's first words afterwards. A write to its own section comes first, and shows
/// that the disk writes.
fn trespass(program: Program, disk: &mut AnyDisk, name: &str) -> Result<(), Why> {
    const KERNEL: u64 = 2 << 20;
    /// Nanoseconds in which a write that is not refused would be done.
    const LONG: u64 = 100_000_000;
    let (pair, bus) = program.pair_for_device(name);
    let len = pair.shape().tx_bytes().unwrap_or(0) as u64;
    let mut write = |address: u64| -> Result<(), Why> {
        let request = Request { tag: 0, operation: Operation::Read, sector: 0, address, len: 512 };
        disk.submit(&request).map_err(|_| "the disk is full")?;
        disk.ring();
        let due = now() + LONG;
        while disk.completed().is_none() {
            if now() > due {
                // A device that was refused memory may do nothing until its reset.
                return disk.reset().map_err(|_| "it cannot be reset".into());
            }
        }
        Ok(())
    };
    let words = |section: &Mapping<'static>, at: usize| {
        let bytes = section.bytes(at, 512);
        bytes.map_or([0; 64], |bytes| core::array::from_fn(|n| bytes.word(8 * n)))
    };
    write(bus + len + POOL as u64)?;
    let disks = words(pair.rx(), POOL);
    if disks.contains(&0) {
        return Err("the disk does not write to its own section, or begins with zeros".into());
    }
    let mut reached = 0;
    for (address, section, at) in [
        (bus + POOL as u64, pair.tx(), POOL),
        (bus + POOL as u64 - 512, pair.tx(), POOL - 512),
        (bus, pair.tx(), 0),
        (bus + len, pair.rx(), 0),
        (KERNEL, pair.tx(), POOL),
    ] {
        write(address)?;
        let there = words(section, at);
        reached += there.iter().zip(&disks).filter(|(now, disk)| now == disk).count();
    }
    let how = if reached == 0 { "none" } else { "not none" };
    println!("{}: tried 5 places that are not the disk's, reached {how}", program.name());
    disk.reset().map_err(|_| "it cannot be reset".into())
}
