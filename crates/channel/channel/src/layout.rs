//! Layout of the two regions: its one definition.
//!
//! Both regions begin with one kind of header, and `tx` has the messages behind it:
//!
//! | offset | word | written |
//! |---|---|---|
//! | 0 | identity: `MAGIC`, `VERSION`, kind | when the end opens |
//! | 8 | geometry: number and size | when the end opens |
//! | 128 | hello: phase, epoch, the peer's epoch as seen | when a session begins or ends |
//! | 256 | index: epoch and position (mailbox: pair and slots) | with every message |
//! | 384 | armed: epoch and count, odd while armed (receiver only) | before a sleep |
//! | 512 | messages (`tx` only) | |
//!
//! Words that are written at different times lie [`LINE`] apart.

/// Bytes between words of the header: two cache lines, since processors fetch pairs.
pub const LINE: usize = 128;
/// Identity of an end: [`Shape::identity`].
pub const IDENTITY: usize = 0;
/// Its size: [`Shape::geometry`].
pub const GEOMETRY: usize = 8;
/// [`crate::page::Hello`].
pub const HELLO: usize = LINE;
/// Positions.
pub const INDEX: usize = 2 * LINE;
/// The receiver's readiness to be woken.
pub const ARMED: usize = 3 * LINE;
/// Messages, and the length of a region without.
pub const DATA: usize = 4 * LINE;

/// `BHCH`, little-endian.
pub const MAGIC: u32 = 0x4843_4842;
/// Version of this layout and protocol.
pub const VERSION: u8 = 1;

/// First index of each session: just below the wrap, so that every session crosses it, not only one that has run for
/// months. A multiple of eight.
pub const FIRST: u32 = 0u32.wrapping_sub(256);

/// Most units (slots, or bytes of records) of a ring: half of an index's range.
pub const MAX_UNITS: u32 = 1 << 31;

/// Least section of a virtio device: rings, and room for a packet of 64 KiB each way with others around it.
pub const MIN_SECTION: u32 = 256 << 10;

/// Kinds of channels that carry messages; the numbers stand in headers and on the pages that
/// tell guests of their channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// [`crate::queue`]
    Queue = 1,
    /// [`crate::records`]
    Records = 2,
    /// [`crate::mailbox`]
    Mailbox = 3,
    /// A virtio device; `bulkhead-virtio` lays out its sections, and only [`HELLO`] and [`ARMED`] are as here.
    Virtio = 4,
}

impl Kind {
    /// Returns the kind with this number.
    #[must_use]
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Queue),
            2 => Some(Self::Records),
            3 => Some(Self::Mailbox),
            4 => Some(Self::Virtio),
            _ => None,
        }
    }
}

/// Kind and size of a channel. Both ends take them from the manifest, never from the other's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// A ring of messages of `size` bytes.
    Queue {
        /// Messages, 1 to [`MAX_UNITS`].
        slots: u32,
        /// Bytes of each, at least 1.
        size: u32,
    },
    /// A ring of messages of any length up to [`crate::records::longest`].
    Records {
        /// Bytes, a multiple of 8, at least 32, at most [`MAX_UNITS`] less 8.
        bytes: u32,
    },
    /// The newest state.
    Mailbox {
        /// Bytes of it, at least 1.
        size: u32,
    },
    /// A virtio device.
    Virtio {
        /// Bytes of each side's section, a multiple of 4 KiB, at least [`MIN_SECTION`].
        bytes: u32,
    },
}

impl Shape {
    /// Returns the most that a ring holds in `bytes` of `tx`, as messages of `size` bytes.
    #[must_use]
    pub fn queue_in(bytes: usize, size: u32) -> Self {
        let slots = bytes.saturating_sub(DATA) / round(size as usize, 8).unwrap_or(8).max(8);
        Self::Queue { slots: slots.min(MAX_UNITS as usize) as u32, size }
    }

    /// Returns the largest shape of a kind in `bytes` of `tx`, with the header. `message` is the size of its
    /// messages; records ignore it. `None` if not even the smallest one fits.
    #[must_use]
    pub fn within(kind: Kind, bytes: usize, message: u32) -> Option<Self> {
        let room = bytes.saturating_sub(DATA);
        let shape = match kind {
            Kind::Queue => Self::queue_in(bytes, message),
            Kind::Records => Self::Records { bytes: room.min(MAX_UNITS as usize - 8) as u32 & !7 },
            Kind::Mailbox => Self::Mailbox { size: message },
            Kind::Virtio => Self::Virtio { bytes: bytes.min(MAX_UNITS as usize) as u32 & !0xFFF },
        };
        shape.data_bytes().is_some_and(|data| data <= room).then_some(shape)
    }

    /// Returns its kind.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Queue { .. } => Kind::Queue,
            Self::Records { .. } => Kind::Records,
            Self::Mailbox { .. } => Kind::Mailbox,
            Self::Virtio { .. } => Kind::Virtio,
        }
    }

    /// Returns the length of its messages in bytes; 0 where each has its own length.
    #[must_use]
    pub const fn message(self) -> u32 {
        match self {
            Self::Queue { size, .. } | Self::Mailbox { size } => size,
            Self::Records { .. } | Self::Virtio { .. } => 0,
        }
    }

    /// Returns the bytes of `tx`, with the header; `None` if there is no such channel.
    #[must_use]
    pub fn tx_bytes(self) -> Option<usize> {
        DATA.checked_add(self.data_bytes()?)
    }

    /// Returns the size of `rx` in bytes.
    #[must_use]
    pub const fn rx_bytes(self) -> usize {
        match self {
            Self::Virtio { bytes } => bytes as usize,
            _ => DATA,
        }
    }

    /// Returns the distance of two messages in bytes.
    #[must_use]
    pub(crate) fn stride(self) -> Option<usize> {
        match self {
            Self::Queue { size, .. } if size > 0 => round(size as usize, 8),
            Self::Mailbox { size } if size > 0 => round(size as usize, 64),
            Self::Records { .. } | Self::Virtio { .. } => Some(1),
            _ => None,
        }
    }

    /// Returns how many units the ring has.
    pub(crate) const fn units(self) -> u32 {
        match self {
            Self::Queue { slots, .. } => slots,
            Self::Records { bytes } => bytes,
            Self::Virtio { bytes } => bytes.saturating_sub(DATA as u32),
            Self::Mailbox { .. } => 4,
        }
    }

    /// Returns the bytes of the messages; `None` if there is no such channel.
    pub(crate) fn data_bytes(self) -> Option<usize> {
        let fits = match self {
            Self::Queue { slots, .. } => (1..=MAX_UNITS).contains(&slots),
            Self::Records { bytes } => bytes % 8 == 0 && (32..MAX_UNITS).contains(&bytes),
            Self::Mailbox { .. } => true,
            Self::Virtio { bytes } => {
                bytes % 4096 == 0 && (MIN_SECTION..=MAX_UNITS).contains(&bytes)
            }
        };
        self.stride()?.checked_mul(self.units() as usize).filter(|_| fits)
    }

    /// Returns the word with its kind and version.
    #[must_use]
    pub const fn identity(self) -> u64 {
        MAGIC as u64 | (VERSION as u64) << 32 | (self.kind() as u64) << 40
    }

    /// Returns the word with the number and size of its messages.
    #[must_use]
    pub const fn geometry(self) -> u64 {
        let (count, size) = match self {
            Self::Queue { slots, size } => (slots, size),
            Self::Records { bytes } | Self::Virtio { bytes } => (1, bytes),
            Self::Mailbox { size } => (4, size),
        };
        (count as u64) << 32 | size as u64
    }
}

/// Up to the next multiple of a power of two.
const fn round(value: usize, to: usize) -> Option<usize> {
    match value.checked_add(to - 1) {
        Some(value) => Some(value & !(to - 1)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_has_a_size_or_is_none() {
        assert_eq!(Shape::Queue { slots: 3, size: 60 }.tx_bytes(), Some(512 + 3 * 64));
        assert_eq!(Shape::Records { bytes: 40 }.tx_bytes(), Some(512 + 40));
        assert_eq!(Shape::Mailbox { size: 1 }.tx_bytes(), Some(512 + 4 * 64));
        for none in [
            Shape::Queue { slots: 0, size: 8 },
            Shape::Queue { slots: MAX_UNITS + 1, size: 8 },
            Shape::Queue { slots: 1, size: 0 },
            Shape::Records { bytes: 24 },
            Shape::Records { bytes: 44 },
            Shape::Records { bytes: MAX_UNITS },
            Shape::Mailbox { size: 0 },
        ] {
            assert_eq!(none.tx_bytes(), None, "{none:?}");
        }
    }

    #[test]
    fn a_queue_fills_what_it_is_given() {
        assert_eq!(Shape::queue_in(4096, 64), Shape::Queue { slots: 56, size: 64 });
        assert_eq!(Shape::queue_in(100, 64).tx_bytes(), None);
    }

    #[test]
    fn a_region_holds_the_largest_that_fits() {
        let within = |kind, bytes, message| Shape::within(kind, bytes, message);
        let queue = Some(Shape::Queue { slots: 56, size: 60 });
        assert_eq!(within(Kind::Queue, 4096, 60), queue);
        assert_eq!(within(Kind::Queue, 4096, 3585), None);
        assert_eq!(within(Kind::Records, 4100, 0), Some(Shape::Records { bytes: 3584 }));
        assert_eq!(within(Kind::Records, 543, 0), None);
        assert_eq!(within(Kind::Mailbox, 4096, 896), Some(Shape::Mailbox { size: 896 }));
        assert_eq!(within(Kind::Mailbox, 4096, 897), None);
        for message in [0, u32::MAX] {
            assert_eq!(within(Kind::Queue, 4096, message), None);
            assert_eq!(within(Kind::Mailbox, 4096, message), None);
        }
        for shape in [within(Kind::Queue, 4096, 60), within(Kind::Mailbox, 4096, 60)] {
            let shape = shape.expect("fits");
            assert_eq!((Kind::of(shape.kind() as u8), shape.message()), (Some(shape.kind()), 60));
        }
    }

    #[test]
    fn kinds_and_sizes_are_told_apart() {
        let shapes = [
            Shape::Queue { slots: 1, size: 64 },
            Shape::Queue { slots: 64, size: 1 },
            Shape::Records { bytes: 64 },
            Shape::Mailbox { size: 64 },
        ];
        for (n, a) in shapes.iter().enumerate() {
            for b in &shapes[n + 1..] {
                assert_ne!((a.identity(), a.geometry()), (b.identity(), b.geometry()));
            }
        }
    }
}
