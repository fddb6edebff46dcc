//! Vector registers belong to threads. Two threads with different contents take turns on the processor. One of them
//! calls a passive server that has its own, and a third thread interrupts both. A fourth uses them without a right to.
//! The result is how many things went wrong.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod state;

use bulkhead_program::abi::label;
use bulkhead_program::{Message, Program, now, println, ready, sleep_until};
use core::sync::atomic::{AtomicU32, Ordering};
use state::{SAVED, State, saved, third};

bulkhead_program::entry!(first);
bulkhead_program::thread!(second, take_turns);
bulkhead_program::thread!(server, serve);
bulkhead_program::thread!(ticker, tick);
bulkhead_program::thread!(trespasser, trespass);

const MILLI: u64 = 1_000_000;
const ROUNDS: u64 = 100;
/// Instructions of a round, some times of which fit into a budget.
const COUNT: u64 = 20_000;
/// Device not available (APM volume 2, section 8.2.8).
const NM: u64 = 7;

static WRONG: AtomicU32 = AtomicU32::new(0);
static TURNS: AtomicU32 = AtomicU32::new(0);
static TICKS: AtomicU32 = AtomicU32::new(0);

fn is_right(what: &str, right: bool) {
    if !right && WRONG.fetch_add(1, Ordering::Relaxed) < 8 {
        println!("{what}: wrong");
    }
}

fn keeps(thread: u64, round: u64) {
    let state = State::of(thread, round);
    is_right("registers", state.hold(COUNT) == state);
}

fn first(program: Program) -> u32 {
    is_right("the first thread's beginning", State::now().is_fresh());
    is_right("a third", third() == 0x3FD5_5555_5555_5555);
    ready();
    let scramble = program.endpoint("scramble");
    for round in 0..ROUNDS {
        keeps(1, round);
        // The server finds its own values in the registers in a call, and leaves its own there.
        let before = State::now();
        is_right("a call", scramble.call(Message::new(0, &[round])).is_ok());
        is_right("registers after a call", State::now() == before);
    }
    let (faults, reply) = (program.serves("faults"), program.reply("first"));
    let fault = faults.receive_until(reply, now() + 10 * MILLI).map(|fault| fault.message);
    let is_unavailable = |m: &Message| (m.label(), m.words[0] & 0xFF) == (label::FAULT, NM);
    is_right("who has none", fault.as_ref().is_ok_and(is_unavailable));
    is_right("turns", TURNS.load(Ordering::Relaxed) > 10);
    is_right("ticks", TICKS.load(Ordering::Relaxed) > 10);
    println!("{ROUNDS} rounds beside another thread, a server and interruptions");
    WRONG.load(Ordering::Relaxed)
}

fn take_turns(_: Program) -> u32 {
    is_right("the second thread's beginning", State::now().is_fresh());
    for round in 0.. {
        keeps(2, round);
        TURNS.fetch_add(1, Ordering::Relaxed);
    }
    0
}

fn serve(program: Program) -> u32 {
    let (scramble, reply) = (program.serves("scramble"), program.reply("server"));
    is_right("the server's beginning", State::now().is_fresh());
    let mut received = scramble.receive(reply);
    let mut last = None;
    while let Ok(call) = received {
        is_right("the server's registers", last.is_none_or(|last| last == State::now()));
        let state = State::of(3, call.message.words[0]);
        is_right("the server", state.hold(1) == state);
        last = Some(State::now());
        received = scramble.reply_receive(reply, Message::default());
    }
    1
}

fn tick(program: Program) -> u32 {
    let waits = program.waits("tick");
    let mut next = now();
    loop {
        next += MILLI / 7;
        let _ = sleep_until(waits, next);
        TICKS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Once others have filled their registers. XSAVE is an exception under CR0.TS, but not in QEMU: there it tells the
/// registers' contents, which have to be nothing.
fn trespass(_: Program) -> u32 {
    while TURNS.load(Ordering::Relaxed) < 3 {
        core::hint::spin_loop();
    }
    is_right("what who has none finds", saved() == [0; SAVED]);
    let _ = third();
    is_right("who has none went on", false);
    1
}
