//! The auditor at a machine on which an image runs under a Linux. Then nothing of the image is left.

use super::super::driver::{Bench, Job};
use super::super::system::artifacts;
use super::super::walk;
use super::{Kind, Linux, block, checked, start};
use bulkhead_audit::RamFile;
use bulkhead_image::Baked;
use bulkhead_image::late::{BASE, relocate};
use bulkhead_qemu::Running;
use bulkhead_run::audit::{claim, live, ram_of};
use serde_json::json;
use std::time::Duration;

const NAME: &str = "under/audit";
const CORES: usize = 3;

pub fn jobs() -> [Job; 4] {
    let tests = walk::late().chain([NAME.to_owned()]);
    let planted = |bench: &Bench| bench.result(NAME, audit(bench, Kind::Remaps, true));
    [
        Job::new(NAME, tests.collect::<Vec<_>>(), 200, planted),
        Job::one("under/audit-confined", 200, |bench| audit(bench, Kind::Confined, false)),
        Job::one("under/audit-devices", 200, |bench| audit(bench, Kind::Gives, false)),
        Job::one("under/audit-restart", 200, |bench| audit(bench, Kind::Again, false)),
    ]
}

fn audit(bench: &Bench, machine: Kind, plants: bool) -> Result<String, String> {
    let linux = Linux {
        kernel: "6.12-cloud",
        cores: CORES,
        script: include_str!("audit.sh"),
        arguments: String::new(),
        machine,
        disks: &[],
        limit: Duration::from_secs(120),
    };
    let mut running = start(bench, &linux)?;
    let base = block(&mut running, &linux)?;
    let baked = bulkhead_run::build_at(&checked(machine)?, &artifacts(), CORES, base);
    let baked = baked.map_err(|e| e.to_string())?;
    is_moved(&baked, machine)?;
    let claim = claim(&baked.plan, &artifacts()).map_err(|e| e.to_string())?;
    let audited = live(&running, &claim).map_err(|e| e.to_string())?;
    if !audited.report.findings.is_empty() {
        return Err(format!("{:#?}", audited.report.findings));
    }
    let ram = running.ram().path();
    let memory = RamFile::flat(ram, &ram_of(&running)).map_err(|e| e.to_string())?;
    if plants {
        walk::plants_late(bench, &memory, &baked, claim, &audited);
    }
    let before = words(&running, &baked)?;
    let mut qmp = running.qmp().map_err(|e| e.to_string())?;
    qmp.execute("cont", json!({})).map_err(|e| e.to_string())?;
    let off = running.wait_serial(0, "under: off", linux.limit);
    off.map_err(|e| format!("{e}\n{}", running.serial(0)))?;
    qmp.execute("stop", json!({})).map_err(|e| e.to_string())?;
    let zeros = left(base, &before, &words(&running, &baked)?)?;
    Ok(format!(
        "{} frames of tables, {} ms; then {zeros} of {} pages are zeros",
        audited.report.tables,
        audited.took.as_millis(),
        before.len() / PAGE
    ))
}

/// Checks that the image of the file, moved there, is the one of the plan.
fn is_moved(baked: &Baked, machine: Kind) -> Result<(), String> {
    let late = bulkhead_run::build_late(&checked(machine)?, &artifacts(), CORES);
    let late = late.map_err(|e| e.to_string())?;
    let mut moved = late.baked.bytes;
    relocate(&mut moved, &late.relocations, baked.plan.image.start.wrapping_sub(BASE));
    let sum = (baked.map.header - baked.plan.image.start) as usize + 8;
    moved[sum..sum + 8].copy_from_slice(&baked.bytes[sum..sum + 8]);
    let differs = moved.iter().zip(&baked.bytes).position(|(own, other)| own != other);
    match differs {
        Some(at) => Err(format!("byte {at:#x} of the moved image is another one")),
        None if moved.len() != baked.bytes.len() => Err("the moved image has another end".into()),
        None => Ok(()),
    }
}

/// Words of a page.
const PAGE: usize = 512;

/// Reads the block.
fn words(running: &Running, baked: &Baked) -> Result<Vec<u64>, String> {
    let block = baked.plan.block.ok_or("a plan without a block")?;
    let mut bytes = vec![0; block.len as usize];
    running.ram().read(block.start, &mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect())
}

/// Looks for words that are as they were while the image ran, and counts the pages of zeros. The Linux has the memory
/// again, and writes to it: numbers that are in any memory are no trace.
fn left(base: u64, before: &[u64], after: &[u64]) -> Result<usize, String> {
    let rare = |word: u64| {
        let mut bytes = word.to_le_bytes();
        bytes.sort_unstable();
        bytes.chunk_by(|a, b| a == b).count() >= 6
    };
    let same = |(_, (was, is)): &(usize, (&u64, &u64))| was == is && rare(**is);
    let all: Vec<_> = before.iter().zip(after).enumerate().filter(same).map(|(n, _)| n).collect();
    if let Some(first) = all.first() {
        let at = base + 8 * *first as u64;
        return Err(format!("{} words are left, the first at {at:#x}", all.len()));
    }
    let zeros = after.chunks(PAGE).filter(|page| page.iter().all(|word| *word == 0)).count();
    if zeros * PAGE < after.len() / 2 {
        return Err(format!("only {zeros} pages are zeros"));
    }
    Ok(zeros)
}
