//! A Linux that ran first begins anew as a sandbox. Another one begins it when it has panicked, and it does so itself
//! by `reboot`. Meanwhile `flight` does its duty.

use super::super::driver::{Bench, Job};
use super::super::system::artifacts;
use super::{
    DONE, Kind, Linux, STRIKE, block, complaints, first_the_reason, load_from, pattern, start,
};
use bulkhead_explain::{explain, sandbox};
use bulkhead_initramfs::{Archive, Entry};
use bulkhead_layout::report::State;
use bulkhead_manifest::Checked;
use std::time::Duration;

/// The image.
pub const IMAGE: &str = "restart.img";
const CORES: usize = 5;
const LIMIT: Duration = Duration::from_secs(200);
const FLIGHT: usize = 0;
const GROUND: usize = 3;
/// Lives of the Linux that [`IMAGE`] has begun.
const LIVES: usize = 4;

/// Behind the manifest: its other users have fewer cores. The sender goes on through all lives of the Linux.
const MORE: &str = r#"
[[sandbox]]
name = "source"
guest = { kind = "bare", program = "artifact:talk", args = "role=send channel=news count=1000000 gap=3000" }
cores = [3]
memory = "8 MiB"

[[channel]]
name = "news"
from = "source"
to = ["ground"]
size = "8 KiB"
kind = "queue"
message = 64
notify = "doorbell"

[[health]]
sandbox = "ground"
on = "memory-violation"
action = "restart"
"#;

pub fn jobs() -> Vec<Job> {
    vec![Job::one("under/restart", 230, restart)]
}

/// Loads the system, with the initrd that the Linux has when it begins anew.
pub fn system(bench: &Bench) -> Result<Checked, String> {
    let root = crate::build::root();
    let text = std::fs::read_to_string(root.join("tests/under/restart.toml"));
    let text = text.map_err(|e| e.to_string())?;
    let initrd = bench.dir.join("again.cpio");
    let mut bytes = std::fs::read(artifacts().join("virtio.cpio")).map_err(|e| e.to_string())?;
    let mut archive = Archive::default();
    let mut file = |name: &str, bytes| archive.add(name, Entry::File(0o644, bytes));
    file("/late/again.sh", include_str!("again.sh").into());
    file("/late/pattern", pattern());
    let strike = std::fs::read(artifacts().join(STRIKE)).map_err(|e| format!("{STRIKE}: {e}"))?;
    file("/late/bhstrike.ko", strike);
    bytes.extend(archive.to_bytes());
    std::fs::write(&initrd, bytes).map_err(|e| e.to_string())?;
    let text = text
        .replace("../../machines", &format!("{}/machines", root.display()))
        .replace("nap=60000", "nap=8000")
        .replace("target=2", &format!("target={GROUND}"))
        .replace("artifact:virtio.cpio", &initrd.display().to_string());
    let manifest = bench.dir.join("restart.toml");
    std::fs::write(&manifest, text + MORE).map_err(|e| e.to_string())?;
    load_from(&manifest)
}

fn restart(bench: &Bench) -> Result<String, String> {
    let linux = Linux {
        kernel: "6.12-cloud",
        cores: CORES,
        script: include_str!("restart.sh"),
        arguments: String::new(),
        machine: Kind::Confined,
        disks: &[""; 4],
        limit: LIMIT,
    };
    let mut running = start(bench, &linux)?;
    let base = block(&mut running, &linux)?;
    let baked = bulkhead_run::build_at(&system(bench)?, &artifacts(), CORES, base);
    let baked = baked.map_err(|e| e.to_string())?;
    let ended = running.wait_serial(0, "bulkhead-init: exit code", LIMIT);
    let text = ended.map_err(|e| format!("{e}\n{}", running.serial(0)))?.text();
    if !text.contains(DONE) {
        return Err(first_the_reason(&text));
    }
    complaints(&text)?;
    let woken: Vec<_> = text.lines().filter(|line| line.contains(" armings, ")).collect();
    if woken.len() != LIVES || woken.iter().any(|line| line.contains(": 0 interrupts")) {
        return Err(format!("messages in {woken:?}\n{text}"));
    }
    let read = |pa: u64, bytes: &mut [u8]| running.ram().read(pa, bytes).is_ok();
    let look = |index: usize| {
        let cores = baked.plan.sandboxes[index].cores.len();
        sandbox(&read, baked.map.reports[index], cores).ok_or_else(|| "no report".to_owned())
    };
    let (flight, ground) = (look(FLIGHT)?, look(GROUND)?);
    if flight.state != State::Running || flight.report.restarts != 0 || flight.denials() != 0 {
        return Err(format!("flight is {:?}, with {} denials", flight.state, flight.denials()));
    }
    let all = ground.cores.iter().enumerate();
    let records = all.flat_map(|(core, of)| of.kept.iter().map(move |denial| (core, denial)));
    let records: Vec<_> = records
        .map(|(core, denial)| explain(&baked.plan, GROUND, core, denial))
        .map(|r| {
            format!("{} {:#x} in life {}", r.condition, r.record.address, r.record.incarnation)
        })
        .collect();
    // The attack in its third life leaves one, and a boot none.
    let attack = format!("memory-read {:#x} in life 3", base);
    if records != [attack] {
        return Err(format!("{records:?}\n{text}"));
    }
    if ground.report.restarts != LIVES as u64 {
        return Err(format!("{} restarts of the Linux\n{text}", ground.report.restarts));
    }
    let begun = ground.report.launch_ticks - ground.report.begin_ticks;
    Ok(format!(
        "{} restarts, the last one in {begun} ticks; flight said {} bytes",
        ground.report.restarts, flight.cores[0].console_written
    ))
}
