//! Works a quarter of each millisecond, below the attacker's priority: looks whether its memory stays as it is.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{Periodic, Program, Woken, now};
use hostile_programs::book;

bulkhead_program::entry!(victim);

const MILLI: u64 = 1_000_000;
/// Words to look after.
const WORDS: usize = 512;
static MEMORY: [core::sync::atomic::AtomicU64; WORDS] =
    [const { core::sync::atomic::AtomicU64::new(0) }; WORDS];

/// How often in each release: some 250 us of work.
const PASSES: u32 = 60;

/// What a word has to be.
fn pattern(n: usize) -> u64 {
    (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn relaxed(word: &core::sync::atomic::AtomicU64) -> u64 {
    word.load(core::sync::atomic::Ordering::Relaxed)
}

fn victim(program: Program) -> u32 {
    for (n, word) in MEMORY.iter().enumerate() {
        word.store(pattern(n), core::sync::atomic::Ordering::Relaxed);
    }
    let page = program.registers("book");
    let mut periodic = Periodic::new(program.waits("victim"), now() + MILLI, MILLI);
    let (mut longest, mut missed_all, mut changed_all) = (0, 0, 0);
    for releases in 1.. {
        let Ok(Woken::Release { due, missed }) = periodic.wait() else { return 1 };
        changed_all += (0..PASSES).map(|_| changed()).sum::<u64>();
        longest = u64::max(longest, now() - due);
        missed_all += missed;
        page.write64(book::CHANGED, changed_all);
        page.write64(book::LONGEST, longest);
        page.write64(book::MISSED, missed_all);
        page.write64(book::RELEASES, releases);
    }
    0
}

fn changed() -> u64 {
    MEMORY.iter().enumerate().filter(|(n, word)| relaxed(word) != pattern(*n)).count() as u64
}
