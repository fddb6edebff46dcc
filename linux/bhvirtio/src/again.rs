//! A program that is killed again and again, for tests: each time without a word, in the middle of its work.

use std::io;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Kills a program after half of so many milliseconds to one and a half, so many times, and lets the last one be.
pub fn run(times: &str, millis: &str, program: &mut Command) -> io::Result<()> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| io::Error::other(format!("{text}?")));
    let (times, micros) = (number(times)?, 1000 * number(millis)?);
    for n in 0..times {
        let mut child = program.spawn()?;
        // The golden ratio: no two are alike, and the next run is like this one.
        let part = (n * 618).wrapping_rem(1000);
        sleep(Duration::from_micros(micros / 2 + micros * part / 1000));
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
