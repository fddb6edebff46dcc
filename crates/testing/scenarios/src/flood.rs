//! A sender that rings for ever, and a receiver that is rung for and keeps its own pace.

use crate::{Guest, In, Out};
use bulkhead_channel::Stop;
use bulkhead_channel_memory::typed::Pair;

/// From one message to the next.
const PACE: u64 = 1_000_000;

/// Rings for `ms` milliseconds, also if it is not asked for, and sends a message every `pace` nanoseconds, or now and
/// then. It begins when a peer has agreed to a session: where processors are emulated, it leaves little of them to a
/// booting guest.
pub fn flood(host: &impl Guest, pair: &Pair<'static>) -> Option<()> {
    let end = host.now() + 1_000_000 * host.number("ms")?;
    let pace = host.number("pace").unwrap_or(PACE);
    let mut out = Out::open(pair)?;
    let mut caller = host.caller(pair)?;
    let (mut number, mut due, mut rings) = (0, host.now(), 0u64);
    while host.now() < end {
        if number == 0 {
            host.sleep_until(due);
        }
        if host.now() >= due {
            // A flooder ignores if a message is taken, but stops when no receiver is left.
            match caller.after(out.send(number + 1)) {
                Ok(()) => number += 1,
                Err(Stop::Left) => break,
                Err(_) => {}
            }
            due += pace;
        }
        if number > 0 {
            caller.ring();
            rings += 1;
        }
    }
    host.say(format_args!("rang {rings} times, sent {number}"));
    Some(())
}

/// Sleeps until it is rung for, for `ms` milliseconds, and says how often that was and how often it had asked.
pub fn woken(host: &impl Guest, pair: &Pair<'static>) -> Option<()> {
    let mut from = In::open(pair)?;
    let mut sleeper = host.sleeper(pair)?;
    let end = host.now() + 1_000_000 * host.number("ms")?;
    let mut messages = 0u64;
    while host.now() < end {
        match sleeper.doze(|| from.receive()) {
            Ok(_) => messages += 1,
            Err(Stop::Wait | Stop::Apart) => {}
            Err(news) => {
                host.say(format_args!("woken: {news:?}"));
                break;
            }
        }
    }
    from.close();
    let (interrupts, armings) = (host.interrupts(sleeper.platform()), sleeper.armings());
    host.say(format_args!("{interrupts} interrupts, {armings} armings, {messages} messages"));
    (interrupts <= u64::from(armings)).then_some(())
}

/// Computes for a third of each of `count` periods of a millisecond, and fails if it misses a deadline, which is the
/// next one's begin.
pub fn keep(host: &impl Guest) -> Option<()> {
    const PERIOD: u64 = 1_000_000;
    let count = host.number("count")?;
    let (mut release, mut missed) = (host.now(), 0);
    for _ in 0..count {
        let done = host.now() + PERIOD / 3;
        while host.now() < done {
            core::hint::spin_loop();
        }
        release += PERIOD;
        missed += u64::from(host.now() >= release);
        host.sleep_until(release);
    }
    host.say(format_args!("missed {missed} of {count}"));
    (missed == 0).then_some(())
}
