//! The vehicle: a small X quadrotor with lagging motors, in gusty wind, and its
//! sensors.

use crate::math::{Quat, Vec3};
use crate::noise::Noise;
use crate::words::{attitude, motors, numbers, to_attitude, to_vector, vector};

/// m/s².
pub const GRAVITY: f32 = 9.81;
/// kg.
pub const MASS: f32 = 1.0;
/// Diagonal of the inertia, kg m².
pub const INERTIA: Vec3 = Vec3::new(0.009, 0.010, 0.016);
/// From the centre to a motor, m.
pub const ARM: f32 = 0.18;
/// Greatest thrust of one motor, N.
pub const MAX_THRUST: f32 = 6.0;
/// Yaw torque for a newton of thrust, m.
pub const TORQUE_PER_THRUST: f32 = 0.016;
/// Direction of the magnetic field in the world, 64 degrees downwards.
pub const FIELD: Vec3 = Vec3::new(0.438_371, 0.0, -0.898_794);

/// Time constant of a motor, s.
const MOTOR_LAG: f32 = 0.03;
/// Force for a m/s of air speed, N s/m.
const DRAG: Vec3 = Vec3::new(0.35, 0.35, 0.5);
/// Torque for a rad/s, N m s.
const TURN_DRAG: f32 = 0.004;
/// The centre of pressure lies above the centre of mass, m.
const PRESSURE: Vec3 = Vec3::new(0.0, 0.0, 0.03);
/// Deviation of the wind, m/s, and its correlation time, s.
const WIND: Vec3 = Vec3::new(2.5, 2.5, 1.0);
const WIND_TIME: f32 = 1.5;

const GYRO_NOISE: f32 = 0.004;
const GYRO_BIAS: Vec3 = Vec3::new(0.008, -0.006, 0.004);
const FORCE_NOISE: f32 = 0.15;
const FIELD_NOISE: f32 = 0.01;

/// Measurements of the sensors, in body axes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sensors {
    /// Gyroscopes, rad/s.
    pub rates: Vec3,
    /// Accelerometers: force on the vehicle without gravity, for a kilogram.
    pub force: Vec3,
    /// Magnetometer, any unit.
    pub field: Vec3,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Airframe {
    attitude: Quat,
    rates: Vec3,
    velocity: Vec3,
    wind: Vec3,
    /// Thrust of each motor, N.
    thrust: [f32; 4],
    /// Last force without gravity, body axes, N.
    force: Vec3,
}

/// Thrust and torque of the motors, which stand at front left, front right, rear
/// left, rear right.
#[must_use]
pub fn forces(thrust: &[f32; 4]) -> (f32, Vec3) {
    let [fl, fr, rl, rr] = *thrust;
    let arm = ARM * core::f32::consts::FRAC_1_SQRT_2;
    (
        fl + fr + rl + rr,
        Vec3::new(
            (fl + rl - fr - rr) * arm,
            (rl + rr - fl - fr) * arm,
            (fl + rr - fr - rl) * TORQUE_PER_THRUST,
        ),
    )
}

impl Airframe {
    /// At rest in the air, motors at hover.
    #[must_use]
    pub fn new(attitude: Quat) -> Self {
        Self {
            attitude,
            rates: Vec3::ZERO,
            velocity: Vec3::ZERO,
            wind: Vec3::ZERO,
            thrust: [MASS * GRAVITY / 4.0; 4],
            force: Vec3::new(0.0, 0.0, MASS * GRAVITY),
        }
    }

    /// All of its state, in words.
    #[must_use]
    pub fn words(&self) -> [[u64; 2]; 6] {
        let [a, b, c, d] = [self.rates, self.velocity, self.wind, self.force].map(vector);
        [attitude(self.attitude), a, b, c, d, motors(self.thrust)]
    }

    /// The vehicle of [`Self::words`].
    #[must_use]
    pub fn of(words: [[u64; 2]; 6]) -> Self {
        let [q, a, b, c, d, thrust] = words;
        let [rates, velocity, wind, force] = [a, b, c, d].map(to_vector);
        Self { attitude: to_attitude(q), rates, velocity, wind, thrust: numbers(thrust), force }
    }

    /// True attitude.
    #[must_use]
    pub fn attitude(&self) -> Quat {
        self.attitude
    }

    /// Adds to the wind at once.
    pub fn gust(&mut self, wind: Vec3) {
        self.wind = self.wind.plus(wind);
    }

    /// Measures.
    pub fn sense(&self, noise: &mut Noise) -> Sensors {
        Sensors {
            rates: self.rates.plus(GYRO_BIAS).plus(noise.vector(GYRO_NOISE)),
            force: self.force.scale(1.0 / MASS).plus(noise.vector(FORCE_NOISE)),
            field: self.attitude.inverse().rotate(FIELD).plus(noise.vector(FIELD_NOISE)),
        }
    }

    /// Moves the wind on: noise with a memory (Ornstein and Uhlenbeck's).
    pub fn weather(&mut self, noise: &mut Noise, dt: f32) {
        let strength = libm::sqrtf(2.0 * dt / WIND_TIME);
        let push = noise.vector(strength).times(WIND);
        self.wind = self.wind.scale(1.0 - dt / WIND_TIME).plus(push);
    }

    /// Moves the vehicle on.
    pub fn integrate(&mut self, motors: &[f32; 4], dt: f32) {
        for (thrust, motor) in self.thrust.iter_mut().zip(motors) {
            *thrust += (motor * MAX_THRUST - *thrust) * (dt / MOTOR_LAG);
        }
        let (thrust, torque) = forces(&self.thrust);
        let air = self.attitude.inverse().rotate(self.wind.minus(self.velocity));
        let drag = air.times(DRAG);
        self.force = drag.plus(Vec3::new(0.0, 0.0, thrust));
        let momentum = self.rates.times(INERTIA);
        let total = torque
            .plus(PRESSURE.cross(drag))
            .minus(self.rates.scale(TURN_DRAG))
            .minus(self.rates.cross(momentum));
        self.rates = self.rates.plus(total.zip(INERTIA, |t, i| t / i).scale(dt));
        let acceleration =
            self.attitude.rotate(self.force).scale(1.0 / MASS).minus(Vec3::new(0.0, 0.0, GRAVITY));
        self.velocity = self.velocity.plus(acceleration.scale(dt));
        self.attitude = self.attitude.integrate(self.rates, dt);
    }
}
