//! A disk through the wall: instructions of all cores for a request, by a number of threads. Two Linuxes have the
//! driver and the device side, with the module or `bhvirtio attach`, and `bhvirtio block`.

use super::Found;
use super::figure::Figure;
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

/// Reads of 16 KiB by ever more threads.
fn reads(disk: &str) -> String {
    let rows = LOADS.map(|(threads, count)| format!(" threads={threads} many16k={count}"));
    format!("bhio disk={disk}{}", rows.concat())
}

/// Command by which a Linux gets a disk in memory.
const RAMDISK: &str = "modprobe brd rd_nr=1 rd_size=65536";

/// From a disk in memory of the other one.
pub fn ramdisk() -> Found {
    let server = script(&format!("{RAMDISK}&&bhvirtio block lan /dev/ram0 --serial ram"));
    let client = script(&format!("bhvirtio disk sleep 4&&{}", reads("/dev/vda")));
    let ran = System::new("block", "block-ramdisk")
        .with("one", client)
        .with("two", server.clone())
        .run()?;
    let bare = System::new("tcp-loopback", "block-ramdisk-alone")
        .with("one", script(&format!("{RAMDISK}&&{}", reads("/dev/ram0"))))
        .run()?;
    // The way without our module, against the module's.
    let reads = reads("$DISK");
    let client = script(&format!("bhvirtio attach lan --ublk sh -c 'sleep 4&&{reads}'"));
    let program =
        System::new("block", "block-ublk").with("one", client).with("two", server).run()?;
    let mut figures = Vec::new();
    for (threads, _) in LOADS {
        let (wall, alone) = (Window::of(&ran.counts, threads)?, Window::of(&bare.counts, threads)?);
        let row = Row::new(&format!("block.ramdisk_{threads}"), "instructions", wall.all());
        figures.push(Figure::new(row.against(alone.all())).note(wall.note()));
        let ublk = Window::of(&program.counts, threads)?;
        let row = Row::new(&format!("block.ublk_{threads}"), "instructions", ublk.all());
        figures.push(Figure::new(row.against(wall.all())).note(ublk.note()));
    }
    Ok(figures)
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
