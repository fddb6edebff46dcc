//! The mutation gate. It takes the part that keeps a guarantee out of the monitor, or out of the tables that confine a
//! guest. An attack on this guarantee must then succeed. With the guarantee in place, by an equal measure, it must not.
//! So no attack is caught for another reason.

use super::attack::{CANARY_HPA, VICTIM_HPA, got, intact, system};
use super::device::{self, EDU, FOREIGN};
use super::driver::{Bench, Job};
use super::line::with_level;
use super::load;
use super::spoil::Spoil;
use super::system::{Manifest, Seen, artifacts, run};
use crate::build;
use crate::program::Program as _;
use bulkhead_arch_x86::vmcb::{self, intercept};
use bulkhead_guarantees::guarantee;
use bulkhead_image::Baked;
use bulkhead_layout::map::{CHANNELS_GPA, ECAM_GPA, IMAGE_PA, INFO_GPA};
use bulkhead_layout::mutant;
use bulkhead_layout::need::MONITORS;
use bulkhead_layout::pci::Register;
use bulkhead_plan::Bdf;

use rogue::Set;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How a guarantee is taken out.
#[derive(Clone, Copy)]
pub enum Out {
    /// A monitor built without it.
    Build,
    /// An image with tables that lack it.
    Tables(fn(&mut Spoil)),
}

/// A mutant, and the attack that must succeed on it.
pub struct Mutation {
    /// Id of the guarantee that the mutant lacks.
    pub guarantee: &'static str,
    /// Name of the attack.
    pub attack: &'static str,
    /// Part that lacks it.
    pub out: Out,
    /// Tells if the attack succeeded.
    success: fn(&Seen) -> bool,
}

const fn built(id: &'static str, attack: &'static str, success: fn(&Seen) -> bool) -> Mutation {
    Mutation { guarantee: guarantee(id).id, attack, out: Out::Build, success }
}

const fn baked(
    id: &'static str,
    attack: &'static str,
    out: fn(&mut Spoil),
    success: fn(&Seen) -> bool,
) -> Mutation {
    Mutation { guarantee: guarantee(id).id, attack, out: Out::Tables(out), success }
}

/// Index of the rogue in [`system`].
const ROGUE: usize = 1;
const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
/// 00:14.0, the requester ID of the IOAPIC.
const IOAPIC: Bdf = Bdf(0xA0);
const WRITE: u64 = 1 << 1;
const NO_EXECUTE: u64 = 1 << 63;
/// Pages of the rogue's program.
const PROGRAM: std::ops::Range<u64> = 2 * MIB..4 * MIB;

/// All mutants.
pub static MUTATIONS: &[Mutation] = &[
    built("hypercall-cpl", "call-from-user", |seen| says(seen, "call-from-user", "harmless 0x0")),
    built("hypercall-cpl", "exit-from-user", |seen| {
        seen.sandbox("rogue").is_ok_and(|s| s.exit_code == Some(66))
    }),
    built("hypercall-number", "call-unknown", |seen| says(seen, "call-unknown", "harmless 0x0")),
    built("hypercall-length", "console-too-long", |seen| {
        says(seen, "console-too-long", "harmless 0x0")
    }),
    built("control-right", "control-stop", |seen| {
        seen.sandbox("victim").is_ok_and(|s| s.state == "stopped")
    }),
    built("control-right", "control-restart", |seen| {
        seen.sandbox("victim").is_ok_and(|s| s.restarts == 1)
    }),
    built("control-change", "start-flood", |seen| rung(seen) > 0),
    built("control-rate", "restart-flood", |seen| {
        seen.sandbox("victim").is_ok_and(|s| s.restarts > 1)
    }),
    built("lock", "restart-locked", |seen| seen.sandbox("victim").is_ok_and(|s| s.restarts > 0)),
    built("link-right", "offer-foreign", |seen| {
        says(seen, "offer-foreign", "harmless 0xfffffffffffffffe")
    }),
    built("link-right", "close-foreign", |seen| {
        says(seen, "close-foreign", "harmless 0xfffffffffffffffe")
    }),
    built("virtualization-switch", "efer-set-svme", |seen| {
        unnoticed(seen) && says(seen, "efer-set-svme", "harmless")
    }),
    built("local-interrupts", "lvt-smi", |seen| says(seen, "lvt-smi", "harmless 0x1")),
    built("ipi-destination", "ipi-fixed", |seen| {
        seen.console.contains("[victim] victim: stray interrupt 0x40")
    }),
    built("ipi-destination", "ipi-nmi", |seen| {
        seen.sandbox("victim").is_ok_and(|s| s.exits.steady.contains_key("doorbell"))
    }),
    built("ipi-form", "ipi-lowest-priority", |seen| {
        seen.console.contains("[victim] victim: stray interrupt 0x40")
    }),
    built("line-access", "ioapic-index-byte", |seen| {
        unnoticed(seen) && says(seen, "ioapic-index-byte", "harmless")
    }),
    built("line-access", "ioapic-window-quad", |seen| {
        unnoticed(seen) && says(seen, "ioapic-window-quad", "harmless")
    }),
    built("line-owner", "ioapic-foreign-line", |seen| {
        unnoticed(seen) && says(seen, "ioapic-foreign-line", "harmless")
    }),
    // Where lines' messages are remapped, the remapping entry's mode counts, which is fixed whatever is written.
    built("line-mode", "ioapic-nmi", |seen| {
        exited_for(seen, "doorbell") || unnoticed(seen) && says(seen, "ioapic-nmi", "harmless")
    }),
    built("line-core", "ioapic-foreign-core", |seen| {
        seen.console.contains("[victim] victim: stray interrupt 0x60")
    }),
    built("line-vector", "ioapic-low-vector", unnoticed),
    built("line-level-vector", "ioapic-level-vector", |seen| {
        unnoticed(seen) && says(seen, "ioapic-level-vector", "harmless")
    }),
    built("clock-write", "clock-write-memory", |seen| harmless(seen, "clock-write-memory")),
    built("config-form", "config-quad", |seen| harmless(seen, "config-quad")),
    built("config-unnamed", "config-cache-line", |seen| {
        says(seen, "config-cache-line", "harmless 0x10")
    }),
    built("bridge-fixed", "bridge-secondary-bus", |seen| harmless(seen, "bridge-secondary-bus")),
    built("message-core", "msi-foreign-core", |seen| {
        seen.console.contains("[victim] victim: stray interrupt 0x70")
    }),
    built("message-core", "msix-foreign-core", |seen| harmless(seen, "msix-foreign-core")),
    built("message-form", "msi-nmi", |seen| harmless(seen, "msi-nmi")),
    // It arrives, as an exception that the guest dies of.
    built("message-vector", "msi-low-vector", |seen| {
        unnoticed(seen) && seen.console.contains("exception 15")
    }),
    built("msix-form", "msix-byte", |seen| harmless(seen, "msix-byte")),
    built("decoder-direction", "decoder-read-for-write", |seen| {
        harmless(seen, "decoder-read-for-write")
    }),
    built("decoder-direction", "race-directions", |seen| harmless(seen, "race-directions")),
    built("decoder-ram", "decoder-code-outside", |seen| {
        seen.sandbox("rogue").is_ok_and(|s| s.state == "failed")
    }),
    // The monitor copies what is not there, and dies of it.
    built("load-head", "load-too-long", |seen| {
        seen.sandbox("victim").is_ok_and(|s| s.state == "failed")
    }),
    // The program, which is none, shuts the processor down.
    built("load-sum", "load-torn", |seen| {
        seen.sandbox("victim").is_ok_and(|s| s.state == "stopped")
    }),
    built("device-quiet", AFTER_RESTART, |seen| {
        says(seen, "after-restart-with-dma", "harmless 0x1")
    }),
    baked("pci-visible", "config-read-foreign", expose_foreign, |seen| {
        says(seen, "config-read-foreign", "harmless 0x10421af4")
    }),
    baked("pci-visible", "config-write-foreign", expose_foreign, |seen| {
        harmless(seen, "config-write-foreign")
    }),
    baked(
        "bar-fixed",
        "bar-onto-victim",
        |s| s.register(ROGUE, EDU, 0x10, ANY),
        |seen| says(seen, "bar-onto-victim", "harmless 0x40000000"),
    ),
    baked(
        "command-bits",
        "command-bits",
        |s| s.register(ROGUE, EDU, 4, ANY),
        |seen| !says(seen, "command-bits", "harmless 0x407"),
    ),
    baked(
        "msix-trap",
        "msix-unaligned",
        |s| s.expose(ROGUE, 0xFEB0_6000, 0xFEB0_6000, 4096),
        |seen| harmless(seen, "msix-unaligned"),
    ),
    baked(
        "nested-map",
        "bar-read-foreign",
        |s| s.expose(ROGUE, 0xFEB0_1000, 0xFEB0_1000, 4096),
        |seen| harmless(seen, "bar-read-foreign"),
    ),
    baked(
        "dma-map",
        "dma-victim",
        |s| s.let_reach(EDU, VICTIM_HPA, GIB),
        |seen| says(seen, "dma-victim", "harmless 0x1") && !intact(seen),
    ),
    baked(
        "tables-unmapped",
        "dma-device-table",
        |s| {
            let (root, _) = s.requester(EDU);
            s.set_word(root, 0);
        },
        // That what the tests of devices look at shows it.
        |seen| {
            let changed = device::confined(seen).err();
            changed.is_some_and(|why| why.contains("the image is changed"))
        },
    ),
    baked(
        "dma-rights",
        "dma-own-text",
        |s| PROGRAM.step_by(4096).for_each(|gpa| s.let_write(EDU, gpa)),
        |seen| says(seen, "dma-own-text", "harmless 0x1"),
    ),
    baked(
        "dma-rights",
        "dma-read-only-channel",
        |s| s.let_write(EDU, CHANNELS_GPA),
        |seen| says(seen, "dma-read-only-channel", "harmless 0x1"),
    ),
    baked(
        "dma-messages",
        "dma-message-foreign",
        // A plain write comes under the IOAPIC's requester ID (docs/limits.md).
        |s| s.pass_messages(IOAPIC),
        |seen| seen.console.contains("[victim] victim: stray interrupt 0x70"),
    ),
    baked(
        "nested-map",
        "write-victim",
        |s| s.expose(ROGUE, GIB, VICTIM_HPA, GIB),
        |seen| unnoticed(seen) && !intact(seen),
    ),
    baked(
        "nested-map",
        "read-victim",
        |s| s.expose(ROGUE, GIB, VICTIM_HPA, GIB),
        |seen| {
            let canary = 0x9E37_79B9_7F4A_7C15u64.wrapping_mul(CANARY_HPA - VICTIM_HPA);
            says(seen, "read-victim", &format!("harmless {canary:#x}"))
        },
    ),
    baked(
        "nested-map",
        "read-image",
        |s| s.expose(ROGUE, IMAGE_PA, IMAGE_PA, 2 * MIB),
        |seen| unnoticed(seen) && says(seen, "read-image", "harmless"),
    ),
    baked(
        "nested-map",
        "read-lapic",
        |s| s.expose(ROGUE, 0xFEE0_0000, 0xFEE0_0000, 2 * MIB),
        |seen| unnoticed(seen) && says(seen, "read-lapic", "harmless"),
    ),
    baked(
        "nested-map",
        "write-hpet",
        |s| s.expose(ROGUE, 0xFED0_0000, 0xFEC0_0000, 2 * MIB),
        |seen| unnoticed(seen) && says(seen, "write-hpet", "harmless"),
    ),
    baked(
        "nested-rights",
        "write-info-page",
        |s| s.rights(ROGUE, INFO_GPA, WRITE, 0),
        |seen| unnoticed(seen) && says(seen, "write-info-page", "harmless"),
    ),
    baked(
        "nested-rights",
        "execute-info-page",
        |s| s.rights(ROGUE, INFO_GPA, 0, NO_EXECUTE),
        // It is data: its first bytes are an instruction that writes to the page.
        |seen| matches!(&seen.denials[..], [d] if d.record.instruction > INFO_GPA),
    ),
    baked(
        "nested-rights",
        "write-read-only-channel",
        |s| s.rights(ROGUE, CHANNELS_GPA, WRITE, 0),
        |seen| unnoticed(seen) && says(seen, "write-read-only-channel", "harmless"),
    ),
    baked(
        "nested-rights",
        "write-text",
        |s| program(s, WRITE, 0),
        |seen| unnoticed(seen) && says(seen, "write-text", "harmless"),
    ),
    baked(
        "nested-rights",
        "execute-data",
        |s| program(s, 0, NO_EXECUTE),
        |seen| unnoticed(seen) && says(seen, "execute-data", "harmless"),
    ),
    baked(
        "ports",
        "foreign-uart",
        |s| s.allow_port(ROGUE, 0x3F8),
        |seen| seen.outcome().is_ok_and(|o| o.serials[0].contains("!")),
    ),
    baked("ports", "pci-data", |s| (0xCFC..0xD00).for_each(|p| s.allow_port(ROGUE, p)), unnoticed),
    baked(
        "ports",
        "reset-control",
        |s| s.allow_port(ROGUE, 0xCF9),
        |seen| unnoticed(seen) && got(seen, "reset-control").is_none(),
    ),
    baked(
        "registers",
        "vm-cr-read",
        |s| s.allow_msr(ROGUE, 0xC001_0114),
        |seen| unnoticed(seen) && says(seen, "vm-cr-read", "harmless"),
    ),
    baked(
        "registers",
        "tsc-adjust",
        |s| s.allow_msr(ROGUE, 0x3B),
        |seen| unnoticed(seen) && says(seen, "tsc-adjust", "harmless"),
    ),
    baked(
        "instructions",
        "stgi",
        |s| s.without_intercepts(ROGUE, intercept::STGI),
        |seen| unnoticed(seen) && says(seen, "stgi", "harmless"),
    ),
    baked(
        "instructions",
        "vmsave",
        |s| s.without_intercepts(ROGUE, intercept::VMSAVE),
        |seen| unnoticed(seen) && says(seen, "vmsave", "harmless"),
    ),
    baked(
        "instructions",
        "invlpga",
        |s| s.without_intercepts(ROGUE, intercept::INVLPGA),
        |seen| unnoticed(seen) && says(seen, "invlpga", "harmless"),
    ),
    baked(
        "cache-instructions",
        "invd",
        |s| s.without_intercepts(ROGUE, intercept::INVD),
        |seen| says(seen, "invd", "harmless") && !exited_for(seen, "cache"),
    ),
    baked(
        "cache-instructions",
        "wbinvd",
        |s| s.without_intercepts(ROGUE, intercept::WBINVD),
        |seen| says(seen, "wbinvd", "harmless") && !exited_for(seen, "cache"),
    ),
    baked(
        "exceptions",
        "debug-storm",
        |s| s.without(ROGUE, vmcb::INTERCEPT_LOW, vmcb::EXCEPTION_BITS),
        |seen| got(seen, "debug-storm").is_some() && !exited_for(seen, "exception"),
    ),
    baked(
        "doorbell",
        "spin-for-ever",
        |s| s.without_intercepts(ROGUE, intercept::NMI),
        |seen| seen.sandbox("warden").is_ok_and(|s| s.state == "exited" && s.exit_code != Some(0)),
    ),
];

/// The second one looks for what the first one has left.
const AFTER_RESTART: &str = "restart-with-dma+after-restart-with-dma";
/// A register that a guest writes as it likes.
const ANY: Register = Register {
    offset: 0,
    kind: Register::PLAIN,
    write: u32::MAX,
    keep: u32::MAX,
    set: 0,
    hold: 0,
    shadow: 0,
};

/// The machine's configuration page of the victim's disk.
fn expose_foreign(spoil: &mut Spoil) {
    const ECAM_HPA: u64 = 0xB000_0000;
    let offset = u64::from(FOREIGN.0) << 12;
    spoil.expose(ROGUE, ECAM_GPA + offset, ECAM_HPA + offset, 4096);
}

fn program(spoil: &mut Spoil, set: u64, clear: u64) {
    PROGRAM.step_by(4096).for_each(|gpa| spoil.rights(ROGUE, gpa, set, clear));
}

fn says(seen: &Seen, attack: &str, what: &str) -> bool {
    got(seen, attack).is_some_and(|g| g.starts_with(what))
}

/// It went through, and there is no record of it.
fn harmless(seen: &Seen, attack: &str) -> bool {
    unnoticed(seen) && says(seen, attack, "harmless")
}

/// No record of it.
fn unnoticed(seen: &Seen) -> bool {
    seen.console.contains("expected") && seen.denials.is_empty()
}

/// How often the rogue's monitor has rung for the victim's.
fn rung(seen: &Seen) -> u64 {
    let victim = seen.sandbox("victim").ok();
    victim.and_then(|s| s.doorbells.get("rogue")).map_or(0, |rung| rung.rings)
}

fn exited_for(seen: &Seen, cause: &str) -> bool {
    let has = |s: &bulkhead_explain::Sandbox| {
        s.exits.boot.contains_key(cause) || s.exits.steady.contains_key(cause)
    };
    seen.sandbox("rogue").is_ok_and(has)
}

pub fn jobs() -> Vec<Job> {
    let name = |m: &Mutation| format!("mutation/{}/{}", m.guarantee, m.attack);
    let built = |m: &&Mutation| matches!(m.out, Out::Build);
    let mut jobs = Vec::new();
    // They share one build.
    let builds = move || MUTATIONS.iter().filter(built);
    jobs.push(Job::new("mutation-of-code", builds().map(name), 900, move |bench| {
        let ready = build_mutants();
        let judged = |m| ready.as_ref().map_err(Clone::clone).and_then(|()| judge(bench, m));
        builds().for_each(|m| bench.result(&name(m), judged(m)));
    }));
    let tables = MUTATIONS.iter().filter(|m| !built(m));
    jobs.extend(tables.map(|m| Job::one(name(m), 90, |bench| judge(bench, m))));
    jobs
}

fn judge(bench: &Bench, mutation: &Mutation) -> Result<String, String> {
    let succeeds = |mutated: bool| {
        let seen = make(bench, mutation, mutated)?;
        Ok::<_, String>(((mutation.success)(&seen), seen))
    };
    let (success, seen) = succeeds(false)?;
    if success {
        return Err(seen.wrong("the attack succeeds although the guarantee is in place"));
    }
    let (success, seen) = succeeds(true)?;
    if !success {
        return Err(seen.wrong("the guarantee is taken out, and the attack does not succeed"));
    }
    Ok(got(&seen, mutation.attack).map(|g| format!("got {g}")).unwrap_or_default())
}

/// Makes one attack, once.
fn make(bench: &Bench, mutation: &Mutation, mutated: bool) -> Result<Seen, String> {
    // The victim is up by then; what is done to it shows before the end.
    let args = format!("attack={} once pause=100 linger=50", mutation.attack);
    let has = |set: Set| set.attacks().iter().any(|a| Some(a.name) == last(mutation));
    let sets = [Set::Devices, Set::Bridge, Set::Race, Set::Loads];
    let set = sets.into_iter().find(|set| has(*set));
    let mut manifest = match set {
        Some(Set::Loads) => load::system(&args),
        Some(set) => device::system(set, &args, &bench.dir)?,
        None => system(&[1], &args),
    };
    if mutation.guarantee == "doorbell" {
        manifest = doomed(manifest);
    }
    if mutation.guarantee == "line-level-vector" {
        // The real-time clock's line.
        manifest = with_level(manifest, &bench.dir, 8)?;
        manifest.0 = manifest.0.replace("[\"uart1\"]", "[\"uart1\", \"rtc\"]");
    }
    if ["control-change", "control-rate"].contains(&mutation.guarantee) {
        let often = "[{ sandbox = \"victim\", every = \"30 s\" }]";
        let rights = format!("[\"uart1\"]\nstart = {often}\nrestart = {often}");
        manifest.0 = manifest.0.replace("[\"uart1\"]", &rights);
    }
    if mutation.guarantee == "lock" {
        let rights = "[\"uart1\"]\nrestart = [\"victim\"]";
        manifest.0 = manifest.0.replace("[\"uart1\"]", rights);
        let locks = |from: &str| manifest.0.replacen(from, &format!("{from}lockable = true\n"), 1);
        manifest.0 = locks("name = \"victim\"\n")
            .replace("artifact:victim\", args = \"\"", "artifact:victim\", args = \"lock\"");
    }
    let folder = match mutation.out {
        Out::Build if mutated => monitor_without(mutation.guarantee)?,
        _ => artifacts(),
    };
    run(&manifest, &bench.dir, |o| {
        o.artifacts = folder;
        o.time = device::time(set);
        o.limit = Duration::from_secs(30);
        if let (Out::Tables(out), true) = (mutation.out, mutated) {
            o.spoil = Some(Box::new(move |bytes: &mut Vec<u8>, baked: &Baked| {
                let mut spoil = Spoil::new(bytes, baked);
                out(&mut spoil);
                spoil.seal();
            }));
        }
    })
}

/// The attack that shows it.
pub fn last(mutation: &Mutation) -> Option<&'static str> {
    mutation.attack.split('+').next_back()
}

/// A warden that has to stop what never ends.
fn doomed(manifest: Manifest) -> Manifest {
    let mut manifest = manifest.bare(
        "warden",
        "warden",
        "target=1 do=wait,sleep,stop patience=100",
        &[2],
        "4 MiB",
        "stop = [\"rogue\"]\nstart = [\"rogue\"]\nrestart = [\"rogue\"]",
    );
    manifest.0 = manifest.0.replace("ends_with = [\"rogue\"]", "ends_with = [\"warden\"]");
    manifest
}

/// A folder with the boot code and a monitor that leaves out a guarantee.
pub fn monitor_without(rule: &str) -> Result<PathBuf, String> {
    shell_without("svm", "", rule)
}

/// [`monitor_without`], for a shell and the prefix of its files.
pub fn shell_without(shell: &str, prefix: &str, rule: &str) -> Result<PathBuf, String> {
    let target = build::target().join("mutants");
    let monitor = without(&target, shell, rule)?;
    let folder = target.join(rule);
    // The monitor with code for all needs does for each sandbox.
    for (name, _) in MONITORS {
        write(&folder, &format!("{prefix}{name}"), &monitor)?;
    }
    write(&folder, "boot", &read(&artifacts().join("boot"))?)?;
    Ok(folder)
}

/// Builds the monitor of a Linux that ran before, which no other monitor's needs include. Returns a folder with it and
/// all else that such an image has; it leaves out a guarantee.
pub fn running_without(rule: &str) -> Result<PathBuf, String> {
    const NAME: &str = "monitor-running";
    let target = build::target().join("mutants-running");
    let features = ["--no-default-features", "--features", "channels,control,cores,linux,running"];
    build(&target, &[&["-p", "bulkhead-monitor-svm"], &features[..]].concat())?;
    let folder = target.join(rule);
    for name in MONITORS.iter().map(|(name, _)| *name).filter(|name| *name != NAME).chain(["late"])
    {
        write(&folder, name, &read(&artifacts().join(name))?)?;
    }
    write(&folder, NAME, &without(&target, "svm", rule)?)?;
    Ok(folder)
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), String> {
    let written =
        std::fs::create_dir_all(folder).and_then(|()| std::fs::write(folder.join(name), bytes));
    written.map_err(|e| format!("{}: {e}", folder.join(name).display()))
}

/// Returns a monitor that was built for the gate, with the rule's number in its word.
fn without(target: &Path, shell: &str, rule: &str) -> Result<Vec<u8>, String> {
    let built = target.join(format!("x86_64-unknown-none/privileged/bulkhead-monitor-{shell}"));
    let mut monitor = read(&built)?;
    let word = mutant::NONE.to_le_bytes();
    let places: Vec<usize> =
        (0..monitor.len()).filter(|at| monitor[*at..].starts_with(&word)).collect();
    let [at] = places[..] else {
        return Err(format!("{}: the word is in {} places", built.display(), places.len()));
    };
    monitor[at..at + word.len()].copy_from_slice(&mutant::number(rule).to_le_bytes());
    Ok(monitor)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Builds the monitor that leaves out the guarantee named by its word.
pub fn build_mutants() -> Result<(), String> {
    let monitors = ["-p", "bulkhead-monitor-svm", "-p", "bulkhead-monitor-vmx"];
    build(&build::target().join("mutants"), &monitors)
}

fn build(target: &Path, monitors: &[&str]) -> Result<(), String> {
    let out = Command::new("cargo")
        .args(["build", "--locked", "--quiet"])
        .args(monitors)
        .args(["--target", "x86_64-unknown-none", "--profile", "privileged"])
        .current_dir(build::root())
        .env("CARGO_TARGET_DIR", target)
        .env("BULKHEAD_MUTANTS", "1")
        .printed()?;
    match out.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
    }
}
