//! The program's card: it gives the driver the function's registers, memory and time.

use bulkhead_cards::{
    Card, Configuration, E1000e, Mac, Received, VirtioNet, Wrong, e1000e, virtio_net,
};
use bulkhead_program::{Program, Registers};
use store_programs::function::{Function, Now, Queues};

/// The driver of a card that the program has, by the function's identity.
#[expect(clippy::large_enum_variant, reason = "a program has one of them, and no allocator")]
pub enum AnyCard {
    /// A virtio network device; message 0 tells of its news.
    Virtio(VirtioNet<Registers, Queues, Now>),
    /// Intel's 82574; message 0 tells of its news.
    E1000e(E1000e<Registers, Queues, Now>),
}

/// Class of a network card that speaks Ethernet.
const CLASS: u32 = 0x02_0000;

impl AnyCard {
    /// Switches on the function that the manifest gives the program, with memory for its queues.
    ///
    /// # Errors
    /// There is none, or it does not work.
    pub fn open(program: Program, memory: &str) -> Result<Self, Wrong> {
        let function = Function::find(program)?;
        let configuration = function.configuration()?;
        let queues = Queues::find(program, memory);
        if configuration.read(0x08) >> 8 != CLASS {
            return Err(Wrong::Lacks("class of an Ethernet card"));
        }
        match configuration.read(0) {
            e1000e::ID => {
                let bar = function.bar(e1000e::BAR).ok_or(Wrong::Lacks("registers"))?;
                E1000e::new(bar, queues, Now, 0).map(Self::E1000e)
            }
            virtio_net::ID => {
                let bars = |n| function.bar(n);
                VirtioNet::new(&configuration, bars, queues, Now, 0).map(Self::Virtio)
            }
            _ => Err(Wrong::Lacks("driver")),
        }
    }
}

macro_rules! each {
    ($self:ident, $card:ident => $call:expr) => {
        match $self {
            Self::Virtio($card) => $call,
            Self::E1000e($card) => $call,
        }
    };
}

impl Card for AnyCard {
    fn mac(&self) -> Mac {
        each!(self, card => card.mac())
    }
    fn link(&self) -> bool {
        each!(self, card => card.link())
    }
    fn send(&mut self, head: &[u8], rest: Option<(u64, u32)>) -> Option<u16> {
        each!(self, card => card.send(head, rest))
    }
    fn sent(&mut self) -> Option<u16> {
        each!(self, card => card.sent())
    }
    fn receive(&mut self) -> Option<Received> {
        each!(self, card => card.receive())
    }
    #[inline]
    fn read(&self, buffer: u16, at: usize) -> u64 {
        each!(self, card => card.read(buffer, at))
    }
    fn give_back(&mut self, buffer: u16) {
        each!(self, card => card.give_back(buffer));
    }
    fn ring(&mut self) {
        each!(self, card => card.ring());
    }
    fn interrupts(&mut self, wanted: bool) {
        each!(self, card => card.interrupts(wanted));
    }
    fn reset(&mut self) -> Result<(), Wrong> {
        each!(self, card => card.reset())
    }
    fn check(&mut self) {
        each!(self, card => card.check());
    }
    fn fault(&self) -> Option<Wrong> {
        each!(self, card => card.fault())
    }
}
