//! A disk through the wall: instructions of all cores for a request, by a number of threads. Two Linuxes have the
//! driver and the device side, with the module or `bhvirtio attach`, and `bhvirtio block`.

use super::Found;
use super::figure::{Figure, Must};
use super::system::{System, by_core};
use crate::Failure;
use crate::rows::Row;
use bulkhead_layout::marker::id;
use bulkhead_qemu::Counts;

/// Threads, and requests of all of them together.
const LOADS: [(u64, u64); 3] = [(1, 2_000), (4, 4_000), (16, 8_000)];
/// In an event's value: the requests end.
const ENDS: u64 = 1 << 63;

/// A program's arguments, or a script of simple commands, as one word of a kernel's command line.
pub(super) fn script(text: &str) -> String {
    format!("bulkhead.run=sh:-c,{}", text.replace(' ', "${IFS}"))
}

/// Reads by ever more threads, of 4 or of 16 KiB.
fn reads(disk: &str, kib: u32) -> String {
    let rows = LOADS.map(|(threads, count)| format!(" threads={threads} many{kib}k={count}"));
    format!("bhio disk={disk}{}", rows.concat())
}

/// Command by which a Linux gets a disk in memory.
const RAMDISK: &str = "modprobe brd rd_nr=1 rd_size=65536";

/// From a disk in memory of the other one.
pub fn ramdisk() -> Found {
    let server = script(&format!("{RAMDISK}&&bhvirtio block lan /dev/ram0 --serial ram"));
    let client = script(&format!("bhvirtio disk sleep 4&&{}", reads("/dev/vda", 16)));
    let ran = System::new("block", "block-ramdisk")
        .with("one", client.clone())
        .with("two", server.clone())
        .run()?;
    let looking = System::new("block", "block-adaptive")
        .changed("\"doorbell\"", "\"adaptive\"")
        .with("one", client)
        .with("two", server.clone())
        .run()?;
    let bare = System::new("tcp-loopback", "block-ramdisk-alone")
        .with("one", script(&format!("{RAMDISK}&&{}", reads("/dev/ram0", 16))))
        .run()?;
    // The way without our module, against the module's.
    let reads = reads("$DISK", 16);
    let client = script(&format!("bhvirtio attach lan --ublk sh -c 'sleep 4&&{reads}'"));
    let program =
        System::new("block", "block-ublk").with("one", client).with("two", server).run()?;
    let mut figures = Vec::new();
    for (threads, _) in LOADS {
        let (wall, alone) = (Window::of(&ran.counts, threads)?, Window::of(&bare.counts, threads)?);
        let row = Row::new(&format!("block.ramdisk_{threads}"), "instructions", wall.all());
        figures.push(Figure::new(row.against(alone.all())).note(wall.note()));
        let adaptive = Window::of(&looking.counts, threads)?;
        let row = Row::new(&format!("block.adaptive_{threads}"), "instructions", adaptive.all());
        figures.push(Figure::new(row.against(wall.all())).note(adaptive.note()));
        let ublk = Window::of(&program.counts, threads)?;
        let row = Row::new(&format!("block.ublk_{threads}"), "instructions", ublk.all());
        figures.push(Figure::new(row.against(wall.all())).note(ublk.note()));
    }
    Ok(figures)
}

/// Longest that a driver sandbox looks before it sleeps, microseconds.
const SPIN: u64 = 20;

/// Reads of 4 KiB from a disk in a driver sandbox, and from that disk in the Linux' own sandbox. The busiest core
/// counts: it bounds how many requests there can be in a second. It is the Linux' core. The driver sandbox looks for a
/// while before it sleeps (`adaptive`).
pub fn wall() -> Found {
    let client = script(&format!("bhvirtio disk sleep 4&&{}", reads("/dev/vda", 4)));
    let ran = System::new("store", "block-wall")
        .changed("\"doorbell\"", "\"adaptive\"")
        .changed("disk=first:0:0", format!("spin={SPIN} disk=first:0:0"))
        .with("one", client)
        .run()?;
    let alone = script(&format!("modprobe virtio_blk&&sleep 4&&{}", reads("/dev/vda", 4)));
    let direct = System::new("tcp-loopback", "block-direct")
        .changed("[\"uart1\"]", "[\"uart1\", \"pci:00:03.0\"]")
        .with("one", alone)
        .run()?;
    let mut figures = Vec::new();
    for (threads, _) in LOADS {
        let wall = Window::of(&ran.counts, threads)?;
        let direct = Window::of(&direct.counts, threads)?;
        let name = format!("block.wall_vs_direct_{threads}");
        let row = Row::new(&name, "instructions", wall.busiest()).against(direct.busiest());
        figures.push(Figure::new(row).note(wall.note()));
        if threads == 16 {
            figures.push(Figure::new(Row::new("exits.block_adaptive", "exits", wall.exits())));
        }
    }
    Ok(figures)
}

/// Exits for a read of a disk in a driver sandbox, one after the other: each side rings the other one.
pub fn doorbells() -> Found {
    let client = script("bhvirtio disk sleep 4&&bhio disk=/dev/vda threads=1 many4k=2000");
    let ran = System::new("store", "block-doorbell").with("one", client).run()?;
    let exits = Window::of(&ran.counts, 1)?.exits();
    let row = Row::new("exits.block_doorbell", "exits", exits);
    Ok(vec![Figure::new(row).must(Must::AtMost(2.0))])
}

/// Requests of so many threads, from the first to the last.
struct Window {
    requests: f64,
    /// Instructions of each core.
    cores: Vec<u64>,
    /// Exits of each core, by cause.
    exits: Vec<u64>,
}

impl Window {
    fn of(counts: &Counts, threads: u64) -> Result<Self, Failure> {
        let events = counts.events(id::IO_REQUESTS);
        let one = |ends: u64| {
            let is = |value: u64| value & ENDS == ends && (value & !ENDS) >> 32 == threads;
            let found = events.iter().find(|event| is(event.value));
            found.ok_or_else(|| format!("no requests of {threads} threads"))
        };
        let (begin, end) = (one(0)?, one(ENDS)?);
        let less = |all: &[u64], less: &[u64]| {
            all.iter().zip(less).map(|(all, less)| all - less).collect::<Vec<_>>()
        };
        Ok(Self {
            requests: f64::from(end.value as u32),
            cores: less(&end.cores, &begin.cores),
            exits: less(&by_core(&end.words), &by_core(&begin.words)),
        })
    }

    /// Instructions of the core that has most, for a request.
    fn busiest(&self) -> f64 {
        self.cores.iter().max().copied().unwrap_or(0) as f64 / self.requests
    }

    /// Exits of all cores for a request.
    fn exits(&self) -> f64 {
        self.exits.iter().sum::<u64>() as f64 / self.requests
    }

    /// Instructions of all cores for a request.
    fn all(&self) -> f64 {
        self.cores.iter().sum::<u64>() as f64 / self.requests
    }

    fn note(&self) -> String {
        let each = |of: &[u64]| -> Vec<String> {
            of.iter().map(|n| format!("{:.2}", *n as f64 / self.requests)).collect()
        };
        format!(
            "a request: instructions of the cores {}, exits {}",
            each(&self.cores).join(" and "),
            each(&self.exits).join(" and ")
        )
    }
}
