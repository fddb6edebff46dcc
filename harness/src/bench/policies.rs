//! What policies cost that are programs: handlers of the ends of budgets, criticality, a scheduler.

use super::Found;
use super::figure::{Figure, Must};
use super::kernel::reported;
use super::system::System;
use crate::rows::Row;
use bulkhead_layout::marker::id;

/// What a timeout handler costs, from its first instruction on, in each of four ways to settle the end of a budget.
pub fn overruns() -> Found {
    let all = [
        ("only=rollback", "kernel-rollback", id::KERNEL_ROLLBACK, 5_500.0),
        ("only=emergency", "kernel-emergency", id::KERNEL_EMERGENCY, 3_500.0),
        ("only=extend", "kernel-extend", id::KERNEL_EXTEND, 800.0),
        ("only=kill", "kernel-kill", id::KERNEL_KILL, 4_000.0),
    ];
    let one = |(only, dir, which, most)| {
        let ran = System::new("kernel-overrun", dir).with("rt", only).one_core().run()?;
        Ok(reported(&ran.counts, which)?.must(Must::AtMost(most)))
    };
    all.into_iter().map(one).collect()
}

/// Most instructions for each thread of a switch of criticality.
const A_THREAD: f64 = 600.0;

/// Switches of criticality for 1 to 8 threads.
pub fn criticality() -> Found {
    let ran = System::new("kernel-criticality", "kernel-criticality").one_core().run()?;
    let all = [
        id::KERNEL_CRITICALITY_1,
        id::KERNEL_CRITICALITY_2,
        id::KERNEL_CRITICALITY_3,
        id::KERNEL_CRITICALITY_4,
        id::KERNEL_CRITICALITY_5,
        id::KERNEL_CRITICALITY_6,
        id::KERNEL_CRITICALITY_7,
        id::KERNEL_CRITICALITY_8,
    ];
    let bounded = |(n, which): (usize, &u16)| {
        Ok(reported(&ran.counts, *which)?.must(Must::AtMost(A_THREAD * (n + 1) as f64)))
    };
    all.iter().enumerate().map(bounded).collect()
}

/// How many threads a scheduler has.
const EDF: [u64; 7] = [2, 4, 8, 10, 16, 32, 64];
/// Their shortest period for each of them, us: jobs take some 80 us then, far more than to switch to them.
const A_PERIOD: u64 = 25;
/// With so many it must be fast.
const TEN: u64 = 10;

/// Decisions of a scheduler that is a program: jobs that end with their budget, and jobs that say that they have ended.
pub fn edf() -> Found {
    let modes = [("preempt", "kernel.edf_preempt"), ("coop", "kernel.edf_coop")];
    let all = EDF.iter().flat_map(|threads| modes.map(|mode| (*threads, mode)));
    all.map(|(threads, (mode, name))| {
        let shortest = A_PERIOD * threads;
        let more = format!("mode={mode} threads={threads} shortest={shortest}");
        let ran = System::new("kernel-edf", "kernel-edf").with("rt", more).one_core().run()?;
        let seen = ran.counts.value(id::KERNEL_EDF).ok_or("no thread was switched to")?;
        let row = Row::new(&format!("{name}_{threads}"), "instructions", seen.median as f64);
        let figure = match threads {
            TEN => Figure::new(row).must(Must::AtMost(2_500.0)),
            _ => Figure::new(row),
        };
        Ok(figure.note(format!("{} to {} in {} decisions", seen.min, seen.max, seen.n)))
    })
    .collect()
}
