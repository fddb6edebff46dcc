//! The world: motors, airframe, weather and sensors, simulated, where a vehicle has drivers. A passive server:
//! its caller pays for the simulation.
//!
//! Arguments: `substeps=N` is how finely it is integrated, which fills 38 % of the period (26).
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_flight::math::Quat;
use bulkhead_flight::words;
use bulkhead_flight::world::World;
use bulkhead_program::{Message, Program};
use flight_programs::kept::{Kept, Part};
use flight_programs::{REFUSED, airframe};

bulkhead_program::entry!(serve);

/// Same flight in every run.
const SEED: u64 = 0xF11;
const SUBSTEPS: u64 = 26;

fn serve(program: Program) -> u32 {
    let substeps = program.number("substeps").unwrap_or(SUBSTEPS) as u32;
    let (endpoint, reply) = (program.serves("airframe"), program.own_reply());
    let sensors = program.memory("sensors").words();
    let kept = Kept::find(program);
    let mut world = World::new(SEED, Quat::default());
    words::write_sensors(sensors, &world.sense());
    let mut got = endpoint.receive(reply);
    loop {
        got = match got.map(|received| received.message) {
            Ok(message) if message.label() == airframe::FLY => {
                let [a, b, step, _] = message.words;
                world.fly(&words::to_motors([a, b]), substeps);
                let sensed = world.sense();
                words::write_sensors(sensors, &sensed);
                if let Some(kept) = kept {
                    kept.put(step as u32, Part::World, &world.words());
                    kept.put(step as u32, Part::Sensors, &words::sensors(&sensed));
                }
                let truth = words::attitude(world.airframe().attitude());
                endpoint.reply_receive(reply, Message::new(0, &truth))
            }
            Ok(message) if message.label() == airframe::RESUME => {
                if let Some(kept) = kept {
                    let step = message.words[0] as u32;
                    world = World::of(kept.get(step, Part::World));
                    let sensed = words::to_sensors(kept.get(step, Part::Sensors));
                    words::write_sensors(sensors, &sensed);
                }
                endpoint.reply_receive(reply, Message::new(0, &[]))
            }
            Ok(_) => endpoint.reply_receive(reply, Message::new(REFUSED, &[])),
            // Its caller did not wait for the answer.
            Err(_) => endpoint.receive(reply),
        };
    }
}
