//! A machine's RAM, in a file that QEMU maps shared, or in Bochs' own memory.

use crate::Error;
use crate::blocks::Blocks;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// From this size on, q35 leaves 2 GiB below 4 GiB and moves the rest above
/// (`pc_q35_init` in QEMU's hw/i386/pc_q35.c).
const Q35_SPLITS_FROM: u64 = 0xB000_0000;
const Q35_BELOW_4G: u64 = 0x8000_0000;
const HIGH: u64 = 0x1_0000_0000;

/// See the module. QEMU's file is removed with the value.
#[derive(Debug)]
pub struct Ram {
    path: PathBuf,
    file: File,
    size: u64,
    /// Blocks of RAM in the memory of a Bochs.
    blocks: Option<Blocks>,
}

/// Removes the files of processes that were killed before they could.
fn forget_the_dead(dir: &Path) {
    for file in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = file.file_name();
        let rest = name.to_str().and_then(|n| n.strip_prefix("bulkhead-"));
        let owner = rest.filter(|r| r.ends_with(".ram")).and_then(|r| r.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_file(file.path());
        }
    }
}

impl Ram {
    /// Makes a sparse file, in memory where the system has `/dev/shm`.
    pub fn new(size: u64) -> Result<Self, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let shm = Path::new("/dev/shm");
        let dir = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        forget_the_dead(&dir);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("bulkhead-{}-{number}.ram", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(Error::io(&path))?;
        file.set_len(size).map_err(Error::io(&path))?;
        Ok(Self { path, file, size, blocks: None })
    }

    /// RAM of a machine that a Bochs of ours emulates: a process may read its children's memory.
    pub fn of_bochs(process: u32, size: u64) -> Result<Self, Error> {
        let path = Path::new("/proc").join(process.to_string()).join("mem");
        let file = File::open(&path).map_err(Error::io(&path))?;
        Ok(Self { path, file, size, blocks: Some(Blocks::new(process, size)) })
    }

    /// Writes all of it to a sparse file; below 4 GiB first, then the rest.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let file = File::create(path).map_err(Error::io(path))?;
        file.set_len(self.size).map_err(Error::io(path))?;
        let mut bytes = vec![0; 1 << 17];
        for (from, len) in self.banks() {
            for at in (from..from + len).step_by(bytes.len()) {
                self.read(at, &mut bytes)?;
                let to = self.offset(at, 0)?;
                if bytes.iter().any(|byte| *byte != 0) {
                    file.write_all_at(&bytes, to).map_err(Error::io(path))?;
                }
            }
        }
        Ok(())
    }

    /// Returns the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size of the RAM.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the size of the RAM below 4 GiB.
    #[must_use]
    pub fn below_4g(&self) -> u64 {
        below_4g(self.size)
    }

    /// Returns address and length of each piece, in the order of the file.
    #[must_use]
    pub fn banks(&self) -> [(u64, u64); 2] {
        let low = self.below_4g();
        [(0, low), (HIGH, self.size - low)]
    }

    /// Reads from a physical address, while the machine runs or afterwards.
    pub fn read(&self, pa: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let at = self.offset(pa, buffer.len() as u64)?;
        if let Some(blocks) = &self.blocks {
            return blocks.read(&self.file, at, buffer).map_err(Error::io(&self.path));
        }
        self.file.read_exact_at(buffer, at).map_err(Error::io(&self.path))
    }

    /// Returns a 64-bit word.
    pub fn read_u64(&self, pa: u64) -> Result<u64, Error> {
        let mut bytes = [0; 8];
        self.read(pa, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes to a physical address: for tests that damage a machine.
    pub fn write(&self, pa: u64, bytes: &[u8]) -> Result<(), Error> {
        let at = self.offset(pa, bytes.len() as u64)?;
        self.file.write_all_at(bytes, at).map_err(Error::io(&self.path))
    }

    /// Finds the place of a physical range in the file.
    fn offset(&self, pa: u64, len: u64) -> Result<u64, Error> {
        offset(self.size, pa, len).ok_or(Error::NoRam(pa))
    }
}

impl Drop for Ram {
    fn drop(&mut self) {
        if self.blocks.is_some() {
            return;
        }
        // A file that cannot be removed is in a folder that the system empties.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns the size of the RAM that q35 puts below 4 GiB.
#[must_use]
pub fn below_4g(size: u64) -> u64 {
    if size >= Q35_SPLITS_FROM { Q35_BELOW_4G } else { size }
}

fn offset(size: u64, pa: u64, len: u64) -> Option<u64> {
    let low = below_4g(size);
    let end = pa.checked_add(len)?;
    if end <= low {
        Some(pa)
    } else if pa >= HIGH && end <= HIGH + (size - low) {
        Some(pa - HIGH + low)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const GIB: u64 = 1 << 30;

    #[test]
    fn q35_moves_what_is_above_two_gib() {
        assert_eq!(offset(6 * GIB, 0x1000, 8), Some(0x1000));
        assert_eq!(offset(6 * GIB, HIGH, 8), Some(2 * GIB));
        assert_eq!(offset(6 * GIB, HIGH + 4 * GIB - 8, 8), Some(6 * GIB - 8));
        assert_eq!(offset(6 * GIB, 2 * GIB, 8), None);
        assert_eq!(offset(6 * GIB, HIGH + 4 * GIB - 4, 8), None);
        assert_eq!(offset(2 * GIB, 2 * GIB - 8, 8), Some(2 * GIB - 8));
        assert_eq!(offset(2 * GIB, u64::MAX, 8), None);
    }

    #[test]
    fn what_is_written_is_read_and_the_file_goes() {
        let ram = Ram::new(3 * GIB).expect("room for a sparse file");
        ram.write(HIGH + 16, &7u64.to_le_bytes()).expect("RAM");
        assert_eq!(ram.read_u64(HIGH + 16).expect("RAM"), 7);
        let path = ram.path().to_owned();
        drop(ram);
        assert!(!path.exists());
    }
}
