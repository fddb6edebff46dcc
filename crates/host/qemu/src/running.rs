//! A machine that runs.

use crate::{Counts, Error, Qmp, Ram, bochs};
use bulkhead_untrusted::Untrusted;
use serde_json::json;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// How often a wait looks.
const POLL: Duration = Duration::from_millis(5);
/// How long QEMU may take to end once told.
const QUIT: Duration = Duration::from_secs(10);
/// Bytes of a log that are looked at, at most.
pub const KEPT: u64 = 1 << 20;
/// Lines of each log in an error.
const TAIL: usize = 12;

/// Emulator of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// QEMU.
    Qemu,
    /// Bochs.
    Bochs,
}

/// See the module. The emulator ends with the value.
#[derive(Debug)]
pub struct Running {
    kind: Kind,
    child: Child,
    dir: PathBuf,
    ram: Ram,
    /// Where Bochs' debugger reads its commands.
    commands: Option<File>,
}

impl Running {
    pub(crate) fn new(kind: Kind, child: Child, dir: PathBuf, ram: Ram) -> Self {
        Self { kind, child, dir, ram, commands: None }
    }

    pub(crate) fn with(mut self, commands: File) -> Self {
        self.commands = Some(commands);
        self
    }

    pub(crate) fn commands(&self) -> Option<&File> {
        self.commands.as_ref()
    }

    /// Returns its emulator.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns its RAM.
    #[must_use]
    pub fn ram(&self) -> &Ram {
        &self.ram
    }

    /// Returns its folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Process number of the emulator.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the text on the debug console so far.
    #[must_use]
    pub fn console(&self) -> Untrusted {
        text(&self.dir.join(self.logs()[1]))
    }

    /// Waits for a text on the debug console.
    pub fn wait_for(&mut self, needle: &str, limit: Duration) -> Result<Untrusted, Error> {
        let what = format!("{needle:?} on the debug console");
        self.wait(&what, limit, |running| {
            Some(running.console()).filter(|seen| seen.contains(needle))
        })
    }

    /// Waits for a text on a serial port.
    pub fn wait_serial(
        &mut self,
        n: usize,
        needle: &str,
        limit: Duration,
    ) -> Result<Untrusted, Error> {
        let what = format!("{needle:?} on serial port {n}");
        self.wait(&what, limit, |running| {
            Some(running.serial(n)).filter(|seen| seen.contains(needle))
        })
    }

    /// Files of the emulator's own messages, of the debug console, and others.
    fn logs(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Qemu => &["qemu.log", "console.log"],
            Kind::Bochs => &[bochs::ERRORS, bochs::CONSOLE, "bochs.log"],
        }
    }

    /// Returns the bytes that a serial port sent so far: the last [`KEPT`] bytes of [`Self::serial_path`].
    #[must_use]
    pub fn serial(&self, n: usize) -> Untrusted {
        text(&self.serial_path(n))
    }

    /// Returns the file with all that a serial port sent.
    #[must_use]
    pub fn serial_path(&self, n: usize) -> PathBuf {
        self.dir.join(format!("serial{n}.log"))
    }

    /// Returns a connection to QEMU's monitor.
    pub fn qmp(&self) -> Result<Qmp, Error> {
        Qmp::connect(&self.dir.join("qmp.sock"))
    }

    /// Looks again and again until there is something, at most for `limit`.
    pub fn wait<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T, Error> {
        let deadline = Instant::now() + limit;
        loop {
            // Asked first: what a machine did before it ended still counts.
            let ended = self.ended()?;
            if let Some(found) = look(self) {
                return Ok(found);
            }
            if let Some(status) = ended {
                let (what, status) = (what.to_owned(), status.to_string());
                return Err(Error::Ended { what, status, tail: self.tail() });
            }
            if Instant::now() > deadline {
                return Err(self.timed_out(what, limit));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Waits until the machine ends by itself.
    pub fn wait_end(&mut self, what: &str, limit: Duration) -> Result<ExitStatus, Error> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(self.timed_out(what, limit));
            }
            std::thread::sleep(POLL);
        }
    }

    fn timed_out(&self, what: &str, limit: Duration) -> Error {
        Error::TimedOut { what: what.to_owned(), limit, tail: self.tail() + &self.cores() }
    }

    /// Returns a line for each core of QEMU: where it is, or that QEMU does not answer.
    fn cores(&self) -> String {
        if self.kind == Kind::Bochs {
            return String::new();
        }
        match self.qmp().and_then(|mut qmp| qmp.ask("info registers -a")) {
            Ok(registers) => places(&registers),
            Err(error) => format!("  cores: {error}\n"),
        }
    }

    /// Returns how it ended, if it did.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.child.try_wait().map_err(Error::io(&self.dir))
    }

    /// Ends QEMU in good order, so that the plugin writes its counts. Bochs leaves nothing behind: it is killed.
    pub fn quit(&mut self) -> Result<(), Error> {
        if self.ended()?.is_some() {
            return Ok(());
        }
        if self.kind == Kind::Bochs {
            self.child.kill().map_err(Error::io(&self.dir))?;
            return self.child.wait().map_err(Error::io(&self.dir)).map(|_| ());
        }
        // QEMU may be gone before it answers.
        let _ = self.qmp().and_then(|mut qmp| qmp.execute("quit", json!({})));
        self.wait_end("QEMU to quit", QUIT).map(|_| ())
    }

    /// Reads the plugin's counts at the last `DUMP` marker, or at QEMU's end.
    pub fn counts(&self) -> Result<Counts, Error> {
        Counts::read(&self.dir.join("counts.json"))
    }

    /// Reads the plugin's counts at each `DUMP` marker so far.
    pub fn dumped(&self) -> Result<Vec<Counts>, Error> {
        crate::machine::dumps(&self.dir).map(|path| Counts::read(&path)).collect()
    }

    /// Returns the likely cause, by the emulator's log.
    #[must_use]
    pub fn cause(&self) -> Option<String> {
        match self.kind {
            Kind::Qemu => crate::cause::of(&text(&self.dir.join("qemu.log")).text()),
            Kind::Bochs => panic(&text(&self.dir.join("bochs.log")).text()),
        }
    }

    /// Returns the likely cause, if there is one, and the last lines of all logs.
    #[must_use]
    pub fn tail(&self) -> String {
        let mut out = self.cause().map_or_else(String::new, |cause| format!("  {cause}\n"));
        for name in self.logs().iter().chain(&["serial0.log", "serial1.log"]) {
            out += &tail(name, &text(&self.dir.join(name)));
        }
        out
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already ended: nothing to do, nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the lines of QEMU's register dump that tell where cores are: `CPU#0`, `RIP=... CPL=0 ... HLT=1`.
fn places(registers: &str) -> String {
    let mut out = String::new();
    let mut core = "";
    for line in registers.lines().map(str::trim) {
        if line.starts_with("CPU#") {
            core = line;
        } else if line.starts_with("RIP=") || line.starts_with("EIP=") {
            out += &format!("  {core}: {line}\n");
        }
    }
    out
}

/// Returns the line of Bochs' log with the reason of its end: `00000000000p[CPU0  ] >>PANIC<< ...`.
fn panic(log: &str) -> Option<String> {
    let line = log.lines().find(|line| line.contains(">>PANIC<<"))?;
    Some(format!("the emulator gave up: {}", line.trim()))
}

/// Returns the last [`KEPT`] bytes of a log: a guest writes as much as it likes.
pub(crate) fn text(path: &Path) -> Untrusted {
    let read = || {
        let mut file = File::open(path)?;
        let from = file.metadata()?.len().saturating_sub(KEPT);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(KEPT).read_to_end(&mut bytes).map(|_| bytes)
    };
    Untrusted::new(read().unwrap_or_default())
}

/// Warnings that QEMU always prints: of CPU flags, and of a network that only keeps time.
pub(crate) fn noise(line: &str) -> bool {
    line.contains("warning: TCG doesn't support") || line.contains("has no peer")
}

/// Returns the last lines of a log, but for [`noise`].
pub(crate) fn tail(name: &str, text: &Untrusted) -> String {
    let lines: Vec<String> = text.lines().filter(|line| !noise(line)).collect();
    let from = lines.len().saturating_sub(TAIL);
    lines[from..].iter().map(|line| format!("  {name}: {}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_told_by_their_instruction_pointers() {
        let dump = "\r\nCPU#0\r\nRAX=00 RBX=01\r\nRIP=ffff8000 RFL=00000246 CPL=0 HLT=1\r\nES =0000\r\n\r\nCPU#1\r\nEIP=0000fff0 HLT=0\r\n";
        let told = "  CPU#0: RIP=ffff8000 RFL=00000246 CPL=0 HLT=1\n  CPU#1: EIP=0000fff0 HLT=0\n";
        assert_eq!(places(dump), told);
    }

    #[test]
    fn a_tail_is_short_and_without_noise() {
        let mut log = "a: warning: TCG doesn't support requested feature\n".to_owned();
        (0..100).for_each(|n| log += &format!("line {n}\r\n"));
        let tail = tail("x", &Untrusted::new(log));
        assert_eq!(tail.lines().count(), TAIL);
        assert!(tail.ends_with("  x: line 99\n"));
    }
}
