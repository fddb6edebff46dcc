//! Requests of a virtio block device (virtio 1.2, 5.2.6), as they lie in a chain of a channel. The part that the device
//! reads begins with a header, and the part that it writes ends with the status. The data lies between.

use bulkhead_virtio::{Chain, Part};

/// Bytes of a header.
pub const HEADER: usize = 16;
/// Bytes of the answer to [`Kind::Id`].
pub const ID: usize = 20;
/// Bytes of a sector.
pub const SECTOR: u64 = 512;

/// Status: it is done.
pub const OK: u8 = 0;
/// Status: it failed.
pub const FAILED: u8 = 1;
/// Status: the device has no such request.
pub const UNKNOWN: u8 = 2;

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
            _ => Kind::Other,
        };
        let sector = u64::from(word(8)) | u64::from(word(12)) << 32;
        Some(Self { kind, sector, out, room, status: room.at + room.len })
    }
}
