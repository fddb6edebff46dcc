//! Rows of a disk: every request goes to the device (`O_DIRECT`).

use crate::repeat;
use bulkhead_linux::marker::id;
use bulkhead_linux::setup::Failure;
use nix::fcntl::OFlag;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};

const KIB4: usize = 4 << 10;
const MIB: usize = 1 << 20;
/// Size of a file that is made.
const FILE: usize = 64 * MIB;
/// The buffer is one huge page. With small ones a request costs more the less they lie side by side in physical memory.
/// That differs from boot to boot by half of the cost.
const HUGE: usize = 2 * MIB;
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const WARM: usize = 3;

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

/// Reads random places, which repeat in every run.
pub fn rand4k(path: &str, count: usize) -> Result<(), Failure> {
    let mut disk = Disk::open(path, KIB4)?;
    let blocks = disk.size / KIB4;
    let mut state = 1usize;
    repeat::<{ id::IO_BLK_RAND4K }>("io.blk_rand4k", (WARM, count), || {
        // Knuth's MMIX generator; its upper bits are the good ones.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        disk.read((state >> 33) % blocks * KIB4, KIB4)
    })
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
