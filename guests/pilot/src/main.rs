//! A flight controller as a role: one sandbox has it, and another one stands by with the inputs of the last releases.
//!
//! Its channels are mailboxes: `sensors` from the vehicle is each holder's own. `motors` to the vehicle and the pages
//! `kept` are the role's, `controls`. Behind each output the holder leaves its state in `kept`. The next holder goes on
//! from there, by way of the inputs that it has seen meanwhile.
//!
//! Arguments: `way=exit|memory|shutdown|hang|early|give|each` fails after `after=N` releases with the role (default:
//! never): before the output, behind it, or in the midst of the state, in turn. `early` touches the role's memory
//! without having it, `give` gives the role away.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod kept;

use bulkhead_flight::copies::{self, COPIES_NS, Drive, Input, PERIOD_NS, Sensed, State, VOTED};
use bulkhead_sdk::role::{self, Role};
use bulkhead_sdk::typed::{Reader, Writer};
use bulkhead_sdk::{Context, println, time, watchdog, window};
use bulkhead_voter::{Newest, Releases};
use fail::{fail, way};
use kept::Kept;

bulkhead_sdk::entry!(guest);

/// Releases until the guest declares itself ready.
const READY: u64 = 4;
/// Inputs that a holder remembers.
const INPUTS: usize = 32;
/// When who stands by looks whether it has to give this release's output, in nanoseconds from its beginning.
const SECOND_NS: u64 = 450_000;

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
    fn open(context: Context, epoch: u64) -> Option<Self> {
        let motors = Writer::open(&window::channel(context, "motors")?.pair()?).ok()?;
        let kept = Kept(window::channel(context, "kept")?.words());
        let (at, state) = kept.newest().unwrap_or_else(|| (0, copies::fresh()));
        println!("pilot: takes over in epoch {epoch}, from release {at}");
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
    life: u64,
}

impl Planned {
    /// Fails in this place of a release if its time has come.
    fn at(&self, place: u64, served: u64) -> Option<u32> {
        let due = self.way.is_some() && served == self.after && self.life % 3 == place;
        due.then(|| match way(self.way, self.life) {
            "give" => {
                println!("pilot: gives the role away: {:#x}", role::give());
                fail("exit")
            }
            way => fail(way),
        })
    }
}

fn guest(context: Context) -> u32 {
    let sensors = window::channel(context, "sensors").and_then(|window| window.pair());
    let sensors = sensors.and_then(|pair| Reader::<Sensed>::open(&pair).ok());
    let (Some(mut sensors), Some(role)) = (sensors, Role::find(context, "controls")) else {
        println!("pilot: it lacks a channel or its role");
        return 2;
    };
    let life = context.incarnation();
    println!("pilot: life {life}");
    if context.arg("way") == Some("early") && role.epoch().is_none() {
        let kept = window::channel(context, "kept").map(|window| Kept(window.words()));
        println!("pilot: reads release {:?}", kept.and_then(|kept| kept.newest()).map(|at| at.0));
    }
    let planned = Planned {
        way: context.arg("way"),
        after: context.arg_u64("after").unwrap_or(u64::MAX),
        life,
    };
    let releases = Releases::new(time::ticks(PERIOD_NS));
    let [offset, second] = [COPIES_NS, SECOND_NS].map(time::ticks);
    let (mut sensed, mut inputs) = (Newest::default(), Inputs([None; INPUTS]));
    let (mut held, mut seen): (Option<Held>, u64) = (None, 0);
    loop {
        let release = releases.next(time::counter(), offset);
        let begins = releases.begins(release);
        time::sleep_until(begins + offset);
        watchdog::kick(context);
        sensed.look(|| sensors.read_newer());
        let input = sensed.state().filter(|sensed: &Sensed| sensed.release == release);
        if let Some(Sensed { input, .. }) = input {
            inputs.put(release, input);
        }
        if role.epoch().is_none() {
            // The holder may fail in this very release.
            time::sleep_until(begins + second);
        }
        if let Some(epoch) = role.epoch() {
            if held.as_ref().is_none_or(|held| held.epoch != epoch) {
                held = Held::open(context, epoch);
            }
            let Some(held) = &mut held else {
                println!("pilot: its role lacks a channel");
                return 3;
            };
            if let Some(code) = serve(held, release, &inputs, &planned) {
                return code;
            }
        }
        seen += 1;
        if seen == READY {
            bulkhead_sdk::hypercall::ready();
        }
    }
}

/// Gives a release its output, and keeps the state behind it. Returns the exit code of a failure.
fn serve(held: &mut Held, release: u64, inputs: &Inputs, planned: &Planned) -> Option<u32> {
    held.served += 1;
    let motors = held.step(release, inputs);
    if let Some(code) = planned.at(0, held.served) {
        return Some(code);
    }
    let motors = motors?;
    // It decides alone, as if all had voted so. A mailbox never refuses.
    let _ = held.motors.write(&Drive { release, from: VOTED, motors });
    if let Some(code) = planned.at(1, held.served) {
        return Some(code);
    }
    held.kept.begin(release);
    if let Some(code) = planned.at(2, held.served) {
        return Some(code);
    }
    held.kept.put(release, &held.state);
    None
}
