//! A disk as the store needs it.

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The disk writes memory.
    Read,
    /// The disk reads memory.
    Write,
    /// All writes that were completed before become durable.
    Flush,
    /// The content of a range is not needed any more. It has no data.
    Discard,
    /// A range becomes zeros. It has no data.
    Zero {
        /// The disk may discard it, if it reads as zeros then.
        unmap: bool,
    },
}

impl Operation {
    /// Tells if it is about a range, without data in memory.
    #[must_use]
    pub const fn ranges(self) -> bool {
        matches!(self, Self::Discard | Self::Zero { .. })
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number by which its completion names it.
    pub tag: u16,
    /// Operation.
    pub operation: Operation,
    /// First sector of 512 bytes.
    pub sector: u64,
    /// Bus address of the data.
    pub address: u64,
    /// Bytes of the data, or of the range.
    pub len: u32,
}

/// Description of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// Bytes of a block that is read and written as a whole, a multiple of 512.
    pub block: u32,
    /// It refuses writes.
    pub read_only: bool,
    /// It has a cache that a flush empties.
    pub flush: bool,
    /// Most bytes of a request.
    pub most: u32,
    /// Most requests under way.
    pub depth: u16,
    /// Sectors of a range that is discarded, at most; 0: it has no such request.
    pub discard: u32,
    /// Sectors of a range that becomes zeros, at most; 0: it has no such request.
    pub zero: u32,
}

impl Info {
    /// Description of a disk that has not said anything yet: no sector, and no request.
    pub const UNKNOWN: Self = Self {
        sectors: 0,
        block: 512,
        read_only: true,
        flush: false,
        most: 0,
        depth: 0,
        discard: 0,
        zero: 0,
    };
}

/// No further request fits now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A request failed, or the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// A disk.
pub trait Disk {
    /// Describes it.
    fn info(&self) -> &Info;
    /// Takes a request; the disk sees it after [`Disk::ring`].
    ///
    /// # Errors
    /// [`Full`].
    fn submit(&mut self, request: &Request) -> Result<(), Full>;
    /// Tells the disk of all requests taken.
    fn ring(&mut self);
    /// Returns a request that is done, by its tag.
    fn completed(&mut self) -> Option<(u16, Result<(), Failed>)>;
    /// Asks the disk to interrupt for its answers, or not to; it may do so anyway. A look for answers follows before
    /// the caller sleeps.
    fn interrupts(&mut self, wanted: bool) {
        let _ = wanted;
    }
    /// Resets the disk, in bounded time. Afterwards it accesses no memory for requests taken before, and is ready.
    ///
    /// # Errors
    /// It does not answer.
    fn reset(&mut self) -> Result<(), Failed>;
}
