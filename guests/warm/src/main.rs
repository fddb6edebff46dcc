//! Counts, takes a snapshot of its state at each step, fails, and goes on from the last one.
//!
//! Arguments:
//!
//! * `pages=N`: pages of its state (default: 16); `rounds=N`: steps of a life (default: 20);
//! * `way=exit|memory|shutdown|hang|write|each` (`each`: the first four in turn), `fails=N` (default: for ever);
//! * `middle=1`: it fails in the middle of a snapshot;
//! * `still=N`: each second life takes none, and fails when N have changed;
//! * `attack=1`: it makes calls that its monitor has to refuse, says what came of them, and ends;
//! * `attack=far`: it names pages of nobody's beside its own, and takes a snapshot.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::layout::hypercall::{BAD_ARGUMENT, DENIED, KEEP, OK, SNAPSHOT};
use bulkhead_sdk::layout::map::SNAPSHOTS_GPA;
use bulkhead_sdk::layout::snapshot::place;
use bulkhead_sdk::snapshot::{self, Last, Paged};
use bulkhead_sdk::{Context, cores, hypercall, println, time, watchdog};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

bulkhead_sdk::entry!(guest);

/// Exit code of a state that is wrong.
const WRONG: u32 = 9;
/// Where no sandbox has memory.
const NOWHERE: u64 = 0x5000_0000;
const MOST: usize = 64;
const WORDS: usize = 512;

type Page = [AtomicU64; WORDS];

/// Its state: word 0 counts the steps, and each other word of a page has the last step that changed that page.
static STATE: Paged<[Page; MOST]> = Paged([const { [const { AtomicU64::new(0) }; WORDS] }; MOST]);

/// The step before `count`, or itself, that changed a page; 0: none did.
fn changed_at(count: u64, page: usize, pages: usize) -> u64 {
    (0..pages as u64)
        .filter_map(|back| count.checked_sub(back))
        .find(|step| *step as usize % pages == page)
        .unwrap_or(0)
}

fn each_word(page: usize) -> impl Iterator<Item = &'static AtomicU64> {
    STATE.0[page].iter().skip(usize::from(page == 0))
}

/// Tells if its state is that of a step.
fn right(count: u64, pages: usize) -> bool {
    (0..pages).all(|page| {
        let step = changed_at(count, page, pages);
        each_word(page).all(|word| word.load(Relaxed) == step)
    })
}

/// Takes the state from a snapshot.
fn restore(last: &Last, pages: usize) -> bool {
    (0..pages).all(|page| {
        let mut words = [0; WORDS];
        let read = last.read(page, &mut words);
        STATE.0[page].iter().zip(words).for_each(|(to, from)| to.store(from, Relaxed));
        read
    })
}

/// Makes a step, and returns the pages that it changed.
fn step(pages: usize) -> u64 {
    let count = STATE.0[0][0].load(Relaxed) + 1;
    STATE.0[0][0].store(count, Relaxed);
    let page = count as usize % pages;
    each_word(page).for_each(|word| word.store(count, Relaxed));
    1 | 1 << page
}

fn fail(way: &str) -> u32 {
    if way == "write" {
        // SAFETY: this program maps the address, and may not write there: the monitor ends this life.
        unsafe { core::ptr::write_volatile((SNAPSHOTS_GPA + 0x1000) as *mut u64, 1) };
    }
    fail::fail(way)
}

/// Waits until the last words of so many snapshots have changed, for some seconds at most.
fn wait(context: Context, pages: usize, flips: u64) {
    let room = snapshot::room(context) / 4096;
    // In both: the last page was changed before the older one was taken.
    let before = STATE.0[pages - 1][WORDS - 1].load(Relaxed);
    let last = |buffer: usize| {
        let at = SNAPSHOTS_GPA + place(room, buffer, pages - 1) + 4088;
        // SAFETY: its snapshots, which its monitor maps, read-only.
        unsafe { core::ptr::read_volatile(at as *const u64) }
    };
    let due = time::counter() + time::ticks(60_000_000_000);
    let changed = || (0..2).filter(|n| last(*n) != before).count() as u64;
    while changed() < flips && time::counter() < due {
        core::hint::spin_loop();
    }
}

fn guest(context: Context) -> u32 {
    match context.arg("attack") {
        Some("far") => return far(),
        Some(_) => return attack(context),
        None => {}
    }
    let life = context.incarnation();
    let number = |key, otherwise| context.arg_u64(key).unwrap_or(otherwise);
    let pages = (number("pages", 16) as usize).clamp(1, MOST);
    watchdog::kick(context);
    let last = snapshot::last(context);
    let read = last.is_none_or(|last| restore(&last, pages));
    let count = STATE.0[0][0].load(Relaxed);
    let generation = last.map_or(0, |last| last.generation());
    println!("warm: life {life} from snapshot {generation} at step {count}");
    if !read || !right(count, pages) {
        println!("warm: its state is torn");
        return WRONG;
    }
    if life >= number("fails", u64::MAX) {
        println!("warm: life {life} is well at step {count}");
        return 0;
    }
    if let Err(why) = snapshot::keep(STATE.0.as_ptr().cast(), pages * size_of::<Page>()) {
        println!("warm: its state is refused: {:#x}", why.0);
        return WRONG;
    }
    let still = number("still", 0);
    if still != 0 && life % 2 == 1 {
        wait(context, pages, still);
        return fail::CODE;
    }
    for _ in 0..number("rounds", 20) {
        let changed = step(pages);
        if snapshot::take(changed).is_err() {
            println!("warm: no snapshot");
            return WRONG;
        }
        watchdog::kick(context);
    }
    if number("middle", 0) != 0 {
        // More pages than one call copies: the snapshot stays unfinished.
        let changed = (0..pages).fold(0, |all, _| all | step(pages));
        println!("warm: {:#x} in the middle", snapshot::step(changed));
    }
    let way = fail::way(context.arg("way"), life);
    println!("warm: life {life} fails at step {}, {way}", STATE.0[0][0].load(Relaxed));
    fail(way)
}

/// Answer to the second core.
static SECOND: AtomicU64 = AtomicU64::new(1);

fn second(_: Context, _: usize) {
    SECOND.store(hypercall::raw(SNAPSHOT, 0, 0, 0, 0), Relaxed);
    loop {
        core::hint::spin_loop();
    }
}

/// Names `pages` from an address on.
fn keep(at: u64, pages: u64) -> u64 {
    hypercall::raw(KEEP, at, pages, 0, 0)
}

/// Calls that a monitor has to refuse.
fn attack(context: Context) -> u32 {
    let (info, own) = (context.info(), STATE.0.as_ptr() as u64);
    let room = info.snapshot / 4096;
    let say = |what: &str, got: u64| println!("warm: {what} got {got:#x}");
    say("nothing named", snapshot::step(u64::MAX));
    for (what, at, pages) in [
        ("behind its memory", info.memory, 1),
        ("across its end", info.memory - 0x1000, 2),
        ("unaligned", own + 8, 1),
        ("no page", own, 0),
        ("all pages", 0, u64::MAX),
        ("around the end", u64::MAX - 0xFFF, 2),
        ("a product that wraps", own, 1 << 52),
        ("another's", 1 << 30, 1),
        ("the monitor's image", 0x100_0000, 1),
        ("monitor-virtual", 0xFFFF_FFFF_8010_0000, 1),
        ("its information page", 0xD000_0000, 1),
        ("its own snapshots", SNAPSHOTS_GPA, 1),
    ] {
        let got = keep(at, pages);
        say(what, got);
        if got != DENIED {
            return WRONG;
        }
    }
    let more = keep(own, room + 1);
    say("more than there is room for", more);
    // Twice one page, in several calls, is its own matter.
    let full = (0..room).map(|_| keep(own, 1)).filter(|got| *got != OK).count() as u64;
    say("one page often", full);
    let one_more = keep(own, 1);
    say("one page more", one_more);
    if info.cores > 1 && cores::start(context, 1, second) {
        let due = time::counter() + time::ticks(100_000_000);
        while SECOND.load(Relaxed) == 1 && time::counter() < due {
            core::hint::spin_loop();
        }
        say("the second core", SECOND.load(Relaxed));
    }
    // Pages that it has not named are no part of the claim.
    for _ in 0..1_000 {
        if snapshot::take(u64::MAX).is_err() {
            return WRONG;
        }
    }
    say("a flood", 0);
    u32::from([more, one_more] != [BAD_ARGUMENT; 2] || full != 0) * WRONG
}

/// Names memory that is nobody's, and takes it: a monitor that believes it fails.
fn far() -> u32 {
    let got = keep(NOWHERE, 1);
    println!("warm: far got {got:#x}");
    println!("warm: far took {:#x}", snapshot::step(1));
    0
}
