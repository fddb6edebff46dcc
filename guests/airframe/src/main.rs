//! The vehicle that redundant controllers fly, and a judge of what drives its motors.
//!
//! It gives each copy the sensors' values of a release, takes what drives the motors at a fixed instant later, and
//! flies. It knows the right command of each release, as it computes that itself. From the first command on that comes
//! of a vote, each release must have the right one.
//!
//! Arguments: `releases=N` (default 1,000) are judged; `substeps=N` (default 1) parts of a step of the world.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod judge;

use bulkhead_flight::copies::{Drive, Input, MOTORS_NS, PERIOD_NS, Sensed};
use bulkhead_flight::math::Quat;
use bulkhead_flight::profile;
use bulkhead_flight::words::to_motors;
use bulkhead_flight::world::World;
use bulkhead_sdk::guest::Guest as _;
use bulkhead_sdk::typed::{Reader, Writer};
use bulkhead_sdk::{Context, hypercall, println, time, window};
use bulkhead_voter::{MAX_COPIES, Newest, Releases};
use judge::Judge;

bulkhead_sdk::entry!(guest);

/// Same weather in every run.
const SEED: u64 = 0xF11;
/// Releases in which a first vote has to come.
const PATIENCE: u64 = 2_000;

/// The world, and the ends of its channels.
struct Vehicle {
    world: World,
    substeps: u32,
    /// To each copy and to the voter.
    sensors: [Option<Writer<'static, Sensed>>; MAX_COPIES + 1],
    drive: Reader<'static, Drive>,
    newest: Newest<Drive>,
    /// Command that the motors have.
    motors: [u64; 2],
    /// Largest error of the attitude in a judged release, radians.
    error: f32,
}

impl Vehicle {
    fn open(context: Context) -> Option<Self> {
        let mut pairs = context.pairs("sensors");
        let sensors = core::array::from_fn(|_| Writer::open(&pairs.next()?).ok());
        let drive = window::channel(context, "motors")?.pair()?;
        Some(Self {
            world: World::new(SEED, Quat::IDENTITY),
            substeps: context.arg_u64("substeps").unwrap_or(1) as u32,
            sensors,
            drive: Reader::open(&drive).ok()?,
            newest: Newest::default(),
            motors: bulkhead_flight::copies::hover(),
            error: 0.0,
        })
    }

    fn sense(&mut self, sensed: &Sensed) {
        for writer in self.sensors.iter_mut().flatten() {
            // A mailbox never refuses.
            let _ = writer.write(sensed);
        }
    }

    /// The command for a release, if it is there.
    fn driven(&mut self, release: u64) -> Option<Drive> {
        self.newest.look(|| self.drive.read_newer()).filter(|drive| drive.release == release)
    }

    fn fly(&mut self, drive: Option<Drive>, wanted: Quat) {
        self.motors = drive.map_or(self.motors, |drive| drive.motors);
        self.world.fly(&to_motors(self.motors), self.substeps);
        self.error = self.error.max(self.world.airframe().attitude().angle_to(wanted));
    }
}

fn guest(context: Context) -> u32 {
    let Some(mut vehicle) = Vehicle::open(context) else {
        println!("airframe: it lacks a channel");
        return 2;
    };
    let releases = Releases::new(time::ticks(PERIOD_NS));
    let (latest, wanted) = (time::ticks(MOTORS_NS), context.arg_u64("releases").unwrap_or(1_000));
    let mut judge = Judge::default();
    let begun = releases.next(time::counter(), 0);
    let mut release = begun;
    println!("airframe: from release {begun} on");
    while judge.judged() < wanted {
        if judge.judged() == 0 && release - begun > PATIENCE {
            println!("airframe: no vote came");
            return 3;
        }
        // While no vote has come it hovers, and the flight has not begun.
        let setpoint = profile::at(judge.judged() as u32);
        let input = Input::new(&vehicle.world.sense(), &setpoint);
        time::sleep_until(releases.begins(release));
        vehicle.sense(&Sensed { release, input });
        time::sleep_until(releases.begins(release) + latest);
        let drive = vehicle.driven(release);
        judge.judge(release, &input, drive);
        if judge.judged() == 1 {
            hypercall::ready();
        }
        vehicle.fly(drive, setpoint.attitude);
        release += 1;
        let now = releases.next(time::counter(), 0);
        if now > release {
            println!("airframe: it came too late for release {release}");
            return 4;
        }
    }
    println!("airframe: {judge}, error at most {} mrad", (vehicle.error * 1_000.0) as u32);
    0
}
