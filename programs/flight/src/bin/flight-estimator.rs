//! The vehicle's attitude, from its sensors' values. A passive server at the priority of its caller, which pays for the
//! work.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_flight::PERIOD;
use bulkhead_flight::estimate::Estimator;
use bulkhead_flight::math::Quat;
use bulkhead_flight::words;
use bulkhead_program::{Message, Program};
use flight_programs::kept::{Kept, Part};
use flight_programs::{REFUSED, estimator};

bulkhead_program::entry!(serve);

fn serve(program: Program) -> u32 {
    let (endpoint, reply) = (program.serves("estimator"), program.own_reply());
    let sensors = program.memory("sensors").words();
    let kept = Kept::find(program);
    let mut estimator = Estimator::new(Quat::default());
    let mut got = endpoint.receive(reply);
    loop {
        let step = got.map_or(0, |received| received.message.words[0] as u32);
        got = match got.map(|received| received.message.label()) {
            Ok(estimator::UPDATE) => {
                estimator.update(&words::read_sensors(sensors), PERIOD);
                if let Some(kept) = kept {
                    kept.put(step, Part::Estimator, &estimator.words());
                }
                endpoint.reply_receive(reply, said(&estimator))
            }
            Ok(estimator::RESUME) => {
                if let Some(kept) = kept {
                    estimator = Estimator::of(kept.get(step, Part::Estimator));
                }
                endpoint.reply_receive(reply, Message::new(0, &[]))
            }
            Ok(_) => endpoint.reply_receive(reply, Message::new(REFUSED, &[])),
            // Its caller did not wait for the answer.
            Err(_) => endpoint.receive(reply),
        };
    }
}

fn said(estimator: &Estimator) -> Message {
    let [a, b] = words::attitude(estimator.attitude());
    let [c, d] = words::vector(estimator.rates());
    Message::new(0, &[a, b, c, d])
}
