//! Capabilities and the slots that they lie in.

use crate::Ref;
use bulkhead_kernel_abi::{Kind, Rights};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A capability: an object, and the rights to it.
///
/// | kind | `object` | `bits` | `data` |
/// |---|---|---|---|
/// | Untyped | first byte | size | used (low half), zeroed beyond that (high half), bytes |
/// | Node | first slot | slots | depth of its original |
/// | Frame | page frame number | 12, 21 | where it is mapped: [`Mapping`] |
/// | Table | the table | | where it is mapped |
/// | Endpoint, Notification | the object | | badge |
/// | Link | the object | | which use of it began by this capability |
/// | Ports | registers, as [`crate::Layout::access`] reads it | | |
/// | others | the object | | |
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Cap {
    /// A [`Kind`].
    pub kind: u8,
    /// [`Rights`].
    pub rights: u8,
    /// Its object's size, as a power of two.
    pub bits: u8,
    /// [`Cap::ORIGINAL`], [`Cap::DYING`], [`Cap::DEVICE`].
    pub flags: u8,
    /// The object.
    pub object: u32,
    /// Further data of its kind.
    pub data: u64,
}

impl Cap {
    /// Its object lives as long as this capability.
    pub const ORIGINAL: u8 = 1 << 0;
    /// Its node is being emptied, and can't be used any more.
    pub const DYING: u8 = 1 << 1;
    /// A frame that isn't memory: never zeroed.
    pub const DEVICE: u8 = 1 << 2;

    /// The content of an empty slot.
    pub const NULL: Self = Self { kind: 0, rights: 0, bits: 0, flags: 0, object: 0, data: 0 };

    /// Returns the original capability of an object.
    #[must_use]
    pub const fn original(kind: Kind, object: u32, bits: u8) -> Self {
        let kind = kind as u8;
        Self { kind, rights: Rights::ALL.0, bits, flags: Self::ORIGINAL, object, data: 0 }
    }

    /// Returns its kind.
    #[inline(always)]
    #[must_use]
    pub const fn is(&self, kind: Kind) -> bool {
        self.kind == kind as u8
    }

    /// Returns the kind of the capability, for matching.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match Kind::new(self.kind) {
            Some(kind) => kind,
            None => Kind::Null,
        }
    }

    /// Tells if its object lives as long as it.
    #[must_use]
    pub const fn is_original(&self) -> bool {
        self.flags & Self::ORIGINAL != 0
    }

    /// Rights that it grants.
    #[must_use]
    pub const fn rights(&self) -> Rights {
        Rights(self.rights)
    }

    /// Finds where its object lies.
    #[inline(always)]
    #[must_use]
    pub const fn at<T>(&self) -> Ref<T> {
        Ref::new(self.object)
    }
}

/// A place for a capability, with its place in the tree of derivations.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Slot {
    /// The capability in it.
    pub cap: Cap,
    /// Slot after it in the tree's order.
    pub next: Ref<Slot>,
    /// Slot before it.
    pub previous: Ref<Slot>,
    /// How many it was derived from, one from the other.
    pub depth: u16,
    /// 0 in a node; in an object of the kernel's, [`Place`].
    pub place: u16,
    /// In a node's slot 0: how far the node's deletion has come.
    pub cursor: u32,
}

const _: () = assert!(size_of::<Slot>() == 32);

/// Size of a slot, as a power of two.
pub const SLOT_BITS: u8 = 5;

/// Slots that are part of an object of the kernel's. The object keeps capabilities to its parts there, so that
/// revocation reaches those, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Place {
    /// A thread's root node.
    Root = 1,
    /// Its address space.
    Space = 2,
    /// The frame of its buffer.
    Buffer = 3,
    /// Where its faults go.
    Fault = 4,
    /// Where the ends of its budgets go.
    Timeout = 5,
    /// The notification that an interrupt signals.
    Interrupt = 6,
    /// The address space in which a link's memory is seen.
    Link = 7,
}

impl Place {
    /// Returns the place of a number.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        Some(match number {
            1 => Self::Root,
            2 => Self::Space,
            3 => Self::Buffer,
            4 => Self::Fault,
            5 => Self::Timeout,
            6 => Self::Interrupt,
            7 => Self::Link,
            _ => return None,
        })
    }
}

/// Place at which a frame or table is mapped. Bits 0 to 35 have the page of the address, 36 to 55 the page of the
/// space's root. 0 is nowhere, since no root lies at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The space's root.
    pub space: u32,
    /// The first address.
    pub address: u64,
}

impl Mapping {
    /// As it lies in [`Cap::data`].
    #[must_use]
    pub const fn pack(self) -> u64 {
        (self.address >> 12 & ((1 << 36) - 1)) | (self.space as u64 >> 12) << 36
    }

    /// From there.
    #[must_use]
    pub const fn unpack(data: u64) -> Option<Self> {
        let space = ((data >> 36) as u32) << 12;
        if space == 0 {
            return None;
        }
        Some(Self { space, address: (data & ((1 << 36) - 1)) << 12 })
    }
}
