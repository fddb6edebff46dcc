//! A disk: a file, a partition or a whole device of this Linux's, or a part of one. The kernel's own copies carry bytes
//! between the sections and its page cache; this program reads headers and writes a status. It answers a flush when all
//! that it has answered before is on the device.

mod crew;
mod disk;

use crate::side::Side;
use bulkhead_linux::channel::named;
use bulkhead_virtio::Offer;
use bulkhead_virtio::block::*;
use bulkhead_virtio::layout::{NUM, POOL, QUEUES};
use disk::Disk;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Bytes of a request, at most.
const MOST: u32 = 256 * 1024;
/// Ranges of a request that discards or writes zeros, at most.
const RANGES: u32 = 64;
/// Longest time for an earlier life to end.
const LOCKED: Duration = Duration::from_secs(10);

/// Options of the command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Terms<'a> {
    read_only: bool,
    serial: Option<&'a str>,
    queues: usize,
    /// First byte of the file's part, and its length; `None`: up to the file's end.
    offset: u64,
    length: Option<u64>,
}

impl Default for Terms<'_> {
    fn default() -> Self {
        Self { read_only: false, serial: None, queues: 1, offset: 0, length: None }
    }
}

impl<'a> Terms<'a> {
    /// Reads options.
    pub fn of(options: &[&'a str]) -> io::Result<Self> {
        let mut terms = Self::default();
        let mut options = options.iter();
        while let Some(option) = options.next() {
            if *option == "--read-only" {
                terms.read_only = true;
                continue;
            }
            let missing = || io::Error::other(format!("{option}: no such option, or no value"));
            let value = *options.next().ok_or_else(missing)?;
            let wrong = |right: String| io::Error::other(format!("{option} {value}: {right}"));
            let sectors = || bytes(value).ok_or_else(|| wrong(format!("a multiple of {SECTOR}")));
            match *option {
                "--serial" if value.is_empty() || value.len() > ID || !value.is_ascii() => {
                    return Err(wrong(format!("1 to {ID} ASCII characters")));
                }
                "--serial" => terms.serial = Some(value),
                "--queues" => {
                    let count = value.parse().ok().filter(|n| (1..=QUEUES).contains(n));
                    terms.queues = count.ok_or_else(|| wrong(format!("1 to {QUEUES}")))?;
                }
                "--offset" => terms.offset = sectors()?,
                "--length" => terms.length = Some(sectors()?),
                _ => return Err(missing()),
            }
        }
        Ok(terms)
    }

    /// Returns how many sectors of a file of so many bytes are the disk.
    fn sectors(&self, size: u64) -> io::Result<u64> {
        let there = size.saturating_sub(self.offset);
        let wanted = self.length.unwrap_or(there);
        match wanted / SECTOR {
            _ if wanted > there => {
                let end = self.offset.saturating_add(wanted);
                Err(io::Error::other(format!(
                    "it has {size} bytes, and the disk would end at {end}"
                )))
            }
            0 => Err(io::Error::other(format!(
                "the disk would not have one sector of {SECTOR} bytes"
            ))),
            sectors => Ok(sectors),
        }
    }
}

/// Bytes in whole sectors, with a unit of 1024 or not.
fn bytes(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1u64),
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    // The kernel counts a file's bytes by signed numbers.
    (bytes.is_multiple_of(SECTOR) && bytes <= i64::MAX as u64).then_some(bytes)
}

/// Serves; see the crate's table.
pub fn serve(channel: &str, path: &str, terms: &Terms<'_>) -> io::Result<()> {
    let of = |why: io::Error| io::Error::other(format!("{path}: {why}"));
    let mut file = OpenOptions::new().read(true).write(!terms.read_only).open(path).map_err(of)?;
    let sectors = file.seek(SeekFrom::End(0)).and_then(|size| terms.sectors(size)).map_err(of)?;
    // An earlier life of this end may still write to the section, and one of another to the file.
    let end = named(channel)?.swap_remove(0);
    let window = File::options().read(true).write(true).open(end.path.join("resource2"))?;
    lock(&window, libc::F_WRLCK, [0, 0], LOCKED)
        .map_err(|why| io::Error::other(format!("{channel}: {why}")))?;
    let kind = if terms.read_only { libc::F_RDLCK } else { libc::F_WRLCK };
    lock(&file, kind, [terms.offset, sectors * SECTOR], LOCKED).map_err(of)?;
    let serial = match terms.serial {
        Some(serial) => serial.to_owned(),
        None => serial(&file, terms.offset).map_err(of)?,
    };
    let most = most(end.section);
    let config = Config {
        sectors,
        most,
        block: SECTOR as u32,
        queues: terms.queues as u16,
        ranges: RANGES,
        discard: RANGE_SECTORS,
        zero: RANGE_SECTORS,
        name: name(&serial),
    };
    let offer = Offer {
        device: DEVICE,
        features: features(terms),
        config: &config.bytes(),
        queues: &[NUM as u16; QUEUES][..terms.queues],
    };
    let side = Side::open(channel, &offer)?;
    println!("bhvirtio: {channel}: {path}, {sectors} sectors, serial {serial}");
    let disk = Disk::new(file, terms.offset, terms.read_only, config, &side);
    crew::run(disk, side, terms.queues)
}

/// Waits until no other program serves a part of a file, from a byte on; a length of 0 is all the rest. A life that was
/// killed holds its lock until the last of its threads is out of its last write. So the next one, which gets the
/// requests without an answer once more, finds them done or not begun.
fn lock(file: &File, kind: libc::c_int, [start, len]: [u64; 2], limit: Duration) -> io::Result<()> {
    let part = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start as libc::off_t,
        l_len: len as libc::off_t,
        l_pid: 0,
    };
    let begun = Instant::now();
    while let Err(why) = fcntl(file, FcntlArg::F_OFD_SETLK(&part)) {
        if begun.elapsed() >= limit {
            return Err(io::Error::other(format!("another program serves it: {why}")));
        }
        sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The largest request: a quarter of a section, so that several are under way.
fn most(section: u64) -> u32 {
    let quarter = section.saturating_sub(POOL as u64) / 4;
    quarter.clamp(SEGMENT.into(), MOST.into()) as u32 / SEGMENT * SEGMENT
}

/// Features that are offered; without writes there is nothing to flush.
fn features(terms: &Terms<'_>) -> u64 {
    let mut always = feature::SIZE_MAX | feature::SEG_MAX | feature::BLOCK_SIZE;
    if terms.queues > 1 {
        always |= feature::QUEUES;
    }
    match terms.read_only {
        true => always | feature::READ_ONLY,
        false => always | feature::FLUSH | feature::DISCARD | feature::WRITE_ZEROES,
    }
}

/// Makes a name for a file. It is another one after each boot: nothing tells then if the content is the old one. With
/// `--serial` the caller vouches for that.
fn serial(file: &File, offset: u64) -> io::Result<String> {
    let meta = file.metadata()?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let facts = format!("{boot}{} {} {} {offset}", meta.dev(), meta.ino(), meta.rdev());
    // FNV-1a.
    let hash = facts.bytes().fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    Ok(format!("bh{hash:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_understood_or_refused() {
        let all =
            ["--serial", "x1", "--read-only", "--queues", "4", "--offset", "1M", "--length", "512"];
        let terms = Terms {
            read_only: true,
            serial: Some("x1"),
            queues: 4,
            offset: 1 << 20,
            length: Some(512),
        };
        assert_eq!(Terms::of(&all).expect("they are options"), terms);
        assert_eq!(Terms::of(&[]).expect("no options"), Terms::default());
        for wrong in [
            &["--serial"][..],
            &["--serial", ""],
            &["-x"],
            &["--serial", "123456789012345678901"],
            &["--queues", "0"],
            &["--queues", "5"],
            &["--offset", "513"],
            &["--offset", "-512"],
            &["--length", "1T"],
            &["--length", "17179869184G"],
        ] {
            assert!(Terms::of(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_part_of_a_file_is_within_it() {
        let part = |offset, length| {
            Terms { offset, length, ..Terms::default() }.sectors(10 * SECTOR + 1).ok()
        };
        assert_eq!(part(0, None), Some(10));
        assert_eq!(part(9 * SECTOR, None), Some(1));
        assert_eq!(part(10 * SECTOR, None), None);
        assert_eq!(part(11 * SECTOR, None), None);
        assert_eq!(part(2 * SECTOR, Some(8 * SECTOR)), Some(8));
        assert_eq!(part(2 * SECTOR, Some(9 * SECTOR)), None);
        assert_eq!(part(11 * SECTOR, Some(SECTOR)), None);
        assert_eq!(part(0, Some(0)), None);
        assert_eq!(part(i64::MAX as u64 - 511, Some(i64::MAX as u64 - 511)), None);
    }

    #[test]
    fn one_program_at_a_time_writes_a_part_of_a_file() {
        let path = std::env::temp_dir().join(format!("bhvirtio-lock-{}", std::process::id()));
        let open =
            || File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let [first, second] = [open().expect("a file"), open().expect("a file")];
        let take = |file: &File, kind, part| lock(file, kind, part, Duration::ZERO).is_ok();
        let (writes, reads, all) = (libc::F_WRLCK, libc::F_RDLCK, [0, 4096]);
        assert!(take(&first, reads, all) && take(&second, reads, all));
        assert!(!take(&first, writes, all));
        drop(second);
        assert!(take(&first, writes, all));
        let second = open().expect("a file");
        assert!(!take(&second, writes, all) && !take(&second, reads, [0, 0]));
        assert!(!take(&second, writes, [2048, 4096]) && take(&second, writes, [4096, 512]));
        drop(first);
        assert!(take(&second, writes, all));
        std::fs::remove_file(&path).expect("its file");
    }

    #[test]
    fn without_writes_nothing_is_flushed() {
        let read_only = features(&Terms { read_only: true, ..Terms::default() });
        assert_eq!(read_only & (feature::FLUSH | feature::DISCARD), 0);
        assert_eq!(read_only & feature::READ_ONLY, feature::READ_ONLY);
        assert_eq!(features(&Terms::default()) & (feature::READ_ONLY | feature::QUEUES), 0);
    }
}
