//! Pages that a fault in the target must not change: those of the other sandboxes and of their monitors, and tables of
//! the machine. A page is *steady* if the golden run had equal bytes in it at all of its looks. A steady page that a
//! faulted run leaves with other bytes is a breach. Other pages are judged by what their owner does.

use crate::{Result, System};
use bulkhead_plan::Channel;
use bulkhead_qemu::Ram;
use std::fmt;

const PAGE: u64 = 4096;

/// Owner of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A guest: the sandbox's index.
    Guest(usize),
    /// A monitor, and the part of its memory.
    Monitor(usize, &'static str),
    /// A channel without an end in the target.
    Channel(String),
    /// No sandbox: the part of the image.
    Machine(&'static str),
}

/// A page.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its address.
    pub pa: u64,
    /// Its owner.
    pub owner: Owner,
    /// Sum of its bytes.
    pub sum: u64,
}

/// Parts of the image that the target's monitor shares with others by design, or that nobody uses any more.
const SHARED: [&str; 3] =
    ["boot code (unused after the launch)", "mailboxes, reports", "states of channels' peers"];
/// Parts of the target's own monitor that a life of its guest never changes.
const FIXED: [&str; 2] = ["configuration, launch record", "monitor's page tables"];

/// A sum of bytes in which each word counts by its place (FNV-1a, on words).
#[must_use]
pub fn sum(bytes: &[u8]) -> u64 {
    let word = |chunk: &[u8]| chunk.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
    bytes.chunks(8).fold(0xCBF2_9CE4_8422_2325, |all, chunk| {
        (all ^ word(chunk)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23)
    })
}

/// All pages that may be steady, as they are now.
pub fn all(system: &System, ram: &Ram) -> Result<Vec<Page>> {
    let (plan, map) = (&system.baked.plan, &system.baked.map);
    let mut pages = Vec::new();
    let add = |pages: &mut Vec<Page>, start: u64, len: u64, owner: Owner| -> Result<()> {
        for pa in (start..start + len).step_by(PAGE as usize) {
            let mut bytes = [0; PAGE as usize];
            ram.read(pa, &mut bytes)?;
            pages.push(Page { pa, owner: owner.clone(), sum: sum(&bytes) });
        }
        Ok(())
    };
    for index in system.others() {
        for piece in &plan.sandboxes[index].ram {
            add(&mut pages, piece.hpa, piece.len, Owner::Guest(index))?;
        }
    }
    let apart = |c: &&Channel| !c.writes(system.target) && !c.reads(system.target);
    for channel in plan.channels.iter().filter(apart) {
        add(&mut pages, channel.hpa, channel.len, Owner::Channel(channel.title()))?;
    }
    for part in &map.parts {
        match part.owner {
            Some(index) if index != system.target || FIXED.contains(&part.what) => {
                add(&mut pages, part.start, part.len, Owner::Monitor(index, part.what))?;
            }
            None if !SHARED.contains(&part.what) => {
                add(&mut pages, part.start, part.len, Owner::Machine(part.what))?;
            }
            _ => {}
        }
    }
    // The IOMMU's own words on what it has refused.
    let (log, len) = map.events;
    pages.retain(|page| page.pa.wrapping_sub(log) >= len);
    if let Some((text, len)) = map.texts.get(system.target) {
        // The last page has data, too.
        let len = len / PAGE * PAGE;
        add(&mut pages, *text, len, Owner::Monitor(system.target, "monitor text"))?;
    }
    Ok(pages)
}

/// Leaves the pages that have not changed since.
pub fn keep_steady(pages: &mut Vec<Page>, ram: &Ram) -> Result<()> {
    let mut same = Vec::with_capacity(pages.len());
    for page in pages.iter() {
        same.push(now(page, ram)? == page.sum);
    }
    let mut same = same.into_iter();
    pages.retain(|_| same.next().unwrap_or(false));
    Ok(())
}

/// The pages that are not as they were.
pub fn changed(pages: &[Page], ram: &Ram) -> Result<Vec<Page>> {
    let mut changed = Vec::new();
    for page in pages {
        if now(page, ram)? != page.sum {
            changed.push(page.clone());
        }
    }
    Ok(changed)
}

fn now(page: &Page, ram: &Ram) -> Result<u64> {
    let mut bytes = [0; PAGE as usize];
    ram.read(page.pa, &mut bytes)?;
    Ok(sum(&bytes))
}

/// A page in words.
pub struct Told<'a>(pub &'a System, pub &'a Page);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |index: &usize| &self.0.baked.plan.sandboxes[*index].name;
        let pa = self.1.pa;
        match &self.1.owner {
            Owner::Guest(index) => write!(f, "memory of {}, page {pa:#x}", name(index)),
            Owner::Monitor(index, what) => {
                write!(f, "monitor of {} ({what}), page {pa:#x}", name(index))
            }
            Owner::Channel(title) => write!(f, "channel {title}, page {pa:#x}"),
            Owner::Machine(what) => write!(f, "machine ({what}), page {pa:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_and_each_place_counts() {
        let mut bytes = vec![0; 4096];
        let zero = sum(&bytes);
        for at in [0, 7, 8, 4095] {
            bytes[at] ^= 4;
            assert_ne!(sum(&bytes), zero, "{at}");
            bytes[at] ^= 4;
        }
        bytes[0] = 1;
        let first = sum(&bytes);
        bytes.swap(0, 8);
        assert_ne!(sum(&bytes), first);
    }
}
