//! Systems on Intel's VT-x: the manifests of other jobs, on Bochs' machine (docs/vtx.md). Reports, consoles and
//! denials are read as QEMU's are.

use super::driver::{self, Bench, Job, Verdict};
use super::system::{Manifest, Seen, artifacts, run};
use super::{attack, guest, kernel};
use crate::build;
use crate::program::Program as _;
use rogue::{Attack, Set};
use std::process::Command;
use std::time::Duration;

/// Seconds for a run of bare guests and of kernels; most of it is the firmware and GRUB.
const LIMIT: Duration = Duration::from_secs(180);

pub fn jobs() -> Vec<Job> {
    let mut jobs = vec![
        attacks(),
        command(
            "vmx/command",
            200,
            &["tests/kernel/hello.toml", "--arch", "x86-64-vmx"],
            &["[rt] hello from hello", "held   rt exits for what is allowed only"],
        ),
        command(
            "vmx/demo",
            600,
            &["systems/demo-vmx.toml", "--limit", "580"],
            &[
                "demo: done",
                "[denied] rogue",
                "held   flight is not disturbed",
                "held   rogue is caught and restarted",
            ],
        ),
    ];
    // A race takes hundreds of lives, and minutes in Bochs.
    let quick = |(name, ..): &guest::One| !name.starts_with("guest/race");
    jobs.extend(guest::bare_systems().into_iter().filter(quick).map(|(name, manifest, judge)| {
        let name = name.replace("guest/", "vmx/");
        Job::one(name, 200, move |bench| {
            let seen = on_vmx(&manifest(), bench, LIMIT)?;
            judge(&seen).map(|()| String::new())
        })
    }));
    for name in ["aes", "c", "edf", "hello", "mixed", "overrun", "passive", "storm", "vcpu"] {
        jobs.push(Job::one(format!("vmx/kernel-{name}"), 200, move |bench| {
            let seen = on_vmx(&Manifest(kernel::system(name)?), bench, LIMIT)?;
            kernel::ended_well(&seen)?;
            kernel::same_words(&seen, name)
        }));
    }
    for (name, kernel, cores) in LINUX {
        jobs.push(Job::one(name, 600, move |bench| linux(bench, kernel, cores)));
    }
    jobs
}

/// A manifest for QEMU's machine, on the machine with VT-x.
pub fn moved(manifest: &Manifest) -> Manifest {
    Manifest(manifest.0.replace("machines/qemu-q35.toml", "machines/bochs-vmx.toml"))
}

fn on_vmx(manifest: &Manifest, bench: &Bench, limit: Duration) -> Result<Seen, String> {
    run(&moved(manifest), &bench.dir, |options| options.limit = limit)
}

/// Attacks that Bochs cannot show on this machine, and why.
const NOT_HERE: [(&str, &str); 0] = [];

/// All attacks that end by themselves, one life each, as on SVM.
fn attacks() -> Job {
    let name = |attack: &str| format!("vmx-attack/{attack}");
    const UNHARMED: &str = "vmx-attack/victim-unharmed";
    let tests = Set::Any.ending().map(move |a| name(a.name)).chain([UNHARMED.into()]);
    let tests: Vec<_> = tests.collect();
    let names = tests.clone();
    Job::new("vmx-attack", tests, 420, move |bench| {
        let lives = Set::Any.ending().count();
        let manifest = attack::system(&[1], &format!("lives={lives}")).restarting("rogue");
        let seen = match on_vmx(&manifest, bench, Duration::from_secs(400)) {
            Ok(seen) => seen,
            Err(error) => {
                return names.iter().for_each(|n| bench.result(n, Err::<String, _>(error.clone())));
            }
        };
        for (life, attack) in Set::Any.ending().enumerate() {
            match why_not(attack) {
                Some(why) => bench.verdict(&name(attack.name), Verdict::Skipped(why.into())),
                None => bench.result(&name(attack.name), attack::judge(&seen, life as u32, attack)),
            }
        }
        bench.result(UNHARMED, attack::unharmed(&seen).map(|()| "no exit, canaries intact"));
    })
}

fn why_not(attack: &Attack) -> Option<&'static str> {
    NOT_HERE.iter().find(|(name, _)| *name == attack.name).map(|(_, why)| *why)
}

/// Unmodified Linux of Debian: name of the job, kernel, cores.
const LINUX: [(&str, &str, &[u32]); 3] = [
    ("vmx/linux-6.12-cloud", "linux-6.12-cloud", &[0]),
    ("vmx/linux-6.12-cloud-2-cores", "linux-6.12-cloud", &[0, 1]),
    ("vmx/linux-6.1-cloud", "linux-6.1-cloud", &[0]),
];

/// Boots to user space, powers off by ACPI, and nothing was denied.
fn linux(bench: &Bench, kernel: &str, cores: &[u32]) -> Result<String, String> {
    if !artifacts().join(kernel).is_file() {
        return Err(format!("{kernel} is not there"));
    }
    let manifest = Manifest::new().linux("linux", kernel, "boot", cores, "256 MiB", 1);
    let seen = on_vmx(&manifest, bench, Duration::from_secs(580))?;
    guest::came_up(&seen, "linux", 1, cores.len())?;
    seen.undisturbed("linux", &["stopped"])?;
    let s = seen.sandbox("linux")?;
    Ok(format!("{} exits until user space", s.exits.boot.values().sum::<u64>()))
}

/// A command of docs/vtx.md: its arguments, and what has to be said.
fn command(
    name: &'static str,
    seconds: u64,
    args: &'static [&'static str],
    said: &'static [&'static str],
) -> Job {
    Job::one(name, seconds, move |bench| {
        let report = bench.dir.join("report.json");
        let out = Command::new(build::target().join("release/bulkhead"))
            .current_dir(build::root())
            .env("CI", "true")
            .arg("run")
            .args(args)
            .arg("--report")
            .arg(&report)
            .printed()?;
        let all = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
        let missing: Vec<_> = said.iter().filter(|one| !all.contains(**one)).collect();
        if !out.status.success() || !missing.is_empty() {
            return Err(format!("{}, not said: {missing:?}\n{}", out.status, driver::tail(&all)));
        }
        super::walk::schema(&report)?;
        Ok(format!("{} promises held", all.matches("  held  ").count()))
    })
}
