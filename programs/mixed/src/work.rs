//! A periodic workload: one job a period, with the next release as its deadline.

use bulkhead_program::{Periodic, Program, Woken, now};
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};

/// Stages.
pub const STAGES: usize = 3;
/// Workloads, the most critical one first.
pub const APPS: [&str; 3] = ["image", "codec", "sound"];

/// Shared table: the stage, and its beginning. For each workload and stage it has the number of jobs and of late ones.
/// It also has the longest time of a job from its release, ns, and the period, ns.
#[derive(Clone, Copy)]
pub struct Table(&'static [AtomicU64]);

impl Table {
    pub fn of(program: Program) -> Self {
        Self(program.memory("table").words())
    }

    pub fn stage(self) -> usize {
        self.0[0].load(Ordering::Relaxed) as usize
    }

    pub fn set_stage(self, stage: usize) {
        self.0[0].store(stage as u64, Ordering::Relaxed);
    }

    /// How often ends of budgets have raised the criticality.
    pub fn raised(self) -> &'static AtomicU64 {
        &self.0[1]
    }

    /// Jobs, late ones, longest, period.
    pub fn row(self, app: usize, stage: usize) -> &'static [AtomicU64] {
        &self.0[8 + 4 * (app * STAGES + stage)..][..4]
    }
}

/// Computes in each period; a job counts for the stage in which it begins.
pub fn run(program: Program, app: usize, compute: fn(usize, u64) -> i32) -> u32 {
    let table = Table::of(program);
    let period = program.number("period").unwrap_or(1_000) * 1_000;
    for stage in 0..STAGES {
        table.row(app, stage)[3].store(period, Ordering::Relaxed);
    }
    let mut releases = Periodic::new(program.waits("never"), now() + period, period);
    for job in 0.. {
        let Ok(Woken::Release { due, .. }) = releases.wait() else { continue };
        let stage = table.stage();
        if stage >= STAGES {
            continue;
        }
        black_box(compute(stage, black_box(job)));
        let took = now() - due;
        let [jobs, late, longest, _] = table.row(app, stage) else { continue };
        jobs.fetch_add(1, Ordering::Relaxed);
        late.fetch_add(u64::from(took > period), Ordering::Relaxed);
        longest.fetch_max(took, Ordering::Relaxed);
    }
    0
}
