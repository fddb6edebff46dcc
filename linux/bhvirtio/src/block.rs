//! A disk: a file, a partition or a whole device of this Linux's. The kernel's own copies carry bytes between the
//! sections and its page cache; this program reads headers and writes a status. It answers a flush when all that it has
//! answered before is on the device.

use crate::side::Side;
use bulkhead_linux::channel::named;
use bulkhead_virtio::block::*;
use bulkhead_virtio::layout::{NUM, POOL};
use bulkhead_virtio::{Chain, Corrupted, Offer};
use nix::fcntl::{FallocateFlags, FcntlArg, fallocate, fcntl};
use nix::libc;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Requests before it looks for news of the driver.
const ROUND: usize = 32;
/// Bytes of a request, at most.
const MOST: u32 = 256 * 1024;
/// Ranges of a request that discards or writes zeros, at most.
const RANGES: u32 = 64;
/// Longest time for an earlier life to end.
const LOCKED: Duration = Duration::from_secs(10);
/// Zeros at a time.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Options of the command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Terms<'a> {
    read_only: bool,
    serial: Option<&'a str>,
}

impl<'a> Terms<'a> {
    /// Reads options.
    pub fn of(options: &[&'a str]) -> io::Result<Self> {
        let mut terms = Self::default();
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match *option {
                "--read-only" => terms.read_only = true,
                "--serial" => {
                    let missing = || io::Error::other("--serial: a name is missing");
                    let serial = options.next().ok_or_else(missing)?;
                    if serial.is_empty() || serial.len() > ID || !serial.is_ascii() {
                        let why = format!("--serial {serial}: 1 to {ID} ASCII characters");
                        return Err(io::Error::other(why));
                    }
                    terms.serial = Some(serial);
                }
                other => return Err(io::Error::other(format!("{other}: no such option"))),
            }
        }
        Ok(terms)
    }
}

/// Serves; see the crate's table.
pub fn serve(channel: &str, path: &str, terms: &Terms<'_>) -> io::Result<()> {
    let of = |why: io::Error| io::Error::other(format!("{path}: {why}"));
    let mut file = OpenOptions::new().read(true).write(!terms.read_only).open(path).map_err(of)?;
    let sectors = file.seek(SeekFrom::End(0)).map_err(of)? / SECTOR;
    if sectors == 0 {
        return Err(io::Error::other(format!("{path}: it has not one sector of {SECTOR} bytes")));
    }
    lock(&file, terms, LOCKED).map_err(of)?;
    let serial = match terms.serial {
        Some(serial) => serial.to_owned(),
        None => serial(&file).map_err(of)?,
    };
    let most = most(channel)?;
    let config = Config {
        sectors,
        most,
        block: SECTOR as u32,
        queues: 1,
        ranges: RANGES,
        name: name(&serial),
    };
    let offer = Offer {
        device: DEVICE,
        features: features(terms),
        config: &config.bytes(),
        queues: &[NUM as u16],
    };
    let side = Side::open(channel, &offer)?;
    println!("bhvirtio: {channel}: {path}, {sectors} sectors, serial {serial}");
    Disk { side, file, read_only: terms.read_only, config, failed: 0 }.run()
}

/// Waits until no other program serves the file. A life that was killed holds its lock until its last write is done. So
/// the next one, which gets the requests without an answer once more, finds them done or not begun.
fn lock(file: &File, terms: &Terms<'_>, limit: Duration) -> io::Result<()> {
    let kind = if terms.read_only { libc::F_RDLCK } else { libc::F_WRLCK };
    let whole = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    let begun = Instant::now();
    while let Err(why) = fcntl(file, FcntlArg::F_OFD_SETLK(&whole)) {
        if begun.elapsed() >= limit {
            return Err(io::Error::other(format!("another program serves it: {why}")));
        }
        sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The largest request: a quarter of a section, so that several are under way.
fn most(channel: &str) -> io::Result<u32> {
    let section = named(channel)?[0].section;
    let quarter = section.saturating_sub(POOL as u64) / 4;
    Ok(quarter.clamp(SEGMENT.into(), MOST.into()) as u32 / SEGMENT * SEGMENT)
}

/// Features that are offered; without writes there is nothing to flush.
fn features(terms: &Terms<'_>) -> u64 {
    let always = feature::SIZE_MAX | feature::SEG_MAX | feature::BLOCK_SIZE;
    match terms.read_only {
        true => always | feature::READ_ONLY,
        false => always | feature::FLUSH | feature::DISCARD | feature::WRITE_ZEROES,
    }
}

/// Makes a name for a file. It is another one after each boot: nothing tells then if the content is the old one. With
/// `--serial` the caller vouches for that.
fn serial(file: &File) -> io::Result<String> {
    let meta = file.metadata()?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let facts = format!("{boot}{} {} {}", meta.dev(), meta.ino(), meta.rdev());
    // FNV-1a.
    let hash = facts.bytes().fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    Ok(format!("bh{hash:016x}"))
}

struct Disk {
    side: Side,
    file: File,
    read_only: bool,
    config: Config,
    /// Requests that failed.
    failed: u32,
}

impl Disk {
    fn run(&mut self) -> io::Result<()> {
        loop {
            self.side.attend();
            let worked = match self.round() {
                Ok(any) => any,
                Err(Corrupted) => {
                    self.side.spoilt();
                    false
                }
            };
            self.side.rest(worked, None, None)?;
        }
    }

    /// Carries requests out, in their order.
    fn round(&mut self) -> Result<bool, Corrupted> {
        for n in 0..ROUND {
            let Some(queue) = self.side.device.queue(0) else { return Ok(n > 0) };
            let Some(chain) = queue.take()? else { return Ok(n > 0) };
            let (asked, (status, written)) = self.answer(&chain)?;
            write(&self.side.mine, asked.status, &[status]);
            if let Some(queue) = self.side.device.queue(0) {
                queue.used(&chain, written + 1);
                queue.tell();
            }
        }
        Ok(true)
    }

    /// Makes sense of a chain and carries it out. Returns its status, and the bytes of data written.
    fn answer(&mut self, chain: &Chain) -> Result<(Asked, (u8, usize)), Corrupted> {
        let mut header = [0; HEADER];
        let there =
            chain.reads.len >= HEADER && read(&self.side.theirs, chain.reads.at, &mut header);
        let asked = Asked::of(chain, header).filter(|_| there).ok_or(Corrupted)?;
        let end = match self.carry_out(&asked) {
            Ok(Some(written)) => (OK, written),
            Ok(None) => (UNKNOWN, 0),
            Err(why) => {
                self.complain(asked.kind, &why);
                (FAILED, 0)
            }
        };
        Ok((asked, end))
    }

    /// Says it the first time, the second, the fourth and so on: how many fail is the driver's choice.
    fn complain(&mut self, kind: Kind, why: &io::Error) {
        self.failed = self.failed.saturating_add(1);
        if self.failed.is_power_of_two() {
            eprintln!("bhvirtio: {kind:?}: {why}; {} requests have failed", self.failed);
        }
    }

    /// `None`: there is no such request.
    fn carry_out(&self, asked: &Asked) -> io::Result<Option<usize>> {
        let (side, file) = (&self.side, &self.file);
        match asked.kind {
            Kind::Read => {
                let (place, room) = (self.place(asked.sector, asked.room.len as u64)?, asked.room);
                side.own.read_from_at(file, room.at, room.len, place)?;
                return Ok(Some(room.len));
            }
            Kind::Write => {
                self.writable()?;
                let (place, out) = (self.place(asked.sector, asked.out.len as u64)?, asked.out);
                side.driver.write_to_at(file, out.at, out.len, place)?;
            }
            Kind::Flush => file.sync_data()?,
            Kind::Id => {
                let name = &self.config.name[..asked.room.len.min(ID)];
                write(&side.mine, asked.room.at, name);
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
        let count = asked.out.len / RANGE;
        if !asked.out.len.is_multiple_of(RANGE) || count > RANGES as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for n in 0..count {
            let mut description = [0; RANGE];
            read(&self.side.theirs, asked.out.at + n * RANGE, &mut description);
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
        fits.then(|| sector * SECTOR).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_understood_or_refused() {
        let both = Terms { read_only: true, serial: Some("x1") };
        assert_eq!(Terms::of(&["--serial", "x1", "--read-only"]).expect("they are options"), both);
        assert_eq!(Terms::of(&[]).expect("no options"), Terms::default());
        for wrong in
            [&["--serial"][..], &["--serial", ""], &["-x"], &["--serial", "123456789012345678901"]]
        {
            assert!(Terms::of(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn one_program_at_a_time_writes_a_file() {
        let path = std::env::temp_dir().join(format!("bhvirtio-lock-{}", std::process::id()));
        let open =
            || File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let [first, second] = [open().expect("a file"), open().expect("a file")];
        let (writes, reads) = (Terms::default(), Terms { read_only: true, serial: None });
        let now = Duration::ZERO;
        assert!(lock(&first, &reads, now).is_ok() && lock(&second, &reads, now).is_ok());
        assert!(lock(&first, &writes, now).is_err());
        drop(second);
        assert!(lock(&first, &writes, now).is_ok());
        let second = open().expect("a file");
        assert!(lock(&second, &writes, now).is_err() && lock(&second, &reads, now).is_err());
        drop(first);
        assert!(lock(&second, &writes, now).is_ok());
        std::fs::remove_file(&path).expect("its file");
    }

    #[test]
    fn without_writes_nothing_is_flushed() {
        let read_only = features(&Terms { read_only: true, serial: None });
        assert_eq!(read_only & (feature::FLUSH | feature::DISCARD), 0);
        assert_eq!(read_only & feature::READ_ONLY, feature::READ_ONLY);
        assert_eq!(features(&Terms::default()) & feature::READ_ONLY, 0);
    }
}
