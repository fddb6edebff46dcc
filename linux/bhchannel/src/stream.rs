//! Bytes through channels: lines on the command line, a terminal, a network. All of it is two loops, each in a thread
//! of its own. One reads and sends into a channel; the other receives from the second channel and writes.

use bulkhead_channel::Stop;
use bulkhead_linux::message::{Receiver, Sender};
use bulkhead_linux::terminal;
use bulkhead_untrusted::Untrusted;
use nix::pty::openpty;
use std::fs::File;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a terminal that go as one message.
const PIECE: usize = 1024;
/// Longest wait for an answer: the other end's Linux may have to boot.
const LIMIT: Duration = Duration::from_secs(120);

fn stopped(what: &str) -> impl Fn(Stop) -> io::Error {
    move |stop| io::Error::other(format!("{what}: {stop:?}"))
}

/// Reports the peer's fate on standard error.
fn tell(name: &str) -> impl Fn(Stop) {
    move |stop| eprintln!("bhchannel: {name}: {stop:?}")
}

/// Each line of the input as a message.
pub fn send(name: &str) -> io::Result<()> {
    let mut sender = Sender::open(name, 0)?;
    for line in io::stdin().lock().lines() {
        sender.send_all(line?.as_bytes(), tell(name)).map_err(stopped(name))?;
    }
    Ok(())
}

/// Prints so many messages, each as a line.
pub fn receive(name: &str, count: usize) -> io::Result<()> {
    let mut receiver = Receiver::open(name)?;
    let mut buffer = vec![0; receiver.longest()];
    let mut out = io::stdout().lock();
    for _ in 0..count {
        let len = receiver.receive_one(&mut buffer, tell(name));
        let message = &buffer[..len];
        let end = message.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        out.write_all(&message[..end])?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}

/// Sends all that it reads into a channel.
fn into(mut from: impl Read, mut to: Sender, most: usize) -> io::Result<()> {
    let mut buffer = vec![0; most];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(len) => to
                .send_all(&buffer[..len], |stop| eprintln!("bhchannel: {stop:?}"))
                .map_err(stopped("the channel"))?,
            Err(why) if why.kind() == ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
}

/// Writes all that comes out of a channel, for ever.
fn out_of(mut from: Receiver, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; from.longest()];
    loop {
        let len = from.receive_one(&mut buffer, |stop| eprintln!("bhchannel: {stop:?}"));
        to.write_all(&buffer[..len])?;
        to.flush()?;
    }
}

/// Both ways at once; it ends with the input, or with a write that fails.
fn both(
    [to, from]: [&str; 2],
    reads: impl Read + Send + 'static,
    writes: impl Write + Send + 'static,
    most: usize,
) -> io::Result<()> {
    let (sender, receiver) = (Sender::open(to, 0)?, Receiver::open(from)?);
    let (done, end) = std::sync::mpsc::channel();
    let other = done.clone();
    thread::spawn(move || done.send(into(reads, sender, most)));
    thread::spawn(move || other.send(out_of(receiver, writes)));
    end.recv().unwrap_or(Ok(()))
}

/// This terminal (or input and output) at the other end's.
pub fn attach(to: &str, from: &str) -> io::Result<()> {
    terminal::raw(|| both([to, from], io::stdin(), io::stdout(), PIECE))
}

/// Types a line at the other end's terminal and shows the output, until the answer is in it.
pub fn ask(to: &str, from: &str, line: &str, answer: &str) -> io::Result<()> {
    let (mut sender, mut receiver) = (Sender::open(to, 0)?, Receiver::open(from)?);
    let end = Instant::now() + LIMIT;
    let left = || end.saturating_duration_since(Instant::now());
    let late = |what: &str| io::Error::other(format!("waited {} s for {what}", LIMIT.as_secs()));
    let typed = format!("{line}\n");
    loop {
        match sender.send_within(typed.as_bytes(), left()) {
            Ok(()) => break,
            Err(Stop::Wait | Stop::Apart) => return Err(late(&format!("{to} to take the line"))),
            Err(stop @ (Stop::Lost | Stop::Left)) => tell(to)(stop),
            Err(stop) => return Err(stopped(to)(stop)),
        }
    }
    let (mut buffer, mut seen) = (vec![0; receiver.longest()], String::new());
    while !seen.contains(answer) {
        match receiver.receive_within(&mut buffer, Some(left())) {
            Ok(len) => {
                let text = Untrusted::new(&buffer[..len]).text();
                print!("{text}");
                seen += &text;
            }
            Err(Stop::Wait | Stop::Apart) => return Err(late(&format!("`{answer}` from {from}"))),
            Err(stop @ (Stop::Lost | Stop::Left)) => tell(from)(stop),
            Err(stop) => return Err(stopped(from)(stop)),
        }
    }
    println!();
    Ok(())
}

/// Runs a program, by default a shell, on a pseudo-terminal; the channels are its other side.
pub fn serve(to: &str, from: &str, command: &[&str]) -> io::Result<()> {
    let pty = openpty(None, None)?;
    let slave = |file: &std::os::fd::OwnedFd| file.try_clone().map(Stdio::from);
    let shell: &[&str] = if command.is_empty() { &["sh", "-i"] } else { command };
    let mut child = Command::new("setsid")
        .arg("-c")
        .args(shell)
        .stdin(slave(&pty.slave)?)
        .stdout(slave(&pty.slave)?)
        .stderr(slave(&pty.slave)?)
        .spawn()?;
    // Without it the master reads an error once the program has ended, and not before.
    drop(pty.slave);
    let master = File::from(pty.master);
    let done = both([to, from], master.try_clone()?, master, PIECE);
    match done {
        // A terminal that no program has open any more.
        Err(why) if why.raw_os_error() == Some(nix::libc::EIO) => {}
        done => done?,
    }
    child.wait().map(drop)
}
