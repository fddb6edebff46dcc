//! A Linux that runs already, and starts an image under itself: what that takes, what it costs, and what is left of it
//! afterwards. One boot has it all, so that kernel, caches and places in memory are alike.

use super::Found;
use super::figure::{Figure, Must};
use super::linux::{same_conditions, spans};
use super::system::{LIMIT, System, by_cause};
use crate::rows::Row;
use crate::{Failure, build};
use bulkhead_image::late::{BASE, Late, MOST};
use bulkhead_initramfs::{Archive, Entry};
use bulkhead_layout::marker::id;
use bulkhead_layout::report::{CAUSE_NAMES, CAUSES, CoreReport, Report};
use bulkhead_qemu::counts::{Distribution, Event};
use bulkhead_qemu::{Counts, Machine, Plugin, Serial, Time};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::Path;

const SCRIPT: &str = include_str!("under.sh");
/// Cores of the machine; all but the last are the Linux'.
const CORES: usize = 3;
/// The Linux' cores, and its index.
const OWN: usize = 2;
const LINUX: usize = 1;

/// The machine remaps interrupts, so a Linux uses x2APIC mode. A kernel that measured the timer in this mode would end
/// QEMU. So it learns the clocks by QEMU's VMware port, as a guest in a sandbox does.
const REMAPS: [&str; 4] =
    ["-device", "intel-iommu,intremap=on,eim=on", "-smbios", "type=1,serial=VMware-"];
const TELLS: &str = ",-hypervisor,tsc-frequency=1000000000";
const CLOCKS: (u64, u64) = (1_000_000, 1_000_000_000);
/// A disk without a file, so that the host's own does not matter.
const DISK: [&str; 4] =
    ["-drive", "if=none,id=disk,driver=null-co,size=64M", "-device", "virtio-blk-pci,drive=disk"];

/// Parts of a run, each with its counts.
struct Ran {
    before: Counts,
    on: Counts,
    load: Counts,
    off: Counts,
    /// Number of the block's place among [`blocks`].
    block: usize,
    text: String,
}

/// Runs the script.
fn run(dir: &str, remaps: bool) -> Result<Ran, Failure> {
    let system = System::new("under", dir);
    let artifacts = build::target().join("artifacts");
    let late = bulkhead_run::build_late(&system.checked()?, &artifacts, CORES)?;
    let mut machine = machine(&system.dir(), remaps, initramfs(&late, &system.dir())?);
    machine.plugin = Some(Plugin {
        library: build::plugin()?,
        clocks: remaps.then_some(CLOCKS),
        words: blocks(late.block).flat_map(|block| counters(&late, block)).collect(),
        ..Plugin::default()
    });
    let mut running = machine.start()?;
    let text = running.wait_serial(0, "bulkhead-init: exit code", LIMIT)?.text();
    if !text.contains("under: done") {
        return Err(text.into());
    }
    let all: [Counts; 4] =
        running.dumped()?.try_into().map_err(|_| "the plugin left not four parts")?;
    let [before, on, load, off] = all;
    let at = text.split_once("MiB at 0x").and_then(|(_, rest)| rest.split_once(' '));
    let at = at.and_then(|(hex, _)| u64::from_str_radix(hex, 16).ok()).ok_or("no block")?;
    let block = blocks(late.block).position(|block| block == at);
    let block = block.ok_or_else(|| format!("a block at {at:#x}"))?;
    Ok(Ran { before, on, load, off, block, text })
}

/// All places that a block can have. Which one it is depends on the pages that the Linux can move just then.
fn blocks(len: u64) -> impl Iterator<Item = u64> {
    (len..MOST).step_by(len as usize)
}

/// Words of a block.
const WORDS: usize = OWN * CAUSES + OWN;

/// The counters of the Linux' exits, if the image lies in this block: both cores' by cause, and those for the local
/// APIC's page.
fn counters(late: &Late, block: u64) -> Vec<(u64, usize)> {
    let report = late.baked.map.reports[LINUX] - BASE + block;
    let core = |n: usize| {
        let own = size_of::<Report>() + n * size_of::<CoreReport>() + offset_of!(CoreReport, exits);
        (report + own as u64, CAUSES)
    };
    let page = |n: usize| (report + (offset_of!(Report, xapic) + n * 64) as u64, 1);
    (0..OWN).map(core).chain((0..OWN).map(page)).collect()
}

/// The script and the image, behind an initramfs that has the programs and the module.
fn initramfs(late: &Late, dir: &Path) -> Result<String, Failure> {
    let mut bytes = std::fs::read(build::target().join("artifacts/virtio.cpio"))?;
    let mut archive = Archive::default();
    archive.add("/late/script.sh", Entry::File(0o644, SCRIPT.into()));
    archive.add("/late/system.img", Entry::File(0o644, late.file()));
    bytes.extend(archive.to_bytes());
    std::fs::create_dir_all(dir)?;
    let path = dir.join("initramfs.cpio");
    std::fs::write(&path, bytes)?;
    Ok(path.display().to_string())
}

fn machine(dir: &Path, remaps: bool, initrd: String) -> Machine {
    let mut machine = Machine::new(dir);
    machine.machine = "q35,vmport=on".into();
    if remaps {
        machine.cpu += TELLS;
        machine.args = REMAPS.map(String::from).into();
    }
    machine.cores = CORES;
    machine.kernel = Some(build::target().join("artifacts/linux-6.12-cloud"));
    machine.initrd = Some(initrd);
    machine.append = "console=ttyS0 loglevel=4 bulkhead.run=sh:/late/script.sh".into();
    machine.time = Time::virtual_time();
    machine.args.extend(DISK.map(String::from));
    machine.serials = vec![Serial::File];
    machine
}

impl Ran {
    /// Exits of both cores by cause, from the load's first instruction to its last.
    fn exits(&self) -> Result<BTreeMap<&'static str, u64>, Failure> {
        let (starts, ends) = (self.load.events(id::START), self.load.events(id::FINISH));
        let (Some(first), Some(last)) = (starts.first(), ends.last()) else {
            return Err("the load was not measured".into());
        };
        let count = |event: &Event| -> Result<Vec<u64>, Failure> {
            let words = event.words.chunks(WORDS).nth(self.block);
            let words = words.and_then(|words| words.split_at_checked(OWN * CAUSES));
            let (causes, page) = words.ok_or("an event without the exits")?;
            Ok([&by_cause(causes)[..], &[page.iter().sum()]].concat())
        };
        let (before, after) = (count(first)?, count(last)?);
        let each = after.iter().zip(&before).map(|(after, before)| after - before);
        Ok(CAUSE_NAMES.into_iter().zip(each).filter(|(_, exits)| *exits != 0).collect())
    }
}

/// A row's name, and its value in a part of a run.
type Measured = (&'static str, &'static str, fn(&Counts) -> Result<(f64, String), Failure>);

const ROWS: [Measured; 4] = [
    ("getpid", "instructions", |counts| span(counts, id::LINUX_GETPID, |all| all.median)),
    ("fork_exec", "instructions", |counts| span(counts, id::LINUX_FORK_EXEC, |all| all.median)),
    ("timer_median", "ns", |counts| {
        let late = counts.value(id::LINUX_TIMER).ok_or("no timer was measured")?;
        Ok((late.median as f64, format!("{} to {} of {}", late.min, late.max, late.n)))
    }),
    // The host's time to answer is in all but the smallest.
    ("blk_rand4k", "instructions", |counts| span(counts, id::IO_BLK_RAND4K, |all| all.min)),
];

fn span(counts: &Counts, id: u16, one: fn(&Distribution) -> u64) -> Result<(f64, String), Failure> {
    let all = spans(counts, id, "a row")?;
    let note = format!(
        "{} to {}, median {}, of {}; {} exits in all",
        all.min, all.max, all.median, all.n, all.vmruns
    );
    Ok((one(&all) as f64, note))
}

/// Makes rows of a part of a run against the part before it was enabled.
fn compared(prefix: &str, now: &Counts, before: &Counts) -> Result<Vec<Figure>, Failure> {
    let one = |(name, unit, find): &Measured| {
        let ((value, note), (baseline, other)) = (find(now)?, find(before)?);
        let row = Row::new(&format!("{prefix}{name}"), unit, value).against(baseline);
        Ok(Figure::new(row).note(format!("{note}; before: {other}")))
    };
    ROWS.iter().map(one).collect()
}

/// In x2APIC mode.
pub fn rows() -> Found {
    const ALIKE: Must = Must::Ratio(0.99, 1.01);
    let ran = run("under", true)?;
    let [before, on, off] = ["before", "on", "off"].map(|part| said(&ran.text, part));
    same_conditions(on, before)?;
    same_conditions(off, before)?;
    let mut figures: Vec<_> = compared("under.", &ran.on, &ran.before)?;
    let after = compared("", &ran.off, &ran.before)?;
    figures.iter_mut().for_each(|figure| figure.must = ALIKE);
    figures.push(worst(&after)?.must(ALIKE));
    let exits = ran.exits()?;
    let others: u64 = exits.iter().filter(|(cause, _)| **cause != "ipi").map(|(_, n)| n).sum();
    let row = Row::new("exits.under_steady", "exits", others as f64);
    let note = format!("{exits:?}, own interrupts to one another among them");
    figures.push(Figure::new(row).must(Must::AtMost(0.0)).note(note));
    figures.extend(enabled(&ran.text)?);
    Ok(figures)
}

/// Returns the row that is farthest from what it was before, as its ratio.
fn worst(after: &[Figure]) -> Result<Figure, Failure> {
    let ratio = |figure: &Figure| figure.row.ratio.unwrap_or(0.0);
    let far = |figure: &Figure| (ratio(figure) - 1.0).abs();
    let worst = after.iter().max_by(|a, b| far(a).total_cmp(&far(b))).ok_or("no rows")?;
    let all: Vec<_> = after.iter().map(|f| format!("{} {:.4}", f.row.name, ratio(f))).collect();
    let row = Row::new("under.after_disable", "of before", ratio(worst)).against(1.0);
    Ok(Figure::new(row).note(all.join(", ")))
}

/// The module's times of the step into the sandbox, in virtual time: the instructions of all cores.
fn enabled(text: &str) -> Found {
    let line = text.lines().find(|line| line.contains("the longest pause")).ok_or("no times")?;
    let times: Vec<f64> = line
        .rsplit(';')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [all, pause] = times[..] else { return Err(format!("no times: {line}").into()) };
    let row = |name, value| Row::new(name, "us", value);
    Ok(vec![
        Figure::new(row("enable.pause_core", pause)).must(Must::AtMost(1_000.0)),
        Figure::new(row("enable.total", all)).must(Must::AtMost(100_000.0)),
    ])
}

/// Returns what a part of the script has said.
fn said<'a>(text: &'a str, part: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("under: {part}")).unwrap_or_default();
    rest.split_once("under: ").map_or(rest, |(said, _)| said)
}

/// In xAPIC mode, in which a monitor carries out each write to the local APIC's page.
pub fn xapic() -> Found {
    let ran = run("under-xapic", false)?;
    let mut figures = compared("under.xapic_", &ran.on, &ran.before)?;
    let exits = ran.exits()?;
    let page = exits.get("xapic").copied().unwrap_or(0);
    let others: u64 = exits.values().sum::<u64>() - page;
    let row = |name, value: u64| Row::new(name, "exits", value as f64);
    let note = format!("{exits:?}");
    figures.push(Figure::new(row("exits.under_xapic", page)).note(&note));
    figures.push(
        Figure::new(row("exits.under_xapic_other", others)).must(Must::AtMost(0.0)).note(note),
    );
    Ok(figures)
}

/// Rounds of enabling and disabling under load, in real time.
pub fn lost() -> Found {
    const ROUNDS: usize = 10;
    let (lost, note) =
        crate::test::lost_under_load(&build::target().join("bench/under-rounds"), ROUNDS)?;
    let row = Row::new("enable.lost", "losses", lost as f64);
    Ok(vec![Figure::new(row).must(Must::AtMost(0.0)).note(note)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let found = enabled(
            "x\non: 128 MiB at 0x70000000 are other sandboxes'; 65040 us in all, 34 us the longest pause of a core\n",
        );
        let found = found.expect("two rows");
        let values: Vec<_> = found.iter().map(|figure| figure.row.value).collect();
        assert_eq!(values, [34.0, 65_040.0]);
        assert!(enabled("on: 128 MiB").is_err());
    }

    #[test]
    fn parts_of_a_script_are_told_apart() {
        let text = "under: before\na\nunder: on\nb\nunder: off\nc\n";
        assert_eq!(["before", "on", "off"].map(|part| said(text, part).trim()), ["a", "b", "c"]);
    }

    #[test]
    fn the_farthest_row_counts() {
        let figure = |name: &str, value| Figure::new(Row::new(name, "ns", value).against(100.0));
        let found = worst(&[figure("a", 101.0), figure("b", 97.0), figure("c", 100.0)]);
        assert_eq!(found.expect("a row").row.ratio, Some(0.97));
        assert!(worst(&[]).is_err());
    }
}
