//! The attitude loop: once a millisecond from the estimate to motor commands. It measures its own releases and
//! publishes telemetry to the channel `telemetry`, if there is one.
//!
//! It waits for no program of less importance: where `mission` has written no setpoint in time, the last one stays.
//! Bits of the notification `land` end the flight.
//!
//! If its flight is a role ([`flight_programs::kept`]), it flies while its sandbox has that. Without it the program
//! looks for it once a millisecond, and goes on where the last holder ended.
//!
//! Arguments: `log=debug` has its times on the console, too, at the end. With `fails=N` it fails on purpose, once,
//! behind N releases: an exception in the midst of the next one.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_flight::books::{Books, Times};
use bulkhead_flight::control::{Command, Controller};
use bulkhead_flight::math::{Quat, Vec3};
use bulkhead_flight::profile::Setpoint;
use bulkhead_flight::words::{self, Trajectory};
use bulkhead_flight::{PERIOD, Sample};
use bulkhead_program::layout::telemetry;
use bulkhead_program::role::Role;
use bulkhead_program::{
    Endpoint, Memory, Message, Notification, Periodic, Program, Woken, mark, marker, now, ready,
    sleep_until, stop,
};
use flight_programs::kept::{CHANNEL, Kept, Part, ROLE};
use flight_programs::{DIVIDER, PERIOD_NS, airframe, estimator, recorder};

bulkhead_program::entry!(control);

/// From start to the first release.
const LEAD_NS: u64 = 2_000_000;
/// Releases until the controller declares its sandbox ready.
const BOOT_RELEASES: u64 = 100;
/// When it looks whether it has to take over, in nanoseconds from the beginning of a release. A holder that is well is
/// done with that release.
const LOOK_NS: u64 = 500_000;
/// When releases of a role begin, in nanoseconds from a whole millisecond of the clock. Other guests' timers come at
/// whole ones. In virtual time all cores share the clock, and would be in each other's way then.
const PHASE_NS: u64 = 300_000;
/// The epoch in which a failure is planned: the first holder's.
const FIRST: u64 = 1;

/// The controller, the servers that it calls, and its books.
struct Pilot {
    estimator: Endpoint,
    airframe: Endpoint,
    mission: Notification,
    trajectory: Trajectory<'static>,
    recorder: Memory,
    recorded: Option<Notification>,
    telemetry: Option<Memory>,
    kept: Option<Kept>,
    controller: Controller,
    setpoint: Setpoint,
    /// When the first release was due.
    start: u64,
    step: u32,
    /// Steps without a setpoint of their own.
    held: u64,
    books: Books,
    /// It has gone on for another one, and has served no release so far.
    takes_over: bool,
    /// Number of releases behind which it fails.
    fails: Option<u64>,
}

/// Words of [`Part::Control`].
const STATE: usize = 14;

impl Pilot {
    fn new(program: Program) -> Self {
        let telemetry = program.find_memory(CHANNEL).filter(|page| page.writable);
        Self {
            estimator: program.endpoint("estimator"),
            airframe: program.endpoint("airframe"),
            mission: program.signals("mission"),
            trajectory: Trajectory(program.memory("trajectory").words()),
            recorder: program.memory("recorder"),
            recorded: program.find_signals("recorded"),
            telemetry,
            kept: Kept::find(program),
            controller: Controller::default(),
            setpoint: Setpoint::default(),
            start: 0,
            step: 0,
            held: 0,
            books: Books::new(0, PERIOD_NS),
            takes_over: false,
            fails: None,
        }
    }

    /// Begins a flight, or goes on with that of another sandbox. Returns when the next release is due.
    fn begin(&mut self) -> u64 {
        // The first segment of the trajectory is there before the first release.
        if let Some((kept, step)) = self.kept.and_then(|kept| Some((kept, kept.newest()?))) {
            self.resume(kept, step);
            self.mission.signal();
            let served = self.books.record.releases + self.books.record.missed;
            return self.start + served * PERIOD_NS;
        }
        if let Some(page) = self.telemetry {
            telemetry::begin(page.words());
        }
        self.mission.signal();
        self.start = now() + LEAD_NS;
        if self.kept.is_some() {
            // Those that stand by know the releases by the clock alone.
            self.start = self.start.next_multiple_of(PERIOD_NS) + PHASE_NS;
        }
        self.start
    }

    /// Goes on behind a step of another sandbox, with the servers.
    fn resume(&mut self, kept: Kept, step: u32) {
        let record = self.telemetry.and_then(|page| telemetry::read(page.words()));
        let [start, held, low, high, a, b, c, d, rest @ ..] =
            kept.get::<STATE>(step, Part::Control);
        let [e, f, g, h, i, j] = rest;
        (self.start, self.held, self.step) = (start, held, step + 1);
        self.setpoint =
            Setpoint { attitude: words::to_attitude([a, b]), rates: words::to_vector([c, d]) };
        self.controller = [[e, f], [g, h], [i, j]].map(words::to_vector).into();
        self.books = Books::resumed(record.unwrap_or_default(), [low, high]);
        self.takes_over = true;
        recorder::resume(self.recorder.words(), self.step.into());
        let behind = [u64::from(step)];
        let estimate = self.estimator.call(Message::new(estimator::RESUME, &behind));
        let world = self.airframe.call(Message::new(airframe::RESUME, &behind));
        estimate.and(world).expect("a flight to go on with");
    }

    /// Its part of the state behind a step.
    fn keep(&self, kept: Kept, step: u32) {
        let [low, high] = self.books.words();
        let ([a, b], [c, d]) =
            (words::attitude(self.setpoint.attitude), words::vector(self.setpoint.rates));
        let [[e, f], [g, h], [i, j]] = <[Vec3; 3]>::from(&self.controller).map(words::vector);
        let state: [u64; STATE] = [self.start, self.held, low, high, a, b, c, d, e, f, g, h, i, j];
        kept.put(step, Part::Control, &state);
    }

    /// A millisecond of flight.
    fn step(&mut self) -> Sample {
        let (attitude, rates) = self.estimate();
        self.setpoint = self.trajectory.get(self.step).unwrap_or_else(|| {
            self.held += 1;
            Setpoint { rates: Vec3::ZERO, ..self.setpoint }
        });
        let command = self.controller.update(&self.setpoint, attitude, rates, PERIOD);
        let truth = self.fly(command);
        self.step = self.step.wrapping_add(1);
        if self.step % DIVIDER == 0 {
            self.mission.signal();
            self.recorded.iter().for_each(|logger| logger.signal());
        }
        Sample::new(&self.setpoint, (attitude, rates), truth, command)
    }

    fn estimate(&self) -> (Quat, Vec3) {
        let answer = self.estimator.call(Message::new(estimator::UPDATE, &[u64::from(self.step)]));
        let [a, b, c, d] = answer.expect("an estimate").words;
        (words::to_attitude([a, b]), words::to_vector([c, d]))
    }

    fn fly(&self, command: Command) -> Quat {
        let [a, b] = words::motors(command.motors);
        let message = Message::new(airframe::FLY, &[a, b, self.step.into()]);
        let [a, b, ..] = self.airframe.call(message).expect("a flight").words;
        words::to_attitude([a, b])
    }

    /// Serves a release that was due at a time, after so many that were missed.
    fn serve(&mut self, due: u64, missed: u64) {
        let began = now();
        let late = began.saturating_sub(due);
        mark!(marker::VALUE | marker::id::FLIGHT_JITTER, late);
        mark!(marker::BEGIN | marker::id::FLIGHT_RELEASE);
        match core::mem::take(&mut self.takes_over) {
            true => self.books.took_over(missed, late),
            false => self.books.released(missed, late),
        }
        let step = self.step;
        if let Some(kept) = self.kept {
            kept.begin(step);
        }
        let sample = self.step();
        if self.fails.is_some_and(|releases| self.books.record.releases > releases) {
            log::warn!("fails on purpose in release {}", self.books.record.releases);
            stop();
        }
        self.books.enter(&sample, now() - self.start);
        if let Some(kept) = self.kept {
            self.keep(kept, step);
            kept.end(step);
        }
        if let Some(page) = &self.telemetry {
            telemetry::publish(page.words(), &self.books.record);
        }
        recorder::put(self.recorder.words(), self.books.record.error, late);
        mark!(marker::END | marker::id::FLIGHT_RELEASE);
        self.books.account(now() - began);
        if self.books.record.releases == BOOT_RELEASES {
            ready();
            mark!(marker::EVENT | marker::id::START);
        }
    }
}

fn control(program: Program) -> u32 {
    program.log();
    let mut pilot = Pilot::new(program);
    let telemetry = if pilot.telemetry.is_some() { "on" } else { "off" };
    log::info!("1 kHz, telemetry {telemetry}");
    let land = program.waits("land");
    if let Some(role) = Role::find(program, ROLE) {
        let epoch = role.epoch().unwrap_or_else(|| stand_by(role, land));
        pilot.fails = program.number("fails").filter(|_| epoch == FIRST);
    }
    let first = pilot.begin();
    if pilot.takes_over {
        log::info!("takes over in release {}", pilot.books.record.releases + 1);
    }
    let mut releases = Periodic::new(land, first, PERIOD_NS);
    while let Ok(Woken::Release { due, missed }) = releases.wait() {
        pilot.serve(due, missed);
    }
    mark!(marker::EVENT | marker::id::FINISH);
    log::info!("{}", pilot.books);
    log::info!("{} steps without a setpoint of their own", pilot.held);
    log::debug!("{}", Times(&pilot.books));
    0
}

/// Waits for the role: looks once in each release. Returns the epoch.
fn stand_by(role: Role, pause: Notification) -> u64 {
    log::info!("stands by");
    ready();
    loop {
        let offset = PHASE_NS + LOOK_NS;
        let release = (now() + 1).saturating_sub(offset).next_multiple_of(PERIOD_NS);
        // Nothing lands a flight that is another sandbox'.
        let _ = sleep_until(pause, release + offset);
        if let Some(epoch) = role.epoch() {
            return epoch;
        }
    }
}
