//! Prints what comes through the channel `samples`, and ends well if none is missing.
//!
//! Arguments: `samples=N`, how many.
#![no_std]
#![no_main]

use bulkhead_sdk::guest::Guest;
use bulkhead_sdk::typed::Receiver;
use bulkhead_sdk::{Context, println};

bulkhead_sdk::entry!(logger);

/// Returns the guest's exit code.
fn logger(context: Context) -> u32 {
    let pair = context.pair("samples");
    let (Ok(mut samples), Some(mut sleeper)) =
        (Receiver::<[u64; 2]>::open(&pair), context.sleeper(&pair))
    else {
        return 1;
    };
    let count = context.arg_u64("samples").unwrap_or(20);
    for expected in 1..=count {
        match samples.recv(&mut sleeper) {
            Ok([number, value]) if number == expected => println!("logger: sample {number} is {value}"),
            other => {
                println!("logger: {other:?} in place of sample {expected}");
                return 1;
            }
        }
    }
    println!("logger: {count} samples received");
    0
}
