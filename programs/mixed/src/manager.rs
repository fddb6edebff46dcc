//! Raises the criticality of the system from stage to stage, and reports the late workloads in the end.

use crate::work::{APPS, STAGES, Table};
use bulkhead_program::marker::{EVENT, id};
use bulkhead_program::{Error, Program, mark, now, println, ready, sleep_until};
use core::sync::atomic::Ordering;

/// Priorities by rate, in the order of the workloads.
const BY_RATE: [u8; 3] = [101, 103, 102];
/// By how much those are raised that are critical.
const RAISED: u8 = 50;
/// How long a stage takes, ns; and how long the last jobs of one may take to end before the next one begins.
const STAGE: u64 = 200_000_000;
const PAUSE: u64 = 10_000_000;

/// The system's criticality: workloads below it are not critical any more. All of them are in the first stage.
pub fn switch(program: Program, criticality: usize) -> Result<(), Error> {
    let by = program.manages("manager");
    for (n, name) in APPS.into_iter().enumerate() {
        // The first one is the most critical.
        let critical = criticality > 0 && APPS.len() - 1 - n >= criticality;
        let raised = if critical { RAISED } else { 0 };
        program.manages(name).set_priority(BY_RATE[n] + raised, 0, by)?;
    }
    Ok(())
}

pub fn manage(program: Program) -> u32 {
    ready();
    let (table, never) = (Table::of(program), program.waits("never"));
    // Else `guard` does it, when a budget has ended.
    let by_time = program.arg("switch") != Some("timeout");
    let mut next = now();
    for stage in 0..STAGES {
        if by_time || stage == 0 {
            switch(program, stage).expect("the manifest's max_priority");
        }
        table.set_stage(stage);
        next += STAGE;
        sleep_until(never, next).expect("time of its own");
        // A job that was released before counts for this stage; it must not fall into the next one's load.
        table.set_stage(STAGES);
        next += PAUSE;
        sleep_until(never, next).expect("time of its own");
    }
    report(program, table)
}

/// Only a workload that is not critical any more may be late: 0, else the sandbox's exit code says which one was.
fn report(program: Program, table: Table) -> u32 {
    let mut wrong = 0;
    for stage in 0..STAGES {
        for (n, name) in APPS.into_iter().enumerate() {
            let Some(row) = table.row(n, stage).first_chunk::<4>() else { continue };
            let [jobs, late, longest, period] = row.each_ref().map(|w| w.load(Ordering::Relaxed));
            let critical = APPS.len() - 1 - n >= stage;
            // At least so many periods lie within the stage.
            let whole = STAGE / period.max(1) - 1;
            let missed = late + whole.saturating_sub(jobs);
            mark!(
                EVENT | id::MIXED,
                (stage * APPS.len() + n) as u64
                    | jobs << 16
                    | missed << 32
                    | (longest / 1_000) << 48
            );
            if program.arg("verbose").is_some() {
                println!("{name} {stage}: {jobs} jobs, {late} late, longest {} us", longest / 1000);
            }
            let how = match missed {
                0 => "none late",
                _ => "late or not at all",
            };
            println!("stage {}: {name}: {how}", stage + 1);
            wrong += u32::from(critical && missed > 0);
        }
    }
    if program.arg("switch") == Some("timeout") {
        println!("raised {} times by ends of budgets", table.raised().load(Ordering::Relaxed));
    }
    wrong
}
