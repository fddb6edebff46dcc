//! Streams from one Linux to another, or within one, by iperf3. Each side says when one begins and ends, so that the
//! instructions of each side's core are known. That of two lengths the difference is taken leaves out what a program's start costs.

use bulkhead_linux::marker::{EVENT, id};
use bulkhead_linux::run::done;
use bulkhead_linux::setup::{self, Failure};
use std::net::SocketAddr;
use std::process::Command;
use std::thread::{available_parallelism, sleep, spawn};
use std::time::{Duration, Instant};

/// Longest wait for the other side.
const LIMIT: Duration = Duration::from_secs(120);
/// Before each stream: the server of the one before has ended by then, and the next one is there.
const BETWEEN: Duration = Duration::from_millis(500);
/// In an event's value: it is the server's.
const SERVER: u64 = 1 << 32;

fn mark(stream: u64, ends: bool) {
    bulkhead_linux::mark::<{ EVENT | id::CHANNEL_STREAM }>(stream << 1 | u64::from(ends));
}

/// The server, for so many streams.
pub fn serve(count: usize) -> Result<(), Failure> {
    for number in 0..count as u64 {
        mark(SERVER >> 1 | number, false);
        done(Command::new("iperf3").args(["--server", "--one-off"]))?;
        mark(SERVER >> 1 | number, true);
    }
    Ok(())
}

/// The server on the last core, while this program goes on, from now on on the first.
pub fn beside(count: usize) -> Result<(), Failure> {
    let last = available_parallelism()?.get() - 1;
    setup::loopback()?;
    spawn(move || {
        let served = setup::pin(last).and_then(|()| serve(count));
        println!("bhio: served: {served:?}");
    });
    setup::pin(0)
}

/// So many MiB to a server, or from it.
pub fn stream(server: SocketAddr, mib: usize, number: u64, from: bool) -> Result<(), Failure> {
    let mut command = Command::new("iperf3");
    command
        .args(["--client", &server.ip().to_string(), "--port", &server.port().to_string()])
        .args(["--bytes", &format!("{mib}M"), "--format", "k"]);
    if from {
        command.arg("--reverse");
    }
    let begun = Instant::now();
    loop {
        sleep(BETWEEN);
        // What counts is the last one that begins before one ends.
        mark(number, false);
        match done(&mut command) {
            Ok(()) => break,
            Err(why) if begun.elapsed() > LIMIT => return Err(why.into()),
            Err(why) => println!("bhio: {why}; once more"),
        }
    }
    mark(number, true);
    Ok(())
}
