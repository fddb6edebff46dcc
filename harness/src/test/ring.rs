//! VT-x' shell: its doorbell, rung at each instruction of an exit's path (`guests/ring`), the price of exits, and
//! entries that the processor refuses.

use super::driver::{Bench, Job, Verdict};
use super::mutate;
use super::spoil::Spoil;
use super::system::{Manifest, Seen, run};
use super::vmx::BARE;
use bulkhead_arch_x86::vmcs::field;
use bulkhead_image::Baked;
use bulkhead_qemu::bochs::{Model, Virtualization};
use std::path::PathBuf;
use std::time::Duration;

/// Most instructions of an exit, the guest's side included: SVM's rows and 15 more, and for CPUID, which SVM does
/// without, 75.
const MOST: [(&str, u64); 3] = [("hypercall", 75), ("cpuid", 75), ("icr", 90)];

/// Test of the monitor that lacks `doorbell-window`.
pub const MUTANT: &str = "ring/mutant";
const OTHER_BOCHS: &str = "only Bochs 2.7 is known to take an NMI in the window";

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("ring/none-lost", 100, |bench| {
            let seen = ring(bench, "ring", &[0, 1], None)?;
            seen.exited("guest")?;
            let rings = numbers(&seen, "ring: 0 wrong, ")?;
            let exits = &seen.sandbox("guest")?.exits;
            let counted: u64 =
                [&exits.boot, &exits.steady].iter().filter_map(|e| e.get("doorbell")).sum();
            // INIT and start-ups ring the second core, of which the last may show at its first entry.
            let right = (rings..=rings + 2).contains(&counted);
            seen.ensure(right, format!("{counted} doorbells of {rings}"))?;
            Ok(format!("{rings} rings"))
        }),
        Job::new(MUTANT, [MUTANT.to_owned()], 200, |bench| {
            match Model::installed(Virtualization::Svm) {
                // Bochs 2.7 alone has that model.
                Ok(Model::Generic) => bench.result(MUTANT, mutant(bench)),
                _ => bench.verdict(MUTANT, Verdict::Skipped(OTHER_BOCHS.into())),
            }
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
        Job::one("ring/state", 60, |bench| {
            let seen = ring(bench, "state", &[0], None)?;
            seen.exited("guest")?;
            Ok(format!("{} checks", seen.console.matches(": ok").count()))
        }),
        // Bit 1 of RFLAGS is always 1; a monitor in 64-bit mode cannot be left for one in 32-bit mode.
        refused("ring/state-refused", field::GUEST_RFLAGS, 1 << 1, (1 << 31 | 33, 0)),
        refused("ring/host-refused", field::EXIT_CONTROLS, 1 << 9, (u64::MAX, 8)),
    ]
}

/// Loses doorbells without the mending of RIP.
fn mutant(bench: &Bench) -> Result<String, String> {
    mutate::build_mutants()?;
    let folder = mutate::shell_without("vmx", "vmx-", "doorbell-window")?;
    let seen = ring(bench, "ring", &[0, 1], Some(folder))?;
    let lost = seen.sandbox("guest")?.exit_code.unwrap_or(0);
    seen.ensure(lost > 0, "without the mending no doorbell was lost")?;
    Ok(format!("{lost} lost"))
}

/// An entry that the processor refuses, because bits of a field were taken away. The record tells the reason of the
/// exit and its qualification, or the error of the VMX instruction.
fn refused(name: &'static str, field: u16, bits: u64, expected: (u64, u64)) -> Job {
    Job::one(name, 60, move |bench| {
        let manifest = Manifest::on("bochs-vmx").ends_with(&["guest"]);
        let manifest = manifest.bare("guest", "hello", "", &[0], "4 MiB", "");
        let seen = run(&manifest, &bench.dir, |options| {
            (options.limit, options.bochs_hz) = (Duration::from_secs(50), BARE);
            options.spoil = Some(Box::new(move |bytes: &mut Vec<u8>, baked: &Baked| {
                let mut spoil = Spoil::new(bytes, baked);
                spoil.without(0, field, bits);
                spoil.seal();
            }));
        })?;
        let guest = seen.sandbox("guest")?;
        seen.ensure(guest.state == "stopped", "it is not stopped")?;
        let [denial] = &seen.denials[..] else { return Err(seen.wrong("not one denial")) };
        let found = (denial.record.address, denial.record.info);
        seen.ensure(found == expected, format!("{found:x?}, not {expected:x?}"))?;
        Ok(denial.access.clone())
    })
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
        (options.limit, options.bochs_hz) = (Duration::from_secs(90), BARE);
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
