//! The buffers of a card in its driver's memory, behind the queues.

use bulkhead_device::Memory;

/// Places for frames to send: two descriptors each.
pub const PLACES: usize = 128;
/// Buffers to receive into.
pub const BUFFERS: usize = 256;
/// Bytes of the longest frame: an Ethernet header, a tag and the 1,500 bytes of a packet, rounded up.
pub const LONGEST: usize = 1536;
/// Bytes in front of a frame that was received: as many as a virtio packet's header has (virtio 1.2, 5.1.6).
pub const HEADER: usize = 12;

/// Bytes of a buffer: a power of two that no frame exceeds, as e1000e's registers say it.
pub const SIZE: usize = 2048;
/// Bytes of the queues, at most.
pub const QUEUES: usize = 6 * 4096;
/// Bytes of memory for a card.
pub const MEMORY: usize = QUEUES + SIZE * (PLACES + BUFFERS);

/// Offset of a frame to send in its place: the header ends there, so frames begin at a multiple of eight.
const FRAME: usize = 16;
/// Bytes of an Ethernet header, which no one else may change after it was looked at.
const ETHERNET: usize = 14;

/// Offset of a buffer to receive into.
pub const fn buffer(number: u16) -> usize {
    QUEUES + SIZE * (PLACES + number as usize % BUFFERS)
}

/// A part of a frame: bus address and bytes.
pub type Part = (u64, u32);

/// Writes `head` into a place, and returns the frame's two parts, the first with `before` bytes of zeros in front of
/// it. `None`: no such frame can be sent.
pub fn fill(
    memory: &impl Memory,
    place: usize,
    before: usize,
    head: &[u8],
    rest: Option<Part>,
) -> Option<[Part; 2]> {
    let more = rest.map_or(0, |(_, len)| len as usize);
    let whole = head.len() <= LONGEST && more <= LONGEST && head.len() + more <= LONGEST;
    // Each part has a byte at least.
    let parts =
        head.len() >= ETHERNET && (rest.is_none() || more > 0) && head.len() + more > ETHERNET;
    if !whole || !parts || before > FRAME {
        return None;
    }
    let at = QUEUES + SIZE * (place % PLACES);
    memory.set(at, 0);
    memory.set(at + 8, 0);
    for (n, some) in head.chunks(8).enumerate() {
        let mut word = [0; 8];
        word[..some.len()].copy_from_slice(some);
        memory.set(at + FRAME + 8 * n, u64::from_le_bytes(word));
    }
    let bus = memory.address() + at as u64;
    let first = |len: usize| (bus + (FRAME - before) as u64, (before + len) as u32);
    Some(match rest {
        Some(rest) => [first(head.len()), rest],
        None => {
            let behind = bus + (FRAME + ETHERNET) as u64;
            [first(ETHERNET), (behind, (head.len() - ETHERNET) as u32)]
        }
    })
}
