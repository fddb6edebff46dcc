//! The controller as one of several copies. It is a function of the sensors' values, the setpoint and its last state.
//! Its results are the motors' commands and the next state. All of these are words, so that copies can be compared by
//! the bit.
//!
//! It has sums, products, quotients and square roots, in a fixed order, and no function of a library. IEEE 754 defines
//! each of them to the bit. So a copy in another language, by another compiler, with another floating point unit comes
//! to equal words. `guests/copy-c/law.h` is such a copy.

use crate::PERIOD;
use crate::airframe::Sensors;
use crate::control::Controller;
use crate::estimate::Estimator;
use crate::math::{Quat, Vec3};
use crate::profile::Setpoint;
use crate::words::{attitude, motors, to_attitude, to_vector, vector};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Nanoseconds of a release.
pub const PERIOD_NS: u64 = 1_000_000;
/// When copies look for their input, in nanoseconds from the beginning of a release; ...
pub const COPIES_NS: u64 = 60_000;
/// ... when the voter looks for their claims, and never before or after; ...
pub const VOTE_NS: u64 = 500_000;
/// ... and when the motors take over what drives them.
pub const MOTORS_NS: u64 = 600_000;

/// Message to each copy: the input of a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Sensed {
    /// Number of the release.
    pub release: u64,
    /// Input.
    pub input: Input,
}

/// Message of a copy: its output for a release, and its state behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Made {
    /// Number of the release.
    pub release: u64,
    /// Words that are voted on.
    pub value: Value,
}

/// Words of a copy that are voted on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Value {
    /// Motor commands.
    pub motors: [u64; 2],
    /// State.
    pub state: State,
}

/// Message of the voter to each copy: the state that a majority agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Agreed {
    /// Number of the release behind which it is; 0 before the first majority.
    pub release: u64,
    /// State.
    pub state: State,
}

/// Message of the voter to the motors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Drive {
    /// Number of the release.
    pub release: u64,
    /// One of `VOTED`, `HELD` and `SAFE`.
    pub from: u64,
    /// Motor commands.
    pub motors: [u64; 2],
}

/// Origin of a command: a majority, ...
pub const VOTED: u64 = 1;
/// ... an earlier one, ...
pub const HELD: u64 = 2;
/// ... none: all motors hover.
pub const SAFE: u64 = 3;

/// Motor commands that carry the vehicle and turn it nowhere.
#[must_use]
pub fn hover() -> [u64; 2] {
    motors(
        [crate::airframe::MASS * crate::airframe::GRAVITY / 4.0 / crate::airframe::MAX_THRUST; 4],
    )
}

/// Words of a state: attitude and bias of the estimator, the controller's three vectors.
pub const STATE: usize = 10;
/// A state.
pub type State = [u64; STATE];

/// Input of a release, for all copies alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Input {
    /// Rates, force and field of the sensors.
    pub sensors: [u64; 6],
    /// Attitude and rates of the setpoint.
    pub setpoint: [u64; 4],
}

impl Input {
    /// Makes the words of values.
    #[must_use]
    pub fn new(sensors: &Sensors, setpoint: &Setpoint) -> Self {
        let [r, f, m] = [sensors.rates, sensors.force, sensors.field].map(vector);
        let (a, s) = (attitude(setpoint.attitude), vector(setpoint.rates));
        Self { sensors: [r[0], r[1], f[0], f[1], m[0], m[1]], setpoint: [a[0], a[1], s[0], s[1]] }
    }

    fn sensors(&self) -> Sensors {
        let [r, s, f, g, m, n] = self.sensors;
        Sensors { rates: to_vector([r, s]), force: to_vector([f, g]), field: to_vector([m, n]) }
    }

    fn setpoint(&self) -> Setpoint {
        let [a, b, r, s] = self.setpoint;
        Setpoint { attitude: to_attitude([a, b]), rates: to_vector([r, s]) }
    }
}

/// The very first state: level, at rest.
#[must_use]
pub fn fresh() -> State {
    pack(&Estimator::new(Quat::IDENTITY), &Controller::default())
}

fn pack(estimator: &Estimator, controller: &Controller) -> State {
    let ([a, b], vectors) = (attitude(estimator.attitude()), <[Vec3; 3]>::from(controller));
    let [[c, d], [e, f], [g, h], [i, j]] =
        [estimator.bias(), vectors[0], vectors[1], vectors[2]].map(vector);
    [a, b, c, d, e, f, g, h, i, j]
}

fn unpack(state: &State) -> (Estimator, Controller) {
    let [a, b, c, d, e, f, g, h, i, j] = *state;
    let estimator = Estimator::resumed(to_attitude([a, b]), to_vector([c, d]));
    (estimator, [to_vector([e, f]), to_vector([g, h]), to_vector([i, j])].into())
}

/// One release: the motors' words and the next state.
#[must_use]
pub fn step(state: &State, input: &Input) -> ([u64; 2], State) {
    let (mut estimator, mut controller) = unpack(state);
    let setpoint = input.setpoint();
    estimator.update(&input.sensors(), PERIOD);
    let (at, rates) = (estimator.attitude(), estimator.rates());
    let way = at.near(setpoint.attitude);
    let command = controller.turn(way, setpoint.rates, (at, rates), PERIOD);
    (motors(command.motors), pack(&estimator, &controller))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::math::Quat;
    use crate::profile;
    use crate::words::to_motors;
    use crate::world::World;

    /// It flies, and its state is all that a next release needs: it passes through words at each.
    #[test]
    fn a_copy_flies_the_profile() {
        let mut world = World::new(1, Quat::IDENTITY);
        let (mut state, mut worst) = (fresh(), 0.0f32);
        for n in 0..20_000 {
            let setpoint = profile::at(n);
            let (motors, next) = step(&state, &Input::new(&world.sense(), &setpoint));
            state = next;
            world.fly(&to_motors(motors), 2);
            worst = worst.max(world.airframe().attitude().angle_to(setpoint.attitude));
        }
        assert!(worst < 0.100, "{worst} rad");
    }

    /// A flipped bit of the state shows in the next state or the motors, so copies that vote on both notice it.
    #[test]
    fn a_flipped_bit_shows() {
        let mut world = World::new(1, Quat::IDENTITY);
        let mut state = fresh();
        let mut input = Input::default();
        for n in 0..500 {
            input = Input::new(&world.sense(), &profile::at(n));
            let (motors, next) = step(&state, &input);
            state = next;
            world.fly(&to_motors(motors), 2);
        }
        let right = step(&state, &input);
        let (mut shown, mut all) = (0, 0);
        for word in 0..STATE {
            for bit in 0..64 {
                let mut other = state;
                other[word] ^= 1 << bit;
                // The upper half of a vector's second word has no meaning.
                let none = word % 2 == 1 && word != 1 && bit >= 32;
                all += usize::from(!none);
                shown += usize::from(step(&other, &input) != right);
                assert!(!none || step(&other, &input) == right, "word {word}, bit {bit}");
            }
        }
        // Bits that are lost in a sum's rounding heal by themselves.
        assert!(shown * 10 > all * 7, "{shown} of {all}");
    }
}
