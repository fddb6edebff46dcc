//! The clients' work: they only look at the clock.

use crate::MOST;
use crate::watch::Watch;
use bulkhead_program::{Endpoint, Message};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const STACK: usize = 4096;

/// Stacks, one above the other.
#[repr(C, align(16))]
struct Stacks(UnsafeCell<[[u8; STACK]; MOST + 1]>);

// SAFETY: each is one thread's; nothing else looks at them.
unsafe impl Sync for Stacks {}

static STACKS: Stacks = Stacks(UnsafeCell::new([[0; STACK]; MOST + 1]));

/// The place where a cooperative client says that its job is done, by client; 0: it is a preemptive one, or unused.
pub static DONE: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];
/// How long its jobs take, ns.
pub static WORK: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// Registers with which a thread begins: instruction, stack, arguments.
pub fn begins(thread: usize) -> [u64; 4] {
    let stacks = STACKS.0.get().cast::<[u8; STACK]>();
    let top = stacks.wrapping_add(thread + 1) as u64;
    // As if a return address lay there (System V ABI for x86-64, section 3.2.2).
    [run as *const () as u64, top - 8, thread as u64, 0]
}

extern "C" fn run(thread: usize) -> ! {
    let mut watch = Watch::new(thread);
    let done = DONE.get(thread).map_or(0, |done| done.load(Ordering::Relaxed));
    let work = WORK.get(thread).map_or(0, |work| work.load(Ordering::Relaxed));
    if done == 0 {
        loop {
            watch.look();
        }
    }
    loop {
        let mut ran = 0;
        while ran < work {
            ran += watch.look();
        }
        Endpoint(done).call(Message::default()).expect("a scheduler that answers");
    }
}
