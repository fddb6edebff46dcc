//! Ends that are measured: a message, a ring, a sleep and its end, each between two markers.

use crate::{Guest, Note};
use bulkhead_channel::Stop;
use bulkhead_channel::adaptive::{Platform, Sleeper};
use bulkhead_channel_memory::typed::{Mapping, Pair, Receiver, Sender};
use bulkhead_layout::mark;
use bulkhead_layout::marker::{BEGIN, END, id};

/// Sends `count` messages through a queue, `gap` microseconds from one to the next, and wakes the receiver after each.
pub fn send(host: &impl Guest, pair: &Pair<'static>) -> Option<()> {
    let (count, gap) = (host.number("count")?, 1_000 * host.number("gap")?);
    let mut end = Sender::<Note>::open(pair).ok()?;
    let mut caller = host.caller(pair)?;
    while end.attend().is_err() {
        caller.tell();
    }
    host.ready();
    let mut due = host.now();
    for number in 1..=count {
        let note = Note::of(number);
        mark!(BEGIN | id::CHANNEL_SEND);
        let sent = end.send(&note);
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
pub fn receive(host: &impl Guest, pair: &Pair<'static>) -> Option<()> {
    let (count, spin) = (host.number("count")?, host.number("spin").is_some());
    let mut end = Receiver::<Note>::open(pair).ok()?;
    let mut sleeper = host.sleeper(pair)?;
    while end.attend().is_err() {}
    host.ready();
    for number in 1..=count {
        let note = if spin { look(&mut end) } else { sleep(&mut end, &mut sleeper) };
        if note.ok()? != Note::of(number) {
            return None;
        }
    }
    host.say(format_args!("measured {count}"));
    Some(())
}

/// Argument for a marker in a loop. For all that the compiler knows, the marker could change the end, so no access that
/// belongs behind it is done before.
#[inline(always)]
fn seen<T>(end: &mut T) -> u64 {
    core::ptr::from_mut(end) as u64
}

fn look(end: &mut Receiver<'static, Note>) -> Result<Note, Stop> {
    let mut note = Note::of(0);
    loop {
        mark!(BEGIN | id::CHANNEL_RECEIVE, seen(end));
        match end.receive_to(&mut note) {
            Ok(()) => {
                mark!(END | id::CHANNEL_RECEIVE);
                return Ok(note);
            }
            Err(Stop::Wait) => core::hint::spin_loop(),
            Err(news) => return Err(news),
        }
    }
}

/// The span begins where the processor waits: a guest's processor, or that of a measured kernel.
fn sleep<P: Platform>(
    end: &mut Receiver<'static, Note>,
    sleeper: &mut Sleeper<Mapping<'static>, P>,
) -> Result<Note, Stop> {
    let note = end.recv(sleeper);
    mark!(END | id::CHANNEL_WAKE);
    note
}
