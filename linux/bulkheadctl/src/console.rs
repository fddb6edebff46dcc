//! Consoles of other sandboxes. Their output stands in their reports. Typed lines go to them through a channel of
//! records, if there is one.

use crate::Wrong;
use crate::machine::Machine;
use bulkhead_channel::Stop;
use bulkhead_explain::Untrusted;
use bulkhead_linux::channel::named;
use bulkhead_linux::message::Sender;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::pty::openpty;
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::ttyname;
use std::fs::File;
use std::io::{BufRead, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// Behind a sandbox's name: the channel that takes what is typed, where none is named.
const KEYS: &str = "-keys";
/// Bytes of a line that is typed, at most.
const LINE: usize = 128;

/// Output of a sandbox.
struct Screen<'a> {
    machine: &'a Machine,
    index: usize,
    /// Bytes of each core's that were shown.
    seen: Vec<u64>,
    /// Bytes of each core's that wait for the rest of a letter.
    waiting: Vec<Untrusted>,
}

impl<'a> Screen<'a> {
    fn open(machine: &'a Machine, name: &str) -> Result<Self, Wrong> {
        let index = machine.index(name)?;
        if !machine.observes(index) {
            return Err(format!(
                "the console of `{name}` is not shown to `{0}`; `observe = [\"{name}\"]` in the manifest's [[sandbox]] `{0}` would",
                machine.info.name
            ));
        }
        Ok(Self { machine, index, seen: Vec::new(), waiting: Vec::new() })
    }

    /// Returns the output since the last look, at first all that is still there. It is another's, so what would control
    /// the terminal is escaped: only ends of lines come through.
    fn next(&mut self) -> String {
        let mut text = String::new();
        let Some(report) = self.machine.known(self.index).report else { return text };
        self.seen.resize(report.cores.len(), 0);
        self.waiting.resize_with(report.cores.len(), Untrusted::default);
        let cores = self.seen.iter_mut().zip(&mut self.waiting);
        for (core, (seen, waiting)) in report.cores.iter().zip(cores) {
            let (new, lost) = core.console_since(*seen);
            if lost > 0 && *seen > 0 {
                text += &format!("\n[{lost} bytes are lost]\n");
            }
            waiting.push(new.bytes());
            text += &waiting.take_settled().text();
            *seen = core.console_written;
        }
        text
    }
}

/// Where lines go that are typed for a sandbox; `None`: there is no such channel, and none was named.
fn keys(name: &str, channel: Option<&str>) -> Result<Option<Sender>, Wrong> {
    let usual = format!("{name}{KEYS}");
    let channel = channel.unwrap_or(&usual);
    if channel == usual && named(channel).is_err() {
        return Ok(None);
    }
    Sender::open(channel, 0).map(Some).map_err(|why| format!("{channel}: {why}"))
}

/// A line on its way.
struct Line {
    bytes: Vec<u8>,
    end: Instant,
    wait: Duration,
}

impl Line {
    fn new(bytes: Vec<u8>, wait: Duration) -> Self {
        Self { bytes, end: Instant::now() + wait, wait }
    }

    /// Sends it if there is room and somebody there; whether it has gone. An error once it has waited too long.
    fn send(&self, to: &mut Sender, name: &str) -> Result<bool, Wrong> {
        let seconds = self.wait.as_secs();
        match to.send(&self.bytes) {
            Ok(()) => Ok(true),
            Err(Stop::Wait | Stop::Apart | Stop::Lost | Stop::Left)
                if Instant::now() < self.end =>
            {
                Ok(false)
            }
            Err(Stop::Wait) => Err(format!("waited {seconds} s for `{name}` to take a line")),
            Err(Stop::Apart) => {
                Err(format!("waited {seconds} s for `{name}` to open its end of the channel"))
            }
            Err(stop) => Err(format!("the channel to `{name}`: {stop:?}")),
        }
    }
}

/// Lines of the standard input, from a thread of its own.
fn lines() -> Receiver<Vec<u8>> {
    let (to, from) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().split(b'\n').map_while(Result::ok) {
            if to.send([line, vec![b'\n']].concat()).is_err() {
                break;
            }
        }
    });
    from
}

/// Shows a sandbox's console and sends it the lines of the standard input, until that ends. If a text is given, it ends
/// when the console has shown it.
pub fn attach(
    machine: &Machine,
    name: &str,
    channel: Option<&str>,
    until: Option<&str>,
    wait: Duration,
) -> Result<String, Wrong> {
    let mut screen = Screen::open(machine, name)?;
    let mut to = keys(name, channel)?;
    let (typed, end) = (lines(), Instant::now() + wait);
    let (mut shown, mut open) = (Vec::new(), true);
    let mut out = std::io::stdout().lock();
    loop {
        let over = match typed.try_recv() {
            Ok(line) => {
                let to = to.as_mut().ok_or_else(|| {
                    format!("nothing takes lines for `{name}`: this sandbox has no channel `{name}{KEYS}`, and none was named")
                })?;
                let line = Line::new(line, wait);
                while !line.send(to, name)? {
                    sleep(Duration::from_millis(1));
                }
                continue;
            }
            Err(TryRecvError::Empty) => false,
            Err(TryRecvError::Disconnected) => !std::mem::replace(&mut open, false),
        };
        let text = screen.next();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|why| why.to_string())?;
        match until {
            None if over => return Ok(String::new()),
            None => {}
            Some(until) => {
                shown.extend(text.into_bytes());
                if shown.windows(until.len().max(1)).any(|part| part == until.as_bytes()) {
                    return Ok("\n".into());
                }
                if Instant::now() >= end {
                    return Err(format!(
                        "waited {} s for `{until}` on the console of `{name}`",
                        wait.as_secs()
                    ));
                }
            }
        }
        sleep(PAUSE);
    }
}

/// A sandbox's console as a terminal of this Linux.
struct Terminal<'a> {
    name: &'a str,
    screen: Screen<'a>,
    to: Option<Sender>,
    master: File,
    /// So that the master is a terminal's also while nobody has it open.
    _slave: OwnedFd,
    line: Vec<u8>,
    /// Typed, and not yet gone: keys wait meanwhile, other terminals do not.
    going: Option<Line>,
}

impl<'a> Terminal<'a> {
    fn open(machine: &'a Machine, name: &'a str, folder: &Path) -> Result<Self, Wrong> {
        let wrong = |why: &dyn std::fmt::Display| format!("a terminal for `{name}`: {why}");
        let pty = openpty(None, None).map_err(|why| wrong(&why))?;
        let mut raw = tcgetattr(&pty.slave).map_err(|why| wrong(&why))?;
        // Nothing is echoed by the kernel: it would echo the screen as keys.
        cfmakeraw(&mut raw);
        tcsetattr(&pty.slave, SetArg::TCSANOW, &raw).map_err(|why| wrong(&why))?;
        fcntl(&pty.master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|why| wrong(&why))?;
        let (device, link) = (ttyname(&pty.slave).map_err(|why| wrong(&why))?, folder.join(name));
        match std::fs::remove_file(&link) {
            Err(why) if why.kind() != ErrorKind::NotFound => {
                return Err(format!("{}: {why}", link.display()));
            }
            _ => {}
        }
        std::os::unix::fs::symlink(&device, &link)
            .map_err(|why| format!("{}: {why}", link.display()))?;
        let (screen, to) = (Screen::open(machine, name)?, keys(name, None)?);
        let master = File::from(pty.master);
        Ok(Self { name, screen, to, master, _slave: pty.slave, line: Vec::new(), going: None })
    }

    /// Writes for whoever has the terminal open; what nobody reads is lost.
    fn show(&mut self, bytes: &[u8]) {
        let _ = self.master.write_all(bytes);
    }

    /// Looks for new output on the console, and for typed lines.
    fn look(&mut self, wait: Duration) {
        for piece in self.screen.next().split_inclusive('\n') {
            match piece.strip_suffix('\n') {
                Some(line) => self.show(format!("{line}\r\n").as_bytes()),
                None => self.show(piece.as_bytes()),
            }
        }
        let mut byte = [0];
        while self.go() && self.master.read(&mut byte).is_ok_and(|len| len == 1) {
            self.key(byte[0], wait);
        }
    }

    /// Sends what was typed; whether nothing is on its way.
    fn go(&mut self) -> bool {
        let Some(line) = &self.going else { return true };
        let gone = match &mut self.to {
            Some(to) => line.send(to, self.name),
            None => Err(format!("this sandbox has no channel `{}{KEYS}`", self.name)),
        };
        if let Err(why) = &gone {
            self.show(format!("bulkheadctl: {why}\r\n").as_bytes());
        }
        let over = gone.unwrap_or(true);
        if over {
            self.going = None;
        }
        over
    }

    fn rub_out(&mut self) {
        if self.line.pop().is_some() {
            self.show(b"\x08 \x08");
        }
    }

    /// A key: it shows at once, and the line goes when it is whole.
    fn key(&mut self, byte: u8, wait: Duration) {
        match byte {
            b'\r' | b'\n' => {
                self.show(b"\r\n");
                let line = [std::mem::take(&mut self.line), vec![b'\n']].concat();
                self.going = Some(Line::new(line, wait));
            }
            8 | 127 => self.rub_out(),
            byte if self.line.len() < LINE => {
                self.line.push(byte);
                self.show(&[byte]);
            }
            _ => {}
        }
    }
}

/// A terminal for each sandbox that this one observes, `FOLDER/NAME`, for ever.
pub fn serve(machine: &Machine, folder: &str, wait: Duration) -> Result<String, Wrong> {
    let folder = Path::new(folder);
    std::fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let names = machine.info.sandboxes.iter().enumerate();
    let names = names.filter(|(n, _)| machine.observes(*n)).map(|(_, name)| name);
    let all: Result<Vec<_>, Wrong> =
        names.map(|name| Terminal::open(machine, name, folder)).collect();
    let mut all = all?;
    if all.is_empty() {
        return Err(format!(
            "the manifest shows `{0}` no console; `observe = [...]` in its [[sandbox]] `{0}` would",
            machine.info.name
        ));
    }
    for terminal in &all {
        println!("{}", folder.join(terminal.name).display());
    }
    loop {
        all.iter_mut().for_each(|terminal| terminal.look(wait));
        sleep(PAUSE);
    }
}
