//! Scenarios for ends of channels in tests, in a bare guest (`guests/talk`) and in a program of the kernel
//! (`programs/talk`). They are [`send`], [`receive`], [`victim`], [`rogue`], which writes garbage, one that rings
//! for ever, a client of a disk, and a network card's other side.
#![no_std]

mod card;
mod disk;
pub mod edu;
mod exchange;
mod flood;
mod isolation;
mod measure;
pub mod meet;
mod note;
pub mod pilot;
pub mod planted;
mod rogue;
mod round;
mod victim;

pub use bulkhead_channel_memory::guest::Guest;
pub use isolation::{fall, spoil};
pub use note::Note;
pub use rogue::rogue;
pub use victim::victim;

use bulkhead_channel::bell::{Caller, Ring};
use bulkhead_channel::layout::ARMED;
use bulkhead_channel::layout::Kind;
use bulkhead_channel::{Memory, Stop, Word};
use bulkhead_channel_memory::Mapping;
use bulkhead_channel_memory::typed::{Pair, Reader, Receiver, Sender, Writer};

/// Receivers of a channel that [`send`] and [`victim`] serve.
pub const MOST: usize = 4;

/// Runs the argument `role` with the ends of `channel`, and of `and` if it needs two channels; the exit code.
pub fn run(host: &impl Guest) -> u32 {
    let mut ends = [None; MOST];
    let names = ["channel", "and"].into_iter().filter_map(|key| host.arg(key));
    let pairs = names.flat_map(|name| host.pairs(name));
    for (end, pair) in ends.iter_mut().zip(pairs) {
        *end = Some(pair);
    }
    let ends = ends.each_ref().map(|end| end.as_ref());
    let done = match host.arg("role") {
        Some("send") => send(host, ends),
        Some("receive") => ends[0].and_then(|pair| receive(host, pair)),
        Some("victim") => victim(host, ends),
        Some("flood") => ends[0].and_then(|pair| flood::flood(host, pair)),
        Some("woken") => ends[0].and_then(|pair| flood::woken(host, pair)),
        Some("keep") => flood::keep(host),
        Some("measure-send") => ends[0].and_then(|pair| measure::send(host, pair)),
        Some("measure-receive") => ends[0].and_then(|pair| measure::receive(host, pair)),
        Some("ask") => exchange::ask(host, ends),
        Some("answer") => exchange::answer(host, ends),
        Some("round") => round::round(host, ends),
        Some("back") => round::back(host, ends),
        Some("beat") => isolation::beat(host, ends),
        Some("listen") => ends[0].and_then(|pair| isolation::listen(host, pair)),
        Some("disk") => ends[0].and_then(|pair| disk::disk(host, pair)),
        Some("card") => ends[0].and_then(|pair| card::card(host, pair)),
        Some("rogue") => ends[0].and_then(|pair| rogue(host, pair)),
        _ => None,
    };
    u32::from(done.is_none())
}

/// Up to which number to go in this life: half of `count`, and all in the last of `lives`.
pub fn limit(host: &impl Guest) -> Option<u64> {
    let count = host.number("count")?;
    Some(if host.life() + 1 < host.number("lives").unwrap_or(1) { count / 2 } else { count })
}

/// The end that sends, of any kind.
enum Out {
    Queue(Sender<'static, Note>),
    Records(bulkhead_channel::records::Sender<Mapping<'static>>),
    Mailbox(Writer<'static, Note>),
}

impl Out {
    fn open(pair: &Pair<'static>) -> Option<Self> {
        match pair.shape().kind() {
            Kind::Queue => Sender::open(pair).ok().map(Self::Queue),
            Kind::Records => pair.send_records().ok().map(Self::Records),
            Kind::Mailbox => Writer::open(pair).ok().map(Self::Mailbox),
            Kind::Virtio => None,
        }
    }

    /// Looks for a new life of the receiver: a sender that sends rarely would else learn of it when the ring is full.
    fn attend(&mut self) -> Result<(), Stop> {
        match self {
            Self::Queue(end) => end.attend(),
            Self::Records(end) => end.attend(),
            Self::Mailbox(_) => Ok(()),
        }
    }

    fn send(&mut self, number: u64) -> Result<(), Stop> {
        let note = Note::of(number);
        match self {
            Self::Queue(end) => end.send(&note),
            Self::Records(end) => end.send(note.part()),
            Self::Mailbox(end) => end.write(&note),
        }
    }
}

/// The end that receives.
enum In {
    Queue(Receiver<'static, Note>),
    Records(bulkhead_channel::records::Receiver<Mapping<'static>>),
    Mailbox(Reader<'static, Note>),
}

impl In {
    fn open(pair: &Pair<'static>) -> Option<Self> {
        match pair.shape().kind() {
            Kind::Queue => Receiver::open(pair).ok().map(Self::Queue),
            Kind::Records => pair.receive_records().ok().map(Self::Records),
            Kind::Mailbox => Reader::open(pair).ok().map(Self::Mailbox),
            Kind::Virtio => None,
        }
    }

    /// The number of a message, if it is whole.
    fn receive(&mut self) -> Result<Option<u64>, Stop> {
        let note = match self {
            Self::Queue(end) => end.receive()?,
            Self::Mailbox(end) => end.read_newer()?,
            Self::Records(end) => {
                let mut bytes = [0; Note::LEN];
                let len = end.receive(&mut bytes)?;
                return Ok(Note::whole_part(&bytes[..len.min(Note::LEN)]));
            }
        };
        Ok(note.is_whole().then_some(note.number))
    }

    /// Leaves.
    fn close(self) {
        match self {
            Self::Queue(mut end) => end.close(),
            Self::Records(mut end) => end.close(),
            // Its writer need not be told.
            Self::Mailbox(_) => {}
        }
    }

    /// True if it sees each message, not only the newest.
    const fn sees_all(&self) -> bool {
        !matches!(self, Self::Mailbox(_))
    }
}

/// Sends [`limit`] messages to each receiver, numbered from 1, as fast as they take them, or with `gap` microseconds
/// from one to the next. With `poke=1` it writes in the end to memory that it may only read.
fn send(host: &impl Guest, pairs: [Option<&Pair<'static>>; MOST]) -> Option<()> {
    let count = limit(host)?;
    let gap = host.number("gap").map(|micros| 1_000 * micros);
    let mut ends =
        pairs.map(|pair| pair.and_then(|pair| Some((Out::open(pair)?, host.caller(pair)))));
    let mut due = host.now();
    for number in 1..=count {
        for (end, caller) in ends.iter_mut().flatten() {
            while let Err(stop) = call(caller, end.send(number)) {
                match (stop, gap) {
                    // One that is in no hurry leaves the processor to others, where an emulator has one for all cores.
                    (Stop::Wait | Stop::Apart, Some(gap)) => host.sleep_until(host.now() + gap),
                    (Stop::Wait | Stop::Apart, None) => core::hint::spin_loop(),
                    (news, _) => host.say(format_args!("sender: {news:?} at {number}")),
                }
            }
        }
        if let Some(gap) = gap {
            // The sender does not hurry to make up for a late receiver.
            due = host.now().max(due + gap);
            host.sleep_until(due);
        }
    }
    host.say(format_args!("sent {count} to {} end(s)", ends.iter().flatten().count()));
    if host.number("poke").is_some() {
        // Memory that its end may only read.
        pairs[0]?.rx().word(ARMED)?.set(1);
    }
    Some(())
}

/// Wakes the receiver if it sleeps, and there is a doorbell.
fn call<R: Ring>(
    caller: &mut Option<Caller<Mapping<'static>, R>>,
    sent: Result<(), Stop>,
) -> Result<(), Stop> {
    match caller {
        Some(caller) => caller.after(sent),
        None => sent,
    }
}

/// Receives until number [`limit`], asleep between messages if there is a doorbell, and reports errors on the way.
fn receive(host: &impl Guest, pair: &Pair<'static>) -> Option<()> {
    let count = limit(host)?;
    let mut end = In::open(pair)?;
    let mut sleeper = host.sleeper(pair);
    let (mut last, mut wrong) = (0, 0);
    // A receiver that begins anew finds a sender that is under way.
    let mut any = host.life() > 0;
    while last < count {
        let received = match &mut sleeper {
            Some(sleeper) => sleeper.wait(|| end.receive()),
            None => end.receive(),
        };
        match received {
            Ok(Some(number)) => {
                let follows = if end.sees_all() { number == last + 1 } else { number > last };
                wrong += u64::from(!follows && !any);
                (last, any) = (number, false);
            }
            Ok(None) => wrong += 1,
            Err(Stop::Wait | Stop::Apart) => core::hint::spin_loop(),
            Err(news) => {
                host.say(format_args!("receiver: {news:?}"));
                // The sender's next life counts from 1 again.
                last = 0;
            }
        }
    }
    host.say(format_args!("received up to {last}, {wrong} wrong"));
    (wrong == 0).then_some(())
}
