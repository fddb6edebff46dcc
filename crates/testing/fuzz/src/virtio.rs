//! A virtio device's side with a driver that writes anything into all that it can write, between two calls. Nothing
//! panics, no part of a chain leaves the buffers of its section, and nothing is written to the driver's section. Each
//! call takes a bounded number of accesses. A chain of an older session is not used in a later one. With an honest
//! driver the device works again.

use crate::{Input, Seen};
use bulkhead_channel::host::Region;
use bulkhead_channel::page::{Hello, Phase};
use bulkhead_pci_fake::Words;
use bulkhead_virtio::layout::*;
use bulkhead_virtio::{Chain, Device, News, Offer};
use std::collections::BTreeMap;

/// Bytes of a section: a few buffers behind the rings.
const SECTION: usize = POOL + 4096;
const SIZE: u16 = 4;
const OFFER: Offer<'_> = Offer { device: 1, features: 1 << 15, config: &[], queues: &[SIZE; 2] };
/// Accesses of a call: of one that begins a session those to each queue's words.
const ACCESSES: usize = 64;

struct Attack {
    device: Device<Region>,
    mine: Region,
    theirs: Region,
    /// The driver's last writes, by place.
    wrote: BTreeMap<usize, u64>,
    /// Chains that were taken, by session and queue. Those of older sessions stay.
    held: Vec<((u32, usize), Chain)>,
    sessions: u32,
}

/// Attacks a device.
pub fn run(bytes: &[u8]) -> Result<Seen, String> {
    let mut input = Input::new(bytes);
    let mut attack = Attack::new();
    let mut seen = Seen::default();
    while !input.is_empty() {
        match input.below(2) {
            0 => attack.poke(&mut input),
            _ => seen.add(attack.call(&mut input)?),
        }
    }
    attack.untouched()?;
    attack.recover()?;
    Ok(seen)
}

impl Attack {
    fn new() -> Self {
        let (mine, theirs) = (Region::new(SECTION), Region::new(SECTION));
        let device = Device::open(mine.clone(), theirs.clone(), SECTION, &OFFER).expect("it fits");
        Self { device, mine, theirs, wrote: BTreeMap::new(), held: Vec::new(), sessions: 0 }
    }

    /// A hello that answers the device's.
    fn hello(&self, epoch: u32) -> u64 {
        let seen = Hello::of(self.mine.look(HELLO / 8)).epoch;
        Hello { phase: Phase::Open, epoch, seen }.word()
    }

    /// A word of the driver's: what would let it go on, nearly that, or anything.
    fn poke(&mut self, input: &mut Input) {
        let queue = input.below(2);
        match input.below(20) {
            0..4 => self.honest(input.below(8) == 0),
            // A buffer that is read, or one that is written.
            4..7 => {
                let (at, flags) = input.pick(&[(POOL, 0), (SECTION + POOL, u64::from(WRITE))]);
                let number = input.below(4);
                self.set(desc(queue) + 16 * number, at as u64);
                self.set(desc(queue) + 16 * number + 8, 8 | flags << 32);
            }
            7..11 => {
                let (head, more) = (input.below(4) as u64, input.below(3) as u64);
                let index = self.theirs.look(avail(queue) / 8) >> 16 & 0xFFFF;
                self.set(avail(queue), ((index + more) & 0xFFFF) << 16 | head << 32 | head << 48);
            }
            11 => self.set(STATUS, input.pick(&[0, DRIVER_OK, 0xF])),
            12 => self.set(ACCEPTED, input.pick(&[VERSION_1, VERSION_1 | 1 << 15, u64::MAX])),
            13 => self.set(SIZES, input.pick(&[0x4_0004, 0x2_0004, 4, 0x3_0004, 0x8_0004])),
            14 | 15 => {
                let near =
                    [POOL, SECTION - 1, SECTION, SECTION + POOL, 2 * SECTION - 8, POOL - 1, 0];
                self.set(desc(queue) + 16 * input.below(4), input.pick(&near) as u64);
            }
            16 | 17 => {
                let len = input.pick(&[0, 1, 8, 4096, 4097, u64::from(u32::MAX)]);
                let (flags, next) = (input.below(5) as u64, input.below(5) as u64);
                self.set(desc(queue) + 16 * input.below(4) + 8, len | flags << 32 | next << 48);
            }
            18 => self.set(avail(queue), input.next()),
            _ => self.set(8 * input.below(SECTION / 8), input.next()),
        }
    }

    fn set(&mut self, at: usize, value: u64) {
        self.theirs.poke(at / 8, value);
        self.wrote.insert(at / 8, value);
    }

    /// Writes the words of an honest driver; it goes on, or begins anew with empty queues.
    fn honest(&mut self, anew: bool) {
        let epoch = Hello::of(self.theirs.look(HELLO / 8)).epoch.max(1) + u32::from(anew);
        if anew {
            (0..2).for_each(|queue| self.set(avail(queue), 0));
        }
        for (at, value) in [(ACCEPTED, VERSION_1), (SIZES, 0x4_0004), (STATUS, DRIVER_OK)] {
            self.set(at, value);
        }
        self.set(HELLO, self.hello(epoch));
    }

    /// Checks that only the driver has written to its section.
    fn untouched(&self) -> Result<(), String> {
        let is = |at: usize| self.theirs.look(at) == self.wrote.get(&at).copied().unwrap_or(0);
        let other = (0..self.theirs.words()).find(|at| !is(*at));
        other.map_or(Ok(()), |at| Err(format!("it writes to the driver's section, at {at}")))
    }

    fn accesses(&self) -> usize {
        self.mine.accesses() + self.theirs.accesses()
    }

    /// A call by the device's side; whether it was done.
    fn call(&mut self, input: &mut Input) -> Result<bool, String> {
        let accesses = self.accesses();
        let done = self.act(input)?;
        let accesses = self.accesses() - accesses;
        if accesses > ACCESSES {
            return Err(format!("{accesses} accesses"));
        }
        Ok(done)
    }

    fn act(&mut self, input: &mut Input) -> Result<bool, String> {
        let (which, number) = (input.below(4), input.below(2));
        if which == 0 {
            let news = self.device.attend();
            let begun = matches!(news, Some(News::Begun(_)));
            self.sessions += u32::from(begun);
            return Ok(begun);
        }
        let Some(queue) = self.device.queue(number) else { return Ok(false) };
        if which == 1 {
            let own = self.held.iter().position(|((_, of), _)| *of == number);
            let Some(((session, _), chain)) = own.map(|at| self.held.swap_remove(at)) else {
                return Ok(false);
            };
            let told = self.mine.look(used(number) / 8) as u32;
            queue.used(&chain, input.below(8192));
            queue.tell();
            let more = self.mine.look(used(number) / 8) as u32 != told;
            if more != (session == self.sessions) {
                return Err(format!("a chain of session {session} in {}: {more}", self.sessions));
            }
            return Ok(true);
        }
        match queue.take() {
            Ok(None) => Ok(false),
            Ok(Some(chain)) => {
                for part in [chain.reads, chain.writes].into_iter().filter(|part| part.len > 0) {
                    if part.at < POOL || part.at + part.len > SECTION {
                        return Err(format!("{part:?} is no buffer of its section"));
                    }
                }
                if chain.reads.len + chain.writes.len == 0 {
                    return Err("a chain of nothing".into());
                }
                self.held.push(((self.sessions, number), chain));
                Ok(true)
            }
            Err(_) => {
                self.device.spoilt();
                if self.device.queue(number).is_some() {
                    return Err("it goes on with a queue that is spoilt".into());
                }
                Ok(false)
            }
        }
    }

    /// An honest driver comes; a chain goes to and fro.
    fn recover(mut self) -> Result<(), String> {
        let fail = |what: &str| Err(format!("it does not work again: {what}"));
        let poke = |at: usize, value| self.theirs.poke(at / 8, value);
        poke(STATUS, 0);
        poke(avail(0), 0);
        poke(HELLO, self.hello(77));
        // First it hears, perhaps, that another session has ended.
        self.device.attend();
        self.device.attend();
        // It answers before the driver says that it is ready.
        if Hello::of(self.mine.look(HELLO / 8)).seen != 77 {
            return fail("no answer");
        }
        poke(ACCEPTED, VERSION_1);
        poke(SIZES, 4);
        poke(STATUS, DRIVER_OK);
        if self.device.attend() != Some(News::Begun(VERSION_1)) {
            return fail("no session");
        }
        poke(desc(0) + 32, (SECTION + POOL) as u64);
        poke(desc(0) + 40, 100 | u64::from(WRITE) << 32);
        poke(avail(0), 1 << 16 | 2 << 32);
        let Some(queue) = self.device.queue(0) else { return fail("no queue") };
        let Ok(Some(chain)) = queue.take() else { return fail("no chain") };
        queue.used(&chain, 60);
        queue.tell();
        let (word, len) = (self.mine.look(used(0) / 8), self.mine.look(used(0) / 8 + 1) as u32);
        if (word, len) != (2 << 32 | 1 << 16, 60) || self.device.queue(1).is_some() {
            return fail("not used");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_random::SplitMix64;

    /// A driver that clears its rings after it has said so is lost, not to blame; one that only clears them is.
    #[test]
    fn who_begins_anew_is_not_to_blame() {
        for (anew, news) in [(true, News::Lost), (false, News::Corrupted)] {
            let mut attack = Attack::new();
            attack.honest(false);
            attack.device.attend();
            assert_eq!(attack.device.queue(0).expect("a session").take(), Ok(None));
            if anew {
                attack.set(HELLO, Hello { phase: Phase::Absent, epoch: 2, seen: 1 }.word());
            }
            attack.set(avail(0), 0xFFFF << 16);
            assert!(attack.device.queue(0).expect("a session").take().is_err());
            assert_eq!(attack.device.spoilt(), news);
            assert!(attack.device.queue(0).is_none());
            assert_eq!(attack.device.attend(), None);
            attack.recover().expect("an honest device");
        }
    }

    /// The attacks reach what they are for: sessions, chains, queues that are spoilt.
    #[test]
    fn attacks_get_somewhere() {
        let mut random = SplitMix64(5);
        let (mut begun, mut held, mut spoilt) = (0, 0, 0);
        for _ in 0..1000 {
            let bytes: Vec<u8> = (0..400).map(|_| random.any() as u8).collect();
            let mut input = Input::new(&bytes);
            let mut attack = Attack::new();
            while !input.is_empty() {
                let was = attack.device.queue(0).is_some();
                match input.below(2) {
                    0 => attack.poke(&mut input),
                    _ => drop(attack.call(&mut input).expect("an honest device")),
                }
                let is = attack.device.queue(0).is_some();
                begun += u32::from(!was && is);
                spoilt += u32::from(was && !is);
            }
            held += attack.held.len();
            attack.recover().expect("an honest device");
        }
        assert!(begun > 100 && held > 100 && spoilt > 100, "{begun} {held} {spoilt}");
    }
}
