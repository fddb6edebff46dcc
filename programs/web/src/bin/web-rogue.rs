//! A driver of a web server's card that fails, for tests, at times as its arguments say ([`web_programs::plan`]).
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_cards::{Card, Mac, Received, Wrong};
use bulkhead_program::{FOREVER, Program, now, println, wait_until};
use core::sync::atomic::Ordering;
use gate_programs::card::AnyCard;
use web_programs::nic::{News, drive, open};
use web_programs::plan::Plan;
use web_programs::{FROM_NIC, FROM_SERVER, WORK};

bulkhead_program::entry!(rogue);

fn rogue(program: Program) -> u32 {
    let news = News::of(program);
    let card = open(program);
    let next = Plan::of(program).next(now(), &KINDS);
    drive(program, Faulty { program, card, next, state: State::Sound }, news)
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The driver gives up.
    Panic,
    /// It writes to memory that is the server's.
    Wild,
    /// A loop without an end.
    Spin,
    /// A wait that does not end.
    Sleep,
    /// It goes on, and no frame comes through.
    Mute,
    /// It goes on, and no frame from outside comes through.
    Deaf,
    /// Garbage over the memory that the server reads.
    Garbage,
    /// The card is told to read memory that is not the driver's.
    Dma,
    /// Garbage over the queues that it shares with the card.
    Queues,
}

const KINDS: [Kind; 9] = [
    Kind::Panic,
    Kind::Wild,
    Kind::Spin,
    Kind::Sleep,
    Kind::Mute,
    Kind::Deaf,
    Kind::Garbage,
    Kind::Dma,
    Kind::Queues,
];
/// Bytes of the queues.
const QUEUES: usize = 6 * 4096;

/// How the driver treats frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sound,
    Deaf,
    Mute,
}

struct Faulty {
    program: Program,
    card: AnyCard,
    next: (u64, u64, Kind),
    state: State,
}

impl Faulty {
    fn look(&mut self) {
        let (at, _, kind) = self.next;
        if now() >= at {
            // Some are not found: what the driver writes next may hide them.
            self.next = Plan::of(self.program).next(now(), &KINDS);
            println!("{}: fault {kind:?} at {} us", self.program.name(), now() / 1_000);
            self.plant(kind);
        }
    }

    fn plant(&mut self, kind: Kind) {
        let garbage = |name, count: usize| {
            for (n, word) in self.program.memory(name).words().iter().take(count).enumerate() {
                word.store(
                    (now() ^ n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15),
                    Ordering::Relaxed,
                );
            }
        };
        match kind {
            Kind::Panic => panic!("as it was told"),
            Kind::Wild => self.program.memory(FROM_SERVER).words()[0].store(1, Ordering::Relaxed),
            Kind::Spin => loop {
                core::hint::spin_loop();
            },
            Kind::Sleep => loop {
                let _ = wait_until(self.program.waits(WORK), FOREVER);
            },
            Kind::Mute => self.state = State::Mute,
            Kind::Deaf => self.state = State::Deaf,
            Kind::Garbage => garbage(FROM_NIC, usize::MAX),
            Kind::Dma => {
                // Below all of a sandbox's RAM, at its end, and nowhere.
                for at in [0x1000, 0x00FF_F000, 0x7F_0000_0000] {
                    let _ = self.card.send(&[0x02; 14], Some((at, 1000)));
                }
                self.card.ring();
            }
            Kind::Queues => {
                garbage("rings", QUEUES / 8);
                self.card.ring();
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
        // A place that is never told to be free.
        if self.state == State::Mute { Some(0) } else { self.card.send(head, rest) }
    }
    fn sent(&mut self) -> Option<u16> {
        self.look();
        self.card.sent()
    }
    fn receive(&mut self) -> Option<Received> {
        loop {
            let received = self.card.receive()?;
            if self.state == State::Sound {
                return Some(received);
            }
            self.card.give_back(received.buffer);
        }
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
