//! The world that a controller flies in: the vehicle, the weather, and the sensors' values.

use crate::PERIOD;
use crate::airframe::{Airframe, Sensors};
use crate::math::Quat;
use crate::noise::Noise;

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
