//! A driver of a device that never stops interrupting: the PC's interval timer (Intel 8254). It runs at 1,193,182 Hz
//! divided by `divisor=N` (5: 238,636 interrupts a second). It works on each interrupt that it gets, `work=N` turns of
//! a loop (500), for `millis=N`.
//!
//! With `share=PPM`, its context's utilization in millionths, and `period=NS`, its period, it judges its use. More than
//! the share is a panic, and so is less, since this is to be a storm.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{Ports, Program, mark, marker, now, println};

bulkhead_program::entry!(driver);

/// Ports (8254 data sheet, "Programming the 8254"): counter 0, control word.
const COUNTER: u16 = 0x40;
const CONTROL: u16 = 0x43;
/// Counter 0, low byte then high byte, mode 2: rate generator.
const RATE: u8 = 0b0011_0100;
const MILLI: u64 = 1_000_000;
const MILLION: u64 = 1_000_000;

fn begin(pit: Ports, divisor: u16) {
    let [low, high] = divisor.to_le_bytes();
    for (port, value) in [(CONTROL, RATE), (COUNTER, low), (COUNTER, high)] {
        pit.write8(port, value).expect("a port of the timer");
    }
}

fn driver(program: Program) -> u32 {
    let number = |name, default| program.number(name).unwrap_or(default);
    let (millis, work) = (number("millis", 900), number("work", 500));
    let (came, handler) = (program.waits("storm"), program.interrupt("storm"));
    let own = program.context("storm");
    begin(program.ports("pit"), number("divisor", 5) as u16);
    own.consumed().expect("a time");
    let (first, mut handled) = (now(), 0u64);
    let end = first + millis * MILLI;
    while now() < end {
        came.wait().expect("an interrupt");
        for _ in 0..work {
            core::hint::spin_loop();
        }
        handler.acknowledge().expect("an interrupt");
        handled += 1;
    }
    let (took, length) = (own.consumed().expect("a time"), now() - first);
    // Quiet from here on: a counter that is not loaded does not count.
    program.ports("pit").write8(CONTROL, RATE).expect("a port of the timer");
    mark!(marker::VALUE | marker::id::STORM_SHARE, took * MILLION / length);
    mark!(marker::VALUE | marker::id::STORM_RATE, handled * 1_000 / millis);
    if let Some(share) = program.number("share") {
        let charged = handled * u64::from(program.page().load.overhead);
        judge(took, charged, length, share, number("period", MILLION));
    }
    // Without an acknowledgement no more comes.
    while came.wait().is_ok() {}
    1
}

/// Judges the use of an I/O VCPU: activations follow each other at used/U, but for the last one, of U·T. Used time is
/// its running time and the kernel's charge for each activation. The charge is at most `charged`, one for each
/// interrupt: an activation can serve several.
fn judge(ran: u64, charged: u64, length: u64, share: u64, period: u64) {
    let of = |time: u64| time * share / MILLION;
    let most = of(length) + of(period) - of(of(period));
    let least = (of(length) * 99 / 100).saturating_sub(charged);
    assert!(ran <= most, "ran for {ran} ns in {length}, may run for {most}");
    assert!(ran >= least, "ran for {ran} ns in {length}, under a storm for {least} at least");
    println!("storm: took its {} % of the core, not more", share * 100 / MILLION);
}
