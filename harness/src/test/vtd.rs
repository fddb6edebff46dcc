//! Intel's IOMMU: the attacks of a sandbox with PCI functions, and one by which a function names another's interrupt
//! entry. Lines are in [`super::line`], a Linux with disk and card in [`super::linux_io`], the auditor's plants in
//! [`super::walk`].

use super::attack::{denial, judge, unharmed};
use super::device::{FOREIGN, confined, system_on};
use super::driver::{Bench, Job};
use super::mutate::{build_mutants, monitor_without};
use super::spoil::Spoil;
use super::system::{Seen, run};
use rogue::Set;
use std::time::Duration;

/// The description of the machine.
pub const MACHINE: &str = "qemu-q35-vtd";

pub fn jobs() -> Vec<Job> {
    vec![Job::one("vtd/attacks", 300, attacks), Job::one("vtd/index", 900, index)]
}

/// All attacks with functions, but for messages that are forged by DMA: QEMU passes those on, whatever the unit is told
/// (docs/limits.md). The victim is unharmed.
fn attacks(bench: &Bench) -> Result<String, String> {
    let all = Set::VtD.ending();
    let args = format!("set=vtd lives={}", all.clone().count());
    let manifest = system_on(MACHINE, Set::VtD, &args, &bench.dir)?;
    let limit = Duration::from_secs(270);
    let seen = run(&manifest.restarting("rogue"), &bench.dir, |o| {
        o.limit = limit;
        o.audit = true;
    })?;
    let mut wrong = String::new();
    for (life, attack) in all.clone().enumerate() {
        if let Err(why) = judge(&seen, life as u32, attack) {
            wrong += &format!("{}: {why}\n", attack.name);
        }
    }
    seen.ensure(wrong.is_empty(), &wrong)?;
    unharmed(&seen)?;
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))?;
    // The unit keeps the first fault.
    let fault = seen.console.lines().find(|line| line.starts_with("blocked: "));
    let fault = fault.ok_or_else(|| seen.wrong("no fault is recorded"))?;
    seen.ensure(fault.contains("00:08.0 (rogue's)"), fault)?;
    Ok(format!("{} attacks, {} bytes of tables intact; {fault}", all.count(), confined(&seen)?))
}

/// A function sends a message that names an entry of another sandbox's function, past a monitor without the rule that
/// keeps it from that. With source validation nobody is interrupted; without, the other sandbox is.
fn index(bench: &Bench) -> Result<String, String> {
    const NAME: &str = "msi-index";
    build_mutants()?;
    let args = format!("attack={NAME} once pause=100 linger=50");
    let manifest = system_on(MACHINE, Set::Devices, &args, &bench.dir)?;
    let made = |validated: bool| {
        let folder = monitor_without("message-form")?;
        run(&manifest, &bench.dir, |o| {
            o.artifacts = folder;
            o.limit = Duration::from_secs(60);
            o.spoil = (!validated).then(|| -> bulkhead_run::Spoil {
                Box::new(|bytes, baked| {
                    let mut spoil = Spoil::new(bytes, baked);
                    spoil.take_from_all(FOREIGN);
                    spoil.seal();
                })
            });
        })
    };
    // With the rule it does not come to that.
    let seen = run(&manifest, &bench.dir, |_| {})?;
    let denied: Vec<_> = seen.denials.iter().map(denial).collect();
    seen.ensure(denied == ["device-violation 0xc0040040"], format!("denied: {denied:?}"))?;
    let went = |seen: &Seen| seen.console.contains(&format!("attack {NAME}: got harmless 0x0"));
    let seen = made(true)?;
    seen.ensure(went(&seen), "the monitor without its rule denies it")?;
    unharmed(&seen)?;
    let fault = seen.console.lines().find(|line| line.starts_with("blocked: "));
    let fault = fault.ok_or_else(|| seen.wrong("no fault is recorded"))?.to_owned();
    let seen = made(false)?;
    seen.ensure(went(&seen), "the monitor without its rule denies it")?;
    let stray = seen.console.contains("[victim] victim: stray interrupt 0x70");
    seen.ensure(stray, "without source validation nothing arrives")?;
    Ok(format!("without source validation it arrives; with it: {fault}"))
}
