//! Attacks of a Linux that ran before its monitor, as root and in its kernel. They are on memory of the block, on cores
//! of others, and on its own confinement. `flight` goes on in all of them, and the Linux' record names each.

use super::super::driver::{Bench, Job};
use super::super::system::artifacts;
use super::{Kind, Linux, block, checked, start};
use bulkhead_explain::{Explained, SandboxSnapshot, explain, sandbox};
use bulkhead_image::Baked;
use bulkhead_layout::report::State;
use bulkhead_qemu::Running;
use std::time::Duration;

const CORES: usize = 2;
/// The first sandbox, as this system has it under a Linux, which is the last one.
const FLIGHT: usize = 0;

fn ground(baked: &Baked) -> usize {
    baked.plan.sandboxes.len() - 1
}

/// Cores of its machine.
fn cores(machine: Kind) -> usize {
    match machine {
        Kind::Gives | Kind::Again => CORES + 1,
        _ => CORES,
    }
}
const LIMIT: Duration = Duration::from_secs(100);

/// A record: its condition and its address.
type Record = (&'static str, u64);

/// An attack in the kernel that its Linux outlives: its name, the result of it, its record.
type Act = (&'static str, i64, Option<Record>);

const EIO: i64 = -5;
/// The other core's ID in an interrupt command.
const CORE: u64 = 1 << 32;

const ACTS: &[Act] = &[
    ("ipi", 0, Some(("ipi-destination", CORE | 0x4070))),
    ("ipi-logical", 0, Some(("ipi-destination", 2 << 32 | 0x4870))),
    ("nmi", 0, Some(("ipi-destination", CORE | 0x4400))),
    ("init", 0, Some(("ipi-destination", CORE | 0x4500))),
    ("sipi", 0, Some(("ipi-destination", CORE | 0x4608))),
    ("nmi-to-all", 0, Some(("ipi-shorthand", 0x8_4C00))),
    ("smi", 0, Some(("ipi-mode", CORE | 0x4200))),
    ("vmrun", 1, Some(("instruction", 0x80))),
    ("vmload", 1, Some(("instruction", 0x82))),
    ("vmsave", 1, Some(("instruction", 0x83))),
    ("stgi", 1, Some(("instruction", 0x84))),
    ("clgi", 1, Some(("instruction", 0x85))),
    ("svme-clear", 0, None),
    ("svme-set", EIO, Some(("msr-write", 0xC000_0080))),
    ("hsave", EIO, Some(("msr-write", 0xC001_0117))),
    ("apic-base", EIO, Some(("msr-write", 0x1B))),
    // Other sandboxes run.
    ("release", -4, None),
    ("port-fw-cfg", 0xFF, None),
    ("port-fast-reset", 0, None),
    ("port-reset", 0, None),
    ("port-keyboard", 0, None),
    ("port-power", 0, None),
    ("port-smi", 0, None),
];

/// Attacks by devices, where the IOMMU confines them. Two name a place.
const DEVICES: &[Act] = &[
    // It reaches own memory.
    ("edu-own", 1, None),
    ("edu-dma", 0, None),
    ("edu-msi", 0, Some(("device-write", 0xB004_0040))),
    ("edu-bar", 0, Some(("device-write", 0xB004_0010))),
    ("msix", 0, Some(("device-write", TABLE + 0xC))),
    ("line", 0, Some(("device-write", 0xFEC0_003E))),
    ("hpet", 0, Some(("device-write", 0xFED0_0114))),
    ("write", 0, Some(("device-write", CHIPSET))),
    // Its value after power-on. Without a monitor the write would have stayed.
    ("read", 0x20, None),
];
/// A register of the chipset, which is nobody's (ICH9, 10.1.75).
const CHIPSET: u64 = 0xFED1_F410;
/// The configuration space of the disk that is given away, and its registers.
const GIVEN: u64 = 0xB003_8000;
const REGISTERS: u64 = 0xC0_0000_0000;
/// Attacks on that disk.
const TAKEN: &[Act] =
    &[("config-read", 0xFFFF_FFFF, None), ("config-write", 0, Some(("device-write", GIVEN + 4)))];
/// The word that the device writes (`linux/strike`).
const PATTERN: u64 = 0xB01D_FACE_5CA1_AB1E;
/// Table of messages of the first disk, which has no driver in this attack.
const TABLE: u64 = 0xFEB0_1000;

/// Where a real machine can have a trusted platform module, and the description names nothing.
const UNNAMED: u64 = 0xFED4_0000;

/// Memory that the Linux has not, each attack ending it: name, how, its place, a word of its owner.
type Reach = (&'static str, &'static str, fn(&Baked) -> Place, &'static str);

/// A place in memory.
enum Place {
    /// In the block.
    Block(u64),
    /// Anywhere, at an address that does not move.
    Fixed(u64),
}

/// A page of flight's RAM that its program looks at.
fn ram(baked: &Baked) -> Place {
    Place::Block(baked.plan.sandboxes[FLIGHT].ram[0].hpa + (6 << 20))
}

/// The last page of the tables that confine the Linux.
fn nested(baked: &Baked) -> Place {
    let mut parts = baked.map.parts.iter();
    let tables = |p: &&bulkhead_image::Part| {
        p.owner == Some(ground(baked)) && p.what.starts_with("host save areas")
    };
    Place::Block(parts.find(tables).map_or(0, |part| part.start + part.len - 4096))
}

/// A page of what the image keeps to begin the Linux anew.
fn pristine(baked: &Baked) -> Place {
    let mut parts = baked.map.parts.iter();
    let own =
        |p: &&bulkhead_image::Part| p.owner == Some(ground(baked)) && p.what == "pristine guest";
    Place::Block(parts.find(own).map_or(0, |part| part.start + part.len / 2 / 4096 * 4096))
}

const MONITORS: &str = "the image's and the monitors'";
const REACHES: &[Reach] = &[
    ("read-ram", "mem-read", ram, "flight's"),
    ("write-ram", "mem-write", ram, "flight's"),
    ("read-monitor", "mem-read", |b| Place::Block(b.map.texts[FLIGHT].0), MONITORS),
    ("write-monitor", "mem-write", |b| Place::Block(b.map.texts[FLIGHT].0), MONITORS),
    ("read-tables", "mem-read", nested, MONITORS),
    ("write-tables", "mem-write", nested, MONITORS),
    ("read-mailbox", "mem-read", |b| Place::Block(b.map.mailboxes[FLIGHT]), MONITORS),
    ("write-mailbox", "mem-write", |b| Place::Block(b.map.mailboxes[FLIGHT]), MONITORS),
    (
        "write-block-end",
        "mem-write",
        |b| Place::Block(b.plan.block.map_or(0, |b| b.end() - 8)),
        "nobody's",
    ),
    ("read-start-up", "read", |_| Place::Fixed(0x8000), "start-up code"),
    ("write-start-up", "write", |_| Place::Fixed(0x8000), "start-up code"),
    ("read-apic", "read", |_| Place::Fixed(0xFEE0_0020), "local APIC"),
    ("write-apic", "write", |_| Place::Fixed(0xFEE0_0300), "local APIC"),
    ("write-iommu", "write", |_| Place::Fixed(0xFED8_0018), "IOMMU"),
    ("read-pristine", "mem-read", pristine, MONITORS),
    ("write-pristine", "mem-write", pristine, MONITORS),
    ("read-unnamed", "read", |_| Place::Fixed(UNNAMED), "nobody's"),
    ("write-unnamed", "write", |_| Place::Fixed(UNNAMED), "nobody's"),
    // Behind the last base address register of the window.
    ("write-window", "write", |_| Place::Fixed(0xFEBF_F000), "nobody's"),
    ("read-given", "read", |_| Place::Fixed(REGISTERS), "store"),
    ("write-given", "write", |_| Place::Fixed(REGISTERS + 0x2000), "store"),
];

pub fn jobs() -> Vec<Job> {
    let mut jobs = vec![Job::one("under/attack", 150, attack)];
    jobs.push(Job::one("under/attack-devices", 150, devices));
    jobs.push(Job::one("under/attack-given", 150, taken));
    jobs.push(Job::one("under/attack-entries", 150, wanders));
    for reach in REACHES {
        let name = format!("under/attack-{}", reach.0);
        jobs.push(Job::one(name, 130, move |bench| reaches(bench, reach)));
    }
    jobs
}

/// A machine on which the image runs.
struct Under {
    running: Running,
    baked: Baked,
}

impl Under {
    fn start(bench: &Bench, machine: Kind, arguments: String) -> Result<Self, String> {
        Self::with(bench, machine, cores(machine), arguments)
    }

    fn with(bench: &Bench, machine: Kind, cores: usize, arguments: String) -> Result<Self, String> {
        let linux = Linux {
            kernel: "6.12-cloud",
            cores,
            script: include_str!("attack.sh"),
            arguments,
            machine,
            disks: &[],
            limit: LIMIT,
        };
        let mut running = start(bench, &linux)?;
        let base = block(&mut running, &linux)?;
        Ok(Self { running, baked: bake_for(machine, cores, base)? })
    }

    fn look(&self, index: usize) -> Result<SandboxSnapshot, String> {
        let read = |pa: u64, bytes: &mut [u8]| self.running.ram().read(pa, bytes).is_ok();
        let cores = self.baked.plan.sandboxes[index].cores.len();
        sandbox(&read, self.baked.map.reports[index], cores).ok_or_else(|| "no report".into())
    }

    /// All records of the Linux, in their order, in words.
    fn records(&self) -> Result<Vec<Explained>, String> {
        let ground = ground(&self.baked);
        let seen = self.look(ground)?;
        let all = seen.cores.iter().enumerate().flat_map(|(core, of)| {
            of.kept.iter().map(move |denial| explain(&self.baked.plan, ground, core, denial))
        });
        Ok(all.collect())
    }

    /// Checks that flight does its work, in its first life and without a denial.
    fn flies(&mut self) -> Result<u64, String> {
        let before = self.look(FLIGHT)?.cores[0].console_written;
        let read = |this: &Self| this.look(FLIGHT);
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        loop {
            let now = read(self)?;
            if now.state != State::Running || now.report.restarts != 0 || now.denials() != 0 {
                let (state, report) = (now.state, now.report);
                return Err(format!(
                    "flight is {state:?}, with {} restarts and {} denials",
                    report.restarts,
                    now.denials()
                ));
            }
            let said = now.cores[0].console_written.saturating_sub(before);
            if said > 0 {
                return Ok(said);
            }
            if std::time::Instant::now() > deadline {
                return Err("flight says nothing any more".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// An error with the Linux' serial log.
    fn wrong(&self, what: impl std::fmt::Display) -> String {
        format!("{what}\n{}", self.running.serial(0))
    }
}

fn bake(machine: Kind, base: u64) -> Result<Baked, String> {
    bake_for(machine, cores(machine), base)
}

fn bake_for(machine: Kind, cores: usize, base: u64) -> Result<Baked, String> {
    bulkhead_run::build_at(&checked(machine)?, &artifacts(), cores, base).map_err(|e| e.to_string())
}

/// All attacks by devices. Flight goes on.
fn devices(bench: &Bench) -> Result<String, String> {
    let base = bulkhead_image::late::BASE;
    let baked = bake(Kind::Confined, base)?;
    let Place::Block(target) = ram(&baked) else { return Err("no RAM".into()) };
    let act = |(name, ..): &(&str, i64, _)| match *name {
        "edu-dma" => format!("{name}@{:x}", target - base),
        "msix" => format!("{name}={TABLE:x}"),
        "read" | "write" => format!("{name}={CHIPSET:x}"),
        _ => (*name).to_owned(),
    };
    let acts: Vec<_> = DEVICES.iter().map(act).collect();
    let mut under = Under::start(bench, Kind::Confined, acts.join(","))?;
    let records = judged(&mut under, DEVICES)?;
    let owner = |r: &Explained| match r.record.address {
        CHIPSET => "machine",
        _ => "ground",
    };
    if let Some(other) = records.iter().find(|r| !r.owner.contains(owner(r))) {
        return Err(under.wrong(format!("it does not name {}: {other}", owner(other))));
    }
    let mut word = [0; 8];
    let Place::Block(target) = ram(&under.baked) else { return Err("no RAM".into()) };
    under.running.ram().read(target, &mut word).map_err(|e| e.to_string())?;
    if u64::from_le_bytes(word) == PATTERN {
        return Err(under.wrong("the device wrote to flight's memory"));
    }
    under.flies().map_err(|why| under.wrong(why))?;
    Ok(format!("{} attacks, {} records", DEVICES.len(), records.len()))
}

/// A device's message goes to more interrupts and cores than a remapping table has entries. All of them are allowed,
/// and the last one arrives.
fn wanders(bench: &Bench) -> Result<String, String> {
    const ACTS: &[Act] = &[("edu-wander", 2, None)];
    /// APIC IDs of the Linux, as a set: all of the machine's but flight's.
    const OWN: u64 = 0b1101;
    let act = format!("edu-wander={OWN:x}");
    let mut under = Under::with(bench, Kind::Confined, 4, act)?;
    judged(&mut under, ACTS)?;
    under.flies().map_err(|why| under.wrong(why))?;
    Ok(format!("{} messages", OWN.count_ones() * 240))
}

/// A device that another sandbox has is not there for the Linux, and its registers cannot be written.
fn taken(bench: &Bench) -> Result<String, String> {
    let act = |(name, ..): &(&str, i64, _)| format!("{name}={:x}", GIVEN + 4);
    let acts: Vec<_> = TAKEN.iter().map(act).collect();
    let mut under = Under::start(bench, Kind::Gives, acts.join(","))?;
    let records = judged(&mut under, TAKEN)?;
    if let Some(other) = records.iter().find(|r| !r.owner.contains("store")) {
        return Err(under.wrong(format!("it does not name store: {other}")));
    }
    under.flies().map_err(|why| under.wrong(why))?;
    Ok(format!("{} attacks, {} records", TAKEN.len(), records.len()))
}

/// Waits until all attacks were made: each got what it was to get, and left the record that it was to leave.
fn judged(under: &mut Under, acts: &[Act]) -> Result<Vec<Explained>, String> {
    let text = under.running.wait_serial(0, "under: done", LIMIT);
    let text = text.map_err(|e| under.wrong(e))?.text();
    for (name, got, _) in acts {
        let says = format!("bhstrike: {name}: got {got}");
        if !text.lines().any(|line| line.trim_end().ends_with(&says)) {
            return Err(under.wrong(format!("{name} was to get {got}")));
        }
    }
    let records = under.records()?;
    let found: Vec<_> = records.iter().map(|r| (r.condition, r.record.address)).collect();
    let expected: Vec<_> = acts.iter().filter_map(|act| act.2).collect();
    if found != expected {
        return Err(under.wrong(format!("records {found:#x?}\nexpected {expected:#x?}")));
    }
    match records.iter().find(|r| r.sandbox != "ground" || r.rule.is_empty()) {
        Some(other) => Err(under.wrong(other)),
        None => Ok(records),
    }
}

/// All attacks that a Linux outlives.
fn attack(bench: &Bench) -> Result<String, String> {
    let acts: Vec<_> = ACTS.iter().map(|act| act.0).collect();
    let mut under = Under::start(bench, Kind::Remaps, acts.join(","))?;
    let records = judged(&mut under, ACTS)?;
    let ipis = records.iter().filter(|r| r.condition == "ipi-destination");
    if let Some(other) = ipis.clone().find(|r| !r.owner.contains("flight")) {
        return Err(format!("it does not name flight: {other}"));
    }
    under.flies().map_err(|why| under.wrong(why))?;
    Ok(format!("{} attacks, {} records", ACTS.len(), records.len()))
}

/// One attack on memory, which ends the Linux.
fn reaches(bench: &Bench, reach: &Reach) -> Result<String, String> {
    let (_, how, place, owner) = reach;
    let base = bulkhead_image::late::BASE;
    let machine = match reach.0 {
        "write-iommu" | "read-unnamed" | "write-unnamed" | "write-window" => Kind::Confined,
        "read-given" | "write-given" => Kind::Gives,
        "read-pristine" | "write-pristine" => Kind::Again,
        _ => Kind::Remaps,
    };
    let act = match place(&bake(machine, base)?) {
        Place::Block(at) => format!("{how}@{:x}", at - base),
        Place::Fixed(at) => format!("{how}={at:x}"),
    };
    let mut under = Under::start(bench, machine, act)?;
    let (Place::Block(at) | Place::Fixed(at)) = place(&under.baked);
    let deadline = std::time::Instant::now() + LIMIT;
    let ground = ground(&under.baked);
    while under.look(ground)?.state == State::Running && std::time::Instant::now() < deadline {
        let text = under.running.serial(0).text();
        if text.contains("under: done") || text.contains("bulkhead-init: exit code") {
            return Err(under.wrong("the Linux goes on"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let state = under.look(ground)?.state;
    let records = under.records()?;
    let condition = if how.contains("read") { "memory-read" } else { "memory-write" };
    let [record] = &records[..] else {
        return Err(under.wrong(format!("{} records: {records:#?}", records.len())));
    };
    if state != State::Stopped || (record.condition, record.record.address) != (condition, at) {
        return Err(under.wrong(format!("the Linux is {state:?}; {record}")));
    }
    if !record.owner.contains(owner) || record.sandbox != "ground" || record.rule.is_empty() {
        return Err(format!("it does not name {owner}: {record}"));
    }
    under.flies().map_err(|why| under.wrong(why))?;
    Ok(record.to_string())
}
