//! The attitude loop: once a millisecond from the estimate to motor commands. It measures its own releases and
//! publishes telemetry to the channel `telemetry`, if there is one.
//!
//! It waits for no program of less importance: where `mission` has written no setpoint in time, the last one stays.
//! Bits of the notification `land` end the flight.
//!
//! Arguments: `log=debug` has its times on the console, too, at the end.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_flight::books::{Books, Times};
use bulkhead_flight::control::{Command, Controller};
use bulkhead_flight::math::{Quat, Vec3};
use bulkhead_flight::profile::Setpoint;
use bulkhead_flight::words::{self, Trajectory};
use bulkhead_flight::{PERIOD, Sample};
use bulkhead_program::layout::telemetry;
use bulkhead_program::{
    Endpoint, Memory, Message, Notification, Periodic, Program, Woken, mark, marker, now, ready,
};
use flight_programs::{DIVIDER, PERIOD_NS, airframe, estimator, recorder};

bulkhead_program::entry!(control);

/// From start to the first release.
const LEAD_NS: u64 = 2_000_000;
/// Releases until the controller declares its sandbox ready.
const BOOT_RELEASES: u64 = 100;

/// The controller, the servers that it calls, and its books.
struct Pilot {
    estimator: Endpoint,
    airframe: Endpoint,
    mission: Notification,
    trajectory: Trajectory<'static>,
    recorder: Memory,
    recorded: Notification,
    telemetry: Option<Memory>,
    controller: Controller,
    setpoint: Setpoint,
    step: u32,
    /// Steps without a setpoint of their own.
    held: u64,
    books: Books,
}

impl Pilot {
    fn new(program: Program) -> Self {
        let telemetry = program.find_memory("telemetry").filter(|page| page.writable);
        if let Some(page) = telemetry {
            telemetry::begin(page.words());
        }
        Self {
            estimator: program.endpoint("estimator"),
            airframe: program.endpoint("airframe"),
            mission: program.signals("mission"),
            trajectory: Trajectory(program.memory("trajectory").words()),
            recorder: program.memory("recorder"),
            recorded: program.signals("recorded"),
            telemetry,
            controller: Controller::default(),
            setpoint: Setpoint::default(),
            step: 0,
            held: 0,
            books: Books::new(0, PERIOD_NS),
        }
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
            self.recorded.signal();
        }
        Sample::new(&self.setpoint, (attitude, rates), truth, command)
    }

    fn estimate(&self) -> (Quat, Vec3) {
        let answer = self.estimator.call(Message::new(estimator::UPDATE, &[]));
        let [a, b, c, d] = answer.expect("an estimate").words;
        (words::to_attitude([a, b]), words::to_vector([c, d]))
    }

    fn fly(&self, command: Command) -> Quat {
        let message = Message::new(airframe::FLY, &words::motors(command.motors));
        let [a, b, ..] = self.airframe.call(message).expect("a flight").words;
        words::to_attitude([a, b])
    }

    /// Serves a release that was due at a time, after so many that were missed.
    fn serve(&mut self, due: u64, missed: u64, start: u64) {
        let began = now();
        let late = began.saturating_sub(due);
        mark!(marker::VALUE | marker::id::FLIGHT_JITTER, late);
        mark!(marker::BEGIN | marker::id::FLIGHT_RELEASE);
        self.books.released(missed, late);
        let sample = self.step();
        self.books.enter(&sample, now() - start);
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
    // The first segment of the trajectory is there before the first release.
    pilot.mission.signal();
    let start = now() + LEAD_NS;
    let mut releases = Periodic::new(program.waits("land"), start, PERIOD_NS);
    while let Ok(Woken::Release { due, missed }) = releases.wait() {
        pilot.serve(due, missed, start);
    }
    mark!(marker::EVENT | marker::id::FINISH);
    log::info!("{}", pilot.books);
    log::info!("{} steps without a setpoint of their own", pilot.held);
    log::debug!("{}", Times(&pilot.books));
    0
}
