//! The report of a run (`docs/report.md`).

use crate::dma::{self, Blocked, blocked};
use crate::explain::{Explained, explain, fold};
use crate::snapshot::{Core, SandboxSnapshot, Snapshot};
use crate::x86::ARCH;
use bulkhead_image::Baked;
use bulkhead_layout::ladder::Rung as LadderRung;
use bulkhead_layout::report::{self, ACTION_NAMES, CAUSE_NAMES, CONDITION_NAMES, Denial, State};
use bulkhead_plan::{self as plan, Plan};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Version of the report's form.
pub const VERSION: u32 = 1;

/// Something that was promised, and whether it held.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Promise {
    /// Name of the promise.
    pub name: String,
    /// The promise held.
    pub held: bool,
    /// The figures behind it.
    pub detail: String,
}

/// Exits by cause, before and after the guest had booted.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Exits {
    /// Until then.
    pub boot: BTreeMap<&'static str, u64>,
    /// From then on.
    pub steady: BTreeMap<&'static str, u64>,
    /// How long that is; 0 if it has not booted.
    pub steady_seconds: f64,
}

/// Doorbells of one sandbox's monitor to another one's.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Rung {
    /// Doorbells that it rang, since the first launch.
    pub rings: u64,
    /// Most that its rights, and the other's consents, allow in that time.
    pub most: u64,
}

/// A sandbox.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Sandbox {
    /// Its name.
    pub name: String,
    /// Its cores, by the machine's numbers.
    pub cores: Vec<usize>,
    /// Its state at the end.
    pub state: &'static str,
    /// Exit code of a guest that ended.
    pub exit_code: Option<u32>,
    /// Launches after the first.
    pub restarts: u64,
    /// Microseconds from the machine's boot until its last life began; null if it has none.
    pub launched_us: Option<u64>,
    /// Its exits.
    pub exits: Exits,
    /// Doorbells by sender: all that may ring and all that did.
    pub doorbells: BTreeMap<String, Rung>,
    /// Answers of its ladders to failures, since the first launch.
    pub deeds: u64,
    /// The last 16 of them.
    pub newest_deeds: Vec<Deed>,
    /// Denied accesses.
    pub denials: u64,
    /// Denied accesses with records that later ones have overwritten.
    pub overwritten: u64,
    /// All denied accesses by the condition that refused, each with the first ever. The record of the first stays.
    pub by_condition: Vec<Refused>,
    /// Denied accesses with records that are there, explained: the first of the last life, the newest, the first ever
    /// by each condition. Repeats are taken together.
    pub newest_denials: Vec<Explained>,
}

/// Name of a warm restart.
const WARM: &str = ACTION_NAMES[LadderRung::WARM as usize];
/// Name of a failover.
pub const FAILOVER: &str = ACTION_NAMES[LadderRung::FAILOVER as usize];
/// Name of the deed of whoever takes over.
pub const TOOK: &str = ACTION_NAMES[LadderRung::TOOK as usize];

/// An answer of a ladder to a failure.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Deed {
    /// Its number, from 1.
    pub number: u64,
    /// Microseconds from the machine's boot until the monitor heard of the failure.
    pub found_us: u64,
    /// The condition of the failure.
    pub condition: &'static str,
    /// The core that found it, by the machine's number.
    pub core: usize,
    /// The rung of the ladder, from 1.
    pub rung: u8,
    /// Its action.
    pub action: &'static str,
    /// The guest that ran then: an alternative's name, or the sandbox's.
    pub guest: String,
    /// Generation of the snapshot that a warm restart offered; null: none, as no whole one was there.
    pub snapshot: Option<u64>,
    /// Snapshots that such a restart found and that were not whole.
    pub broken: u32,
    /// Roles that went to another sandbox, or came from it.
    pub roles: Vec<String>,
    /// The sandbox that the first of them went to, or came from.
    pub party: Option<String>,
    /// Microseconds until that guest's first instruction; null if it does not run, or not yet.
    pub took_us: Option<u64>,
    /// Incarnation of the sandbox that failed.
    pub incarnation: u32,
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, condition, core, rung, action, found_us, .. } = self;
        let (roles, party) = (self.roles.join(", "), self.party.as_deref().unwrap_or("nobody"));
        if *action == TOOK {
            write!(f, "{number}. {action} {roles} from {party} at {found_us} us")?;
            return match self.took_us {
                Some(0) | None => Ok(()),
                Some(took) => write!(f, ", {} began {took} us later", self.guest),
            };
        }
        write!(f, "{number}. {condition} on core {core} at {found_us} us: {action} (rung {rung})")?;
        match (self.snapshot, self.action == WARM) {
            (Some(generation), _) => write!(f, ", from snapshot {generation}")?,
            (None, true) => f.write_str(", without a snapshot")?,
            _ => {}
        }
        match self.broken {
            0 => {}
            1 => f.write_str(", 1 was not whole")?,
            several => write!(f, ", {several} were not whole")?,
        }
        match (*action == FAILOVER, self.roles.is_empty()) {
            (true, true) => f.write_str(", and no holder could take over")?,
            (true, false) => write!(f, ", {roles} to {party}")?,
            _ => {}
        }
        match self.took_us {
            Some(took) => write!(f, ", {} began {took} us later", self.guest),
            None => Ok(()),
        }
    }
}

/// Refusals of a sandbox by one condition.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Refused {
    /// The condition.
    pub condition: &'static str,
    /// Accesses, over all cores and lives.
    pub count: u64,
    /// The first of them; null if it was being written.
    pub first: Option<Explained>,
}

/// Sizes of the privileged code, after the launch and before.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Monitor {
    /// Text of one monitor.
    pub resident_text_bytes: u64,
    /// All pages that one monitor (the largest) maps for itself.
    pub resident_bytes: u64,
    /// Boot text, data and stack.
    pub boot_bytes: u64,
}

/// The boot.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Boot {
    /// Ticks from the image's entry until the boot code is left by its last core, without waiting and filling
    /// memory. In deterministic virtual time they are an upper bound of its instructions, because cores that are in
    /// their monitors already count too.
    pub instructions: u64,
    /// From entry to the last launch, everything included.
    pub to_launch_us: u64,
    /// Part of it: INIT delays and the measurement of the clocks.
    pub waiting_us: u64,
    /// Part of it: zeroing and copying of guests' memory, summed over sandboxes.
    pub copying_us: u64,
}

/// A rule of the audit.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct AuditRule {
    /// Id of the guarantee that it checks.
    pub name: &'static str,
    /// Its sentence.
    pub sentence: &'static str,
    /// Differences from it.
    pub findings: usize,
}

/// The audit of the running machine.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Audit {
    /// All rules.
    pub rules: Vec<AuditRule>,
    /// Each difference, with the manifest's line.
    pub findings: Vec<String>,
    /// Page tables that were read.
    pub tables: usize,
}

/// A channel's telemetry at the end: words of its sender about itself.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Telemetry {
    /// The channel.
    pub channel: String,
    /// Nominal period.
    pub period_ns: u64,
    /// Releases that it served.
    pub releases: u64,
    /// Releases that it served after their period.
    pub missed: u64,
    /// Most by which a release was served late.
    pub latest_ns: u64,
}

/// A run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// The system's name.
    pub system: String,
    /// The architecture.
    pub arch: &'static str,
    /// Promises.
    pub promises: Vec<Promise>,
    /// Its sandboxes.
    pub sandboxes: Vec<Sandbox>,
    /// Accesses that the IOMMU has blocked and logged, oldest first.
    pub blocked_dma: Vec<Blocked>,
    /// The log is full: the IOMMU blocks on, and logs no more.
    pub blocked_dma_full: bool,
    /// Sizes.
    pub monitor: Monitor,
    /// The boot; absent if it did not come to a launch.
    pub boot: Option<Boot>,
    /// The manifest's path, as the command was given it; null if there is no file.
    pub manifest: Option<String>,
    /// Microseconds from the machine's boot to the last look at it.
    pub end_us: u64,
    /// Telemetry of channels that hold some.
    pub telemetry: Vec<Telemetry>,
    /// The audit at the end; null if there was none.
    pub audit: Option<Audit>,
}

/// A report without promises yet.
#[must_use]
pub fn report(
    baked: &Baked,
    snapshot: &Snapshot,
    first_launches: &[(u64, u64)],
    now: u64,
) -> Report {
    let hz = snapshot.boot.map_or(0, |b| b.hz).max(1);
    let sandboxes = baked.plan.sandboxes.iter().enumerate();
    let sandboxes = sandboxes.map(|(i, _)| sandbox(baked, snapshot, i, hz, now)).collect();
    Report {
        version: VERSION,
        system: baked.plan.system.clone(),
        arch: ARCH,
        promises: Vec::new(),
        sandboxes,
        blocked_dma: snapshot.events.iter().map(|event| blocked(&baked.plan, *event)).collect(),
        blocked_dma_full: dma::is_full(&snapshot.events, baked.map.events),
        monitor: monitor(baked),
        boot: boot(snapshot, first_launches, hz),
        manifest: None,
        end_us: nanoseconds(snapshot, now, hz) / 1_000,
        telemetry: Vec::new(),
        audit: None,
    }
}

fn sandbox(baked: &Baked, snapshot: &Snapshot, index: usize, hz: u64, now: u64) -> Sandbox {
    let plan = &baked.plan.sandboxes[index];
    let Some(seen) = snapshot.sandboxes.get(index) else {
        return Sandbox {
            name: plan.name.clone(),
            cores: plan.cores.clone(),
            state: "absent",
            exit_code: None,
            restarts: 0,
            launched_us: None,
            exits: Exits::default(),
            doorbells: BTreeMap::new(),
            deeds: 0,
            newest_deeds: Vec::new(),
            denials: 0,
            overwritten: 0,
            by_condition: Vec::new(),
            newest_denials: Vec::new(),
        };
    };
    let kept = seen.cores.iter().enumerate();
    let kept = kept.flat_map(|(c, core)| core.kept.iter().map(move |d| (c, d)));
    let explained = |core, denial: &Denial| {
        let at_us = snapshot.boot.map(|_| nanoseconds(snapshot, denial.ticks, hz) / 1_000);
        Explained { at_us, ..explain(&baked.plan, index, core, denial) }
    };
    let launched = seen.report.launch_ticks;
    Sandbox {
        name: plan.name.clone(),
        cores: plan.cores.clone(),
        state: state(seen.state),
        exit_code: (seen.state == State::Exited).then_some(seen.report.exit_code),
        restarts: seen.report.restarts,
        launched_us: (launched != 0).then(|| nanoseconds(snapshot, launched, hz) / 1_000),
        exits: exits(&seen.cores, hz, now),
        doorbells: doorbells(&baked.plan, index, seen, nanoseconds(snapshot, now, hz)),
        deeds: seen.report.deeds_done,
        newest_deeds: deeds(&baked.plan, plan, seen, snapshot, hz),
        denials: seen.denials(),
        overwritten: seen.overwritten(),
        by_condition: refused(&seen.cores, |core, denial| Some(explained(core, denial))),
        newest_denials: fold(kept.map(|(core, denial)| explained(core, denial))),
    }
}

/// Answers of a sandbox's ladders with records that are whole.
fn deeds(
    system: &Plan,
    plan: &plan::Sandbox,
    seen: &SandboxSnapshot,
    snapshot: &Snapshot,
    hz: u64,
) -> Vec<Deed> {
    let name = |guest: u16| {
        let other = plan.alternatives.get(usize::from(guest).wrapping_sub(1));
        other.map_or(&plan.name, |other| &other.name).clone()
    };
    let us = |ticks: u64| (u128::from(ticks) * 1_000_000 / u128::from(hz)) as u64;
    // Numbers of names are a guest's monitor's words, and still not to be trusted.
    let word = |names: &[&'static str], number: usize| names.get(number).copied().unwrap_or("?");
    let mut kept: Vec<_> = seen.report.deeds.iter().filter(|deed| deed.seq != 0).collect();
    kept.sort_by_key(|deed| deed.seq);
    let deed = |deed: &report::Deed| Deed {
        number: deed.seq,
        found_us: nanoseconds(snapshot, deed.found, hz) / 1_000,
        condition: word(&CONDITION_NAMES, deed.condition.into()),
        core: plan.cores.get(usize::from(deed.core)).copied().unwrap_or_default(),
        rung: deed.rung.saturating_add(1),
        action: word(&ACTION_NAMES, deed.action.into()),
        guest: name(deed.guest),
        snapshot: (deed.snapshot != 0).then_some(deed.snapshot),
        broken: deed.broken,
        roles: { system.roles.iter().enumerate() }
            .filter(|(n, _)| deed.roles >> n & 1 != 0)
            .map(|(_, role)| role.name.clone())
            .collect(),
        party: { system.sandboxes.get(deed.party as usize) }
            .filter(|_| deed.roles != 0)
            .map(|party| party.name.clone()),
        took_us: (deed.begun != 0).then(|| us(deed.begun.saturating_sub(deed.found))),
        incarnation: deed.incarnation,
    };
    kept.into_iter().map(deed).collect()
}

/// Time since the machine's boot.
fn nanoseconds(snapshot: &Snapshot, now: u64, hz: u64) -> u64 {
    let ticks = now.saturating_sub(snapshot.boot.map_or(0, |boot| boot.entry_ticks));
    (u128::from(ticks) * 1_000_000_000 / u128::from(hz)) as u64
}

/// Doorbells for a sandbox in so many nanoseconds by sender, and how many are allowed. Those from within the sandbox
/// itself are left out.
fn doorbells(
    plan: &Plan,
    index: usize,
    seen: &SandboxSnapshot,
    window: u64,
) -> BTreeMap<String, Rung> {
    let consents: u64 = seen.cores.iter().map(|core| core.consents).sum();
    let mut allowed = vec![0; plan.sandboxes.len()];
    for rings in plan.rings(index, window) {
        // A sandbox that gives a role rings once, and each role can be on its way.
        let took = seen.report.took + plan.roles_of(index).count() as u64;
        let when = |is: bool, rings: u64| if is { rings } else { 0 };
        allowed[rings.sender] =
            rings.timed + when(rings.consented, consents) + when(rings.roles, took);
    }
    let rung = seen.rung.iter().copied().chain(std::iter::repeat(0));
    let all = plan.sandboxes.iter().zip(allowed).zip(rung).enumerate();
    let others = all.filter(|(sender, ((_, most), rings))| *sender != index && most + rings > 0);
    others.map(|(_, ((s, most), rings))| (s.name.clone(), Rung { rings, most })).collect()
}

/// Refusals on a sandbox's cores by condition, explained by `explain` from a core's number
/// and a record.
#[must_use]
pub fn refused(
    cores: &[Core],
    explain: impl Fn(usize, &Denial) -> Option<Explained>,
) -> Vec<Refused> {
    let of = |(n, condition): (usize, &'static str)| {
        let tallies = || cores.iter().map(|core| &core.tallies[n]).enumerate();
        let count = tallies().map(|(_, tally)| tally.count).sum();
        let firsts = tallies().filter(|(_, tally)| tally.first.seq != 0);
        let first = firsts.min_by_key(|(_, tally)| tally.first.ticks);
        let first = first.and_then(|(core, tally)| explain(core, &tally.first));
        Refused { condition, count, first }
    };
    CONDITION_NAMES.into_iter().enumerate().map(of).filter(|all| all.count > 0).collect()
}

/// Exits of a sandbox's cores until now.
#[must_use]
pub fn exits(cores: &[Core], hz: u64, now: u64) -> Exits {
    let mut exits = Exits::default();
    for (cause, name) in CAUSE_NAMES.into_iter().enumerate() {
        let (mut boot, mut steady) = (0, 0);
        for core in cores {
            let before =
                if core.steady_ticks != 0 { core.boot_exits[cause] } else { core.exits[cause] };
            boot += before;
            steady += core.exits[cause].saturating_sub(before);
        }
        if boot > 0 {
            exits.boot.insert(name, boot);
        }
        if steady > 0 {
            exits.steady.insert(name, steady);
        }
    }
    let since = cores.iter().map(|c| c.steady_ticks);
    if let Some(since) = since.filter(|&ticks| ticks != 0).min() {
        exits.steady_seconds = now.saturating_sub(since) as f64 / hz as f64;
    }
    exits
}

/// A state's name.
#[must_use]
pub fn state(state: State) -> &'static str {
    match state {
        State::Absent => "absent",
        State::Launching => "launching",
        State::Running => "running",
        State::Stopped => "stopped",
        State::Exited => "exited",
        State::Failed => "failed",
    }
}

fn monitor(baked: &Baked) -> Monitor {
    let owners = 0..baked.plan.sandboxes.len();
    let mapped = |owner| {
        let own = baked.map.parts.iter().filter(move |p| p.owner == Some(owner) && p.mapped);
        own.filter(|p| p.what != "pristine guest").map(|p| p.len).sum::<u64>()
    };
    Monitor {
        resident_text_bytes: baked.map.text_bytes,
        resident_bytes: owners.map(mapped).max().unwrap_or(0),
        boot_bytes: baked.map.boot_bytes,
    }
}

/// `first_launches`: for each sandbox that started with the machine, ticks
/// of playing its record and the clock at its launch.
fn boot(snapshot: &Snapshot, first_launches: &[(u64, u64)], hz: u64) -> Option<Boot> {
    let boot = snapshot.boot?;
    let last = first_launches.iter().map(|l| l.1).max()?;
    let copying = boot.played + first_launches.iter().map(|l| l.0).sum::<u64>();
    let total = last.saturating_sub(boot.entry_ticks);
    let us = |ticks: u64| ticks.saturating_mul(1_000) / (hz / 1_000).max(1);
    let beside = boot.waited + boot.played;
    Some(Boot {
        instructions: boot.left_ticks.saturating_sub(boot.entry_ticks).saturating_sub(beside),
        to_launch_us: us(total),
        waiting_us: us(boot.waited),
        copying_us: us(copying),
    })
}
