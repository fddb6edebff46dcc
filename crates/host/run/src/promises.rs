//! The promises of a system's manifest, judged by the run.

use crate::audit::Audited;
use crate::exits::{self, Facts};
use crate::{Load, Outcome, arch};
use bulkhead_audit::RULES;
use bulkhead_explain::{Deed, FAILOVER, Promise, Sandbox, TOOK};
use bulkhead_layout::report::DEEDS;
use bulkhead_layout::telemetry::Record;
use bulkhead_plan::{Channel, Guest, Plan, peers};
use std::collections::BTreeMap;

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
        // Its grants are yet to be found out: nothing is promised.
        if plan.learn {
            continue;
        }
        promises.extend(rung(sandbox));
        let planned = outcome.restarts[index];
        let restarted = plan.begins_anew();
        // One that begins anew for a planned reason is denied nothing.
        let is_restarted = restarted && planned == 0;
        if sandbox.deeds > 0 {
            promises.push(answered(sandbox));
            promises.extend(unchanged(outcome, index));
        } else if is_restarted && plan.ladders.is_empty() {
            promises.push(caught(sandbox));
        } else {
            let cores = outcome.snapshot.sandboxes.get(index).map(|seen| &seen.cores[..]);
            let consents = cores.unwrap_or(&[]).iter().map(|core| core.consents).sum();
            let own = Own { restarts: planned, ..Own::of(plan, consents) };
            promises.push(undisturbed(sandbox, &own));
            promises.extend(unchanged(outcome, index));
            if outcome.baked.plan.multikernel {
                continue;
            }
            promises.extend(exits_allowed(outcome, index));
            if timed {
                let rings = rings(&outcome.baked.plan, index);
                let loads = outcome.loads[index].iter();
                promises.extend(loads.map(|seen| load(seen, &sandbox.name, rings)));
            }
        }
    }
    promises.extend(outcome.audited.as_ref().map(audit));
    if timed {
        let cores = outcome.report.sandboxes.iter().map(|sandbox| sandbox.cores.len()).sum();
        promises.extend(outcome.telemetry.iter().map(|(name, t)| on_time(name, t, cores)));
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

/// Judges the boot code's instructions: 500,000 for each sandbox, and 2,000,000 in any case.
fn boot(outcome: &Outcome) -> Option<Promise> {
    let limit = (500_000 * outcome.report.sandboxes.len() as u64).max(2_000_000);
    let boot = outcome.report.boot.as_ref()?;
    let detail = format!(
        "{} instructions of {limit}; besides {} µs of waiting and {} µs of zeroing and copying",
        boot.instructions, boot.waiting_us, boot.copying_us
    );
    Some(promise("the machine boots in few instructions", boot.instructions <= limit, detail))
}

/// Judges answers to failures: each that begins a guest anew has done so, and nothing else did.
fn answered(sandbox: &Sandbox) -> Promise {
    let kept = &sandbox.newest_deeds;
    // A sandbox that begins for a role stops when it has given that away.
    let stops = |deed: &&Deed| {
        deed.action == "stop" || deed.action == FAILOVER && sandbox.state == "stopped"
    };
    // They came to a guest that ran, or they have begun one that waited.
    let took = kept.iter().filter(|deed| deed.action == TOOK).count() as u64;
    let stopped = kept.iter().filter(stops).count() as u64;
    // The run can end while the newest one is on its way.
    let on_its_way = u64::from(sandbox.state == "launching");
    let not_begun = kept.iter().filter(|deed| !stops(deed) && deed.took_us.is_none()).count();
    let whole = kept.len() as u64 == sandbox.deeds.min(DEEDS as u64);
    let all_kept = sandbox.deeds <= DEEDS as u64;
    let held = not_begun as u64 <= on_its_way
        && whole
        // A guest can begin itself anew, too, and be started by others. Stops of which no record is left are unknown.
        && (!all_kept || sandbox.restarts + on_its_way >= sandbox.deeds - stopped - took)
        && sandbox.state != "failed";
    let longest = kept.iter().filter_map(|deed| deed.took_us).max().unwrap_or(0);
    let detail = format!(
        "{} failures, {} restarts, at most {longest} us each, {}",
        sandbox.deeds, sandbox.restarts, sandbox.state
    );
    promise(
        format!("each failure of {} is answered as its ladder says", sandbox.name),
        held,
        detail,
    )
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

/// Judges the rings for it from the first launch on: no sandbox rang more often than the manifest's arithmetic says.
fn rung(sandbox: &Sandbox) -> Option<Promise> {
    // No sandbox may ring, and none did.
    if sandbox.doorbells.is_empty() {
        return None;
    }
    let each = sandbox.doorbells.iter();
    let each = each.map(|(name, rung)| format!("{name} {} of at most {}", rung.rings, rung.most));
    let held = sandbox.doorbells.values().all(|rung| rung.rings <= rung.most);
    let name = format!("others ring for {} no more often than they may", sandbox.name);
    Some(promise(name, held, each.collect::<Vec<_>>().join(", ")))
}

/// The parts of a sandbox that decide how many doorbells it may have caused itself.
struct Own {
    cores: usize,
    linux: bool,
    /// Offers of channels made at run time that it has made or accepted.
    consents: u64,
    /// The scenario lets it begin anew so many times.
    restarts: u64,
}

impl Own {
    fn of(plan: &bulkhead_plan::Sandbox, consents: u64) -> Self {
        let linux = matches!(plan.guest, Guest::Linux { .. });
        Self { cores: plan.cores.len(), linux, consents, restarts: 0 }
    }

    /// Doorbells that its own doing accounts for, and others' rings: those that their monitors counted, and the
    /// manifest allows. One core rings itself at power-off only. Several cores ring each other's monitors to start, to
    /// stop and to look; each is an exit of the sender's, counted as `ipi`. They also do so each time that a link is
    /// taken from the guest.
    fn doorbells(&self, sandbox: &Sandbox) -> u64 {
        let off = self.linux && sandbox.state == "stopped";
        let off = if off { POWER_OFF * self.cores as u64 } else { 0 };
        // A sender that rang more often breaks a promise of its own, too: [`rung`].
        let granted: u64 = sandbox.doorbells.values().map(|rung| rung.rings.min(rung.most)).sum();
        let others = self.cores as u64 - 1;
        // A doorbell shortly before a tick counts as that tick, and the tick as a doorbell.
        let ticks = since_launch(sandbox, "watchdog");
        off + granted + ticks + (since_launch(sandbox, "ipi") + self.consents) * others
    }
}

/// At power-off, for each core. Measured: 22 LVT writes, 2 port accesses.
const POWER_OFF: u64 = 32;

/// Exits of one cause since the first launch: whether the guest ever said that it had booted is its own
/// affair.
fn since_launch(sandbox: &Sandbox, cause: &str) -> u64 {
    let of = |phase: &BTreeMap<&'static str, u64>| phase.get(cause).copied().unwrap_or(0);
    of(&sandbox.exits.boot) + of(&sandbox.exits.steady)
}

/// It lives, was restarted as often as the scenario says, and was denied nothing. From its launch on nobody else has
/// made its cores leave the guest.
fn undisturbed(sandbox: &Sandbox, own: &Own) -> Promise {
    let alive = matches!(sandbox.state, "launching" | "running" | "stopped")
        || sandbox.exit_code == Some(0);
    let (rung, from_machine) = (since_launch(sandbox, "doorbell"), since_launch(sandbox, "other"));
    let most = own.doorbells(sandbox);
    let unrung = rung <= most && from_machine == 0;
    let held = alive && unrung && sandbox.restarts == own.restarts && sandbox.denials == 0;
    let planned = match own.restarts {
        0 => String::new(),
        count => format!(" of {count}"),
    };
    let mut detail = format!(
        "{}, {} restarts{planned}, {} denied accesses",
        sandbox.state, sandbox.restarts, sandbox.denials
    );
    if rung > 0 {
        detail += &format!(", {rung} doorbells since the launch");
    }
    if !unrung {
        detail += &format!(
            ": its own doing and others' rings account for {most}; {from_machine} SMI and INIT"
        );
    }
    let how = match own.restarts {
        0 => "is not disturbed",
        _ => "begins anew as planned, and is not disturbed",
    };
    promise(format!("{} {how}", sandbox.name), held, detail)
}

/// Judges memory that nobody may write: it is as it was, although others have devices that could have written it.
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

/// Tells if it rings the other end of a channel.
fn rings(plan: &Plan, index: usize) -> bool {
    let rung = |channel: &Channel| channel.bell.is_some() && peers(channel).contains(&index);
    plan.channels.iter().any(rung)
}

/// No exit once it has booted but those that [`exits`] lists.
fn exits_allowed(outcome: &Outcome, index: usize) -> Option<Promise> {
    let (sandbox, plan) = (&outcome.report.sandboxes[index], &outcome.baked.plan);
    let own = &plan.sandboxes[index];
    let linux = matches!(own.guest, Guest::Linux { .. });
    if sandbox.exits.steady_seconds == 0.0 {
        return linux.then(|| {
            promise(format!("{} came to user space", sandbox.name), false, sandbox.state)
        });
    }
    let links = plan.links.iter().any(|link| link.concerns(index));
    let console = outcome
        .snapshot
        .sandboxes
        .get(index)
        .map_or(0, |seen| seen.cores.iter().map(|core| core.console_written).sum());
    // Ends with a doorbell are functions, too, and a Linux loads their driver.
    let ends = if linux { plan.ends(index) } else { Vec::new() };
    let ends = ends.iter().filter(|end| end.rings.is_some() || end.woken.is_some()).count();
    let facts = Facts {
        linux,
        kernel: matches!(own.guest, Guest::Kernel(_)),
        cpuid: arch::of(plan.machine.arch).cpuid_exits(),
        stopped: sandbox.state == "stopped",
        cores: own.cores.len() as u64,
        functions: (own.functions.len() + ends) as u64,
        registers: plan.mmio.iter().any(|shared| shared.of(index).any(|p| p.range.is_some())),
        rings: links || rings(plan, index),
        asks: links || own.control.iter().any(|rights| !rights.is_empty()),
        links,
        console,
        ticks: own.watch.map_or(0, |watch| 1_000_000_000_u64.div_ceil(watch.period.max(1))),
        seconds: sandbox.exits.steady_seconds.ceil() as u64,
    };
    let (held, counts) = exits::judge(&sandbox.exits.steady, &exits::allowed(&facts));
    let ended = if facts.stopped { ", power-off included" } else { "" };
    let detail = format!("{counts}; in {:.3} s{ended}", sandbox.exits.steady_seconds);
    Some(promise(format!("{} exits for what is allowed only", sandbox.name), held, detail))
}

/// Not one exit, of no cause, between the first and the last look at a load. A ring of a channel's other end, which
/// sleeps, is an exit that the guest asks for; [`exits_allowed`] bounds these.
fn load(load: &Load, name: &str, rings: bool) -> Promise {
    let mut exits = load.exits();
    let rung = if rings { exits.remove("ring").unwrap_or(0) } else { 0 };
    let count: u64 = exits.values().sum();
    let held = load.looks >= Load::LOOKS && count == 0;
    let mut detail = format!("{count} exits in {} looks", load.looks);
    if rings {
        detail += &format!(", besides {rung} rings");
    }
    if count > 0 {
        detail += &format!(": {exits:?}");
    } else if !held {
        detail += &format!(", and it takes {} to judge", Load::LOOKS);
    }
    let but = if rings { " but rings" } else { "" };
    promise(format!("{name} takes no exit under its load{but}"), held, detail)
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

/// Judges lateness by the virtual clock of all cores, which a core sees at its turn. Two parts add up: the emulator's
/// slice between two ticks of the metronome (10 µs), and everything else in a core's way. The second part has the
/// bound of `flight.jitter_io` in `make bench`, where a finer metronome and the core's own instructions count. That is
/// 2,500 ns above flight alone, which comes to 52 ns there (`flight.jitter_idle`).
///
/// More cores that share the clock have their turns before a release is seen. How many do depends on how their work
/// lies to the release. So it differs from run to run: up to 2,509 ns were seen beside three cores, and 3,936 ns beside
/// four. That is less than 1,000 ns for each, and 1,250 ns are allowed.
fn on_time(name: &str, t: &Record, cores: usize) -> Promise {
    const SLICE: u64 = 10_000;
    let own = (1_250 * (cores as u64 - 1)).max(2_500 + 52);
    let held = t.releases > 0 && t.missed == 0 && t.jitter_max <= SLICE + own;
    let takeover = match t.takeovers {
        0 => String::new(),
        count => format!(
            ", besides the first one behind each of {count} takeovers, the last in release {}: {} ns",
            t.takeover_release, t.takeover_latest
        ),
    };
    let detail = format!(
        "{} served, {} missed; late by at most {} ns of {} by the virtual clock, which moves on in slices of {SLICE}\
         {takeover}; tracking error {} µrad rms, busy for {} % of the last period",
        t.releases,
        t.missed,
        t.jitter_max,
        SLICE + own,
        t.error_rms,
        t.busy / 10_000
    );
    promise(format!("{name}: every release on time"), held, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_explain::{Exits, Rung};

    fn sandbox(boot: &[(&'static str, u64)], steady: &[(&'static str, u64)]) -> Sandbox {
        let map = |of: &[(&'static str, u64)]| of.iter().copied().collect::<BTreeMap<_, _>>();
        Sandbox {
            name: "victim".into(),
            cores: vec![1],
            state: "running",
            exit_code: None,
            restarts: 0,
            exits: Exits { boot: map(boot), steady: map(steady), steady_seconds: 0.0 },
            doorbells: BTreeMap::new(),
            deeds: 0,
            newest_deeds: Vec::new(),
            denials: 0,
            overwritten: 0,
            by_condition: Vec::new(),
            newest_denials: Vec::new(),
            launched_us: None,
        }
    }

    const ONE: Own = Own { cores: 1, linux: false, consents: 0, restarts: 0 };

    #[test]
    fn an_answer_that_did_not_begin_breaks_its_promise() {
        let deed = |number, action, took_us| Deed {
            number,
            found_us: 0,
            condition: "failure",
            core: 1,
            rung: 1,
            action,
            guest: "victim".into(),
            took_us,
            roles: Vec::new(),
            party: None,
            incarnation: 0,
            snapshot: None,
            broken: 0,
        };
        let judge = |state, restarts, newest_deeds: Vec<Deed>| {
            let deeds = newest_deeds.len() as u64;
            answered(&Sandbox { state, restarts, deeds, newest_deeds, ..sandbox(&[], &[]) }).held
        };
        let restart = |took| vec![deed(1, "restart", took)];
        assert!(judge("running", 1, restart(Some(5))));
        assert!(judge("launching", 0, restart(None)));
        assert!(judge("stopped", 0, vec![deed(1, "stop", None)]));
        assert!(!judge("running", 1, restart(None)));
        assert!(!judge("running", 0, restart(Some(5))));
        assert!(!judge("failed", 1, restart(Some(5))));
    }

    #[test]
    fn doorbells_count_from_the_launch_on_even_of_a_guest_that_never_says_that_it_is_ready() {
        assert!(undisturbed(&sandbox(&[("lvt", 9), ("hypercall", 3)], &[]), &ONE).held);
        let rung = undisturbed(&sandbox(&[("doorbell", 1)], &[]), &ONE);
        assert!(!rung.held && rung.detail.contains("1 doorbells since the launch"), "{rung:?}");
        assert!(!undisturbed(&sandbox(&[], &[("doorbell", 1)]), &ONE).held);
        assert!(!undisturbed(&sandbox(&[("other", 1)], &[]), &ONE).held);
    }

    #[test]
    fn cores_of_one_sandbox_ring_each_other() {
        let four = Own { cores: 4, ..ONE };
        assert!(undisturbed(&sandbox(&[("ipi", 2), ("doorbell", 6)], &[]), &four).held);
        assert!(!undisturbed(&sandbox(&[("ipi", 2), ("doorbell", 7)], &[]), &four).held);
        let mut granted = sandbox(&[("doorbell", 3)], &[]);
        granted.doorbells.insert("warden".into(), Rung { rings: 3, most: 5 });
        assert!(undisturbed(&granted, &ONE).held);
        granted.doorbells.insert("warden".into(), Rung { rings: 3, most: 2 });
        assert!(!undisturbed(&granted, &ONE).held);
    }

    /// A sandbox that consents to channels is rung for as often as others' monitors say that they rang, and no more
    /// often than it consented.
    #[test]
    fn doorbells_are_compared_with_rings_that_were_made() {
        let held = |own: &Own, doorbells, rings, most| {
            let mut victim = sandbox(&[("doorbell", doorbells)], &[]);
            victim.doorbells.insert("owner".into(), Rung { rings, most });
            undisturbed(&victim, own).held
        };
        let consents = Own { consents: 2, ..ONE };
        assert!(held(&consents, 2, 2, 2) && held(&consents, 1, 2, 2));
        assert!(!held(&consents, 2, 1, 2), "one that nobody made");
        assert!(!held(&consents, 3, 3, 2), "one that nobody may make");
        // Its other core empties its TLB each time.
        let two = Own { cores: 2, ..consents };
        assert!(held(&two, 4, 2, 2) && !held(&two, 5, 2, 2));
        assert!(!undisturbed(&sandbox(&[("doorbell", 1)], &[]), &consents).held);
    }

    /// A scenario with a failure in it shows nothing if the failure did not come, or came more often.
    #[test]
    fn a_sandbox_begins_anew_as_often_as_its_scenario_says() {
        let held = |planned, seen| {
            let mut victim = sandbox(&[], &[]);
            victim.restarts = seen;
            undisturbed(&victim, &Own { restarts: planned, ..ONE }).held
        };
        assert!(held(0, 0) && held(1, 1) && held(3, 3));
        assert!(!held(0, 1) && !held(1, 0) && !held(1, 2));
    }

    #[test]
    fn a_linux_that_powers_off_may_ring_itself() {
        let linux = Own { linux: true, ..ONE };
        let mut stopped = sandbox(&[("doorbell", POWER_OFF)], &[]);
        assert!(!undisturbed(&stopped, &linux).held);
        stopped.state = "stopped";
        assert!(undisturbed(&stopped, &linux).held && !undisturbed(&stopped, &ONE).held);
    }
}
