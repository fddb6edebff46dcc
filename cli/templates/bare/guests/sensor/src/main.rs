//! Measures something every 10 ms, and sends it into the channel `samples`: its number and its value.
//!
//! Arguments: `samples=N`, how many.
#![no_std]
#![no_main]

use bulkhead_sdk::channel::Stop;
use bulkhead_sdk::guest::Guest;
use bulkhead_sdk::typed::Sender;
use bulkhead_sdk::{Context, println, time};

bulkhead_sdk::entry!(sensor);

const PERIOD_NS: u64 = 10_000_000;

/// Returns the guest's exit code.
fn sensor(context: Context) -> u32 {
    let pair = context.pair("samples");
    let (Ok(mut samples), Some(mut bell)) = (Sender::open(&pair), context.caller(&pair)) else {
        return 1;
    };
    let count = context.arg_u64("samples").unwrap_or(20);
    let mut due = context.now();
    for number in 1..=count {
        let sample = [number, measure(number)];
        // The other end may still be starting, or be late.
        while let Err(stop) = bell.after(samples.send(&sample)) {
            if !matches!(stop, Stop::Wait | Stop::Apart) {
                println!("sensor: {stop:?} at sample {number}");
                return 1;
            }
            time::sleep(1_000_000);
        }
        due += PERIOD_NS;
        context.sleep_until(due);
    }
    println!("sensor: {count} samples sent");
    0
}

/// Stands for a device: a triangle between 0 and 8.
fn measure(number: u64) -> u64 {
    (number % 16).abs_diff(8)
}
