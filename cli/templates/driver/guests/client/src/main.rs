//! A client of the driver: sends words into the channel `questions`, and ends well if each comes back by `answers`.
//!
//! Arguments: `words=N`, how many.
#![no_std]
#![no_main]

use bulkhead_sdk::channel::Stop;
use bulkhead_sdk::guest::Guest;
use bulkhead_sdk::typed::{Receiver, Sender};
use bulkhead_sdk::{Context, println, time};

bulkhead_sdk::entry!(client);

/// Returns the guest's exit code.
fn client(context: Context) -> u32 {
    let (questions, answers) = (context.pair("questions"), context.pair("answers"));
    let (Ok(mut to), Ok(mut from)) = (Sender::open(&questions), Receiver::<u64>::open(&answers))
    else {
        return 1;
    };
    let (Some(mut bell), Some(mut sleeper)) = (context.caller(&questions), context.sleeper(&answers))
    else {
        return 1;
    };
    let count = context.arg_u64("words").unwrap_or(5);
    for number in 1..=count {
        let word = number * 0x0101_0101_0101_0101;
        // The driver may still be starting.
        while let Err(stop) = bell.after(to.send(&word)) {
            if !matches!(stop, Stop::Wait | Stop::Apart) {
                println!("client: {stop:?} at word {number}");
                return 1;
            }
            time::sleep(1_000_000);
        }
        match from.recv(&mut sleeper) {
            Ok(answer) if answer == word => println!("client: {word:#018x} came back"),
            other => {
                println!("client: {other:?} in place of {word:#018x}");
                return 1;
            }
        }
    }
    0
}
