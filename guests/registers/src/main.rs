//! Reads and writes registers that it shares with another sandbox: those from `at=ADDRESS` on, by
//! `do=STEP,STEP...`. A step has a kind, a size in bytes, an offset and a value, in hexadecimal, with colons:
//!
//! * `w` writes the value;
//! * `r` reads, and it is the value;
//! * `u` reads until it is the value, for three seconds.
//!
//! Exit code 0 if all came to pass, else the number of the step that did not, from 1.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::{Context, println, time};

bulkhead_sdk::entry!(guest);

const MILLISECOND: u64 = 1_000_000;

fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

fn read(address: u64, size: u64) -> u64 {
    // SAFETY: a device's registers, or an access that the monitor answers; no memory of Rust's is there.
    unsafe {
        match size {
            1 => (address as *const u8).read_volatile().into(),
            2 => (address as *const u16).read_volatile().into(),
            4 => (address as *const u32).read_volatile().into(),
            _ => (address as *const u64).read_volatile(),
        }
    }
}

fn write(address: u64, size: u64, value: u64) {
    // SAFETY: as for reads.
    unsafe {
        match size {
            1 => (address as *mut u8).write_volatile(value as u8),
            2 => (address as *mut u16).write_volatile(value as u16),
            4 => (address as *mut u32).write_volatile(value as u32),
            _ => (address as *mut u64).write_volatile(value),
        }
    }
}

fn step(at: u64, text: &str) -> Option<bool> {
    let mut parts = text.split(':');
    let kind = parts.next()?;
    let mut next = || number(parts.next()?);
    let (size, offset, value) = (next()?, next()?, next()?);
    let is = || read(at + offset, size) == value;
    Some(match kind {
        "w" => {
            write(at + offset, size, value);
            true
        }
        "r" => is(),
        _ => (0..3_000).any(|_| {
            is() || {
                time::sleep(MILLISECOND);
                false
            }
        }),
    })
}

fn guest(context: Context) -> u32 {
    let at = context.arg("at").and_then(number).unwrap_or(0);
    let steps = context.arg("do").unwrap_or("");
    for (n, text) in steps.split(',').enumerate() {
        let done = step(at, text) == Some(true);
        println!("registers: {text}: {done}");
        if !done {
            return n as u32 + 1;
        }
    }
    0
}
