//! Rows of a disk: every request goes to the device (`O_DIRECT`).

use crate::repeat;
use bulkhead_linux::mark;
use bulkhead_linux::marker::{EVENT, id};
use bulkhead_linux::setup::Failure;
use nix::fcntl::OFlag;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::sync::Barrier;
use std::thread::sleep;
use std::time::Duration;

const KIB4: usize = 4 << 10;
const MIB: usize = 1 << 20;
/// Size of a file that is made.
const FILE: usize = 64 * MIB;
/// The buffer is one huge page. With small ones a request costs more the less they lie side by side in physical memory.
/// That differs from boot to boot by half of the cost.
const HUGE: usize = 2 * MIB;
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const WARM: usize = 3;
/// In an event's value: the requests end; there are pauses between them.
const ENDS: u64 = 1 << 63;
const PAUSED: u64 = 1 << 62;

/// An open disk and a buffer for one request.
struct Disk {
    file: File,
    /// Bytes.
    size: usize,
    memory: Vec<u8>,
    start: usize,
}

impl Disk {
    fn open(path: &str, request: usize) -> Result<Self, Failure> {
        make(path)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_DIRECT.bits())
            .open(path)?;
        let size = usize::try_from(file.seek(SeekFrom::End(0))?)?;
        if size < request {
            return Err(format!("{path} has {size} bytes only").into());
        }
        std::fs::write(HUGE_PAGES, "always")?;
        let memory = vec![0x5A; 2 * HUGE];
        let start = memory.as_ptr().align_offset(HUGE);
        Ok(Self { file, size, memory, start })
    }

    fn read(&mut self, at: usize, length: usize) -> Result<(), Failure> {
        let buffer = &mut self.memory[self.start..self.start + length];
        Ok(self.file.read_exact_at(buffer, at as u64)?)
    }

    fn write(&mut self, at: usize, length: usize) -> Result<(), Failure> {
        let buffer = &self.memory[self.start..self.start + length];
        Ok(self.file.write_all_at(buffer, at as u64)?)
    }
}

/// A file that is not there is made, with all its blocks.
fn make(path: &str) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.file_type().is_block_device() || meta.len() > 0 => return Ok(()),
        // Names in /dev are devices', and one that is missing must not become a file.
        Err(_) if path.starts_with("/dev/") => return Err(format!("there is no {path}").into()),
        _ => {}
    }
    let file = File::create(path)?;
    let block = vec![0xA5; MIB];
    for n in 0..FILE / MIB {
        file.write_all_at(&block, (n * MIB) as u64)?;
    }
    Ok(file.sync_all()?)
}

/// Numbers below a bound that look random, and are equal in every run.
struct Random {
    state: usize,
    below: usize,
}

impl Random {
    fn next(&mut self) -> usize {
        let Self { state, below } = self;
        // Knuth's MMIX generator; its upper bits are the good ones.
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % *below
    }
}

/// Reads random places, which repeat in every run.
pub fn rand4k(path: &str, count: usize) -> Result<(), Failure> {
    let mut disk = Disk::open(path, KIB4)?;
    let mut place = Random { state: 1, below: disk.size / KIB4 };
    repeat::<{ id::IO_BLK_RAND4K }>("io.blk_rand4k", (WARM, count), || {
        disk.read(place.next() * KIB4, KIB4)
    })
}

/// Reads random places by several threads, `count` of them together. All of the disk was read before, so that a server
/// with a page cache has it there.
pub fn many(
    path: &str,
    bytes: usize,
    threads: usize,
    count: usize,
    pause: Duration,
) -> Result<(), Failure> {
    /// Requests of each thread before all begin.
    const WARM: usize = 64;
    let each = count / threads.max(1);
    if each == 0 {
        return Err(format!("{threads} threads for {count} requests").into());
    }
    let mut disk = Disk::open(path, MIB)?;
    (0..disk.size / MIB).try_for_each(|n| disk.read(n * MIB, MIB))?;
    let together = Barrier::new(threads + 1);
    let paused = if pause.is_zero() { 0 } else { PAUSED };
    let value = paused | (threads as u64) << 32 | (each * threads) as u64;
    std::thread::scope(|scope| {
        let together = &together;
        let load = Load { path, bytes, warm: WARM, count: each, pause };
        let reader = |n| scope.spawn(move || reader(load, n, together));
        let readers: Vec<_> = (0..threads).map(reader).collect();
        together.wait();
        mark::<{ EVENT | id::IO_REQUESTS }>(value);
        together.wait();
        together.wait();
        mark::<{ EVENT | id::IO_REQUESTS }>(ENDS | value);
        let panicked = |_| Failure::from("a reader panicked");
        readers.into_iter().try_for_each(|reader| Ok(reader.join().map_err(panicked)??))
    })
}

/// Requests of one of the threads.
#[derive(Clone, Copy)]
struct Load<'a> {
    path: &'a str,
    bytes: usize,
    warm: usize,
    count: usize,
    /// After each request.
    pause: Duration,
}

/// One of the threads: it warms up, waits for the others, and reads. It meets the others even if it cannot read.
fn reader(load: Load<'_>, n: usize, together: &Barrier) -> Result<(), String> {
    let bytes = load.bytes;
    let mut disk = Disk::open(load.path, bytes).map_err(|why| why.to_string());
    let mut place = Random { state: n + 1, below: 1 };
    let mut read = |count| {
        let disk = disk.as_mut().map_err(|why| why.clone())?;
        place.below = disk.size / bytes;
        let mut one = || {
            disk.read(place.next() * bytes, bytes)?;
            if !load.pause.is_zero() {
                sleep(load.pause);
            }
            Ok::<_, Failure>(())
        };
        (0..count).try_for_each(|_| one()).map_err(|why| why.to_string())
    };
    let warm = read(load.warm);
    together.wait();
    together.wait();
    let done = read(load.count);
    together.wait();
    warm.and(done)
}

/// From the beginning, and again from there at the end.
pub fn seq1m(path: &str, count: usize) -> Result<(), Failure> {
    let mut disk = Disk::open(path, MIB)?;
    let mut places = (0..disk.size / MIB).cycle();
    repeat::<{ id::IO_BLK_SEQ1M }>("io.blk_seq1m", (WARM, count), || {
        disk.read(places.next().unwrap_or(0) * MIB, MIB)
    })
}

/// Likewise.
pub fn write1m(path: &str, count: usize) -> Result<(), Failure> {
    let mut disk = Disk::open(path, MIB)?;
    let mut places = (0..disk.size / MIB).cycle();
    repeat::<{ id::IO_BLK_WRITE1M }>("io.blk_write1m", (WARM, count), || {
        disk.write(places.next().unwrap_or(0) * MIB, MIB)
    })
}
