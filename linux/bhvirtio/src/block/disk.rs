//! Requests of a disk, carried out on the file. Any thread may carry out any request.

use crate::side::Side;
use bulkhead_channel_memory::Mapping;
use bulkhead_linux::section::Section;
use bulkhead_virtio::block::*;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::stat::major;
use nix::sys::statfs::{FsType, TMPFS_MAGIC, fstatfs};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// File system `ramfs`.
const RAMFS_MAGIC: FsType = FsType(0x8584_58F6);
/// Zeros at a time.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The file, and the sections that its bytes come from and go to.
pub struct Disk {
    file: File,
    /// Where the disk begins in the file.
    offset: u64,
    read_only: bool,
    config: Config,
    driver: Section,
    own: Section,
    theirs: Mapping<'static>,
    mine: Mapping<'static>,
    /// No request has to wait for a device: the file is in memory.
    memory: bool,
    /// The file can tell that a read would have to wait.
    tells: AtomicBool,
    /// Requests that failed.
    failed: AtomicU32,
}

/// Tells if a file lies in memory: a RAM disk, or a file of a file system there.
fn in_memory(file: &File) -> bool {
    /// Major number of RAM disks (Linux, admin-guide/devices).
    const RAM: u64 = 1;
    let Ok(facts) = file.metadata() else { return false };
    let kinds = [TMPFS_MAGIC, RAMFS_MAGIC];
    if facts.file_type().is_block_device() {
        return major(facts.rdev()) == RAM;
    }
    facts.is_file() && fstatfs(file).is_ok_and(|of| kinds.contains(&of.filesystem_type()))
}

/// Status of a request, and bytes of data that it wrote.
pub type Answer = (u8, usize);

impl Disk {
    /// A disk of a file from a byte on.
    pub fn new(file: File, offset: u64, read_only: bool, config: Config, side: &Side) -> Self {
        let memory = in_memory(&file);
        Self {
            file,
            offset,
            read_only,
            config,
            driver: side.driver,
            own: side.own,
            theirs: side.theirs,
            mine: side.mine,
            memory,
            tells: AtomicBool::new(true),
            failed: AtomicU32::new(0),
        }
    }

    /// Carries a request out if that need not wait for a device. No write can tell: even one that may not wait does, if
    /// its file system is frozen.
    pub fn at_once(&self, asked: &Asked) -> Option<Answer> {
        match asked.kind {
            Kind::Id | Kind::Other => return Some(self.at_last(asked)),
            _ if self.memory => return Some(self.at_last(asked)),
            Kind::Read if self.tells.load(Relaxed) => {}
            _ => return None,
        }
        match self.read_now(asked) {
            Ok(done) => return done.then_some((OK, asked.room.len)),
            Err(why) if why.kind() == io::ErrorKind::Unsupported => {
                self.tells.store(false, Relaxed);
            }
            // It is seen once more, and said then.
            Err(_) => {}
        }
        None
    }

    /// Reads what needs no device; `false`: some does.
    fn read_now(&self, asked: &Asked) -> io::Result<bool> {
        let (place, room) = (self.place(asked.sector, asked.room.len as u64)?, asked.room);
        self.own.read_now_at(&self.file, room.at, room.len, place)
    }

    /// Carries a request out, however long that takes.
    pub fn at_last(&self, asked: &Asked) -> Answer {
        match self.carry_out(asked) {
            Ok(Some(written)) => (OK, written),
            Ok(None) => (UNKNOWN, 0),
            Err(why) => {
                self.complain(asked.kind, &why);
                (FAILED, 0)
            }
        }
    }

    /// Says it the first time, the second, the fourth and so on: how many fail is the driver's choice.
    fn complain(&self, kind: Kind, why: &io::Error) {
        let failed = self.failed.fetch_add(1, Relaxed).wrapping_add(1);
        if failed.is_power_of_two() {
            eprintln!("bhvirtio: {kind:?}: {why}; {failed} requests have failed");
        }
    }

    /// `None`: there is no such request.
    fn carry_out(&self, asked: &Asked) -> io::Result<Option<usize>> {
        let file = &self.file;
        match asked.kind {
            Kind::Read => {
                let (place, room) = (self.place(asked.sector, asked.room.len as u64)?, asked.room);
                self.own.read_from_at(file, room.at, room.len, place)?;
                return Ok(Some(room.len));
            }
            Kind::Write => {
                self.writable()?;
                let (place, out) = (self.place(asked.sector, asked.out.len as u64)?, asked.out);
                self.driver.write_to_at(file, out.at, out.len, place)?;
            }
            Kind::Flush => file.sync_data()?,
            Kind::Id => {
                let name = &self.config.name[..asked.room.len.min(ID)];
                write(&self.mine, asked.room.at, name);
                return Ok(Some(name.len()));
            }
            Kind::Discard | Kind::Zero => self.ranges(asked)?,
            Kind::Other => return Ok(None),
        }
        Ok(Some(0))
    }

    /// Discards ranges, or makes them zeros.
    fn ranges(&self, asked: &Asked) -> io::Result<()> {
        self.writable()?;
        let (count, most) = (asked.out.len / RANGE, self.config.ranges as usize);
        if !asked.out.len.is_multiple_of(RANGE) || count > most {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for n in 0..count {
            let mut description = [0; RANGE];
            read(&self.theirs, asked.out.at + n * RANGE, &mut description);
            let range = Range::of(asked.kind, description);
            let range = range.ok_or(io::ErrorKind::InvalidInput)?;
            let place = self.place(range.sector, range.len)?;
            let punched = asked.kind == Kind::Discard || range.unmap;
            match punched.then(|| self.punch(place, range.len)) {
                Some(Ok(())) => {}
                // Its content may stay.
                Some(Err(_)) if asked.kind == Kind::Discard => {}
                Some(Err(_)) | None => self.zero(place, range.len)?,
            }
        }
        Ok(())
    }

    fn punch(&self, place: u64, len: u64) -> nix::Result<()> {
        let mode = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&self.file, mode, place as i64, len as i64)
    }

    fn zero(&self, mut place: u64, mut len: u64) -> io::Result<()> {
        while len > 0 {
            let some = len.min(ZEROS.len() as u64);
            self.file.write_all_at(&ZEROS[..some as usize], place)?;
            (place, len) = (place + some, len - some);
        }
        Ok(())
    }

    fn writable(&self) -> io::Result<()> {
        if self.read_only { Err(io::ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
    }

    /// The place of data in the file, if that is on the disk.
    fn place(&self, sector: u64, len: u64) -> io::Result<u64> {
        let fits = fits(sector, len, self.config.sectors, self.config.block);
        // The disk's end is one of the file's bytes, or the end of these.
        fits.then(|| self.offset + sector * SECTOR)
            .ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}
