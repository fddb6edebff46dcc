//! The driver's side of a disk in another sandbox, without a module of ours. This program speaks with the device side
//! over the channel. It offers the disk to its own kernel by `nbd` or `ublk`.
//!
//! Requests without an answer are offered again when the device side begins anew, in their order
//! ([`bulkhead_virtio::disk`]). So an application sees a pause and no error, for as long as the limit allows.

mod far;
mod nbd;
mod ublk;

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

/// Driver of the kernel that shows the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Nbd,
    Ublk,
}

/// Options of the command line.
#[derive(Debug, PartialEq, Eq)]
struct Terms<'a> {
    /// `None`: ublk, where this kernel has it.
    way: Option<Way>,
    /// Longest time of a request.
    limit: Duration,
    program: &'a [&'a str],
}

impl<'a> Terms<'a> {
    fn of(mut options: &'a [&'a str]) -> io::Result<Self> {
        let (mut way, mut limit) = (None, LIMIT);
        loop {
            match options {
                ["--nbd", rest @ ..] => (way, options) = (Some(Way::Nbd), rest),
                ["--ublk", rest @ ..] => (way, options) = (Some(Way::Ublk), rest),
                ["--limit", seconds, rest @ ..] => {
                    let right = seconds.parse().ok().filter(|n| (1..=86_400).contains(n));
                    let why = || format!("--limit {seconds}: 1 to 86400 seconds");
                    limit = right.ok_or_else(|| io::Error::other(why()))?;
                    options = rest;
                }
                [option, ..] if option.starts_with('-') => {
                    return Err(io::Error::other(format!("{option}: no such option, or no value")));
                }
                program => {
                    let limit = Duration::from_secs(limit);
                    return Ok(Self { way, limit, program });
                }
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
    let way = terms.way.unwrap_or_else(|| match bulkhead_linux::ublk::Device::is_there() {
        true => Way::Ublk,
        false => Way::Nbd,
    });
    match way {
        Way::Nbd => nbd::serve(far, &info, terms.program).map_err(of),
        Way::Ublk if !bulkhead_linux::ublk::Device::is_there() => {
            Err(of(io::Error::other("this kernel has no ublk; --nbd works with each")))
        }
        Way::Ublk => ublk::serve(far, &info, terms.program).map_err(of),
    }
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
        // The disk ends with the program, and the program with the disk: it sees errors then.
        let ran = shown(disk.path()).and_then(|()| done(&mut command));
        disk.end()?;
        ran
    }))
}

/// Ends of a disk's threads.
struct Ends {
    /// Ends of requests, of the kernel's driver, and of the program.
    served: io::Result<()>,
    carried: JoinHandle<io::Result<()>>,
    ran: Option<JoinHandle<io::Result<()>>>,
}

impl Ends {
    /// Waits for all; the first failure counts.
    fn all(self) -> io::Result<()> {
        let panicked = |_| io::Error::other("a thread panicked");
        let carried = self.carried.join().map_err(panicked)?;
        let ran = self.ran.map(|ran| ran.join().map_err(panicked)?);
        self.served.and(ran.unwrap_or(carried))
    }
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
        assert_eq!(terms, Terms { way: Some(Way::Nbd), limit: Duration::from_secs(5), program });
        let limit = Duration::from_secs(LIMIT);
        assert_eq!(Terms::of(&[]).unwrap(), Terms { way: None, limit, program: &[] });
        for wrong in [&["--limit"][..], &["--limit", "0"], &["--limit", "x"], &["-x", "sh"]] {
            assert!(Terms::of(wrong).is_err(), "{wrong:?}");
        }
    }
}
