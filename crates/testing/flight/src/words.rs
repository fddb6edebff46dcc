//! The words that the parts of a flight controller exchange when they are programs of their own, in messages and shared
//! memory.

use crate::airframe::Sensors;
use crate::math::{Quat, Vec3};
use crate::profile::Setpoint;
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// Two numbers in a word.
const fn pair(low: f32, high: f32) -> u64 {
    low.to_bits() as u64 | (high.to_bits() as u64) << 32
}

/// The two numbers of a word.
const fn split(word: u64) -> (f32, f32) {
    (f32::from_bits(word as u32), f32::from_bits((word >> 32) as u32))
}

/// An attitude in two words.
#[must_use]
pub fn attitude(q: Quat) -> [u64; 2] {
    [pair(q.w, q.v.x), pair(q.v.y, q.v.z)]
}

/// The attitude of two words.
#[must_use]
pub fn to_attitude(words: [u64; 2]) -> Quat {
    let ((w, x), (y, z)) = (split(words[0]), split(words[1]));
    Quat { w, v: Vec3::new(x, y, z) }
}

/// A vector in two words.
#[must_use]
pub fn vector(v: Vec3) -> [u64; 2] {
    [pair(v.x, v.y), pair(v.z, 0.0)]
}

/// The vector of two words.
#[must_use]
pub fn to_vector(words: [u64; 2]) -> Vec3 {
    let ((x, y), (z, _)) = (split(words[0]), split(words[1]));
    Vec3::new(x, y, z)
}

/// Motor commands in two words.
#[must_use]
pub fn motors(motors: [f32; 4]) -> [u64; 2] {
    [pair(motors[0], motors[1]), pair(motors[2], motors[3])]
}

/// The four numbers of two words.
#[must_use]
pub fn numbers(words: [u64; 2]) -> [f32; 4] {
    let ((a, b), (c, d)) = (split(words[0]), split(words[1]));
    [a, b, c, d]
}

/// The motor commands of two words; a value that no motor can reach is none.
#[must_use]
pub fn to_motors(words: [u64; 2]) -> [f32; 4] {
    // Not a number is not above 0 either.
    numbers(words).map(|m| if m > 0.0 { m.min(1.0) } else { 0.0 })
}

/// Words of [`write_sensors`].
pub const SENSOR_WORDS: usize = 6;

/// The sensor values in words.
#[must_use]
pub fn sensors(sensors: &Sensors) -> [u64; SENSOR_WORDS] {
    let [[a, b], [c, d], [e, f]] = [sensors.rates, sensors.force, sensors.field].map(vector);
    [a, b, c, d, e, f]
}

/// The sensor values of words.
#[must_use]
pub fn to_sensors(words: [u64; SENSOR_WORDS]) -> Sensors {
    let [a, b, c, d, e, f] = words;
    let [rates, force, field] = [[a, b], [c, d], [e, f]].map(to_vector);
    Sensors { rates, force, field }
}

/// Writes the sensor values. No reader may look meanwhile: readers are called afterwards.
pub fn write_sensors(words: &[AtomicU64], values: &Sensors) {
    for (place, word) in words.iter().zip(sensors(values)) {
        place.store(word, Ordering::Relaxed);
    }
}

/// Reads the sensor values; from fewer than [`SENSOR_WORDS`] words zeros.
#[must_use]
pub fn read_sensors(words: &[AtomicU64]) -> Sensors {
    let at = |n: usize| words.get(n).map_or(0, |word| word.load(Ordering::Relaxed));
    to_sensors(core::array::from_fn(at))
}

/// Setpoints that a [`Trajectory`] holds.
pub const AHEAD: u32 = 64;
const WORDS: usize = 5;

/// Setpoints of steps to come, in memory that one program writes and another one reads: a ring. A reader is never kept
/// waiting, and gets nothing where there is nothing yet.
#[derive(Clone, Copy, Debug)]
pub struct Trajectory<'a>(pub &'a [AtomicU64]);

impl Trajectory<'_> {
    /// Bytes of memory.
    pub const BYTES: usize = AHEAD as usize * WORDS * 8;

    fn place(&self, step: u32) -> Option<&[AtomicU64]> {
        let first = (step % AHEAD) as usize * WORDS;
        self.0.get(first..first + WORDS)
    }

    /// Numbers begin at 1: memory begins as zeros.
    const fn number(step: u32) -> u64 {
        step as u64 + 1
    }

    /// Writes the setpoint of a step.
    pub fn put(&self, step: u32, setpoint: &Setpoint) {
        let Some([number, rest @ ..]) = self.place(step) else { return };
        number.store(0, Ordering::Relaxed);
        // It is seen as invalid before any of its new words is.
        fence(Ordering::Release);
        let all = [attitude(setpoint.attitude), vector(setpoint.rates)];
        for (place, word) in rest.iter().zip(all.as_flattened()) {
            place.store(*word, Ordering::Relaxed);
        }
        number.store(Self::number(step), Ordering::Release);
    }

    /// The setpoint of a step, if it has been written.
    #[must_use]
    pub fn get(&self, step: u32) -> Option<Setpoint> {
        let [number, rest @ ..] = self.place(step)? else { return None };
        if number.load(Ordering::Acquire) != Self::number(step) {
            return None;
        }
        let mut words = [0; 4];
        for (word, place) in words.iter_mut().zip(rest) {
            *word = place.load(Ordering::Relaxed);
        }
        fence(Ordering::Acquire);
        let [a, b, c, d] = words;
        let setpoint = Setpoint { attitude: to_attitude([a, b]), rates: to_vector([c, d]) };
        (number.load(Ordering::Relaxed) == Self::number(step)).then_some(setpoint)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::profile;
    use std::vec::Vec;

    fn memory(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn what_is_said_is_understood() {
        let q = Quat { w: 0.5, v: Vec3::new(-0.1, 0.2, 1e-9) };
        assert_eq!(to_attitude(attitude(q)), q);
        let v = Vec3::new(1.0, -2.5, f32::MIN_POSITIVE);
        assert_eq!(to_vector(vector(v)), v);
        assert_eq!(to_motors(motors([0.1, 0.2, 0.3, 1.0])), [0.1, 0.2, 0.3, 1.0]);
        assert_eq!(to_motors(motors([f32::NAN, -1.0, 2.0, f32::INFINITY])), [0.0, 0.0, 1.0, 1.0]);
    }

    #[test]
    fn sensors_pass_through_memory() {
        let all = memory(SENSOR_WORDS);
        let [rates, force, field] = [1.0, 2.0, 3.0].map(|n| Vec3::new(n, n + 0.25, n + 0.5));
        write_sensors(&all, &Sensors { rates, force, field });
        let read = read_sensors(&all);
        assert_eq!((read.rates, read.force, read.field), (rates, force, field));
        write_sensors(&all[..3], &Sensors::default());
        assert_eq!(read_sensors(&all[..3]).field, Vec3::ZERO);
    }

    #[test]
    fn a_trajectory_has_what_was_written_last_and_nothing_else() {
        let all = memory(Trajectory::BYTES / 8);
        let trajectory = Trajectory(&all);
        assert!(trajectory.get(0).is_none());
        for step in 0..200 {
            trajectory.put(step, &profile::at(step));
            for other in 0..=step {
                let found = trajectory.get(other).map(|s| s.attitude);
                let wanted = (other + AHEAD > step).then(|| profile::at(other).attitude);
                assert_eq!(found, wanted, "{other} of {step}");
            }
        }
        assert!(Trajectory(&all[..8]).get(199).is_none());
        Trajectory(&all[..3]).put(0, &profile::at(0));
    }
}
