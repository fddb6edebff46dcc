//! The driver's side of a disk in another sandbox, without a module of ours. This program speaks with the device side
//! over the channel, and offers the disk to its own kernel by a driver that every kernel has.
//!
//! Requests without an answer are offered again when the device side begins anew, in their order
//! ([`bulkhead_virtio::disk`]). So an application sees a pause and no error, for as long as the limit allows.

mod far;
mod nbd;

use bulkhead_linux::run::done;
use bulkhead_linux::serve::hold;
use far::Far;
use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Time for a request, in seconds, without an option: the module's.
const LIMIT: u64 = 30;
/// Longest time until the kernel shows the disk.
const SHOWN: Duration = Duration::from_secs(10);

/// Options of the command line.
#[derive(Debug, PartialEq, Eq)]
struct Terms<'a> {
    /// Longest time of a request.
    limit: Duration,
    program: &'a [&'a str],
}

impl<'a> Terms<'a> {
    fn of(mut options: &'a [&'a str]) -> io::Result<Self> {
        let mut limit = LIMIT;
        loop {
            match options {
                ["--nbd", rest @ ..] => options = rest,
                ["--limit", seconds, rest @ ..] => {
                    let right = seconds.parse().ok().filter(|n| (1..=86_400).contains(n));
                    let why = || format!("--limit {seconds}: 1 to 86400 seconds");
                    limit = right.ok_or_else(|| io::Error::other(why()))?;
                    options = rest;
                }
                [option, ..] if option.starts_with('-') => {
                    return Err(io::Error::other(format!("{option}: no such option, or no value")));
                }
                program => return Ok(Self { limit: Duration::from_secs(limit), program }),
            }
        }
    }
}

/// Serves; see the crate's table.
pub fn run(channel: &str, options: &[&str]) -> io::Result<()> {
    let terms = Terms::of(options)?;
    hold()?;
    let of = |why: io::Error| io::Error::other(format!("{channel}: {why}"));
    let mut far = Far::open(channel, terms.limit)?;
    let info = far.meet().map_err(of)?;
    nbd::serve(far, &info, terms.program).map_err(of)
}

/// A disk that the kernel shows.
trait Shown: Send + Sync + 'static {
    /// Its file.
    fn path(&self) -> &Path;
    /// Asks the kernel to end it.
    fn end(&self) -> io::Result<()>;
}

/// Ends a disk at a signal. Called before other threads begin: they must not take the signals.
fn ends_at_signals(disk: Arc<impl Shown>) -> io::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block()?;
    thread::Builder::new().spawn(move || {
        if signals.wait().is_ok() {
            let _ = disk.end();
        }
    })?;
    Ok(())
}

/// Runs a program when the kernel shows the disk, and ends the disk with it.
fn accompany(disk: Arc<impl Shown>, program: &[&str]) -> Option<JoinHandle<io::Result<()>>> {
    let [program, arguments @ ..] = program else { return None };
    let mut command = Command::new(program);
    command.args(arguments).env("DISK", disk.path());
    Some(thread::spawn(move || {
        let ran = shown(disk.path()).and_then(|()| done(&mut command));
        disk.end()?;
        ran
    }))
}

/// Waits until a disk has a size.
fn shown(path: &Path) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default();
    let size = Path::new("/sys/block").join(name).join("size");
    let begun = Instant::now();
    while begun.elapsed() < SHOWN {
        let sectors =
            std::fs::read_to_string(&size).ok().and_then(|n| n.trim().parse::<u64>().ok());
        if sectors.is_some_and(|sectors| sectors > 0) {
            return Ok(());
        }
        sleep(Duration::from_millis(2));
    }
    let why = format!("the kernel does not show {} within {} s", path.display(), SHOWN.as_secs());
    Err(io::Error::new(io::ErrorKind::TimedOut, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_before_the_program() {
        let terms = Terms::of(&["--limit", "5", "--nbd", "sh", "-c", "true"]).unwrap();
        let program = &["sh", "-c", "true"][..];
        assert_eq!(terms, Terms { limit: Duration::from_secs(5), program });
        assert_eq!(Terms::of(&[]).unwrap().limit, Duration::from_secs(LIMIT));
        for wrong in [&["--limit"][..], &["--limit", "0"], &["--limit", "x"], &["-x", "sh"]] {
            assert!(Terms::of(wrong).is_err(), "{wrong:?}");
        }
    }
}
