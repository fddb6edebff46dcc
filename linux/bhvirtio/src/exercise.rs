//! Writes and reads of a disk, or of a file on one, for tests. Some threads work at a time, each on a part of its own
//! and with one request under way. A thread knows each byte that was acknowledged, so a write that is lost, torn or
//! misplaced is found when the place is read.
//!
//! Half of the threads go past the page cache, in sectors, with memory of any alignment in sectors. The others go
//! through it, from any byte on. They write it back and forget it now and then, so reads come from the disk, too.

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, PosixFadviseAdvice, fallocate, posix_fadvise};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: usize = 4;
const SECTOR: usize = 512;
/// Parts begin at multiples of this.
const PAGE: usize = 4096;
/// Bytes of a request, at most.
const MOST: usize = 160 << 10;
/// Bytes that are read at a time when all is compared.
const PIECE: usize = 128 << 10;

/// Beginning of a disk that cannot be written for a while.
const FROZEN: &[u8] = b"frozen";

/// Works for so many milliseconds.
pub fn run(path: &str, millis: &str) -> io::Result<()> {
    let millis = millis.parse().map_err(|_| io::Error::other("so many milliseconds?"))?;
    let size = File::open(path)?.seek(SeekFrom::End(0))? as usize;
    let part = size / THREADS / PAGE * PAGE;
    if part < 2 * MOST {
        return Err(io::Error::other(format!("{path} is too small: {size} bytes")));
    }
    let end = Instant::now() + Duration::from_millis(millis);
    let threads: Vec<_> = (0..THREADS)
        .map(|n| {
            let path = path.to_owned();
            thread::spawn(move || Worker::new(&path, n, part)?.work(end))
        })
        .collect();
    let mut all = [0; 4];
    for worker in threads {
        let counts = worker.join().map_err(|_| io::Error::other("a thread panicked"))??;
        all.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
    }
    let [writes, reads, syncs, zeroes] = all;
    println!(
        "bhvirtio: {path}: {writes} writes, {reads} reads, {syncs} flushes, {zeroes} ranges of zeros, all as written"
    );
    Ok(())
}

/// Waits until a disk begins with [`FROZEN`]. Then its device side cannot write, and it has to read nevertheless.
pub fn meanwhile(path: &str) -> io::Result<()> {
    const LIMIT: Duration = Duration::from_secs(60);
    const LEAD: Duration = Duration::from_millis(300);
    const READS: u64 = 16;
    let open = || {
        OpenOptions::new().read(true).write(true).custom_flags(OFlag::O_DIRECT.bits()).open(path)
    };
    let file = open()?;
    let mut memory = vec![0; 2 * PAGE];
    let start = memory.as_ptr().align_offset(PAGE);
    let page = &mut memory[start..start + PAGE];
    let begun = Instant::now();
    while !page.starts_with(FROZEN) {
        file.read_exact_at(page, 0)?;
        if begun.elapsed() > LIMIT {
            return Err(io::Error::other(format!(
                "{path} was not frozen within {} s",
                LIMIT.as_secs()
            )));
        }
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(LEAD);
    let other = open()?;
    let writer = thread::spawn(move || {
        let memory = vec![0x77; 2 * PAGE];
        let start = memory.as_ptr().align_offset(PAGE);
        other.write_all_at(&memory[start..start + PAGE], 16 * PAGE as u64)
    });
    thread::sleep(LEAD);
    for n in 1..=READS {
        file.read_exact_at(page, n * 20 * PAGE as u64)?;
    }
    if writer.is_finished() {
        return Err(io::Error::other(format!("{path}: the write did not wait")));
    }
    println!("bhvirtio: {path}: {READS} reads while a write waited");
    writer.join().map_err(|_| io::Error::other("a thread panicked"))??;
    file.read_exact_at(page, 16 * PAGE as u64)?;
    if page.iter().any(|byte| *byte != 0x77) {
        return Err(io::Error::other(format!("{path}: the write was lost")));
    }
    Ok(())
}

struct Worker {
    file: File,
    direct: bool,
    /// Where its part begins.
    base: usize,
    /// Content of its part, as acknowledged.
    known: Vec<u8>,
    memory: Vec<u8>,
    random: u64,
    counts: [u64; 4],
}

impl Worker {
    fn new(path: &str, number: usize, part: usize) -> io::Result<Self> {
        let direct = number.is_multiple_of(2);
        let flags = if direct { OFlag::O_DIRECT.bits() } else { 0 };
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        let mut worker = Self {
            file,
            direct,
            base: number * part,
            known: vec![0; part],
            memory: vec![0; MOST + 2 * PAGE],
            random: 0x9E37_79B9_7F4A_7C15 ^ (number as u64 + 1) << 32,
            counts: [0; 4],
        };
        // The content that it finds.
        for at in (0..part).step_by(PIECE) {
            let len = PIECE.min(part - at);
            let from = worker.read(at, len, 0)?;
            worker.known[at..at + len].copy_from_slice(&worker.memory[from..from + len]);
        }
        Ok(worker)
    }

    /// Any sequence is as good: xorshift.
    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) as usize % bound
    }

    fn work(mut self, end: Instant) -> io::Result<[u64; 4]> {
        while Instant::now() < end {
            let (at, len) = self.place();
            match self.below(16) {
                0..7 => self.write(at, len)?,
                7..13 => self.compare(at, len)?,
                13..15 => self.settle()?,
                _ => self.zero(at, len)?,
            }
        }
        self.settle()?;
        for at in (0..self.known.len()).step_by(PIECE) {
            self.compare(at, PIECE.min(self.known.len() - at))?;
        }
        Ok(self.counts)
    }

    /// A run of its part, mostly a short one.
    fn place(&mut self) -> (usize, usize) {
        let unit = if self.direct { SECTOR } else { 1 };
        let most = if self.below(4) == 0 { MOST } else { 4 * PAGE };
        let len = (1 + self.below(most / unit)) * unit;
        let at = self.below((self.known.len() - len) / unit + 1) * unit;
        (at, len)
    }

    /// Where in the memory a request's bytes begin.
    fn start(&mut self) -> usize {
        let aligned = self.memory.as_ptr().align_offset(PAGE);
        aligned + self.below(PAGE / SECTOR) * SECTOR
    }

    fn write(&mut self, at: usize, len: usize) -> io::Result<()> {
        let from = self.start();
        let mut word = self.below(usize::MAX) as u64 | 1;
        for byte in &mut self.memory[from..from + len] {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (word >> 56) as u8;
        }
        let bytes = &self.memory[from..from + len];
        self.file.write_all_at(bytes, (self.base + at) as u64)?;
        self.known[at..at + len].copy_from_slice(bytes);
        self.counts[0] += 1;
        Ok(())
    }

    /// Reads into the memory, from a place of it on.
    fn read(&mut self, at: usize, len: usize, from: usize) -> io::Result<usize> {
        let from = if from == 0 { self.memory.as_ptr().align_offset(PAGE) } else { from };
        self.file.read_exact_at(&mut self.memory[from..from + len], (self.base + at) as u64)?;
        Ok(from)
    }

    fn compare(&mut self, at: usize, len: usize) -> io::Result<()> {
        let from = self.start();
        let from = self.read(at, len, from)?;
        let (there, right) = (&self.memory[from..from + len], &self.known[at..at + len]);
        if let Some(n) = there.iter().zip(right).position(|(there, right)| there != right) {
            let wrong = there.iter().zip(right).filter(|(there, right)| there != right).count();
            return Err(io::Error::other(format!(
                "{wrong} of {len} bytes from {} on are not as written, the first is {n}",
                self.base + at
            )));
        }
        self.counts[1] += 1;
        Ok(())
    }

    /// All is on the disk, and the page cache empty.
    fn settle(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        let (base, len) = (self.base as i64, self.known.len() as i64);
        posix_fadvise(&self.file, base, len, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        self.counts[2] += 1;
        Ok(())
    }

    fn zero(&mut self, at: usize, len: usize) -> io::Result<()> {
        let (at, len) = (at / PAGE * PAGE, len / PAGE * PAGE);
        if len == 0 {
            return Ok(());
        }
        let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let how = match self.below(2) {
            0 => FallocateFlags::FALLOC_FL_PUNCH_HOLE,
            _ => FallocateFlags::FALLOC_FL_ZERO_RANGE,
        };
        // A device that cannot do it has lost the range from the page cache, and what was not written back with it.
        self.file.sync_data()?;
        match fallocate(&self.file, how | keep, (self.base + at) as i64, len as i64) {
            Ok(()) => {
                self.known[at..at + len].fill(0);
                self.counts[3] += 1;
                Ok(())
            }
            Err(Errno::EOPNOTSUPP) => Ok(()),
            Err(why) => Err(why.into()),
        }
    }
}
