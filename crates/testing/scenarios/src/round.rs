//! Numbers that go to another sandbox and come back, through two channels with sleeping receivers.

use crate::{Guest, In, MOST, Out};
use bulkhead_channel::Stop;
use bulkhead_channel::adaptive::Sleeper;
use bulkhead_channel::bell::Caller;
use bulkhead_channel_memory::Mapping;
use bulkhead_channel_memory::typed::Pair;

/// An end that sends through one and receives through the other.
struct Ends<'a, H: Guest> {
    host: &'a H,
    to: Out,
    from: In,
    caller: Caller<Mapping<'static>, H::Ring>,
    sleeper: Sleeper<Mapping<'static>, H::Bed>,
}

impl<'a, H: Guest> Ends<'a, H> {
    fn open(host: &'a H, pairs: [Option<&Pair<'static>>; MOST]) -> Option<Self> {
        let [first, second, ..] = pairs;
        let (first, second) = (first?, second?);
        let (to, from) = if first.sends() { (first, second) } else { (second, first) };
        Some(Self {
            host,
            to: Out::open(to)?,
            from: In::open(from)?,
            caller: host.caller(to)?,
            sleeper: host.sleeper(from)?,
        })
    }

    /// Sends after `gap` microseconds, in which the other end can go to sleep.
    fn send(&mut self, number: u64) -> Option<()> {
        let gap = self.host.number("gap").unwrap_or(0);
        self.host.sleep_until(self.host.now() + 1_000 * gap);
        let Self { to, caller, .. } = self;
        loop {
            match caller.after(to.send(number)) {
                Ok(()) => return Some(()),
                Err(Stop::Wait | Stop::Apart) => core::hint::spin_loop(),
                Err(news) => {
                    self.host.say(format_args!("round: {news:?} at {number}"));
                    return None;
                }
            }
        }
    }

    /// Sleeps until the next one comes.
    fn receive(&mut self) -> Result<Option<u64>, Stop> {
        let Self { from, sleeper, .. } = self;
        sleeper.wait(|| from.receive())
    }

    /// How often it slept, and had asked to be woken.
    fn done(mut self, count: u64) -> Option<()> {
        let (interrupts, armings) =
            (self.host.interrupts(self.sleeper.platform()), self.sleeper.armings());
        self.host.say(format_args!("{count} rounds, {interrupts} interrupts, {armings} armings"));
        self.from.close();
        Some(())
    }
}

/// Sends the numbers to `count`, each when the one before has come back, and fails if another one comes.
pub fn round(host: &impl Guest, pairs: [Option<&Pair<'static>>; MOST]) -> Option<()> {
    let mut ends = Ends::open(host, pairs)?;
    let count = host.number("count")?;
    for number in 1..=count {
        ends.send(number)?;
        let back = ends.receive();
        if back != Ok(Some(number)) {
            host.say(format_args!("round: {back:?} for {number}"));
            return None;
        }
    }
    ends.done(count)
}

/// Sends back `count` messages.
pub fn back(host: &impl Guest, pairs: [Option<&Pair<'static>>; MOST]) -> Option<()> {
    let mut ends = Ends::open(host, pairs)?;
    let count = host.number("count")?;
    for _ in 0..count {
        match ends.receive() {
            Ok(Some(number)) => ends.send(number)?,
            other => {
                host.say(format_args!("back: {other:?}"));
                return None;
            }
        }
    }
    ends.done(count)
}
