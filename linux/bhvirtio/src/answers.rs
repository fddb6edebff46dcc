//! One request after the other, for the measurement of pauses: a marker tells when each slow one was answered.

use bulkhead_linux::marker::{EVENT, id};
use bulkhead_linux::{mark, ticks};
use nix::fcntl::OFlag;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// Ticks from which on a request is slow.
const SLOW: u64 = 500_000;

/// Reads and writes a disk's first pages for so many milliseconds, past the page cache.
pub fn run(path: &str, millis: &str) -> io::Result<()> {
    let millis = millis.parse().map_err(|_| io::Error::other("so many milliseconds?"))?;
    let direct = OFlag::O_DIRECT.bits();
    let file = OpenOptions::new().read(true).write(true).custom_flags(direct).open(path)?;
    let mut memory = vec![0x5A; 2 * PAGE];
    let start = memory.as_ptr().align_offset(PAGE);
    let page = &mut memory[start..start + PAGE];
    let (begin, mut count) = (Instant::now(), 0u64);
    while begin.elapsed() < Duration::from_millis(millis) {
        let (asked, at) = (ticks(), count % 64 * PAGE as u64);
        match count % 2 {
            0 => file.read_exact_at(page, at)?,
            _ => file.write_all_at(page, at)?,
        }
        let answered = ticks();
        if answered - asked > SLOW {
            mark::<{ EVENT | id::BLOCK_ANSWER }>(answered);
        }
        count += 1;
    }
    println!("bhvirtio: {count} requests were answered");
    Ok(())
}
