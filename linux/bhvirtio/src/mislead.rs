//! A disk that lies, for tests. Descriptions cannot be. Answers are short, come twice or not at all, or name a request
//! that was not made. A status has any value, or is not written. And a user of such disks, whatever comes of that.

use crate::lie::Chance;
use crate::side::Side;
use bulkhead_channel::{Memory, Word};
use bulkhead_virtio::block::*;
use bulkhead_virtio::layout::{QUEUES, used};
use bulkhead_virtio::{Chain, Offer};
use nix::fcntl::OFlag;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::thread;
use std::time::{Duration, Instant};

/// The driver's Linux has to boot.
const LIMIT: Duration = Duration::from_secs(120);
/// A life, at most, and at least half of that.
const LIFE: usize = 100_000;
const SECTORS: u64 = 4096;
/// Content that no driver may take for an answer.
const STALE: u8 = 0x5A;
const BORDERS: [u32; 14] =
    [0, 1, 3, 100, 511, 512, 513, 4095, 4096, 8192, 0xFFFF, 0x80_0000, 0x8000_0000, u32::MAX];

/// Lies for so many milliseconds, from the first request on.
pub fn run(channel: &str, millis: &str) -> io::Result<()> {
    let millis = millis.parse().map_err(|_| io::Error::other("so many milliseconds?"))?;
    let mut liar = Liar { chance: Chance::new(), lies: 0, requests: 0 };
    let (mut end, mut lives) = (Instant::now() + LIMIT, 0u32);
    while Instant::now() < end {
        lives += 1;
        let before = liar.requests;
        liar.live(channel, lives)?;
        if before == 0 && liar.requests > 0 {
            end = Instant::now() + Duration::from_millis(millis);
        }
    }
    println!(
        "bhvirtio: {} requests, {} answers that lie, in {lives} lives",
        liar.requests, liar.lies
    );
    Ok(())
}

struct Liar {
    chance: Chance,
    lies: u64,
    requests: u64,
}

impl Liar {
    fn live(&mut self, channel: &str, life: u32) -> io::Result<()> {
        let honest = Config {
            sectors: SECTORS,
            most: 64 << 10,
            block: 512,
            queues: QUEUES as u16,
            ranges: 8,
            discard: RANGE_SECTORS,
            zero: RANGE_SECTORS,
            name: name("liar"),
        };
        let mut config = honest.bytes();
        let mut features = feature::SIZE_MAX
            | feature::SEG_MAX
            | feature::BLOCK_SIZE
            | feature::FLUSH
            | feature::QUEUES
            | feature::DISCARD
            | feature::WRITE_ZEROES;
        let mut sizes: &[u16] = &[256; QUEUES];
        // Every fourth life describes another disk, most of which cannot be.
        if life % 4 == 3 {
            for _ in 0..=self.chance.below(2) {
                let at = self.chance.of(&[0, 4, 8, 12, 20, 32, 36, 40, 44, 48, 52, 56, 96]);
                config[at..at + 4].copy_from_slice(&self.chance.of(&BORDERS).to_le_bytes());
            }
            if self.chance.below(4) == 0 {
                features ^= 1 << self.chance.below(24);
            }
            sizes = self.chance.of(&[&[256], &[2], &[4], &[16, 16], &[256, 256, 256, 4]]);
        }
        let offer = Offer { device: DEVICE, features, config: &config, queues: sizes };
        let mut side = Side::open(channel, &offer)?;
        let end =
            Instant::now() + Duration::from_micros((LIFE / 2 + self.chance.below(LIFE / 2)) as u64);
        while Instant::now() < end {
            side.attend();
            let worked = self.round(&mut side);
            side.rest(worked, None, Some(Duration::from_millis(5)))?;
        }
        // Or it is killed.
        if self.chance.below(2) == 0 {
            side.close();
        }
        Ok(())
    }

    fn round(&mut self, side: &mut Side) -> bool {
        let mut chains = Vec::new();
        for number in 0..QUEUES {
            while let Some(Ok(Some(chain))) = side.device.queue(number).map(|queue| queue.take()) {
                chains.push((number, chain));
            }
        }
        self.requests += chains.len() as u64;
        if self.chance.below(4) == 0 {
            chains.reverse();
        }
        for (number, chain) in &chains {
            // Now and then another queue's.
            let lost = self.chance.below(64) == 0;
            let number = if lost { self.chance.below(QUEUES) } else { *number };
            self.answer(side, number, chain);
        }
        !chains.is_empty()
    }

    fn answer(&mut self, side: &mut Side, number: usize, chain: &Chain) {
        let len = chain.writes.len;
        let last = chain.writes.at + len.saturating_sub(1);
        let how = self.chance.below(24);
        self.lies += u64::from(how < 12);
        let status = match how {
            0..3 => self.chance.of(&[1, 2, 3, 4, 0x7F, 0x80, 0xFF]),
            _ => OK,
        };
        // In some cases it is an older request's.
        if !(3..5).contains(&how) {
            write(&side.mine, last, &[status]);
        }
        let written = match how {
            4..8 => self.chance.below(len + 1),
            _ => len,
        };
        let times = match how {
            8 => 0,
            9 => 2,
            _ => 1,
        };
        // All that is read is zeros, also from the honest disk afterwards. An answer that is short hides other bytes.
        let content = if written == len { 0 } else { STALE };
        write(&side.mine, chain.writes.at, &vec![content; len.saturating_sub(1)]);
        if let Some(queue) = side.device.queue(number) {
            (0..times).for_each(|_| queue.used(chain, written));
            queue.tell();
        }
        // Anything in the ring: who, how much, how many.
        if how == 10 || how == 11 {
            let slot = self.chance.below(16);
            let value =
                self.chance.of(&[0, 1, 255, 256, 0xFFFF, u64::MAX, 1 << 32, 5 << 16 | 3 << 32]);
            if let Some(word) = side.mine.word(used(number) + 8 * slot) {
                word.release(value);
            }
        }
    }
}

/// Reads and writes whatever disks there are, for so many milliseconds.
pub fn poke(millis: &str) -> io::Result<()> {
    let millis = millis.parse().map_err(|_| io::Error::other("so many milliseconds?"))?;
    let end = Instant::now() + Duration::from_millis(millis);
    let threads: Vec<_> = [OFlag::O_DIRECT.bits(), 0, 0]
        .map(|flags| thread::spawn(move || poke_all(flags, end)))
        .into_iter()
        .collect();
    let mut all = [0u64; 3];
    for worker in threads {
        let counts = worker.join().map_err(|_| io::Error::other("a thread panicked"))?;
        all.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
    }
    let [well, failed, stale] = all;
    println!("bhvirtio: poked: {well} went well, {failed} did not, {stale} reads were stale");
    if stale == 0 { Ok(()) } else { Err(io::Error::other("stale reads")) }
}

/// Returns how many requests went well, how many did not, and how many reads were no zeros.
fn poke_all(flags: i32, end: Instant) -> [u64; 3] {
    let mut chance = Chance::new();
    let mut counts = [0; 3];
    let memory = &mut vec![0; 128 << 10];
    let start = memory.as_ptr().align_offset(4096);
    while Instant::now() < end {
        let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let disks = disks.map(|entry| entry.file_name().to_string_lossy().into_owned());
        for disk in
            disks.filter(|name| ["vd", "nbd", "ublkb"].iter().any(|kind| name.starts_with(kind)))
        {
            let path = format!("/dev/{disk}");
            let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
            let Ok(file) = file else { continue };
            for _ in 0..8 {
                let len = 512 * (1 + chance.below(128));
                let at = 512 * chance.below(SECTORS as usize) as u64;
                let bytes = &mut memory[start..start + len];
                let done = match chance.below(3) {
                    0 => {
                        bytes.fill(0);
                        file.read_exact_at(bytes, at)
                    }
                    1 => {
                        bytes.fill(0);
                        file.write_all_at(bytes, at)
                    }
                    _ => file.sync_data(),
                };
                counts[usize::from(done.is_err())] += 1;
                counts[2] += u64::from(done.is_ok() && bytes.contains(&STALE));
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    counts
}
