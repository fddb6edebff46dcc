//! The cost of policies that are programs: handlers of the ends of budgets, criticality, a scheduler.

use super::Found;
use super::figure::{Figure, Must};
use super::kernel::alike;
use super::system::System;
use crate::Failure;
use crate::rows::Row;
use bulkhead_layout::marker::id;
use bulkhead_qemu::counts::Distribution;

/// Measures a timeout handler in each of four ways to settle the end of a budget, from its first instruction on. One
/// span ends when it answers, or the server is ready for its next request (the scheduling-context paper, table 4). The
/// other one ends when the server goes on.
pub fn overruns() -> Found {
    let way = |only, dir, rows: &[(u16, Option<f64>)]| -> Found {
        let system = || System::new("kernel-overrun", dir).with("rt", only).one_core();
        let (ran, alone) = (system().run()?, system().without_monitors().run()?);
        let one = |(which, most): &(u16, Option<f64>)| {
            let figure = alike(&ran.counts, &alone.counts, *which)?;
            Ok(figure.must(most.map_or(Must::Ratio(0.99, 1.01), Must::AtMostAndAlike)))
        };
        rows.iter().map(one).collect()
    };
    let ways = [
        way("only=rollback", "kernel-rollback", &[(id::KERNEL_ROLLBACK, Some(5_500.0))]),
        way(
            "only=emergency",
            "kernel-emergency",
            &[(id::KERNEL_EMERGENCY, Some(3_500.0)), (id::KERNEL_EMERGENCY_WHOLE, None)],
        ),
        way(
            "only=extend",
            "kernel-extend",
            &[(id::KERNEL_EXTEND, Some(800.0)), (id::KERNEL_EXTEND_WHOLE, None)],
        ),
        // With room of a tenth.
        way("only=kill", "kernel-kill", &[(id::KERNEL_KILL, Some(4_450.0))]),
    ];
    ways.into_iter().collect::<Result<Vec<_>, _>>().map(|ways| ways.concat())
}

/// Most instructions for each thread of a switch of criticality.
const A_THREAD: f64 = 600.0;

/// Switches of criticality for 1 to 8 threads, by a program.
pub fn criticality() -> Found {
    let system = || System::new("kernel-criticality", "kernel-criticality").one_core();
    let (ran, alone) = (system().run()?, system().without_monitors().run()?);
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
    let one = |(n, which): (usize, &u16)| {
        let most = A_THREAD * (n + 1) as f64;
        Ok(alike(&ran.counts, &alone.counts, *which)?.must(Must::AtMostAndAlike(most)))
    };
    all.iter().enumerate().map(one).collect()
}

/// The workloads of `programs/mixed`, the most critical one first, and its stages.
const WORKLOADS: [&str; 3] = ["image", "codec", "sound"];
const STAGES: usize = 3;

/// Deadlines that three workloads miss while the system's criticality rises: those of what is critical, none.
pub fn mixed() -> Found {
    let ran = System::new("../../tests/kernel/mixed", "kernel-mixed").one_core().run()?;
    let told = ran.counts.events(id::MIXED);
    let each =
        (0..STAGES).flat_map(|stage| WORKLOADS.into_iter().enumerate().map(move |w| (stage, w)));
    each.map(|(stage, (n, workload))| {
        let is = |value: u64| value & 0xFFFF == (stage * WORKLOADS.len() + n) as u64;
        let event = told.iter().find(|event| is(event.value)).ok_or("a stage without an event")?;
        let word = |shift: u32| event.value >> shift & 0xFFFF;
        let (jobs, missed, longest) = (word(16), word(32), word(48));
        let name = format!("kernel.mixed_{}_{workload}", stage + 1);
        let critical = WORKLOADS.len() - 1 - n >= stage;
        let must = if critical { Must::AtMost(0.0) } else { Must::AtLeast(1.0) };
        Ok(Figure::new(Row::new(&name, "deadlines", missed as f64))
            .must(must)
            .note(format!("missed; {jobs} jobs, the longest took {longest} us")))
    })
    .collect()
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
        let system = || System::new("kernel-edf", "kernel-edf").with("rt", &more).one_core();
        let decisions = |system: System| -> Result<Distribution, Failure> {
            let ran = system.run()?;
            Ok(ran.counts.value(id::KERNEL_EDF).ok_or("no thread was switched to")?)
        };
        let seen = decisions(system())?;
        let alone = decisions(system().without_monitors())?;
        let row = Row::new(&format!("{name}_{threads}"), "instructions", seen.median as f64);
        // When a job's budget ends depends on the clock, and with it how long a look takes.
        let must = if threads == TEN { Must::AtMost(2_500.0) } else { Must::Ratio(0.99, 1.01) };
        let figure = Figure::new(row.against(alone.median as f64)).must(must);
        Ok(figure.note(format!("{} to {} in {} decisions", seen.min, seen.max, seen.n)))
    })
    .collect()
}
