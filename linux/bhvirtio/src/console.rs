//! A console: what the driver's Linux prints on it comes out here, what is typed here goes there.

use crate::side::Side;
use bulkhead_channel::{Bytes, Memory};
use bulkhead_linux::terminal;
use bulkhead_untrusted::Untrusted;
use bulkhead_virtio::{Corrupted, Offer};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Kind of device (virtio 1.2, 5.3), and its queues: input of the driver's, output of the driver's.
const DEVICE: u32 = 3;
const INPUT: usize = 0;
const OUTPUT: usize = 1;
const OFFER: Offer<'_> = Offer { device: DEVICE, features: 0, config: &[], queues: &[64, 64] };
/// Most pieces of the driver's output that are taken before all else has its turn.
const ROUND: usize = 64;
/// Bytes that are typed at a time.
const PIECE: usize = 512;

/// On this terminal, until its input ends.
pub fn attach(channel: &str) -> io::Result<()> {
    let mut side = Side::open(channel, &OFFER)?;
    let done = terminal::raw(|| converse(&mut side, io::stdin().lock()));
    side.close();
    done
}

fn converse(side: &mut Side, mut input: impl Read + AsFd) -> io::Result<()> {
    let mut out = io::stdout();
    let mut pending = Vec::new();
    loop {
        side.attend();
        let text = printed(side);
        out.write_all(&text)?;
        out.flush()?;
        if pending.is_empty() && readable(&input)? {
            let mut piece = [0; PIECE];
            let len = input.read(&mut piece)?;
            if len == 0 {
                return Ok(());
            }
            pending.extend_from_slice(&piece[..len]);
        }
        let typed = type_in(side, &mut pending);
        // With something pending it is the driver that is waited for.
        let wakes = if pending.is_empty() { Some(input.as_fd()) } else { None };
        side.rest(typed || !text.is_empty(), wakes, None)?;
    }
}

/// Types a line as soon as there is a driver, and again after a while without an answer; shows what comes back.
pub fn ask(channel: &str, line: &str, answer: &str) -> io::Result<()> {
    /// Without anything from there.
    const PATIENCE: Duration = Duration::from_secs(1);
    /// The driver's Linux may have to boot.
    const LIMIT: Duration = Duration::from_secs(120);
    let mut side = Side::open(channel, &OFFER)?;
    let begun = Instant::now();
    let (mut seen, mut pending, mut quiet) = (String::new(), Vec::new(), begun);
    let mut waiting = Untrusted::default();
    while !seen.contains(answer) {
        if begun.elapsed() > LIMIT {
            let why = format!("waited {} s for `{answer}` from {channel}", LIMIT.as_secs());
            return Err(io::Error::other(why));
        }
        side.attend();
        let text = printed(&mut side);
        waiting.push(&text);
        let shown = waiting.take_settled().text();
        print!("{shown}");
        io::stdout().flush()?;
        seen += &shown;
        if !text.is_empty() {
            quiet = Instant::now();
        } else if quiet.elapsed() > PATIENCE {
            pending = format!("{line}\n").into_bytes();
            // A line that waits for an answer may take longer than output: a line that is typed twice is answered
            // twice.
            quiet += 2 * PATIENCE;
        }
        let typed = type_in(&mut side, &mut pending);
        side.rest(typed || !text.is_empty(), None, Some(Duration::from_millis(1)))?;
    }
    println!();
    side.close();
    Ok(())
}

fn readable(input: &impl AsFd) -> io::Result<bool> {
    let mut files = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut files, PollTimeout::ZERO)? > 0)
}

/// Takes the driver's output.
fn printed(side: &mut Side) -> Vec<u8> {
    let mut all = Vec::new();
    if take_printed(side, &mut all) == Err(Corrupted) {
        side.spoilt();
    }
    all
}

fn take_printed(side: &mut Side, all: &mut Vec<u8>) -> Result<(), Corrupted> {
    let Some(queue) = side.device.queue(OUTPUT) else { return Ok(()) };
    for _ in 0..ROUND {
        let Some(chain) = queue.take()? else { break };
        let mut piece = vec![0; chain.reads.len];
        // A part of a chain lies in its section.
        if let Some(bytes) = side.theirs.bytes(0, chain.reads.at + chain.reads.len) {
            bytes.read(chain.reads.at, &mut piece);
        }
        all.extend(piece);
        queue.used(&chain, 0);
        queue.tell();
        // A driver that never stops must not keep us from all else.
        if all.len() > 8 * PIECE {
            break;
        }
    }
    Ok(())
}

/// Gives the driver what was typed, as far as it takes it.
fn type_in(side: &mut Side, pending: &mut Vec<u8>) -> bool {
    match try_type(side, pending) {
        Ok(any) => any,
        Err(Corrupted) => {
            side.spoilt();
            false
        }
    }
}

fn try_type(side: &mut Side, pending: &mut Vec<u8>) -> Result<bool, Corrupted> {
    let Some(queue) = side.device.queue(INPUT) else { return Ok(false) };
    let mut any = false;
    while !pending.is_empty() {
        let Some(chain) = queue.take()? else { break };
        let len = chain.writes.len.min(pending.len());
        if let Some(bytes) = side.mine.bytes(0, chain.writes.at + chain.writes.len) {
            bytes.write(chain.writes.at, &pending[..len]);
        }
        pending.drain(..len);
        queue.used(&chain, len);
        queue.tell();
        any = true;
    }
    Ok(any)
}

/// A console that takes nothing, for so many milliseconds; then it is gone without a word.
pub fn deaf(channel: &str, millis: &str) -> io::Result<()> {
    let millis = millis.parse().map_err(|_| io::Error::other("so many milliseconds?"))?;
    let mut side = Side::open(channel, &OFFER)?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(millis) {
        side.attend();
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
