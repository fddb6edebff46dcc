//! The program's disk: it finds the function among its grants, and gives the driver registers, memory and time.

use crate::serve::Driven;
use bulkhead_disks::{Ahci, Clock, Configuration, Memory, Nvme, VirtioBlk, Wrong, ahci, nvme};
use bulkhead_program::abi::{Grant, Name};
use bulkhead_program::{Program, Registers, now};
use bulkhead_store::disk::{Disk, Failed, Full, Info, Request};
use core::sync::atomic::{Ordering, fence};

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
        let function = program.names().find_map(|name| registers(name)?.strip_suffix(":config"));
        let function = function.ok_or(Wrong::Lacks("PCI function in the manifest"))?;
        let part = |part: &str| {
            let is = |name: &&str| {
                name.strip_prefix(function)?.strip_prefix(':')?.eq(part).then_some(())
            };
            let name = program.names().filter_map(registers).find(|name| is(name).is_some())?;
            Some(program.registers(name))
        };
        let configuration = part("config").ok_or(Wrong::Lacks("configuration space"))?;
        let (own, address) = program.memory_for_device(memory);
        let queues = Queues { own, address };
        let bars = |n: u8| part(core::str::from_utf8(&[b'0' + n % 10]).ok()?);
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

/// The name of a grant of registers or memory.
fn registers(name: &'static Name) -> Option<&'static str> {
    let Some(Grant::Memory(_)) = name.grant() else { return None };
    Some(core::str::from_utf8(&name.name).ok()?.trim_end_matches('\0'))
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

/// Memory for the disk's queues.
pub struct Queues {
    own: bulkhead_program::Memory,
    address: u64,
}

impl Memory for Queues {
    fn bytes(&self) -> usize {
        self.own.len
    }
    fn address(&self) -> u64 {
        self.address
    }
    fn get(&self, at: usize) -> u64 {
        self.own.words().get(at / 8).map_or(0, |word| word.load(Ordering::Acquire))
    }
    fn set(&self, at: usize, value: u64) {
        if let Some(word) = self.own.words().get(at / 8) {
            word.store(value, Ordering::Release);
        }
    }
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// The program's clock.
pub struct Now;

impl Clock for Now {
    fn now(&self) -> u64 {
        now()
    }
}
