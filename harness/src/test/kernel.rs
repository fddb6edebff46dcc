//! Systems of the kernel. `tests/kernel` runs them in sandboxes, and `tests/multikernel` without monitors, on a
//! processor that could have none. `tests/channel` has sandboxes that talk through channels. Each `NAME.toml` runs to
//! its end, exits with 0, undisturbed, and its console has the lines of `NAME.txt` (`BLESS=1` writes them). Those of
//! `tests/kernel` with a `NAME.alone.txt` run without monitors, too.

use super::driver::{Bench, Job};
use super::spoil::Spoil;
use super::system::{Manifest, Memory, Seen, run, run_and};
use super::wrong::stopped;
use crate::build;
use bulkhead_layout::map::IMAGE_PA;
use bulkhead_layout::marker::{BEGIN, END, encode, id};
use bulkhead_layout::record::Op;
use bulkhead_layout::report::State;
use bulkhead_plan::kernel::OVERHEAD;
use bulkhead_qemu::Qmp;
use bulkhead_run::Options;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub fn jobs() -> Vec<Job> {
    ["kernel", "multikernel", "channel"]
        .into_iter()
        .flat_map(|kind| {
            let mut systems: Vec<_> = files(kind, ".toml").collect();
            systems.sort();
            systems.into_iter().map(move |name| job(kind, name))
        })
        .chain(files("kernel", ".alone.txt").map(alone))
        .chain(REFUSED.iter().map(refused))
        .chain([overhead(), no_exits(), nmis(), vectors_empty(), selectors_kept()])
        .collect()
}

/// Admission counts, and the kernel charges, what an activation costs at most, and not much more: one instruction is
/// one nanosecond here.
fn overhead() -> Job {
    Job::one("kernel/overhead", 200, |_| {
        let costs = crate::bench::activation().map_err(|error| error.to_string())?;
        let said = format!("{costs} instructions, {OVERHEAD} ns counted");
        match (costs..=2 * costs).contains(&OVERHEAD) {
            true => Ok(said),
            false => Err(said),
        }
    })
}

/// A level-triggered line takes no exits once its entry of the IOAPIC is written: the kernel keeps it back by not
/// ending it.
fn no_exits() -> Job {
    Job::one("kernel/line-exits", 60, |bench| {
        let system = read(&folder("kernel").join("line.toml"))?;
        let seen = run(&Manifest(system), &bench.dir, |options| {
            options.time = bulkhead_qemu::Time::one_core();
        })?;
        let steady = &seen.sandbox("rt")?.exits.steady;
        let printed = steady.keys().all(|cause| *cause == "hypercall");
        seen.ensure(printed, format!("exits of 102 interrupts: {steady:?}"))?;
        Ok("0 exits but those of the console".into())
    })
}

/// Tests NMIs that come where RSP is a program's. `INT 2` stands for them, in place of the markers that begin and end
/// each entry of a marked kernel. No NMI writes to where a hostile program's RSP points.
fn nmis() -> Job {
    const INT_2: [u8; 8] = [0xCD, 2, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90];
    const TOLD: &str = "kernel: NMIs that nobody here asked for: ";
    Job::one("multikernel/nmis", 120, |bench| {
        let system = without_monitors(&read(&folder("kernel").join("hostile.toml"))?);
        let kernel = "kind = \"kernel\"";
        let marked = format!("{kernel}, kernel = \"artifact:kernel-trace\"");
        let seen = run(&Manifest(system.replace(kernel, &marked)), &bench.dir, |options| {
            options.time = bulkhead_qemu::Time::one_core();
            options.cpu = Some(PLAIN.into());
            options.spoil = Some(Box::new(|bytes, baked| {
                let markers = [BEGIN, END].map(|at| encode(at | id::KERNEL_ENTRY));
                for at in 0..bytes.len() - INT_2.len() {
                    if markers.iter().any(|marker| bytes[at..].starts_with(marker)) {
                        bytes[at..at + INT_2.len()].copy_from_slice(&INT_2);
                    }
                }
                Spoil::new(bytes, baked).seal();
            }));
        })?;
        seen.exited("rt")?;
        let (told, said): (Vec<_>, Vec<_>) =
            seen.console.lines().partition(|line| line.contains(TOLD));
        let count = { told.last() }.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        let count = count.filter(|count| *count > 10_000);
        let wanted = read(&folder("kernel").join("hostile.alone.txt"))?;
        let same = normal(&said.join("\n")) == normal(&wanted);
        seen.ensure(same, format!("expected:\n{wanted}"))?;
        Ok(format!("{} NMIs", count.ok_or_else(|| seen.wrong("it told of too few"))?))
    })
}

/// The victim of `kernel/hostile` notices a kernel that leaves one segment register as another program has loaded it.
fn selectors_kept() -> Job {
    /// MOV of a null register to DS, ES, FS and GS (APM volume 3), for each thread that is entered.
    const CLEARS: [[u8; 2]; 4] = [[0x8E, 0xD9], [0x8E, 0xC1], [0x8E, 0xE1], [0x8E, 0xE9]];
    const NOP: u8 = 0x90;
    const SAID: &str = "words changed";
    Job::one("kernel/hostile-selectors-kept", 200, |bench| {
        let system = read(&folder("kernel").join("hostile.toml"))?;
        let changed = |left_out: usize| {
            let seen = run(&Manifest(system.clone()), &bench.dir, |options| {
                options.time = bulkhead_qemu::Time::one_core();
                options.spoil = Some(Box::new(move |bytes, baked| {
                    let all = CLEARS.concat();
                    // The boot of the kernel has it once, with another register.
                    for at in 0..bytes.len() - all.len() {
                        if bytes[at..].starts_with(&all) {
                            bytes[at + 2 * left_out..][..2].fill(NOP);
                        }
                    }
                    Spoil::new(bytes, baked).seal();
                }));
            })?;
            let line = seen.console.lines().find(|line| line.ends_with(SAID));
            let count = line.and_then(|line| line.split(' ').rev().nth(2)?.parse::<u64>().ok());
            count.ok_or_else(|| seen.wrong("the victim says nothing"))
        };
        let counts = [0, 1, 2, 3].map(changed);
        let counts: Vec<u64> = counts.into_iter().collect::<Result<_, _>>()?;
        match counts.contains(&0) {
            true => Err(format!("words changed, with DS, ES, FS and GS kept: {counts:?}")),
            false => Ok(format!("{counts:?} words changed, with DS, ES, FS and GS kept")),
        }
    })
}

/// While a thread without vector registers runs, those of the processor are empty, not only out of reach. An
/// instruction that will raise #NM then finds nothing, even speculatively (docs/decisions/0034-switch.md). Seen
/// from outside, beside a thread that fills all of them.
fn vectors_empty() -> Job {
    /// Looks of each kind that are wanted, and looks at most.
    const WANTED: usize = 5;
    const AT_MOST: usize = 2000;
    const SYSTEM: &str = include_str!("vectors.toml");
    Job::one("multikernel/vectors-empty", 60, |bench| {
        let mut looks: Result<[usize; 2], String> = Err("nobody looked".into());
        let look = |(_, state): (&str, State), _: &Memory| {
            if state == State::Running {
                looks = look_at_vectors(&bench.dir, WANTED, AT_MOST);
            }
        };
        let seen = run_and(
            &Manifest(SYSTEM.to_owned()),
            &bench.dir,
            |options| {
                options.time = bulkhead_qemu::Time::one_core();
                options.cpu = Some(PLAIN.into());
                options.duration = Some(Duration::from_millis(1));
            },
            look,
        )?;
        let [full, empty] = looks.map_err(|why| seen.wrong(why))?;
        let enough = full >= WANTED && empty >= WANTED;
        let counts = format!("full at {full} looks, out of reach and empty at {empty}");
        seen.ensure(enough, &counts)?;
        Ok(counts)
    })
}

/// How often vector registers were in a program's reach, with something in them, and how often out of its reach.
///
/// # Errors
/// Something is in them while they are out of reach.
fn look_at_vectors(dir: &Path, wanted: usize, at_most: usize) -> Result<[usize; 2], String> {
    const TASK_SWITCHED: u64 = 1 << 3;
    let mut qmp = Qmp::connect(&dir.join("qmp.sock")).map_err(|e| e.to_string())?;
    let (mut full, mut empty) = (0, 0);
    for _ in 0..at_most {
        let said = qmp.ask("info registers").map_err(|e| e.to_string())?;
        let named = |name: &str| said.split_whitespace().find_map(|word| word.strip_prefix(name));
        let number = named("CR0=").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let cr0 = number.ok_or_else(|| format!("no CR0: {said}"))?;
        let is_one = |line: &&str| ["XMM", "YMM", "FPR"].iter().any(|name| line.contains(name));
        let held: Vec<_> = said
            .lines()
            .filter(is_one)
            .flat_map(|line| line.split(['=', ' ']))
            .filter(|word| word.len() >= 16 && word.bytes().any(|digit| digit != b'0'))
            .collect();
        // In the kernel's code neither need hold.
        match (said.contains("CPL=3"), cr0 & TASK_SWITCHED != 0, held.is_empty()) {
            (false, ..) | (true, false, true) => {}
            (true, false, false) => full += 1,
            (true, true, true) => empty += 1,
            (true, true, false) => {
                return Err(format!("out of reach, but there: {held:?}"));
            }
        }
        if full >= wanted && empty >= wanted {
            break;
        }
    }
    Ok([full, empty])
}

type Change = fn(&mut Options);

/// Refusals of the boot code for a system without monitors: name, change of the run, number of the error, part of the
/// message.
const REFUSED: [(&str, Change, u64, &str); 3] = [
    ("no-x2apic", |o| o.cpu = Some("EPYC,-svm,-x2apic".into()), 18, "x2APIC"),
    (
        "record-elsewhere",
        |o| {
            o.spoil = Some(Box::new(|bytes, baked| {
                let mut spoil = Spoil::new(bytes, baked);
                spoil.header(|h| h.launch.start += h.sealed);
                spoil.seal();
            }));
        },
        4,
        "launch record",
    ),
    (
        "record-over-the-image",
        |o| {
            o.spoil = Some(Box::new(|bytes, baked| {
                let mut spoil = Spoil::new(bytes, baked);
                let mut first = 0;
                spoil.header(|h| first = h.launch.start);
                spoil.set_word(first + offset_of!(Op, dst) as u64, IMAGE_PA);
                spoil.seal();
            }));
        },
        4,
        "launch record",
    ),
];

fn refused((name, change, code, part): &'static (&str, Change, u64, &str)) -> Job {
    Job::one(format!("multikernel/{name}"), 60, move |bench| {
        let system = without_monitors(&read(&folder("kernel").join("hello.toml"))?);
        let seen = run(&Manifest(system), &bench.dir, |options| {
            options.limit = Duration::from_secs(20);
            options.cpu = Some(PLAIN.into());
            change(options);
        })?;
        match &seen.outcome {
            Ok(_) => Err(seen.wrong("it booted")),
            Err(error) => stopped(error, *code, part),
        }
    })
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn folder(kind: &str) -> PathBuf {
    build::root().join("tests").join(kind)
}

/// Names of files with an ending.
fn files(kind: &str, ending: &'static str) -> impl Iterator<Item = String> {
    let files = std::fs::read_dir(folder(kind)).into_iter().flatten().flatten();
    files.filter_map(move |file| file.file_name().to_str()?.strip_suffix(ending).map(String::from))
}

fn job(kind: &'static str, name: String) -> Job {
    Job::one(format!("{kind}/{name}"), 120, move |bench| {
        let path = |ending: &str| folder(kind).join(format!("{name}.{ending}"));
        let cpu = (kind == "multikernel").then_some(PLAIN);
        check(bench, cpu, read(&path("toml"))?, &path("txt"))
    })
}

fn alone(name: String) -> Job {
    Job::one(format!("multikernel/{name}"), 120, move |bench| {
        let path = |ending: &str| folder("kernel").join(format!("{name}.{ending}"));
        let system = without_monitors(&read(&path("toml"))?);
        check(bench, Some(PLAIN), system, &path("alone.txt"))
    })
}

/// Changes of a manifest so that its kernels do without monitors.
pub const ALONE: [(&str, &str); 2] = [
    ("[system]", "[system]\nmonitors = false"),
    (
        "devices = [\"pci:1234:11e8\"]",
        "devices = [{ device = \"pci:1234:11e8\", dma = \"unconfined\" }]",
    ),
];

fn without_monitors(system: &str) -> String {
    let line = [("line = true", "line = true, dma = \"unconfined\"")];
    ALONE.iter().chain(&line).fold(system.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// A processor without virtualization, and without what only monitors need.
pub const PLAIN: &str = "EPYC,-svm,-npt,-pdpe1gb,+x2apic,tsc-frequency=1000000000";

fn check(
    bench: &Bench,
    cpu: Option<&str>,
    system: String,
    expected: &Path,
) -> Result<String, String> {
    let seen = run(&Manifest(system), &bench.dir, |options| {
        options.time = bulkhead_qemu::Time::one_core();
        options.cpu = cpu.map(String::from);
    })?;
    ended_well(&seen)?;
    let said = normal(&seen.console);
    if std::env::var("BLESS").is_ok() {
        std::fs::write(expected, &said).map_err(|e| e.to_string())?;
    }
    let wanted = read(expected)?;
    seen.ensure(said == normal(&wanted), format!("expected:\n{wanted}"))?;
    Ok(format!("{} lines as expected", wanted.lines().count()))
}

/// Each kernel ended with exit code 0, or runs on; none was denied anything.
pub fn ended_well(seen: &Seen) -> Result<(), String> {
    for sandbox in &seen.outcome()?.report.sandboxes {
        seen.undisturbed(&sandbox.name, &["exited", "running"])?;
        if sandbox.state == "exited" {
            seen.exited(&sandbox.name)?;
        }
    }
    Ok(())
}

/// A system of `tests/kernel`.
pub fn system(name: &str) -> Result<String, String> {
    read(&folder("kernel").join(format!("{name}.toml")))
}

/// It said the words that it says on QEMU.
pub fn same_words(seen: &Seen, name: &str) -> Result<String, String> {
    let wanted = read(&folder("kernel").join(format!("{name}.txt")))?;
    let said = normal(&seen.console);
    seen.ensure(said == normal(&wanted), format!("expected:\n{wanted}"))?;
    Ok(format!("{} lines as expected", wanted.lines().count()))
}

/// Which states the watcher comes to see, and in which order consoles, depends on the host; at which address a
/// program fails on its compiler.
fn normal(console: &str) -> String {
    let lines = console.lines().filter(|line| !line.contains("] is now "));
    let mut lines: Vec<_> = lines.filter_map(|line| line.split(" at 0x").next()).collect();
    lines.sort_by_key(|line| line.split(']').next());
    lines.iter().map(|line| format!("{line}\n")).collect()
}
