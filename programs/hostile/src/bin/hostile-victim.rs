//! Works a quarter of each millisecond, below the attacker's priority. It shares nothing with the attacker. It checks
//! that its memory stays as it is, and that the attacker has left nothing in a register.
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

/// The right value of a word.
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

/// Selectors that are not null, and bases of FS and GS that are not 0: by those another word would be found.
fn left() -> u64 {
    let (ds, es, fs, gs): (u64, u64, u64, u64);
    let (by_fs, by_gs): (u64, u64);
    // SAFETY: reads registers, and a word of the program's; elsewhere at worst, which is an exception.
    unsafe {
        core::arch::asm!(
            "mov {0}, ds", "mov {1}, es", "mov {2}, fs", "mov {3}, gs",
            "mov {4}, fs:[{6}]", "mov {5}, gs:[{6}]",
            out(reg) ds, out(reg) es, out(reg) fs, out(reg) gs, out(reg) by_fs, out(reg) by_gs, in(reg) &MEMORY[7],
            options(nostack, readonly)
        );
    }
    let of_bases = [by_fs, by_gs].map(|word| word ^ pattern(7));
    [ds, es, fs, gs].into_iter().chain(of_bases).filter(|left| *left != 0).count() as u64
}

fn changed() -> u64 {
    left()
        + MEMORY.iter().enumerate().filter(|(n, word)| relaxed(word) != pattern(*n)).count() as u64
}
