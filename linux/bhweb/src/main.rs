//! `bhweb ADDRESS [rate=N] [seconds=N] [connections=N]` asks a web server for pages at a fixed rate, 120 a second if
//! nothing else is said, over connections that stay open.
//!
//! Each page follows from its path, which is never used again. So a byte that is wrong, missing, of another answer or
//! there twice shows. At the end there is a line for each request: `web: N ASKED ANSWERED`, in microseconds of the
//! processor's counter, if that has a thousand ticks in one. The last line counts.
#![forbid(unsafe_code)]

mod connection;

use bulkhead_linux::ticks;
use connection::{Connection, News};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{Error, Result};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Longest wait for the last answers.
const LAST: Duration = Duration::from_secs(5);

/// The command line.
struct Asked {
    server: SocketAddr,
    rate: u64,
    seconds: u64,
    connections: usize,
}

impl Asked {
    fn read() -> Result<Self> {
        let usage = || Error::other("usage: bhweb ADDRESS [rate=N] [seconds=N] [connections=N]");
        let mut args = std::env::args().skip(1);
        let address = args.next().and_then(|text| text.parse().ok()).ok_or_else(usage)?;
        let server = SocketAddr::new(address, 80);
        let mut asked = Self { server, rate: 120, seconds: 10, connections: 64 };
        for arg in args {
            let (name, value) = arg.split_once('=').ok_or_else(usage)?;
            let value: u64 = value.parse().map_err(|_| usage())?;
            match name {
                "rate" => asked.rate = value.max(1),
                "seconds" => asked.seconds = value,
                "connections" => asked.connections = value.clamp(1, 1_000) as usize,
                _ => return Err(usage()),
            }
        }
        Ok(asked)
    }
}

/// A request: when it went, and when all of its answer was there; ticks.
struct Record {
    asked: u64,
    answered: Option<u64>,
}

/// Counts of what must not be.
#[derive(Default)]
struct Counts {
    wrong: u64,
    lost: u64,
}

fn main() -> ExitCode {
    match Asked::read().and_then(|asked| ask(&asked)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            println!("web: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Asks all; true if each request had its answer.
fn ask(asked: &Asked) -> Result<bool> {
    let open = |_| Connection::open(asked.server);
    let mut all = (0..asked.connections).map(open).collect::<Result<Vec<_>>>()?;
    println!("web: asks {}", asked.server);
    let (begun, count) = (Instant::now(), asked.rate * asked.seconds);
    let due = |n: u64| begun + Duration::from_nanos(n * 1_000_000_000 / asked.rate);
    let (mut records, mut counts) = (Vec::new(), Counts::default());
    let end = due(count) + LAST;
    loop {
        let next = records.len() as u64;
        let over = next == count && all.iter().all(Connection::is_idle);
        if over || Instant::now() >= end {
            break;
        }
        let until = if next < count { due(next) } else { end };
        wait(&all, until)?;
        for one in &mut all {
            heed(one, asked.server, &mut records, &mut counts)?;
        }
        if next < count && Instant::now() >= due(next) {
            send(&mut all, asked.server, next, &mut records)?;
        }
    }
    Ok(tell(&records, &counts))
}

/// Waits for bytes until a time.
fn wait(all: &[Connection], until: Instant) -> Result<()> {
    let left = until.saturating_duration_since(Instant::now()).as_micros().div_ceil(1_000);
    let mut fds: Vec<_> =
        all.iter().map(|one| PollFd::new(one.stream().as_fd(), PollFlags::POLLIN)).collect();
    poll(&mut fds, PollTimeout::from(left.min(1_000) as u16))?;
    Ok(())
}

/// Takes in what has come at a connection.
fn heed(
    one: &mut Connection,
    server: SocketAddr,
    records: &mut [Record],
    counts: &mut Counts,
) -> Result<()> {
    match one.look() {
        News::None => {}
        News::Answered(n) => records[n as usize].answered = Some(ticks()),
        News::Wrong(what) => {
            println!("web: {what}");
            counts.wrong += 1;
            *one = Connection::open(server)?;
        }
        News::Lost(why) => {
            println!("web: a connection broke: {why}");
            counts.lost += 1;
            *one = Connection::open(server)?;
        }
    }
    Ok(())
}

/// Sends the next request, over the connection that has rested for the longest time.
fn send(
    all: &mut Vec<Connection>,
    server: SocketAddr,
    n: u64,
    records: &mut Vec<Record>,
) -> Result<()> {
    let idle = all.iter().position(Connection::is_idle);
    // The one that is used now goes to the end.
    let mut one = idle.map_or_else(|| Connection::open(server), |at| Ok(all.remove(at)))?;
    records.push(Record { asked: ticks(), answered: None });
    one.ask(n);
    all.push(one);
    Ok(())
}

fn tell(records: &[Record], counts: &Counts) -> bool {
    for (n, Record { asked, answered }) in records.iter().enumerate() {
        let answered = answered.map_or("-".to_owned(), |at| (at / 1_000).to_string());
        println!("web: {n} {} {answered}", asked / 1_000);
    }
    let answers = records.iter().filter(|one| one.answered.is_some()).count();
    let Counts { wrong, lost } = counts;
    println!("web: {} requests, {answers} answers, {wrong} wrong, {lost} lost", records.len());
    answers == records.len() && *wrong == 0
}
