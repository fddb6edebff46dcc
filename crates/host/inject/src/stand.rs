//! A machine that stops at an instruction and stands, while its memory is read and written. Two sockets lead to it: the
//! plugin's, which stops it, and that of QEMU's `-qtest`. The latter sends interrupts, and writes memory so that QEMU
//! forgets its translation.

use crate::{Error, Result, System, other};
use bulkhead_qemu::{Plugin, Ram, Running, Time};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest time of the host for an answer. All cores that sleep for ever take longer than any.
const PATIENCE: Duration = Duration::from_secs(30);
/// And for each instruction to a stop.
const EACH: Duration = Duration::from_micros(1);
/// Where interrupts are sent to a core by its identity (SDM volume 3, 11.11.1).
const MESSAGES: u64 = 0xFEE0_0000;

/// Where a machine stops: at the first instruction that fits.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    /// Number of the instruction, at the earliest.
    pub at: u64,
    /// Core of the machine; `None`: any.
    pub core: Option<usize>,
    /// Physical addresses of the instruction.
    pub text: (u64, u64),
    /// From this number on any instruction fits.
    pub latest: u64,
    /// Privilege level; `None`: any.
    pub ring: Option<u8>,
    /// Instructions that fit and are let go by.
    pub skip: u64,
}

impl Stop {
    /// A stop at an instruction of any core.
    #[must_use]
    pub const fn any(at: u64) -> Self {
        Self { at, core: None, text: (0, u64::MAX), latest: u64::MAX, ring: None, skip: 0 }
    }

    /// Tells if the machine stands where it was to, and not because it has come so far.
    #[must_use]
    pub fn is_met(&self, at: At) -> bool {
        let inside = (self.text.0..self.text.1).contains(&at.pa);
        self.core.is_none_or(|core| core == at.core) && inside
    }
}

/// A machine that stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Number of the instruction that is about to run.
    pub number: u64,
    /// Its core.
    pub core: usize,
    /// Its physical address.
    pub pa: u64,
    /// Root of its core's page tables.
    pub root: u64,
}

/// How a machine comes to its next stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// It stands.
    At(At),
    /// No core runs any more.
    Idle,
    /// The emulator has ended.
    Ended,
}

impl Came {
    /// Where it stands, if it does.
    #[must_use]
    pub const fn at(self) -> Option<At> {
        match self {
            Self::At(at) => Some(at),
            _ => None,
        }
    }
}

/// See the module. The machine ends with the value.
pub struct Stand {
    running: Running,
    control: BufReader<UnixStream>,
    test: Option<BufReader<UnixStream>>,
    /// Number of the instruction at which it stands.
    number: u64,
}

impl Stand {
    /// Starts a system's machine; it has not run yet.
    ///
    /// # Errors
    /// Files and sockets of the folder; an emulator that does not start.
    pub fn start(system: &System, dir: &Path) -> Result<Self> {
        let io = |error: std::io::Error| Error::Other(format!("{}: {error}", dir.display()));
        std::fs::create_dir_all(dir).map_err(io)?;
        // Sockets have short names only, and folders have long ones.
        let dir = dir.canonicalize().map_err(io)?;
        let (control, test) = (dir.join("control.sock"), dir.join("test.sock"));
        for stale in [&control, &test] {
            let _ = std::fs::remove_file(stale);
        }
        let listener = UnixListener::bind(&control).map_err(io)?;
        listener.set_nonblocking(true).map_err(io)?;
        let image = dir.join("image");
        std::fs::write(&image, &system.baked.bytes).map_err(io)?;
        let mut machine = bulkhead_run::emulated(&system.baked.plan, Time::coarse(), false, &dir);
        machine.kernel = Some(image);
        let library = system.plugin.clone();
        machine.plugin = Some(Plugin { library, control: Some(control), ..Plugin::default() });
        let qtest = format!("unix:{},server=on,wait=off", test.display());
        let more = ["-qtest", &qtest, "-qtest-log", "/dev/null"];
        machine.args.extend(more.map(str::to_owned));
        let mut running = machine.start()?;
        let control = accept(&listener, &mut running)?;
        control.set_nonblocking(false).map_err(io)?;
        control.set_read_timeout(Some(PATIENCE)).map_err(io)?;
        Ok(Self { running, control: BufReader::new(control), test: None, number: 0 })
    }

    /// The machine's memory.
    #[must_use]
    pub fn ram(&self) -> &Ram {
        self.running.ram()
    }

    /// Lets it go on to a stop.
    ///
    /// # Errors
    /// The plugin does not understand, which is a fault of ours.
    pub fn go(&mut self, stop: Stop) -> Result<Came> {
        let core = stop.core.map_or("any".into(), |core| core.to_string());
        let ring = stop.ring.map_or("any".into(), |ring| ring.to_string());
        let Stop { at, text, latest, skip, .. } = stop;
        let line = format!("stop {at} {core} {:#x} {:#x} {latest} {ring} {skip}", text.0, text.1);
        if self.ask(&line)?.is_none() {
            return Ok(Came::Ended);
        }
        let way = u32::try_from(at.saturating_sub(self.number)).unwrap_or(u32::MAX);
        let patience = self.control.get_ref().set_read_timeout(Some(PATIENCE + EACH * way));
        if patience.is_err() || writeln!(self.control.get_mut(), "go").is_err() {
            return Ok(Came::Ended);
        }
        let mut line = String::new();
        match self.control.read_line(&mut line) {
            Ok(0) => Ok(Came::Ended),
            Ok(_) => {
                let at = self::at(&line)?;
                self.number = at.number;
                Ok(Came::At(at))
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Ok(Came::Idle)
            }
            Err(_) => Ok(Came::Ended),
        }
    }

    /// Asks the plugin; `None`: the emulator has ended.
    fn ask(&mut self, line: &str) -> Result<Option<String>> {
        let mut answer = String::new();
        let sent = writeln!(self.control.get_mut(), "{line}");
        if sent.is_err() || self.control.read_line(&mut answer).map_or(true, |read| read == 0) {
            return Ok(None);
        }
        match answer.strip_prefix("error") {
            Some(error) => other(format!("the plugin refuses `{line}`:{error}")),
            None => Ok(Some(answer)),
        }
    }

    /// [`Self::ask`], where the machine stands.
    fn order(&mut self, line: &str) -> Result<String> {
        self.ask(line)?.ok_or_else(|| Error::Other("the emulator has ended".into()))
    }

    /// Changes bits of a core's register: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to R15.
    ///
    /// # Errors
    /// The core has not run.
    pub fn flip_register(&mut self, core: usize, number: usize, bits: u64) -> Result<()> {
        self.order(&format!("register {core} {number} {bits:#x}")).map(|_| ())
    }

    /// The next arming of a core's timer is so many ticks late, or has no effect.
    ///
    /// # Errors
    /// The machine has ended.
    pub fn spoil_timer(&mut self, core: usize, late: Option<u64>) -> Result<()> {
        let late = late.map_or("any".into(), |late| late.to_string());
        self.order(&format!("timer {core} {late}")).map(|_| ())
    }

    /// So many reads of ports have other answers: nonsense by a seed, or all ones.
    ///
    /// # Errors
    /// The machine has ended.
    pub fn spoil_ports(
        &mut self,
        core: usize,
        (first, last): (u16, u16),
        seed: Option<u64>,
        reads: u64,
    ) -> Result<()> {
        let seed = seed.map_or("any".into(), |seed| seed.to_string());
        self.order(&format!("ports {core} {first} {last} {seed} {reads}")).map(|_| ())
    }

    /// So many reads of a device's memory have other answers: nonsense by a seed, or all ones.
    ///
    /// # Errors
    /// No device is there; this QEMU does not let it be done; the machine has ended.
    pub fn spoil_memory(&mut self, at: (u64, u64), seed: Option<u64>, reads: u64) -> Result<()> {
        let seed = seed.map_or("any".into(), |seed| seed.to_string());
        self.order(&format!("memory {:#x} {:#x} {seed} {reads}", at.0, at.1)).map(|_| ())
    }

    /// A bit of one of a PCI function's next writes into a range is wrong. Addresses are the function's.
    ///
    /// # Errors
    /// There is no such function; this QEMU does not let it be done; the machine has ended.
    pub fn spoil_write(&mut self, id: u16, at: (u64, u64), before: u64, bit: u64) -> Result<()> {
        let line = format!("device {id:#x} {:#x} {:#x} {before} {bit}", at.0, at.1);
        self.order(&line).map(|_| ())
    }

    /// Pages of text within physical addresses that were executed.
    ///
    /// # Errors
    /// The machine has ended.
    pub fn executed(&mut self, start: u64, end: u64) -> Result<Vec<u64>> {
        let line = self.order(&format!("pages {start:#x} {end:#x}"))?;
        Ok(line.split_whitespace().skip(1).filter_map(number).collect())
    }

    /// Interrupt of a core's timer, if it was set up.
    ///
    /// # Errors
    /// The machine has ended.
    pub fn timer_vector(&mut self, core: usize) -> Result<Option<u8>> {
        let line = self.order(&format!("vector {core}"))?;
        let word = line.split_whitespace().nth(1).and_then(number);
        Ok(word.and_then(|vector| u8::try_from(vector).ok()).filter(|vector| *vector >= 16))
    }

    /// Sends an interrupt to a core, by its identity.
    ///
    /// # Errors
    /// QEMU refuses.
    pub fn interrupt(&mut self, id: u32, vector: u8) -> Result<()> {
        let address = MESSAGES | u64::from(id) << 12;
        self.test(&format!("writel {address:#x} {vector:#x}")).map(|_| ())
    }

    /// Writes memory as a device does: QEMU translates text anew that was there.
    ///
    /// # Errors
    /// QEMU refuses.
    pub fn write(&mut self, pa: u64, bytes: &[u8]) -> Result<()> {
        let mut hex = String::new();
        bytes.iter().for_each(|byte| {
            let _ = write!(hex, "{byte:02x}");
        });
        self.test(&format!("write {pa:#x} {} 0x{hex}", bytes.len())).map(|_| ())
    }

    /// Flips a bit of memory.
    ///
    /// # Errors
    /// It is no RAM.
    pub fn flip(&mut self, pa: u64, bit: u8) -> Result<()> {
        let mut byte = [0];
        self.ram().read(pa, &mut byte)?;
        self.write(pa, &[byte[0] ^ 1 << bit])
    }

    /// Reads a 32-bit port.
    ///
    /// # Errors
    /// QEMU refuses.
    pub fn port(&mut self, port: u16) -> Result<u64> {
        let answer = self.test(&format!("inl {port:#x}"))?;
        let value = answer.split_whitespace().nth(1).and_then(number);
        value.ok_or_else(|| Error::Other(format!("QEMU's test server says {answer:?} of a port")))
    }

    fn test(&mut self, line: &str) -> Result<String> {
        let failed = |what: String| Error::Other(format!("QEMU's test server, {line}: {what}"));
        if self.test.is_none() {
            let path = self.running.dir().join("test.sock");
            let stream = UnixStream::connect(path).map_err(|error| failed(error.to_string()))?;
            stream.set_read_timeout(Some(PATIENCE)).map_err(|error| failed(error.to_string()))?;
            self.test = Some(BufReader::new(stream));
        }
        let Some(test) = &mut self.test else { return Err(failed("none".into())) };
        let mut answer = String::new();
        let done = writeln!(test.get_mut(), "{line}").and_then(|()| test.read_line(&mut answer));
        done.map_err(|error| failed(error.to_string()))?;
        match answer.starts_with("OK") {
            true => Ok(answer),
            false => Err(failed(answer)),
        }
    }
}

/// Waits for the plugin.
fn accept(listener: &UnixListener, running: &mut Running) -> Result<UnixStream> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Ok(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return other(format!("the plugin's socket: {error}")),
        }
        if running.ended()?.is_some() || Instant::now() > deadline {
            return other(format!("the plugin does not come\n{}", running.tail()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Decimal, or hexadecimal after `0x`.
fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// `at NUMBER CORE ADDRESS ROOT`.
fn at(line: &str) -> Result<At> {
    let numbers: Vec<u64> = line.split_whitespace().skip(1).filter_map(number).collect();
    match numbers[..] {
        [number, core, pa, root] if line.starts_with("at ") => {
            Ok(At { number, core: usize::try_from(core).unwrap_or(usize::MAX), pa, root })
        }
        _ => other(format!("the plugin says {line:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_read_and_nothing_else() {
        let right = At { number: 100, core: 2, pa: 0x1000, root: 0x2000 };
        assert_eq!(at("at 100 2 0x1000 0x2000\n").expect("a stop"), right);
        assert!(at("ok").is_err() && at("at 1 2").is_err());
    }
}
