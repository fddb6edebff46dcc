//! Monitors of another build: systems in which both are, with attacks, failures and the audit.

use super::attack;
use super::driver::{Bench, Job};
use super::pace::{self, PACED};
use super::peer::{self, INDEX, STOPS, Strike, struck};
use super::sweep::Listed;
use super::system::{Seen, artifacts};
use bulkhead_layout::map::{CONFIG_VA, CORE_STACK, CORE_STACK_SIZE, CORE_STRIDE, CORES_VA};
use bulkhead_layout::monitor::{Config, Slice, Start};
use bulkhead_layout::need::{CHECKED, MONITORS};
use bulkhead_plan::{Build, Plan};
use bulkhead_run::audit::{claim, program_of};
use rogue::Set;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("checked/attacks", 240, attacks),
        Job::one("checked/spare", 120, spare),
        Job::one("checked/check", 120, check),
        Job::one("checked/layout", 30, layout),
    ]
}

/// The manifest's line for a build.
const FIRST: &str = "monitor = \"checked\"";
const SPARE: &str = "spare = \"checked\"\n";

/// All attacks that end by themselves on a monitor with checks, beside a sandbox with the usual one. No check fails.
fn attacks(bench: &Bench) -> Result<String, String> {
    let lives = Set::Any.ending().count();
    let mut manifest = attack::system(&[1, 2], &format!("core=1 lives={lives} {PACED}"));
    manifest = manifest.restarting("rogue");
    manifest.0 = manifest.0.replace("[\"uart1\"]", &format!("[\"uart1\"]\n{FIRST}"));
    let seen = pace::run(&manifest, &bench.dir, |o| {
        o.limit = Duration::from_secs(200);
        o.audit = true;
    })?;
    for (life, attack) in Set::Any.ending().enumerate() {
        attack::judge(&seen, life as u32, attack).map_err(|e| format!("{}: {e}", attack.name))?;
    }
    attack::unharmed(&seen)?;
    audited(&seen)?;
    let (depth, room) = (depth(&seen, 1, 2)?, CORE_STACK_SIZE / 2);
    seen.ensure(depth <= room, format!("{depth} bytes of the stack are used, not {room}"))?;
    let wrong = wrong(&seen, |plan| plan.sandboxes[1].monitor = Build::Usual)?;
    let other = self::wrong(&seen, |plan| plan.sandboxes[0].monitor = Build::Checked)?;
    Ok(format!(
        "{lives} attacks, {depth} bytes of stack; with another build in the manifest the auditor finds {wrong}, {other}"
    ))
}

/// The audit of a run finds nothing.
fn audited(seen: &Seen) -> Result<(), String> {
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))
}

/// Audits once more against another manifest, which must not fit.
fn wrong(seen: &Seen, change: impl FnOnce(&mut Plan)) -> Result<String, String> {
    let mut plan = seen.outcome()?.baked.plan.clone();
    change(&mut plan);
    let claim = claim(&plan, &artifacts()).map_err(|e| e.to_string())?;
    let memory = seen.memory.as_ref().ok_or("the machine's memory cannot be read")?.whole();
    let report = bulkhead_audit::audit(&claim, &seen.audited()?.registers, memory);
    let rule = report.findings.iter().map(|found| found.rule).find(|rule| *rule == "monitor-text");
    rule.map(str::to_owned).ok_or_else(|| seen.wrong("the auditor finds no other build"))
}

/// Most bytes of stack that a core of a monitor has used. Below is a stretch of zeros, as at the start, and then the
/// core's state.
fn depth(seen: &Seen, index: usize, cores: u64) -> Result<u64, String> {
    const STRETCH: u64 = 1024;
    let spaces = &seen.outcome()?.baked.map.spaces;
    let memory = seen.memory.as_ref().ok_or("the machine's memory cannot be read")?;
    let used = |core: u64| {
        let at = CORES_VA + core * CORE_STRIDE + CORE_STACK;
        let top = spaces[index].monitor.regions.iter().find(|r| r.at == at)?.pa + CORE_STACK_SIZE;
        let mut lowest = 0;
        for below in (8..=CORE_STACK_SIZE).step_by(8) {
            match memory.word(top - below) {
                0 if below - lowest > STRETCH => return Some(lowest),
                0 => {}
                _ => lowest = below,
            }
        }
        None
    };
    let used: Option<Vec<u64>> = (0..cores).map(used).collect();
    used.and_then(|used| used.into_iter().max()).ok_or_else(|| seen.wrong("a stack is full"))
}

/// Runs a driver with these keys, its monitor struck.
fn driver(bench: &Bench, keys: &str, strike: Strike) -> Result<Seen, String> {
    let restart = peer::health("action = \"restart\"");
    let manifest = peer::with("core=1 way=sleep", 120, keys, peer::BOTH, &restart);
    let seen = struck(&manifest, &bench.dir, None, strike)?;
    let found = [peer::findings(&seen, "guard"), peer::findings(&seen, STOPS)];
    seen.ensure(found == [1, 1], format!("{found:?} records"))?;
    let s = seen.sandbox(STOPS)?;
    let right = (s.state, s.restarts) == ("exited", 1);
    seen.ensure(right, format!("{STOPS} is {} after {} restarts", s.state, s.restarts))?;
    seen.undisturbed("steady", &["running", "exited"])?;
    seen.exited("guard")?;
    audited(&seen)?;
    Ok(seen)
}

/// A monitor of the usual build stops, and its sandbox goes on in one with checks. That one's sweep looks at its text
/// all the time, and the auditor finds that text and no other.
fn spare(bench: &Bench) -> Result<String, String> {
    let keys = format!("sweep = \"100 ms\"\n{SPARE}");
    let seen = driver(bench, &keys, peer::deaf(0))?;
    let sums = seen.denials.iter().filter(|d| d.condition.ends_with("-sum")).count();
    seen.ensure(sums == 0, format!("{sums} sums are wrong"))?;
    let rule = wrong(&seen, |plan| plan.sandboxes[INDEX].spare = Build::Usual)?;
    Ok(format!("it goes on in the other build; with the usual one the auditor finds {rule}"))
}

/// One bit of a configuration: the address of a table that each tick reads overflows. A monitor without checks would
/// read somewhere.
fn overflow(listed: &Listed, ram: &File) -> std::io::Result<()> {
    peer::wait_for_ticks(listed, ram, 0)?;
    let table = offset_of!(Config, start) + offset_of!(Start, fixed) + size_of::<Slice>();
    let high = CONFIG_VA + (table + offset_of!(Slice, offset)) as u64 + 3;
    let pa = listed.behind(INDEX, high).expect("a configuration");
    let mut byte = [0];
    ram.read_exact_at(&mut byte, pa)?;
    ram.write_all_at(&[byte[0] ^ 0x80], pa)
}

/// A check fails. The peer finds the monitor, and the sandbox goes on in the usual build, which has a configuration of
/// its own. Where the peer may do nothing, the report keeps the check's line.
fn check(bench: &Bench) -> Result<String, String> {
    let keys = format!("sweep = \"10 s\"\n{FIRST}\n");
    driver(bench, &keys, Box::new(overflow))?;
    let manifest = peer::with("core=1 way=sleep", 120, &keys, "", "");
    let seen = struck(&manifest, &bench.dir, None, Box::new(overflow))?;
    let report = &seen.outcome()?.snapshot.sandboxes[INDEX].report;
    // #UD has no error code; the line is in place of an address.
    let [at, line] = report.fault;
    let own = text(CHECKED)?.contains(&at);
    let right = own && (1..10_000).contains(&line);
    seen.ensure(right, format!("a fault at {at:#x} with {line:#x}"))?;
    let found = peer::findings(&seen, "guard");
    // Each of its two cores reads that table.
    seen.ensure(found == 2, format!("its peer has found it {found} times"))?;
    Ok(format!("the check of line {line} failed, and it goes on in the usual build"))
}

/// Addresses of a monitor's text.
fn text(monitor: usize) -> Result<std::ops::Range<u64>, String> {
    let path: PathBuf = artifacts().join(MONITORS[monitor].0);
    let segments = program_of(&path).map_err(|e| e.to_string())?;
    let text = segments.iter().find(|s| s.execute).ok_or("no text")?;
    Ok(text.address..text.address + text.len)
}

/// Both builds have no address of text in common.
fn layout(_: &Bench) -> Result<String, String> {
    let [usual, checked] = [text(CHECKED - 1)?, text(CHECKED)?];
    match usual.end <= checked.start || checked.end <= usual.start {
        true => Ok(format!("{:#x} and {:#x}", usual.start, checked.start)),
        false => Err(format!("{usual:x?} and {checked:x?}")),
    }
}
