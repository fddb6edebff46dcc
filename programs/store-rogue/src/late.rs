//! Transfers of a life that come late. The first life ends with many requests under way; the second one looks if any of
//! them still comes.
//!
//! The second life looks before its driver touches the device. So only the monitor's reset can have ended them: the
//! kernel has switched bus mastering on again already.

use crate::fault::wild;
use bulkhead_program::channel::{Memory, Word};
use bulkhead_program::{Program, now, println};
use bulkhead_store::disk::{Disk, Operation, Request};
use bulkhead_virtio::layout::POOL;
use core::sync::atomic::Ordering;
use store_programs::disk::AnyDisk;
use store_programs::progress::Progress;
use store_programs::serve::{Channel, RINGS, channel};

/// Bytes of a request.
const PAGE: usize = 4096;
/// Filling of memory that nobody writes.
const PATTERN: u64 = 0xC3C3_C3C3_C3C3_C3C3;

/// Longest time without an answer to the guard, ns, beside the time to look.
const LONG: u64 = 5_000_000_000;

/// Tells the guard that no answer comes for a while.
fn busy(program: Program, nanos: u64) {
    if let Some(progress) = Progress::find(program) {
        progress.busy(nanos);
    }
}

/// Ends the first life in the midst of reads to all pages of the own section. A disk that answers one is at work.
///
/// # Panics
/// If the kernel lets it read at address 0.
pub fn begin(program: Program, disk: &mut AnyDisk, channel: &Channel) -> ! {
    busy(program, LONG);
    let first = channel.bus + channel.len as u64;
    let pages = (POOL.next_multiple_of(PAGE)..channel.len).step_by(PAGE);
    let mut under_way = 0;
    for (tag, at) in (0..).zip(pages) {
        let (operation, len) = (Operation::Read, PAGE as u32);
        // With gaps: QEMU makes one request of neighbours.
        let (sector, address) = (64 * u64::from(tag), first + at as u64);
        let request = Request { tag, operation, sector, address, len };
        if disk.submit(&request).is_err() {
            break;
        }
        under_way += 1;
    }
    disk.ring();
    while disk.completed().is_none() {
        core::hint::spin_loop();
    }
    println!("{}: ends with {} requests under way", program.name(), under_way - 1);
    wild(8, false);
    unreachable!("address 0 is nobody's");
}

/// Fills the own section and the memory for the driver's talk with the disk, and looks for so many milliseconds if that
/// stays. Returns true if it did.
pub fn watch(program: Program, name: &str, millis: u64) -> bool {
    let nanos = millis * 1_000_000;
    busy(program, nanos + LONG);
    let channel = channel(program, name);
    let words = || (POOL..channel.len).step_by(8).filter_map(|at| channel.mine.word(at));
    let rings = program.memory(RINGS).words();
    words().for_each(|word| word.release(PATTERN));
    rings.iter().for_each(|word| word.store(PATTERN, Ordering::Release));
    let due = now() + nanos;
    while now() < due {
        core::hint::spin_loop();
    }
    let pages = words().filter(|word| word.acquire() != PATTERN).count();
    let rings = rings.iter().filter(|word| word.load(Ordering::Acquire) != PATTERN).count();
    println!(
        "{}: watched, {pages} words of the section and {rings} of the rings changed",
        program.name()
    );
    pages + rings == 0
}
