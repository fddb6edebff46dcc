//! Bochs' debugger. It reads commands from a named pipe in place of a file, so that it waits for the next one whenever
//! the machine stands. SIGINT stops the machine between two instructions.

use crate::bochs::CONSOLE;
use crate::{Error, Running};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Limit of an answer: a busy host has other work.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(2);
/// Command that lets the machine run.
const GO: &str = "c\n";

/// The debugger of a machine that stands. Dropped, it lets the machine stand.
#[derive(Debug)]
pub struct Debugger {
    commands: File,
    console: PathBuf,
}

/// Makes the pipe for a debugger's commands, with the command to go in it.
pub(crate) fn pipe(path: &Path) -> Result<File, Error> {
    // One of an earlier run, or a file.
    let _ = std::fs::remove_file(path);
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).map_err(|error| Error::io(path)(error.into()))?;
    // Read as well, so that opening waits for nobody and the pipe never ends.
    let mut pipe = File::options().read(true).write(true).open(path).map_err(Error::io(path))?;
    pipe.write_all(GO.as_bytes()).map_err(Error::io(path))?;
    Ok(pipe)
}

impl Debugger {
    /// Stops a machine.
    pub fn stop(running: &Running) -> Result<Self, Error> {
        let none = || Error::Qmp("stop".into(), "this emulator has no debugger".into());
        let commands = running.commands().ok_or_else(none)?;
        let commands = commands.try_clone().map_err(Error::io(running.dir()))?;
        let mut debugger = Self { commands, console: running.dir().join(CONSOLE) };
        let process = Pid::from_raw(running.id().cast_signed());
        let failed = |error: nix::Error| Error::Qmp("SIGINT".into(), error.to_string());
        kill(process, Signal::SIGINT).map_err(failed)?;
        // It stands as soon as it answers.
        debugger.ask("")?;
        Ok(debugger)
    }

    /// Executes a command and returns what it prints. A number that no guest can know ends the answer.
    pub fn ask(&mut self, command: &str) -> Result<String, Error> {
        let mark = (RandomState::new().hash_one(command) >> 2 | 1 << 60).to_string();
        let from = std::fs::metadata(&self.console).map_err(Error::io(&self.console))?.len();
        let lines = match command {
            // An empty line repeats the last command.
            "" => format!("? {mark}\n"),
            _ => format!("{command}\n? {mark}\n"),
        };
        self.commands.write_all(lines.as_bytes()).map_err(Error::io(&self.console))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = self.said(from).map_err(Error::io(&self.console))?;
            if let Some(end) = said.find(&mark) {
                return Ok(said[..end].to_owned());
            }
            if Instant::now() > deadline {
                return Err(Error::Qmp(command.into(), format!("no answer of Bochs: {said}")));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Lets the machine run.
    pub fn go(mut self) -> Result<(), Error> {
        self.commands.write_all(GO.as_bytes()).map_err(Error::io(&self.console))
    }

    fn said(&self, from: u64) -> std::io::Result<String> {
        let mut file = File::open(&self.console)?;
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
