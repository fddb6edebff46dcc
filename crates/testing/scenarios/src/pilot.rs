//! A flight controller as a role: one sandbox has it, and another one stands by with the inputs of the last releases.
//!
//! Its channels are mailboxes: `sensors` from the vehicle is each holder's own. `motors` to the vehicle and the pages
//! `kept` are the role's, `controls`. Behind each output the holder leaves its state in `kept`. The next holder goes on
//! from there, by way of the inputs that it has seen meanwhile.
//!
//! Arguments: with `way=WAY` it fails after `after=N` releases with the role (default: never). It does so before the
//! output, behind it, or in the midst of the state, in turn. `way=early` touches the role's memory without having it.

mod kept;

use bulkhead_channel_memory::guest::Guest;
use bulkhead_channel_memory::typed::{Reader, Writer};
use bulkhead_flight::copies::{self, COPIES_NS, Drive, Input, PERIOD_NS, Sensed, State, VOTED};
use bulkhead_guest::role::Holder;
use bulkhead_voter::{Newest, Releases};
use core::sync::atomic::AtomicU64;
use kept::Kept;

/// Releases until the guest declares itself ready.
const READY: u64 = 4;
/// Inputs that a holder remembers.
const INPUTS: usize = 32;
/// When who stands by looks whether it has to give this release's output, in nanoseconds from its beginning.
const SECOND_NS: u64 = 450_000;

/// A pilot's place: a bare guest, or a program of a kernel.
pub trait Seat {
    /// Its guest.
    type Guest: Guest + Holder;
    /// Returns the guest.
    fn guest(&self) -> &Self::Guest;
    /// Reads the counter of the clock.
    fn counter(&self) -> u64;
    /// Converts nanoseconds to ticks of the counter.
    fn ticks(&self, nanos: u64) -> u64;
    /// Sleeps until the counter has come to a tick.
    fn sleep_until_tick(&self, tick: u64);
    /// Says that it goes on, to the watchdog.
    fn kick(&self);
    /// Returns pages of a channel.
    fn pages(&self, name: &str) -> Option<&'static [AtomicU64]>;
    /// Fails in a way, or gives the role away. Returns the exit code to end with, where that is the way. The turn
    /// chooses among several ways.
    fn fail(&self, way: &'static str, turn: u64) -> u32;
}

/// The inputs of the last releases.
struct Inputs([Option<(u64, Input)>; INPUTS]);

impl Inputs {
    fn put(&mut self, release: u64, input: Input) {
        self.0[release as usize % INPUTS] = Some((release, input));
    }

    fn of(&self, release: u64) -> Option<Input> {
        self.0[release as usize % INPUTS].filter(|(of, _)| *of == release).map(|(_, input)| input)
    }
}

/// Things that a sandbox has with the role.
struct Held {
    epoch: u64,
    motors: Writer<'static, Drive>,
    kept: Kept,
    /// Release behind which the state is; 0: before the first one.
    at: u64,
    state: State,
    /// Releases so far.
    served: u64,
}

impl Held {
    fn open(seat: &impl Seat, epoch: u64) -> Option<Self> {
        let motors = Writer::open(&seat.guest().pairs("motors").next()?).ok()?;
        let kept = Kept(seat.pages("kept")?);
        let (at, state) = kept.newest().unwrap_or_else(|| (0, copies::fresh()));
        seat.guest().say(format_args!("takes over in epoch {epoch}, from release {at}"));
        Some(Self { epoch, motors, kept, at, state, served: 0 })
    }

    /// Brings the state up to a release by inputs of those between, and returns the motors' command.
    fn step(&mut self, release: u64, inputs: &Inputs) -> Option<[u64; 2]> {
        let first = if self.at == 0 { release } else { self.at + 1 };
        let mut motors = None;
        for at in first..=release {
            // A release without input has no state of its own.
            let Some(input) = inputs.of(at) else { continue };
            let (made, state) = copies::step(&self.state, &input);
            (motors, self.state) = (Some(made).filter(|_| at == release), state);
        }
        self.at = release;
        motors
    }
}

/// A failure to come.
struct Planned {
    way: Option<&'static str>,
    after: u64,
}

impl Planned {
    fn of(seat: &impl Seat) -> Self {
        let after = seat.guest().number("after").unwrap_or(u64::MAX);
        Self { way: seat.guest().arg("way"), after }
    }

    /// Fails in this place of a release if its time has come.
    fn at(&self, seat: &impl Seat, place: u64, held: &Held) -> Option<u32> {
        let way = self.way?;
        // Two holders come to each way and place in turn. A program does not know its sandbox' lives.
        let turn = (held.epoch - 1) / 2;
        let due = held.served == self.after && turn % 3 == place;
        due.then(|| seat.fail(way, turn))
    }
}

/// Flies; the exit code.
pub fn pilot(seat: &impl Seat) -> u32 {
    let sensors = seat.guest().pairs("sensors").next();
    let sensors = sensors.and_then(|pair| Reader::<Sensed>::open(&pair).ok());
    let (Some(mut sensors), Some(role)) = (sensors, seat.guest().role("controls")) else {
        seat.guest().say(format_args!("it lacks a channel or its role"));
        return 2;
    };
    let planned = Planned::of(seat);
    seat.guest().say(format_args!("life {}", seat.guest().life()));
    if planned.way == Some("early") && role.epoch().is_none() {
        let kept = seat.pages("kept").map(Kept);
        let release = kept.and_then(|kept| kept.newest()).map(|at| at.0);
        seat.guest().say(format_args!("reads release {release:?}"));
    }
    let releases = Releases::new(seat.ticks(PERIOD_NS));
    let [offset, second] = [COPIES_NS, SECOND_NS].map(|nanos| seat.ticks(nanos));
    let (mut sensed, mut inputs) = (Newest::default(), Inputs([None; INPUTS]));
    let (mut held, mut seen): (Option<Held>, u64) = (None, 0);
    loop {
        let release = releases.next(seat.counter(), offset);
        let begins = releases.begins(release);
        seat.sleep_until_tick(begins + offset);
        seat.kick();
        sensed.look(|| sensors.read_newer());
        let input = sensed.state().filter(|sensed: &Sensed| sensed.release == release);
        if let Some(Sensed { input, .. }) = input {
            inputs.put(release, input);
        }
        if role.epoch().is_none() {
            // The holder may fail in this very release.
            seat.sleep_until_tick(begins + second);
        }
        if let Some(epoch) = role.epoch() {
            if held.as_ref().is_none_or(|held| held.epoch != epoch) {
                held = Held::open(seat, epoch);
            }
            let Some(held) = &mut held else {
                seat.guest().say(format_args!("its role lacks a channel"));
                return 3;
            };
            if let Some(code) = serve(seat, held, release, &inputs, &planned) {
                return code;
            }
        }
        seen += 1;
        if seen == READY {
            seat.guest().ready();
        }
    }
}

/// Gives a release its output, and keeps the state behind it. Returns the exit code of a failure.
fn serve(
    seat: &impl Seat,
    held: &mut Held,
    release: u64,
    inputs: &Inputs,
    planned: &Planned,
) -> Option<u32> {
    held.served += 1;
    let motors = held.step(release, inputs);
    if let Some(code) = planned.at(seat, 0, held) {
        return Some(code);
    }
    let motors = motors?;
    // It decides alone, as if all had voted so. A mailbox never refuses.
    let _ = held.motors.write(&Drive { release, from: VOTED, motors });
    if let Some(code) = planned.at(seat, 1, held) {
        return Some(code);
    }
    held.kept.begin(release);
    if let Some(code) = planned.at(seat, 2, held) {
        return Some(code);
    }
    held.kept.put(release, &held.state);
    None
}
