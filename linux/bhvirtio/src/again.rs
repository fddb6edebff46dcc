//! A program that runs again and again, for tests: to its end, or killed in the middle of its work without a word.

use std::io;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Kills a program after half of so many milliseconds to one and a half, so many times, and lets the last one be.
pub fn run(times: &str, millis: &str, program: &mut Command) -> io::Result<()> {
    let (times, millis) = (number(times)?, number(millis)?);
    for n in 0..times {
        let mut child = program.spawn()?;
        sleep(pause(n, millis));
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(format!("it has ended by itself: {status}")));
        }
        child.kill()?;
        child.wait()?;
    }
    println!("bhvirtio: killed {times} times");
    let status = program.status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{status}"))) }
}

/// Runs a program to its end, so many times, with pauses of half of so many milliseconds to one and a half before it.
pub fn each(times: &str, millis: &str, program: &mut Command) -> io::Result<()> {
    let (times, millis) = (number(times)?, number(millis)?);
    for n in 0..times {
        sleep(pause(n, millis));
        let status = program.status()?;
        if !status.success() {
            return Err(io::Error::other(format!("{n} times, then {status}")));
        }
    }
    println!("bhvirtio: ran {times} times");
    Ok(())
}

fn number(text: &str) -> io::Result<u64> {
    text.parse().map_err(|_| io::Error::other(format!("{text}?")))
}

/// By the golden ratio: no two are alike, and the next run is like this one.
fn pause(n: u64, millis: u64) -> Duration {
    Duration::from_micros(500 * millis + millis * (n * 618).wrapping_rem(1000))
}
