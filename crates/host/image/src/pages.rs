//! The image while it grows: bytes by physical address, page by page.

use bulkhead_arch::TableMemory;
use bulkhead_plan::Plan;
use zerocopy::{Immutable, IntoBytes};

/// See the module.
pub struct Pages {
    start: u64,
    page: u64,
    bytes: Vec<u8>,
}

impl Pages {
    /// Begins an image at its address.
    #[must_use]
    pub const fn new(plan: &Plan) -> Self {
        let page = plan.machine.arch.facts().page;
        Self { start: plan.image.start, page, bytes: Vec::new() }
    }

    /// Address of the next page to be handed out.
    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Room for `len` bytes in whole pages, zeroed; where it starts.
    pub fn take(&mut self, len: u64) -> u64 {
        let start = self.end();
        let whole = len.next_multiple_of(self.page);
        self.bytes.resize(self.bytes.len() + whole as usize, 0);
        start
    }

    /// As [`Self::take`], filled with `bytes`.
    pub fn put(&mut self, bytes: &[u8]) -> u64 {
        let start = self.take(bytes.len() as u64);
        self.write(start, bytes);
        start
    }

    /// Overwrites at a physical address that was handed out.
    pub fn write(&mut self, pa: u64, bytes: &[u8]) {
        let at = (pa - self.start) as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// As [`Self::write`], a structure.
    pub fn store<T: IntoBytes + Immutable>(&mut self, pa: u64, value: &T) {
        self.write(pa, value.as_bytes());
    }

    /// Reads bytes.
    pub fn read(&self, pa: u64, len: u64) -> &[u8] {
        let at = (pa - self.start) as usize;
        &self.bytes[at..at + len as usize]
    }

    /// Everything.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl TableMemory for Pages {
    fn alloc(&mut self, bytes: u64) -> Option<u64> {
        Some(self.take(bytes))
    }

    fn read(&self, pa: u64, index: usize) -> u64 {
        let bytes = Pages::read(self, pa + index as u64 * 8, 8);
        u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
    }

    fn write(&mut self, pa: u64, index: usize, entry: u64) {
        Pages::write(self, pa + index as u64 * 8, &entry.to_le_bytes());
    }
}
