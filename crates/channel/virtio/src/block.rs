//! Block devices (virtio 1.2, 5.2): their numbers, their configuration, and their requests as they lie in a chain of a
//! channel. The part that the device reads begins with a header, and the part that it writes ends with the status. The
//! data lies between.

use crate::queue::{Chain, Part};
use bulkhead_channel::{Bytes, Memory};

/// Kind of device.
pub const DEVICE: u32 = 2;
/// Bytes of a header: kind, reserved, sector (5.2.6).
pub const HEADER: usize = 16;
/// Bytes of the answer to [`Kind::Id`], the disk's name.
pub const ID: usize = 20;
/// Bytes of a sector, whatever the disk's own are.
pub const SECTOR: u64 = 512;
/// Bytes of a segment of a request, at most.
pub const SEGMENT: u32 = 4096;
/// Bytes of the description of a range (5.2.6.2).
pub const RANGE: usize = 16;

/// Status: it is done.
pub const OK: u8 = 0;
/// Status: it failed.
pub const FAILED: u8 = 1;
/// Status: the device has no such request.
pub const UNKNOWN: u8 = 2;

/// Features of a block device (virtio 1.2, 5.2.3).
pub mod feature {
    /// Its configuration says how long a segment is at most.
    pub const SIZE_MAX: u64 = 1 << 1;
    /// Its configuration says how many segments a request has at most.
    pub const SEG_MAX: u64 = 1 << 2;
    /// It cannot be written.
    pub const READ_ONLY: u64 = 1 << 5;
    /// Its configuration says the size of a block.
    pub const BLOCK_SIZE: u64 = 1 << 6;
    /// It has a cache, and a request that empties it.
    pub const FLUSH: u64 = 1 << 9;
    /// Its configuration says how many queues it has.
    pub const QUEUES: u64 = 1 << 12;
    /// It can be told what nobody needs any more.
    pub const DISCARD: u64 = 1 << 13;
    /// It can write zeros by itself.
    pub const WRITE_ZEROES: u64 = 1 << 14;
}

/// Place of a disk's name in the configuration, behind all that the standard defines. Drivers don't read it; a disk of
/// another name is another disk (`linux/module`).
const NAME: usize = 96;
/// Bytes of a configuration.
pub const CONFIG: usize = NAME + ID;

/// Configuration of a block device (virtio 1.2, 5.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its size in sectors.
    pub sectors: u64,
    /// Bytes of a request, at most.
    pub most: u32,
    /// Bytes of a block.
    pub block: u32,
    /// Number of queues.
    pub queues: u16,
    /// Ranges of a request that discards or writes zeros, at most.
    pub ranges: u32,
    /// Sectors of a range that is discarded, at most.
    pub discard: u32,
    /// Sectors of a range that becomes zeros, at most.
    pub zero: u32,
    /// Its name.
    pub name: [u8; ID],
}

/// Sectors of a range, where a disk has no bound of its own.
pub const RANGE_SECTORS: u32 = u32::MAX / SECTOR as u32;

impl Config {
    /// The bytes that a driver sees.
    #[must_use]
    pub fn bytes(&self) -> [u8; CONFIG] {
        let mut config = [0; CONFIG];
        let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.sectors.to_le_bytes());
        put(8, &SEGMENT.to_le_bytes());
        put(12, &(self.most / SEGMENT).to_le_bytes());
        put(20, &self.block.to_le_bytes());
        put(34, &self.queues.to_le_bytes());
        // Sectors, then ranges, then the unit; and for zeros sectors, ranges, whether they may be discarded.
        put(36, &self.discard.to_le_bytes());
        put(40, &self.ranges.to_le_bytes());
        put(44, &(self.block / SECTOR as u32).to_le_bytes());
        put(48, &self.zero.to_le_bytes());
        put(52, &self.ranges.to_le_bytes());
        put(56, &[1]);
        put(NAME, &self.name);
        config
    }

    /// Makes sense of the bytes. Each is a claim, and without its feature it means nothing.
    #[must_use]
    pub fn of(config: &[u8; CONFIG]) -> Self {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| config[at + n]));
        let mut name = [0; ID];
        name.copy_from_slice(&config[NAME..]);
        Self {
            sectors: u64::from(word(0)) | u64::from(word(4)) << 32,
            // Bytes of a segment, and segments.
            most: word(8).saturating_mul(word(12)),
            block: word(20),
            queues: u16::from_le_bytes([config[34], config[35]]),
            discard: word(36),
            ranges: word(40),
            zero: word(48),
            name,
        }
    }
}

/// Makes a name: its first bytes.
#[must_use]
pub fn name(text: &str) -> [u8; ID] {
    let mut name = [0; ID];
    name.iter_mut().zip(text.bytes()).for_each(|(to, byte)| *to = byte);
    name
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data from the disk.
    Read,
    /// Data to the disk.
    Write,
    /// Writes become durable.
    Flush,
    /// The disk's name.
    Id,
    /// The content of some ranges is not needed any more.
    Discard,
    /// Some ranges become zeros.
    Zero,
    /// Any other.
    Other,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Kind of it.
    pub kind: Kind,
    /// First sector, as the client says it.
    pub sector: u64,
    /// Part of the client's section with data for the device.
    pub out: Part,
    /// Part of the device's section with room for data.
    pub room: Part,
    /// Offset of the status in the device's section.
    pub status: usize,
}

impl Asked {
    /// Makes sense of a chain, with the header that was read from it; `None` if there is no room for a header or a
    /// status.
    #[must_use]
    pub fn of(chain: &Chain, header: [u8; HEADER]) -> Option<Self> {
        let (reads, writes) = (chain.reads, chain.writes);
        let out = Part { at: reads.at + HEADER, len: reads.len.checked_sub(HEADER)? };
        let room = Part { at: writes.at, len: writes.len.checked_sub(1)? };
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| header[at + n]));
        let kind = match word(0) {
            0 => Kind::Read,
            1 => Kind::Write,
            4 => Kind::Flush,
            8 => Kind::Id,
            11 => Kind::Discard,
            13 => Kind::Zero,
            _ => Kind::Other,
        };
        let sector = u64::from(word(8)) | u64::from(word(12)) << 32;
        Some(Self { kind, sector, out, room, status: room.at + room.len })
    }
}

/// Tells if data of `len` bytes from a sector on is within a disk of so many sectors, in whole blocks of `block` bytes.
#[must_use]
pub fn fits(sector: u64, len: u64, sectors: u64, block: u32) -> bool {
    let (block, end) = (u64::from(block), sector.checked_add(len / SECTOR));
    // Then its offset in bytes is no more than the disk's size.
    end.is_some_and(|end| end <= sectors)
        && len > 0
        && block > 0
        && len.is_multiple_of(block)
        && sector.is_multiple_of((block / SECTOR).max(1))
}

/// A range of a request that discards or writes zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First sector, as the client says it.
    pub sector: u64,
    /// Bytes.
    pub len: u64,
    /// Zeros may be discarded.
    pub unmap: bool,
}

impl Range {
    /// Makes sense of a description; `None` if it has flags that its kind does not have.
    #[must_use]
    pub fn of(kind: Kind, description: [u8; RANGE]) -> Option<Self> {
        const UNMAP: u32 = 1;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| description[at + n]));
        let sector = u64::from(word(0)) | u64::from(word(4)) << 32;
        let (len, flags) = (u64::from(word(8)) * SECTOR, word(12));
        let known = if kind == Kind::Zero { UNMAP } else { 0 };
        (flags & !known == 0).then_some(Self { sector, len, unmap: flags & UNMAP != 0 })
    }
}

/// Reads bytes of a section, from any offset on.
pub fn read<M: Memory>(section: &M, at: usize, to: &mut [u8]) -> bool {
    let before = at % 8;
    let bytes = section.bytes(at - before, before + to.len());
    bytes.is_some_and(|bytes| bytes.read(before, to))
}

/// Writes bytes of a section, from any offset on.
pub fn write<M: Memory>(section: &M, at: usize, from: &[u8]) -> bool {
    let before = at % 8;
    let bytes = section.bytes(at - before, before + from.len());
    bytes.is_some_and(|bytes| bytes.write(before, from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_channel::host::Region;

    #[test]
    fn data_is_within_the_disk_in_whole_blocks() {
        let edges = [0, 1, 7, 8, 9, 63, 64, 65, u64::MAX / 512, u64::MAX - 1, u64::MAX];
        for block in [512u32, 4096] {
            for sector in edges {
                for len in [0, 1, 511, 512, 4096, 8 * 4096, 9 * 4096, 64 * 512, u64::MAX] {
                    let (first, wide) = (u128::from(sector) * 512, u128::from(len));
                    let block_bytes = u128::from(block);
                    let expected = len > 0
                        && first + wide <= 64 * 512
                        && first.is_multiple_of(block_bytes)
                        && wide.is_multiple_of(block_bytes);
                    assert_eq!(fits(sector, len, 64, block), expected, "{sector} {len} {block}");
                }
            }
        }
        assert!(!fits(0, 512, 64, 0));
    }

    #[test]
    fn ranges_have_the_flags_of_their_kind() {
        let range = |flags: u32| {
            let mut bytes = [0; RANGE];
            bytes[..8].copy_from_slice(&(1u64 << 40).to_le_bytes());
            bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
            bytes[12..].copy_from_slice(&flags.to_le_bytes());
            bytes
        };
        let plain = Range { sector: 1 << 40, len: 512 * u64::from(u32::MAX), unmap: false };
        assert_eq!(Range::of(Kind::Discard, range(0)), Some(plain));
        assert_eq!(Range::of(Kind::Discard, range(1)), None);
        assert_eq!(Range::of(Kind::Zero, range(1)), Some(Range { unmap: true, ..plain }));
        assert_eq!(Range::of(Kind::Zero, range(2)), None);
    }

    #[test]
    fn bytes_are_read_and_written_from_any_offset() {
        let region = Region::new(64);
        for at in 0..16 {
            assert!(write(&region, at, &[1, 2, 3]));
            let mut back = [0; 3];
            assert!(read(&region, at, &mut back));
            assert_eq!(back, [1, 2, 3]);
        }
        assert!(!write(&region, 62, &[1, 2, 3]) && !read(&region, 62, &mut [0; 3]));
    }
}
