//! Where to point, 50 times a second: writes the next setpoints ahead of `control`, and warns when the vehicle
//! points elsewhere.
//!
//! It makes no calls. The end of its budget could hold up a server that it shared with `control` in the middle of a
//! request, and `control` with it.
//!
//! Arguments: `seconds=N` lands after so long; without it the flight never ends.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_flight::profile;
use bulkhead_flight::words::Trajectory;
use bulkhead_program::Program;
use flight_programs::{DIVIDER, recorder};

bulkhead_program::entry!(mission);

/// Further off than this is worth a line, microradians.
const OFF_COURSE: u64 = 300_000;

fn mission(program: Program) -> u32 {
    program.log();
    let end = program.number("seconds").map(|seconds| seconds * 1_000);
    let (next, land) = (program.waits("mission"), program.signals("land"));
    let trajectory = Trajectory(program.memory("trajectory").words());
    let recorder = program.memory("recorder").words();
    while next.wait().is_ok() {
        // The setpoint that `control` waits for. Counted signals would not do: two can be one, and a program that
        // begins anew has not seen the first ones.
        let step = recorder::count(recorder) as u32;
        for ahead in step..step + 2 * DIVIDER {
            if trajectory.get(ahead).is_none() {
                trajectory.put(ahead, &profile::at(ahead));
            }
        }
        if end.is_some_and(|end| u64::from(step) >= end) {
            land.signal();
        }
        let (error, _) = recorder::get(recorder, u64::from(step).saturating_sub(1));
        if error > OFF_COURSE {
            log::warn!("off course by {} mrad", error / 1_000);
        }
    }
    0
}
