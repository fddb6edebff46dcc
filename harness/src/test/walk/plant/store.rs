//! Errors in the tables by which a driver sandbox's disk reaches channels.

use super::{Hand, PAGE, Plant};
use bulkhead_virtio::layout::POOL;

/// 00:03.0.
const DISK: u64 = 0x18;
/// Bits of an entry of AMD's I/O tables (48882, 2.2.3): present, the device reads, the device writes.
pub const PRESENT: u64 = 1;
pub const READ: u64 = 1 << 61;
pub const WRITE: u64 = 1 << 62;

impl Hand<'_> {
    /// Changes the entry by which a function reaches a page.
    pub fn dma(&mut self, bdf: u64, address: u64, set: u64, clear: u64) {
        const NEXT: u64 = 7;
        const ADDRESS: u64 = 0x000F_FFFF_FFFF_F000;
        let (device, _) = self.entry(bdf, 0);
        let mut entry = self.memory.word(device);
        loop {
            let level = entry >> 9 & NEXT;
            let index = address >> (12 + 9 * (level - 1)) & 0x1FF;
            let at = (entry & ADDRESS) + 8 * index;
            entry = self.memory.word(at);
            if level == 1 || entry & PRESENT == 0 || matches!(entry >> 9 & NEXT, 0 | 7) {
                self.memory.change(at, set, clear);
                return;
            }
        }
    }

    /// Address and frame of a page of a channel's region.
    pub fn page(&self, title: &str, at: usize) -> [u64; 2] {
        let region = self.region(title);
        [region.gpa, region.hpa].map(|base| base + at as u64)
    }
}

pub static PLANTS: &[Plant] = &[
    ("disk-writes-the-clients-section", "dma-rights", |h| {
        let [gpa, _] = h.page("first tx", POOL);
        h.dma(DISK, gpa, WRITE, 0);
    }),
    ("disk-reaches-a-clients-header", "dma-map", |h| {
        let [gpa, hpa] = h.page("first tx", 0);
        h.dma(DISK, gpa, hpa | PRESENT | READ, u64::MAX);
    }),
    ("disk-reaches-its-own-rings", "dma-map", |h| {
        let [gpa, hpa] = h.page("second rx", POOL - PAGE as usize);
        h.dma(DISK, gpa, hpa | PRESENT | READ | WRITE, u64::MAX);
    }),
    ("disk-reaches-another-clients-buffer", "dma-map", |h| {
        let [gpa, _] = h.page("first rx", POOL);
        let [_, hpa] = h.page("second rx", POOL);
        h.dma(DISK, gpa, hpa | PRESENT | READ | WRITE, u64::MAX);
    }),
    ("disk-lacks-a-page", "dma-missing", |h| {
        let [gpa, _] = h.page("second tx", POOL);
        h.dma(DISK, gpa, 0, u64::MAX);
    }),
];
