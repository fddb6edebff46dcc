//! A switch of criticality by a program: the priorities of so many threads, one call each, and back again. The
//! threads want to run and have time, so that each call moves one from a queue of the scheduler to another.

#[cfg(target_os = "none")]
use crate::marked::quad;
use bulkhead_program::abi::{Policy, at};
use bulkhead_program::marker::{BEGIN, END, id};
use bulkhead_program::{Error, Maker, Program, Thread, println, ready};

/// Most threads.
const MOST: usize = 8;
/// Priorities of the threads when they are critical, and when they are not: the first one's.
const HIGH: u8 = 110;
const LOW: u8 = 10;
/// A thread's slice, ns.
const SLICE: u64 = 10_000_000;

/// Never returns, and needs no stack.
#[cfg(target_os = "none")]
#[unsafe(naked)]
extern "C" fn idle() -> ! {
    core::arch::naked_asm!("2: jmp 2b")
}

#[cfg(not(target_os = "none"))]
extern "C" fn idle() -> ! {
    unreachable!("a program runs on the kernel, not here")
}

fn thread(maker: &mut Maker, priority: u8, authority: Thread) -> Thread {
    let thread = maker.thread().expect("memory for a thread");
    let context = maker.context().expect("memory for a context");
    thread.set_priority(priority, 0, authority).expect("the manifest's max_priority");
    context.configure(Policy::Full, SLICE, SLICE, 0).expect("the manifest's sched_control");
    context.bind(thread).expect("a thread without a context");
    thread
        .start([idle as *const () as u64, 0, at::PAGE, 0])
        .expect("an address of this program, and a thread with a space");
    thread
}

#[inline(always)]
fn mark<const CODE: u16>() {
    // SAFETY: an instruction without effect.
    #[cfg(target_os = "none")]
    unsafe {
        core::arch::asm!(".quad {}", const quad(CODE), options(nostack, preserves_flags));
    }
}

/// Gives threads priorities from `first` on, by a call for each.
#[inline(always)]
fn one_by_one(threads: &[Thread], first: u8, authority: Thread) -> Result<(), Error> {
    (first..)
        .zip(threads)
        .try_for_each(|(priority, thread)| thread.set_priority(priority, 0, authority))
}

/// Makes `N` threads critical, which is measured, and uncritical again.
fn there_and_back<const N: usize, const BEFORE: u16, const BEHIND: u16>(
    threads: &[Thread; MOST],
    authority: Thread,
) {
    mark::<BEFORE>();
    let set = one_by_one(&threads[..N], HIGH, authority);
    mark::<BEHIND>();
    let set = set.and_then(|()| one_by_one(&threads[..N], LOW, authority));
    assert!(set.is_ok(), "{set:?}");
}

macro_rules! all {
    ($threads:expr, $authority:expr, $($n:literal $id:ident,)*) => {
        $(there_and_back::<$n, { BEGIN | id::$id }, { END | id::$id }>($threads, $authority);)*
    };
}

/// Measures 1 to 8 threads, `rounds=N` times.
pub fn switch(program: Program) -> u32 {
    ready();
    let (mut maker, authority) = (program.maker(), program.manages("manager"));
    let mut priorities = LOW..;
    let threads: [Thread; MOST] =
        core::array::from_fn(|_| thread(&mut maker, priorities.next().unwrap_or(LOW), authority));
    for _ in 0..program.number("rounds").unwrap_or(50) {
        all!(
            &threads, authority,
            1 KERNEL_CRITICALITY_1,
            2 KERNEL_CRITICALITY_2,
            3 KERNEL_CRITICALITY_3,
            4 KERNEL_CRITICALITY_4,
            5 KERNEL_CRITICALITY_5,
            6 KERNEL_CRITICALITY_6,
            7 KERNEL_CRITICALITY_7,
            8 KERNEL_CRITICALITY_8,
        );
    }
    println!("measure: done");
    0
}
