//! Systems on Intel's VT-x: the manifests of other jobs, on Bochs' machine (docs/vtx.md). Reports, consoles and
//! denials are read as QEMU's are.

use super::driver::{self, Bench, Job, Verdict};
use super::system::{Manifest, NEWER, OLDER, Seen, artifacts, run};
use super::{attack, guest, kernel, ladder, warm, watchdog};
use crate::build;
use crate::program::Program as _;
use bulkhead_arch_x86::vmcs::{NPF_FINAL, NPF_WALK};
use bulkhead_audit::Memory;
use bulkhead_audit::claim::Range;
use bulkhead_audit::memory::Words;
use bulkhead_audit::vmcs::Vmcs;
use bulkhead_qemu::bochs::{self, Bochs, Virtualization};
use rogue::{Attack, Set};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

/// Seconds for a run of bare guests and of kernels; most of it is the firmware and GRUB.
const LIMIT: Duration = Duration::from_secs(180);

/// Instructions in a second of a machine for bare guests, which have no deadlines: GRUB is there after a third of the
/// instructions.
pub const BARE: u32 = 100_000_000;

pub fn jobs() -> Vec<Job> {
    let mut jobs = vec![
        attacks(),
        Job::one("vmx/layout", 100, layout),
        Job::one("vmx/watchdog", 200, |bench| {
            watchdog::begun_anew(&on_vmx(&watchdog::one(), bench, LIMIT, BARE)?)
        }),
        Job::one("vmx/ladder", 200, |bench| {
            ladder::stopped(&on_vmx(&ladder::each(), bench, LIMIT, BARE)?)
        }),
        Job::one("vmx/warm", 200, |bench| {
            warm::climbed(&on_vmx(&warm::each(), bench, LIMIT, BARE)?)
        }),
        command(
            "vmx/command",
            200,
            &["tests/kernel/hello.toml", "--arch", "x86-64-vmx"],
            &["[rt] hello from hello", "held   rt exits for what is allowed only"],
        ),
        command(
            "vmx/demo",
            920,
            &["systems/demo-vmx.toml"],
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
            let seen = on_vmx(&manifest(), bench, LIMIT, BARE)?;
            judge(&seen).map(|()| String::new())
        })
    }));
    // Lives that end in a race, fewer than in QEMU.
    let races: [(&str, &[u32], &str); 3] = [
        ("vmx/race", &[0, 1], "lives=20"),
        ("vmx/race-of-the-second-core", &[0, 1], "lives=10 who=1"),
        // The third core holds the second one up, and the first one waits for that a tenth of a second in each life.
        ("vmx/race-of-three-cores", &[0, 1, 2], "lives=3 step=7"),
    ];
    jobs.extend(races.map(|(name, cores, args)| {
        let (_, manifest, judge) = guest::race(name, cores, args);
        Job::one(name, 200, move |bench| {
            let seen = on_vmx(&manifest(), bench, LIMIT, BARE)?;
            judge(&seen).map(|()| String::new())
        })
    }));
    const KERNELS: [&str; 10] =
        ["aes", "c", "edf", "hello", "hostile", "mixed", "overrun", "passive", "storm", "vcpu"];
    for name in KERNELS {
        jobs.push(Job::one(format!("vmx/kernel-{name}"), 200, move |bench| {
            let seen = on_vmx(&Manifest(kernel::system(name)?), bench, LIMIT, bochs::HZ)?;
            kernel::ended_well(&seen)?;
            // Intel's processors refuse other instructions to a program: AMD's own ones, WBINVD before it exits.
            kernel::same_words(&seen, if name == "hostile" { "hostile.vmx" } else { name })
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

/// Runs a system there, and audits the machine at its end. A Linux that has switched it off leaves none to audit.
fn on_vmx(manifest: &Manifest, bench: &Bench, limit: Duration, hz: u32) -> Result<Seen, String> {
    let seen = run(&moved(manifest), &bench.dir, |options| {
        (options.limit, options.bochs_hz) = (limit, hz);
        options.audit = true;
    })?;
    let audited = seen.outcome()?.audited.as_ref();
    let findings = audited.map_or(&[][..], |audited| &audited.report.findings);
    seen.ensure(
        findings.is_empty(),
        format!("the audit has {} findings: {findings:#?}", findings.len()),
    )?;
    Ok(seen)
}

/// Attacks that Bochs cannot show on this machine, and why.
const NOT_HERE: [(&str, &str); 0] = [];

/// All attacks that end by themselves, one life each, as on SVM.
fn attacks() -> Job {
    let name = |attack: &str| format!("vmx-attack/{attack}");
    const UNHARMED: &str = "vmx-attack/victim-unharmed";
    const DELIVERY: &str = "vmx-attack/delivery-is-no-access-of-the-instruction";
    let others = [UNHARMED.into(), DELIVERY.into()];
    let tests = Set::Any.ending().map(move |a| name(a.name)).chain(others);
    let tests: Vec<_> = tests.collect();
    let names = tests.clone();
    Job::new("vmx-attack", tests, 420, move |bench| {
        let lives = Set::Any.ending().count();
        let manifest = attack::system(&[1], &format!("lives={lives}")).restarting("rogue");
        let seen = match on_vmx(&manifest, bench, Duration::from_secs(400), BARE) {
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
        bench.result(DELIVERY, delivery(&seen));
        bench.result(UNHARMED, attack::unharmed(&seen).map(|()| "no exit, canaries intact"));
    })
}

/// An EPT violation in the delivery of an event says so: the instruction at RIP has made no access.
fn delivery(seen: &Seen) -> Result<String, String> {
    let life = Set::Any.ending().position(|attack| attack.name == "event-outside");
    let mut all = seen.denials.iter();
    let denial = all.find(|d| d.sandbox == "rogue" && Some(d.record.incarnation as usize) == life);
    let denial = denial.ok_or_else(|| seen.wrong("no record of it"))?;
    let info = denial.record.info;
    let right = info & (NPF_FINAL | NPF_WALK) == NPF_WALK;
    seen.ensure(right, format!("the record says {info:#x}"))?;
    Ok(denial.access.clone())
}

fn why_not(attack: &Attack) -> Option<&'static str> {
    NOT_HERE.iter().find(|(name, _)| *name == attack.name).map(|(_, why)| *why)
}

/// Unmodified Linux of Debian: name of the job, kernel, cores.
const LINUX: [(&str, &str, &[u32]); 3] = [
    ("vmx/linux-6.12-cloud", NEWER, &[0]),
    ("vmx/linux-6.12-cloud-2-cores", NEWER, &[0, 1]),
    ("vmx/linux-6.1-cloud", OLDER, &[0]),
];

/// Boots to user space, powers off by ACPI, and nothing was denied.
fn linux(bench: &Bench, kernel: &str, cores: &[u32]) -> Result<String, String> {
    if !artifacts().join(kernel).is_file() {
        return Err(format!("{kernel} is not there"));
    }
    // A letter takes Bochs' serial port 87,000 instructions. A test reads what several cores say.
    let job = if cores.len() > 1 { "boot" } else { "boot quiet" };
    let manifest = Manifest::new().linux("linux", kernel, job, cores, "256 MiB", 1);
    let seen = on_vmx(&manifest, bench, Duration::from_secs(580), bochs::HZ)?;
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

/// Compares the auditor's layout of a VMCS with VMREAD, by a program for the bare machine that shows both.
fn layout(bench: &Bench) -> Result<String, String> {
    let program = build::bare("vmx-probe").map_err(|e| e.to_string())?;
    let iso = bochs::pack(&program, &bench.dir).map_err(|e| e.to_string())?;
    let mut machine = Bochs::new(&bench.dir, iso);
    (machine.cores, machine.virtualization, machine.hz) = (2, Virtualization::Vmx, BARE);
    let said = machine.run(Duration::from_secs(90)).map_err(|e| e.to_string())?;
    let (mut fields, mut region) = (Vec::new(), Region(vec![0; 4096]));
    for line in said.lines() {
        let number = |text: &str| u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok();
        let pair = |rest: &str| {
            let (name, value) = rest.split_once(" = ")?;
            Some((number(name)?, number(value)?))
        };
        if let Some((field, value)) = line.strip_prefix("field ").and_then(pair) {
            fields.push((field as u16, value));
        } else if let Some((at, word)) = line.strip_prefix("word ").and_then(pair) {
            region.0[at as usize..][..8].copy_from_slice(&word.to_le_bytes());
        }
    }
    let words = Words::new(&region);
    let vmcs = Vmcs::new(&words, 0);
    let wrong = fields.iter().filter(|(field, value)| vmcs.field(*field) != *value);
    let wrong: Vec<_> = wrong.map(|(field, is)| (field, is, vmcs.field(*field))).collect();
    // Each field has its own value, so that none passes for another.
    let different: BTreeSet<_> = fields.iter().map(|(_, value)| value & 0xFFFF).collect();
    match &wrong[..] {
        [] if fields.len() >= MOST_USED && different.len() + 10 >= fields.len() => {
            Ok(format!("{} fields, {} values", fields.len(), different.len()))
        }
        [] => Err(format!("{} fields, {} values", fields.len(), different.len())),
        wrong => Err(format!("field, VMREAD, memory: {wrong:x?}")),
    }
}

/// Fields that a monitor uses, and some.
const MOST_USED: usize = 120;

/// A region's bytes at address 0.
struct Region(Vec<u8>);

impl Memory for Region {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let from = self.0.get(address as usize..).and_then(|rest| rest.get(..bytes.len()));
        from.inspect(|from| bytes.copy_from_slice(from)).is_some()
    }

    fn data(&self) -> Vec<Range> {
        vec![Range { start: 0, len: self.0.len() as u64 }]
    }
}
