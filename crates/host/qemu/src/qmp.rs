//! QEMU's monitor protocol, as far as stopping and ending need it.

use crate::Error;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long QEMU may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection.
#[derive(Debug)]
pub struct Qmp {
    reader: BufReader<UnixStream>,
}

impl Qmp {
    /// Connects as soon as the socket is there.
    pub fn connect(socket: &Path) -> Result<Self, Error> {
        let deadline = Instant::now() + PATIENCE;
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > deadline => return Err(Error::io(socket)(error)),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        stream.set_read_timeout(Some(PATIENCE)).map_err(Error::io(socket))?;
        let mut qmp = Self { reader: BufReader::new(stream) };
        qmp.answer("greeting", |line| line.get("QMP").is_some())?;
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs a command and returns what it returns.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, Error> {
        let line = format!("{}\n", json!({"execute": command, "arguments": arguments}));
        let sent = self.reader.get_mut().write_all(line.as_bytes());
        sent.map_err(|error| Error::Qmp(command.into(), error.to_string()))?;
        let answer = self
            .answer(command, |line| line.get("return").is_some() || line.get("error").is_some())?;
        match answer.get("error") {
            Some(error) => Err(Error::Qmp(command.into(), error.to_string())),
            None => Ok(answer["return"].clone()),
        }
    }

    /// Returns the answer of the monitor for people to a command.
    pub fn ask(&mut self, line: &str) -> Result<String, Error> {
        let said = self.execute("human-monitor-command", json!({"command-line": line}))?;
        match said.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(Error::Qmp(line.into(), format!("no text: {said}"))),
        }
    }

    /// Sends the interrupt that no core can mask to all cores with a monitor that listens for it.
    pub fn wake(&mut self) -> Result<(), Error> {
        self.execute("inject-nmi", json!({})).map(|_| ())
    }

    /// Returns the next line that is what we want; events in between are dropped.
    fn answer(&mut self, to: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value, Error> {
        let failed = |why: String| Error::Qmp(to.into(), why);
        loop {
            let mut line = String::new();
            let read = self.reader.read_line(&mut line);
            if read.map_err(|error| failed(error.to_string()))? == 0 {
                return Err(failed("connection closed".into()));
            }
            let value: Value =
                serde_json::from_str(&line).map_err(|error| failed(error.to_string()))?;
            if wanted(&value) {
                return Ok(value);
            }
        }
    }
}
