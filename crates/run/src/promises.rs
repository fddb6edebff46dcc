//! What a system's manifest promises, judged by what was seen.

use crate::Outcome;
use crate::audit::Audited;
use bulkhead_audit::RULES;
use bulkhead_plan::Guest;
use bulkhead_watch::{Promise, Sandbox};

/// Judges every promise. `timed`: the run was in virtual time, so promises
/// about time and instructions are judged too.
#[must_use]
pub fn judge(outcome: &Outcome, timed: bool) -> Vec<Promise> {
    let mut promises = vec![launched(outcome)];
    if timed {
        promises.extend(boot(outcome));
    }
    for (index, sandbox) in outcome.report.sandboxes.iter().enumerate() {
        let plan = &outcome.baked.plan.sandboxes[index];
        // What it may not have is yet to be found out: nothing is promised.
        if plan.learn {
            continue;
        }
        let is_restarted = plan.actions.contains(&bulkhead_layout::monitor::Action::Restart);
        if is_restarted {
            promises.push(caught(sandbox));
        } else {
            promises.push(undisturbed(sandbox));
            promises.extend(unchanged(outcome, index));
            if outcome.baked.plan.multikernel {
                continue;
            }
            let connects = outcome.baked.plan.slots.iter().any(|slot| slot.concerns(index));
            promises.extend(exit_free(sandbox, plan, connects));
        }
    }
    promises.extend(outcome.audited.as_ref().map(audit));
    if timed {
        promises.extend(outcome.telemetry.iter().map(|(name, t)| on_time(name, t)));
    }
    promises
}

fn promise(name: impl Into<String>, held: bool, detail: impl Into<String>) -> Promise {
    Promise { name: name.into(), held, detail: detail.into() }
}

fn launched(outcome: &Outcome) -> Promise {
    let missing: Vec<_> = outcome
        .report
        .sandboxes
        .iter()
        .filter(|s| s.state == "absent")
        .map(|s| s.name.as_str())
        .collect();
    let detail = if missing.is_empty() {
        format!("{} of {}", outcome.report.sandboxes.len(), outcome.report.sandboxes.len())
    } else {
        format!("missing: {}", missing.join(", "))
    };
    promise("every sandbox was launched", missing.is_empty(), detail)
}

fn boot(outcome: &Outcome) -> Option<Promise> {
    const LIMIT: u64 = 2_000_000;
    let boot = outcome.report.boot.as_ref()?;
    let detail = format!(
        "{} instructions of {LIMIT}; besides {} µs of waiting and {} µs of zeroing and copying",
        boot.instructions, boot.waiting_us, boot.copying_us
    );
    Some(promise("the machine boots in few instructions", boot.instructions <= LIMIT, detail))
}

fn caught(sandbox: &Sandbox) -> Promise {
    let held =
        sandbox.denials > 0 && sandbox.restarts >= sandbox.denials && sandbox.state != "failed";
    let detail = format!(
        "{} denied accesses, {} restarts, {}",
        sandbox.denials, sandbox.restarts, sandbox.state
    );
    promise(format!("{} is caught and restarted", sandbox.name), held, detail)
}

fn undisturbed(sandbox: &Sandbox) -> Promise {
    let alive = matches!(sandbox.state, "launching" | "running" | "stopped")
        || sandbox.exit_code == Some(0);
    let held = alive && sandbox.restarts == 0 && sandbox.denials == 0;
    let detail = format!(
        "{}, {} restarts, {} denied accesses",
        sandbox.state, sandbox.restarts, sandbox.denials
    );
    promise(format!("{} is not disturbed", sandbox.name), held, detail)
}

/// What nobody may write is as it was, whoever has a device that could have written it.
fn unchanged(outcome: &Outcome, index: usize) -> Option<Promise> {
    let program = outcome.programs.get(index).copied().flatten()?;
    let sandboxes = &outcome.baked.plan.sandboxes;
    let others = sandboxes.iter().enumerate().filter(|(other, _)| *other != index);
    let devices: Vec<_> = others
        .flat_map(|(_, s)| s.functions.iter().map(|f| format!("{} of {}", f.function.bdf, s.name)))
        .collect();
    // Without such a device nothing could have come of it.
    if devices.is_empty() {
        return None;
    }
    let detail = match program.changed {
        None => format!("{} bytes as they were; others have {}", program.bytes, devices.join(", ")),
        Some(at) => format!("changed at {at:#x}; others have {}", devices.join(", ")),
    };
    let name = &sandboxes[index].name;
    let name = format!("nobody's device changed the program of {name}");
    Some(promise(name, program.changed.is_none(), detail))
}

/// No exit once it has booted, but those that it asked for: hypercalls, doorbells of sleepers, its own
/// IPIs, what it has consented to by a channel made at run time, what the drivers that a Linux loads from user space do
/// to configure its PCI functions, and what it does to its local APIC and the power port when it
/// powers off.
fn exit_free(sandbox: &Sandbox, plan: &bulkhead_plan::Sandbox, connects: bool) -> Option<Promise> {
    let linux = matches!(plan.guest, Guest::Linux { .. });
    let (cores, functions) = (plan.cores.len(), plan.functions.len());
    // Measured: 22 LVT writes, 2 port accesses.
    const POWER_OFF: u64 = 32;
    // A serial port that is opened and closed: 4 each.
    const LINES: u64 = 64;
    // At power-off each of 24 lines is read, masked and read again, by two registers
    // through index and window.
    const MASKING: u64 = 24 * 3 * 4;
    // Measured: some 140 configuration accesses for a disk's or a card's driver.
    const DRIVER: u64 = 256;
    let steady = &sandbox.exits.steady;
    if sandbox.exits.steady_seconds == 0.0 {
        return linux.then(|| {
            promise(format!("{} came to user space", sandbox.name), false, sandbox.state)
        });
    }
    let free = |(cause, n): (&&str, &u64)| match *cause {
        "hypercall" | "ring" => true,
        "doorbell" if connects => true,
        // An interrupt that came while its line was being set up is sent again by an IPI.
        "ipi" => cores > 1 || linux && *n <= 4,
        "port" | "lvt" | "msr" | "doorbell" if linux && sandbox.state == "stopped" => {
            *n <= POWER_OFF * cores as u64
        }
        "config" if linux => {
            let at_end = if sandbox.state == "stopped" { MASKING } else { 0 };
            *n <= LINES + at_end + DRIVER * functions as u64
        }
        _ => false,
    };
    let ended = if sandbox.state == "stopped" { ", power-off included" } else { "" };
    let detail = format!("{steady:?} in {:.3} s{ended}", sandbox.exits.steady_seconds);
    Some(promise(format!("{} runs without exits", sandbox.name), steady.iter().all(free), detail))
}

fn audit(audited: &Audited) -> Promise {
    let report = &audited.report;
    let detail = match report.findings.first() {
        None => format!(
            "{} rules, {} frames of tables, {} runs of frames",
            RULES.len(),
            report.tables,
            report.frames.len(),
        ),
        Some(first) => format!(
            "{} differences; the first: {}: {}: {}",
            report.findings.len(),
            first.place,
            first.rule,
            first.message
        ),
    };
    promise(
        "audit: the machine confines what the manifest says",
        report.findings.is_empty(),
        detail,
    )
}

fn on_time(name: &str, t: &bulkhead_layout::telemetry::Record) -> Promise {
    // The clock of a run in virtual time is good to its metronome's 10 µs.
    const JITTER: u64 = 20_000;
    let held = t.releases > 0 && t.missed == 0 && t.jitter_max <= JITTER;
    let detail = format!(
        "{} releases, {} missed; jitter at most {} ns; tracking error {} µrad rms, {} % of the core",
        t.releases,
        t.missed,
        t.jitter_max,
        t.error_rms,
        t.busy / 10_000
    );
    promise(format!("{name}: every release on time"), held, detail)
}
