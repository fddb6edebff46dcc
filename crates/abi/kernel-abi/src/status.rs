use crate::numbered::numbered;

numbered! {
/// Why a call did nothing, or how a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// It was done.
    Ok = 0,
    /// No such call, or no such method of this kind of object.
    NoCall = 1,
    /// No capability lies at that address.
    NoCapability = 2,
    /// The capability is of another kind. Detail: its [`crate::Kind`].
    WrongKind = 3,
    /// The capability lacks a right. Detail: the rights needed.
    NoRight = 4,
    /// A number is out of its range. Detail: the greatest that would do, or another one. For a call of an endpoint with
    /// `longest`, the context's whole budget is too short; detail: the budget that it needs, ns.
    OutOfRange = 5,
    /// The slot, or what should be bound, holds something already.
    Occupied = 6,
    /// The memory does not suffice. Detail: bytes that are left.
    NoMemory = 7,
    /// Others were derived from it, which have to go first.
    HasChildren = 8,
    /// Not in the state that it would have to be in.
    BadState = 9,
    /// Derived too often, or more calls in each other than one context goes through.
    TooDeep = 10,
    /// Memory is only given downwards: this node is made of it.
    Upwards = 11,
    /// More than the authority allows. Detail: what it allows.
    NoAuthority = 12,
    /// Mapped already, or a table is missing. Detail: the level that is missing.
    NoTable = 13,
    /// A mapping that can be written and executed.
    WriteExecute = 14,
    /// The deadline came first.
    TimedOut = 15,
    /// The object that was waited for is gone.
    Cancelled = 16,
    /// A thread without a context cannot wait for a time.
    NoContext = 17,
    /// No place is left for another context on this core. Detail: how many there are.
    TooManyContexts = 18,
    /// No thread was there to receive.
    WouldBlock = 19,
}
}

/// How a call ended. Bits 0 to 7 have a [`Code`]. Bits 8 to 15 have the argument that is meant: 0 is the capability
/// invoked, 1 the first word. Bits 16 to 63 have details.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Status(pub u64);

impl Status {
    /// It was done.
    pub const OK: Self = Self(0);

    /// Returns an error with its argument and detail (48 bits of it).
    #[must_use]
    pub const fn new(code: Code, argument: u8, detail: u64) -> Self {
        Self(code as u64 | (argument as u64) << 8 | detail << 16)
    }

    /// Returns the code; `None` for a number that is none.
    #[must_use]
    pub const fn code(self) -> Option<Code> {
        Code::new(self.0 as u8)
    }

    /// Tells which argument is meant.
    #[must_use]
    pub const fn argument(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Returns the detail; its code says what it means.
    #[must_use]
    pub const fn detail(self) -> u64 {
        self.0 >> 16
    }
}
