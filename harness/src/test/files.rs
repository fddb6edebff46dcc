//! A program of the kernel keeps its log in a file system on a disk behind a wall (`tests/store/files.toml`). Another
//! implementation of that file system makes the disk, and reads the log afterwards.

use super::driver::{Bench, Job};
use super::system::{Manifest, run};
use crate::build;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

/// Bytes of the disk's file, and the first byte of its partition.
const SIZE: u64 = 16 << 20;
const FIRST: u64 = 1 << 20;
/// Records that the manifest asks for, and words of each (`programs/files`).
const ROUNDS: u64 = 64;
const WORDS: u64 = 64;

pub fn jobs() -> Vec<Job> {
    vec![Job::one("store/files", 120, works)]
}

/// A part of a file, from a byte on.
struct Partition(File, u64);

impl Read for Partition {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(to)
    }
}

impl Write for Partition {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        self.0.write(from)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Seek for Partition {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        let to = match to {
            SeekFrom::Start(at) => SeekFrom::Start(self.1 + at),
            other => other,
        };
        let at = self.0.seek(to)?;
        at.checked_sub(self.1).ok_or_else(|| std::io::Error::other("before the partition"))
    }
}

fn partition(disk: &Path, first: u64) -> Result<Partition, String> {
    let file = OpenOptions::new().read(true).write(true).open(disk);
    let mut partition = Partition(file.map_err(|e| format!("{}: {e}", disk.display()))?, first);
    partition.rewind().map_err(|e| format!("{}: {e}", disk.display()))?;
    Ok(partition)
}

/// Makes a disk with an empty FAT16 file system in its one partition.
fn format(disk: &Path) -> Result<(), String> {
    let make = || -> std::io::Result<()> {
        let mut file = File::create(disk)?;
        file.set_len(SIZE)?;
        let (first, count) = ((FIRST / 512) as u32, ((SIZE - FIRST) / 512) as u32);
        let mut sector = [0; 512];
        // Kind 0x0E: FAT16, by block numbers.
        sector[450] = 0x0E;
        sector[454..458].copy_from_slice(&first.to_le_bytes());
        sector[458..462].copy_from_slice(&count.to_le_bytes());
        sector[510..].copy_from_slice(&[0x55, 0xAA]);
        file.write_all(&sector)
    };
    make().map_err(|e| format!("{}: {e}", disk.display()))?;
    let sectors = ((SIZE - FIRST) / 512) as u32;
    let options =
        fatfs::FormatVolumeOptions::new().fat_type(fatfs::FatType::Fat16).total_sectors(sectors);
    fatfs::format_volume(partition(disk, FIRST)?, options)
        .map_err(|e| format!("a file system: {e}"))
}

/// Returns what the log has, in the file system that begins at a byte of the disk's file.
pub fn log(disk: &Path, first: u64) -> Result<Vec<u8>, String> {
    let wrong = |e: std::io::Error| format!("the file system: {e}");
    let system =
        fatfs::FileSystem::new(partition(disk, first)?, fatfs::FsOptions::new()).map_err(wrong)?;
    let mut bytes = Vec::new();
    let file = system.root_dir().open_file("FLIGHT.LOG");
    file.map_err(wrong)?.read_to_end(&mut bytes).map_err(wrong)?;
    Ok(bytes)
}

/// A word of the log, as the writer makes it.
fn word(at: u64) -> u64 {
    let (round, at) = (at / WORDS, at % WORDS);
    (round << 32 | at).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn works(bench: &Bench) -> Result<String, String> {
    let path = build::root().join("tests/store/files.toml");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    std::fs::create_dir_all(&bench.dir).map_err(|e| format!("{}: {e}", bench.dir.display()))?;
    let disk = bench.dir.join("disk.img");
    format(&disk)?;
    // In real time: virtual time runs ahead of a disk.
    let seen = run(&Manifest(text), &bench.dir, |options| {
        options.time = bulkhead_qemu::Time::Live;
        options.limit = Duration::from_secs(100);
    })?;
    seen.exited("rt")?;
    seen.undisturbed("rt", &["exited"])?;
    seen.undisturbed("store", &["running"])?;
    let bytes = log(&disk, FIRST)?;
    let right = (0..ROUNDS * WORDS).flat_map(|at| word(at).to_le_bytes());
    let len = bytes.len();
    seen.ensure(bytes.into_iter().eq(right), format!("the log, of {len} bytes, is another one"))?;
    Ok(format!("{ROUNDS} records, {len} bytes"))
}
