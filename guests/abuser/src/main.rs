//! Abuses rights that the manifest gives it, each without a pause. `do=RIGHT,RIGHT...` names them: `start`, `stop`,
//! `restart`, `observe`, `links`, `taken`, `lines` and `channels`. Each takes `ms=MILLISECONDS` (default 20). The
//! victim is the sandbox `target=INDEX` (default 0), which it waits for first, and `pause=MILLISECONDS` (default 5)
//! more. `links` takes back offers that no sandbox has accepted; `taken` those that the victim has, around its
//! releases. `nothing` computes, for comparison. Prints its acts; exit code 0 if there was something to abuse in each.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::hypercall::{CONTROL_RESTART, CONTROL_START, CONTROL_STOP, OK};
use bulkhead_sdk::layout::report::State;
use bulkhead_sdk::layout::telemetry;
use bulkhead_sdk::link::{Links, Phase};
use bulkhead_sdk::window::{self, Window};
use bulkhead_sdk::{Context, apic, hypercall, interrupt, line, println, time};
use core::sync::atomic::Ordering;

bulkhead_sdk::entry!(guest);

const MILLISECOND: u64 = 1_000_000;
/// Interrupt vector of the own line.
const VECTOR: u8 = 0x50;
/// IOAPIC: an entry that is masked, and the first entry's register.
const MASKED: u32 = 1 << 16;
const FIRST: u32 = 0x10;
/// Earliest and latest that a link is taken back before and after a release, ns, and from one time to the next.
const BEFORE: u64 = 25_000;
const AFTER: u64 = 5_000;
const STEP: u64 = 67;
/// After this where no telemetry says when, ns: the victim has gone on by then.
const SOON: u64 = 50_000;

/// How often it was done, and how often to some effect.
#[derive(Default)]
struct Done {
    times: u64,
    effects: u64,
}

/// Does it until the time is over.
fn until(end: u64, mut act: impl FnMut() -> bool) -> Done {
    let mut done = Done::default();
    while time::counter() < end {
        done.times += 1;
        done.effects += u64::from(act());
    }
    done
}

fn ask(target: u32, request: u64) -> bool {
    hypercall::control(target, request) == OK
}

/// Reads all of a window.
fn read(window: Option<Window>) -> bool {
    let words = window.map_or(&[][..], |window| window.words());
    words.iter().fold(0, |sum, word| sum | word.load(Ordering::Acquire)) != 0
}

/// Offers a channel and takes it back.
fn offer(context: Context, target: u32) -> bool {
    context.offer(target, 1).is_ok_and(|link| context.close(&link).is_ok())
}

/// When the victim's next release is due, by its telemetry; now if it says nothing.
fn release(context: Context) -> u64 {
    let words = window::channel(context, "telemetry").map_or(&[][..], |window| window.words());
    let Some(record) = telemetry::read(words) else { return time::counter() + time::ticks(SOON) };
    let period = record.period_ns.max(1);
    // It was published a moment ago, of which the steps take care.
    time::counter() + time::ticks(period - record.time_ns % period)
}

/// Offers a channel, and takes it back once it has been accepted. That is a doorbell of the victim's, as near to its
/// next release as `number` says.
fn take(context: Context, target: u32, number: u64) -> bool {
    let Ok(link) = context.offer(target, 1) else { return false };
    let patience = time::counter() + time::ticks(3 * MILLISECOND);
    while context.state(&link).other != Phase::Open && time::counter() < patience {}
    let accepted = context.state(&link).other == Phase::Open;
    if accepted {
        let after = number * STEP % (BEFORE + AFTER);
        let due = release(context) - time::ticks(BEFORE) + time::ticks(after);
        while time::counter() < due {}
    }
    context.close(&link).is_ok() && accepted
}

/// Opens and masks its line: each takes the lock of the machine's IOAPIC.
fn line(own: u32) -> bool {
    line::write(FIRST + 2 * own, u32::from(VECTOR));
    line::write(FIRST + 2 * own, MASKED);
    true
}

fn abuse(context: Context, right: &str, target: u32, end: u64) -> Done {
    let info = context.info();
    match right {
        "start" => until(end, || ask(target, CONTROL_START)),
        "restart" => until(end, || ask(target, CONTROL_RESTART)),
        "stop" => until(end, || ask(target, CONTROL_STOP) | ask(target, CONTROL_START)),
        "observe" => until(end, || window::all(context).filter(|one| read(Some(*one))).count() > 0),
        "links" => until(end, || offer(context, target)),
        "taken" => {
            let mut number = 0;
            until(end, || {
                number += 1;
                take(context, target, number)
            })
        }
        "nothing" => until(end, || true),
        "lines" => {
            let own = info.lines.trailing_zeros();
            interrupt::set(VECTOR, |_, _| {});
            line::write(FIRST + 2 * own + 1, apic::id() << 24);
            until(end, || line(own))
        }
        "channels" => until(end, || read(window::channel(context, "telemetry"))),
        _ => Done::default(),
    }
}

fn guest(context: Context) -> u32 {
    let target = context.arg_u64("target").unwrap_or(0) as u32;
    let length = context.arg_u64("ms").unwrap_or(20) * MILLISECOND;
    while hypercall::status(target) & 0xFF != State::Running as u64
        && context.arg("blind").is_none()
    {
        time::sleep(MILLISECOND);
    }
    time::sleep(context.arg_u64("pause").unwrap_or(5) * MILLISECOND);
    let mut idle = 0;
    for right in context.arg("do").unwrap_or_default().split(',') {
        let done = abuse(context, right, target, time::counter() + time::ticks(length));
        println!("abuser: {right}: {} times, {} to some effect", done.times, done.effects);
        idle += u32::from(done.times == 0);
    }
    idle
}
