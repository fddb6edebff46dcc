//! A victim that keeps its deadlines, whatever party is on the other end.

use crate::{Guest, In, MOST, Out};
use bulkhead_channel::Stop;
use bulkhead_channel_memory::typed::Pair;

/// Calls into each channel in a period.
const CALLS: u32 = 64;
/// A period.
const PERIOD: u64 = 10_000_000;

enum End {
    Out(Out),
    In(In),
}

/// Counts of an end.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Messages, whole or not; of a sender those that it got rid of.
    messages: u64,
    corrupted: u64,
    /// True if it has rung.
    rang: bool,
}

/// Uses its channels in each of `count` periods, and begins new sessions where a peer spoils them. It
/// fails if it misses a deadline, which is the next period's begin.
pub fn victim(host: &impl Guest, pairs: [Option<&Pair<'static>>; MOST]) -> Option<()> {
    let count = host.number("count")?;
    let (mut missed, mut seen) = (0, Seen::default());
    let mut ends =
        pairs.map(|pair| pair.and_then(|pair| Some((pair, open(pair)?, host.caller(pair)))));
    let mut release = host.now();
    for number in 0..count {
        for (pair, end, caller) in ends.iter_mut().flatten() {
            let mut anew = number % 16 == 15;
            for _ in 0..CALLS {
                anew |= step(end, number, &mut seen);
                // It rings for whatever a hostile receiver says that it has armed: an exit at most for each call.
                seen.rang |= caller.as_mut().is_some_and(|caller| caller.tell());
                // Where cores take turns in an emulator, here is one's end: the peer acts between any two calls.
                core::hint::spin_loop();
            }
            if anew {
                *end = open(pair)?;
            }
        }
        release += PERIOD;
        missed += u64::from(host.now() >= release);
        host.sleep_until(release);
    }
    let Seen { messages, corrupted, rang } = seen;
    let some = |count| if count > 0 { "some" } else { "no" };
    host.say(format_args!(
        "victim missed {missed} of {count}; {} messages, {} corrupted, {} rings",
        some(messages),
        some(corrupted),
        some(u64::from(rang))
    ));
    (missed == 0 && messages > 0).then_some(())
}

fn open(pair: &Pair<'static>) -> Option<End> {
    match pair.sends() {
        true => Out::open(pair).map(End::Out),
        false => In::open(pair).map(End::In),
    }
}

/// Makes a call. Returns true if the session is spoilt.
fn step(end: &mut End, number: u64, seen: &mut Seen) -> bool {
    let done = match end {
        End::Out(end) => end.send(number),
        End::In(end) => end.receive().map(|_| ()),
    };
    let spoilt = done == Err(Stop::Corrupted);
    seen.messages += u64::from(done.is_ok());
    seen.corrupted += u64::from(spoilt);
    spoilt
}
