//! Systems on Bochs (docs/decisions/0003-bochs.md): its SVM saves the next RIP, and QEMU's authors wrote none of its
//! serial ports and APICs. The machine boots from an ISO. Results are read from its serial ports, and denials from a
//! guest that observes the others' reports.

use super::driver::{Bench, Job, Verdict};
use super::system::{Manifest, artifacts};
use bulkhead_qemu::Running;
use bulkhead_qemu::bochs::Bochs;
use rogue::{Attack, Expect, Set};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// Where the victim's memory is, in the machine; its canaries from 4 MiB on.
const VICTIM: &str = "{ size = \"8 MiB\", at = \"256 MiB\" }";
const CANARY: u64 = (256 << 20) + (6 << 20);
const UART1: &str = "devices = [\"uart1\"]";

pub fn jobs() -> Vec<Job> {
    let mut jobs = vec![attacks()];
    let simple: [(&str, &str, &'static [u32], &str); 3] = [
        ("bochs/selftest", "console=0x2f8", &[0], "incarnation 0, 0 failed"),
        ("bochs/selftest-2-cores", "console=0x2f8", &[2, 1], "incarnation 0, 0 failed"),
        ("bochs/restart", "console=0x2f8 restarts=3", &[1], "incarnation 3, 0 failed"),
    ];
    for (name, args, cores, expected) in simple {
        jobs.push(job(name, move |bench| {
            let manifest =
                Manifest::on("bochs").bare("guest", "selftest", args, cores, "4 MiB", UART1);
            let mut running = start(&manifest, &bench.dir)?;
            let text = running.wait_serial(1, expected, LIMIT);
            let text = text.map_err(|e| e.to_string())?.text();
            let checks = text.matches(" ok\n").count();
            if text.contains("FAILED") || checks < 10 {
                return Err(text);
            }
            Ok(format!("{checks} checks"))
        }));
    }
    jobs.push(job("bochs/control", |bench| {
        let control =
            format!("{UART1}\nstop = [\"victim\"]\nstart = [\"victim\"]\nrestart = [\"victim\"]");
        let manifest = Manifest::on("bochs")
            .bare("warden", "warden", "target=1 console=0x2f8", &[0], "4 MiB", &control)
            .bare("victim", "victim", "", &[1], "8 MiB", "");
        let mut running = start(&manifest, &bench.dir)?;
        // Stopped, started and restarted through the doorbell.
        let last = "warden: restart: true, state 2, 2 restarts";
        running.wait_serial(1, last, LIMIT).map_err(|e| e.to_string())?;
        Ok(String::new())
    }));
    jobs
}

fn job(name: &'static str, body: impl Fn(&Bench) -> Result<String, String> + 'static) -> Job {
    Job::new(name, [name.to_owned()], 100, move |bench| {
        bench.result(name, body(bench));
    })
}

/// Bakes a system, wraps it into an ISO and boots it.
fn start(manifest: &Manifest, dir: &Path) -> Result<Running, String> {
    let checked = manifest.load(dir)?;
    let baked = bulkhead_run::build(&checked, &artifacts()).map_err(|e| e.to_string())?;
    let (image, iso) = (dir.join("image"), dir.join("image.iso"));
    std::fs::write(&image, &baked.bytes).map_err(|e| format!("{}: {e}", image.display()))?;
    bulkhead_run::iso(&image, &iso).map_err(|e| e.to_string())?;
    let mut bochs = Bochs::new(dir, iso);
    bochs.cores = baked.plan.machine.core_ids.len();
    bochs.memory = (baked.plan.machine.ram_size() >> 20) as usize;
    bochs.start().map_err(|e| e.to_string())
}

/// Attacks that Bochs cannot show, and why (docs/decisions/0003-bochs.md).
const NOT_ON_BOCHS: [(&str, &str); 2] = [
    // AMD's processors clear it before the intercept, so the injected #DB is complete.
    ("debug-registers", "Bochs leaves DR7.GD set when #DB is intercepted"),
    ("triple-fault", "Bochs ends at a triple fault, intercepted or not"),
];

fn why_not(attack: &Attack) -> Option<&'static str> {
    let found = NOT_ON_BOCHS.iter().find(|n| n.0 == attack.name);
    found.map(|n| n.1)
}

/// All attacks that end by themselves beside a victim: one life each up to the first
/// that Bochs cannot show, a system each after it.
fn attacks() -> Job {
    let name = |attack: &str| format!("bochs-attack/{attack}");
    const UNHARMED: &str = "bochs-attack/victim-unharmed";
    let tests = Set::Any.ending().map(move |a| name(a.name)).chain([UNHARMED.into()]);
    let tests: Vec<_> = tests.collect();
    let names = tests.clone();
    Job::new("bochs-attack", tests, 240, move |bench| {
        let all: Vec<_> = Set::Any.ending().collect();
        let first = all.iter().position(|a| why_not(a).is_some());
        let (before, after) = all.split_at(first.unwrap_or(all.len()));
        let seen = run_attacks(&bench.dir, &format!("lives={}", before.len()), true);
        let (rogue, observer) = match seen {
            Ok(seen) => seen,
            // Each test that was asked for shows why.
            Err(error) => {
                return names.iter().for_each(|n| bench.result(n, Err::<String, _>(error.clone())));
            }
        };
        for (life, attack) in before.iter().enumerate() {
            bench.result(&name(attack.name), judge(&rogue, &observer, life, attack));
        }
        let well = observer.contains("observer: victim state 2 restarts 0 denials 0");
        bench.result(UNHARMED, if well { Ok("") } else { Err(observer) });
        for attack in after {
            if let Some(why) = why_not(attack) {
                bench.verdict(&name(attack.name), Verdict::Skipped(why.into()));
                continue;
            }
            let seen = run_attacks(&bench.dir, &format!("attack={} once", attack.name), false);
            let result = seen.and_then(|(rogue, observer)| judge(&rogue, &observer, 0, attack));
            bench.result(&name(attack.name), result);
        }
    })
}

/// Runs the attacks: the lines of the rogue and of the observer.
fn run_attacks(dir: &Path, how: &str, restarting: bool) -> Result<(String, String), String> {
    let args = format!("victim={CANARY:#x} foreign=0 sandbox=0 port=0x3f8 console=0x2f8 {how}");
    let observer = "devices = [\"uart0\"]\nobserve = [\"victim\", \"rogue\"]";
    let watch = "console=0x3f8 until=rogue";
    let mut manifest = Manifest::on("bochs")
        .bare("victim", "victim", "", &[0], VICTIM, "")
        .bare("rogue", "rogue", &args, &[1], "4 MiB", UART1)
        .bare("observer", "observer", watch, &[2], "4 MiB", observer);
    if restarting {
        manifest = manifest.restarting("rogue");
    }
    manifest.0 +=
        "[[channel]]\nname = \"news\"\nfrom = \"victim\"\nto = [\"rogue\"]\nsize = \"4 KiB\"\n";
    let mut running = start(&manifest, dir)?;
    let limit = Duration::from_secs(150);
    let seen = running.wait_serial(0, "observer: done", limit);
    let observer = seen.map_err(|e| e.to_string())?.text();
    Ok((running.serial(1).text(), observer))
}

/// Judges an attack: a denied one is recorded once, as expected, and its guest got nothing.
fn judge(rogue: &str, observer: &str, life: usize, attack: &Attack) -> Result<String, String> {
    let said = |what: &str| {
        let start = format!("rogue: attack {}: {what} ", attack.name);
        rogue.lines().find_map(|l| l.strip_prefix(&start)).map(str::trim_end)
    };
    let expected = said("expected").ok_or_else(|| format!("it was not made\n{rogue}"))?;
    let start = format!("observer: rogue life {life} core 0 ");
    let denied: Vec<_> =
        observer.lines().filter_map(|l| l.strip_prefix(&start)).map(str::trim_end).collect();
    let got = said("got");
    let right = match attack.expect {
        // An instruction that the processor lacks is as good as a denied one.
        Expect::Instruction(_) if denied.is_empty() => {
            got.is_some_and(|g| g.starts_with("exception 6"))
        }
        Expect::Harmless(_) | Expect::QuietLines if expected.starts_with("harmless") => {
            denied.is_empty() && got == Some(expected)
        }
        Expect::Exception(_) => denied.is_empty() && got.is_some_and(|g| g.starts_with(expected)),
        _ => denied == [expected] && got.is_none(),
    };
    let result = format!("{}{}", denied.join(", "), got.unwrap_or_default());
    if right { Ok(result) } else { Err(format!("expected {expected}\ngot {result}")) }
}
