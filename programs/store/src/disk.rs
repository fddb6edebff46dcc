//! The program's disk: it gives the driver the function's registers, memory and time.

use crate::function::{Function, Now, Queues};
use crate::serve::Driven;
use bulkhead_disks::{Ahci, Configuration, Nvme, VirtioBlk, Wrong, ahci, nvme};
use bulkhead_program::{Program, Registers};
use bulkhead_store::disk::{Disk, Failed, Full, Info, Request};

/// The driver of a disk that the program has, by the function's class and identity.
pub enum AnyDisk {
    /// A virtio block device; message 0 tells of its answers.
    Virtio(VirtioBlk<Registers, Queues, Now>),
    /// An NVMe controller; message 1 tells of its answers.
    Nvme(Nvme<Registers, Queues, Now>),
    /// An AHCI controller; its message or line tells of the answers. The argument `port=N` names the disk's port.
    Ahci(Ahci<Registers, Queues, Now>),
}

impl AnyDisk {
    /// Switches on the first function that the manifest gives the program, with memory for its queues.
    ///
    /// # Errors
    /// There is none, or it does not work.
    pub fn open(program: Program, memory: &str) -> Result<Self, Wrong> {
        let function = Function::find(program)?;
        let configuration = function.configuration()?;
        let queues = Queues::find(program, memory);
        let bars = |n| function.bar(n);
        let bar = |n| bars(n).ok_or(Wrong::Lacks("registers"));
        match configuration.read(0x08) >> 8 {
            nvme::CLASS => return Nvme::new(bar(0)?, queues, Now, 1).map(Self::Nvme),
            ahci::CLASS => {
                // No port has such a number, as none has one beyond its type.
                let port = program.number("port").unwrap_or(0).try_into().unwrap_or(u8::MAX);
                return Ahci::new(bar(ahci::BAR)?, queues, Now, port).map(Self::Ahci);
            }
            _ => {}
        }
        VirtioBlk::new(&configuration, bars, queues, Now, 0).map(Self::Virtio)
    }
}

macro_rules! each {
    ($self:ident, $disk:ident => $call:expr) => {
        match $self {
            Self::Virtio($disk) => $call,
            Self::Nvme($disk) => $call,
            Self::Ahci($disk) => $call,
        }
    };
}

impl Driven for AnyDisk {
    fn fault(&self) -> Option<Wrong> {
        each!(self, disk => disk.fault())
    }
    fn check(&mut self) {
        each!(self, disk => disk.check());
    }
}

impl Disk for AnyDisk {
    fn info(&self) -> &Info {
        each!(self, disk => disk.info())
    }
    fn submit(&mut self, request: &Request) -> Result<(), Full> {
        each!(self, disk => disk.submit(request))
    }
    fn ring(&mut self) {
        each!(self, disk => disk.ring());
    }
    fn completed(&mut self) -> Option<(u16, Result<(), Failed>)> {
        each!(self, disk => disk.completed())
    }
    fn interrupts(&mut self, wanted: bool) {
        each!(self, disk => disk.interrupts(wanted));
    }
    fn reset(&mut self) -> Result<(), Failed> {
        each!(self, disk => disk.reset())
    }
}
