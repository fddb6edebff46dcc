//! Streams from one Linux to another, or within one, by iperf3. Each side says when one begins and ends, so that the
//! instructions of each side's core are known. It streams for a time: one that has sent so many bytes as it was told
//! spins until its next second is full.

use bulkhead_linux::marker::{EVENT, id};
use bulkhead_linux::run::done;
use bulkhead_linux::setup::{self, Failure};
use std::net::SocketAddr;
use std::process::Command;
use std::thread::{JoinHandle, available_parallelism, sleep, spawn};
use std::time::{Duration, Instant};

/// Longest wait for the other side.
const LIMIT: Duration = Duration::from_secs(30);
/// Before each stream: the server of the one before has ended by then, and the next one is there.
const BETWEEN: Duration = Duration::from_millis(500);
/// In an event's value: it is the server's; where the stream's number is; it ends.
const SERVER: u64 = 1 << 63;
const NUMBER: u32 = 56;
const ENDS: u64 = 1 << 55;

fn mark(value: u64) {
    bulkhead_linux::mark::<{ EVENT | id::CHANNEL_STREAM }>(value);
}

/// The server, for so many streams.
pub fn serve(count: usize) -> Result<(), Failure> {
    for number in 0..count as u64 {
        mark(SERVER | number << NUMBER);
        done(Command::new("iperf3").args(["--server", "--one-off"]))?;
        mark(SERVER | number << NUMBER | ENDS);
    }
    Ok(())
}

/// Result of a server in a thread of its own.
pub type Served = JoinHandle<Result<(), String>>;

/// The server on the last core, while this program goes on, from now on on the first.
pub fn beside(count: usize) -> Result<Served, Failure> {
    let last = available_parallelism()?.get() - 1;
    setup::loopback()?;
    let serve = move || setup::pin(last).and_then(|()| serve(count)).map_err(|why| why.to_string());
    let server = spawn(serve);
    setup::pin(0)?;
    Ok(server)
}

/// For so many seconds to a server, or from it.
pub fn stream(server: SocketAddr, seconds: usize, number: u64, from: bool) -> Result<(), Failure> {
    let mut command = Command::new("iperf3");
    command
        .args(["--client", &server.ip().to_string(), "--port", &server.port().to_string()])
        .args(["--time", &seconds.to_string(), "--json"]);
    if from {
        command.arg("--reverse");
    }
    let begun = Instant::now();
    let bytes = loop {
        sleep(BETWEEN);
        // The last mark that begins before one ends counts.
        mark(number << NUMBER);
        let out = command.output()?;
        let said = String::from_utf8_lossy(&out.stdout);
        match received(&said).filter(|_| out.status.success()) {
            Some(bytes) => break bytes,
            None if begun.elapsed() > LIMIT => return Err(format!("iperf3: {said}").into()),
            None => println!("bhio: {}: no stream; once more", out.status),
        }
    };
    mark(number << NUMBER | ENDS | bytes);
    println!("row stream {bytes} bytes");
    Ok(())
}

/// Bytes that arrived, from what iperf3 says in the end.
fn received(said: &str) -> Option<u64> {
    let (_, sums) = said.rsplit_once("\"sum_received\"")?;
    let (_, bytes) = sums.split_once("\"bytes\":")?;
    let digits = bytes.trim_start().split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::received;

    #[test]
    fn what_arrived_is_in_the_sum() {
        let said = "{\"end\":{\"sum_sent\":{\"bytes\":\t7},\"sum_received\":{\"start\":\t0,\n\"bytes\":\t4096,\"x\":1}}}";
        assert_eq!(received(said), Some(4096));
        assert_eq!(received("{\"error\":\"refused\"}"), None);
    }
}
