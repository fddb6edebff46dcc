//! Lets the driver of this Linux' disk fail in the middle of a write: the block says so
//! ([`bulkhead_scenarios::planted`]). The driver is in another sandbox, which begins anew. Meanwhile this program waits
//! for its write, and then it finds all that it has written.

use bulkhead_scenarios::planted;
use nix::fcntl::OFlag;
use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant, SystemTime};

/// A file of its own, on the disk.
const FILE: &str = "/var/tmp/planted-fault";
/// Bytes of a block.
const BLOCK: usize = 4096;
/// Blocks of the file: the first one asks for the fault.
const BLOCKS: usize = 16;
/// A write without a fault takes less.
const PAUSE: Duration = Duration::from_micros(1500);

/// The kinds of faults, for a message.
pub fn kinds() -> String {
    planted::KINDS.join(" | ")
}

/// Writes a block that asks for a fault, and reads it back with others.
///
/// # Errors
/// There is no such kind, the disk fails, has lost a block, or its driver did not fail.
pub fn plant(kind: &str) -> Result<()> {
    if !planted::KINDS.contains(&kind) {
        return Err(Error::other(format!("no fault {kind}; there are {}", kinds())));
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(Error::other)?;
    let number = now.as_nanos() as u64;
    // Past the page cache: a read comes from the disk, and a write of a block is one request.
    let open = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(OFlag::O_DIRECT.bits())
        .open(FILE)?;
    let mut memory = vec![0; (1 + BLOCKS) * BLOCK];
    let start = memory.as_ptr().align_offset(BLOCK);
    let blocks = &mut memory[start..start + BLOCKS * BLOCK];
    fill(blocks, number);
    // The file has its place on the disk before the fault.
    open.write_all_at(blocks, 0)?;
    open.sync_all()?;
    let line = format!("{}{kind} {number}\n", planted::BEGIN);
    blocks[..line.len()].copy_from_slice(line.as_bytes());
    let begun = Instant::now();
    open.write_all_at(&blocks[..BLOCK], 0)?;
    open.sync_all()?;
    let took = begun.elapsed();
    let lost = lost(&open, number, &line)?;
    if lost > 0 {
        return Err(Error::other(format!("{lost} blocks of {FILE} are not as written")));
    }
    if took < PAUSE {
        return Err(Error::other(format!("the driver did not fail: {} us", took.as_micros())));
    }
    println!(
        "demo: the disk's driver failed in the middle of a write ({kind}), which waited for {} ms; all is as written",
        took.as_millis()
    );
    Ok(())
}

/// Content of the blocks but for the first line.
fn fill(blocks: &mut [u8], number: u64) {
    let mut word = number | 1;
    for byte in blocks {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *byte = (word >> 56) as u8;
    }
}

/// Counts blocks that are not as written.
fn lost(file: &File, number: u64, line: &str) -> Result<usize> {
    let mut memory = vec![0; (1 + BLOCKS) * BLOCK];
    let start = memory.as_ptr().align_offset(BLOCK);
    let there = &mut memory[start..start + BLOCKS * BLOCK];
    file.read_exact_at(there, 0)?;
    let mut written = vec![0; BLOCKS * BLOCK];
    fill(&mut written, number);
    written[..line.len()].copy_from_slice(line.as_bytes());
    let pairs = there.chunks(BLOCK).zip(written.chunks(BLOCK));
    Ok(pairs.filter(|(there, written)| there != written).count())
}
