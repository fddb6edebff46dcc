//! Sweeps: a page that nothing may change, and a control block, are found where one bit is another one.

use super::driver::{Bench, Job};
use super::mutate;
use super::system::{Manifest, Seen, run, run_from, started};
use crate::configuration::Configuration;
use bulkhead_image::Baked;
use bulkhead_layout::map::{CORE_CONTROL, CORES_VA, GUEST_VA, IMAGE_PA, MMIO_VA, PRISTINE_VA};
use bulkhead_layout::record::Op;
use bulkhead_layout::report::State;
use bulkhead_layout::watch::FixedPage;
use bulkhead_random::SplitMix64;
use std::cell::RefCell;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// Test of a monitor that does not look.
pub const MUTANT: &str = "sweep/mutant";

/// Milliseconds of a tick, and of a sweep.
const PERIOD: u64 = 5;
const SWEEP: u64 = 200;
/// Changes in a run of the tests: one to a sandbox.
const SANDBOXES: [&str; 3] = ["bare", "kernel", "steady"];

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("sweep/guests", 300, guests),
        Job::one("sweep/monitor", 120, monitor),
        Job::one("sweep/control-block", 120, control_block),
        Job::one("sweep/linux", 200, linux),
        Job::one(MUTANT, 400, mutant),
    ]
}

/// Lists of a baked image for its watchdogs.
#[derive(Clone, Default)]
pub struct Listed {
    /// The pages of each sandbox.
    pages: Vec<Vec<FixedPage>>,
    /// Bytes of the launch record's copies: destination, place in the image, length.
    copies: Vec<Vec<(u64, u64, u64)>>,
    /// Monitors' address spaces: address, physical address, length.
    spaces: Vec<Vec<(u64, u64, u64)>>,
}

impl Listed {
    pub fn of(bytes: &[u8], baked: &Baked) -> Self {
        let mut listed = Self::default();
        for (index, spaces) in baked.map.spaces.iter().enumerate() {
            let config = Configuration::of(bytes, baked, index).expect("a configuration");
            let fixed = config.table::<FixedPage>(config.fields.start.fixed[0]);
            let copy = |op: &Op| (op.dst, op.src.wrapping_sub(PRISTINE_VA) + IMAGE_PA, op.len);
            let ops = config.table::<Op>(config.fields.start.launch);
            let copies = ops.iter().filter(|op| op.kind == Op::COPY && op.src >= PRISTINE_VA);
            listed.pages.push(fixed);
            listed.copies.push(copies.map(copy).collect());
            let regions = spaces.monitor.regions.iter().map(|r| (r.at, r.pa, r.len));
            listed.spaces.push(regions.collect());
        }
        listed
    }

    /// Physical address behind a monitor's address.
    pub fn behind(&self, index: usize, at: u64) -> Option<u64> {
        place(&self.spaces[index], at)
    }

    /// Physical address of a word of a monitor's text that nothing executes in steady state: the boot code has.
    pub fn text(&self, index: usize) -> Option<u64> {
        let page = self.pages[index].iter().find(|page| page.at >= MMIO_VA)?;
        self.behind(index, page.at + 8)
    }

    /// Physical address in the image from which a word is copied at each launch.
    fn pristine(&self, index: usize, at: u64) -> Option<u64> {
        place(&self.copies[index], at)
    }
}

fn place(ranges: &[(u64, u64, u64)], at: u64) -> Option<u64> {
    let holds = |range: &&(u64, u64, u64)| at.wrapping_sub(range.0) < range.2;
    ranges.iter().find(holds).map(|range| at - range.0 + range.1)
}

/// A bare guest and a kernel's program, beside a third one, all with sweeps.
fn manifest(action: &str) -> Manifest {
    let watch = format!("watchdog = \"{PERIOD} ms\"\nsweep = \"{SWEEP} ms\"\n");
    let bare = |m: Manifest, name: &str, core| m.bare(name, "victim", "", &[core], "8 MiB", &watch);
    let manifest = Manifest::new().ends_with(&["timer"]);
    let manifest = bare(manifest, "bare", 0);
    let kernel = format!(
        "[[sandbox]]\nname = \"kernel\"\nguest = {{ kind = \"kernel\" }}\ncores = [1]\nmemory = \"8 MiB\"\n{watch}"
    );
    let manifest = bare(Manifest(manifest.0 + &kernel), "steady", 2);
    let manifest = manifest.bare(
        "timer",
        "hang",
        "",
        &[3],
        "4 MiB",
        "watchdog = \"40 ms\"\nalive = \"30 ms\"\n",
    );
    let program =
        "[[program]]\nname = \"work\"\nsandbox = \"kernel\"\nfile = \"artifact:program-hog\"
[[thread]]\nname = \"work\"\nprogram = \"work\"\npriority = 10\ncontext = \"work\"
[[context]]\nname = \"work\"\nsandbox = \"kernel\"\nbudget = \"1 ms\"\nperiod = \"5 ms\"\n";
    let health = SANDBOXES.map(|name| {
        format!("[[health]]\nsandbox = \"{name}\"\non = \"corruption\"\naction = \"{action}\"\n")
    });
    Manifest(manifest.0 + program + &health.concat())
}

/// The record of a sandbox' corruption: condition, address, nanoseconds from its launch.
fn found(seen: &Seen, name: &str) -> Result<(&'static str, u64, u64), String> {
    let own = |d: &&bulkhead_explain::Explained| d.sandbox == name && d.kind == "corruption";
    let denial = seen.denials.iter().find(own);
    let denial = denial.ok_or_else(|| seen.wrong(format!("nothing of {name} was found")))?;
    let says = denial.to_string();
    let told = says.contains("another sum of the page") || says.contains("of its control block");
    seen.ensure(told && says.contains("sweep:"), format!("the record says {says}"))?;
    let outcome = seen.outcome()?;
    let index = outcome.baked.plan.sandboxes.iter().position(|s| s.name == name).unwrap_or(0);
    let launched = outcome.snapshot.sandboxes[index].report.launch_ticks;
    let hz = outcome.snapshot.boot.map_or(1, |boot| boot.hz);
    let ticks = denial.record.ticks.saturating_sub(launched);
    let ns = (u128::from(ticks) * 1_000_000_000 / u128::from(hz)) as u64;
    Ok((denial.condition, denial.record.address, ns))
}

/// Bits anywhere in what guests are made of: each is found within a sweep of the launch, and in its page.
fn guests(bench: &Bench) -> Result<String, String> {
    const ROUNDS: u64 = 4;
    let (mut worst, mut pages) = (0, 0);
    for round in 0..ROUNDS {
        let chosen: Rc<RefCell<Vec<FixedPage>>> = Rc::default();
        let keep = Rc::clone(&chosen);
        let seen = run(&manifest("stop"), &bench.dir, |o| {
            o.limit = Duration::from_secs(60);
            o.spoil = Some(Box::new(move |bytes, baked| {
                let listed = Listed::of(bytes, baked);
                let mut random = SplitMix64(0x5EED + round);
                for index in 0..2 {
                    let of_guest = |page: &&FixedPage| (GUEST_VA..MMIO_VA).contains(&page.at);
                    let all: Vec<_> = listed.pages[index].iter().filter(of_guest).collect();
                    let (page, pa) = loop {
                        let page = all[random.index(all.len())];
                        let at = page.at + random.below(4096);
                        // Zeros behind a segment are not copied.
                        if let Some(pa) = listed.pristine(index, at) {
                            break (*page, pa);
                        }
                    };
                    bytes[(pa - IMAGE_PA) as usize] ^= 1 << random.below(8);
                    keep.borrow_mut().push(page);
                }
            }));
        })?;
        for (name, page) in SANDBOXES.iter().zip(chosen.borrow().iter()) {
            let (condition, address, ns) = found(&seen, name)?;
            let right = condition == "guest-sum" && address == page.at - GUEST_VA;
            seen.ensure(right, format!("{name}: {condition} at {address:#x}, not {page:x?}"))?;
            worst = worst.max(ns);
            let within = (SWEEP + 2 * PERIOD) * 1_000_000;
            seen.ensure(ns <= within, format!("{name}: found after {ns} ns"))?;
            let state = seen.sandbox(name)?.state;
            seen.ensure(state == "stopped", format!("{name} is {state}"))?;
            pages += 1;
        }
        seen.undisturbed("steady", &["running", "exited"])?;
        seen.exited("timer")?;
    }
    Ok(format!("{pages} bits, found within {} ms of {SWEEP}", worst / 1_000_000))
}

/// Runs with a bit flipped in the machine's memory when `name` runs: `choose` has what the image lists, and chooses a
/// physical address.
fn flipped(
    bench: &Bench,
    manifest: &Manifest,
    name: &str,
    choose: impl Fn(&Listed, usize) -> Option<u64>,
) -> Result<Seen, String> {
    let listed: Rc<RefCell<Listed>> = Rc::default();
    let keep = Rc::clone(&listed);
    let ram: Rc<RefCell<PathBuf>> = Rc::default();
    let path = Rc::clone(&ram);
    let index = SANDBOXES.iter().position(|own| *own == name).unwrap_or(0);
    let mut wrong = None;
    let seen = run_from(
        manifest,
        &bench.dir,
        |o| {
            o.limit = Duration::from_secs(100);
            o.spoil = Some(Box::new(move |bytes, baked| {
                *keep.borrow_mut() = Listed::of(bytes, baked);
            }));
        },
        started(|running| *path.borrow_mut() = running.ram().path().to_owned()),
        |(of, state), _| {
            if of != name || state != State::Running || wrong.is_some() {
                return;
            }
            let flip = |pa: u64| -> std::io::Result<()> {
                let file = std::fs::File::options().read(true).write(true).open(&*ram.borrow())?;
                let mut byte = [0];
                file.read_exact_at(&mut byte, pa)?;
                file.write_all_at(&[byte[0] ^ 1], pa)
            };
            let pa = choose(&listed.borrow(), index);
            let done = pa.map(|pa| flip(pa).map_err(|error| error.to_string()));
            wrong = Some(done.unwrap_or_else(|| Err("nothing was chosen".into())));
        },
    )?;
    wrong.unwrap_or_else(|| Err(format!("{name} did not run")))?;
    Ok(seen)
}

/// A bit of a monitor's own text: it ends for good, and nothing else does.
fn monitor(bench: &Bench) -> Result<String, String> {
    let seen = flipped(bench, &manifest("restart"), "bare", Listed::text)?;
    let (condition, ..) = found(&seen, "bare")?;
    let s = seen.sandbox("bare")?;
    let right = condition == "monitor-sum" && (s.state, s.restarts) == ("failed", 0);
    seen.ensure(right, format!("{condition}, {}, {} restarts", s.state, s.restarts))?;
    seen.undisturbed("steady", &["running", "exited"])?;
    seen.exited("timer")?;
    Ok("its sandbox has failed, no other".into())
}

/// An intercept is gone: found at the next tick, and the restart puts it back.
fn control_block(bench: &Bench) -> Result<String, String> {
    // The intercept of INVLPGB. Without that of VMRUN the processor would refuse the guest by itself.
    let chosen =
        |listed: &Listed, index: usize| listed.behind(index, CORES_VA + CORE_CONTROL + 0x14);
    let seen = flipped(bench, &manifest("restart"), "bare", chosen)?;
    let (condition, address, _) = found(&seen, "bare")?;
    let s = seen.sandbox("bare")?;
    let right = (condition, address) == ("control-block", 0x10) && s.restarts == 1;
    seen.ensure(right, format!("{condition} at {address:#x}, {} restarts", s.restarts))?;
    let again = seen.denials.iter().filter(|d| d.sandbox == "bare").count();
    seen.ensure(again == 1, format!("it was found {again} times"))?;
    seen.undisturbed("steady", &["running", "exited"])?;
    Ok("found and begun anew".into())
}

/// A Linux patches its own text: its monitor is looked at alone, and nothing is found.
fn linux(bench: &Bench) -> Result<String, String> {
    let manifest = Manifest::new().ends_with(&["one"]).linux(
        "one",
        "linux-6.12-cloud",
        "boot",
        &[0, 1],
        "256 MiB",
        1,
    );
    let watch = format!("watchdog = \"{PERIOD} ms\"\nsweep = \"{SWEEP} ms\"\n");
    let seen = run(&Manifest(manifest.0 + &watch), &bench.dir, |o| {
        o.limit = Duration::from_secs(160);
    })?;
    seen.undisturbed("one", &["stopped"])?;
    let exits = &seen.sandbox("one")?.exits;
    let ticks: u64 = [&exits.boot, &exits.steady].iter().filter_map(|e| e.get("watchdog")).sum();
    seen.ensure(ticks > 2 * SWEEP / PERIOD, format!("{ticks} ticks"))?;
    Ok(format!("{ticks} ticks, nothing found"))
}

/// A monitor that does not look finds nothing.
fn mutant(bench: &Bench) -> Result<String, String> {
    mutate::build_mutants()?;
    let folder = mutate::monitor_without("sweep")?;
    let seen = run(&manifest("stop"), &bench.dir, |o| {
        o.artifacts = folder;
        o.spoil = Some(Box::new(|bytes, baked| {
            let listed = Listed::of(bytes, baked);
            let page = listed.pages[0].iter().find(|page| page.at < MMIO_VA);
            if let Some(pa) = page.and_then(|page| listed.pristine(0, page.at + 4000)) {
                bytes[(pa - IMAGE_PA) as usize] ^= 1;
            }
        }));
    })?;
    seen.exited("timer")?;
    let s = seen.sandbox("bare")?;
    seen.ensure(s.denials == 0, "a monitor that does not look has found it")?;
    Ok("a monitor that does not look finds nothing".into())
}
