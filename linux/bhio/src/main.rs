//! `bhio` does fixed amounts of disk and network work, so that the instructions
//! that it takes in two places can be compared. Arguments, in any order:
//!
//! | argument | does |
//! |---|---|
//! | `disk=PATH` | a disk, or a file that is made, for the rows that come after it |
//! | `peer=ADDRESS:PORT` | the host's end of `udp`, `tcp`, `tcp_from` (`bulkhead_qemu::Peer`) |
//! | `iperf=PORT` | where `iperf3` listens at that address |
//! | `rand4k=N` | N reads of 4 KiB at random places, past the page cache |
//! | `threads=N` | threads for the next row, 1 without it |
//! | `pause=N` | microseconds after each of its requests, 0 without it |
//! | `many4k=N`, `many16k=N` | N reads of 4, 16 KiB at random places by all threads together, past the page cache |
//! | `files=FOLDER` | a folder for the files of `points` |
//! | `points=N` | N requests of 16 KiB for each of 1 to 32 threads, reads, writes and both, in 128 files |
//! | `seq1m=N`, `write1m=N` | N reads, writes of 1 MiB, one after the other, likewise |
//! | `udp=N` | N datagrams of 1,472 bytes to the peer and back |
//! | `tcp=N`, `tcp_from=N` | N MiB to the peer, from the peer |
//! | `sysbench=N` | `sysbench fileio`: N random reads and writes, on the root file system |
//! | `iperf3=N` | `iperf3`: N MiB to the host |
//! | `serve=N` | `iperf3`'s server, for N streams one after the other |
//! | `beside=N` | `serve` on the last core, beside the next rows |
//! | `stream=N`, `stream_from=N` | `iperf3`: for N seconds to such a server at `peer`, from it, as soon as it is there |
//! | `stress-ng=N` | `stress-ng`: N rounds of each of six stressors, one after the other |
//! | `cyclictest=N` | `cyclictest`: N periods of 1 ms |
//! | `start=here` | the rows before were to warm up: the event `START` is here and not before the first row |
//!
//! Two markers enclose each request, 64 KiB of a stream, and run of a program; for a stream they are events on either
//! side. Two events enclose all requests of threads. All rows together lie between the events `START` and `FINISH`,
//! with the time stamp counter's values. Printed:
//! `info KEY VALUE`, what the programs print, `row NAME VALUE UNIT` and, at the end, `bhio: done`.
#![forbid(unsafe_code)]

mod disk;
mod files;
mod net;
mod program;
mod stream;

use bulkhead_linux::setup::{self, Failure};
use bulkhead_linux::{mark, marker, ticks};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

const START_HERE: &str = "start=here";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => {
            println!("bhio: done");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("bhio: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Facts that the rows need.
#[derive(Default)]
struct Place {
    disk: Option<String>,
    files: Option<String>,
    threads: Option<usize>,
    pause: Option<u64>,
    peer: Option<SocketAddr>,
    iperf: Option<u16>,
    /// Streams so far.
    streams: u64,
    server: Option<stream::Served>,
}

impl Place {
    fn disk(&self) -> Result<&str, Failure> {
        Ok(self.disk.as_deref().ok_or("no disk=PATH before this row")?)
    }

    fn peer(&self) -> Result<SocketAddr, Failure> {
        Ok(self.peer.ok_or("no peer=ADDRESS:PORT before this row")?)
    }
}

fn run(args: &[String]) -> Result<(), Failure> {
    setup::fixed_addresses()?;
    setup::settle();
    setup::describe();
    let mut place = Place::default();
    if !args.iter().any(|arg| arg == START_HERE) {
        start();
    }
    for arg in args {
        let (name, value) = arg.split_once('=').ok_or_else(|| format!("{arg}: no '='"))?;
        setup::drain();
        one(&mut place, name, value).map_err(|why| format!("{arg}: {why}"))?;
    }
    if let Some(server) = place.server {
        server.join().map_err(|_| "the server panicked")??;
    }
    mark::<{ marker::EVENT | marker::id::FINISH }>(ticks());
    Ok(())
}

fn start() {
    mark::<{ marker::EVENT | marker::id::START }>(ticks());
}

fn one(place: &mut Place, name: &str, value: &str) -> Result<(), Failure> {
    match name {
        "start" if value == "here" => start(),
        "disk" => place.disk = Some(value.into()),
        "files" => place.files = Some(value.into()),
        "threads" => place.threads = Some(value.parse()?),
        "pause" => place.pause = Some(value.parse()?),
        "peer" => place.peer = Some(value.parse()?),
        "iperf" => place.iperf = Some(value.parse()?),
        _ => return row(place, name, value.parse()?),
    }
    Ok(())
}

fn row(place: &mut Place, name: &str, count: usize) -> Result<(), Failure> {
    match name {
        "rand4k" => disk::rand4k(place.disk()?, count),
        "many4k" | "many16k" => {
            let bytes = if name == "many4k" { 4 << 10 } else { 16 << 10 };
            let threads = place.threads.take().unwrap_or(1);
            let pause = Duration::from_micros(place.pause.take().unwrap_or(0));
            disk::many(place.disk()?, bytes, threads, count, pause)
        }
        "points" => files::points(place.files.as_deref().ok_or("no files=FOLDER")?, count),
        "seq1m" => disk::seq1m(place.disk()?, count),
        "write1m" => disk::write1m(place.disk()?, count),
        "udp" => net::udp(place.peer()?, count),
        "tcp" => net::tcp(place.peer()?, count),
        "tcp_from" => net::tcp_from(place.peer()?, count),
        "sysbench" => program::sysbench(count),
        "iperf3" => {
            let port = place.iperf.ok_or("no iperf=PORT before this row")?;
            program::iperf3(SocketAddr::new(place.peer()?.ip(), port), count)
        }
        "serve" => stream::serve(count),
        "beside" => {
            place.server = Some(stream::beside(count)?);
            Ok(())
        }
        "stream" | "stream_from" => {
            place.streams += 1;
            stream::stream(place.peer()?, count, place.streams - 1, name == "stream_from")
        }
        "stress-ng" => program::stress(count),
        "cyclictest" => program::cyclic(count),
        _ => Err("no such row".into()),
    }
}

/// Runs `operation` a few times to warm up, then `count` times between markers,
/// and prints median and sum of its ticks.
fn repeat<const ID: u16>(
    name: &str,
    (warm, count): (usize, usize),
    mut operation: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    for _ in 0..warm {
        operation()?;
    }
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = ticks();
        bulkhead_linux::begin::<ID>();
        let result = operation();
        bulkhead_linux::end::<ID>();
        samples.push(ticks() - begin);
        result?;
    }
    samples.sort_unstable();
    let median = samples.get(count / 2).ok_or("nothing to do")?;
    println!("row {name} {median} ticks");
    println!("row {name}_sum {} ticks", samples.iter().sum::<u64>());
    Ok(())
}
