//! The attitudes that the demonstration flies: slow swings in roll, pitch and yaw. Their periods have no common
//! multiple soon.

use crate::PERIOD;
use crate::math::{Quat, Vec3};
use core::f32::consts::TAU;

/// Where to point and how fast that moves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setpoint {
    /// Attitude.
    pub attitude: Quat,
    /// Its body rates, fed forward.
    pub rates: Vec3,
}

/// Amplitude in radians, period in milliseconds, of roll, pitch, yaw.
const SWINGS: [(f32, u32); 3] = [(0.26, 4_100), (0.21, 5_300), (0.50, 17_000)];

/// Angle and rate of one swing. The phase is counted in whole milliseconds, so
/// that it stays exact for days.
fn swing((amplitude, period): (f32, u32), step: u32) -> (f32, f32) {
    let phase = (step % period) as f32 * (TAU / period as f32);
    let rate = TAU / (period as f32 * PERIOD);
    (amplitude * libm::sinf(phase), amplitude * rate * libm::cosf(phase))
}

/// The setpoint of a step.
#[must_use]
pub fn at(step: u32) -> Setpoint {
    let [(roll, p), (pitch, q), (yaw, r)] = SWINGS.map(|s| swing(s, step));
    let (sr, cr) = (libm::sinf(roll), libm::cosf(roll));
    let (sp, cp) = (libm::sinf(pitch), libm::cosf(pitch));
    Setpoint {
        attitude: Quat::from_euler(roll, pitch, yaw),
        // Euler rates to body rates.
        rates: Vec3::new(p - r * sp, q * cr + r * sr * cp, r * cr * cp - q * sr),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_the_derivative_of_the_attitude() {
        for step in [0, 1234, 20_000] {
            let (a, b) = (at(step), at(step + 1));
            let rate = a.attitude.to(b.attitude).scale(1.0 / PERIOD);
            assert!(rate.minus(a.rates).norm() < 0.01, "{rate:?} {:?}", a.rates);
        }
    }
}
