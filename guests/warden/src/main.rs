//! Stops, starts and restarts another sandbox, `target=INDEX` (default 1), by `do=STEP,STEP...`:
//!
//! * `wait` (until it runs), `stop`, `start`, `restart`;
//! * `sleep` (2 ms), `nap` (`nap=MILLISECONDS`, default 3,000), `gone` (until it has ended by itself);
//! * `locked`, `unlocked` (until it is so), `refused` (requests do not end it, because it is locked);
//! * `life1` to `life9` (until it is in that life, the first one is 0);
//! * `flood` (`calls=N` requests, default 20,000, without a pause; `ask=start`, `stop` or `restart`, default `start`).
//!
//! Exit code 0 if all came to pass in `patience=MILLISECONDS` each, else the number of the step that did not, from 1.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::hypercall::{
    BUSY, CONTROL_RESTART, CONTROL_START, CONTROL_STOP, LOCKED, OK, STATUS_LOCKED,
};
use bulkhead_sdk::layout::report::State;
use bulkhead_sdk::{Context, hypercall, println, time};
use core::sync::atomic::{AtomicU64, Ordering};

bulkhead_sdk::entry!(guest);

const MILLISECOND: u64 = 1_000_000;
/// Milliseconds for a step.
static PATIENCE: AtomicU64 = AtomicU64::new(3_000);

/// State and restarts.
fn status(target: u32) -> (u64, u64) {
    let status = hypercall::status(target);
    (status & 0xFF, status >> 8 & u64::from(u32::MAX))
}

fn locked(target: u32) -> bool {
    hypercall::status(target) & STATUS_LOCKED != 0
}

/// No request ends it, and one that would change nothing is answered as ever.
fn refused(target: u32) -> bool {
    let asked = [CONTROL_STOP, CONTROL_RESTART, CONTROL_START];
    asked.map(|request| hypercall::control(target, request)) == [LOCKED, LOCKED, OK]
}

fn until(mut reached: impl FnMut() -> bool) -> bool {
    (0..PATIENCE.load(Ordering::Relaxed)).any(|_| {
        reached() || {
            time::sleep(MILLISECOND);
            false
        }
    })
}

fn ask(target: u32, request: u64) -> bool {
    until(|| match hypercall::control(target, request) {
        OK => true,
        BUSY => false,
        other => {
            println!("warden: request {request} gave {other:#x}");
            false
        }
    })
}

/// Abuses a right: so many requests, whatever comes of them. Says the number of each result.
fn flood(target: u32, request: u64, calls: u64) {
    let (begin, mut taken, mut busy) = (time::counter(), 0u64, 0u64);
    for _ in 0..calls {
        match hypercall::control(target, request) {
            OK => taken += 1,
            BUSY => busy += 1,
            _ => {}
        }
    }
    let us = (time::counter() - begin) / time::ticks(1_000).max(1);
    println!("warden: {calls} requests in {us} us: {taken} taken, {busy} too early");
}

fn guest(context: Context) -> u32 {
    if let Some(patience) = context.arg_u64("patience") {
        PATIENCE.store(patience, Ordering::Relaxed);
    }
    let target = context.arg_u64("target").unwrap_or(1) as u32;
    let nap = context.arg_u64("nap").unwrap_or(3_000);
    let steps = context.arg("do").unwrap_or("wait,stop,start,restart");
    for (n, step) in steps.split(',').enumerate() {
        let before = status(target).1;
        let is = |state: State| status(target).0 == state as u64;
        let done = match step {
            "sleep" => {
                time::sleep(2 * MILLISECOND);
                true
            }
            "nap" => {
                time::sleep(nap * MILLISECOND);
                true
            }
            "flood" => {
                let request = match context.arg("ask") {
                    Some("stop") => CONTROL_STOP,
                    Some("restart") => CONTROL_RESTART,
                    _ => CONTROL_START,
                };
                flood(target, request, context.arg_u64("calls").unwrap_or(20_000));
                true
            }
            "wait" => until(|| is(State::Running)),
            "locked" => until(|| locked(target)),
            "unlocked" => until(|| !locked(target)),
            // It is locked while it is launched, too.
            "refused" => {
                until(|| is(State::Running))
                    && refused(target)
                    && locked(target)
                    && is(State::Running)
            }
            life if life.starts_with("life") => {
                let life =
                    life.bytes().last().map_or(0, |digit| u64::from(digit.saturating_sub(b'0')));
                until(|| status(target).1 >= life)
            }
            "gone" => until(|| is(State::Stopped) || is(State::Exited)),
            "stop" => ask(target, CONTROL_STOP) && until(|| is(State::Stopped)),
            // It may be quick, and have ended again.
            "start" => {
                ask(target, CONTROL_START) && until(|| is(State::Running) || is(State::Exited))
            }
            "restart" => {
                ask(target, CONTROL_RESTART)
                    && until(|| is(State::Running) && status(target).1 == before + 1)
            }
            _ => false,
        };
        let (state, restarts) = status(target);
        println!("warden: {step}: {done}, state {state}, {restarts} restarts");
        if !done {
            return n as u32 + 1;
        }
    }
    0
}
