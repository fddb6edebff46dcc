//! The image while it grows: bytes by physical address, page by page.

use crate::Error;
use bulkhead_arch::{Memory, PageFormat, Rights, Run, TableMemory, map};
use bulkhead_layout::PAGE;
use bulkhead_layout::map::IMAGE_PA;
use std::marker::PhantomData;
use zerocopy::{Immutable, IntoBytes};

/// See the module.
#[derive(Default)]
pub struct Pages {
    bytes: Vec<u8>,
}

impl Pages {
    /// Address of the next page to be handed out.
    pub fn end(&self) -> u64 {
        IMAGE_PA + self.bytes.len() as u64
    }

    /// Room for `len` bytes in whole pages, zeroed; where it starts.
    pub fn take(&mut self, len: u64) -> u64 {
        let start = self.end();
        let pages = len.div_ceil(PAGE) * PAGE;
        self.bytes.resize(self.bytes.len() + pages as usize, 0);
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
        let at = (pa - IMAGE_PA) as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// As [`Self::write`], a structure.
    pub fn store<T: IntoBytes + Immutable>(&mut self, pa: u64, value: &T) {
        self.write(pa, value.as_bytes());
    }

    /// What lies there.
    pub fn read(&self, pa: u64, len: u64) -> &[u8] {
        let at = (pa - IMAGE_PA) as usize;
        &self.bytes[at..at + len as usize]
    }

    /// Everything.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl TableMemory for Pages {
    fn alloc(&mut self) -> Option<u64> {
        Some(self.take(PAGE))
    }

    fn read(&self, pa: u64, index: usize) -> u64 {
        let bytes = Pages::read(self, pa + index as u64 * 8, 8);
        u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
    }

    fn write(&mut self, pa: u64, index: usize, entry: u64) {
        Pages::write(self, pa + index as u64 * 8, &entry.to_le_bytes());
    }
}

/// Tables of one format, while they grow in the image.
pub struct Tables<'a, F> {
    /// Where.
    pub pages: &'a mut Pages,
    /// Physical address of the root, once anything is mapped.
    pub root: Option<u64>,
    format: PhantomData<F>,
}

impl<'a, F: PageFormat> Tables<'a, F> {
    /// Without anything in them.
    pub fn new(pages: &'a mut Pages) -> Self {
        Self { pages, root: None, format: PhantomData }
    }

    /// To go on below a root.
    pub fn below(pages: &'a mut Pages, root: u64) -> Self {
        Self { root: Some(root), ..Self::new(pages) }
    }

    /// Maps a range with the largest pages that fit.
    ///
    /// # Errors
    /// A part of it is mapped already, or an address is none: a fault in the plan.
    pub fn map(&mut self, va: u64, pa: u64, len: u64, rights: Rights) -> Result<(), Error> {
        self.run(Run { va, pa, len, rights, memory: Memory::Normal })
    }

    /// Maps registers of a device.
    ///
    /// # Errors
    /// As [`Self::map`].
    pub fn device(&mut self, va: u64, pa: u64, len: u64, rights: Rights) -> Result<(), Error> {
        self.run(Run { va, pa, len, rights, memory: Memory::Device })
    }

    fn run(&mut self, run: Run) -> Result<(), Error> {
        self.root = Some(map::<F>(self.pages, self.root, run)?);
        Ok(())
    }
}
