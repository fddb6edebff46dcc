//! A passive server: a low-pass filter, on the time of who asks.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{Message, Program, println};

bulkhead_program::entry!(filter);

fn filter(program: Program) -> u32 {
    let (endpoint, reply) = (program.serves("filter"), program.reply("filter"));
    let mut state = 0i64;
    let mut received = endpoint.receive(reply);
    while let Ok(call) = received {
        // In sixteenths, an eighth of the way to the sample.
        let sample = i64::from(call.message.words[0] as u32) * 16;
        state += (sample - state) / 8;
        received = endpoint.reply_receive(reply, Message::new(0, &[(state / 16) as u64]));
    }
    println!("filter: {received:?}");
    1
}
