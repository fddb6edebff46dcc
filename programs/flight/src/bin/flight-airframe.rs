//! The world: motors, airframe, weather and sensors, simulated, where a vehicle has drivers. A passive server:
//! its caller pays for the simulation.
//!
//! Arguments: `substeps=N` is how finely it is integrated, which fills 38 % of the period (26).
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_flight::math::Quat;
use bulkhead_flight::words;
use bulkhead_flight::world::World;
use bulkhead_program::{Message, Program};
use flight_programs::{REFUSED, airframe};

bulkhead_program::entry!(serve);

/// Same flight in every run.
const SEED: u64 = 0xF11;
const SUBSTEPS: u64 = 26;

fn serve(program: Program) -> u32 {
    let substeps = program.number("substeps").unwrap_or(SUBSTEPS) as u32;
    let (endpoint, reply) = (program.serves("airframe"), program.reply("airframe"));
    let sensors = program.memory("sensors").words();
    let mut world = World::new(SEED, Quat::default());
    words::write_sensors(sensors, &world.sense());
    let mut got = endpoint.receive(reply);
    loop {
        got = match got.map(|received| received.message) {
            Ok(message) if message.label() == airframe::FLY => {
                let [a, b, ..] = message.words;
                world.fly(&words::to_motors([a, b]), substeps);
                words::write_sensors(sensors, &world.sense());
                let truth = words::attitude(world.airframe().attitude());
                endpoint.reply_receive(reply, Message::new(0, &truth))
            }
            Ok(_) => endpoint.reply_receive(reply, Message::new(REFUSED, &[])),
            // Its caller did not wait for the answer.
            Err(_) => endpoint.receive(reply),
        };
    }
}
