//! Doorbells of channels. A sender rings by a register of its function. A receiver sleeps on the file descriptor of the
//! kernel's driver `uio_pci_generic`, which takes the function's interrupt (Linux, driver-api/uio-howto).

use crate::channel::{Channel, End};
use crate::devmem::Registers;
use crate::message::Waits;
use bulkhead_channel::adaptive::Platform;
use bulkhead_channel::bell::Ring;
use bulkhead_channel_memory::waiting;
use bulkhead_layout::ivshmem::{CONTROL, DOORBELL, RECEIVER};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const DRIVER: &str = "uio_pci_generic";
/// Also that of `linux/enable`, where the kernel's finds no line: a Linux that ran first has MSI-X alone.
const DRIVERS: [&str; 2] = [DRIVER, "bulkhead"];
/// How long the first interrupt may take.
const FIRST: Duration = Duration::from_secs(1);
/// Nanoseconds that a sleep in the kernel and its end take, more or less.
pub const SLEEP: u64 = 20_000;

/// The register by which an end rings for a peer: the sender of messages, and both ends of a virtio device.
#[derive(Debug)]
pub struct Register<'a> {
    registers: &'a Registers,
    peer: u32,
}

// SAFETY: it only writes that register, which any thread may; the monitor takes one write after the other.
unsafe impl Send for Register<'_> {}

impl<'a> Register<'a> {
    /// Finds a channel's register: the first of its peers rings the second, that one the first.
    #[must_use]
    pub fn of(channel: &'a Channel) -> Self {
        let peer = if channel.id() == 0 { RECEIVER } else { 0 };
        Self { registers: channel.registers(), peer }
    }
}

impl Ring for Register<'_> {
    fn ring(&mut self) {
        self.registers.set32(DOORBELL as usize, self.peer);
    }
}

/// Where a receiver sleeps.
#[derive(Debug)]
pub struct Bed {
    file: File,
    begun: Instant,
    /// When to wake at the latest.
    until: Option<Instant>,
    /// How many interrupts there had been, in the driver's count, and how many there have been.
    first: u32,
    last: u32,
}

impl Bed {
    /// Opens the interrupt of a channel that wakes this end. The driver is bound to its function if none is.
    ///
    /// # Errors
    /// Not root; the function has another driver, or the kernel not this one; no interrupt comes.
    pub fn open(channel: &Channel) -> io::Result<Self> {
        let end = channel.end();
        bind(end)?;
        let file =
            OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(device(end)?)?;
        let mut bed = Self { file, begun: Instant::now(), until: None, first: 0, last: 0 };
        // Whenever it is switched on, one comes unasked: so it is seen that they come at all.
        for wanted in [0, 1] {
            channel.registers().set32(CONTROL as usize, wanted);
        }
        if !bed.wait(Some(FIRST))? {
            let why = format!("{} has an interrupt, and none came within a second", end.name);
            return Err(io::Error::new(ErrorKind::TimedOut, why));
        }
        bed.first = bed.last;
        Ok(bed)
    }

    /// How many interrupts there were.
    #[must_use]
    pub const fn interrupts(&self) -> u32 {
        self.last.wrapping_sub(self.first)
    }

    /// Sleeps until an interrupt came since the last time, or so long; returns true if one did.
    fn wait(&mut self, most: Option<Duration>) -> io::Result<bool> {
        let timeout = match most {
            None => PollTimeout::NONE,
            // A part of a millisecond is one: else the rest of a wait would be spun through.
            Some(most) => {
                let millis = most.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128);
                PollTimeout::try_from(millis as i32).unwrap_or(PollTimeout::MAX)
            }
        };
        let mut one = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
        match poll(&mut one, timeout) {
            Err(nix::errno::Errno::EINTR) => {}
            done => drop(done?),
        }
        self.take()
    }

    /// Takes note of interrupts that came; returns true if one did.
    ///
    /// # Errors
    /// The function has lost its driver.
    pub fn take(&mut self) -> io::Result<bool> {
        let mut count = [0; 4];
        match self.file.read_exact(&mut count) {
            Ok(()) => self.last = u32::from_ne_bytes(count),
            Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(why) => return Err(why),
        }
        Ok(true)
    }
}

impl AsFd for Bed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl waiting::Bed for Bed {
    type Patience = Waits;

    fn prepare(&mut self, patience: &Waits) -> bool {
        self.until = patience.until;
        true
    }

    fn settle(&mut self) {
        // A driver that is gone shows at the next wait.
        let _ = self.take();
    }
}

impl Platform for Bed {
    fn now(&mut self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn relax(&mut self) {
        std::hint::spin_loop();
    }

    fn sleep(&mut self) {
        let most = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        if self.wait(most).is_err() {
            // Without its driver it would otherwise be spun through for ever.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Has the driver take a function; nothing if it has.
fn bind(end: &End) -> io::Result<()> {
    match end.driver() {
        Some(name) if DRIVERS.contains(&&name[..]) => return Ok(()),
        Some(name) => {
            let why = format!("{}'s function {} has the driver {name}", end.name, end.address());
            return Err(io::Error::new(ErrorKind::ResourceBusy, why));
        }
        None => {}
    }
    // Built in, or loaded: then this fails, and nothing is wrong.
    let _ = Command::new("modprobe").args(["-q", DRIVER]).status();
    std::fs::write(end.path.join("driver_override"), DRIVER)?;
    std::fs::write("/sys/bus/pci/drivers_probe", end.address())?;
    match end.driver() {
        Some(name) if name == DRIVER => Ok(()),
        _ => Err(io::Error::new(
            ErrorKind::NotFound,
            format!("{DRIVER} did not take {}: has this kernel that module?", end.address()),
        )),
    }
}

/// The driver's file of a function.
fn device(end: &End) -> io::Result<PathBuf> {
    let none = || io::Error::new(ErrorKind::NotFound, format!("{} has no uio", end.address()));
    let entry = std::fs::read_dir(end.path.join("uio"))?.flatten().next().ok_or_else(none)?;
    Ok(PathBuf::from("/dev").join(entry.file_name()))
}
