//! The clock's self-test: how wrong the harness itself is.
//!
//! A bare program (harness/bare/src/bin/selftest.rs) runs a loop of known length
//! and a 1 ms timer on one core, with three others asleep and then computing.

use crate::rows::Row;
use crate::{Failure, build};
use bulkhead_layout::marker::id;
use bulkhead_qemu::counts::Distribution;
use bulkhead_qemu::{Counts, Machine, Plugin, Time};
use std::path::Path;
use std::time::Duration;

/// Instructions of the known loop, and how often it runs.
const LOOP: (u64, u64) = (3_004, 8);
/// Cores of the machine.
const CORES: u64 = 4;
/// The program lies here.
const PROGRAM: (u64, u64) = (0x100_0000, 0x200_0000);
/// A timer's handler may run this late (ns) when the other cores sleep: its own instructions.
pub const IDLE: u64 = 50;
/// Bounds while the other cores compute, for [`Time::precise`] and [`Time::virtual_time`]: the metronome's interval and
/// a quarter. Seen over 1,500 random phases: 2,141 and 8,391 (docs/decisions/0002-metronome.md).
pub const BUSY: [u64; 2] = [2_500, 12_500];
/// A run takes some 5 s on an idle host.
const LIMIT: Duration = Duration::from_secs(180);

/// Findings of a run.
struct Run {
    known: Distribution,
    idle: Distribution,
    busy: Distribution,
    counts: Counts,
}

/// Measures, and returns the rows and what is outside its bounds.
pub fn run(dir: &Path, samples: u32) -> Result<(Vec<Row>, Vec<String>), Failure> {
    let once = |name: &str, time| measure(&dir.join(name), time, samples);
    let precise = once("precise", Time::precise())?;
    let again = once("again", Time::precise())?;
    let scenario = once("scenario", Time::virtual_time())?;
    let mut faults = Vec::new();
    check_counts(&precise, &mut faults);
    if !precise.counts.same_as(&again.counts) {
        faults.push("two runs differ: see counts.json in precise/ and again/".into());
    }
    for (run, name, bound) in [(&precise, "2 us", BUSY[0]), (&scenario, "10 us", BUSY[1])] {
        late(&format!("others asleep, metronome {name}"), &run.idle, IDLE, samples, &mut faults);
        late(
            &format!("others computing, metronome {name}"),
            &run.busy,
            bound,
            samples,
            &mut faults,
        );
    }
    Ok((rows(&precise, &scenario, &again), faults))
}

fn rows(precise: &Run, scenario: &Run, again: &Run) -> Vec<Row> {
    let ns = |name: &str, value: u64| Row::new(name, "ns", value as f64);
    let differs = u8::from(!precise.counts.same_as(&again.counts));
    vec![
        Row::new("clock.loop", "instructions", precise.known.max as f64).against(LOOP.0 as f64),
        Row::new("clock.runs_differ", "0 or 1", differs.into()),
        ns("clock.timer_idle_worst", precise.idle.max),
        ns("clock.timer_busy_median", precise.busy.median),
        ns("clock.timer_busy_worst", precise.busy.max),
        ns("clock.scenario_busy_median", scenario.busy.median),
        ns("clock.scenario_busy_worst", scenario.busy.max),
    ]
}

/// The loop, the range that it lies in, and the cores.
fn check_counts(run: &Run, faults: &mut Vec<String>) {
    let Distribution { n, min, max, privileged, unmatched, .. } = run.known;
    if (n, min, max, unmatched) != (LOOP.1, LOOP.0, LOOP.0, 0) {
        let (length, times) = LOOP;
        faults.push(format!(
            "{times} loops of {length} instructions: counted {n} of {min} to {max}, {unmatched} unmatched"
        ));
    }
    // From one marker to the next, the second one included.
    let inside = (LOOP.0 + 1) * LOOP.1;
    if privileged != inside {
        faults
            .push(format!("in the program's range: {privileged} instead of {inside} instructions"));
    }
    if !run.counts.vcpus().into_iter().eq(0..CORES) {
        faults.push(format!("cores are {:?}, not 0 to 3", run.counts.vcpus()));
    }
}

fn late(what: &str, seen: &Distribution, bound: u64, samples: u32, faults: &mut Vec<String>) {
    if seen.max > bound {
        faults.push(format!("1 ms timer, {what}: {} ns late, bound {bound} ns", seen.max));
    }
    if seen.n != u64::from(samples) {
        faults.push(format!("1 ms timer, {what}: {} ticks instead of {samples}", seen.n));
    }
}

fn measure(dir: &Path, time: Time, samples: u32) -> Result<Run, Failure> {
    let mut machine = Machine::new(dir);
    machine.memory = 256 << 20;
    machine.cores = CORES as usize;
    machine.kernel = Some(build::bare("selftest")?);
    machine.append = format!("samples={samples}");
    machine.time = time;
    machine.plugin = Some(Plugin {
        library: build::plugin()?,
        ranges: vec![("program".into(), PROGRAM.0, PROGRAM.1)],
        ..Plugin::default()
    });
    let mut running = machine.start()?;
    running.wait_end("the self-test's program to end", LIMIT)?;
    let counts = running.counts()?;
    let of = |name: &str, found: Option<Distribution>| {
        found.ok_or_else(|| format!("no {name} was measured:\n{}", running.tail()))
    };
    Ok(Run {
        known: of("loop", counts.span(id::SELFTEST_LOOP))?,
        idle: of("idle timer", counts.value(id::SELFTEST_IDLE))?,
        busy: of("busy timer", counts.value(id::SELFTEST_BUSY))?,
        counts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_or_missing_tick_is_a_fault() {
        let seen = |n, max| Distribution { n, max, ..Distribution::default() };
        let faults = |distribution: &Distribution| {
            let mut faults = Vec::new();
            late("here", distribution, BUSY[0], 5, &mut faults);
            faults.len()
        };
        assert_eq!(faults(&seen(5, BUSY[0])), 0);
        assert_eq!(faults(&seen(5, BUSY[0] + 1)), 1);
        assert_eq!(faults(&seen(4, 23_000_000)), 2);
    }
}
