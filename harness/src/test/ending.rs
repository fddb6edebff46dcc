//! Ends of runs that no guest ends: after a duration, counted in the machine's time, or given up, with what the
//! emulator says about why.

use super::driver::Job;
use super::system::{Manifest, run};
use bulkhead_qemu::Time;
use std::time::Duration;

/// For the run that is given up: the victim never ends.
const PATIENCE: u64 = 8;
const MEMORY: &str = "{ size = \"8 MiB\", at = \"1 GiB\" }";

pub fn jobs() -> Vec<Job> {
    vec![given_up(), duration()]
}

/// The error leads with the likely cause, which here is a message that a device forges: the IOMMU refuses it, and QEMU
/// says so.
fn given_up() -> Job {
    Job::one("run/given-up", 60, |bench| {
        let edu = "devices = [\"pci:00:08.0\"]";
        let args = "foreign=1 attack=dma-message-foreign once";
        let manifest = Manifest::new()
            .ends_with(&["victim"])
            .bare("rogue", "rogue", args, &[0], "4 MiB", edu)
            .bare("victim", "victim", "", &[1], MEMORY, "");
        let seen = run(&manifest, &bench.dir, |o| o.limit = Duration::from_secs(PATIENCE))?;
        let Err(error) = &seen.outcome else { return Err(seen.wrong("it ended")) };
        let first = error.lines().next().unwrap_or_default();
        let leads = first
            .starts_with(&format!("after {PATIENCE} s the run was given up: likely cause: "))
            && first.contains("qemu.log: ")
            && first.contains("failed to remap interrupt from devid 0xa0");
        match leads {
            true => Ok(first.into()),
            false => Err(format!("it leads with: {first}\n{error}")),
        }
    })
}

/// Three seconds of the machine's time from the launch, however long they take the host: a controller with 1000
/// releases a second counts them.
fn duration() -> Job {
    Job::one("run/duration", 120, |bench| {
        const ASKED: u64 = 3;
        let mut manifest = Manifest::new()
            .ends_with(&["flight"])
            .bare("flight", "flight", "seconds=60 substeps=11", &[1], "16 MiB", "")
            .bare("victim", "victim", "", &[0], MEMORY, "");
        manifest.0 += "[[channel]]\nname = \"telemetry\"\nfrom = \"flight\"\nto = [\"victim\"]\nsize = \"64 KiB\"\n";
        let seen = run(&manifest, &bench.dir, |o| {
            o.time = Time::one_core();
            o.duration = Some(Duration::from_secs(ASKED));
            o.limit = Duration::from_secs(100);
        })?;
        let telemetry = &seen.outcome()?.telemetry;
        let record = telemetry.first().ok_or_else(|| seen.wrong("there is no telemetry"))?;
        let releases = record.1.releases;
        let words = format!("{releases} releases in {ASKED} s");
        // It starts after the launch, and a look takes the host some time.
        seen.ensure((ASKED * 1000 - 100..ASKED * 2000).contains(&releases), &words)?;
        Ok(words)
    })
}
