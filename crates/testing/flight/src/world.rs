//! The world that a controller flies in: the vehicle, the weather, and the sensors' values.

use crate::PERIOD;
use crate::airframe::{Airframe, Sensors};
use crate::math::Quat;
use crate::noise::Noise;

/// Words of [`World::words`].
pub const WORDS: usize = 13;

/// See the module.
#[derive(Clone, Debug)]
pub struct World {
    airframe: Airframe,
    noise: Noise,
}

impl World {
    /// A vehicle in the air at rest with this attitude. Equal seeds bring equal weather.
    #[must_use]
    pub fn new(seed: u64, attitude: Quat) -> Self {
        Self { airframe: Airframe::new(attitude), noise: Noise::new(seed) }
    }

    /// All of its state, in words: the vehicle and the weather.
    #[must_use]
    pub fn words(&self) -> [u64; WORDS] {
        let mut words = [self.noise.state(); WORDS];
        words[1..].copy_from_slice(self.airframe.words().as_flattened());
        words
    }

    /// The world of [`Self::words`].
    #[must_use]
    pub fn of(words: [u64; WORDS]) -> Self {
        let [noise, rest @ ..] = words;
        let pairs = core::array::from_fn(|n| [rest[2 * n], rest[2 * n + 1]]);
        Self { airframe: Airframe::of(pairs), noise: Noise::new(noise) }
    }

    /// Reads the sensors now. Measuring twice brings other noise, then and afterwards.
    pub fn sense(&mut self) -> Sensors {
        self.airframe.sense(&mut self.noise)
    }

    /// Moves on by a millisecond, in `substeps` parts (at least 1), with these motor commands, 0 to 1.
    pub fn fly(&mut self, motors: &[f32; 4], substeps: u32) {
        self.airframe.weather(&mut self.noise, PERIOD);
        let substeps = substeps.max(1);
        let dt = PERIOD / substeps as f32;
        for _ in 0..substeps {
            self.airframe.integrate(motors, dt);
        }
    }

    /// The vehicle.
    #[must_use]
    pub fn airframe(&self) -> &Airframe {
        &self.airframe
    }

    /// The vehicle, to disturb it.
    pub fn airframe_mut(&mut self) -> &mut Airframe {
        &mut self.airframe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another sandbox that goes on from the words flies on as this one would have.
    #[test]
    fn a_world_goes_on_from_its_words() {
        let mut world = World::new(7, Quat::IDENTITY);
        for n in 0..500 {
            world.fly(&[0.4, 0.41, 0.42, 0.4 + n as f32 / 1e5], 2);
            world.sense();
        }
        let mut other = World::of(world.words());
        for _ in 0..100 {
            world.fly(&[0.5; 4], 2);
            other.fly(&[0.5; 4], 2);
            let [a, b] = [world.sense(), other.sense()];
            assert_eq!([a.rates, a.force, a.field], [b.rates, b.force, b.field]);
            assert_eq!(world.words(), other.words());
        }
    }
}
