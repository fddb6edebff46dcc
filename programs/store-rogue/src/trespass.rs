//! A disk that is told to write to memory that it must not reach.

use bulkhead_program::channel::{Bytes, Memory};
use bulkhead_program::typed::Mapping;
use bulkhead_program::{Program, now, println};
use bulkhead_store::disk::{Disk, Operation, Request};
use bulkhead_virtio::layout::POOL;
use store_programs::disk::AnyDisk;
use store_programs::serve::Channel;

/// Lets the disk write to the client's section, to both headers, to the kernel. No memory that the program sees there
/// may have the disk's first words afterwards. A write to its own section comes first, and shows that the disk writes.
pub fn run(program: Program, disk: &mut AnyDisk, channel: &Channel) {
    const KERNEL: u64 = 2 << 20;
    /// Nanoseconds in which a write that is not refused would be done.
    const LONG: u64 = 100_000_000;
    let (bus, len) = (channel.bus, channel.len as u64);
    let mut write = |address: u64| {
        let request = Request { tag: 0, operation: Operation::Read, sector: 0, address, len: 512 };
        disk.submit(&request).expect("room for a request");
        disk.ring();
        let due = now() + LONG;
        while disk.completed().is_none() {
            if now() > due {
                // A device that was refused memory may do nothing until its reset.
                return disk.reset().expect("a reset");
            }
        }
    };
    let words = |section: &Mapping<'static>, at: usize| {
        let bytes = section.bytes(at, 512);
        bytes.map_or([0; 64], |bytes| core::array::from_fn(|n| bytes.word(8 * n)))
    };
    let (mine, theirs) = (&channel.mine, &channel.theirs);
    write(bus + len + POOL as u64);
    let disks = words(mine, POOL);
    assert!(
        !disks.contains(&0),
        "the disk does not write to its own section, or begins with zeros"
    );
    let mut reached = 0;
    for (address, section, at) in [
        (bus + POOL as u64, theirs, POOL),
        (bus + POOL as u64 - 512, theirs, POOL - 512),
        (bus, theirs, 0),
        (bus + len, mine, 0),
        (KERNEL, theirs, POOL),
    ] {
        write(address);
        let there = words(section, at);
        reached += there.iter().zip(&disks).filter(|(now, disk)| now == disk).count();
    }
    let how = if reached == 0 { "none" } else { "not none" };
    println!("{}: tried 5 places that are not the disk's, reached {how}", program.name());
    disk.reset().expect("a reset");
}
