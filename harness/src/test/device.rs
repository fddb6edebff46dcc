//! Attacks by a sandbox that owns PCI functions: on configuration space, messages, the
//! decoder, and by DMA. Beside what the other attacks are judged by, nothing that
//! confines anybody may have changed in the image.

use super::attack::{CANARY_HPA, VICTIM, VICTIM_HPA, denial, judge, unharmed};
use super::driver::{Bench, Job};
use super::explained;
use super::pace::{self, PACED};
use super::spoil::Spoil;
use super::system::{FAST, Manifest, Memory, NEWER, Seen, artifacts, run, run_from, started};
use bulkhead_arch_x86::vmcb;
use bulkhead_image::{Baked, Part};
use bulkhead_layout::pci::Register;
use bulkhead_layout::report::State;
use bulkhead_plan::{Bar, BarKind, Bdf, Function, Machine};
use bulkhead_qemu::{Qmp, Running, Time};
use rogue::{Set, of_others};
use std::path::Path;
use std::time::Duration;

const VICTIM_INDEX: usize = 0;
const ROGUE: usize = 1;
/// `edu`, 00:08.0.
pub const EDU: Bdf = Bdf(0x40);
/// 01:00.0, the card behind the bridge.
const NETWORK: Bdf = Bdf(0x100);
/// 00:03.0, the victim's.
pub const FOREIGN: Bdf = Bdf(0x18);

pub fn jobs() -> Vec<Job> {
    vec![
        all("device", Set::Devices, "devices"),
        all("bridge", Set::Bridge, "bridge"),
        all("race", Set::Race, "race"),
        Job::one("device/promise", 60, promise),
        Job::one("device/silent", 60, silent),
        Job::one("device/linux", 240, linux),
        Job::one("device/storm-beside-flight", 240, storm),
    ]
}

/// Builds a system with a victim that has a disk and a channel, and a rogue with functions that suit a set of attacks.
/// The rogue knows where in the machine the others' things are.
pub fn system(set: Set, args: &str, dir: &Path) -> Result<Manifest, String> {
    system_on("qemu-q35", set, args, dir)
}

/// As [`system`], for another machine.
pub fn system_on(machine: &str, set: Set, args: &str, dir: &Path) -> Result<Manifest, String> {
    let manifest = |set, args: &str| {
        let Manifest(text) = manifest(set, args);
        Manifest(text.replace("machines/qemu-q35.toml", &format!("machines/{machine}.toml")))
    };
    let blind = manifest(set, args);
    let checked = blind.load(dir)?;
    let baked = bulkhead_run::build(&checked, &artifacts()).map_err(|e| e.to_string())?;
    let known = of_others::ARGUMENTS.into_iter().zip(places(&baked));
    let known: String = known.map(|(name, at)| format!(" {name}={at:#x}")).collect();
    Ok(manifest(set, &(args.to_owned() + &known)))
}

/// How time passes: for races in slices so short that a core's often ends within an exit.
pub fn time(set: Option<Set>) -> Time {
    if set == Some(Set::Race) { Time::virtual_time() } else { FAST }
}

fn manifest(set: Set, args: &str) -> Manifest {
    // The rogue has core 0, the victim core 1: a forged message names another one.
    let args = format!("victim={CANARY_HPA:#x} foreign=1 {args}");
    let race = set == Set::Race;
    let functions = match set {
        Set::Bridge => "devices = [\"pci:01:00.0\"]",
        Set::Race => "devices = [\"pci:00:08.0\"]",
        Set::Any | Set::Devices | Set::VtD | Set::Loads | Set::Edu => {
            "devices = [\"pci:00:08.0\", \"pci:00:09.1\", \"rtc\"]"
        }
    };
    let disk = "devices = [\"uart0\", \"pci:00:03.0\"]";
    let mut manifest = Manifest::new()
        .ends_with(&["rogue"])
        .bare("victim", "victim", "", &[1], VICTIM, disk)
        .bare("rogue", "rogue", &args, if race { &[0, 2] } else { &[0] }, "4 MiB", functions);
    if race {
        let (segments, all) = ("program = \"artifact:rogue\"", "access = \"rwx\"");
        manifest.0 = manifest.0.replace(segments, &format!("{segments}, {all}"));
    }
    manifest.0 +=
        "[[channel]]\nname = \"news\"\nfrom = \"victim\"\nto = [\"rogue\"]\nsize = \"4 KiB\"\n";
    manifest
}

fn part<'a>(baked: &'a Baked, owner: usize, what: &str) -> Option<&'a Part> {
    baked.map.parts.iter().find(|p| p.owner == Some(owner) && p.what.starts_with(what))
}

/// Addresses for [`of_others::ARGUMENTS`].
fn places(baked: &Baked) -> [u64; 8] {
    let mut bytes = baked.bytes.clone();
    let mut spoil = Spoil::new(&mut bytes, baked);
    let start = |owner, what| part(baked, owner, what).map_or(0, |p| p.start);
    let [tables, entry, messages] = spoil.of_iommu(EDU);
    [
        start(ROGUE, "monitor text"),
        start(ROGUE, "configuration"),
        start(ROGUE, "monitor's page tables"),
        spoil.vmcb(ROGUE, vmcb::N_CR3),
        tables,
        entry,
        messages,
        start(VICTIM_INDEX, "monitor text"),
    ]
}

fn all(group: &'static str, set: Set, name_of_set: &'static str) -> Job {
    let name = move |attack: &str| format!("{group}/{attack}");
    let victim = format!("{group}/victim-unharmed");
    let explained = format!("{group}/explained");
    let more = [victim.clone(), explained.clone()];
    let tests = set.ending().map(move |a| name(a.name)).chain(more);
    Job::new(group, tests, 300, move |bench| {
        let args = format!("set={name_of_set} lives={} {PACED}", set.ending().count());
        let seen = system(set, &args, &bench.dir).and_then(|manifest| {
            let limit = Duration::from_secs(270);
            pace::run(&manifest.restarting("rogue"), &bench.dir, |o| {
                o.limit = limit;
                o.time = time(Some(set));
            })
        });
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => return bench.result(&victim, Err::<String, _>(error)),
        };
        for (life, attack) in set.ending().enumerate() {
            bench.result(&name(attack.name), judge(&seen, life as u32, attack));
        }
        let unharmed = unharmed(&seen).and_then(|()| confined(&seen));
        let words = |n| format!("no exit, no denial, canaries and {n} bytes of tables intact");
        bench.result(&victim, unharmed.map(words));
        let said = explained::all(&seen, set);
        bench.result(
            &explained,
            match set {
                // Chance decides which of a race's two instructions is denied.
                Set::Race => explained::among(group, &said),
                _ => explained::compare(group, &said),
            },
        );
    })
}

/// Runs the attacks of root in a Linux. Each has the result that it announces, the last one ends the sandbox, and the
/// victim is as it was.
fn linux(bench: &Bench) -> Result<String, String> {
    let job = format!("bhattack:victim={CANARY_HPA:x},core=1 iomem=relaxed");
    let mut manifest = Manifest::new()
        .ends_with(&["rogue"])
        .bare("victim", "victim", "", &[1], VICTIM, "devices = [\"uart0\", \"pci:00:03.0\"]")
        .linux("rogue", NEWER, &job, &[0], "256 MiB", 1);
    let owned = "[\"uart1\", \"pci:00:08.0\", \"pci:00:09.1\"]";
    manifest.0 = manifest.0.replace("[\"uart1\"]", owned);
    let seen = run(&manifest, &bench.dir, |o| o.limit = Duration::from_secs(220))?;
    let (all, denied) = attacks(&seen, 1, "write-victim")?;
    let state = seen.sandbox("rogue")?.state;
    seen.ensure(state == "stopped", format!("rogue is {state}"))?;
    unharmed(&seen)?;
    Ok(format!("{all} attacks, {denied} denials"))
}

/// Judges a Linux's attacks: each has the result that it announces, and the last one ended the sandbox. Returns the
/// numbers of all and of denied ones.
pub fn attacks(seen: &Seen, serial: usize, last_one: &str) -> Result<(usize, usize), String> {
    let said = seen.serial(serial)?;
    let lines = |what: &str| -> Vec<(String, String)> {
        let split = format!(": {what} ");
        let lines = said.lines().filter_map(|l| l.trim_end().split_once("bhattack: "));
        let found = lines.filter_map(|(_, l)| l.split_once(&split));
        found.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    let (expected, got) = (lines("expected"), lines("got"));
    let (denied, values): (Vec<_>, Vec<_>) =
        expected.iter().partition(|(_, e)| e.contains("-violation"));
    let denied: Vec<_> = denied.iter().map(|(_, e)| e.clone()).collect();
    // The kernel looks for a serial port where the victim has one.
    let looked = |record: &String| record == "port-violation 0x3f9";
    let records: Vec<_> = seen.denials.iter().map(denial).skip_while(looked).collect();
    seen.ensure(records == denied, format!("denied: {records:#?}\nnot: {denied:#?}\n{said}"))?;
    for one in values {
        seen.ensure(got.contains(one), format!("{one:?} is not among {got:#?}\n{said}"))?;
    }
    // All were made, and the last one did not come back.
    let last = expected.last().map(|(name, _)| name.as_str());
    seen.ensure(last == Some(last_one), format!("the last one is {last:?}\n{said}"))?;
    seen.ensure(got.len() + 1 == expected.len(), format!("{} came back", got.len()))?;
    Ok((expected.len(), denied.len()))
}

/// Runs six storms of 100,000 messages a second to oneself, with a restart between them: every release of `flight` is
/// on time.
fn storm(bench: &Bench) -> Result<String, String> {
    let mut manifest = Manifest::new()
        .ends_with(&["flight", "rogue"])
        .bare("flight", "flight", "seconds=1 substeps=11", &[1], "16 MiB", "")
        .bare(
            "rogue",
            "rogue",
            "attack=msi-storm lives=6",
            &[0],
            "4 MiB",
            "devices = [\"pci:00:08.0\"]",
        );
    manifest.0 += "[[channel]]\nname = \"telemetry\"\nfrom = \"flight\"\nto = [\"rogue\"]\nsize = \"64 KiB\"\n";
    let seen = run(&manifest, &bench.dir, |o| {
        o.time = Time::virtual_time();
        o.limit = Duration::from_secs(220);
    })?;
    let all = format!("rogue: attack msi-storm: got harmless {:#x}", rogue::edu::STORM);
    let storms = seen.console.matches(&all).count();
    seen.ensure(storms == 6, format!("{storms} storms came in full"))?;
    seen.exited("flight")?;
    let promises = bulkhead_run::judge(seen.outcome()?, true);
    let kept = |about: &str| {
        let found = promises.iter().find(|p| p.name.contains(about));
        let found = found.ok_or_else(|| seen.wrong(format!("no promise: {about}")))?;
        seen.ensure(found.held, format!("{}: {}", found.name, found.detail))?;
        Ok::<_, String>(found.detail.clone())
    };
    kept("flight is not disturbed")?;
    kept("flight exits for what is allowed only")?;
    kept("every release on time")
}

/// The promise that nobody's device changed a program holds; and it does not where the
/// IOMMU's tables let one.
fn promise(bench: &Bench) -> Result<String, String> {
    const NAME: &str = "nobody's device changed the program of victim";
    // From the program's first page on.
    let aimed = VICTIM_HPA + 0x20_0000;
    let mut manifest = system(Set::Devices, "attack=dma-victim once", &bench.dir)?;
    manifest.0 = manifest.0.replace(&format!("{CANARY_HPA:#x}"), &format!("{aimed:#x}"));
    let judged = |reach: bool| {
        let seen = run(&manifest, &bench.dir, |o| {
            o.spoil = reach.then(|| -> bulkhead_run::Spoil {
                Box::new(|bytes, baked| {
                    let mut spoil = Spoil::new(bytes, baked);
                    spoil.let_reach(EDU, VICTIM_HPA, 1 << 30);
                    spoil.seal();
                })
            });
        })?;
        let promises = bulkhead_run::judge(seen.outcome()?, false);
        let found = promises.into_iter().find(|p| p.name == NAME);
        found.ok_or_else(|| seen.wrong("it is not promised"))
    };
    let (kept, broken) = (judged(false)?, judged(true)?);
    match (kept.held, broken.held) {
        (true, false) => Ok(kept.detail),
        _ => Err(format!("confined: {}; else: {}", kept.detail, broken.detail)),
    }
}

/// A register of configuration space: function, offset, bits.
type Bits = (Bdf, u16, u32);

/// Lists the bits by which a function, or a port for the functions behind it, reports errors to the machine. They are
/// SERR# and parity errors (PCI 3.0, 6.2.2), device control, root control (PCIe 5.0, 7.5.3.4 and 7.5.3.12), bridge
/// control.
fn reports(function: &Function) -> Vec<Bits> {
    let is_port = function.bridge.is_some();
    let mut all = vec![(4, 1 << 8 | 1 << 6)];
    all.extend(is_port.then_some((0x3C, 0b11 << 16)));
    if let Some(at) = function.pcie.map(|capability| u16::from(capability.at)) {
        all.push((at + 8, 0b1111));
        all.extend(is_port.then_some((at + 0x1C, 0b111)));
    }
    all.into_iter().map(|(offset, bits)| (function.bdf, offset, bits)).collect()
}

/// Tests that a function's owner can't switch reports of errors on, or its decoding off. Reports are on when the
/// machine starts, in functions and in the port above one. Later the machine has reports off and decoding on. With
/// masks that allow SERR# the owner and the machine both show it.
fn silent(bench: &Bench) -> Result<String, String> {
    let (attack, right) = reports_of(bench, None)?;
    attack?;
    let said = right?;
    // Bits that wrong masks would let a guest have, and one that they would add to its writes.
    let allowed = Register { write: 0xFFFF, keep: u32::MAX, set: 1 << 8, ..Register::default() };
    let spoil: bulkhead_run::Spoil = Box::new(move |bytes, baked| {
        let mut spoil = Spoil::new(bytes, baked);
        spoil.register(ROGUE, NETWORK, 4, allowed);
        spoil.seal();
    });
    match reports_of(bench, Some(spoil))? {
        (Err(attack), Err(machine)) if machine.contains("they report errors") => {
            let got = attack.lines().find(|line| line.starts_with("got")).unwrap_or_default();
            Ok(format!("{said}; with wrong masks the owner {got}"))
        }
        (attack, machine) => Err(format!("not seen with wrong masks: {attack:?}, {machine:?}")),
    }
}

/// A run of the attack: what came of it for its owner, and what the machine has at the end.
type Reported = (Result<String, String>, Result<String, String>);

fn reports_of(bench: &Bench, spoil: Option<bulkhead_run::Spoil>) -> Result<Reported, String> {
    let manifest = manifest(Set::Bridge, "attack=reports-on once");
    let baked = bulkhead_run::build(&manifest.load(&bench.dir)?, &artifacts());
    let machine = baked.map_err(|e| e.to_string())?.plan.machine;
    let ecam = machine.pci.as_ref().ok_or("no PCI")?.ecam;
    let at = |bdf| machine.arch.facts().configuration(ecam, bdf).start;
    // Functions of the chipset stay as they are.
    let ours = |f: &&Function| f.bridge.is_some() || f.nobody.is_none();
    let functions: Vec<_> = machine.functions.iter().filter(ours).collect();
    let all: Vec<Bits> = functions.iter().flat_map(|f| reports(f)).collect();
    let (mut on, mut after) = (Err("not started".to_owned()), Err("not ended".to_owned()));
    let look = |(name, state): (&str, State), _: &Memory| {
        if name == "rogue" && state != State::Running && after.is_err() {
            let all = all.iter().copied().chain(functions.iter().map(|f| (f.bdf, 4, 0xFFFF)));
            after = read_all(&bench.dir, at, all);
        }
    };
    let on_start = started(|running| on = switch_on(running, &machine, &all));
    let change = |o: &mut bulkhead_run::Options| {
        o.qemu = vec!["-S".into()];
        o.spoil = spoil;
    };
    let seen = run_from(&manifest, &bench.dir, change, on_start, look)?;
    let on = on.map_err(|why| seen.wrong(why))?;
    // QEMU's e1000e has none of these bits in its device control.
    let can = |at: &&Bits| (at.0, at.1) != (NETWORK, 0xE8);
    let off = all.iter().filter(can).find(|at| !on.iter().any(|on| (on.0, on.1) == (at.0, at.1)));
    seen.ensure(off.is_none(), format!("not on before the start: {off:x?}"))?;
    let got = judge(&seen, 0, rogue::by_name("reports-on").ok_or("no such attack")?);
    let after = after.map_err(|why| seen.wrong(why))?;
    let (bits, commands) = after.split_at(all.len());
    let reporting: Vec<_> =
        all.iter().zip(bits).filter(|(_, is)| **is != 0).map(|(at, is)| (at.0, at.1, is)).collect();
    let decodes = |(f, command): (&&Function, &u32)| {
        let bit = |bar: &Bar| if bar.kind == BarKind::Io { 0b01 } else { 0b10 };
        let needed = f.bars.iter().fold(0, |bits, bar| bits | bit(bar));
        seen.ensure(needed & !command == 0, format!("{} has command {command:#x}", f.bdf))
    };
    let machine = seen
        .ensure(reporting.is_empty(), format!("they report errors: {reporting:x?}"))
        .and_then(|()| functions.iter().zip(commands).try_for_each(decodes))
        .map(|()| format!("{} registers of {} functions", on.len(), functions.len()));
    Ok((got, machine))
}

/// Sets bits before the machine's first instruction, by the ports at which every firmware finds configuration space,
/// and starts it. The registers that have one at least.
fn switch_on(running: &Running, machine: &Machine, all: &[Bits]) -> Result<Vec<Bits>, String> {
    let mut qmp = running.qmp().map_err(|e| e.to_string())?;
    let mut ask = |line: String| qmp.ask(&line).map_err(|e| e.to_string());
    let address = |bdf: Bdf, offset: u16| 1 << 31 | u32::from(bdf.0) << 8 | u32::from(offset);
    // Firmware has not numbered buses yet.
    for function in &machine.functions {
        if let Some(bridge) = function.bridge {
            let buses = u32::from(bridge.secondary) << 8 | u32::from(bridge.subordinate) << 16;
            ask(format!("o /w 0xcf8 {:#x}", address(function.bdf, 0x18)))?;
            ask(format!("o /w 0xcfc {buses:#x}"))?;
        }
    }
    let mut on = Vec::new();
    for &(bdf, offset, bits) in all {
        ask(format!("o /w 0xcf8 {:#x}", address(bdf, offset)))?;
        let before = last_number(&ask("i /w 0xcfc".into())?)?;
        ask(format!("o /w 0xcfc {:#x}", before | bits))?;
        let is = last_number(&ask("i /w 0xcfc".into())?)?;
        on.extend((is & bits != 0).then_some((bdf, offset, is & bits)));
    }
    ask("cont".into())?;
    Ok(on)
}

/// Reads registers from where the running machine has its configuration space.
fn read_all(
    dir: &Path,
    at: impl Fn(Bdf) -> u64,
    all: impl Iterator<Item = Bits>,
) -> Result<Vec<u32>, String> {
    let mut qmp = Qmp::connect(&dir.join("qmp.sock")).map_err(|e| e.to_string())?;
    let one = |(bdf, offset, bits): Bits| {
        let said = qmp.ask(&format!("xp /1xw {:#x}", at(bdf) + u64::from(offset)));
        Ok(last_number(&said.map_err(|e| e.to_string())?)? & bits)
    };
    all.map(one).collect()
}

/// The number with which the monitor's answer ends.
fn last_number(said: &str) -> Result<u32, String> {
    let digits = said.trim().rsplit("0x").next().unwrap_or_default();
    u32::from_str_radix(digits, 16).map_err(|_| format!("no number: {said}"))
}

/// Compares all that confines the guests with the baked image. Returns the number of bytes.
pub fn confined(seen: &Seen) -> Result<u64, String> {
    /// Bits that a processor sets in page tables: accessed and dirty.
    const NOTED: u64 = 0b11 << 5;
    let memory = seen.memory.as_ref().ok_or("no memory")?;
    let baked = &seen.outcome()?.baked;
    let mut bytes = baked.bytes.clone();
    let mut spoil = Spoil::new(&mut bytes, baked);
    spoil.settle(seen.lines()?);
    let devices = spoil.device_table();
    let mut ranges = vec![(devices.start, devices.start + devices.len, 0)];
    for p in &baked.map.parts {
        let (end, owner) = (p.start + p.len, p.owner.unwrap_or_default());
        match p.what {
            "monitor text" | "configuration, launch record" | "pristine guest" => {
                ranges.push((p.start, end, 0));
            }
            "monitor's page tables" => ranges.push((p.start, end, NOTED)),
            // After the save areas: bitmaps, then tables.
            what if what.starts_with("host save areas") => {
                ranges.push((spoil.vmcb(owner, vmcb::IOPM), end, NOTED));
            }
            _ => {}
        }
    }
    for &(start, end, noted) in &ranges {
        let changed = |pa: &u64| (memory.word(*pa) ^ spoil.word(*pa)) & !noted != 0;
        if let Some(pa) = (start..end).step_by(8).find(changed) {
            return Err(seen.wrong(format!("the image is changed at {pa:#x}")));
        }
    }
    Ok(ranges.iter().map(|r| r.1 - r.0).sum())
}
