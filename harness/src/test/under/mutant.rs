//! A Linux breaks a rule that its monitor lacks. It takes the machine back while another sandbox runs. In xAPIC mode it
//! writes an entry of the local vector table. With the rule, by an equal measure, it does not.

use super::super::driver::{Bench, Job};
use super::super::mutate;
use super::super::system::artifacts;
use super::{DONE, Kind, STRIKE, checked};
use bulkhead_initramfs::{Archive, Entry};
use bulkhead_qemu::{Machine, Serial};
use std::path::Path;
use std::time::Duration;

/// Tests of monitors without a rule.
pub const RELEASE: &str = "under/mutant-release-last";
pub const LOCAL: &str = "under/mutant-local-interrupts";
const CORES: usize = 2;
const LIMIT: Duration = Duration::from_secs(100);

pub fn jobs() -> [Job; 2] {
    // In xAPIC mode monitors have that rule in other code.
    [(RELEASE, "release-last", true), (LOCAL, "local-interrupts", false)]
        .map(|(name, rule, remaps)| Job::one(name, 400, move |bench| mutant(bench, rule, remaps)))
}

fn mutant(bench: &Bench, rule: &str, remaps: bool) -> Result<String, String> {
    if broken(bench, &artifacts(), rule, remaps)? {
        return Err("the rule is in place, and it is broken".into());
    }
    match broken(bench, &mutate::running_without(rule)?, rule, remaps)? {
        true => Ok("broken where it is taken out".into()),
        false => Err("the rule is taken out, and it is not broken".into()),
    }
}

/// Tells if the Linux broke the rule.
fn broken(bench: &Bench, programs: &Path, rule: &str, remaps: bool) -> Result<bool, String> {
    let late = bulkhead_run::build_late(&checked(Kind::Remaps)?, programs, CORES)
        .map_err(|e| e.to_string())?;
    let read = |name| std::fs::read(artifacts().join(name)).map_err(|e| format!("{name}: {e}"));
    let mut bytes = read("virtio.cpio")?;
    let mut archive = Archive::default();
    archive.add("/late/script.sh", Entry::File(0o644, include_bytes!("mutant.sh").to_vec()));
    archive.add("/late/system.img", Entry::File(0o644, late.file()));
    archive.add("/late/bhstrike.ko", Entry::File(0o644, read(STRIKE)?));
    bytes.extend(archive.to_bytes());
    let initrd = bench.dir.join("initramfs.cpio");
    let written = std::fs::create_dir_all(&bench.dir).and_then(|()| std::fs::write(&initrd, bytes));
    written.map_err(|e| format!("{}: {e}", initrd.display()))?;
    let mut machine = Machine::new(&bench.dir);
    machine.cores = CORES;
    machine.kernel = Some(artifacts().join("linux-6.12-cloud"));
    machine.initrd = Some(initrd.display().to_string());
    machine.append = format!("console=ttyS0 loglevel=4 bulkhead.run=sh:/late/script.sh,{rule}");
    if remaps {
        machine.args = ["-device", "intel-iommu,intremap=on,eim=on"].map(String::from).into();
    }
    machine.serials = vec![Serial::File];
    let mut running = machine.start().map_err(|e| e.to_string())?;
    let text = running.wait_serial(0, "bulkhead-init: exit code", LIMIT);
    let text = text.map_err(|e| e.to_string())?.text();
    match ["under: broken", "under: kept"].map(|says| text.contains(says)) {
        [true, false] if text.contains(DONE) => Ok(true),
        [false, true] if text.contains(DONE) => Ok(false),
        _ => Err(text),
    }
}
