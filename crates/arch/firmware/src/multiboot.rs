//! The information that a multiboot loader leaves (Multiboot 0.6.96, 3.3;
//! Multiboot2 2.0, 3.6): free RAM, and in version 2 the ACPI root pointer.

use crate::{Memory, u32_at, u64_at};

/// EAX at the entry from a version 1 loader.
pub const MAGIC1: u32 = 0x2BAD_B002;
/// EAX at the entry from a version 2 loader.
pub const MAGIC2: u32 = 0x36D7_6289;
/// Most ranges of RAM kept.
pub const MAX_RANGES: usize = 64;

/// Facts of the boot information.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    ranges: [(u64, u64); MAX_RANGES],
    count: usize,
    /// A copy of the RSDP inside the boot information (version 2).
    pub rsdp: Option<u64>,
}

impl Info {
    const fn new() -> Self {
        Self { ranges: [(0, 0); MAX_RANGES], count: 0, rsdp: None }
    }

    fn add(&mut self, start: u64, len: u64) {
        // A range beyond the table is as good as no RAM: the check then refuses what would need it.
        if let Some(slot) = self.ranges.get_mut(self.count) {
            *slot = (start, len);
            self.count += 1;
        }
    }

    /// Returns the free RAM: start and length.
    #[must_use]
    pub fn ram(&self) -> &[(u64, u64)] {
        &self.ranges[..self.count]
    }

    /// Tells if free ranges, one after the other, cover all of this.
    #[must_use]
    pub fn covers(&self, start: u64, len: u64) -> bool {
        let Some(end) = start.checked_add(len) else {
            return false;
        };
        let mut at = start;
        // Each turn ends at the end of another range, so this ends whatever the loader left.
        for _ in 0..=self.count {
            if at >= end {
                return true;
            }
            let holds = |&&(s, l): &&(u64, u64)| at >= s && at - s < l;
            match self.ram().iter().find(holds) {
                Some(&(s, l)) => at = s.saturating_add(l),
                None => return false,
            }
        }
        at >= end
    }
}

const AVAILABLE: u32 = 1;
/// Bound of a length that the loader claims. A map of 64 ranges needs less than 2 KiB.
const MAX_INFO: usize = 1 << 16;

/// Reads the information at `pa`. `None`: not a multiboot loader, or no memory map.
pub fn parse(magic: u32, pa: u64, memory: &impl Memory) -> Option<Info> {
    let info = match magic {
        MAGIC1 => version1(pa, memory)?,
        MAGIC2 => version2(pa, memory)?,
        _ => return None,
    };
    (info.count > 0).then_some(info)
}

fn version1(pa: u64, memory: &impl Memory) -> Option<Info> {
    const MEMORY_MAP: u32 = 1 << 6;
    let head = memory.bytes(pa, 52)?;
    if u32_at(head, 0)? & MEMORY_MAP == 0 {
        return None;
    }
    let len = (u32_at(head, 44)? as usize).min(MAX_INFO);
    let map = memory.bytes(u64::from(u32_at(head, 48)?), len)?;
    let mut info = Info::new();
    let mut at = 0;
    while let (Some(size), Some(start), Some(bytes), Some(kind)) =
        (u32_at(map, at), u64_at(map, at + 4), u64_at(map, at + 12), u32_at(map, at + 20))
    {
        if kind == AVAILABLE {
            info.add(start, bytes);
        }
        // The size does not count itself (3.3), and an entry may be longer than what is known of it.
        at = at.checked_add(size as usize)?.checked_add(4)?;
    }
    Some(info)
}

fn version2(pa: u64, memory: &impl Memory) -> Option<Info> {
    const MMAP: u32 = 6;
    const RSDP_OLD: u32 = 14;
    const RSDP_NEW: u32 = 15;
    let total = (u32_at(memory.bytes(pa, 8)?, 0)? as usize).min(MAX_INFO);
    let tags = memory.bytes(pa, total)?;
    let mut info = Info::new();
    let mut at = 8usize;
    while let (Some(kind), Some(size)) = (u32_at(tags, at), u32_at(tags, at + 4)) {
        let size = size as usize;
        // Less than a tag's own head: the next turn would come back here.
        if size < 8 {
            break;
        }
        let body = tags.get(at..at.checked_add(size)?)?;
        match kind {
            MMAP => map2(body, &mut info)?,
            // The newer one wins wherever it stands.
            RSDP_NEW => info.rsdp = Some(pa + at as u64 + 8),
            RSDP_OLD if info.rsdp.is_none() => info.rsdp = Some(pa + at as u64 + 8),
            _ => {}
        }
        // A tag's size leaves out its padding (3.6.2).
        at = at.checked_add(size)?.checked_next_multiple_of(8)?;
    }
    Some(info)
}

fn map2(tag: &[u8], info: &mut Info) -> Option<()> {
    // The tag says how long its entries are, so that later versions can have longer ones (3.6.8).
    let entry = u32_at(tag, 8)? as usize;
    if entry < 24 {
        return None;
    }
    let mut at = 16;
    while let (Some(start), Some(len), Some(kind)) =
        (u64_at(tag, at), u64_at(tag, at + 8), u32_at(tag, at + 16))
    {
        if kind == AVAILABLE {
            info.add(start, len);
        }
        at = at.checked_add(entry)?;
    }
    Some(())
}
