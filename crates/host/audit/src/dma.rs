//! Devices' accesses to memory and their messages, whatever unit confines them.

use crate::check::Context;
use crate::claim::{Claim, Function, Place, Range};
use crate::given::{Given, given_for, right_at};
use crate::report::{Dma, letters};
use std::collections::BTreeMap;

/// A unit that confines DMA, with its tables.
pub trait Unit {
    /// Lists the frames of all its tables and buffers.
    fn tables(&self, claim: &Claim) -> Vec<(u64, String)>;
    /// Lists the frames of tables for messages that monitors fill, by requester.
    fn remapping(&self) -> BTreeMap<u16, Vec<u64>> {
        BTreeMap::new()
    }
    /// Lists the frames of its command buffer, if a monitor can have that.
    fn commands(&self) -> Vec<u64> {
        Vec::new()
    }
    /// Checks the unit and everything that its tables lead to.
    fn check(&self, context: &mut Context, given: &[Vec<Given>]);
    /// Finds out where a line of the interrupt controller arrives, by the entry there. The first way is the one
    /// through the unit.
    fn line(&self, context: &Context, entry: u64) -> Vec<Arrival>;
}

/// Where a line arrives: core and interrupt, or nowhere; or the rule that it breaks, and how.
pub type Arrival = Result<Option<(u32, u32)>, (&'static str, String)>;

/// A page that a device reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The device's address.
    pub address: u64,
    /// Where it leads.
    pub frame: u64,
    /// Bytes.
    pub size: u64,
    /// It may be read.
    pub read: bool,
    /// It may be written.
    pub write: bool,
}

/// Everything that one I/O page table leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Pages.
    pub leaves: Vec<Leaf>,
    /// Frames of the tables themselves.
    pub tables: Vec<u64>,
    /// Entries that make no sense: address, entry.
    pub odd: Vec<(u64, u64)>,
}

/// A part of what is given, to be written or not.
fn part(given: &[Given], range: Range, write: bool) -> Option<Given> {
    let around = given
        .iter()
        .find(|g| g.address <= range.start && range.end() <= g.address.saturating_add(g.len))?;
    let frame = around.frame + (range.start - around.address);
    let write = write && around.write;
    Some(Given { address: range.start, frame, len: range.len, write, ..around.clone() })
}

/// The parts of what is given that a device reaches, by their addresses. A manifest lists them in its own order.
fn parts(given: &[Given], own: &[(Range, bool)]) -> Vec<Given> {
    let parts = own.iter().filter_map(|(range, write)| part(given, *range, *write));
    let mut parts: Vec<Given> = parts.collect();
    parts.sort_by_key(|part| part.address);
    parts
}

/// Bus, device and function as people write them.
#[must_use]
pub fn name(bdf: u16) -> String {
    format!("{:02x}:{:02x}.{}", bdf >> 8, bdf >> 3 & 31, bdf & 7)
}

/// Errors of entries, by text: requester IDs and the first entry's address.
pub type Wrong = BTreeMap<(&'static str, String, String), Vec<(u16, u64)>>;

impl Context<'_> {
    /// Everything about devices' memory accesses and messages.
    pub(crate) fn dma(&mut self, unit: Option<&dyn Unit>, given: &[Vec<Given>]) {
        if let Some(unit) = unit {
            unit.check(self, given);
        } else if self.claim.iommu.is_some() {
            let message = "the IOMMU's registers are not known";
            self.find("iommu-control", &Place::default(), None, message, "a dump with `iommu`");
        } else if self.claim.functions.iter().any(|f| f.owner.is_some()) {
            self.remarks.push("no IOMMU: devices' DMA is not confined, nor looked at".into());
        }
    }

    /// Compares what an owned function reaches, under one of its requester IDs, with what its owner has.
    pub fn reaches(
        &mut self,
        (i, bdf): (usize, u16),
        function: &Function,
        given: &[Given],
        pages: Option<&Pages>,
        interrupts: Vec<(u32, u32)>,
    ) {
        let as_other =
            if bdf == function.bdf { String::new() } else { format!(" (as {})", name(bdf)) };
        let title = format!("{}{as_other}", function.name);
        let who = format!("{title} of {}", self.name(i));
        let empty = Pages::default();
        let pages = pages.unwrap_or(&empty);
        // A role's function reaches memory that its owner has while it has the role.
        let reached = |g: &&Given| if function.role.is_some() { g.may && !g.device } else { g.dma };
        let all: Vec<Given> = given.iter().filter(reached).cloned().collect();
        let given = match &function.reach {
            None => all,
            Some(own) => parts(&all, own),
        };
        let mut covered = vec![0; given.len()];
        for leaf in pages.leaves.iter().filter(|l| l.read || l.write) {
            let (at, frame) = (leaf.address, leaf.frame);
            let Some(n) = given_for(&given, at, frame, leaf.size) else {
                let whose = self.owner(frame);
                let message = format!(
                    "{who} reaches {frame:#x} ({whose}) at {at:#x}, {:#x} bytes",
                    leaf.size
                );
                self.find("dma-map", &function.place, Some(frame), message, right_at(&given, at));
                continue;
            };
            covered[n] += leaf.size;
            if !leaf.read || leaf.write != given[n].write {
                let message =
                    format!("{who} reads: {}, writes: {} at {at:#x}", leaf.read, leaf.write);
                let right = letters(given[n].write, false);
                self.find("dma-rights", &given[n].place, Some(frame), message, right);
            }
        }
        for (g, covered) in given.iter().zip(covered).filter(|(g, c)| g.len != *c) {
            let message =
                format!("{who} reaches {covered:#x} of {:#x} bytes at {:#x}", g.len, g.address);
            self.find("dma-missing", &function.place, Some(g.frame), message, "all of it");
        }
        let leaves = pages.leaves.iter().filter(|l| l.read || l.write);
        let memory = self.reach(leaves.map(|l| (l.address, l.frame, l.size, l.write, false)));
        self.access[i].devices.push(Dma { function: title, memory, interrupts });
    }

    /// Makes one finding of all entries that are wrong in one way.
    pub fn tell(&mut self, wrong: Wrong) {
        for ((rule, what, right), mut who) in wrong {
            who.dedup();
            let known = who.iter().find_map(|(bdf, at)| {
                let function = self.claim.requester(*bdf)?;
                Some((function.name.clone(), function.place.clone(), *at))
            });
            let (first, at) = who[0];
            let (name, place, at) = known.unwrap_or((name(first), Place::default(), at));
            let others = match who.len() - 1 {
                0 => String::new(),
                n => format!(
                    " and {n} others, from {} to {},",
                    self::name(first),
                    self::name(who[n].0)
                ),
            };
            self.find(rule, &place, Some(at), format!("{name}{others} {what}"), right);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_reaches_is_found_in_any_order_of_the_manifest() {
        let given = |address, len, write| Given {
            address,
            frame: address + 0x10_0000,
            len,
            write,
            execute: false,
            device: false,
            dma: true,
            may: false,
            place: Place::default(),
        };
        let all = [given(0x1000, 0x3000, true), given(0x8000, 0x1000, false)];
        let range = |start| Range { start, len: 0x1000 };
        // The last one leads nowhere.
        let own = [(range(0x8000), true), (range(0x2000), false), (range(0x5000), true)];
        let parts = parts(&all, &own);
        assert_eq!(parts, [given(0x2000, 0x1000, false), given(0x8000, 0x1000, false)]);
        for start in [0x2000, 0x8000] {
            assert!(given_for(&parts, start, start + 0x10_0000, 0x1000).is_some(), "{start:#x}");
        }
    }
}
