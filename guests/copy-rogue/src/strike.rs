//! The faults themselves: in the handler of the timer, in the middle of whatever it interrupts.

use crate::plan::{Fault, KINDS, Kind};
use bulkhead_flight::copies::{STATE, State};
use bulkhead_sdk::{Context, interrupt, time, window};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU64, AtomicUsize};

/// Vector of the timer.
pub const VECTOR: u8 = 0x41;
/// No fault is to come, or no more.
pub const NEVER: u64 = u64::MAX;
/// Where no sandbox has memory.
const NOWHERE: u64 = 0x5000_0000;
/// Words of the stack that are in use by the copy's own functions, or so.
const DEPTH: u64 = 96;

/// When it strikes, by the counter.
pub static AT: AtomicU64 = AtomicU64::new(NEVER);
/// Value of a lie, never 0.
pub static LIE: AtomicU64 = AtomicU64::new(1);
/// Release from which on a flipped bit has had no effect.
pub static MIDDLE: AtomicU64 = AtomicU64::new(NEVER);
/// A place in `KINDS`.
static KIND: AtomicUsize = AtomicUsize::new(usize::MAX);
static RANDOM: AtomicU64 = AtomicU64::new(0);
/// Address of the state that is in use.
static STATE_AT: AtomicU64 = AtomicU64::new(0);
/// Address and words of the copy's own channel.
static CHANNEL: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Lets a fault strike at an instant.
pub fn prepare(context: Context, fault: Fault, instant: u64) {
    KIND.store(fault.kind as usize, Relaxed);
    RANDOM.store(fault.random, Relaxed);
    LIE.store(1 + (fault.random >> 16 & 0xFFFF), Relaxed);
    if let Some(own) = window::all(context).find(|window| window.writable) {
        CHANNEL[0].store(own.gpa, Relaxed);
        CHANNEL[1].store(own.size / 8, Relaxed);
    }
    AT.store(instant, Relaxed);
}

/// The fault, once it has struck.
pub fn struck() -> Option<Kind> {
    if AT.load(Relaxed) != NEVER {
        return None;
    }
    KINDS.get(KIND.load(Relaxed)).copied()
}

/// Learns where the state is.
pub fn at_state(state: &mut State) {
    STATE_AT.store(core::ptr::from_mut(state) as u64, Relaxed);
}

fn flip(address: u64, bit: u64) {
    let word = address as *mut u64;
    // SAFETY: none is claimed. It changes memory of this guest behind the compiler's back, as a particle would. The
    // address is one of its own, and a multiple of 8.
    unsafe { word.write_volatile(word.read_volatile() ^ 1 << (bit % 64)) };
}

/// Handler of the timer: strikes if it is time, and otherwise has only woken the copy.
pub fn strike(frame: &mut interrupt::Frame, now: u64) {
    if now < AT.load(Relaxed) {
        return;
    }
    AT.store(NEVER, Relaxed);
    let random = RANDOM.load(Relaxed);
    let (bit, place) = (random & 63, random >> 6);
    match KINDS.get(KIND.load(Relaxed)) {
        Some(Kind::State) => {
            let state = STATE_AT.load(Relaxed);
            if state != 0 {
                flip(state + place % STATE as u64 * 8, bit);
            }
        }
        // The frame begins with the 15 registers.
        Some(Kind::Register) => flip(core::ptr::from_mut(frame) as u64 + place % 15 * 8, bit),
        Some(Kind::Stack) => flip((frame.rsp & !7) + place % DEPTH * 8, bit),
        Some(Kind::Stalls) => stall(),
        Some(Kind::Dies) => die(),
        // SAFETY: this program maps the address, its sandbox has nothing there: the monitor ends this life.
        Some(Kind::Denied) => unsafe {
            core::ptr::read_volatile(NOWHERE as *const u64);
        },
        Some(Kind::Floods) => flood(random),
        // The others change messages from now on.
        Some(Kind::Lies | Kind::Early | Kind::Late) | None => {}
    }
}

fn stall() {
    time::disarm();
    loop {
        interrupt::disable();
    }
}

fn die() {
    // SAFETY: nothing of this life is needed any more: the first exception finds no handler.
    unsafe {
        core::arch::asm!("lidt [{}]", "ud2", in(reg) &[0u64; 2], options(readonly, nostack));
    }
}

/// Writes numbers over all words of the channel, each time others.
fn flood(mut random: u64) {
    let [at, words] = [CHANNEL[0].load(Relaxed), CHANNEL[1].load(Relaxed)];
    loop {
        for word in 0..words {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            // SAFETY: the words of this sandbox' own channel; whoever reads them takes them for claims.
            unsafe { ((at + word * 8) as *mut u64).write_volatile(random) };
        }
    }
}
