//! A machine's own account of itself at one moment.

use crate::dma;
use crate::ram::{Read, get};
use bulkhead_image::Baked;
use bulkhead_layout::image::{BOOT_MAGIC, BootReport};
use bulkhead_layout::map::BOOT_REPORT_PA;
use bulkhead_layout::monitor::Mailbox;
use bulkhead_layout::report::{
    self, ALL_CAUSES, CAUSES, CONDITIONS, CONSOLE, CoreReport, Denial, MAGIC, Report, State, Tally,
};
use bulkhead_layout::telemetry::{self, Record};
use bulkhead_untrusted::Untrusted;
use std::mem::offset_of;
use std::sync::atomic::AtomicU64;

/// One core of a sandbox.
#[derive(Clone, Debug)]
pub struct Core {
    /// Exits since the launch, by cause.
    pub exits: [u64; ALL_CAUSES],
    /// Those before the guest had booted.
    pub boot_exits: [u64; ALL_CAUSES],
    /// Clock when it had booted on this core; 0 as long as it has not.
    pub steady_ticks: u64,
    /// Denied accesses since the launch.
    pub denials: u64,
    /// Denied accesses with records that are still there, oldest first: the first ever by each condition, the first of
    /// a life, the newest.
    pub kept: Vec<Denial>,
    /// Tallies by [`report::Condition`]: how many, and the first ever.
    pub tallies: [Tally; CONDITIONS],
    /// Offers made and accepted of channels made at run time.
    pub consents: u64,
    /// Bytes ever written to its console ring.
    pub console_written: u64,
    console: Vec<u8>,
}

impl Core {
    /// Counts denied accesses with records that later ones have overwritten.
    #[must_use]
    pub fn overwritten(&self) -> u64 {
        self.denials.saturating_sub(self.kept.len() as u64)
    }

    /// Returns the console's bytes after the first `seen` ones, and how many of them are lost because the ring went
    /// round.
    #[must_use]
    pub fn console_since(&self, seen: u64) -> (Untrusted, u64) {
        let first = seen.max(self.console_written.saturating_sub(CONSOLE as u64));
        let text = (first..self.console_written).map(|n| self.console[n as usize % CONSOLE]);
        (Untrusted::new(text.collect::<Vec<_>>()), first - seen.min(first))
    }
}

/// One sandbox.
#[derive(Clone, Debug)]
pub struct SandboxSnapshot {
    /// Its state.
    pub state: State,
    /// The sandbox's part of its report.
    pub report: Report,
    /// How often each sandbox's monitor has rung this one's, as the senders' mailboxes say. Its own entry counts rings
    /// between its own cores. Empty where only a report is known.
    pub rung: Vec<u64>,
    /// Its cores.
    pub cores: Vec<Core>,
}

impl SandboxSnapshot {
    /// All denied accesses so far.
    #[must_use]
    pub fn denials(&self) -> u64 {
        self.cores.iter().map(|c| c.denials).sum()
    }

    /// Counts those with records that later ones have overwritten.
    #[must_use]
    pub fn overwritten(&self) -> u64 {
        self.cores.iter().map(Core::overwritten).sum()
    }
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The boot code's report, once there is one.
    pub boot: Option<BootReport>,
    /// By index; empty as long as the image is not loaded.
    pub sandboxes: Vec<SandboxSnapshot>,
    /// Accesses that the IOMMU has blocked and logged, oldest first.
    pub events: Vec<dma::Entry>,
}

/// Reads everything. `None`: that RAM cannot be read.
#[must_use]
pub fn snapshot(ram: &Read, baked: &Baked) -> Option<Snapshot> {
    let boot: BootReport = get(ram, BOOT_REPORT_PA)?;
    let boot = (boot.magic == BOOT_MAGIC).then_some(boot);
    let sandboxes = baked.map.reports.iter().zip(&baked.plan.sandboxes);
    let (sandboxes, events) = match boot {
        None => (Vec::new(), Vec::new()),
        Some(_) => {
            // Before the reports: no reader finds a ring and not yet the reason for it.
            let rung: Vec<Vec<u64>> = (0..baked.plan.sandboxes.len())
                .map(|to| rung(ram, &baked.map.mailboxes, to))
                .collect::<Option<_>>()?;
            let all = sandboxes.zip(rung).map(|((&pa, s), rung)| {
                Some(SandboxSnapshot { rung, ..sandbox(ram, pa, s.cores.len())? })
            });
            (all.collect::<Option<_>>()?, dma::entries(ram, baked.map.events))
        }
    };
    Some(Snapshot { boot, sandboxes, events })
}

/// Reads from each monitor's mailbox how often it has rung that of sandbox `to`.
fn rung(ram: &Read, mailboxes: &[u64], to: usize) -> Option<Vec<u64>> {
    let at = (offset_of!(Mailbox, rings) + to * size_of::<u64>()) as u64;
    mailboxes.iter().map(|mailbox| get(ram, mailbox + at)).collect()
}

/// A sandbox's report at an address, of so many cores.
#[must_use]
pub fn sandbox(ram: &Read, pa: u64, cores: usize) -> Option<SandboxSnapshot> {
    let report: Report = get(ram, pa)?;
    let state = match report.state {
        _ if report.magic != MAGIC => State::Absent,
        1 => State::Launching,
        2 => State::Running,
        3 => State::Stopped,
        4 => State::Exited,
        5 => State::Failed,
        _ => State::Absent,
    };
    let cores = (0..cores).map(|i| {
        let mut core = core(ram, pa + report::size(i))?;
        let more = report.xapic.get(i).copied().unwrap_or_default();
        core.exits.iter_mut().skip(CAUSES).zip(more).for_each(|(to, count)| *to = count);
        Some(core)
    });
    let cores = cores.collect::<Option<_>>()?;
    Some(SandboxSnapshot { state, report, cores, rung: Vec::new() })
}

fn core(ram: &Read, pa: u64) -> Option<Core> {
    let core: CoreReport = get(ram, pa)?;
    // The machine runs meanwhile: what a second look finds changed was being written.
    let again: CoreReport = get(ram, pa)?;
    let seen = records(&core).zip(records(&again));
    let mut kept: Vec<_> = seen.filter(|(a, b)| a == b && a.seq != 0).map(|(a, _)| *a).collect();
    kept.sort_by_key(|d| d.seq);
    kept.dedup_by_key(|d| d.seq);
    Some(Core {
        exits: all(core.exits),
        boot_exits: all(core.boot_exits),
        steady_ticks: core.steady_ticks,
        denials: core.denials,
        kept,
        tallies: core.tallies,
        consents: core.consents,
        console_written: core.console_written,
        console: core.console.to_vec(),
    })
}

/// Makes room for the causes that stand elsewhere.
fn all(own: [u64; CAUSES]) -> [u64; ALL_CAUSES] {
    let mut all = [0; ALL_CAUSES];
    all[..CAUSES].copy_from_slice(&own);
    all
}

/// Every place for a record.
fn records(core: &CoreReport) -> impl Iterator<Item = &Denial> {
    let firsts = core.tallies.iter().map(|tally| &tally.first);
    firsts.chain(&core.first).chain(&core.ring)
}

/// The newest record of a channel that holds telemetry. `None` when the channel
/// holds something else, or the writer was too fast for us.
#[must_use]
pub fn telemetry(ram: &Read, pa: u64) -> Option<Record> {
    let mut bytes = [0u8; telemetry::WORDS * 8];
    ram(pa, &mut bytes).then_some(())?;
    let words = bytes.chunks_exact(8);
    let words =
        words.map(|w| AtomicU64::new(w.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))));
    telemetry::read(&words.collect::<Vec<_>>())
}

impl Snapshot {
    /// The latest moment that any monitor has noted, in ticks of the clock.
    #[must_use]
    pub fn latest(&self) -> u64 {
        let stamps = self.sandboxes.iter().flat_map(|s| {
            let denials = s.cores.iter().flat_map(|c| &c.kept).map(|d| d.ticks);
            denials.chain([s.report.state_ticks])
        });
        stamps.max().unwrap_or(0)
    }
}
