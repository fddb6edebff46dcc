//! Measures something every 10 ms, and sends it into the channel `samples` as a line of text.
//!
//! Arguments: `samples=N`, how many.
#![no_std]
#![no_main]

use bulkhead_sdk::channel::Stop;
use bulkhead_sdk::guest::Guest;
use bulkhead_sdk::{Context, println, time};
use core::fmt::Write;

bulkhead_sdk::entry!(sensor);

const PERIOD_NS: u64 = 10_000_000;

/// Returns the guest's exit code.
fn sensor(context: Context) -> u32 {
    let pair = context.pair("samples");
    let Ok(mut samples) = pair.send_records() else {
        return 1;
    };
    let count = context.arg_u64("samples").unwrap_or(20);
    for number in 1..=count {
        let mut line = Line::default();
        let _ = write!(line, "sample {number} is {}", measure(number));
        // Linux may still be starting.
        while let Err(stop) = samples.send(line.bytes()) {
            if !matches!(stop, Stop::Wait | Stop::Apart) {
                println!("sensor: {stop:?} at sample {number}");
                return 1;
            }
            time::sleep(PERIOD_NS);
        }
        time::sleep(PERIOD_NS);
    }
    println!("sensor: {count} samples sent");
    0
}

/// Stands for a device: a triangle between 0 and 8.
fn measure(number: u64) -> u64 {
    (number % 16).abs_diff(8)
}

/// A line of text; what does not fit is left out.
#[derive(Default)]
struct Line {
    text: [u8; 32],
    len: usize,
}

impl Line {
    fn bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for (to, from) in self.text[self.len..].iter_mut().zip(text.bytes()) {
            *to = from;
            self.len += 1;
        }
        Ok(())
    }
}
