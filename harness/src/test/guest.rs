//! Guests of every kind, and what they may do to each other by right.

use super::driver::{Bench, Job, Verdict};
use super::system::{Manifest, Seen, artifacts, run};
use crate::build;
use crate::program::Program as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Debian's kernels, as `tools/kernels.sh` fetches them.
const KERNELS: [&str; 4] = ["linux-6.1", "linux-6.1-cloud", "linux-6.12", "linux-6.12-cloud"];
const SMALL: &str = "4 MiB";

pub fn jobs() -> Vec<Job> {
    let mut jobs = vec![
        demo(),
        linux_job("guest/linux-6.12-cloud-2-cores", "linux-6.12-cloud", &[0, 1], "512 MiB"),
        linux_job("guest/linux-6.1-2-cores", "linux-6.1", &[0, 1], "512 MiB"),
        two_linux(),
        power(),
        terminal(),
        interrupted(),
        never_at_rest(),
    ];
    for kernel in KERNELS {
        jobs.push(linux_job(&format!("guest/{kernel}"), kernel, &[0], "512 MiB"));
    }
    // A distribution's kernel unpacks itself to tens of MiB: the cloud flavours
    // have room in 128 MiB, the large ones in 160.
    jobs.push(linux_job("guest/linux-128-mib", "linux-6.12-cloud", &[0], "128 MiB"));
    jobs.push(linux_job("guest/linux-2-gib", "linux-6.12-cloud", &[0], "2 GiB"));
    let low = "{ size = \"256 MiB\", at = \"1 GiB\" }";
    let high = "{ size = \"256 MiB\", at = \"0x140000000\" }";
    jobs.push(linux_job("guest/linux-placed-below-4-gib", "linux-6.12-cloud", &[0], low));
    jobs.push(linux_job("guest/linux-placed-above-4-gib", "linux-6.12-cloud", &[0], high));
    jobs.extend(bare());
    jobs
}

/// First byte of the file system for the log, in the demo's disk (`tools/disk.sh`).
const LOG_AT: u64 = (1008 << 20) + 64 * 512;

/// `make run` without a terminal: its promises are the test. The disk is a copy that keeps what is written, so that the
/// flight's log can be read afterwards.
fn demo() -> Job {
    Job::one("guest/demo", 500, |bench| {
        let report = bench.dir.join("report.json");
        let disk = demo_with_disk(&bench.dir)?;
        let out = std::process::Command::new(crate::build::target().join("release/bulkhead"))
            .args(["run", "systems/demo.toml", "--limit", "480", "--report"])
            .arg(&report)
            .current_dir(&bench.dir)
            .env("BULKHEAD_ARTIFACTS", artifacts())
            .env("CI", "true")
            .printed()?;
        let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
        if !out.status.success() {
            return Err(format!("`make run`: {}\n{}", out.status, super::driver::tail(&said)));
        }
        super::walk::schema(&report)?;
        let html = super::page::check(&bench.dir)?;
        // The engine works, and reaches nothing of flight's.
        for shown in ["dma-own: got harmless 0x1", "dma-victim: got harmless 0x0"] {
            if !said.contains(shown) {
                return Err(format!("no `{shown}`\n{}", super::driver::tail(&said)));
            }
        }
        let page = std::fs::read_to_string(build::root().join("README.md"));
        let page = page.map_err(|e| format!("README.md: {e}"))?;
        let shown = page.split_once("```text\n").and_then(|(_, rest)| rest.split_once("```"));
        let shown = super::typed::sample(shown.ok_or("README.md shows no run")?.0, &said)?;
        let held = said.matches("  held  ").count();
        const TOLD: &str = "lines of the log are on the disk";
        if !said.contains(TOLD) {
            return Err(format!("nobody says `{TOLD}`\n{}", super::driver::tail(&said)));
        }
        let lines = flight_log(&disk)?;
        let _ = std::fs::remove_file(disk);
        Ok(format!(
            "{held} promises held, {shown} lines of README, {lines} lines of the log, a page of {html} bytes"
        ))
    })
}

/// Puts the demo's manifest into a folder, with a disk that keeps what is written; returns the disk's file.
fn demo_with_disk(dir: &Path) -> Result<PathBuf, String> {
    const DRIVE: &str = "file = \"artifact:debian.img\"";
    let text = std::fs::read_to_string(build::root().join("systems/demo.toml"));
    let text = text.map_err(|e| format!("systems/demo.toml: {e}"))?;
    if text.matches(DRIVE).count() != 1 {
        return Err("systems/demo.toml has not one drive".into());
    }
    let disk = dir.join("disk.img");
    let text = text.replace(DRIVE, &format!("file = {disk:?}\nkeep = true"));
    let made = || -> std::io::Result<()> {
        std::fs::create_dir_all(dir.join("systems"))?;
        std::fs::write(dir.join("systems/demo.toml"), text)?;
        let machines = dir.join("machines");
        if !machines.exists() {
            std::os::unix::fs::symlink(build::root().join("machines"), machines)?;
        }
        Ok(())
    };
    made().map_err(|e| format!("{}: {e}", dir.display()))?;
    let image = artifacts().join("debian.img");
    let status = Command::new("cp").arg("--sparse=always").args([&image, &disk]).ended()?;
    if status.success() { Ok(disk) } else { Err(format!("cp {}: {status}", image.display())) }
}

/// Checks the flight's log on the disk: each line is there, in its turn, whatever became of the driver meanwhile.
/// Returns how many there are.
fn flight_log(disk: &Path) -> Result<usize, String> {
    /// Releases of a line, bytes, and lines at least (`programs/flight`).
    const EACH: usize = 80;
    const LINE: usize = 64;
    const LEAST: usize = 40;
    let bytes = super::files::log(disk, LOG_AT)?;
    let (lines, rest) = bytes.as_chunks::<LINE>();
    for (n, line) in lines.iter().enumerate() {
        let text = String::from_utf8_lossy(line);
        let begin = format!("{} releases, error at most ", EACH * (n + 1));
        if !text.starts_with(&begin) || !text.ends_with('\n') {
            return Err(format!("line {} of the log is {text:?}", n + 1));
        }
    }
    if lines.len() < LEAST || !rest.is_empty() {
        return Err(format!("the log has {} lines, and {} bytes", lines.len(), rest.len()));
    }
    Ok(lines.len())
}

/// Types at a terminal: the letters reach a shell in the sandbox, through a serial port without an interrupt.
/// `poweroff` there ends the run.
fn terminal() -> Job {
    let steps = [
        ("# ", "echo $((6 * 7)) is what it says\n"),
        ("42 is what it says", "poweroff\n"),
        ("Power down", ""),
    ];
    Job::one("guest/terminal", 150, move |bench| {
        let shell = Manifest::new().linux("linux", "linux-6.12-cloud", "shell", &[0], "256 MiB", 1);
        shell.load(&bench.dir)?;
        let steps = steps.map(|(seen, typed)| (seen.to_owned(), typed.to_owned()));
        let system = bench.dir.join("system.toml").display().to_string();
        super::typed::at_terminal(&system, 120, &steps).map(|_| String::new())
    })
}

/// Kills a run, which ends in good order. The report is printed, the exit status is as for Ctrl-C, and neither the
/// emulator nor the file with its RAM stays.
fn interrupted() -> Job {
    Job::one("guest/interrupted", 90, |bench| {
        let victim = Manifest::new().bare("victim", "victim", "", &[0], SMALL, "");
        victim.load(&bench.dir)?;
        let mut child = Command::new(crate::build::target().join("release/bulkhead"))
            .args(["run", "--live", "--limit", "60"])
            .arg(bench.dir.join("system.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .started()?;
        let mut seen = String::new();
        let screen = child.stdout.take().ok_or("no output")?;
        let number = child.id().to_string();
        for line in BufReader::new(screen).lines() {
            let line = line.map_err(|e| e.to_string())?;
            // The first word of the guest: the machine runs.
            if seen.is_empty() {
                Command::new("kill").args(["-TERM", &number]).ended()?;
            }
            seen += &format!("{line}\n");
        }
        let status = child.wait().map_err(|e| e.to_string())?;
        if status.code() != Some(130) || !seen.contains(": report\n") {
            return Err(format!("the run ended with {status}\n{seen}"));
        }
        let left = std::fs::read_dir("/dev/shm").map_err(|e| format!("/dev/shm: {e}"))?;
        let mine = format!("bulkhead-{number}-");
        let left = left
            .filter_map(Result::ok)
            .map(|file| file.file_name().to_string_lossy().into_owned())
            .find(|name| name.starts_with(&mine));
        match left {
            Some(name) => Err(format!("/dev/shm/{name} was left")),
            None => Ok(String::new()),
        }
    })
}

fn missing(kernel: &str) -> Option<String> {
    let there = artifacts().join(kernel).is_file();
    (!there).then(|| format!("target/artifacts/{kernel} is missing; `make artifacts` fetches it"))
}

fn linux_job(name: &str, kernel: &'static str, cores: &'static [u32], memory: &'static str) -> Job {
    let test = name.to_owned();
    Job::new(name, [name.to_owned()], 150, move |bench| match missing(kernel) {
        Some(why) => bench.verdict(&test, Verdict::Skipped(why)),
        None => bench.result(&test, linux(bench, kernel, cores, memory)),
    })
}

/// Boots to user space, powers off by ACPI, and nothing was denied.
fn linux(bench: &Bench, kernel: &str, cores: &[u32], memory: &str) -> Result<String, String> {
    let manifest = Manifest::new().linux("linux", kernel, "boot", cores, memory, 1);
    let seen = run(&manifest, &bench.dir, |o| o.limit = Duration::from_secs(130))?;
    came_up(&seen, "linux", 1, cores.len())?;
    seen.undisturbed("linux", &["stopped"])?;
    let s = seen.sandbox("linux")?;
    Ok(format!("{} exits until user space", s.exits.boot.values().sum::<u64>()))
}

/// A Linux that reached user space with all its cores, and powered off.
pub fn came_up(seen: &Seen, name: &str, uart: usize, cores: usize) -> Result<(), String> {
    let s = seen.sandbox(name)?;
    let ended = s.state == "stopped" && s.restarts == 0;
    seen.ensure(ended, format!("{name} did not power off by itself"))?;
    let serial = seen.serial(uart)?;
    seen.ensure(serial.contains("bulkhead-init: user space"), "no user space")?;
    let smp = format!("smp: Brought up 1 node, {cores} CPU");
    seen.ensure(cores == 1 || serial.contains(&smp), format!("no \"{smp}\""))?;
    let promises = bulkhead_run::judge(seen.outcome()?, false);
    let exits = format!("{name} exits for what is allowed only");
    let exits = promises.iter().find(|p| p.name == exits);
    let exits = exits.ok_or_else(|| seen.wrong("nothing is said of exits"))?;
    seen.ensure(exits.held, format!("exits: {}", exits.detail))
}

/// Checks that only looks for serial ports were denied. Debian's kernels look at the four usual places, also at another
/// sandbox's ports: each look is denied and recorded.
fn only_looked_for_serial_ports(seen: &Seen) -> Result<(), String> {
    const COM: [u64; 4] = [0x3F8, 0x2F8, 0x3E8, 0x2E8];
    let serial = |d: &bulkhead_explain::Explained| {
        d.kind == "port-violation" && COM.contains(&(d.record.address & !7))
    };
    let other = seen.denials.iter().find(|d| !serial(d));
    other.map_or(Ok(()), |d| Err(seen.wrong(format!("denied: {d}"))))
}

fn two_linux() -> Job {
    Job::one("guest/two-linux", 200, |bench| {
        let manifest = Manifest::new()
            .linux("one", "linux-6.12-cloud", "boot", &[0], "256 MiB", 1)
            .linux("two", "linux-6.1", "boot", &[1], "256 MiB", 2);
        let seen = run(&manifest, &bench.dir, |o| o.limit = Duration::from_secs(180))?;
        only_looked_for_serial_ports(&seen)?;
        came_up(&seen, "one", 1, 1)?;
        came_up(&seen, "two", 2, 1)?;
        Ok(String::new())
    })
}

/// `reboot` starts a sandbox anew and `poweroff` ends it, and another one's
/// neither stops nor restarts.
fn power() -> Job {
    let tests = ["guest/reboot", "guest/poweroff-alone"];
    Job::new("guest/power", tests.map(String::from), 200, move |bench| {
        let manifest = Manifest::new()
            .ends_with(&["warden"])
            .bare(
                "warden",
                "warden",
                "target=1 do=wait,gone patience=20000",
                &[0],
                SMALL,
                "stop = [\"linux\"]\nstart = [\"linux\"]\nrestart = [\"linux\"]",
            )
            .linux("linux", "linux-6.12-cloud", "reboot", &[1], "256 MiB", 1)
            .bare("victim", "victim", "", &[2], "8 MiB", "");
        // The second life is cut off: it would reboot for ever.
        let console = bench.dir.join("serial1.log");
        let seen = run(&manifest, &bench.dir, |o| {
            o.limit = Duration::from_secs(100);
            o.stop = Some(Box::new(move || {
                std::fs::read_to_string(&console)
                    .is_ok_and(|said| said.matches("bulkhead-init: user space").count() >= 2)
            }));
        });
        bench.result(
            tests[0],
            seen.and_then(|seen| {
                let serial = seen.serial(1)?;
                let lives = serial.matches("bulkhead-init: user space").count();
                let s = seen.sandbox("linux")?;
                seen.ensure(lives >= 2, format!("user space was reached {lives} times"))?;
                seen.ensure(s.restarts >= 1 && s.denials == 0, "restarts or denials of linux")?;
                seen.undisturbed("victim", &["running"])?;
                Ok(format!("user space in {lives} lives"))
            }),
        );
        let manifest = Manifest::new()
            .ends_with(&["linux"])
            .linux("linux", "linux-6.12-cloud", "boot", &[1], "256 MiB", 1)
            .bare("victim", "victim", "", &[2], "8 MiB", "");
        let seen = run(&manifest, &bench.dir, |o| o.limit = Duration::from_secs(90));
        bench.result(
            tests[1],
            seen.and_then(|seen| {
                came_up(&seen, "linux", 1, 1)?;
                seen.undisturbed("linux", &["stopped"])?;
                seen.undisturbed("victim", &["running"])?;
                Ok(String::new())
            }),
        );
    })
}

/// A bare system: its name, its manifest, and what must have come of it.
pub type One = (&'static str, Box<dyn Fn() -> Manifest>, Box<dyn Fn(&Seen) -> Result<(), String>>);

fn one(
    name: &'static str,
    manifest: impl Fn() -> Manifest + 'static,
    judge: impl Fn(&Seen) -> Result<(), String> + 'static,
) -> One {
    (name, Box::new(manifest), Box::new(judge))
}

fn alone(
    program: &'static str,
    args: &'static str,
    cores: &'static [u32],
) -> impl Fn() -> Manifest {
    move || Manifest::new().bare("guest", program, args, cores, SMALL, "")
}

fn bare() -> Vec<Job> {
    let job = |(name, manifest, judge): One| {
        Job::one(name, 90, move |bench| {
            let seen = run(&manifest(), &bench.dir, |_| {})?;
            judge(&seen).map(|()| String::new())
        })
    };
    let high = one(
        "guest/placed-above-4-gib",
        || {
            let at = "{ size = \"4 MiB\", at = \"0x140000000\" }";
            Manifest::new().bare("guest", "selftest", "late=2000000", &[0], at, "")
        },
        tested,
    );
    bare_systems().into_iter().chain([high]).map(job).chain([hello_c(), pci_c()]).collect()
}

fn tested(seen: &Seen) -> Result<(), String> {
    let s = seen.sandbox("guest")?;
    seen.ensure(s.state == "exited" && s.exit_code == Some(0), "a check failed")
}

/// Systems that run on each architecture.
pub fn bare_systems() -> Vec<One> {
    let good = |seen: &Seen| {
        seen.exited("guest")?;
        seen.undisturbed("guest", &["exited"])
    };
    vec![
        one("guest/hello", alone("hello", "", &[0]), move |seen| {
            good(seen)?;
            seen.ensure(seen.console.contains("hello from guest"), "it did not say hello")
        }),
        one("guest/selftest", alone("selftest", "late=2000000", &[0]), tested),
        one("guest/selftest-2-cores", alone("selftest", "late=2000000", &[0, 1]), tested),
        one(
            "guest/selftest-3-restarts",
            alone("selftest", "late=2000000 restarts=3", &[2]),
            |seen| {
                let s = seen.sandbox("guest")?;
                let right = s.state == "exited" && s.exit_code == Some(0) && s.restarts == 3;
                seen.ensure(right, "a check failed, or it was not restarted three times")
            },
        ),
        one("guest/flight", alone("flight", "seconds=1", &[0]), move |seen| {
            good(seen)?;
            let steady = &seen.sandbox("guest")?.exits.steady;
            let asked = steady.keys().all(|k| *k == "hypercall");
            seen.ensure(asked, format!("exits in steady state: {steady:?}"))
        }),
        one(
            "guest/control",
            || {
                Manifest::new()
                    .ends_with(&["warden"])
                    .bare(
                        "warden",
                        "warden",
                        "target=1",
                        &[0],
                        SMALL,
                        "stop = [\"victim\"]\nstart = [\"victim\"]\nrestart = [\"victim\"]",
                    )
                    .bare("victim", "victim", "", &[1], "8 MiB", "")
                    .bare("witness", "victim", "", &[2], "8 MiB", "")
            },
            |seen| {
                seen.exited("warden")?;
                seen.undisturbed("witness", &["running"])?;
                let s = seen.sandbox("victim")?;
                seen.ensure(
                    s.restarts == 2 && s.state == "running",
                    "the victim was not restarted twice",
                )
            },
        ),
        one(
            "guest/lock",
            || {
                Manifest::new()
                    .ends_with(&["warden"])
                    .bare(
                        "warden",
                        "warden",
                        "target=1 do=wait,locked,refused,life1,locked,refused,unlocked,restart,locked,refused,gone,unlocked,start,locked,refused",
                        &[0],
                        SMALL,
                        "stop = [\"locker\"]\nstart = [\"locker\"]\nrestart = [\"locker\"]",
                    )
                    .bare("locker", "locker", "", &[1, 2], SMALL, "lockable = true")
                    .bare("witness", "locker", "", &[3], SMALL, "")
            },
            |seen| {
                seen.exited("warden")?;
                let s = seen.sandbox("locker")?;
                let denials = s.denials + seen.sandbox("warden")?.denials;
                seen.ensure(
                    s.restarts == 3 && s.state == "running" && denials == 0,
                    "the locker was not in its fourth life",
                )?;
                let exit = seen.sandbox("witness")?.exit_code;
                seen.ensure(exit == Some(9), format!("it locks without the right: {exit:?}"))
            },
        ),
        one(
            "guest/control-2-cores",
            || {
                Manifest::new()
                    .ends_with(&["warden"])
                    .bare(
                        "warden",
                        "warden",
                        "target=1 do=wait,sleep,restart,sleep,stop",
                        &[0],
                        SMALL,
                        "stop = [\"rogue\"]\nstart = [\"rogue\"]\nrestart = [\"rogue\"]",
                    )
                    .bare("rogue", "rogue", "attack=spin-for-ever core=1", &[1, 2], SMALL, "")
            },
            |seen| {
                seen.exited("warden")?;
                let s = seen.sandbox("rogue")?;
                seen.ensure(
                    s.restarts == 1 && s.state == "stopped",
                    "it was not restarted and stopped",
                )
            },
        ),
        race("guest/nothing-stays", &[0], "lives=17 low=1"),
        race("guest/race", &[0, 1], "lives=200"),
        race("guest/race-coarse", &[0, 1], "lives=100 step=17 turns=4000"),
        race("guest/race-of-the-second-core", &[0, 1], "lives=100 who=1"),
        race("guest/race-of-three-cores", &[0, 1, 2], "lives=10 step=7"),
        one(
            "guest/autostart-false",
            || {
                Manifest::new()
                    .ends_with(&["warden", "guest"])
                    .bare(
                        "warden",
                        "warden",
                        "target=1 do=sleep,start,gone",
                        &[0],
                        SMALL,
                        "stop = [\"guest\"]\nstart = [\"guest\"]\nrestart = [\"guest\"]",
                    )
                    .bare("guest", "hello", "", &[1], SMALL, "autostart = false")
            },
            |seen| {
                seen.exited("warden")?;
                seen.exited("guest")?;
                seen.ensure(seen.console.contains("incarnation 0"), "it started more than once")
            },
        ),
        one(
            "guest/autostart-false-stays",
            || {
                Manifest::new()
                    .ends_with(&["hello"])
                    .bare("hello", "hello", "", &[0], SMALL, "")
                    .bare("guest", "hello", "", &[1], SMALL, "autostart = false")
            },
            |seen| seen.ensure(!seen.console.contains("hello from guest"), "it started"),
        ),
    ]
}

/// Tests a function that is not at rest in time: its sandbox is not started, a record says why, and the others do not
/// notice.
fn never_at_rest() -> Job {
    const AT_REST: &str = "mask = 0x1, value = 0x0, within = 500";
    const REGISTER: &str = "0xfea00098";
    Job::one("guest/never-at-rest", 60, |bench| {
        let described = std::fs::read_to_string("machines/qemu-q35.toml");
        let described = described.map_err(|e| format!("machines/qemu-q35.toml: {e}"))?;
        if described.matches(AT_REST).count() != 1 {
            return Err(format!("machines/qemu-q35.toml has no {AT_REST:?}"));
        }
        let machines = bench.dir.join("machines");
        let busy = described.replace(AT_REST, "mask = 0x1, value = 0x1, within = 5");
        std::fs::create_dir_all(&machines)
            .and_then(|()| std::fs::write(machines.join("busy.toml"), busy))
            .map_err(|e| format!("{}: {e}", machines.display()))?;
        let manifest = Manifest::on("busy")
            .bare("guest", "hello", "", &[0], SMALL, "devices = [\"pci:00:08.0\"]")
            .bare("other", "hello", "", &[1], SMALL, "");
        let seen = run(&manifest, &bench.dir, |_| {})?;
        seen.exited("other")?;
        let state = seen.sandbox("guest")?.state;
        seen.ensure(state == "failed", format!("guest is {state}"))?;
        let record = seen.denials.iter().map(ToString::to_string).find(|d| d.contains(REGISTER));
        let record = record.ok_or_else(|| seen.wrong(format!("no record of {REGISTER}")))?;
        seen.ensure(record.contains("busy.toml:") && record.contains("at rest"), record.clone())?;
        Ok(record)
    })
}

/// Every life of the guest ends, whatever its cores signal one another meanwhile.
/// That no interleaving is missed is shown by the model in crates/monitor/launch/tests.
pub fn race(name: &'static str, cores: &'static [u32], args: &'static str) -> One {
    let lives = args.split(['=', ' ']).nth(1).and_then(|n| n.parse().ok());
    one(name, alone("racer", args, cores), move |seen| {
        seen.exited("guest")?;
        let restarts = seen.sandbox("guest")?.restarts;
        seen.ensure(Some(restarts) == lives, format!("{restarts} restarts"))
    })
}

/// Builds a guest in C into the folder of a test.
fn built_in_c(bench: &Bench, name: &str) -> Result<(), String> {
    let (script, program) = (format!("guests/{name}/build.sh"), bench.dir.join(name));
    let built = Command::new(build::root().join(&script)).arg(&program).printed()?;
    match built.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&built.stderr).into_owned()),
    }
}

/// A guest in C drives functions by MSI and by MSI-X.
fn pci_c() -> Job {
    Job::one("guest/pci-c", 60, |bench| {
        built_in_c(bench, "pci-c")?;
        let devices = "devices = [\"pci:00:08.0\", \"pci:01:00.0\", \"pci:00:07.0\"]";
        let mut manifest = Manifest::new().bare("guest", "pci-c", "", &[0], SMALL, devices);
        manifest.0 = manifest.0.replace("artifact:pci-c", "pci-c");
        // In real time, in which edu copies.
        let seen = run(&manifest, &bench.dir, |o| o.time = bulkhead_qemu::Time::Live)?;
        seen.exited("guest")?;
        seen.undisturbed("guest", &["exited"])?;
        let said = seen.console.lines().find_map(|l| l.split_once("pci-c: "));
        let said = said.ok_or_else(|| seen.wrong("it does not say what it did"))?.1;
        Ok(said.into())
    })
}

fn hello_c() -> Job {
    Job::one("guest/hello-c", 60, |bench| {
        built_in_c(bench, "hello-c")?;
        let mut manifest = Manifest::new().bare("guest", "hello-c", "", &[0], SMALL, "");
        manifest.0 = manifest.0.replace("artifact:hello-c", "hello-c");
        let seen = run(&manifest, &bench.dir, |_| {})?;
        seen.exited("guest")?;
        seen.undisturbed("guest", &["exited"])?;
        Ok(String::new())
    })
}
