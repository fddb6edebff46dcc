//! One end of a channel with a peer that writes anything into all that it can write, at any time between two calls.
//! Nothing panics, no access leaves the regions, and none writes to the peer's. Each call takes a bounded number of
//! accesses. An impossible index is told once in a session. With an honest peer the end works again.

use crate::{Input, Seen};
use bulkhead_channel::bell::{Bell, Ring};
use bulkhead_channel::host::Region;
use bulkhead_channel::layout::{ARMED, DATA, FIRST, GEOMETRY, HELLO, IDENTITY, INDEX, Shape};
use bulkhead_channel::page::{Hello, Phase};
use bulkhead_channel::{Stop, mailbox, queue, records};
use bulkhead_pci_fake::Words;

/// Words that a call may access besides those of a message.
const ACCESSES: usize = 40;
/// Bytes of the longest message.
const LONGEST: usize = 64;

/// Which end is attacked.
#[derive(Debug)]
enum End {
    Sender(queue::Sender<Region>),
    Receiver(queue::Receiver<Region>),
    Writes(records::Sender<Region>),
    Reads(records::Receiver<Region>),
    Writer(mailbox::Writer<Region>),
    Reader(mailbox::Reader<Region>),
}

struct Attack {
    end: End,
    mine: Region,
    theirs: Region,
    shape: Shape,
    /// The session in which the end complained.
    complained: Option<u32>,
    bell: Bell<Region>,
    rung: Rung,
}

#[derive(Default)]
struct Rung(u64);

impl Ring for Rung {
    fn ring(&mut self) {
        self.0 += 1;
    }
}

/// Attacks an end.
pub fn run(bytes: &[u8]) -> Result<Seen, String> {
    let mut input = Input::new(bytes);
    let mut attack = Attack::new(&mut input);
    let mut seen = Seen::default();
    while !input.is_empty() {
        match input.below(2) {
            0 => attack.poke(&mut input),
            _ => seen.add(attack.call(&mut input)?),
        }
    }
    attack.recover()?;
    Ok(seen)
}

impl Attack {
    fn new(input: &mut Input) -> Self {
        let kind = input.below(6);
        let (slots, size) = (1 + input.below(5) as u32, 1 + input.below(LONGEST) as u32);
        let bytes = 32 + 8 * input.below(24) as u32;
        let shape = match kind {
            0 | 1 => Shape::Queue { slots, size },
            2 | 3 => Shape::Records { bytes },
            _ => Shape::Mailbox { size },
        };
        let tx = Region::new(shape.tx_bytes().unwrap_or(DATA));
        let rx = Region::new(DATA);
        let (mine, theirs) = if kind % 2 == 0 { (tx, rx) } else { (rx, tx) };
        let end = open(kind, &mine, &theirs, [slots, size, bytes]);
        let bell = Bell::open(mine.clone(), &theirs).expect("a header");
        Self { end, mine, theirs, shape, complained: None, bell, rung: Rung::default() }
    }

    /// A word of the peer's: what would let it go on, nearly that, or anything.
    fn poke(&self, input: &mut Input) {
        let theirs = Hello::of(self.theirs.look(HELLO / 8));
        let mine = Hello::of(self.mine.look(HELLO / 8));
        let near = |input: &mut Input| (input.below(9) as u32).wrapping_sub(4);
        let (place, value) = match input.below(8) {
            0 | 1 => {
                let epoch = theirs.epoch.max(1).wrapping_add(input.below(2) as u32);
                let seen = mine.epoch;
                (HELLO, Hello { phase: Phase::Open, epoch, seen }.word())
            }
            2 => (IDENTITY, self.shape.identity()),
            3 => (GEOMETRY, self.shape.geometry()),
            4 | 5 => {
                let at = self.mine.look(INDEX / 8) as u32;
                let at = if input.below(8) == 0 { FIRST } else { at.wrapping_add(near(input)) };
                let at = if matches!(self.shape, Shape::Records { .. }) { at & !7 } else { at };
                (INDEX, u64::from(theirs.epoch) << 32 | u64::from(at))
            }
            6 => {
                let record = 0x4843_454Du64 << 32 | input.below(LONGEST) as u64;
                let skip = 0x5049_4B53u64 << 32;
                (DATA + 8 * input.below(32), input.pick(&[record, record, skip]))
            }
            _ => {
                let header = [IDENTITY, GEOMETRY, HELLO, INDEX, ARMED];
                let place =
                    if input.below(2) == 0 { input.pick(&header) } else { 8 * input.below(128) };
                (place, input.next())
            }
        };
        self.theirs.poke(place / 8, value);
    }

    /// A call by the honest end; whether it was done.
    fn call(&mut self, input: &mut Input) -> Result<bool, String> {
        let words = |r: &Region| (0..r.words()).map(|w| r.look(w)).collect::<Vec<_>>();
        let (before, accesses) = (words(&self.theirs), self.accesses());
        let session = Hello::of(self.mine.look(HELLO / 8)).epoch;
        let (done, len) = call(&mut self.end, input);
        let rung = self.rung.0;
        self.bell.notify(&mut self.rung);
        if self.rung.0 > rung && self.theirs.look(ARMED / 8) & 1 == 0 {
            return Err("it rings a receiver that is not armed".into());
        }
        let accesses = self.accesses() - accesses;
        if accesses > ACCESSES + 2 * len {
            return Err(format!("{accesses} accesses for {len} bytes: {:?}", self.end));
        }
        if words(&self.theirs) != before {
            return Err(format!("it writes to its peer's region: {:?}", self.end));
        }
        if done == Err(Stop::Corrupted) && self.complained.replace(session) == Some(session) {
            return Err(format!("it complains twice: {:?}", self.end));
        }
        Ok(done.is_ok())
    }

    fn accesses(&self) -> usize {
        self.mine.accesses() + self.theirs.accesses()
    }

    /// An honest peer comes; a message goes through.
    fn recover(self) -> Result<(), String> {
        let (mine, theirs) = (&self.mine, &self.theirs);
        let passed = match (self.end, self.shape) {
            (End::Sender(mut sender), Shape::Queue { slots, size }) => {
                sender.reset();
                let mut receiver = queue::Receiver::open(theirs, mine, slots, size).ok();
                pass(
                    |m| sender.send(&m[..1]),
                    |m| receiver.as_mut().map_or(Err(Stop::Apart), |r| r.receive(&mut m[..1])),
                )
            }
            (End::Receiver(mut receiver), Shape::Queue { slots, size }) => {
                receiver.reset();
                let mut sender = queue::Sender::open(theirs, mine, slots, size).ok();
                pass(
                    |m| sender.as_mut().map_or(Err(Stop::Apart), |s| s.send(&m[..1])),
                    |m| receiver.receive(&mut m[..1]),
                )
            }
            (End::Writes(mut sender), Shape::Records { bytes }) => {
                sender.reset();
                let mut receiver = records::Receiver::open(theirs, mine, bytes).ok();
                pass(
                    |m| sender.send(&m[..1]),
                    |m| receiver.as_mut().map_or(Err(Stop::Apart), |r| r.receive(m).map(drop)),
                )
            }
            (End::Reads(mut receiver), Shape::Records { bytes }) => {
                receiver.reset();
                let mut sender = records::Sender::open(theirs, mine, bytes).ok();
                pass(
                    |m| sender.as_mut().map_or(Err(Stop::Apart), |s| s.send(&m[..1])),
                    |m| receiver.receive(m).map(drop),
                )
            }
            (End::Writer(mut writer), Shape::Mailbox { size }) => {
                let mut reader = mailbox::Reader::open(theirs, mine, size).ok();
                pass(
                    |m| writer.write(&m[..1]),
                    |m| reader.as_mut().map_or(Err(Stop::Apart), |r| r.read(&mut m[..1]).map(drop)),
                )
            }
            (End::Reader(mut reader), Shape::Mailbox { size }) => {
                let mut writer = mailbox::Writer::open(theirs, mine, size).ok();
                pass(
                    |m| writer.as_mut().map_or(Err(Stop::Apart), |w| w.write(&m[..1])),
                    |m| reader.read(&mut m[..1]).map(drop),
                )
            }
            _ => false,
        };
        if passed { Ok(()) } else { Err(format!("it does not work again: {:?}", self.shape)) }
    }
}

/// Tells if a message arrives, after the two have found each other.
fn pass(
    mut send: impl FnMut(&[u8; LONGEST]) -> Result<(), Stop>,
    mut receive: impl FnMut(&mut [u8; LONGEST]) -> Result<(), Stop>,
) -> bool {
    for n in 1..10 {
        let _ = send(&[n; LONGEST]);
        let mut got = [0; LONGEST];
        // A mailbox's older state is not there any more.
        if receive(&mut got).is_ok() {
            return (1..=n).contains(&got[0]);
        }
    }
    false
}

fn open(kind: usize, mine: &Region, theirs: &Region, [slots, size, bytes]: [u32; 3]) -> End {
    let fits = "the regions are as large as the shape says";
    match kind {
        0 => End::Sender(queue::Sender::open(mine, theirs, slots, size).expect(fits)),
        1 => End::Receiver(queue::Receiver::open(mine, theirs, slots, size).expect(fits)),
        2 => End::Writes(records::Sender::open(mine, theirs, bytes).expect(fits)),
        3 => End::Reads(records::Receiver::open(mine, theirs, bytes).expect(fits)),
        4 => End::Writer(mailbox::Writer::open(mine, theirs, size).expect(fits)),
        _ => End::Reader(mailbox::Reader::open(mine, theirs, size).expect(fits)),
    }
}

/// One of its calls; whether it was done, and how many bytes it may touch.
fn call(end: &mut End, input: &mut Input) -> (Result<(), Stop>, usize) {
    let (which, many) = (input.below(16), 1 + input.below(6) as u32);
    let len = input.below(LONGEST + 2);
    let mut message = [0x5A; LONGEST + 2];
    let message = &mut message[..len];
    let batch = 6 * LONGEST;
    let done = match end {
        End::Sender(end) => match which {
            0 => {
                end.reset();
                Ok(())
            }
            1 => {
                end.close();
                Ok(())
            }
            2 => end.attend(),
            3..8 => end.reserve(many).map(|room| {
                assert!(room.slots().all(|slot| slot.write(0, &[1])));
                room.give(many);
            }),
            _ => end.send(message),
        },
        End::Receiver(end) => match which {
            0 => {
                end.reset();
                Ok(())
            }
            1 => {
                end.close();
                Ok(())
            }
            2 => end.attend(),
            3..8 => end.peek(many).map(|there| {
                let _ = there.slots().filter(|slot| slot.read(0, message)).count();
                there.give(many);
            }),
            _ => end.receive(message),
        },
        End::Writes(end) => match which {
            0 => {
                end.reset();
                Ok(())
            }
            1 => {
                end.close();
                Ok(())
            }
            2 => end.attend(),
            3..8 => end.reserve(len).map(|room| room.send(len / 2)),
            _ => end.send(message),
        },
        End::Reads(end) => match which {
            0 => {
                end.reset();
                Ok(())
            }
            1 => {
                end.close();
                Ok(())
            }
            2 => end.attend(),
            3..8 => end.peek().map(|there| {
                let _ = there.slot().read(0, message);
                there.release();
            }),
            _ => end.receive(message).map(drop),
        },
        End::Writer(end) => end.write(message),
        End::Reader(end) if which < 8 => end.read_newer(message),
        End::Reader(end) => end.read(message).map(drop),
    };
    (done, batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_random::SplitMix64;

    /// The attacks reach what they are for: sessions, messages, complaints, rings.
    #[test]
    fn attacks_get_somewhere() {
        let mut random = SplitMix64(3);
        let (mut complaints, mut rung, mut through) = (0, 0, 0);
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..300).map(|_| random.any() as u8).collect();
            let mut input = Input::new(&bytes);
            let mut attack = Attack::new(&mut input);
            while !input.is_empty() {
                match input.below(2) {
                    0 => attack.poke(&mut input),
                    _ => through += u64::from(attack.call(&mut input).expect("an honest end")),
                }
            }
            complaints += u64::from(attack.complained.is_some());
            rung += attack.rung.0;
            attack.recover().expect("an honest end");
        }
        assert!(complaints > 100 && rung > 100 && through > 1000, "{complaints} {rung} {through}");
    }
}
