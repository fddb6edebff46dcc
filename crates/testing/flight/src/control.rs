//! From an attitude to motor commands. Attitude error becomes rates (P with feed-forward), rate error becomes torques
//! (PID, derivative on the measurement, filtered). Torques and thrust go to an X quadrotor's motors.

use crate::airframe::{ARM, GRAVITY, INERTIA, MASS, MAX_THRUST, TORQUE_PER_THRUST};
use crate::math::{Quat, Vec3};
use crate::profile::Setpoint;

/// rad/s for a radian of error.
const ATTITUDE_GAIN: Vec3 = Vec3::new(9.0, 9.0, 5.0);
const RATE_LIMIT: Vec3 = Vec3::new(5.0, 5.0, 2.5);
/// rad/s² for a rad/s of error; multiplied by the inertia it is a torque.
const RATE_GAIN: Vec3 = Vec3::new(22.0, 22.0, 12.0);
const RATE_INTEGRAL: Vec3 = Vec3::new(40.0, 40.0, 15.0);
const RATE_DERIVATIVE: Vec3 = Vec3::new(0.25, 0.25, 0.0);
/// Limit of the integral part, rad/s².
const INTEGRAL_LIMIT: Vec3 = Vec3::new(60.0, 60.0, 20.0);
/// Time constant of the derivative's filter, s.
const DERIVATIVE_FILTER: f32 = 0.004;

/// Commands to the motors.
#[derive(Clone, Copy, Debug, Default)]
pub struct Command {
    /// 0 to 1: front left, front right, rear left, rear right.
    pub motors: [f32; 4],
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Controller {
    integral: Vec3,
    last_rates: Vec3,
    derivative: Vec3,
}

impl Controller {
    /// One step.
    pub fn update(&mut self, setpoint: &Setpoint, attitude: Quat, rates: Vec3, dt: f32) -> Command {
        self.turn(attitude.to(setpoint.attitude), setpoint.rates, (attitude, rates), dt)
    }

    /// One step, along a way to turn that the caller has found, with rates that are fed forward.
    #[inline(always)]
    pub fn turn(
        &mut self,
        way: Vec3,
        feed: Vec3,
        (attitude, rates): (Quat, Vec3),
        dt: f32,
    ) -> Command {
        let wanted = way.times(ATTITUDE_GAIN).plus(feed).clamp(RATE_LIMIT);
        let error = wanted.minus(rates);
        self.integral =
            self.integral.plus(error.times(RATE_INTEGRAL).scale(dt)).clamp(INTEGRAL_LIMIT);
        let slope = rates.minus(self.last_rates).scale(1.0 / dt);
        self.last_rates = rates;
        self.derivative =
            self.derivative.plus(slope.minus(self.derivative).scale(dt / (DERIVATIVE_FILTER + dt)));
        let acceleration = error
            .times(RATE_GAIN)
            .plus(self.integral)
            .minus(self.derivative.times(RATE_DERIVATIVE));
        mix(hover_thrust(attitude), acceleration.times(INERTIA))
    }
}

/// The state between two steps, in its order: integral, last rates, derivative.
impl From<&Controller> for [Vec3; 3] {
    fn from(it: &Controller) -> Self {
        [it.integral, it.last_rates, it.derivative]
    }
}

impl From<[Vec3; 3]> for Controller {
    fn from([integral, last_rates, derivative]: [Vec3; 3]) -> Self {
        Self { integral, last_rates, derivative }
    }
}

/// Thrust that carries the weight at this tilt, up to 60 degrees.
fn hover_thrust(attitude: Quat) -> f32 {
    let up = attitude.rotate(Vec3::new(0.0, 0.0, 1.0)).z;
    MASS * GRAVITY / up.max(0.5)
}

/// Shares thrust and torques among the motors. Yaw is the weakest axis and the
/// least urgent: it gives way when a motor would leave its range.
#[must_use]
pub fn mix(thrust: f32, torque: Vec3) -> Command {
    let arm = 4.0 * ARM * core::f32::consts::FRAC_1_SQRT_2;
    let base = thrust / 4.0;
    let (roll, pitch) = (torque.x / arm, torque.y / arm);
    let yaw = torque.z / (4.0 * TORQUE_PER_THRUST);
    // y points left: a torque about +x lifts the left side; about +y it
    // presses the nose down. Front left and rear right turn clockwise.
    let level =
        [base + roll - pitch, base - roll - pitch, base + roll + pitch, base - roll + pitch];
    let turn = [yaw, -yaw, -yaw, yaw];
    let room = level
        .iter()
        .zip(turn)
        .map(|(l, t)| {
            let room = if t > 0.0 { MAX_THRUST - l } else { *l };
            if libm::fabsf(t) > 1e-6 { (room / libm::fabsf(t)).clamp(0.0, 1.0) } else { 1.0 }
        })
        .fold(1.0, f32::min);
    Command {
        motors: core::array::from_fn(|n| {
            ((level[n] + turn[n] * room) / MAX_THRUST).clamp(0.0, 1.0)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::airframe::forces;

    #[test]
    fn mixing_gives_what_was_asked_for() {
        let (thrust, torque) = (9.81, Vec3::new(0.2, -0.15, 0.02));
        let command = mix(thrust, torque);
        let (t, q) = forces(&command.motors.map(|m| m * MAX_THRUST));
        assert!((t - thrust).abs() < 1e-4);
        assert!(q.minus(torque).norm() < 1e-4, "{q:?}");
    }

    #[test]
    fn yaw_gives_way_first() {
        let (thrust, torque) = (9.81, Vec3::new(0.9, 0.0, 5.0));
        let command = mix(thrust, torque);
        let (_, q) = forces(&command.motors.map(|m| m * MAX_THRUST));
        assert!((q.x - torque.x).abs() < 1e-3, "{q:?}");
        assert!(q.z < torque.z && q.z > 0.0);
    }
}
