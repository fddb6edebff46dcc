//! A sender of messages to several receivers, each end at a pace of its own. One receiver breaks (figure 29 of the
//! Quest-V article).

use crate::{Guest, In, MOST, Out};
use bulkhead_channel::layout::{ARMED, GEOMETRY, HELLO, IDENTITY, INDEX};
use bulkhead_channel::{Memory, Stop, Word};
use bulkhead_channel_memory::typed::Pair;
use bulkhead_layout::mark;
use bulkhead_layout::marker::{EVENT, id};

const MILLI: u64 = 1_000_000;

/// Sends `count` messages, one every `gap` milliseconds, to each receiver that takes it, and waits for none. It fails
/// if one that takes them all was refused, or it was late itself.
pub fn beat(host: &impl Guest, pairs: [Option<&Pair<'static>>; MOST]) -> Option<()> {
    let (count, gap) = (host.number("count")?, MILLI * host.number("gap")?);
    let mut ends = pairs.map(|pair| pair.and_then(Out::open));
    let (mut due, mut late) = (host.now(), 0u64);
    let (mut refused, mut news) = ([0u64; MOST], [0u64; MOST]);
    for number in 1..=count {
        for (n, end) in ends.iter_mut().enumerate() {
            match end.as_mut().map(|end| end.attend().and_then(|()| end.send(number))) {
                None | Some(Ok(())) => {}
                Some(Err(Stop::Wait | Stop::Apart)) => refused[n] += 1,
                Some(Err(_)) => news[n] += 1,
            }
        }
        due += gap;
        late += u64::from(host.now() >= due);
        host.sleep_until(due);
    }
    host.say(format_args!("beat {count} times, {late} late; refused {refused:?}, news {news:?}"));
    (late == 0).then_some(())
}

/// Takes the messages there every `every` milliseconds, for `ms`, and marks when and how many. In its first life it
/// breaks after `break` of them, if it has that argument. It then writes to all words that it can, and at last to one
/// that it cannot.
pub fn listen(host: &impl Guest, pair: &Pair<'static>) -> Option<()> {
    let (every, ms) = (host.number("every")?, host.number("ms")?);
    let breaks = host.number("break").filter(|_| host.life() == 0);
    let mut end = In::open(pair)?;
    // By the clock that all sandboxes have, so that a second life goes on where the first one was.
    let (first, end_of) = (host.now() / MILLI, host.now() / MILLI + ms);
    while host.now() / MILLI < end_of {
        let mut heard = 0u64;
        // As many at most as a ring holds: a fast sender keeps no receiver here.
        for _ in 0..1024 {
            match end.receive() {
                Ok(_) => heard += 1,
                Err(_) => break,
            }
        }
        let now = host.now() / MILLI;
        mark!(EVENT | id::CHANNEL_HEARD, now << 16 | heard);
        if breaks.is_some_and(|after| now >= first + after) {
            fall(pair)?;
        }
        host.sleep_until((now / every + 1) * every * MILLI);
    }
    Some(())
}

/// Writes garbage to the words of a channel that its end can write.
pub fn spoil(pair: &Pair<'static>) -> Option<()> {
    let own = if pair.sends() { pair.tx() } else { pair.rx() };
    for at in [IDENTITY, GEOMETRY, HELLO, INDEX, ARMED] {
        own.word(at)?.set(0xDEAD_BEEF_DEAD_BEEF);
    }
    Some(())
}

/// Does that, and then writes to its peer's.
pub fn fall(pair: &Pair<'static>) -> Option<()> {
    spoil(pair)?;
    let theirs = if pair.sends() { pair.rx() } else { pair.tx() };
    theirs.word(INDEX)?.set(0);
    // A receiver that can do that is not kept apart.
    None
}
