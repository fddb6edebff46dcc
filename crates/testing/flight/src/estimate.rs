//! Where are we pointing? Mahony's nonlinear complementary filter on the rotation group (IEEE TAC 53-5, 2008). It
//! integrates the gyroscopes, pulls them towards accelerometer and magnetometer, and estimates the gyroscopes' bias.
//!
//! In free flight the accelerometer feels thrust and drag, not gravity, so it says little about the attitude until drag
//! has built up. Its gain is small, and smaller the further the measured force is from 1 g. The magnetometer is
//! compared as a whole vector (the field's dip is known), which gives two axes. The error that remains is an angle
//! about the field, which heals within a minute or so.

use crate::airframe::{FIELD, GRAVITY, Sensors};
use crate::math::{Quat, Vec3};
use crate::words::{attitude, to_attitude, to_vector, vector};

const GAIN_FORCE: f32 = 0.15;
const GAIN_FIELD: f32 = 2.5;
const GAIN_BIAS: f32 = 0.02;
/// Relative deviation from 1 g at which the accelerometer is not believed at all.
const FORCE_WINDOW: f32 = 0.3;

/// See the module.
#[derive(Clone, Debug)]
pub struct Estimator {
    attitude: Quat,
    bias: Vec3,
    rates: Vec3,
}

impl Estimator {
    /// Starts from a first guess.
    #[must_use]
    pub fn new(attitude: Quat) -> Self {
        Self { attitude, bias: Vec3::ZERO, rates: Vec3::ZERO }
    }

    /// Goes on from an earlier estimate of attitude and bias.
    #[must_use]
    pub fn resumed(attitude: Quat, bias: Vec3) -> Self {
        Self { attitude, bias, rates: Vec3::ZERO }
    }

    /// All that a next step needs, in words.
    #[must_use]
    pub fn words(&self) -> [u64; 4] {
        let ([a, b], [c, d]) = (attitude(self.attitude), vector(self.bias));
        [a, b, c, d]
    }

    /// Goes on from [`Self::words`].
    #[must_use]
    pub fn of(words: [u64; 4]) -> Self {
        let [a, b, c, d] = words;
        Self::resumed(to_attitude([a, b]), to_vector([c, d]))
    }

    /// Takes a measurement in.
    pub fn update(&mut self, sensors: &Sensors, dt: f32) {
        let to_body = self.attitude.inverse();
        let up = to_body.rotate(Vec3::new(0.0, 0.0, 1.0));
        let field = to_body.rotate(FIELD);
        let weight = self.trust(sensors.force);
        let correction = sensors
            .force
            .unit()
            .cross(up)
            .scale(GAIN_FORCE * weight)
            .plus(sensors.field.unit().cross(field).scale(GAIN_FIELD));
        self.bias = self.bias.minus(correction.scale(GAIN_BIAS * dt));
        self.rates = sensors.rates.minus(self.bias);
        self.attitude = self.attitude.integrate(self.rates.plus(correction), dt);
    }

    fn trust(&self, force: Vec3) -> f32 {
        let deviation = libm::fabsf(force.norm() / GRAVITY - 1.0);
        (1.0 - deviation / FORCE_WINDOW).max(0.0)
    }

    /// Estimated attitude.
    #[must_use]
    pub fn attitude(&self) -> Quat {
        self.attitude
    }

    /// Estimated bias of the gyroscopes.
    #[must_use]
    pub fn bias(&self) -> Vec3 {
        self.bias
    }

    /// Measured body rates without their bias.
    #[must_use]
    pub fn rates(&self) -> Vec3 {
        self.rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At rest on the ground: force is gravity's reaction, and the bias shows.
    #[test]
    fn converges_and_finds_the_bias() {
        let truth = Quat::from_euler(0.2, -0.1, 1.0);
        let bias = Vec3::new(0.02, -0.01, 0.015);
        let sensors = Sensors {
            rates: bias,
            force: truth.inverse().rotate(Vec3::new(0.0, 0.0, GRAVITY)),
            field: truth.inverse().rotate(FIELD),
        };
        let mut estimator = Estimator::new(Quat::IDENTITY);
        for _ in 0..1_000_000 {
            estimator.update(&sensors, 0.001);
        }
        let error = estimator.attitude().angle_to(truth);
        assert!(error < 0.01, "{error}");
        assert!(estimator.rates().norm() < 0.005);
    }
}
