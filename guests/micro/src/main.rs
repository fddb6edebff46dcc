//! Measures a monitor's cost for its guest: a null hypercall and an interrupt to an own core, each as one instruction
//! between two markers. Without the measuring plugin it prints TSC ticks.
//!
//! Arguments: `rounds=N` (default 100). With `rung` it measures a doorbell instead. N times it accepts the channel that
//! it is offered at run time, and its owner takes it back. With `ticks` it measures so many ticks of its watchdog.
//! With `role=NAME` it measures how that comes to it, gives it away, and ends after `lives=N`.
//! With `restarts=SANDBOX` it measures so many requests to that sandbox's monitor.
//! With `snapshots=PAGES` it measures so many snapshots of that many pages, of which another one changes each time.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::layout::hypercall::{CONTROL_RESTART, NULL, OK};
use bulkhead_sdk::layout::report::State;
use bulkhead_sdk::link::Links;
use bulkhead_sdk::role::{self, Role};
use bulkhead_sdk::snapshot::{self, Paged};
use bulkhead_sdk::{
    Context, apic, cores, hypercall, interrupt, mark, marker, println, time, watchdog,
};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

bulkhead_sdk::entry!(guest);

const VECTOR: u8 = 0x60;
static ARRIVED: AtomicU64 = AtomicU64::new(0);

/// TSC ticks of one null hypercall.
fn call() -> u64 {
    let before = time::counter();
    mark!(marker::BEGIN | marker::id::HYPERCALL);
    // SAFETY: a null call changes RAX only.
    unsafe { asm!("vmmcall", inout("rax") NULL => _, options(nostack)) };
    mark!(marker::END | marker::id::HYPERCALL);
    time::counter() - before
}

/// TSC ticks of sending one interrupt to the core with this x2APIC ID.
fn send(to: u32) -> u64 {
    let before = time::counter();
    mark!(marker::BEGIN | marker::id::ICR);
    // SAFETY: the vector has a handler on every core of the sandbox.
    unsafe {
        asm!("wrmsr", in("ecx") apic::ICR, in("eax") u32::from(VECTOR), in("edx") to,
            options(nostack, preserves_flags));
    }
    mark!(marker::END | marker::id::ICR);
    time::counter() - before
}

/// The least of so many measurements.
fn least(rounds: u64, f: impl Fn() -> u64) -> u64 {
    (0..rounds).map(|_| f()).min().unwrap_or(0)
}

/// Accepts a channel and looks at its own page there, which is another one as soon as a doorbell has taken the channel
/// away. Between the markers there is no other exit.
fn rung(context: Context, rounds: u64) -> u32 {
    let me = context.info().sandbox;
    let offered = || {
        let state = |link| Some((link, context.state(&link))).filter(|s| s.1.offered(me));
        context.links().find_map(state)
    };
    for round in 1..=rounds {
        let (link, state) = loop {
            if let Some(found) = offered() {
                break found;
            }
            time::sleep(10_000);
        };
        // Its last page is the one that this end writes.
        let Some(word) = context.words(&link).and_then(<[_]>::last) else { return 1 };
        if context.accept(&link, state.epoch).is_err() {
            println!("micro: an offer was taken back too soon");
            return 1;
        }
        word.store(round, Ordering::Relaxed);
        mark!(marker::BEGIN | marker::id::DOORBELL);
        while word.load(Ordering::Relaxed) == round {}
        mark!(marker::END | marker::id::DOORBELL);
        if context.close(&link).is_err() {
            println!("micro: there is nothing to close");
            return 1;
        }
    }
    0
}

/// Waits for a role, and gives it away when the other holder waits for it. Between the markers there is one exit.
fn holder(context: Context, name: &'static str) -> u32 {
    let Some(role) = Role::find(context, name) else { return 1 };
    hypercall::ready();
    if role.epoch().is_none() {
        mark!(marker::BEGIN | marker::id::TAKEOVER);
        while role.epoch().is_none() {}
        mark!(marker::END | marker::id::TAKEOVER);
    }
    if context.incarnation() >= context.arg_u64("lives").unwrap_or(u64::MAX) {
        return 0;
    }
    loop {
        // The other one begins anew meanwhile, and comes to its wait.
        time::sleep(2_000_000);
        role::give();
    }
}

/// Asks another sandbox's monitor for a restart each time that it runs. Between the markers there is one exit.
fn asker(sandbox: u32, rounds: u64) -> u32 {
    for _ in 0..rounds {
        time::sleep(2_000_000);
        while hypercall::status(sandbox) as u8 != State::Running as u8 {
            time::sleep(100_000);
        }
        mark!(marker::BEGIN | marker::id::REMOTE_IPI);
        let answer = hypercall::control(sandbox, CONTROL_RESTART);
        mark!(marker::END | marker::id::REMOTE_IPI);
        if answer != OK {
            println!("micro: no restart: {answer:#x}");
            return 1;
        }
    }
    0
}

/// Waits for each tick, which shows as a gap between two looks at the counter.
fn ticks(context: Context, rounds: u64) -> u32 {
    /// Instructions that no look takes by itself, and the time in which an emulator's timer sends a second message, ns.
    const GAP: u64 = 60;
    const AGAIN: u64 = 5_000;
    hypercall::ready();
    for _ in 0..rounds {
        watchdog::kick(context);
        let mut last = time::counter();
        mark!(marker::BEGIN | marker::id::TICK);
        loop {
            let now = time::counter();
            if now - last > GAP {
                break;
            }
            last = now;
        }
        mark!(marker::END | marker::id::TICK);
        let later = time::counter() + time::ticks(AGAIN);
        while time::counter() < later {}
    }
    0
}

/// Takes snapshots of `pages` pages. Each round changes the next page, so that a buffer lacks two of them.
fn snapshots(pages: u64, rounds: u64) -> u32 {
    static STATE: Paged<[AtomicU64; 64 * 512]> = Paged([const { AtomicU64::new(0) }; 64 * 512]);
    let kept = snapshot::keep(STATE.0.as_ptr().cast(), pages as usize * 4096);
    // Both buffers are whole then.
    let whole = kept.and_then(|()| snapshot::take(0)).and_then(|()| snapshot::take(0));
    if whole.is_err() {
        println!("micro: no snapshot is taken");
        return 1;
    }
    hypercall::ready();
    for round in 0..rounds {
        let page = round % pages;
        STATE.0[page as usize * 512].fetch_add(1, Ordering::Relaxed);
        mark!(marker::BEGIN | marker::id::HYPERCALL);
        let word = snapshot::step(1 << page);
        mark!(marker::END | marker::id::HYPERCALL);
        if word != hypercall::OK {
            println!("micro: a snapshot takes more than a call");
            return 1;
        }
    }
    0
}

fn guest(context: Context) -> u32 {
    let rounds = context.arg_u64("rounds").unwrap_or(100);
    if context.arg("rung").is_some() {
        return rung(context, rounds);
    }
    if let Some(name) = context.arg("role") {
        return holder(context, name);
    }
    if let Some(sandbox) = context.arg_u64("restarts") {
        return asker(sandbox as u32, rounds);
    }
    if let Some(pages) = context.arg_u64("snapshots") {
        return snapshots(pages.clamp(1, 64), rounds);
    }
    if context.arg("ticks").is_some() {
        return ticks(context, rounds);
    }
    let info = context.info();
    interrupt::set(VECTOR, |_, _| {
        ARRIVED.fetch_add(1, Ordering::Release);
    });
    let two = info.cores > 1;
    if two && !cores::start(context, 1, |_, _| {}) {
        println!("micro: core 1 did not start");
        return 1;
    }
    let to = info.core_ids[usize::from(two)];
    hypercall::ready();

    println!("micro: hypercall {} ticks", least(rounds, call));
    let sent = least(rounds, || {
        let seen = ARRIVED.load(Ordering::Acquire);
        let ticks = send(to);
        let limit = time::counter() + time::ticks(10_000_000);
        while ARRIVED.load(Ordering::Acquire) == seen && time::counter() < limit {
            // Asleep, so that the other core is not held up; to itself it wakes at once.
            time::sleep(10_000);
        }
        ticks
    });
    println!("micro: ipi to core {to} {sent} ticks");
    let arrived = ARRIVED.load(Ordering::Acquire);
    println!("micro: {arrived} of {rounds} interrupts arrived");
    u32::from(arrived != rounds)
}
