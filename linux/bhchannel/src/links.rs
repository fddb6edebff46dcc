//! Channels made at run time, with lines as messages: the owner of the link sends, the other end receives.

use bulkhead_channel::Stop;
use bulkhead_channel::layout::Kind;
use bulkhead_linux::devmem::Info;
use bulkhead_linux::link::{self, Link, Links, Mapped, Phase};
use bulkhead_linux::message::Pause;
use std::io::{self, BufRead, Write};

/// One line for each link of this sandbox.
pub fn list() -> io::Result<()> {
    let info = Info::read()?;
    for link in &info.links {
        let state = info.state(link);
        let name = |index| info.sandboxes.get(index as usize).map_or("", String::as_str);
        let side = if link.mine { "sends" } else { "receives" };
        let to = name(state.to);
        let offer = match state.epoch {
            0 => "never offered".into(),
            epoch => format!("offer {epoch}, to {to}, tag {}", state.tag),
        };
        println!(
            "link {} of {} {side} {} bytes, {} here, {} there: {offer}",
            link.number,
            name(link.owner),
            link.size,
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
    io::Error::other("the link is too small for records")
}

/// Offers a link to a sandbox, sends each line of the input, and closes when the other end has closed.
pub fn offer(to: &str, tag: u16) -> io::Result<()> {
    let info = Info::read()?;
    let mapped = Mapped::offer(&info, info.sandbox(to)?, tag)?;
    println!("bhchannel: link {} is offered to {to}", mapped.link().number);
    send(&mapped)?;
    wait(|| Ok((info.state(mapped.link()).other == Phase::Gone).then_some(())))?;
    mapped.close()
}

fn send(mapped: &Mapped<'_>) -> io::Result<()> {
    let pair = mapped.pair(Kind::Records, 0).ok_or(()).map_err(misfit)?;
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
    let mapped = wait(|| {
        for link in info.offers().filter(|link| link.owner as usize == owner) {
            let state = info.state(&link);
            if state.tag == tag {
                // It may have been taken back meanwhile.
                return Ok(Mapped::accept(&info, &link, state.epoch).ok());
            }
        }
        Ok(None)
    })?;
    receive(&mapped, count)?;
    mapped.close()
}

fn receive(mapped: &Mapped<'_>, count: usize) -> io::Result<()> {
    let pair = mapped.pair(Kind::Records, 0).ok_or(()).map_err(misfit)?;
    let mut end = pair.receive_records().map_err(misfit)?;
    let mut buffer = vec![0; mapped.link().size as usize];
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

/// Closes a link that a process has left open that is no more.
pub fn close(number: u32) -> io::Result<()> {
    let none = || io::Error::other(format!("this sandbox has no link {number}"));
    let info = Info::read()?;
    let link: &Link = info.links.iter().find(|link| link.number == number).ok_or_else(none)?;
    // Closed under it, it would be this sandbox's end.
    match link::users(link)?[..] {
        [] => link::close(&info, link),
        [id, ..] => Err(io::Error::other(format!("process {id} uses link {number}; end it first"))),
    }
}
