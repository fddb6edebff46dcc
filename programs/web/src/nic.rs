//! The loop of a driver: frames from the server to the card and back.
//!
//! All that it knows lies on its stack, so a thread of it that begins anew (`flight-guard`) has nothing of its last
//! life. It gives up, by a panic, where the card's state cannot be trusted any more: to begin anew is its guard's work.

use crate::{FROM_NIC, FROM_SERVER, LOOK, NEWS, WORK, relay, stand_by};
use bulkhead_cards::{Card, HEADER};
use bulkhead_net::{FRAME, Relay};
use bulkhead_program::{
    FOREVER, Handler, Notification, Program, mark, marker, now, println, wait_until,
};
use gate_programs::card::AnyCard;
use store_programs::progress::Progress;

/// Frames of each direction in a round.
const ROUND: usize = 32;

/// How a driver learns of news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The card interrupts.
    Interrupts,
    /// It looks each so many nanoseconds.
    Looks(u64),
}

impl News {
    /// Returns how the driver of a program's card learns of news: a card that moves with a role sends no interrupts.
    /// Waits for that role.
    pub fn of(program: Program) -> Self {
        if program.arg("role").is_none() {
            return Self::Interrupts;
        }
        let progress = Progress::find(program);
        stand_by(program, program.waits(WORK), || {
            let _ = progress.as_ref().is_some_and(Progress::answer);
        });
        Self::Looks(LOOK)
    }
}

/// Opens the program's card, and measures that.
pub fn open(program: Program) -> AnyCard {
    mark!(marker::BEGIN | marker::id::RECOVER_DRIVER);
    let card = AnyCard::open(program, "rings");
    mark!(marker::END | marker::id::RECOVER_DRIVER);
    card.unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// Drives a card for ever.
pub fn drive(program: Program, card: impl Card, news: News) -> ! {
    let [a, b, c, d, e, f] = card.mac();
    println!("{}: {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}", program.name());
    mark!(marker::BEGIN | marker::id::RECOVER_INTERFACE);
    let handler = (news == News::Interrupts).then(|| program.interrupt(WORK));
    let mut nic = Nic {
        relay: relay(program, FROM_NIC, FROM_SERVER),
        progress: Progress::find(program),
        server: program.signals(NEWS),
        work: program.waits(WORK),
        card,
        waiting: None,
        frame: [0; FRAME],
        incoming: [[0; 8]; (HEADER + FRAME).div_ceil(8)],
    };
    nic.relay.join(now());
    mark!(marker::END | marker::id::RECOVER_INTERFACE);
    nic.run(handler, news)
}

struct Nic<C> {
    card: C,
    relay: Relay<'static>,
    progress: Option<Progress>,
    server: Notification,
    work: Notification,
    /// Bytes of a frame of the server's for which the card has no place yet.
    waiting: Option<usize>,
    frame: [u8; FRAME],
    /// A frame of the card's, with what lies in front of it.
    incoming: [[u8; 8]; (HEADER + FRAME).div_ceil(8)],
}

impl<C: Card> Nic<C> {
    fn run(&mut self, handler: Option<Handler>, news: News) -> ! {
        loop {
            if self.round() {
                continue;
            }
            // The request to be woken, then one more look: what comes after that look interrupts.
            let until = match news {
                News::Looks(every) => now() + every,
                News::Interrupts => FOREVER,
            };
            if let Some(handler) = handler {
                let _ = handler.acknowledge();
                self.card.interrupts(true);
                if self.round() {
                    self.card.interrupts(false);
                    continue;
                }
            }
            // It has time of its own.
            let _ = wait_until(self.work, until);
            if handler.is_some() {
                self.card.interrupts(false);
            }
        }
    }

    /// Moves frames both ways. Returns true if there were any.
    fn round(&mut self) -> bool {
        let asked = self.progress.as_ref().is_some_and(Progress::answer);
        if asked {
            self.card.check();
        }
        if let Some(wrong) = self.card.fault() {
            panic!("{wrong}");
        }
        self.relay.join(now());
        let (to, from) = (self.send_all(), self.receive_all());
        self.card.ring();
        if from > 0 {
            self.server.signal();
        }
        to + from > 0
    }

    fn send_all(&mut self) -> usize {
        while self.card.sent().is_some() {}
        for n in 0..ROUND {
            let len = match self.waiting.take() {
                Some(len) => len,
                None => match self.relay.take(&mut self.frame) {
                    Some(frame) => frame.len(),
                    None => return n,
                },
            };
            if self.card.send(&self.frame[..len], None).is_none() {
                self.waiting = Some(len);
                // A card that has no place for a while interrupts for none: the next look is at the guard's question.
                return n;
            }
        }
        ROUND
    }

    fn receive_all(&mut self) -> usize {
        for n in 0..ROUND {
            let Some(received) = self.card.receive() else { return n };
            let len = received.len.min(FRAME);
            let words = self.incoming.iter_mut().take((HEADER + len).div_ceil(8));
            for (n, word) in words.enumerate() {
                *word = self.card.read(received.buffer, 8 * n).to_le_bytes();
            }
            self.card.give_back(received.buffer);
            // A frame without room is lost, as on any network.
            self.relay.send(&self.incoming.as_flattened()[HEADER..HEADER + len], now());
        }
        ROUND
    }
}
