//! A gate with a driver that fails, for tests: after so many frames of each life a fault of the next kind is planted.
//!
//! Arguments besides the gate's: `after=FRAMES` (default 200), and `until=MS` since the processor's start, from which
//! on no fault is planted. The kind follows from the time, which a restart does not reset.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_cards::{Card, Mac, Received, Wrong};
use bulkhead_program::channel::{Memory, Word};
use bulkhead_program::{FOREVER, Program, now, println, wait_until};
use bulkhead_virtio::layout::used;
use bulkhead_virtio::net::{RECEIVE, SEND};
use core::sync::atomic::Ordering;
use gate_programs::card::AnyCard;
use gate_programs::serve::Channel;

bulkhead_program::entry!(rogue);

fn rogue(program: Program) -> u32 {
    let number = |name, default| program.number(name).unwrap_or(default);
    let (after, until) = (number("after", 200), number("until", 0).saturating_mul(1_000_000));
    gate_programs::serve::gate(program, |card, channels| {
        let channel = channels.into_iter().flatten().next();
        Faulty { program, card, channel, after, left: after, until }
    })
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The driver gives up.
    Panic,
    /// A loop without an end.
    Spin,
    /// A wait that does not end.
    Sleep,
    /// The card is told to read memory that is not the driver's.
    Dma,
    /// Garbage over the queues that it shares with the card.
    Rings,
    /// A used index of a client's that is too far on.
    Index,
}

const KINDS: [Kind; 6] =
    [Kind::Panic, Kind::Spin, Kind::Dma, Kind::Sleep, Kind::Rings, Kind::Index];
/// Time in which faults are of one kind, ns.
const EACH: u64 = 2_500_000_000;
/// Bytes of the queues.
const QUEUES: usize = 6 * 4096;

struct Faulty {
    program: Program,
    card: AnyCard,
    channel: Option<Channel>,
    /// Frames between two faults, and until the next one.
    after: u64,
    left: u64,
    until: u64,
}

impl Faulty {
    /// Counts a frame.
    fn count(&mut self) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 && now() < self.until {
            // Some are not found: what the driver writes next may hide them.
            self.left = self.after;
            self.plant(KINDS[(now() / EACH) as usize % KINDS.len()]);
        }
    }

    fn plant(&mut self, kind: Kind) {
        println!("{}: fault {kind:?}", self.program.name());
        match kind {
            Kind::Panic => panic!("as it was told"),
            Kind::Spin => loop {
                core::hint::spin_loop();
            },
            Kind::Sleep => loop {
                let _ = wait_until(self.program.waits("work"), FOREVER);
            },
            Kind::Dma => {
                // Below all of a sandbox's RAM, at its end, and nowhere.
                for at in [0x1000, 0x00FF_F000, 0x7F_0000_0000] {
                    let _ = self.card.send(&[0x02; 14], Some((at, 1000)));
                }
                self.card.ring();
            }
            Kind::Rings => {
                let words = self.program.memory("rings").words().iter().take(QUEUES / 8);
                words.for_each(|word| word.store(0x0123_4567_89AB_CDEF, Ordering::Relaxed));
                self.card.ring();
            }
            Kind::Index => {
                for queue in [RECEIVE, SEND] {
                    let word = self.channel.as_ref().and_then(|one| one.mine.word(used(queue)));
                    word.into_iter().for_each(|word| word.release(!0));
                }
            }
        }
    }
}

impl Card for Faulty {
    fn mac(&self) -> Mac {
        self.card.mac()
    }
    fn link(&self) -> bool {
        self.card.link()
    }
    fn send(&mut self, head: &[u8], rest: Option<(u64, u32)>) -> Option<u16> {
        self.count();
        self.card.send(head, rest)
    }
    fn sent(&mut self) -> Option<u16> {
        self.card.sent()
    }
    fn receive(&mut self) -> Option<Received> {
        self.card.receive()
    }
    fn read(&self, buffer: u16, at: usize) -> u64 {
        self.card.read(buffer, at)
    }
    fn give_back(&mut self, buffer: u16) {
        self.card.give_back(buffer);
    }
    fn ring(&mut self) {
        self.card.ring();
    }
    fn interrupts(&mut self, wanted: bool) {
        self.card.interrupts(wanted);
    }
    fn reset(&mut self) -> Result<(), Wrong> {
        self.card.reset()
    }
    fn check(&mut self) {
        self.card.check();
    }
    fn fault(&self) -> Option<Wrong> {
        self.card.fault()
    }
}
