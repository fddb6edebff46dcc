//! The flight controller of the demonstration: noisy sensors, state estimation, cascaded attitude and rate control, and
//! motor mixing. An airframe with motors in gusty wind tries it. One [`Flight::step`] is one millisecond.
//!
//! Single precision everywhere, basic operations and `libm` only. So a run gives equal bits on the host and in a guest
//! without vector registers. Axes: body x forward, y left, z up; the world's z points up; attitudes turn body vectors
//! into world vectors. Units are SI and radians.
#![no_std]

pub mod airframe;
pub mod books;
pub mod control;
pub mod copies;
pub mod estimate;
pub mod math;
pub mod noise;
pub mod profile;
pub mod words;
pub mod world;

use airframe::{Airframe, Sensors};
use control::{Command, Controller};
use estimate::Estimator;
use math::{Quat, Vec3};
use profile::Setpoint;
use world::World;

/// Seconds from one step to the next.
pub const PERIOD: f32 = 0.001;

/// Results of a step, for telemetry.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Where it should point.
    pub setpoint: Setpoint,
    /// Where the controller believes that it points.
    pub estimate: Quat,
    /// Where it does.
    pub truth: Quat,
    /// Body rates as measured, bias removed.
    pub rates: Vec3,
    /// Angle between truth and setpoint.
    pub error: f32,
    /// Angle between truth and estimate.
    pub estimation_error: f32,
    /// Motor commands, 0 to 1.
    pub motors: [f32; 4],
}

/// A vehicle and its controller.
#[derive(Clone, Debug)]
pub struct Flight {
    world: World,
    estimator: Estimator,
    controller: Controller,
    command: Command,
    steps: u32,
}

impl Flight {
    /// A vehicle in the air at rest with this attitude, which its estimator
    /// knows up to `doubt` (an angle about the body's x axis).
    #[must_use]
    pub fn new(seed: u64, attitude: Quat, doubt: f32) -> Self {
        Self {
            world: World::new(seed, attitude),
            estimator: Estimator::new(attitude.mul(Quat::from_vector(Vec3::new(doubt, 0.0, 0.0)))),
            controller: Controller::default(),
            command: Command::default(),
            steps: 0,
        }
    }

    /// Sense, estimate, control: a real controller's work of each millisecond.
    pub fn control(&mut self, setpoint: &Setpoint) {
        let sensors: Sensors = self.world.sense();
        self.estimator.update(&sensors, PERIOD);
        self.command = self.controller.update(
            setpoint,
            self.estimator.attitude(),
            self.estimator.rates(),
            PERIOD,
        );
    }

    /// Moves the world on by a millisecond, in `substeps` parts.
    pub fn fly(&mut self, substeps: u32) {
        self.world.fly(&self.command.motors, substeps);
        self.steps = self.steps.wrapping_add(1);
    }

    /// One millisecond towards a given setpoint.
    pub fn step_to(&mut self, setpoint: &Setpoint, substeps: u32) -> Sample {
        self.control(setpoint);
        self.fly(substeps);
        self.sample(setpoint)
    }

    /// One millisecond of the built-in profile.
    pub fn step(&mut self, substeps: u32) -> Sample {
        let setpoint = profile::at(self.steps);
        self.step_to(&setpoint, substeps)
    }

    /// Steps so far.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// The airframe, to disturb it.
    pub fn airframe(&mut self) -> &mut Airframe {
        self.world.airframe_mut()
    }

    fn sample(&self, setpoint: &Setpoint) -> Sample {
        let truth = self.world.airframe().attitude();
        let estimate = (self.estimator.attitude(), self.estimator.rates());
        Sample::new(setpoint, estimate, truth, self.command)
    }
}

impl Sample {
    /// Makes a sample of the wanted attitude, the estimated attitude and rates, the true attitude, and the motor
    /// commands.
    #[must_use]
    pub fn new(
        setpoint: &Setpoint,
        (estimate, rates): (Quat, Vec3),
        truth: Quat,
        command: Command,
    ) -> Self {
        Self {
            setpoint: *setpoint,
            estimate,
            truth,
            rates,
            error: truth.angle_to(setpoint.attitude),
            estimation_error: truth.angle_to(estimate),
            motors: command.motors,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::println;

    const DEGREE: f32 = core::f32::consts::PI / 180.0;

    fn level() -> Setpoint {
        Setpoint::default()
    }

    #[test]
    fn stabilises_from_forty_degrees() {
        for (axis, name) in [
            (Vec3::new(1.0, 0.0, 0.0), "roll"),
            (Vec3::new(0.0, 1.0, 0.0), "pitch"),
            (Vec3::new(0.0, 0.0, 1.0), "yaw"),
            (Vec3::new(0.6, -0.8, 0.0), "mixed"),
        ] {
            let start = Quat::from_vector(axis.scale(40.0 * DEGREE));
            let mut flight = Flight::new(7, start, 2.0 * DEGREE);
            let mut worst: f32 = 0.0;
            for n in 0..6000 {
                let sample = flight.step_to(&level(), 4);
                if n >= 3000 {
                    worst = worst.max(sample.error);
                }
            }
            println!("{name}: {worst} rad");
            assert!(worst < 0.05, "{name}: {worst} rad after 3 s");
        }
    }

    #[test]
    fn tracks_the_profile() {
        let mut flight = Flight::new(1, Quat::IDENTITY, 0.0);
        let (mut squares, mut worst, mut doubt) = (0.0f64, 0.0f32, 0.0f32);
        const STEPS: u32 = 60_000;
        for _ in 0..STEPS {
            let sample = flight.step(4);
            squares += f64::from(sample.error).powi(2);
            worst = worst.max(sample.error);
            doubt = doubt.max(sample.estimation_error);
        }
        let rms = (squares / f64::from(STEPS)).sqrt();
        println!("rms {rms} worst {worst} estimate {doubt}");
        assert!(rms < 0.030, "rms {rms} rad");
        assert!(worst < 0.100, "worst {worst} rad");
    }

    #[test]
    fn rejects_a_gust() {
        let mut flight = Flight::new(3, Quat::IDENTITY, 0.0);
        let mut before: f32 = 0.0;
        for n in 0..2000 {
            let sample = flight.step_to(&level(), 4);
            if n >= 1000 {
                before = before.max(sample.error);
            }
        }
        // A squall of 12 m/s from ahead and the left, within one millisecond.
        flight.airframe().gust(Vec3::new(-10.0, -6.6, 2.0));
        let (mut peak, mut after) = (0.0f32, 0.0f32);
        for n in 0..2000 {
            let error = flight.step_to(&level(), 4).error;
            peak = peak.max(error);
            if n >= 1000 {
                after = after.max(error);
            }
        }
        println!("before {before} peak {peak} after {after}");
        assert!(peak > before, "the gust was felt");
        assert!(peak < 0.20, "peak {peak} rad");
        assert!(after < 0.05, "after {after} rad");
    }

    #[test]
    fn does_nothing_without_control() {
        // The other side of the tests above: without control it tumbles.
        let mut flight = Flight::new(3, Quat::IDENTITY, 0.0);
        let mut worst: f32 = 0.0;
        for _ in 0..5000 {
            flight.fly(4);
            worst = worst.max(flight.sample(&level()).error);
        }
        assert!(worst > 0.3, "{worst}");
    }

    /// The programs of the kernel's flight divide the work so: the flights agree to the bit.
    #[test]
    fn flies_the_same_in_parts() {
        let mut whole = Flight::new(11, Quat::IDENTITY, 0.0);
        let mut world = World::new(11, Quat::IDENTITY);
        let mut estimator = Estimator::new(Quat::IDENTITY);
        let mut controller = Controller::default();
        let mut sensors = world.sense();
        for step in 0..500 {
            estimator.update(&sensors, PERIOD);
            let estimate = (estimator.attitude(), estimator.rates());
            let setpoint = profile::at(step);
            let command = controller.update(&setpoint, estimate.0, estimate.1, PERIOD);
            world.fly(&command.motors, 3);
            let sample = Sample::new(&setpoint, estimate, world.airframe().attitude(), command);
            sensors = world.sense();
            assert_eq!(sample.error.to_bits(), whole.step(3).error.to_bits(), "{step}");
        }
    }

    #[test]
    fn repeats_bit_by_bit() {
        let run = || {
            let mut flight = Flight::new(11, Quat::IDENTITY, 0.0);
            (0..500).fold(0u32, |hash, _| hash.rotate_left(5) ^ flight.step(3).error.to_bits())
        };
        assert_eq!(run(), run());
    }
}
