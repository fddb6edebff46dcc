//! Drives an NVMe controller or a virtio block device of its own: writes pages, reads
//! them back, compares, asleep until the device's MSI-X interrupt comes.
//!
//! Arguments:
//!
//! * `rounds=N` of eight pages (default 16);
//! * `lives=N` lives, of which each but the last ends in the middle of its reads and writes, `linger=MILLISECONDS`
//!   after it has begun them (default 0);
//! * `watch=MILLISECONDS`: how long a life looks for a former one that goes on in it (default 20).
//!
//! Exit code 1: a former life wrote something into this one or interrupted it. 2: the device does not work. 3: the
//! bytes read are not the written ones.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod arena;
mod nvme;
mod virtio;

use arena::{Arena, PAGE, Request, VECTORS, Wrong};
use bulkhead_sdk::{Context, hypercall, interrupt, paging, pci, println, time};
use core::sync::atomic::{AtomicU64, Ordering};

bulkhead_sdk::entry!(guest);

/// NVMe's class, subclass and interface.
const CLASS: u32 = 0x01_08_02;
/// Pages that are on their way at once.
const BURST: usize = 8;

static STRAY: AtomicU64 = AtomicU64::new(0);

fn stray(frame: &mut interrupt::Frame, _: u64) {
    STRAY.store(frame.vector, Ordering::Relaxed);
}

/// Content of a word of the disk in a round.
fn pattern(round: u64, at: usize) -> u64 {
    (round << 32 | at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Checks that nothing that a former life began comes to this one. The memory that devices were told of is as at the
/// launch, and no interrupt comes. No word of it changes, although the function may access memory again.
fn untouched(function: pci::Function, milliseconds: u64) -> bool {
    if let Some(at) = (0..Arena::WORDS).find(|&at| Arena::get(at) != 0) {
        println!("disk: word {at} is {:#x} from the start", Arena::get(at));
        return false;
    }
    let canary = |at: usize| pattern(u64::MAX, at);
    VECTORS.iter().for_each(|&vector| interrupt::set(vector, stray));
    (0..Arena::WORDS).for_each(|at| Arena::set(at, canary(at)));
    function.enable();
    for _ in 0..milliseconds {
        interrupt::enable();
        time::sleep(1_000_000);
        if let Some(at) = (0..Arena::WORDS).find(|&at| Arena::get(at) != canary(at)) {
            println!("disk: word {at} is changed to {:#x}", Arena::get(at));
            return false;
        }
    }
    let vector = STRAY.load(Ordering::Relaxed);
    if vector != 0 {
        println!("disk: stray interrupt {vector:#x}");
    }
    (0..Arena::WORDS).for_each(|at| Arena::set(at, 0));
    vector == 0
}

/// A disk of either kind, switched on.
enum Disk {
    Nvme(nvme::Controller),
    Virtio(virtio::Device),
}

impl Disk {
    fn new(function: pci::Function) -> Result<Self, Wrong> {
        let virtio = pci::find(virtio::ID.0, virtio::ID.1) == Some(function);
        Ok(match virtio {
            true => Self::Virtio(virtio::Device::new(function)?),
            false => Self::Nvme(nvme::Controller::new(function)?),
        })
    }

    /// Blocks, and bytes of each.
    fn size(&self) -> (u64, u64) {
        match self {
            Self::Nvme(disk) => (disk.blocks, disk.block),
            Self::Virtio(disk) => (disk.blocks, virtio::Device::BLOCK),
        }
    }

    fn io(&mut self, requests: &[Request]) -> Result<(), Wrong> {
        match self {
            Self::Nvme(disk) => disk.io(requests),
            Self::Virtio(disk) => disk.io(requests),
        }
    }

    fn begin(&mut self, requests: &[Request]) {
        match self {
            Self::Nvme(disk) => disk.begin(requests),
            Self::Virtio(disk) => disk.begin(requests),
        }
    }

    /// How often it interrupted, by vector.
    fn interrupts(&self) -> [u32; 2] {
        match self {
            Self::Nvme(_) => nvme::interrupts(),
            Self::Virtio(_) => [0, virtio::interrupts()],
        }
    }

    /// A burst: the pages from `first` on, which a round puts elsewhere on the disk.
    fn burst(&self, write: bool, first: usize, round: u64) -> [Request; BURST] {
        let (blocks, block) = self.size();
        let places = blocks * block / PAGE as u64;
        core::array::from_fn(|n| {
            let place = (round * 97 + n as u64 * 13) % places;
            Request { write, page: first + n, place }
        })
    }
}

/// Writes and reads back in rounds. Returns words that differ.
fn work(disk: &mut Disk, rounds: u64) -> Result<usize, Wrong> {
    let words = || 0..BURST * Arena::PAGE_WORDS;
    let mut different = 0;
    for round in 0..rounds {
        words().for_each(|at| Arena::set(Arena::data(0) + at, pattern(round, at)));
        disk.io(&disk.burst(true, 0, round))?;
        disk.io(&disk.burst(false, BURST, round))?;
        different +=
            words().filter(|&at| Arena::get(Arena::data(BURST) + at) != pattern(round, at)).count();
    }
    Ok(different)
}

fn guest(context: Context) -> u32 {
    // Its registers lie above 4 GiB.
    paging::map_everything();
    let virtio = || pci::find(virtio::ID.0, virtio::ID.1);
    let Some(function) = pci::find_class(CLASS).or_else(virtio) else {
        println!("disk: no disk");
        return 2;
    };
    if !untouched(function, context.arg_u64("watch").unwrap_or(20)) {
        return 1;
    }
    let mut disk = match Disk::new(function) {
        Ok(disk) => disk,
        Err(wrong) => {
            println!("disk: {wrong}");
            return 2;
        }
    };
    let (blocks, block) = disk.size();
    println!("disk: {blocks} blocks of {block} bytes");
    let rounds = context.arg_u64("rounds").unwrap_or(16);
    hypercall::ready();
    let different = match work(&mut disk, rounds) {
        Ok(different) => different,
        Err(wrong) => {
            println!("disk: {wrong}");
            return 2;
        }
    };
    if different != 0 {
        println!("disk: {different} words differ");
        return 3;
    }
    if context.incarnation() + 1 < context.arg_u64("lives").unwrap_or(1) {
        // Each word that is read there is seen to arrive.
        let words = BURST * Arena::PAGE_WORDS;
        (0..words).for_each(|at| Arena::set(Arena::data(2 * BURST) + at, pattern(u64::MAX, at)));
        disk.begin(&disk.burst(false, 2 * BURST, 0)[..7]);
        disk.begin(&disk.burst(true, 0, 1));
        time::sleep(context.arg_u64("linger").unwrap_or(0) * 1_000_000);
        hypercall::restart();
    }
    let [admin, io] = disk.interrupts();
    println!("disk: {rounds} rounds, interrupts: {admin} for the admin queue, {io} for the other");
    0
}
