//! Drives an NVMe controller of its own: writes pages, reads them back, compares,
//! asleep until the controller's MSI-X interrupt comes.
//!
//! Arguments: `rounds=N` of eight pages (default 16); `lives=N` lives, of which each
//! but the last ends in the middle of its reads and writes. Exit code 1: something of
//! a former life was written into this one or interrupted it; 2: the controller does
//! not work; 3: what was read is not what was written.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod nvme;

use bulkhead_sdk::{Context, hypercall, interrupt, paging, pci, println, time};
use core::sync::atomic::{AtomicU64, Ordering};
use nvme::{Arena, Command, Controller, Wrong};

bulkhead_sdk::entry!(guest);

/// NVMe's class, subclass and interface.
const CLASS: u32 = 0x01_08_02;
/// Pages that are on their way at once.
const BURST: usize = 8;
const PAGE: u64 = 4096;

static STRAY: AtomicU64 = AtomicU64::new(0);

fn stray(frame: &mut interrupt::Frame, _: u64) {
    STRAY.store(frame.vector, Ordering::Relaxed);
}

/// What is in a word of the disk in a round.
fn pattern(round: u64, at: usize) -> u64 {
    (round << 32 | at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Whether nothing that a former life began comes to this one: no word of the memory
/// that devices were told of changes, and no interrupt comes.
fn untouched() -> bool {
    let canary = |at: usize| pattern(u64::MAX, at);
    nvme::VECTORS.iter().for_each(|&vector| interrupt::set(vector, stray));
    (0..Arena::WORDS).for_each(|at| Arena::set(at, canary(at)));
    for _ in 0..20 {
        interrupt::enable();
        time::sleep(1_000_000);
        if let Some(at) = (0..Arena::WORDS).find(|&at| Arena::get(at) != canary(at)) {
            println!("disk: word {at} is changed to {:#x}", Arena::get(at));
            return false;
        }
    }
    let vector = STRAY.load(Ordering::Relaxed);
    if vector != 0 {
        println!("disk: stray interrupt {vector:#x}");
    }
    (0..Arena::WORDS).for_each(|at| Arena::set(at, 0));
    vector == 0
}

/// Commands for a burst: the pages from `first` on, which a round puts elsewhere on the disk.
fn burst(disk: &Controller, write: bool, first: usize, round: u64) -> [Command; BURST] {
    let per_page = PAGE / disk.block;
    let pages = disk.blocks / per_page;
    core::array::from_fn(|n| {
        let page = (round * 97 + n as u64 * 13) % pages;
        Command::io(write, first + n, page * per_page, per_page)
    })
}

/// Writes and reads back in rounds. Returns words that differ.
fn work(disk: &mut Controller, rounds: u64) -> Result<usize, Wrong> {
    let words = || 0..BURST * Arena::PAGE_WORDS;
    let mut different = 0;
    for round in 0..rounds {
        words().for_each(|at| Arena::set(Arena::data(0) + at, pattern(round, at)));
        disk.io(&burst(disk, true, 0, round))?;
        disk.io(&burst(disk, false, BURST, round))?;
        different +=
            words().filter(|&at| Arena::get(Arena::data(BURST) + at) != pattern(round, at)).count();
    }
    Ok(different)
}

fn guest(context: Context) -> u32 {
    // Its registers lie above 4 GiB.
    paging::map_everything();
    if !untouched() {
        return 1;
    }
    let Some(function) = pci::find_class(CLASS) else {
        println!("disk: no controller");
        return 2;
    };
    let mut disk = match Controller::new(function) {
        Ok(disk) => disk,
        Err(wrong) => {
            println!("disk: {wrong}");
            return 2;
        }
    };
    println!("disk: {} blocks of {} bytes", disk.blocks, disk.block);
    let rounds = context.arg_u64("rounds").unwrap_or(16);
    hypercall::ready();
    let different = match work(&mut disk, rounds) {
        Ok(different) => different,
        Err(wrong) => {
            println!("disk: {wrong}");
            return 2;
        }
    };
    if different != 0 {
        println!("disk: {different} words differ");
        return 3;
    }
    if context.incarnation() + 1 < context.arg_u64("lives").unwrap_or(1) {
        disk.begin(&burst(&disk, false, 2 * BURST, 0)[..7]);
        disk.begin(&burst(&disk, true, 0, 1));
        hypercall::restart();
    }
    let [admin, io] = nvme::interrupts();
    println!("disk: {rounds} rounds, interrupts: {admin} for the admin queue, {io} for the other");
    0
}
