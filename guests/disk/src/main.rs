//! Drives an NVMe controller, a virtio block device or the first port of an AHCI controller of its own with the drivers
//! of `bulkhead-disks`. It writes pages, reads them back, compares, and is asleep until the device's message comes.
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
mod function;

use arena::{Arena, PAGE};
use bulkhead_disks::{Ahci, Nvme, VirtioBlk, Wrong, ahci, nvme, virtio_blk};
use bulkhead_sdk::{Context, apic, hypercall, interrupt, paging, pci, println, time};
use bulkhead_store::disk::{Disk, Failed, Info, Operation, Request};
use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use function::{Space, Time};

bulkhead_sdk::entry!(guest);

/// Vector of the disk's interrupt.
const VECTOR: u8 = 0x60;
/// Nanoseconds that requests may take.
const PATIENCE: u64 = 5_000_000_000;
/// Pages that are on their way at once.
const BURST: usize = 8;

static STRAY: AtomicU64 = AtomicU64::new(0);
static INTERRUPTS: AtomicU32 = AtomicU32::new(0);

fn stray(frame: &mut interrupt::Frame, _: u64) {
    STRAY.store(frame.vector, Ordering::Relaxed);
}

fn on_interrupt(_: &mut interrupt::Frame, _: u64) {
    INTERRUPTS.fetch_add(1, Ordering::Relaxed);
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
    interrupt::set(VECTOR, stray);
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

/// Reason why it does not work.
enum Trouble {
    Wrong(Wrong),
    /// It has no MSI-X, or an AHCI controller no MSI.
    Messages,
    /// Requests are not done in time.
    Silent,
    /// A request failed.
    Failed,
}

impl From<Wrong> for Trouble {
    fn from(wrong: Wrong) -> Self {
        Self::Wrong(wrong)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(wrong) => wrong.fmt(f),
            Self::Messages => f.write_str("no messages"),
            Self::Silent => f.write_str("no answer came"),
            Self::Failed => f.write_str("a request failed"),
        }
    }
}

/// Gives requests to the disk without waiting for the results. It has room for some dozens.
fn begin(disk: &mut dyn Disk, requests: &[Request]) -> Result<(), Trouble> {
    for request in requests {
        disk.submit(request).map_err(|_| Trouble::Failed)?;
    }
    disk.ring();
    Ok(())
}

/// Carries out reads and writes, all at once, asleep until they are done.
fn io(disk: &mut dyn Disk, requests: &[Request]) -> Result<(), Trouble> {
    begin(disk, requests)?;
    let mut left = requests.len();
    let due = time::counter() + time::ticks(PATIENCE);
    loop {
        interrupt::disable();
        while let Some((_, result)) = disk.completed() {
            result.map_err(|Failed| Trouble::Failed)?;
            left = left.saturating_sub(1);
        }
        if left == 0 {
            return Ok(());
        }
        if time::counter() > due {
            return Err(Trouble::Silent);
        }
        time::arm(due);
        interrupt::wait();
    }
}

/// A burst: the pages from `first` on, which a round puts elsewhere on the disk.
fn burst(sectors: u64, operation: Operation, first: usize, round: u64) -> [Request; BURST] {
    const SECTORS: u64 = PAGE as u64 / 512;
    let places = (sectors / SECTORS).max(1);
    core::array::from_fn(|n| {
        let place = (round * 97 + n as u64 * 13) % places;
        let address = Arena::data_address(first + n);
        Request { tag: n as u16, operation, sector: place * SECTORS, address, len: PAGE as u32 }
    })
}

/// Writes and reads back in rounds. Returns words that differ.
fn work(disk: &mut dyn Disk, rounds: u64) -> Result<usize, Trouble> {
    let sectors = disk.info().sectors;
    let words = || 0..BURST * Arena::PAGE_WORDS;
    let mut different = 0;
    for round in 0..rounds {
        words().for_each(|at| Arena::set(Arena::data(0) + at, pattern(round, at)));
        io(disk, &burst(sectors, Operation::Write, 0, round))?;
        io(disk, &burst(sectors, Operation::Read, BURST, round))?;
        different +=
            words().filter(|&at| Arena::get(Arena::data(BURST) + at) != pattern(round, at)).count();
    }
    Ok(different)
}

/// Lives so many rounds; each life but the last ends in the middle of its reads and writes.
fn live(disk: &mut dyn Disk, context: &Context) -> Result<u32, Trouble> {
    let Info { sectors, block, .. } = *disk.info();
    println!("disk: {} blocks of {block} bytes", sectors * 512 / u64::from(block));
    let rounds = context.arg_u64("rounds").unwrap_or(16);
    hypercall::ready();
    let different = work(disk, rounds)?;
    if different != 0 {
        println!("disk: {different} words differ");
        return Ok(3);
    }
    if context.incarnation() + 1 < context.arg_u64("lives").unwrap_or(1) {
        // Each word that is read there is seen to arrive.
        let words = BURST * Arena::PAGE_WORDS;
        (0..words).for_each(|at| Arena::set(Arena::data(2 * BURST) + at, pattern(u64::MAX, at)));
        begin(disk, &burst(sectors, Operation::Read, 2 * BURST, 0)[..7])?;
        begin(disk, &burst(sectors, Operation::Write, 0, 1))?;
        time::sleep(context.arg_u64("linger").unwrap_or(0) * 1_000_000);
        hypercall::restart();
    }
    let interrupts = INTERRUPTS.load(Ordering::Relaxed);
    println!("disk: {rounds} rounds, interrupts: {interrupts}");
    Ok(0)
}

/// Switches the disk on, and works with it.
fn drive(function: pci::Function, context: &Context) -> Result<u32, Trouble> {
    let messages = |entry| {
        let there = function.msix(entry, apic::id(), VECTOR, on_interrupt);
        if there { Ok(entry) } else { Err(Trouble::Messages) }
    };
    let bar = |number| function::bar(function, number);
    if function.read(pci::register::CLASS) >> 8 == ahci::CLASS {
        let registers = bar(ahci::BAR).ok_or(Wrong::Lacks("registers"))?;
        if !function.msi(apic::id(), VECTOR, on_interrupt) {
            return Err(Trouble::Messages);
        }
        return live(&mut Ahci::new(registers, Arena, Time, 0)?, context);
    }
    if virtio() == Some(function) {
        let mut disk = VirtioBlk::new(&Space(function), bar, Arena, Time, messages(0)?)?;
        return live(&mut disk, context);
    }
    // Entry 0 is the admin queue's, which its driver looks at without interrupts.
    let registers = bar(0).ok_or(Wrong::Lacks("registers"))?;
    live(&mut Nvme::new(registers, Arena, Time, messages(1)?)?, context)
}

fn virtio() -> Option<pci::Function> {
    pci::find(virtio_blk::ID as u16, (virtio_blk::ID >> 16) as u16)
}

fn guest(context: Context) -> u32 {
    // Its registers lie above 4 GiB.
    paging::map_everything();
    let ahci = || pci::find_class(ahci::CLASS);
    let Some(function) = pci::find_class(nvme::CLASS).or_else(virtio).or_else(ahci) else {
        println!("disk: no disk");
        return 2;
    };
    if !untouched(function, context.arg_u64("watch").unwrap_or(20)) {
        return 1;
    }
    drive(function, &context).unwrap_or_else(|trouble| {
        println!("disk: {trouble}");
        2
    })
}
