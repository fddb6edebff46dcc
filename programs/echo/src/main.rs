//! A passive server, which adds up the words sent to it, and a client that calls it: the server works on the client's
//! time.
//!
//! Arguments: `role=server` or `role=client`; `rounds=N` (default 1000).
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{Message, Program, println, ready};

bulkhead_program::entry!(echo);

fn echo(program: Program) -> u32 {
    match program.arg("role") {
        Some("server") => serve(program),
        _ => call(program),
    }
}

fn serve(program: Program) -> u32 {
    let (sums, reply) = (program.serves("sums"), program.reply("server"));
    println!("server: ready");
    let mut sum = 0u64;
    let mut received = sums.receive(reply);
    loop {
        match received {
            Ok(call) => sum = sum.wrapping_add(call.message.words[0] * call.badge),
            Err(error) => {
                println!("server: {error}");
                return 1;
            }
        }
        received = sums.reply_receive(reply, Message::new(0, &[sum]));
    }
}

fn call(program: Program) -> u32 {
    let rounds = program.number("rounds").unwrap_or(1000);
    let sums = program.endpoint("sums");
    ready();
    let mut last = 0;
    for n in 1..=rounds {
        match sums.call(Message::new(0, &[n])) {
            Ok(answer) => last = answer.words[0],
            Err(error) => {
                println!("client: round {n}: {error}");
                return 1;
            }
        }
    }
    println!("client: {last}");
    0
}
