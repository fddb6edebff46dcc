//! Points of a plot: blocks of 16 KiB in 128 files, by 1 to 32 threads, past the client's page cache. It does what
//! `sysbench fileio` does between its beginning and its end; a run of that program would be mostly its start.

use bulkhead_linux::mark;
use bulkhead_linux::marker::{EVENT, id};
use bulkhead_linux::setup::Failure;
use nix::fcntl::OFlag;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

const FILES: usize = 128;
const BLOCK: usize = 16 << 10;
/// Blocks of a file.
const BLOCKS: usize = 8;
const THREADS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const MOST: usize = THREADS[THREADS.len() - 1];
/// In an event's value: the requests end; where the way of access is.
const ENDS: u64 = 1 << 63;
const WAY: u32 = 48;
/// Threads' buffers lie in one huge page, so that no run has other pages than the one before.
const HUGE: usize = 2 << 20;

/// A way of access, as sysbench names them.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    RandomRead = 1,
    RandomWrite,
    /// Three reads for two writes.
    RandomMixed,
    SequentialRead,
}

const WAYS: [Way; 4] = [Way::RandomRead, Way::RandomWrite, Way::RandomMixed, Way::SequentialRead];

/// Makes the files, and measures all points, of so many requests each.
pub fn points(folder: &str, count: usize) -> Result<(), Failure> {
    let files = files(Path::new(folder))?;
    let mut memory = vec![0x5A; 2 * HUGE];
    let start = memory.as_ptr().align_offset(HUGE);
    for way in WAYS {
        for threads in THREADS {
            let buffers = memory[start..start + HUGE].chunks_mut(HUGE / MOST);
            point(&files, way, threads, count / threads, buffers)?;
        }
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<File>, Failure> {
    std::fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "always")?;
    let block = vec![0xA5; BLOCK * BLOCKS];
    let one = |n| {
        let path = folder.join(format!("test_file.{n}"));
        let file = File::create(&path)?;
        file.write_all_at(&block, 0)?;
        file.sync_all()?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(OFlag::O_DIRECT.bits());
        Ok(options.open(path)?)
    };
    (0..FILES).map(one).collect()
}

/// All requests of a number of threads, between two events.
fn point<'a>(
    files: &[File],
    way: Way,
    threads: usize,
    each: usize,
    buffers: impl Iterator<Item = &'a mut [u8]>,
) -> Result<(), Failure> {
    let (together, next) = (Barrier::new(threads + 1), AtomicUsize::new(0));
    let value = (way as u64) << WAY | (threads as u64) << 32 | (each * threads) as u64;
    std::thread::scope(|scope| {
        let (together, next) = (&together, &next);
        let one = |(n, buffer): (usize, &'a mut [u8])| {
            let buffer = &mut buffer[..BLOCK];
            scope.spawn(move || {
                let mut place = Place { state: n + 1, next };
                // Each thread has been there once: its stack and its first request's pages are.
                let warm = request(files, way, 0, &mut place, buffer);
                together.wait();
                together.wait();
                let done = (0..each).try_for_each(|n| request(files, way, n, &mut place, buffer));
                together.wait();
                warm.and(done)
            })
        };
        let all: Vec<_> = buffers.take(threads).enumerate().map(one).collect();
        together.wait();
        mark::<{ EVENT | id::IO_REQUESTS }>(value);
        together.wait();
        together.wait();
        mark::<{ EVENT | id::IO_REQUESTS }>(ENDS | value);
        let panicked = |_| Failure::from("a thread panicked");
        all.into_iter().try_for_each(|one| Ok(one.join().map_err(panicked)??))
    })
}

/// Where a thread's requests go.
struct Place<'a> {
    state: usize,
    /// The next block of all threads together, where they go in sequence.
    next: &'a AtomicUsize,
}

impl Place<'_> {
    fn block(&mut self, way: Way) -> usize {
        if way == Way::SequentialRead {
            return self.next.fetch_add(1, Ordering::Relaxed) % (FILES * BLOCKS);
        }
        // Knuth's MMIX generator; its upper bits are the good ones.
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % (FILES * BLOCKS)
    }
}

/// A thread's `n`th request.
fn request(
    files: &[File],
    way: Way,
    n: usize,
    place: &mut Place<'_>,
    buffer: &mut [u8],
) -> std::io::Result<()> {
    let block = place.block(way);
    let (file, at) = (&files[block / BLOCKS], (block % BLOCKS * BLOCK) as u64);
    match way {
        Way::RandomWrite => file.write_all_at(buffer, at),
        Way::RandomMixed if n % 5 >= 3 => file.write_all_at(buffer, at),
        _ => file.read_exact_at(buffer, at),
    }
}
