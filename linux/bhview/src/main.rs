//! `bhview` shows what other sandboxes let this Linux see: the telemetry page of
//! the flight controller and the reports of observed sandboxes.
//!
//! | arguments | does |
//! |---|---|
//! | none, or `live` | a view that fills the terminal, ten times a second, until `q` |
//! | `log SECONDS` | one line a second |
//!
//! All of it is read-only and out of shared memory: nobody is asked, and no
//! exit is taken.
#![forbid(unsafe_code)]

mod keys;
mod sources;
mod view;

use sources::Sources;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = Sources::open().and_then(|sources| match args[..] {
        [] | ["live"] => live(&sources),
        ["log", seconds] => match seconds.parse() {
            Ok(seconds) => log(&sources, seconds),
            Err(_) => Err(std::io::Error::other("log wants a number of seconds")),
        },
        _ => Err(std::io::Error::other("usage: bhview [live | log SECONDS]")),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("bhview: {why}");
            ExitCode::FAILURE
        }
    }
}

fn live(sources: &Sources) -> std::io::Result<()> {
    let keys = keys::Keys::open();
    let mut out = std::io::stdout().lock();
    // An own screen without a cursor, given back at the end.
    write!(out, "\x1b[?1049h\x1b[?25l\x1b[2J")?;
    while keys.wait(Duration::from_millis(100)) != Some(b'q') {
        // One write a frame, so that a slow line shows no half of it.
        let frame = view::frame(&sources.name, sources.telemetry().as_ref(), &sources.observed());
        out.write_all(frame.as_bytes())?;
        out.flush()?;
    }
    write!(out, "\x1b[?25h\x1b[?1049l")?;
    out.flush()
}

fn log(sources: &Sources, seconds: u32) -> std::io::Result<()> {
    let start = Instant::now();
    for second in 1..=seconds {
        let due = Duration::from_secs(second.into());
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        let line = view::line(sources.telemetry().as_ref(), &sources.observed());
        println!("view {second} s: {line}");
    }
    Ok(())
}
