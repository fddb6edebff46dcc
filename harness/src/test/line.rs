//! Interrupt lines: serial ports that work by interrupts, in bare guests and Linux,
//! edge- and level-triggered, beside each other and beside a storm.

use super::attack::unharmed;
use super::driver::Job;
use super::mutate;
use super::system::{Manifest, NEWER, OLDER, Seen, run, run_audited};
use super::wrong::stopped;
use crate::build;
use bulkhead_layout::image::BootReport;
use bulkhead_qemu::Time;
use bulkhead_run::audit;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

const SMALL: &str = "4 MiB";
/// Exits by which a Linux clears an IOAPIC when it powers off. Each of 24 lines has an entry of two registers, each
/// written three times by index and window.
const CLEARED: u64 = 24 * 3 * 4;

pub fn jobs() -> Vec<Job> {
    vec![
        two("line/two-guests", "qemu-q35", "lines=40", 0, false),
        two("line/restarted", "qemu-q35", "lines=20 life=4", 3, false),
        two("line/level-triggered", "qemu-q35", "lines=20 life=4", 3, true),
        two("vtd/lines", "qemu-q35-vtd", "lines=20 life=4", 3, false),
        two("vtd/lines-level-triggered", "qemu-q35-vtd", "lines=20 life=4", 3, true),
        said_wrong(),
        level_beside_dma(),
        forged(),
        storm(),
        late(),
        clock("line/linux-clock", NEWER),
        clock("line/linux-clock-6.1", OLDER),
        linux("line/linux", false),
        linux("line/linux-level-triggered", true),
        two_linux(),
        functions("line/linux-virtio", "6.12-cloud", VIRTIO),
        functions("line/linux-ahci-e1000e", "6.12", EMULATED),
    ]
}

/// Changes the machine: the device with this interrupt has a level-triggered line.
pub fn with_level(mut manifest: Manifest, dir: &Path, irq: u32) -> Result<Manifest, String> {
    let is_vtd = manifest.0.contains("machines/qemu-q35-vtd.toml");
    let name = if is_vtd { "machines/qemu-q35-vtd.toml" } else { "machines/qemu-q35.toml" };
    let path = build::root().join(name);
    let machine = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let edge = format!("irq = {irq}\n");
    let level = machine.replace(&edge, &format!("{edge}trigger = \"level-high\"\n"));
    let here = dir.join("level.toml");
    std::fs::write(&here, level).map_err(|e| format!("{}: {e}", here.display()))?;
    let here = here.display().to_string();
    manifest.0 = manifest.0.replace(name, &here);
    Ok(manifest)
}

fn serial(manifest: Manifest, name: &str, args: &str, core: u32, uart: u32) -> Manifest {
    let (port, line) = if uart == 0 { (0x3F8, 4) } else { (0x2F8, 3) };
    let args = format!("port={port:#x} line={line} {args}");
    let device = format!("devices = [\"uart{uart}\"]");
    manifest.bare(name, "serial", &args, &[core], SMALL, &device)
}

/// Checks the text of `guests/serial`: whole lines with ascending numbers.
fn wrote(seen: &Seen, uart: usize, sandbox: u8, lines: usize) -> Result<(), String> {
    let text = seen.serial(uart)?;
    let found: Vec<_> = text.lines().filter(|l| l.len() == 62).collect();
    let right = |(n, line): (usize, &&str)| {
        line.starts_with(&format!("{}{n:04}", (b'A' + sandbox) as char))
    };
    let last = found.len().checked_sub(lines).map(|first| &found[first..]).unwrap_or_default();
    let whole = last.len() == lines && last.iter().enumerate().all(right);
    seen.ensure(whole, format!("serial {uart} does not end with {lines} whole lines"))
}

/// Runs two bare guests at once, each with a serial port and its line.
fn two(
    name: &'static str,
    machine: &'static str,
    args: &'static str,
    restarts: u64,
    level: bool,
) -> Job {
    let lines = args.split(['=', ' ']).nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    Job::one(name, 60, move |bench| {
        let manifest = Manifest::on(machine).ends_with(&["one", "two"]);
        let manifest = serial(manifest, "one", args, 0, 0);
        let mut manifest = serial(manifest, "two", args, 1, 1);
        if level {
            manifest = with_level(manifest, &bench.dir, 3)?;
        }
        let seen = run_audited(&manifest, &bench.dir, 50)?;
        for (index, name) in ["one", "two"].into_iter().enumerate() {
            seen.exited(name)?;
            wrote(&seen, index, index as u8, lines)?;
            let s = seen.sandbox(name)?;
            seen.ensure(s.restarts == restarts && s.denials == 0, "restarts or denials")?;
            let asked = s.exits.steady.keys().all(|cause| *cause == "hypercall");
            seen.ensure(asked, format!("exits of {name}: {:?}", s.exits.steady))?;
        }
        let interrupts = seen.console.lines().filter_map(|l| l.split_once(" by ")).map(|l| l.1);
        let remaps = match machine {
            "qemu-q35" => found(&seen)?.1,
            _ => "the IOMMU remaps lines",
        };
        Ok(format!("{}; {remaps}", interrupts.collect::<Vec<_>>().join(", ")))
    })
}

/// Tells if the emulator's IOMMU sees the IOAPIC's messages, as the boot code found out; and in words.
fn found(seen: &Seen) -> Result<(bool, &'static str), String> {
    match seen.lines()? {
        BootReport::SEEN => Ok((true, "the IOMMU sees lines")),
        BootReport::UNSEEN => Ok((false, "the IOMMU does not see lines")),
        _ => Err(seen.wrong("the boot code found nothing out about lines")),
    }
}

/// Changes the machine description: it says if the IOMMU sees lines.
fn saying(mut manifest: Manifest, dir: &Path, seen: bool) -> Result<Manifest, String> {
    let path = build::root().join("machines/qemu-q35.toml");
    let machine = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let remaps = "remaps_interrupts = true\n";
    let saying = machine.replace(remaps, &format!("{remaps}remaps_lines = {seen}\n"));
    let here = dir.join(format!("saying-{seen}.toml"));
    std::fs::write(&here, saying).map_err(|e| format!("{}: {e}", here.display()))?;
    let here = here.display().to_string();
    manifest.0 = manifest.0.replace("machines/qemu-q35.toml", &here);
    Ok(manifest)
}

/// Tests machine descriptions that speak of lines. A wrong one is refused at boot, with its words. A right one is as
/// good as one that says nothing.
fn said_wrong() -> Job {
    Job::one("line/said-wrong", 90, |bench| {
        let mut right = Vec::new();
        for said in [false, true] {
            let manifest = Manifest::new().ends_with(&["one"]);
            let manifest = saying(serial(manifest, "one", "lines=20", 0, 0), &bench.dir, said)?;
            let seen = run(&manifest, &bench.dir, |_| {})?;
            match &seen.outcome {
                Ok(_) => {
                    seen.exited("one")?;
                    wrote(&seen, 0, 0, 20)?;
                    let (is, words) = found(&seen)?;
                    seen.ensure(is == said, format!("said: {said}, and {words}"))?;
                    right.push(words);
                }
                Err(error) => {
                    stopped(error, 23, &format!("says remaps_lines = {said}"))?;
                }
            }
        }
        match right[..] {
            [words] => Ok(words.into()),
            _ => Err(format!("{} descriptions were right", right.len())),
        }
    })
}

/// Tests a level-triggered line beside a device of another sandbox. An IOMMU that sees the IOAPIC's messages would have
/// to let all pass, and the device could send any. So the boot stops there, and says why.
fn level_beside_dma() -> Job {
    Job::one("line/level-beside-dma", 60, |bench| {
        let manifest = Manifest::new().ends_with(&["one"]);
        let edge = serial(manifest, "one", "lines=20", 0, 1);
        let edu = "devices = [\"pci:00:08.0\"]";
        let edge = edge.bare("other", "hello", "", &[1], SMALL, edu);
        let (is, words) = found(&run(&edge, &bench.dir, |_| {})?)?;
        let seen = run(&with_level(edge, &bench.dir, 3)?, &bench.dir, |_| {})?;
        match &seen.outcome {
            Ok(_) => {
                seen.ensure(!is, "it was not refused")?;
                seen.exited("one")?;
                wrote(&seen, 1, 0, 20)?;
            }
            Err(error) if is => {
                stopped(error, 23, "could then send any interrupt")?;
            }
            Err(error) => return Err(error.clone()),
        }
        Ok(words.into())
    })
}

/// Tests messages that a device forges by DMA as if they were the IOAPIC's. An emulator takes such writes for the
/// IOAPIC's. Where its IOMMU sees lines, the slots in use can be fired, and arrive as the interrupts that their owner
/// has asked for. Nothing else arrives, and nothing at a sandbox without lines. Where it does not see them, nothing
/// arrives at all.
fn forged() -> Job {
    Job::one("line/forged", 90, |bench| {
        const WRITTEN: u64 = 2 * 64 / 16 + 1;
        let manifest = Manifest::new().ends_with(&["rogue"]);
        let victim = "{ size = \"8 MiB\", at = \"1 GiB\" }";
        let edu = "devices = [\"pci:00:08.0\"]";
        let manifest = serial(manifest, "one", "lines=2 stay", 0, 0)
            .bare("victim", "victim", "", &[2], victim, "")
            .bare("rogue", "rogue", "foreign=0 attack=dma-message-lines once", &[1], SMALL, edu);
        let seen = run_audited(&manifest, &bench.dir, 80)?;
        let done = seen.console.contains("rogue: attack dma-message-lines: got harmless 0x0");
        seen.ensure(done, "the attack was not made, or something arrived at its own core")?;
        unharmed(&seen)?;
        let s = seen.sandbox("one")?;
        seen.ensure(s.state == "running" && s.restarts == 0, "it was disturbed")?;
        let counts = seen.console.lines().filter_map(|l| l.strip_prefix("[one] serial: "));
        let last = counts.filter_map(|l| l.split(' ').next()?.parse::<u64>().ok()).next_back();
        let (is, words) = found(&seen)?;
        // One slot is in use: its only line.
        let expected = WRITTEN + u64::from(is);
        seen.ensure(
            last == Some(expected),
            format!("{last:?} interrupts, not {expected}: {words}"),
        )?;
        Ok(format!("{} forged ones arrived: {words}", expected - WRITTEN))
    })
}

/// One sandbox masks and opens its line as fast as it can; another's works on.
fn storm() -> Job {
    Job::one("line/storm", 90, |bench| {
        let manifest = Manifest::new().ends_with(&["one"]);
        let manifest = serial(manifest, "one", "lines=200", 0, 0).bare(
            "rogue",
            "rogue",
            "attack=ioapic-storm uart=0x2f8",
            &[1],
            SMALL,
            "devices = [\"uart1\"]",
        );
        let seen = run(&manifest.restarting("rogue"), &bench.dir, |_| {})?;
        seen.exited("one")?;
        seen.undisturbed("one", &["exited"])?;
        wrote(&seen, 0, 0, 200)?;
        let config = seen.sandbox("rogue")?.exits.boot.get("config").copied().unwrap_or(0);
        seen.ensure(config > 100, format!("{config} exits are no storm"))?;
        Ok(format!("{config} exits of the other"))
    })
}

/// Tests cores that are late in the middle of each write to the IOAPIC, for longer than others wait. The others give
/// up, their guests' instructions come again, and nothing is denied. Monitors share the word that makes cores late.
/// Audits meanwhile find half an entry, and it aims at no core of others.
fn late() -> Job {
    Job::one("line/late", 400, |bench| {
        /// Exits by which it opens and closes its line in two lives, in time: 17. Some more.
        const IN_TIME: u64 = 25;
        /// A fourth of them finds an entry with halves that were written the other way round. A host has time for more
        /// of them or fewer.
        const AUDITS: usize = 5;
        mutate::build_mutants()?;
        let manifest = Manifest::new().ends_with(&["one"]);
        let manifest = serial(manifest, "one", "lines=10 life=2", 0, 0).bare(
            "late",
            "rogue",
            "attack=ioapic-storm uart=0x2f8",
            &[1],
            SMALL,
            "devices = [\"uart1\"]",
        );
        let folder = mutate::monitor_without("line-prompt")?;
        let manifest = manifest.restarting("late");
        let baked = bulkhead_run::build(&manifest.load(&bench.dir)?, &folder);
        let claim = audit::claim(&baked.map_err(|e| e.to_string())?.plan, &folder);
        let (claim, dir) = (claim.map_err(|e| e.to_string())?, bench.dir.clone());
        let looks = Rc::new(RefCell::new((0, Vec::new())));
        let all = Rc::clone(&looks);
        // Cores take turns of a tenth of a millisecond: with longer ones nobody would look while another has the lock.
        let seen = run(&manifest, &bench.dir, |o| {
            o.artifacts = folder;
            o.time = Time::coarse();
            o.stop = Some(Box::new(move || {
                let (count, wrong) = &mut *all.borrow_mut();
                if let Ok(audited) = audit::attached(&dir, &claim) {
                    let lines = audited.report.findings.into_iter();
                    wrong.extend(lines.filter(|f| f.rule.starts_with("line-")).map(|f| f.message));
                    *count += 1;
                }
                false
            }));
        })?;
        let (audits, wrong) = &*looks.borrow();
        seen.ensure(wrong.is_empty(), format!("{wrong:?} in {audits} audits"))?;
        seen.ensure(*audits >= AUDITS, format!("{audits} audits"))?;
        seen.exited("one")?;
        wrote(&seen, 0, 0, 10)?;
        let s = seen.sandbox("one")?;
        seen.ensure(s.restarts == 1 && s.denials == 0, "restarts or denials")?;
        let config: u64 =
            [&s.exits.boot, &s.exits.steady].iter().filter_map(|e| e.get("config")).sum();
        seen.ensure(config > IN_TIME, format!("{config} exits: nobody was late"))?;
        let late = seen.sandbox("late")?;
        seen.ensure(late.denials == 0, "the late one was denied something")?;
        Ok(format!("{config} exits of the other, no denial, {audits} audits"))
    })
}

/// Tests a Linux that owns the real-time clock, on two cores. It sets its time by the clock when it boots, and its
/// driver reads it. Nothing is denied.
fn clock(name: &'static str, kernel: &'static str) -> Job {
    const READS: &str = "awk:BEGIN{while((getline<\\\"/proc/driver/rtc\\\")>0)print;print\\\"now\\\"strftime(\\\"%Y-%m-%d\\\")}";
    Job::one(name, 150, move |bench| {
        let mut manifest = Manifest::new().ends_with(&["linux"]).linux(
            "linux",
            kernel,
            READS,
            &[0, 1],
            "256 MiB",
            1,
        );
        manifest.0 = manifest.0.replace("[\"uart1\"]", "[\"uart1\", \"rtc\"]");
        let seen = run(&manifest, &bench.dir, |o| o.limit = Duration::from_secs(120))?;
        seen.undisturbed("linux", &["stopped"])?;
        let (year, month) = bulkhead_qemu::EPOCH;
        let date = format!("{year}-{month:02}-01");
        let text = seen.serial(1)?;
        for who in ["rtc_date", "now"] {
            let line = text.lines().find(|line| line.starts_with(who));
            let right = line.is_some_and(|line| line.trim_end().ends_with(&date));
            seen.ensure(right, format!("{line:?} is not {date}"))?;
        }
        seen.ensure(text.contains("setting system clock to"), "no driver has set its time")?;
        let config = seen.sandbox("linux")?.exits.boot.get("config").copied().unwrap_or(0);
        Ok(format!("{date}; {config} exits of configuration at its boot"))
    })
}

/// Prints a lot, then how many interrupts there were.
const PRINTS: &str = "awk:BEGIN{while(i++<2000)print\\\"number\\\"i;while((getline<\\\"/proc/interrupts\\\")>0)print}";

/// A Linux writes to its console by interrupts, and without an exit.
fn linux(name: &'static str, level: bool) -> Job {
    Job::one(name, 150, move |bench| {
        let mut manifest =
            Manifest::new().ends_with(&["linux"]).linux("linux", NEWER, PRINTS, &[0], "256 MiB", 1);
        if level {
            manifest = with_level(manifest, &bench.dir, 3)?;
        }
        let seen = run(&manifest, &bench.dir, |o| o.limit = Duration::from_secs(120))?;
        seen.undisturbed("linux", &["stopped"])?;
        let by = by_interrupts(&seen, "linux", 1, level)?;
        Ok(format!("{by} interrupts"))
    })
}

fn by_interrupts(seen: &Seen, name: &str, uart: usize, level: bool) -> Result<u64, String> {
    let text = seen.serial(uart)?;
    let all = (1..=2000).all(|n| text.contains(&format!("number{n}\n")));
    seen.ensure(all, "a line is missing")?;
    let kind = if level { "fasteoi" } else { "edge" };
    let ours = |l: &&str| l.contains(&format!("-{kind}")) && l.contains("ttyS");
    let line = text.lines().find(ours).unwrap_or_default();
    let counts = line.split_whitespace().skip(1).map_while(|n| n.parse::<u64>().ok());
    let count: u64 = counts.sum();
    // 16 bytes an interrupt at most.
    seen.ensure(count > 1000, format!("{count} interrupts: {line}"))?;
    let config = seen.sandbox(name)?.exits.steady.get("config").copied().unwrap_or(0);
    // And four for each time that the port is opened or closed: by init and its job.
    let few = config <= CLEARED + 32;
    seen.ensure(few, format!("{config} exits for configuration"))?;
    Ok(count)
}

/// Runs two Linux sandboxes with lines at once.
fn two_linux() -> Job {
    Job::one("line/two-linux", 240, |bench| {
        let linux = |manifest: Manifest, name, core, uart| {
            manifest.linux(name, NEWER, PRINTS, &[core], "256 MiB", uart)
        };
        let manifest = Manifest::new().ends_with(&["one", "two"]);
        let manifest = linux(linux(manifest, "one", 0, 0), "two", 1, 1);
        let victim = "{ size = \"8 MiB\", at = \"1 GiB\" }";
        let manifest = manifest.bare("victim", "victim", "", &[2], victim, "");
        let seen = run(&manifest, &bench.dir, |o| o.limit = Duration::from_secs(200))?;
        let mut counts = Vec::new();
        for (uart, name) in ["one", "two"].into_iter().enumerate() {
            let s = seen.sandbox(name)?;
            // Each is denied the other's port, for which it looks.
            seen.ensure(s.state == "stopped" && s.restarts == 0, format!("{name} is {}", s.state))?;
            counts.push(by_interrupts(&seen, name, uart, false)?);
        }
        unharmed(&seen)?;
        Ok(format!("{counts:?} interrupts"))
    })
}

/// A disk and a network card: address, line, and name in Linux of each.
struct Pair {
    drive: &'static str,
    root: &'static str,
    net: &'static str,
    functions: [(&'static str, u32, &'static str); 2],
}

const VIRTIO: Pair = Pair {
    drive: "disk0",
    root: "/dev/vda",
    net: "virtio_net",
    functions: [("00:03.0", 23, "virtio0"), ("00:05.0", 21, "virtio1")],
};
/// One of them behind a bridge.
const EMULATED: Pair = Pair {
    drive: "disk3",
    root: "/dev/sda",
    net: "e1000e",
    functions: [("00:1f.2", 16, "ahci"), ("01:00.0", 22, "eth0")],
};

/// Reads 32 MiB from the disk, then prints how many interrupts there were. A command line
/// has no spaces in a parameter.
const READS: &str =
    "bash:-c,dd${IFS}if=ROOT${IFS}of=/dev/null${IFS}bs=1M${IFS}count=32;cat${IFS}/proc/interrupts";

/// A Linux without messages works on the level-triggered lines of its functions, which
/// it finds by ACPI's _PRT.
fn functions(name: &'static str, kernel: &'static str, pair: Pair) -> Job {
    Job::one(name, 240, move |bench| {
        let reads = READS.replace("ROOT", pair.root);
        let mut manifest = Manifest::new().ends_with(&["linux"]);
        manifest.0 +=
            &format!("[[run.drive]]\nname = \"{}\"\nfile = \"artifact:debian.img\"\n", pair.drive);
        let (mut manifest, grants) = (
            manifest.linux("linux", &format!("linux-{kernel}.elf"), &reads, &[0], "512 MiB", 1),
            pair.functions.map(|(at, ..)| format!("{{ device = \"pci:{at}\", line = true }}")),
        );
        let more = format!(" pci=nomsi bulkhead.root={} bulkhead.net={}", pair.root, pair.net);
        manifest.0 = manifest
            .0
            .replace("artifact:test.cpio", &format!("artifact:disk-{kernel}.cpio"))
            .replace("console=ttyS1,115200", &format!("console=ttyS1,115200{more}"))
            .replace("[\"uart1\"]", &format!("[\"uart1\", {}]", grants.join(", ")));
        let seen = run(&manifest, &bench.dir, |o| {
            o.limit = Duration::from_secs(220);
            o.time = Time::Live;
        })?;
        let s = seen.sandbox("linux")?;
        // Kernels with a driver of Intel's P2SB bridge look for it: a write, and another.
        let right = s.state == "stopped" && s.restarts == 0 && s.denials <= 2;
        seen.ensure(right, "it was restarted or denied something")?;
        let text = seen.serial(1)?;
        let mut counts = Vec::new();
        for ((_, line, who), least) in pair.functions.into_iter().zip([100, 1]) {
            let ours = |l: &&str| {
                l.contains(&format!(" {line}-fasteoi")) && l.contains(&format!(" {who}"))
            };
            let found = text.lines().find(ours);
            let count = found.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok());
            let enough = count.is_some_and(|count| count >= least);
            seen.ensure(enough, format!("{who} on line {line}: {found:?}"))?;
            counts.push(format!("{} of {who}", count.unwrap_or(0)));
        }
        Ok(format!("{} interrupts", counts.join(", ")))
    })
}
