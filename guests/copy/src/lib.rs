//! A copy of a flight controller: one of several, of which a voter takes a majority.
//!
//! Its channels are mailboxes: `sensors` from the vehicle, `agreed` from the voter, and its own one to the voter. That
//! is the only channel that it may write. It looks for its input at a fixed instant of each release, and rings for
//! nobody.
#![cfg_attr(target_os = "none", no_std)]

use bulkhead_flight::copies::{self, Agreed, COPIES_NS, Made, PERIOD_NS, Sensed, State, Value};
use bulkhead_sdk::typed::{Reader, Writer};
use bulkhead_sdk::{Context, println, time, watchdog, window};
use bulkhead_voter::{Newest, Releases, Start, start};

/// Releases until the guest declares itself ready.
const READY: u64 = 4;

/// Moments at which a copy with faults does something else.
pub trait Hooks {
    /// Sleeps until the counter has reached `due`.
    fn sleep_until(&mut self, due: u64) {
        time::sleep_until(due);
    }

    /// Sees the state behind a release, where it stays until the next one.
    fn state(&mut self, _: &mut State) {}

    /// Sees the message before it is sent.
    fn made(&mut self, _: &mut Made) {}
}

/// A copy without faults.
#[derive(Clone, Copy, Debug)]
pub struct Healthy;

impl Hooks for Healthy {}

/// The ends of its channels.
struct Ends {
    sensors: Reader<'static, Sensed>,
    agreed: Reader<'static, Agreed>,
    made: Writer<'static, Made>,
}

impl Ends {
    fn open(context: Context) -> Option<Self> {
        let pair = |name| window::channel(context, name)?.pair();
        let own = window::all(context).find(|window| window.writable)?.pair()?;
        Some(Self {
            sensors: Reader::open(&pair("sensors")?).ok()?,
            agreed: Reader::open(&pair("agreed")?).ok()?,
            made: Writer::open(&own).ok()?,
        })
    }
}

/// Flies for ever.
pub fn fly(context: Context, hooks: &mut impl Hooks) -> u32 {
    let Some(mut ends) = Ends::open(context) else {
        println!("copy: it lacks a channel");
        return 2;
    };
    println!("copy: life {}", context.incarnation());
    let releases = Releases::new(time::ticks(PERIOD_NS));
    let offset = time::ticks(COPIES_NS);
    let (mut sensed, mut agreed) = (Newest::default(), Newest::default());
    let (mut own, mut served): (Option<(u64, State)>, u64) = (None, 0);
    loop {
        let release = releases.next(time::counter(), offset);
        hooks.sleep_until(releases.begins(release) + offset);
        watchdog::kick(context);
        sensed.look(|| ends.sensors.read_newer());
        agreed.look(|| ends.agreed.read_newer());
        let input = sensed.state().filter(|sensed: &Sensed| sensed.release == release);
        // Without input there is no output: the others have theirs, and give it their state next time.
        let Some(Sensed { input, .. }) = input else { continue };
        let state = begin(release, own, agreed.state());
        let (motors, state) = copies::step(&state, &input);
        let mut made = Made { release, value: Value { motors, state } };
        hooks.made(&mut made);
        // A mailbox never refuses.
        let _ = ends.made.write(&made);
        let (_, state) = own.insert((release, state));
        hooks.state(state);
        served += 1;
        if served == READY {
            bulkhead_sdk::hypercall::ready();
        }
    }
}

/// The state that a release begins with.
fn begin(release: u64, own: Option<(u64, State)>, agreed: Option<Agreed>) -> State {
    let agreed = agreed.map(|agreed| (agreed.release, agreed.state));
    match (start(release, own.map(|(of, _)| of), agreed), own) {
        (Start::Own, Some((_, state))) | (Start::Given(state), _) => state,
        _ => copies::fresh(),
    }
}
