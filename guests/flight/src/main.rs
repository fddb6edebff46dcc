//! Flies the attitude controller of `bulkhead-flight` at 1 kHz, measures its own
//! releases and publishes telemetry to the channel `telemetry`, if there is one.
//!
//! Arguments: `seconds=N` flies so long, prints a summary and exits; without it the flight never ends. `substeps=N`
//! changes how finely the airframe is integrated, which fills 40 % of the period. With `accept` it accepts, between
//! releases, each channel that it is offered at run time.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod pilot;

use bulkhead_sdk::link::{Links, Phase};
use bulkhead_sdk::time::Periodic;
use bulkhead_sdk::{Context, hypercall, interrupt, mark, marker, println, time};
use core::sync::atomic::{AtomicU64, Ordering};
use pilot::Pilot;

bulkhead_sdk::entry!(guest);

const PERIOD_NS: u64 = 1_000_000;
/// With these the work of a release comes to 399,000 instructions, 40 % of a
/// period at one instruction a nanosecond. The real work,
/// one step of everything, is 80,000 of them.
const SUBSTEPS: u64 = 26;
/// Releases until the guest declares itself ready.
const BOOT_RELEASES: u64 = 100;
/// From start to the first release.
const LEAD_NS: u64 = 2_000_000;
const VECTOR: u8 = 0x40;

// Between the handler and the main loop of one core: each has one writer.
static DUE: AtomicU64 = AtomicU64::new(0);
static PERIOD: AtomicU64 = AtomicU64::new(0);
static RELEASED: AtomicU64 = AtomicU64::new(0);
static LATE: AtomicU64 = AtomicU64::new(0);

/// A release: how late is it, and arm the next one for its absolute time. TSC
/// ticks here, because a division has no place in a handler.
fn released(_: &mut interrupt::Frame, entered: u64) {
    let due = DUE.load(Ordering::Relaxed);
    let Some(late) = entered.checked_sub(due) else {
        // The counter's 32 bits ended before the time came.
        time::arm(due);
        return;
    };
    let next = due + PERIOD.load(Ordering::Relaxed);
    time::arm(next);
    DUE.store(next, Ordering::Relaxed);
    LATE.store(late, Ordering::Relaxed);
    RELEASED.fetch_add(1, Ordering::Release);
    mark!(marker::VALUE | marker::id::FLIGHT_JITTER, late);
}

/// Accepts offers, and forgets those that were taken back: some hypercalls of its own choice.
fn consent(context: Context) {
    for link in context.links().filter(|link| !link.mine) {
        let state = context.state(&link);
        if state.own == Phase::Gone {
            // It is closed, or the next look closes it.
            let _ = context.close(&link);
        } else if state.offered(context.info().sandbox) {
            // It may have been taken back meanwhile.
            let _ = context.accept(&link, state.epoch);
        }
    }
}

/// Sleeps until a release number above `seen`; returns it.
fn wait_beyond(seen: u64) -> u64 {
    interrupt::disable();
    loop {
        let released = RELEASED.load(Ordering::Acquire);
        if released > seen {
            interrupt::enable();
            return released;
        }
        interrupt::wait();
    }
}

fn guest(context: Context) -> u32 {
    let releases = context.arg_u64("seconds").map(|s| s * 1_000);
    let substeps = context.arg_u64("substeps").unwrap_or(SUBSTEPS).max(1) as u32;
    let consents = context.arg("accept").is_some();
    let mut pilot = Pilot::new(context, PERIOD_NS, substeps);
    println!(
        "flight: incarnation {}, 1 kHz, telemetry {}",
        context.incarnation(),
        if pilot.publishes() { "on" } else { "off" }
    );

    let start = time::counter() + time::ticks(LEAD_NS);
    let period = time::ticks(PERIOD_NS);
    DUE.store(start, Ordering::Relaxed);
    PERIOD.store(period, Ordering::Relaxed);
    Periodic::new(start, period).start(VECTOR, released);

    let mut served = 0;
    loop {
        let now = wait_beyond(served);
        let began = time::counter();
        mark!(marker::BEGIN | marker::id::FLIGHT_RELEASE);
        pilot.serve(now - served - 1, LATE.load(Ordering::Relaxed), start);
        mark!(marker::END | marker::id::FLIGHT_RELEASE);
        pilot.account(time::counter() - began);
        served = now;
        if consents {
            consent(context);
        }
        if pilot.record().releases == BOOT_RELEASES {
            hypercall::ready();
            mark!(marker::EVENT | marker::id::START);
        }
        if releases.is_some_and(|limit| served >= limit) {
            break;
        }
    }
    mark!(marker::EVENT | marker::id::FINISH);
    time::disarm();
    pilot.summary();
    0
}
