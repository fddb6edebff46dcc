//! Linux with a disk and a network card of its own: exits, what a request costs, and
//! whether the flight controller beside it notices.

use super::Found;
use super::figure::{Figure, Must};
use super::flight::{ALONE, alone, releases};
use super::linux::spans;
use super::system::{System, by_cause, event};
use crate::Failure;
use crate::rows::Row;
use crate::selftest;
use bulkhead_layout::marker::id;
use bulkhead_layout::report::CAUSE_NAMES;
use bulkhead_qemu::counts::Distribution;
use bulkhead_qemu::{Counts, Peer};
use std::collections::BTreeMap;

/// Everything that the figures of exits are about, in amounts of some seconds. The first part makes each queue signal
/// once: Linux sets a vector's core at its first interrupt, with seven accesses to the MSI-X table.
const LOAD: &str =
    "disk=/dev/vda,rand4k=100,udp=100,tcp=1,start=here,sysbench=300,iperf3=8,stress-ng=10";
/// Last line of `bhio`.
const END: &str = "bhio: done";
/// A disk without a file, so that the host's own does not matter.
const DISK: &str = "/dev/vdb";

/// Requests: a read of 4 KiB, of 1 MiB, a datagram there and back, 64 KiB of a stream. Each comes with the one of many
/// that counts. A request that is alone has a smallest one. Requests of a stream overlap: an acknowledgement that came
/// late spares one of them its part, so the first percentile counts.
const ROWS: [(u16, &str, One); 4] = [
    (id::IO_BLK_RAND4K, "blk_rand4k", |all| all.min),
    (id::IO_BLK_SEQ1M, "blk_seq1m", |all| all.min),
    (id::IO_NET_UDP, "net_udp", |all| all.min),
    (id::IO_NET_TCP, "net_tcp", |all| all.p1),
];
/// Choice of one request among many.
type One = fn(&Distribution) -> u64;

/// A machine by its IOMMU.
pub struct Unit {
    /// Description of the machine.
    machine: &'static str,
    /// Beginning of its rows' names, behind their group.
    prefix: &'static str,
}

/// AMD's IOMMU.
pub const AMD_VI: Unit = Unit { machine: "qemu-q35", prefix: "" };
/// Intel's.
pub const VT_D: Unit = Unit { machine: "qemu-q35-vtd", prefix: "vtd_" };

impl Unit {
    fn row(&self, group: &str, name: &str, unit: &str, value: u64) -> Row {
        Row::new(&format!("{group}.{}{name}", self.prefix), unit, value as f64)
    }

    /// A system on this machine, with a folder of its own.
    fn system(&self, manifest: &'static str, dir: &str) -> System {
        System::new(manifest, format!("{dir}-{}", self.machine)).on(self.machine)
    }
}

/// A peer, and a job for `bhio` that knows it.
fn job(dir: &str, work: &str) -> Result<(Peer, String), Failure> {
    let mut peer = Peer::start()?;
    peer.iperf3(&crate::build::target().join("bench").join(dir))?;
    let arguments = peer.arguments().join(",");
    Ok((peer, format!("bulkhead.run=bhio:{arguments},{work}")))
}

/// One core: no exit at all.
pub fn exits() -> Found {
    let (_peer, job) = job("io", LOAD)?;
    let ran = System::new("io", "io").with("linux", job).coarse().run()?;
    let seen = steady(&ran.counts)?;
    let boot = boot(&ran.counts)?;
    let all: u64 = seen.exits.values().sum();
    let row = Row::new("exits.linux_io", "exits/s", all as f64 / seen.seconds);
    Ok(vec![Figure::new(row).must(Must::AtMost(0.0)).note(seen.note()), boot])
}

/// Two cores: nothing but their own interrupts to one another.
pub fn exits_smp() -> Found {
    let (_peer, job) = job("io-smp", LOAD)?;
    let ran = System::new("io-smp", "io-smp").with("linux", job).coarse().run()?;
    let seen = steady(&ran.counts)?;
    let ipis = seen.exits.get("ipi").copied().unwrap_or(0);
    let others = seen.exits.values().sum::<u64>() - ipis;
    let row = |name, exits: u64| Row::new(name, "exits/s", exits as f64 / seen.seconds);
    Ok(vec![
        Figure::new(row("exits.linux_io_smp_ipi", ipis)).note(seen.note()),
        Figure::new(row("exits.linux_io_smp", others)).must(Must::AtMost(0.0)).note(seen.note()),
    ])
}

/// Events between a load's start and its end.
struct Steady {
    exits: BTreeMap<&'static str, u64>,
    seconds: f64,
}

impl Steady {
    fn note(&self) -> String {
        format!("{:?} in {:.1} s", self.exits, self.seconds)
    }
}

/// By the monitors' own counters. Both events come from the core that `bhio` happens
/// to be on.
fn steady(counts: &Counts) -> Result<Steady, Failure> {
    let one = |which| -> Result<_, Failure> {
        let found = counts.events(which).into_iter().next();
        found.ok_or_else(|| format!("no event {which:#x}: bhio did not get so far").into())
    };
    let (start, finish) = (one(id::START)?, one(id::FINISH)?);
    let (before, after) = (by_cause(&start.words), by_cause(&finish.words));
    let exits = CAUSE_NAMES
        .into_iter()
        .zip(after.iter().zip(before).map(|(after, before)| after - before))
        .filter(|(_, exits)| *exits != 0)
        .collect();
    let seconds = (finish.value - start.value) as f64 / 1e9;
    Ok(Steady { exits, seconds })
}

/// From launch until disk and network are ready for the first program.
fn boot(counts: &Counts) -> Result<Figure, Failure> {
    let at = |which| event(counts, which, 0);
    let (launch, user, ready) = (at(id::LAUNCH)?, at(id::USER)?, at(id::ROOT)?);
    let row = Row::new("exits.linux_boot_io", "exits", (ready.vmruns - launch.vmruns) as f64);
    let note = format!(
        "until root and network are up; {} until user space, before the drivers",
        user.vmruns - launch.vmruns
    );
    Ok(Figure::new(row).must(Must::AtMost(2_500.0)).note(note))
}

/// Measures one request of each kind, in a sandbox and on the bare machine: the smallest of many, or nearly so. The
/// host's time to answer decides whether Linux goes idle meanwhile, and how often it looks after its queues. The
/// smallest request found everything ready, in both places. A row of its own says that no request had an exit in it.
pub fn requests(unit: &Unit) -> Found {
    let work = format!("disk={DISK},rand4k=2000,seq1m=4000,udp=2000,tcp=128");
    let (_peer, job) = job(&format!("io-rows-{}", unit.machine), &work)?;
    let system = unit.system("io", "io-rows").with("linux", job);
    let ran = system.run()?;
    let (bare, _) = system.run_bare(END)?;
    let (mut figures, mut monitor, mut all) = (Vec::new(), 0, 0);
    for (id, name, one) in ROWS {
        let (value, baseline) = (spans(&ran.counts, id, name)?, spans(&bare, id, name)?);
        (monitor, all) = (monitor + value.privileged, all + value.n);
        let row = unit.row("io", name, "instructions", one(&value));
        let row = row.against(one(&baseline) as f64);
        let note = format!(
            "of {} and {}; smallest {} and {}, first percentiles {} and {}, medians {} and {}",
            value.n,
            baseline.n,
            value.min,
            baseline.min,
            value.p1,
            baseline.p1,
            value.median,
            baseline.median
        );
        figures.push(Figure::new(row).must(Must::Ratio(0.99, 1.01)).note(note));
    }
    let row = unit.row("io", "monitor", "instructions", monitor);
    let note = format!("of the monitor in {all} requests");
    figures.push(Figure::new(row).must(Must::AtMost(0.0)).note(note));
    Ok(figures)
}

/// Measures the time from the access that makes a device raise its interrupt to the handler, in a bare guest and on the
/// bare machine.
pub fn interrupt(unit: &Unit) -> Found {
    const ROUNDS: u64 = 200;
    const NAME: &str = "irq_to_handler";
    let system = || unit.system("irq", "irq").with("irq", format!("rounds={ROUNDS}")).one_core();
    let ran = system().run()?;
    let (bare, _) = system().with("irq", "bare").run_bare("irq: done")?;
    let (value, baseline) =
        (spans(&ran.counts, id::IO_IRQ, NAME)?, spans(&bare, id::IO_IRQ, NAME)?);
    if (value.n, baseline.n) != (ROUNDS, ROUNDS) {
        return Err(format!("{} and {} interrupts, not {ROUNDS}", value.n, baseline.n).into());
    }
    let row = unit.row("io", NAME, "instructions", value.median).against(baseline.median as f64);
    let note = format!(
        "{} to {}, bare {} to {}, in {ROUNDS} rounds",
        value.min, value.max, baseline.min, baseline.max
    );
    let exits = unit.row("exits", NAME, "exits", value.vmruns);
    let monitor = format!("and {} instructions of the monitor", value.privileged);
    Ok(vec![
        Figure::new(row).must(Must::Ratio(1.0, 1.0)).note(note),
        Figure::new(exits).must(Must::AtMost(0.0)).note(monitor),
    ])
}

/// The flight controller's worst jitter beside all that.
pub fn jitter() -> Found {
    const SECONDS: u64 = 10;
    const LINUX: u64 = 0;
    let idle = releases(&alone("flight-io-alone")?, ALONE)?;
    let (_peer, job) =
        job("io-loaded", "sysbench=50,iperf3=1,stress-ng=1,sysbench=99999,iperf3=9999")?;
    let loaded = System::new("io-loaded", "io-loaded")
        .with("flight", format!("seconds={SECONDS}"))
        .with("linux", job)
        .precise()
        .run()?;
    let busy = releases(&loaded, SECONDS)?;
    let begun = event(&loaded.counts, id::START, LINUX)?.instructions;
    let work = loaded.counts.instructions(LINUX, None) - begun;
    let row = Row::new("flight.jitter_io", "ns", busy.0.max as f64).against(idle.0.max as f64);
    Ok(vec![Figure::new(row).must(Must::Above(selftest::BUSY[0] as f64)).note(format!(
        "{}; {} missed; beside {:.1} G instructions of Linux's load",
        busy.1,
        busy.2,
        work as f64 / 1e9
    ))])
}
