//! A disk with checksums of its own, by the kernel's dm-integrity, for tests.

use bulkhead_linux::run::done;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::process::Command;

/// Bytes that are written at a time.
const PIECE: usize = 64 << 10;

/// Makes `/dev/mapper/NAME` on a disk, and fills it: a block that was never written has no checksum.
pub fn make(path: &str, name: &str) -> io::Result<()> {
    done(Command::new("modprobe").arg("dm-integrity"))?;
    // Without a superblock, a table of one sector makes one. The file is closed: it would remember the zeros.
    let mut disk = OpenOptions::new().write(true).open(path)?;
    disk.write_all(&[0; 4096])?;
    disk.sync_all()?;
    drop(disk);
    map("new", 1, path)?;
    done(dmsetup().args(["remove", "new"]))?;
    let sectors = provided(path)?;
    map(name, sectors, path)?;
    let mut safe = File::create(format!("/dev/mapper/{name}"))?;
    let bytes = sectors * 512;
    for at in (0..bytes).step_by(PIECE) {
        safe.write_all(&vec![0; PIECE.min((bytes - at) as usize)])?;
    }
    safe.sync_all()?;
    println!("bhvirtio: {path}: {sectors} sectors with checksums");
    Ok(())
}

/// There is no udev that makes device files.
fn dmsetup() -> Command {
    let mut command = Command::new("dmsetup");
    command.env("DM_DISABLE_UDEV", "1");
    command
}

/// Maps so many sectors, with a journal and a checksum of each.
fn map(name: &str, sectors: u64, path: &str) -> io::Result<()> {
    let table = format!("0 {sectors} integrity {path} 0 - J 1 internal_hash:crc32c");
    done(dmsetup().args(["create", name, "--table", &table]))
}

/// Sectors beside checksums and journal, as the superblock has them.
fn provided(path: &str) -> io::Result<u64> {
    const MAGIC: &[u8] = b"integrt\0";
    let mut bytes = [0; 24];
    File::open(path)?.read_exact(&mut bytes)?;
    let (_, sectors) = bytes.split_last_chunk().unwrap_or((&[], &[0; 8]));
    if !bytes.starts_with(MAGIC) {
        return Err(io::Error::other("no superblock of dm-integrity"));
    }
    Ok(u64::from_le_bytes(*sectors))
}
