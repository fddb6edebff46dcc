use crate::numbered::numbered;

numbered! {
/// Kind of object that a capability is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Nothing: an empty slot.
    Null = 0,
    /// Memory of which objects are made.
    Untyped = 1,
    /// Slots for capabilities.
    Node = 2,
    /// A thread.
    Thread = 3,
    /// An address space: the root of its page tables.
    Space = 4,
    /// A page table below a root.
    Table = 5,
    /// Memory that can be mapped: 4 KiB or 2 MiB.
    Frame = 6,
    /// Where threads meet to exchange messages.
    Endpoint = 7,
    /// Bits that are set and waited for.
    Notification = 8,
    /// A caller that waits for an answer, and the context that is used meanwhile.
    Reply = 9,
    /// A scheduling context: time.
    Context = 10,
    /// A core's time to be given to contexts.
    Control = 11,
    /// An interrupt.
    Interrupt = 12,
    /// Registers of a device that only instructions reach: I/O ports, on an architecture that has them.
    Ports = 13,
    /// The sandbox itself: its console, its end.
    Sandbox = 14,
    /// A link: memory for channels made at run time.
    Link = 15,
}
}

impl Kind {
    /// All kinds, by number.
    pub const ALL: [Self; 16] = [
        Self::Null,
        Self::Untyped,
        Self::Node,
        Self::Thread,
        Self::Space,
        Self::Table,
        Self::Frame,
        Self::Endpoint,
        Self::Notification,
        Self::Reply,
        Self::Context,
        Self::Control,
        Self::Interrupt,
        Self::Ports,
        Self::Sandbox,
        Self::Link,
    ];
}

/// Rights of a capability, as a set. Deriving only takes away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Rights(pub u8);

impl Rights {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Endpoint and notification: receive, wait. Frame: be read. Link: look.
    pub const READ: Self = Self(1 << 0);
    /// Endpoint and notification: send, signal. Frame: be written. Sandbox: print. Link: offer, accept, close.
    pub const WRITE: Self = Self(1 << 1);
    /// Endpoint: call, so that the receiver can answer and work on the caller's time.
    pub const CALL: Self = Self(1 << 2);
    /// Endpoint: send capabilities along.
    pub const GRANT: Self = Self(1 << 3);
    /// Frame: be executed; never together with [`Rights::WRITE`] in one mapping. Sandbox: end it.
    pub const EXECUTE: Self = Self(1 << 4);
    /// All.
    pub const ALL: Self = Self(0x1F);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Rights that are in both.
    #[must_use]
    pub const fn masked(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Tells if it has all of `other`.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
