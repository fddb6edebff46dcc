//! Channels made at run time, with lines as messages: the owner of the slot sends, the other end receives.

use bulkhead_channel::Stop;
use bulkhead_channel::layout::Kind;
use bulkhead_linux::devmem::Info;
use bulkhead_linux::link::{self, Link, Phase, Slot, Slots};
use bulkhead_linux::message::Pause;
use std::io::{self, BufRead, Write};

/// One line for each slot of this sandbox.
pub fn list() -> io::Result<()> {
    let info = Info::read()?;
    for slot in &info.slots {
        let state = info.state(slot);
        let name = |index| info.sandboxes.get(index as usize).map_or("", String::as_str);
        let side = if slot.mine { "sends" } else { "receives" };
        let to = name(state.to);
        let offer = match state.epoch {
            0 => "never offered".into(),
            epoch => format!("offer {epoch}, to {to}, tag {}", state.tag),
        };
        println!(
            "slot {} of {} {side} {} bytes, {} here, {} there: {offer}",
            slot.number,
            name(slot.owner),
            slot.size,
            phase(state.own),
            phase(state.other)
        );
    }
    Ok(())
}

const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "idle",
        Phase::Gone => "gone",
        Phase::Open => "open",
        Phase::Changing => "changing",
    }
}

fn stopped(stop: Stop) -> io::Error {
    let what = match stop {
        Stop::Left | Stop::Lost => "the other end has left".into(),
        stop => format!("{stop:?}"),
    };
    io::Error::other(what)
}

/// Looks again and again, until there is something.
fn wait<T>(mut look: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    let mut pause = Pause::default();
    loop {
        match look()? {
            Some(found) => return Ok(found),
            None => pause.wait(None),
        }
    }
}

/// Waits for a result of an end.
fn until<T>(mut look: impl FnMut() -> Result<T, Stop>) -> Result<T, Stop> {
    let mut pause = Pause::default();
    loop {
        match look() {
            Err(Stop::Wait | Stop::Apart) => pause.wait(None),
            done => return done,
        }
    }
}

fn misfit<T>(_: T) -> io::Error {
    io::Error::other("the slot is too small for records")
}

/// Offers a slot to a sandbox, sends each line of the input, and closes when the other end has closed.
pub fn offer(to: &str, tag: u16) -> io::Result<()> {
    let info = Info::read()?;
    let link = Link::offer(&info, info.sandbox(to)?, tag)?;
    println!("bhchannel: slot {} is offered to {to}", link.slot().number);
    send(&link)?;
    wait(|| Ok((info.state(link.slot()).other == Phase::Gone).then_some(())))?;
    link.close()
}

fn send(link: &Link<'_>) -> io::Result<()> {
    let pair = link.pair(Kind::Records, 0).ok_or(()).map_err(misfit)?;
    let mut end = pair.send_records().map_err(misfit)?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        until(|| end.send(line.as_bytes())).map_err(stopped)?;
    }
    end.close();
    Ok(())
}

/// Waits for an offer with this tag, accepts it, and prints so many messages, each as a line, or all until the other
/// end leaves.
pub fn accept(from: &str, tag: u16, count: usize) -> io::Result<()> {
    let info = Info::read()?;
    let owner = info.sandbox(from)?;
    let link = wait(|| {
        for slot in info.offers().filter(|slot| slot.owner as usize == owner) {
            let state = info.state(&slot);
            if state.tag == tag {
                // It may have been taken back meanwhile.
                return Ok(Link::accept(&info, &slot, state.epoch).ok());
            }
        }
        Ok(None)
    })?;
    receive(&link, count)?;
    link.close()
}

fn receive(link: &Link<'_>, count: usize) -> io::Result<()> {
    let pair = link.pair(Kind::Records, 0).ok_or(()).map_err(misfit)?;
    let mut end = pair.receive_records().map_err(misfit)?;
    let mut buffer = vec![0; link.slot().size as usize];
    let mut out = io::stdout().lock();
    for _ in 0..count {
        let len = match until(|| end.receive(&mut buffer)) {
            Ok(len) => len,
            Err(Stop::Left) => return Ok(()),
            Err(stop) => return Err(stopped(stop)),
        };
        out.write_all(&buffer[..len])?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    end.close();
    Ok(())
}

/// Closes a slot that a process has left open that is no more.
pub fn close(number: u32) -> io::Result<()> {
    let none = || io::Error::other(format!("this sandbox has no slot {number}"));
    let info = Info::read()?;
    let slot: &Slot = info.slots.iter().find(|slot| slot.number == number).ok_or_else(none)?;
    // Closed under it, it would be this sandbox's end.
    match link::users(slot)?[..] {
        [] => link::close(&info, slot),
        [id, ..] => Err(io::Error::other(format!("process {id} uses slot {number}; end it first"))),
    }
}
