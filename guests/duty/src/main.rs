//! Does its duty in rounds of a millisecond, and checks itself in each: for campaigns of faults (`docs/inject.md`).
//!
//! A round looks if the patterns are as they were: a word of memory is its address times an odd number. It works on a
//! table with a known sum. It sends the number of the round through the channel `out=NAME`, and takes messages out of
//! `in=NAME`. It asks the serial port `port=NUMBER` to keep a byte, and moves its progress word. From its third
//! life on it does without the port, which may be what ended the lives before. Each fifth round it prints a line, which
//! has nothing in it that differs from round to round.
//!
//! * `rounds=N`: it ends with exit code 0 after so many; without one it goes on for ever;
//! * `late=MICROSECONDS`: a round that begins so much later than it should is told.
//!
//! A wrong thing is told, and ends the life: exit code 1 means memory, 2 the table, 3 the serial port, 4 time. A
//! message that is not whole is no reason to end: it is the sender's.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_scenarios::Note;
use bulkhead_sdk::guest::Guest;
use bulkhead_sdk::typed::{Reader, Writer};
use bulkhead_sdk::{Context, cpu, hypercall, println, time, watchdog};

bulkhead_sdk::entry!(guest);

/// Patterns lie from there to the end of memory.
const FIRST: u64 = 7 << 19;
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
/// Words of patterns that a round looks at.
const LOOKS: u64 = 8192;
/// Nanoseconds of a round.
const ROUND: u64 = 1_000_000;
/// Rounds to a line.
const TELLS: u64 = 5;
/// A 16550's scratch register (16550D, table II).
const SCRATCH: u16 = 7;

/// Numbers that a round permutes: their sum stays.
struct Table([u64; 256]);

impl Table {
    const SUM: u64 = {
        let (mut sum, mut n) = (0u64, 0u64);
        while n < 256 {
            sum = sum.wrapping_add((n * n).wrapping_mul(FACTOR));
            n += 1;
        }
        sum
    };

    fn new() -> Self {
        Self(core::array::from_fn(|n| {
            let n = n as u64;
            (n * n).wrapping_mul(FACTOR)
        }))
    }

    /// Exchanges each number with another one, and tells if the sum is what it was.
    fn work(&mut self, round: u64) -> bool {
        for n in 0..self.0.len() {
            let other = (n as u64 * 167 + round * 31) as usize % self.0.len();
            self.0.swap(n, other);
        }
        self.0.iter().fold(0u64, |sum, n| sum.wrapping_add(*n)) == Self::SUM
    }
}

/// Memory that nothing but this program may change.
struct Patterns {
    next: u64,
    end: u64,
}

impl Patterns {
    fn new(end: u64) -> Self {
        for address in (FIRST..end).step_by(8) {
            // SAFETY: own RAM beyond the program, which no other code uses.
            unsafe { (address as *mut u64).write_volatile(address.wrapping_mul(FACTOR)) };
        }
        Self { next: FIRST, end }
    }

    /// Looks at the next words; the address of one that is changed.
    fn look(&mut self) -> Option<u64> {
        for _ in 0..LOOKS {
            let address = self.next;
            self.next = if address + 8 < self.end { address + 8 } else { FIRST };
            // SAFETY: own RAM beyond the program, which no other code uses.
            if unsafe { (address as *const u64).read_volatile() } != address.wrapping_mul(FACTOR) {
                return Some(address);
            }
        }
        None
    }
}

/// Tells if the serial port keeps a byte.
fn keeps(port: u16, byte: u8) -> bool {
    // SAFETY: a port of the sandbox's, as its argument says; else it is refused.
    unsafe {
        cpu::outb(port + SCRATCH, byte);
        cpu::inb(port + SCRATCH) == byte
    }
}

fn guest(context: Context) -> u32 {
    let number = |key| context.arg_u64(key);
    let name = context.name();
    let pair = |key| context.arg(key).and_then(|channel| context.pairs(channel).next());
    let mut out = pair("out").and_then(|pair| Writer::<Note>::open(&pair).ok());
    let mut from = pair("in").and_then(|pair| Reader::<Note>::open(&pair).ok());
    let mut patterns = Patterns::new(context.info().memory);
    let mut table = Table::new();
    let port = number("port").filter(|_| context.incarnation() < 2).map(|port| port as u16);
    let late = time::ticks(number("late").unwrap_or(u32::MAX.into()) * 1_000);
    println!("{name}: begins");
    // The first one sets the timer up, with an exit; none comes after it.
    time::sleep(1);
    hypercall::ready();
    let mut due = time::counter();
    for round in 1..=number("rounds").unwrap_or(u64::MAX) {
        watchdog::kick(context);
        due += time::ticks(ROUND);
        time::sleep_until(due);
        if time::counter() > due + late {
            println!("{name}: a round was late");
            return 4;
        }
        if let Some(address) = patterns.look() {
            println!("{name}: the word at {address:#x} is changed");
            return 1;
        }
        if !table.work(round) {
            println!("{name}: the table has another sum");
            return 2;
        }
        if port.is_some_and(|port| !keeps(port, round as u8)) {
            println!("{name}: the serial port keeps nothing");
            return 3;
        }
        if let Some(out) = &mut out {
            // A mailbox never refuses.
            let _ = out.write(&Note::of(round));
        }
        if let Some(from) = &mut from {
            // A claim of another sandbox: this one's duty does not depend on it.
            let _ = from.read_newer();
        }
        if round % TELLS == 0 {
            println!("{name}: right");
        }
    }
    watchdog::rest(context);
    println!("{name}: done");
    0
}
