//! One file, in the way of fsx: operations in any order and at any offset, through the page cache and by a mapping.
//! Each read is compared with the model.

use crate::{fill, same};
use bulkhead_linux::map::Mapped;
use bulkhead_random::SplitMix64;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};
use std::fs::{File, OpenOptions};
use std::io::Result;
use std::os::unix::fs::FileExt;

/// Bytes of the file, and of an operation, at most.
const SIZE: usize = 256 << 10;
const MOST: usize = 48 << 10;

/// The file and its model. Without a file the model alone is played.
struct Exercise {
    path: String,
    file: Option<File>,
    model: Vec<u8>,
    random: SplitMix64,
    /// Operations by kind: writes, reads, sizes, writes by a mapping, reads by one, ranges of zeros, flushes.
    counts: [u64; 7],
}

/// Exercises a file from an empty one on.
pub fn exercise(path: &str, [seed, operations]: [u64; 2]) -> Result<()> {
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
    let mut exercise = Exercise::new(path, Some(open()?), seed);
    for n in 0..operations {
        exercise.step().map_err(|why| std::io::Error::other(format!("operation {n}: {why}")))?;
    }
    exercise.settle()?;
    exercise.compare(0, exercise.model.len())?;
    let [writes, reads, sizes, map_writes, map_reads, zeros, flushes] = exercise.counts;
    println!(
        "bhfs: {path}: {writes} writes, {reads} reads, {sizes} sizes, {map_writes} and {map_reads} by a mapping, \
         {zeros} ranges of zeros, {flushes} flushes, all as written"
    );
    Ok(())
}

/// Compares a file with what such an exercise has left.
pub fn again(path: &str, [seed, operations]: [u64; 2]) -> Result<()> {
    let mut exercise = Exercise::new(path, None, seed);
    (0..operations).try_for_each(|_| exercise.step())?;
    same(&std::fs::read(path)?, &exercise.model, 0, path)?;
    println!("bhfs: {path}: {} bytes again, all as written", exercise.model.len());
    Ok(())
}

impl Exercise {
    fn new(path: &str, file: Option<File>, seed: u64) -> Self {
        let (path, random) = (path.to_owned(), SplitMix64(seed));
        Self { path, file, model: Vec::new(), random, counts: [0; 7] }
    }

    /// An offset in the file and a length that fit into so many bytes.
    fn place(&mut self, size: usize) -> (usize, usize) {
        let most = if self.random.below(3) == 0 { MOST } else { 5000 };
        let at = self.random.index(size.max(1));
        (at, self.random.index(most.min(size - at.min(size)) + 1))
    }

    fn step(&mut self) -> Result<()> {
        match self.random.below(24) {
            0..7 => self.write(),
            7..13 => {
                let (at, len) = self.place(self.model.len());
                self.compare(at, len)
            }
            13..15 => self.resize(),
            15..18 => self.map_write(),
            18..20 => self.map_read(),
            20..22 => self.zero(),
            _ => self.settle(),
        }
    }

    fn write(&mut self) -> Result<()> {
        // Also beyond the end: what lies between are zeros.
        let (at, len) = self.place(SIZE);
        let mut bytes = vec![0; len];
        fill(&mut bytes, self.random.any());
        if let Some(file) = &self.file {
            file.write_all_at(&bytes, at as u64)?;
        }
        if len > 0 {
            self.model.resize(self.model.len().max(at + len), 0);
            self.model[at..at + len].copy_from_slice(&bytes);
        }
        self.counts[0] += 1;
        Ok(())
    }

    fn compare(&mut self, at: usize, len: usize) -> Result<()> {
        if let Some(file) = &self.file {
            let mut bytes = vec![0; len];
            file.read_exact_at(&mut bytes, at as u64)?;
            same(&bytes, &self.model[at..at + len], at, &self.path)?;
            // Behind the end there is nothing.
            let behind = file.read_at(&mut [0; 16], self.model.len() as u64)?;
            same(&[0; 16][..behind], &[], self.model.len(), &self.path)?;
        }
        self.counts[1] += 1;
        Ok(())
    }

    fn resize(&mut self) -> Result<()> {
        let size = self.random.index(SIZE + 1);
        if let Some(file) = &self.file {
            file.set_len(size as u64)?;
        }
        self.model.resize(size, 0);
        self.counts[2] += 1;
        Ok(())
    }

    fn map_write(&mut self) -> Result<()> {
        let (at, len) = self.place(self.model.len());
        let mut bytes = vec![0; len];
        fill(&mut bytes, self.random.any());
        if let Some(file) = self.file.as_ref().filter(|_| len > 0) {
            Mapped::of(file, self.model.len())?.write(at, &bytes);
        }
        self.model[at..at + len].copy_from_slice(&bytes);
        self.counts[3] += 1;
        Ok(())
    }

    fn map_read(&mut self) -> Result<()> {
        let (at, len) = self.place(self.model.len());
        if let Some(file) = self.file.as_ref().filter(|_| len > 0) {
            let mut bytes = vec![0; len];
            Mapped::of(file, self.model.len())?.read(at, &mut bytes);
            same(&bytes, &self.model[at..at + len], at, "mapping")?;
        }
        self.counts[4] += 1;
        Ok(())
    }

    /// A range of zeros; in a file system that has no such request they are written.
    fn zero(&mut self) -> Result<()> {
        let (at, len) = self.place(self.model.len());
        let punch = self.random.below(2) == 0;
        let kind = match punch {
            true => FallocateFlags::FALLOC_FL_PUNCH_HOLE,
            false => FallocateFlags::FALLOC_FL_ZERO_RANGE,
        };
        if let Some(file) = self.file.as_ref().filter(|_| len > 0) {
            let flags = kind | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            match fallocate(file, flags, at as i64, len as i64) {
                Ok(()) => {}
                Err(Errno::EOPNOTSUPP) => file.write_all_at(&vec![0; len], at as u64)?,
                Err(why) => return Err(why.into()),
            }
        }
        self.model[at..at + len].fill(0);
        self.counts[5] += 1;
        Ok(())
    }

    /// All is on the disk, and the page cache has nothing of it: later reads come from there.
    fn settle(&mut self) -> Result<()> {
        if let Some(file) = &self.file {
            file.sync_all()?;
            posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        }
        self.counts[6] += 1;
        Ok(())
    }
}
