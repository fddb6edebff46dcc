//! Where to point, 50 times a second: writes the next setpoints ahead of `control`, and compares where the
//! vehicle points with where it should.
//!
//! Arguments: `seconds=N` lands after so long; without it the flight never ends.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_flight::link::{self, Trajectory};
use bulkhead_flight::profile;
use bulkhead_program::{Message, Program};
use flight_programs::{DIVIDER, estimator, recorder};

bulkhead_program::entry!(mission);

/// Further off than this is worth a line, rad.
const OFF_COURSE: f32 = 0.3;

fn mission(program: Program) -> u32 {
    program.log();
    let end = program.number("seconds").map(|seconds| seconds * 1_000);
    let (next, land) = (program.waits("mission"), program.signals("land"));
    let estimator = program.endpoint("estimator");
    let trajectory = Trajectory(program.memory("trajectory").words());
    let recorder = program.memory("recorder").words();
    while next.wait().is_ok() {
        // The one that `control` waits for. Counted signals would not do: two can be one, and whoever begins anew
        // has not seen the first ones.
        let step = recorder::count(recorder) as u32;
        for ahead in step..step + 2 * DIVIDER {
            if trajectory.get(ahead).is_none() {
                trajectory.put(ahead, &profile::at(ahead));
            }
        }
        if end.is_some_and(|end| u64::from(step) >= end) {
            land.signal();
        }
        let answer = estimator.call(Message::new(estimator::WHERE, &[]));
        let Ok([a, b, ..]) = answer.map(|answer| answer.words) else { continue };
        let error = link::to_attitude([a, b]).angle_to(profile::at(step).attitude);
        if error > OFF_COURSE {
            log::warn!("off course by {} mrad", (error * 1e3) as u32);
        }
    }
    0
}
