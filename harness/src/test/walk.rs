//! The auditor (`bulkhead-audit`) at work: a machine that ran a system of several
//! sandboxes is stopped and audited (design, invariants 1, 2 and 9). Then errors are
//! planted in copies of its memory and registers, one of each kind, and the auditor
//! has to find each by its rule.

mod plant;
mod schema;

pub use schema::check as schema;

use super::attack::VICTIM;
use super::driver::{Bench, Job};
use super::system::{Manifest, NEWER, Seen, artifacts, run};
use bulkhead_audit::{Claim, RULES, RamFile, Registers, Report};
use bulkhead_image::Baked;
use bulkhead_run::audit::Audited;
use plant::{CARD, Hand, LATE, PLANTS, Plant, Planted, STORE, VTD};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Test of findings about tables that hold a guest's text.
const LETTERS: &str = "walk/prints-letters-only";

fn rules() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|r| r.name)
}

/// Names of all planted errors, each with the rule that finds it.
pub fn plants_and_rules() -> impl Iterator<Item = (&'static str, &'static str)> {
    PLANTS.iter().chain(VTD).chain(STORE).chain(CARD).map(|plant| (plant.0, plant.1))
}

pub fn jobs() -> Vec<Job> {
    let tests = rules().map(|r| format!("walk/{r}"));
    let planted = PLANTS.iter().map(|p| format!("walk/finds-{}", p.0));
    let tests = tests.chain(planted).chain([LETTERS.to_owned()]);
    let walk = Job::new("walk", tests.collect::<Vec<_>>(), 180, |bench| {
        if let Err(error) = walk(bench) {
            bench.result("walk/nested-map", Err::<String, _>(error));
        }
    });
    let names = VTD.iter().map(|p| format!("walk/finds-{}", p.0)).chain(["vtd/walk".to_owned()]);
    let vtd = Job::new("vtd/walk", names, 180, |bench| {
        if let Err(error) = vtd(bench) {
            bench.result("vtd/walk", Err::<String, _>(error));
        }
    });
    let names = plant::vmx().into_iter().map(|p| format!("vmx/finds-{}", p.0));
    let names = names.chain(["vmx/walk".to_owned()]).collect::<Vec<_>>();
    let vmx = Job::new("vmx/walk", names, 180, |bench| {
        if let Err(error) = vmx(bench) {
            bench.result("vmx/walk", Err::<String, _>(error));
        }
    });
    let store = stopped("store/walk", STORE, super::store::stopped);
    let card = stopped("standby/card-walk", CARD, super::card::stopped);
    vec![walk, vtd, vmx, store, card, schema::job()]
}

/// A job that stops a machine, audits it, and plants errors.
fn stopped(
    name: &'static str,
    planted: &'static [Plant],
    system: fn(&Path) -> Result<Seen, String>,
) -> Job {
    let names = planted.iter().map(|p| format!("walk/finds-{}", p.0)).chain([name.to_owned()]);
    Job::new(name, names, 180, move |bench| {
        let looked = system(&bench.dir).and_then(|seen| finds(bench, &seen, name, planted));
        if let Err(error) = looked {
            bench.result(name, Err::<String, _>(error));
        }
    })
}

/// Audits a machine that ran, and then with each planted error.
fn finds(bench: &Bench, seen: &Seen, name: &str, planted: &[Plant]) -> Result<(), String> {
    let (outcome, audited) = (seen.outcome()?, seen.audited()?);
    let memory = seen.memory.as_ref().ok_or("the machine's memory cannot be read")?.whole();
    let claim = bulkhead_run::audit::claim(&outcome.baked.plan, &artifacts());
    let claim = claim.map_err(|e| e.to_string())?;
    let machine = Machine { memory, baked: &outcome.baked, claim, registers: &audited.registers };
    let right = machine.look(|_| {});
    let result = match &right.findings[..] {
        [] => Ok(format!("{} frames of tables", right.tables)),
        found => Err(format!("{} findings:\n{found:#?}", found.len())),
    };
    bench.result(name, result);
    plants(bench, &machine, &right, planted, "walk");
    Ok(())
}

/// A machine with VT-x: its tables, bitmaps and VMCSs are read from memory, its registers by Bochs' debugger.
fn vmx(bench: &Bench) -> Result<(), String> {
    let mut manifest = Manifest::on("bochs-vmx").ends_with(&["warden", "big"]);
    manifest = manifest
        .bare("warden", "warden", "do=sleep,sleep,wait,nap nap=60", &[0], "4 MiB", WARDENS)
        .bare(
            "rogue",
            "rogue",
            "attack=spin-for-ever core=1",
            &[1, 2],
            "8 MiB",
            "devices = [\"uart1\"]\nobserve = [\"big\"]",
        )
        .bare("big", "hello", "", &[3], "8 MiB", "");
    manifest.0 = manifest.0.replace("hello\", args = \"\"", "hello\", access = \"rwx\"");
    manifest.0 += CHANNELS;
    let seen = run(&manifest, &bench.dir, |o| {
        (o.limit, o.bochs_hz) = (Duration::from_secs(150), super::vmx::BARE);
        o.audit = true;
    })?;
    seen.exited("warden")?;
    seen.exited("big")?;
    let (outcome, audited) = (seen.outcome()?, seen.audited()?);
    let memory = seen.memory.as_ref().ok_or("the machine's memory cannot be read")?.whole();
    let claim = bulkhead_run::audit::claim(&outcome.baked.plan, &artifacts());
    let claim = claim.map_err(|e| e.to_string())?;
    let machine = Machine { memory, baked: &outcome.baked, claim, registers: &audited.registers };
    let right = machine.look(|_| {});
    let cores = audited.registers.cores.iter().filter(|core| core.own.vmcs.is_some()).count();
    let result = match &right.findings[..] {
        [] if cores == 4 => Ok(format!(
            "{cores} VMCSs, {} frames of tables; {} ms",
            right.tables,
            audited.took.as_millis()
        )),
        [] => Err(format!("{cores} VMCSs on 4 cores")),
        found => Err(format!("{} findings:\n{found:#?}", found.len())),
    };
    bench.result("vmx/walk", result);
    plants(bench, &machine, &right, &plant::vmx(), "vmx");
    Ok(())
}

/// Rights of the warden on a machine without functions.
const WARDENS: &str = "devices = [\"pit\"]\nstop = [\"rogue\"]\nstart = [\"rogue\"]\
    \nrestart = [\"rogue\"]\nobserve = [\"rogue\", \"big\"]\
    \nlinks = { to = [\"rogue\", \"big\"], count = 1, size = \"8 KiB\" }";
/// Channels of each kind that a machine without functions has, too.
const CHANNELS: &str = "[[channel]]\nname = \"orders\"\nfrom = \"warden\"\nto = [\"rogue\"]\nsize = \"64 KiB\"\
    \n[[channel]]\nname = \"calls\"\nfrom = \"rogue\"\nto = [\"warden\"]\nsize = \"8 KiB\"\
    \nkind = \"records\"\nnotify = \"doorbell\"\
    \n[[channel]]\nname = \"lessons\"\nfrom = \"warden\"\nto = [\"big\"]\nsize = \"64 KiB\"\nkind = \"program\"\n";

/// Registers that two sandboxes share, a page and ranges.
const REGISTERS: &str = "[[shared_mmio]]\nname = \"panel\"\naddress = \"0xfed1d000\"\nparts = [\
    { sandbox = \"warden\", access = \"rw\" }, { sandbox = \"big\", access = \"r\" }]\n\
    [[shared_mmio]]\nname = \"dials\"\naddress = \"0xfed1e000\"\nparts = [\
    { sandbox = \"warden\", access = \"rw\", offset = 0, size = 8 }, \
    { sandbox = \"big\", access = \"rw\", offset = 8, size = 8 }]\n";

/// A machine with Intel's IOMMU: two sandboxes with a function and a line each.
fn vtd(bench: &Bench) -> Result<(), String> {
    let manifest = Manifest::on("qemu-q35-vtd").ends_with(&["rogue"]);
    let of_victim = "devices = [\"uart0\", \"pci:00:03.0\"]";
    let of_rogue = "devices = [\"uart1\", \"pci:00:08.0\"]";
    let manifest = manifest.bare("victim", "victim", "", &[1], VICTIM, of_victim).bare(
        "rogue",
        "rogue",
        "attack=msi-own once",
        &[0],
        "4 MiB",
        of_rogue,
    );
    let seen = run(&manifest, &bench.dir, |o| o.audit = true)?;
    seen.exited("rogue")?;
    let (outcome, audited) = (seen.outcome()?, seen.audited()?);
    let memory = seen.memory.as_ref().ok_or("the machine's memory cannot be read")?.whole();
    let claim = bulkhead_run::audit::claim(&outcome.baked.plan, &artifacts());
    let claim = claim.map_err(|e| e.to_string())?;
    let machine = Machine { memory, baked: &outcome.baked, claim, registers: &audited.registers };
    let right = machine.look(|_| {});
    let devices: Vec<_> = right.access.iter().flat_map(|a| &a.devices).collect();
    let result = match &right.findings[..] {
        [] if devices.iter().all(|d| !d.memory.is_empty() && !d.interrupts.is_empty()) => {
            Ok(format!("{} functions, {} frames of tables", devices.len(), right.tables))
        }
        [] => Err(format!("functions reach nothing: {devices:#?}")),
        found => Err(format!("{} findings:\n{found:#?}", found.len())),
    };
    bench.result("vtd/walk", result);
    plants(bench, &machine, &right, VTD, "walk");
    Ok(())
}

/// Names of the tests on errors under a running Linux.
pub fn late() -> impl Iterator<Item = String> {
    LATE.iter().map(|p| format!("under/finds-{}", p.0))
}

/// Plants each error that concerns a running Linux in a machine that was stopped and audited without a finding.
pub fn plants_late(bench: &Bench, memory: &RamFile, baked: &Baked, claim: Claim, right: &Audited) {
    let machine = Machine { memory, baked, claim, registers: &right.registers };
    plants(bench, &machine, &right.report, LATE, "under");
}

/// Plants each error, and looks whether it is found by its rule.
fn plants(bench: &Bench, machine: &Machine, right: &Report, all: &[Plant], group: &str) {
    for (name, rule, plant) in all {
        let looked = machine.look(plant);
        let new = |f: &&_| !right.findings.contains(f);
        let found = looked.findings.iter().filter(|f| f.rule == *rule).find(new);
        let result = match found {
            Some(f) if f.place.line == 0 => Err(format!("no line of the manifest: {f:?}")),
            Some(f) => {
                let log = super::sarif::valid(&bulkhead_audit::render::sarif(&looked));
                let sample =
                    if (*name, group) == ("foreign-ram", "walk") { shown(&looked) } else { Ok(0) };
                log.and(sample).map(|_| f.message.clone()).map_err(|why| format!("no SARIF: {why}"))
            }
            None => Err(format!("no new finding by {rule}: {:#?}", looked.findings)),
        };
        bench.result(&format!("{group}/finds-{name}"), result);
    }
}

/// Channels, rights to observe and control, two cores, all page sizes, RAM above
/// 4 GiB, and a Linux. The big one takes longest to be launched and ends the run; then
/// all others have been in their guests.
fn system() -> Manifest {
    let mut manifest = Manifest::new()
        .ends_with(&["warden", "big"])
        .bare(
            "warden",
            "warden",
            "do=sleep,sleep,wait,sleep,sleep",
            &[0],
            "4 MiB",
            "devices = [\"pit\", \"pmtimer\"]\nstop = [\"rogue\"]\nstart = [\"rogue\"]\nrestart = [\"rogue\"]\nobserve = [\"rogue\", \"big\"]\nlinks = { to = [\"rogue\", \"big\"], count = 1, size = \"8 KiB\" }",
        )
        .bare(
            "rogue",
            "rogue",
            "attack=spin-for-ever core=1",
            &[1, 2],
            "8 MiB",
            "devices = [\"uart1\", \"pci:00:08.0\"]\nobserve = [\"big\"]",
        )
        .bare(
            "big",
            "hello",
            "",
            &[3],
            "{ size = \"1050628 KiB\", at = \"5 GiB\" }",
            "",
        )
        .linux("linux", NEWER, "boot", &[4], "256 MiB", 2);
    // The big one without its segments' rights, so that a gibibyte is one page.
    manifest.0 = manifest.0.replace("hello\", args = \"\"", "hello\", access = \"rwx\"");
    manifest.0 += CHANNELS;
    manifest.0 += REGISTERS;
    manifest.0 += "[[channel]]\nname = \"state\"\nfrom = \"linux\"\nto = [\"warden\", \"big\"]\nsize = \"2 MiB\"\n";
    manifest
}

fn walk(bench: &Bench) -> Result<(), String> {
    let seen = run(&system(), &bench.dir, |o| {
        o.limit = Duration::from_secs(60);
        o.audit = true;
    })?;
    seen.exited("warden")?;
    seen.exited("big")?;
    let outcome = seen.outcome()?;
    let audited = seen.audited()?;
    let memory = seen.memory.as_ref().ok_or("the machine's memory cannot be read")?.whole();
    let claim = bulkhead_run::audit::claim(&outcome.baked.plan, &artifacts());
    let claim = claim.map_err(|e| e.to_string())?;
    let machine = Machine { memory, baked: &outcome.baked, claim, registers: &audited.registers };
    // The memory is still the stopped machine's: its end changes nothing.
    let right = machine.look(|_| {});
    if right != audited.report {
        return Err("two audits of one machine differ".into());
    }
    for rule in rules() {
        let found: Vec<_> = right.findings.iter().filter(|f| f.rule == rule).collect();
        let result = match (rule, &found[..]) {
            ("page-sizes", []) if right.pages.len() != 3 => {
                Err(format!("the system was to have all page sizes: {:x?}", right.pages))
            }
            (_, []) => Ok(remark(rule, &right, &seen, audited.took)),
            (_, found) => Err(format!("{} findings:\n{found:#?}", found.len())),
        };
        bench.result(&format!("walk/{rule}"), result);
    }
    plants(bench, &machine, &right, PLANTS, "walk");
    bench.result(LETTERS, letters(&machine.look(|hand| hand.forge())));
    Ok(())
}

/// Findings have numbers and the manifest's names, whatever a guest has written where the auditor looks.
fn letters(looked: &Report) -> Result<String, String> {
    let results = super::sarif::valid(&bulkhead_audit::render::sarif(looked))?;
    let told = bulkhead_audit::render::human(looked);
    match told.lines().find(|line| !super::sarif::prints(line)) {
        Some(line) => Err(format!("{line:?}")),
        None if results < 2 => Err(format!("{results} findings:\n{told}")),
        None => Ok(format!("{results} findings")),
    }
}

/// The page shows the first plant as the demo's manifest has it: its names, its place and its addresses differ.
fn shown(looked: &Report) -> Result<usize, String> {
    let page = super::typed::block("docs/audit.md", "systems/demo.toml")?;
    let told = bulkhead_audit::render::human(looked).replace("warden", "flight");
    let place = |text: &str| {
        let from_error = |line: &str| line.find("error[").map_or(line, |at| &line[at..]).to_owned();
        text.lines().map(from_error).collect::<Vec<_>>().join("\n")
    };
    super::typed::sample(&place(&page), &place(&told))
}

fn remark(rule: &str, looked: &Report, seen: &Seen, took: Duration) -> String {
    match rule {
        "page-sizes" => {
            let pages = looked.pages.iter().map(|(size, n)| format!("{n} of {} KiB", size >> 10));
            pages.collect::<Vec<_>>().join(", ")
        }
        "tables-unmapped" => format!("{} frames of tables", looked.tables),
        "frames" => format!("{} runs of frames; {} ms", looked.frames.len(), took.as_millis()),
        "host-state" => {
            let cores = seen
                .outcome()
                .map(|o| o.baked.plan.sandboxes.iter().map(|s| s.cores.len()).sum::<usize>());
            format!("{} cores", cores.unwrap_or(0))
        }
        _ => String::new(),
    }
}

/// A stopped machine and what it should be.
struct Machine<'a> {
    memory: &'a RamFile,
    baked: &'a Baked,
    claim: Claim,
    registers: &'a Registers,
}

impl Machine<'_> {
    /// Looks at it after something was planted.
    fn look(&self, plant: impl Fn(&mut Hand)) -> Report {
        let mut hand = Hand {
            memory: Planted { base: self.memory, changes: BTreeMap::new() },
            baked: self.baked,
            claim: self.claim.clone(),
            registers: self.registers.clone(),
        };
        plant(&mut hand);
        bulkhead_audit::audit(&hand.claim, &hand.registers, &hand.memory)
    }
}
