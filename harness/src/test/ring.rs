//! The doorbell of VT-x' monitors, rung at each instruction of an exit's path (`guests/ring`), and the price of exits.

use super::driver::{Bench, Job};
use super::mutate;
use super::system::{Manifest, Seen, run};
use std::path::PathBuf;
use std::time::Duration;

/// Most instructions of an exit, the guest's side included: SVM's rows and 15 more, and for CPUID, which SVM does
/// without, 75.
const MOST: [(&str, u64); 3] = [("hypercall", 75), ("cpuid", 75), ("icr", 90)];

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("ring/none-lost", 100, |bench| {
            let seen = ring(bench, "ring", &[0, 1], None)?;
            seen.exited("guest")?;
            let rings = numbers(&seen, "ring: 0 wrong, ")?;
            let exits = &seen.sandbox("guest")?.exits;
            let counted: u64 =
                [&exits.boot, &exits.steady].iter().filter_map(|e| e.get("doorbell")).sum();
            seen.ensure(counted == rings, format!("{counted} doorbells of {rings}"))?;
            Ok(format!("{rings} rings"))
        }),
        Job::one("ring/mutant", 200, |bench| {
            mutate::build_mutants()?;
            let folder = mutate::shell_without("vmx", "vmx-", "doorbell-window")?;
            let seen = ring(bench, "ring", &[0, 1], Some(folder))?;
            let lost = seen.sandbox("guest")?.exit_code.unwrap_or(0);
            seen.ensure(lost > 0, "without the mending no doorbell was lost")?;
            Ok(format!("{lost} lost"))
        }),
        Job::one("ring/cost", 100, |bench| {
            let seen = ring(bench, "cost", &[0], None)?;
            seen.exited("guest")?;
            let mut costs = Vec::new();
            for (name, most) in MOST {
                let ticks = numbers(&seen, &format!("ring: {name} takes "))?;
                seen.ensure(ticks <= most, format!("{name} takes {ticks} instructions"))?;
                costs.push(format!("{name} {ticks}"));
            }
            Ok(costs.join(", "))
        }),
    ]
}

fn ring(
    bench: &Bench,
    args: &str,
    cores: &[u32],
    artifacts: Option<PathBuf>,
) -> Result<Seen, String> {
    let manifest = Manifest::on("bochs-vmx").ends_with(&["guest"]);
    let manifest = manifest.bare("guest", "ring", args, cores, "4 MiB", "");
    run(&manifest, &bench.dir, |options| {
        options.limit = Duration::from_secs(90);
        if let Some(folder) = artifacts {
            options.artifacts = folder;
        }
    })
}

/// Number after some words on the console.
fn numbers(seen: &Seen, words: &str) -> Result<u64, String> {
    let after = seen.console.split(words).nth(1).unwrap_or_default();
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().map_err(|_| format!("{words:?} is not said:\n{}", seen.console))
}
