//! Votes on the outputs of copies, drives the motors by a majority, and lets those begin anew that it outvoted.
//!
//! A channel with a name that begins with `claim-` is a copy's, and the rest of the name is its sandbox's. The voter
//! looks at all of them once in a release, at a fixed instant. It waits for no copy, and takes as long whatever they
//! do. A release without the sensors' values, which copies cannot answer, blames none.
#![cfg_attr(target_os = "none", no_std)]

use bulkhead_flight::copies::{
    Agreed, Drive, HELD, Made, PERIOD_NS, SAFE, Sensed, State, VOTE_NS, VOTED, Value, hover,
};
use bulkhead_sdk::hypercall::{self, CONTROL_RESTART, OK};
use bulkhead_sdk::typed::{Pair, Reader, Writer};
use bulkhead_sdk::{Context, println, text, time, watchdog, window};
use bulkhead_voter::{
    Agreement, Claim, Finding, Newest, News, Output, Patient, Releases, Sight, Voter,
};

/// Beginning of the name of a copy's channel.
const PREFIX: &str = "claim-";
/// Releases for which the last majority is held: 20 ms, in which no vehicle of this size turns over.
const HOLD: u32 = 20;
/// Releases that a copy has to come up and agree.
const GRACE: u64 = 8;

/// A copy, as its voter sees it.
struct Seat {
    name: &'static str,
    sandbox: u32,
    claims: Reader<'static, Made>,
    newest: Newest<Made>,
    patient: Patient,
}

impl Seat {
    fn new(
        context: Context,
        name: &'static str,
        pair: &Pair<'static>,
        release: u64,
    ) -> Option<Self> {
        let mut all = context.info().names.iter();
        let sandbox = all.position(|known| text::of(known) == name)? as u32;
        let patient = Patient::new(GRACE, release, life(sandbox));
        let claims = Reader::open(pair).ok()?;
        Some(Self { name, sandbox, claims, newest: Newest::default(), patient })
    }

    fn claim(&mut self) -> Option<Claim<Value>> {
        let made = self.newest.look(|| self.claims.read_newer())?;
        Some(Claim { release: made.release, value: made.value })
    }

    /// Tells of a change once there was a majority, and lets the copy begin anew if it is time.
    fn heal(&mut self, release: u64, found: Finding, majority: bool, voted: bool) {
        let (sandbox, renewed) = (self.sandbox, self.newest.renewed());
        let sight = Sight { found, majority, renewed };
        let (news, ask) = self.patient.look(release, sight, || life(sandbox));
        match news {
            News::Nothing => {}
            _ if !voted => {}
            News::Outvoted => println!("voter: {release}: {} is {found:?}", self.name),
            News::Back(after) => {
                println!("voter: {release}: {} agrees again, {after} later", self.name);
            }
        }
        if ask {
            match hypercall::control(sandbox, CONTROL_RESTART) {
                OK => println!("voter: {release}: {} is to begin anew", self.name),
                // Too early, or it is on its way: at the next release.
                _ => self.patient.refused(),
            }
        }
    }
}

/// Restarts of a sandbox.
fn life(sandbox: u32) -> u64 {
    hypercall::status(sandbox) >> 8 & 0xFFFF_FFFF
}

/// Votes on that many copies.
struct Panel<A, const N: usize> {
    seats: [Option<Seat>; N],
    voter: Voter<Value, A, N>,
    motors: Writer<'static, Drive>,
    /// The sensors' values, as the copies have them.
    sensors: Reader<'static, Sensed>,
    newest: Newest<Sensed>,
    /// There was a majority in this life.
    voted: bool,
    /// To each copy.
    agreed: [Option<Writer<'static, Agreed>>; N],
}

impl<A: Agreement<Value>, const N: usize> Panel<A, N> {
    fn open(context: Context, agreement: A, release: u64) -> Option<Self> {
        let claims = window::all(context).filter_map(|window| {
            let name = window.name.strip_prefix(PREFIX)?;
            Seat::new(context, name, &window.pair()?, release)
        });
        let agreed = window::all(context).filter(|window| window.name == "agreed");
        let agreed = agreed.filter_map(|window| Writer::open(&window.pair()?).ok());
        let motors = window::channel(context, "motors")?.pair()?;
        let sensors = window::channel(context, "sensors")?.pair()?;
        let (seats, agreed) = (first(claims), first(agreed));
        if seats.iter().any(Option::is_none) || agreed.iter().any(Option::is_none) {
            return None;
        }
        let safe = Value { motors: hover(), ..Value::default() };
        Some(Self {
            seats,
            voter: Voter::new(agreement, safe, HOLD),
            motors: Writer::open(&motors).ok()?,
            sensors: Reader::open(&sensors).ok()?,
            newest: Newest::default(),
            voted: false,
            agreed,
        })
    }

    fn publish(&mut self, release: u64, state: State) {
        for writer in self.agreed.iter_mut().flatten() {
            // A mailbox never refuses.
            let _ = writer.write(&Agreed { release, state });
        }
    }

    /// One vote. First the motors have it, then the copies; then those are looked after that were outvoted.
    fn vote(&mut self, release: u64) -> Output {
        let mut claims = [None; N];
        for (claim, seat) in claims.iter_mut().zip(&mut self.seats) {
            *claim = seat.as_mut().and_then(Seat::claim);
        }
        let verdict = self.voter.vote(release, &claims);
        let from = match verdict.output {
            Output::Voted => VOTED,
            Output::Held => HELD,
            Output::Safe => SAFE,
        };
        let _ = self.motors.write(&Drive { release, from, motors: verdict.value.motors });
        if verdict.output == Output::Voted {
            self.publish(release, verdict.value.state);
        }
        let majority = verdict.output == Output::Voted;
        let sensed = self.newest.look(|| self.sensors.read_newer());
        let due = sensed.is_some_and(|sensed| sensed.release == release);
        for (seat, found) in self.seats.iter_mut().zip(verdict.findings) {
            if let (Some(seat), true) = (seat, due) {
                seat.heal(release, found, majority, self.voted);
            }
        }
        self.voted |= majority;
        verdict.output
    }
}

/// The first so many.
fn first<T, const N: usize>(mut from: impl Iterator<Item = T>) -> [Option<T>; N] {
    core::array::from_fn(|_| from.next())
}

/// Number of copies that have a channel to this sandbox.
fn copies(context: Context) -> usize {
    window::all(context).filter(|window| window.name.starts_with(PREFIX)).count()
}

/// Votes for ever; the exit code if it cannot.
pub fn run<A: Agreement<Value>>(context: Context, agreement: A) -> u32 {
    match copies(context) {
        2 => votes::<A, 2>(context, agreement),
        3 => votes::<A, 3>(context, agreement),
        4 => votes::<A, 4>(context, agreement),
        5 => votes::<A, 5>(context, agreement),
        n => {
            println!("voter: {n} copies are none to vote on");
            2
        }
    }
}

fn votes<A: Agreement<Value>, const N: usize>(context: Context, agreement: A) -> u32 {
    let releases = Releases::new(time::ticks(PERIOD_NS));
    let offset = time::ticks(VOTE_NS);
    let begun = releases.at(time::counter());
    let Some(mut panel) = Panel::<A, N>::open(context, agreement, begun) else {
        println!("voter: it lacks a channel");
        return 2;
    };
    println!("voter: life {}, {N} copies", context.incarnation());
    // A later life keeps silent until it knows a state, so that copies in flight keep theirs.
    if context.incarnation() == 0 {
        panel.publish(0, State::default());
    }
    let mut last = None;
    loop {
        let release = releases.next(time::counter(), offset);
        time::sleep_until(releases.begins(release) + offset);
        watchdog::kick(context);
        let output = panel.vote(release);
        if last != Some(output) {
            println!("voter: {release}: the output is {output:?}");
            if last.is_none() {
                hypercall::ready();
            }
            last = Some(output);
        }
    }
}
