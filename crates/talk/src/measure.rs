//! Ends that are measured: a message, a ring, a sleep and its end, each between two markers.

use crate::{Host, Note};
use bulkhead_channel::Stop;
use bulkhead_channel::adaptive::{Platform, Sleeper};
use bulkhead_channel_memory::typed::{Mapping, Pair, Receiver, Sender};
use bulkhead_layout::mark;
use bulkhead_layout::marker::{BEGIN, END, id};

/// Sends `count` messages through a queue, `gap` microseconds from one to the next, and wakes the receiver after each.
pub fn send(host: &impl Host, pair: &Pair<'static>) -> Option<()> {
    let (count, gap) = (host.number("count")?, 1_000 * host.number("gap")?);
    let mut end = Sender::<Note>::open(pair).ok()?;
    let mut caller = host.caller(pair)?;
    while end.raw().attend().is_err() {
        caller.tell();
    }
    host.ready();
    let mut due = host.now();
    for number in 1..=count {
        let words = Note::of(number).words();
        mark!(BEGIN | id::CHANNEL_SEND);
        let sent = place(&mut end, words);
        mark!(END | id::CHANNEL_SEND);
        mark!(BEGIN | id::CHANNEL_RING);
        caller.tell();
        mark!(END | id::CHANNEL_RING);
        sent.ok()?;
        due += gap;
        host.sleep_until(due);
    }
    host.say(format_args!("measured {count}"));
    Some(())
}

/// Receives them: asleep in between, or with `spin=1` by looking.
pub fn receive(host: &impl Host, pair: &Pair<'static>) -> Option<()> {
    let (count, spin) = (host.number("count")?, host.number("spin").is_some());
    let mut end = Receiver::<Note>::open(pair).ok()?;
    let mut sleeper = host.sleeper(pair)?;
    while end.raw().attend().is_err() {}
    host.ready();
    for number in 1..=count {
        let note = if spin { look(&mut end) } else { sleep(&mut end, &mut sleeper) };
        if note.ok()? != Note::of(number).words() {
            return None;
        }
    }
    host.say(format_args!("measured {count}"));
    Some(())
}

/// Sends a message where it will lie.
#[inline(always)]
fn place(end: &mut Sender<'static, Note>, words: [u64; 8]) -> Result<(), Stop> {
    let batch = end.raw().reserve(1)?;
    if let Some(slot) = batch.slot(0) {
        slot.set_block(0, words);
    }
    batch.give(1);
    Ok(())
}

/// Takes a message from where it lies.
#[inline(always)]
fn take(end: &mut Receiver<'static, Note>) -> Result<[u64; 8], Stop> {
    let batch = end.raw().peek(1)?;
    let words = batch.slot(0).map_or([0; 8], |slot| slot.block(0));
    batch.give(1);
    Ok(words)
}

fn look(end: &mut Receiver<'static, Note>) -> Result<[u64; 8], Stop> {
    loop {
        mark!(BEGIN | id::CHANNEL_RECEIVE);
        match take(end) {
            Err(Stop::Wait) => core::hint::spin_loop(),
            other => {
                mark!(END | id::CHANNEL_RECEIVE);
                return other;
            }
        }
    }
}

fn sleep<P: Platform>(
    end: &mut Receiver<'static, Note>,
    sleeper: &mut Sleeper<Mapping<'static>, P>,
) -> Result<[u64; 8], Stop> {
    mark!(BEGIN | id::CHANNEL_WAKE);
    let words = sleeper.wait(|| take(end));
    mark!(END | id::CHANNEL_WAKE);
    words
}
