//! Grants of the manifest, in addresses and rights, from the claim and the book (docs/memory-layout.md).

use crate::arch::Places;
use crate::check::Context;
use crate::claim::{Claim, Function, Place, Range, Segment};
use crate::memory::reads;
use crate::monitor::Parts;
use crate::paging::{Leaf, Regime};
use crate::report::letters;

/// A range that somebody may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Address by which it is reached.
    pub address: u64,
    /// Physical address.
    pub frame: u64,
    /// Bytes.
    pub len: u64,
    /// It may be written.
    pub write: bool,
    /// It may be executed.
    pub execute: bool,
    /// A device's registers.
    pub device: bool,
    /// RAM or a channel: within a DMA's reach too.
    pub dma: bool,
    /// It has it while it has a role, or a channel made at run time.
    pub may: bool,
    /// Line of the manifest that says so.
    pub place: Place,
}

const R: (bool, bool) = (false, false);
const RW: (bool, bool) = (true, false);
const RWX: (bool, bool) = (true, true);

/// Lists the memory that each guest of a sandbox may reach, its own first.
pub fn to_guests(claim: &Claim, parts: &[Parts], index: usize) -> Vec<Vec<Given>> {
    let sandbox = &claim.sandboxes[index];
    let all = std::iter::once(&sandbox.segments).chain(&sandbox.others);
    all.map(|segments| to_guest(claim, parts, index, segments.as_deref())).collect()
}

/// Lists the memory that a guest with these segments may reach. The frames of information page, progress words,
/// snapshots and reports are those that the monitors' own tables show.
fn to_guest(
    claim: &Claim,
    parts: &[Parts],
    index: usize,
    segments: Option<&[Segment]>,
) -> Vec<Given> {
    let sandbox = &claim.sandboxes[index];
    let &Places { page, info, progress, snapshots, roles, reports: [reports, stride], .. } =
        claim.arch.places();
    let mut all = Vec::new();
    let mut give = |place: &Place, kind: (bool, bool), address, frame, len, (write, execute)| {
        let ((dma, device), place) = (kind, place.clone());
        all.push(Given { address, frame, len, write, execute, device, dma, may: false, place });
    };
    const MEMORY: (bool, bool) = (true, false);
    const SHOWN: (bool, bool) = (false, false);
    const DEVICE: (bool, bool) = (false, true);
    for ram in &sandbox.ram {
        let Some(segments) = segments else {
            give(&sandbox.place, MEMORY, ram.gpa, ram.hpa, ram.len, RWX);
            continue;
        };
        for at in (0..ram.len).step_by(page as usize) {
            let rights = rights(segments, Range { start: ram.gpa + at, len: page });
            give(&sandbox.place, MEMORY, ram.gpa + at, ram.hpa + at, page, rights);
        }
    }
    if let Some(frame) = parts[index].info {
        give(&sandbox.place, SHOWN, info, frame, page, R);
    }
    if let Some(frame) = parts[index].progress {
        give(&sandbox.place, SHOWN, progress, frame, page, RW);
    }
    for (n, &frame) in parts[index].snapshots.iter().enumerate() {
        give(&sandbox.place, SHOWN, snapshots + n as u64 * page, frame, page, R);
    }
    for &seen in &sandbox.observe {
        for (n, &frame) in parts[seen].report.iter().enumerate() {
            let at = reports + seen as u64 * stride + n as u64 * page;
            give(&sandbox.place, SHOWN, at, frame, page, R);
        }
    }
    for (end, [registers, states]) in sandbox.ends.iter().zip(&parts[index].ends) {
        give(&end.place, SHOWN, end.registers, *registers, page, R);
        give(&end.place, SHOWN, end.memory.start, *states, page, R);
    }
    for channel in claim.channels.iter().filter(|c| claim.stands(c, index).is_none()) {
        let rights = if channel.from == index { RW } else { R };
        if channel.from == index || channel.to.contains(&index) {
            give(&channel.place, MEMORY, channel.gpa, channel.hpa, channel.len, rights);
        }
    }
    if let Some(frame) = parts[index].roles {
        give(&sandbox.place, SHOWN, roles, frame, page, R);
    }
    for registers in claim.registers.iter().filter(|registers| !registers.mediated) {
        for (_, write, place) in registers.parts.iter().filter(|part| part.0 == index) {
            let Range { start, len } = registers.range;
            give(place, DEVICE, start, start, len, (*write, false));
        }
    }
    for function in claim.functions.iter().filter(|f| f.owner == Some(index) && f.role.is_none()) {
        for own in function.registers(page) {
            give(&function.place, DEVICE, own.start, own.start, page, RW);
        }
    }
    let held = claim.functions.iter().filter(|f| f.role.is_some() && claim.has(index, f));
    let mut registers: Vec<_> =
        held.flat_map(|f| f.registers(page).map(move |own| (f, own))).collect();
    // Small BARs can share a page.
    registers.sort_by_key(|(_, own)| own.start);
    registers.dedup_by_key(|(_, own)| own.start);
    for (function, own) in registers {
        all.push(Given {
            address: own.start,
            frame: own.start,
            len: page,
            write: true,
            execute: false,
            device: true,
            dma: false,
            may: true,
            place: function.place.clone(),
        });
    }
    for channel in claim.channels.iter().filter(|c| claim.stands(c, index).is_some()) {
        all.push(Given {
            address: channel.gpa,
            frame: channel.hpa,
            len: channel.len,
            write: claim.writes(channel, index),
            execute: false,
            device: false,
            dma: false,
            may: true,
            place: channel.place.clone(),
        });
    }
    for link in claim.links.iter().filter(|link| link.concerns(index)) {
        let (sent, mine) = (link.len - page, link.owner == index);
        for (at, len, write) in [(0, sent, mine), (sent, page, !mine)] {
            all.push(Given {
                address: link.gpa + at,
                frame: link.hpa + at,
                len,
                write,
                execute: false,
                device: false,
                dma: false,
                may: true,
                place: link.place.clone(),
            });
        }
    }
    if sandbox.running {
        let shown =
            claim.shown.iter().flat_map(|range| pages(*range, page)).map(|range| range.start);
        all.extend(claim.timer.into_iter().chain(shown).map(|at| read_only(claim, index, at)));
        let rest = rest(claim, index, &all);
        all.extend(rest);
        all.extend(controller(claim, index));
    }
    merged(all)
}

/// Lists what a Linux that ran before its monitor has of the machine, each at its own address. The block, the start-up
/// code and the local APICs are left out, and so is what is shown at other addresses. A link has the reach of a table
/// of entries.
fn rest(claim: &Claim, index: usize, shown: &[Given]) -> Vec<Given> {
    let &Places { page, start_code, machine: [low, monitors], .. } = claim.arch.places();
    let table = page * (page / 8);
    let links = claim.links.iter().filter(|link| link.concerns(index));
    let links = links.map(|link| Range { start: link.gpa / table * table, len: table });
    let gone: Vec<Range> = { start_code.iter() }
        .map(|&start| Range { start, len: page })
        .chain(claim.block)
        .chain([monitors])
        .chain(claim.mediated())
        .chain(claim.unnamed.iter().copied())
        .chain(shown.iter().map(|g| Range { start: g.address, len: g.len }))
        .chain(links)
        .collect();
    let above = |r: &Range| {
        let start = r.start.max(low.end());
        Range { start, len: r.end().saturating_sub(start) / page * page }
    };
    let mut left: Vec<Range> = [low].into_iter().chain(claim.ram.iter().map(above)).collect();
    for gone in gone {
        left = left.into_iter().flat_map(|piece| without(piece, gone)).collect();
    }
    let place = &claim.sandboxes[index].place;
    let give = |r: Range, dma: bool| Given {
        address: r.start,
        frame: r.start,
        len: r.len,
        write: true,
        execute: true,
        device: false,
        dma,
        may: false,
        place: place.clone(),
    };
    // Its devices reach memory, and no registers of others.
    let (mut all, mut rest) = (Vec::new(), left);
    for bank in &claim.ram {
        let inside = |piece: &Range| {
            let start = piece.start.max(bank.start);
            Range { start, len: piece.end().min(bank.end()).saturating_sub(start) }
        };
        all.extend(rest.iter().map(inside).filter(|r| r.len > 0).map(|r| give(r, true)));
        rest = rest.into_iter().flat_map(|piece| without(piece, *bank)).collect();
    }
    all.extend(rest.into_iter().map(|r| give(r, false)));
    all
}

/// A page of registers that such a Linux reads.
fn read_only(claim: &Claim, index: usize, at: u64) -> Given {
    Given {
        address: at,
        frame: at,
        len: claim.arch.places().page,
        write: false,
        execute: false,
        device: true,
        dma: false,
        may: false,
        place: claim.sandboxes[index].place.clone(),
    }
}

/// The page in which a core of such a Linux can have its own registers for interrupts. It reads them.
fn controller(claim: &Claim, index: usize) -> Option<Given> {
    let &Places { page, machine: [_, monitors], .. } = claim.arch.places();
    (monitors.len > 0).then(|| Given {
        address: monitors.start,
        frame: monitors.start,
        len: page,
        write: false,
        execute: false,
        device: true,
        dma: false,
        may: true,
        place: claim.sandboxes[index].place.clone(),
    })
}

/// Lists the RAM of such a Linux that its monitor reads instructions in: all but the block and the start-up code.
pub fn memory(claim: &Claim) -> Vec<Range> {
    let &Places { page, start_code, .. } = claim.arch.places();
    let start_code = start_code.map(|start| Range { start, len: page });
    let mut left = claim.ram.clone();
    for gone in claim.block.into_iter().chain(start_code) {
        left = left.into_iter().flat_map(|piece| without(piece, gone)).collect();
    }
    left
}

/// The parts of a range before and behind another one.
fn without(range: Range, gone: Range) -> impl Iterator<Item = Range> {
    let before = gone.start.clamp(range.start, range.end());
    let behind = gone.end().clamp(range.start, range.end());
    let parts = [(range.start, before), (behind.max(before), range.end())];
    parts.into_iter().map(|(start, end)| Range { start, len: end - start }).filter(|r| r.len > 0)
}

/// Whole pages around a range.
pub fn pages(range: Range, page: u64) -> impl Iterator<Item = Range> {
    let first = range.start / page * page;
    (first..range.end()).step_by(page as usize).map(move |start| Range { start, len: page })
}

impl Function {
    /// Pages of its registers that its owner's guest reaches.
    pub(crate) fn registers(&self, page: u64) -> impl Iterator<Item = Range> {
        let all = self.bars.iter().flat_map(move |bar| pages(*bar, page));
        all.filter(|own| !self.mediated.iter().any(|mediated| overlaps(*mediated, *own)))
    }
}

/// Tells if ranges share an address.
pub fn overlaps(a: Range, b: Range) -> bool {
    a.start < b.end() && b.start < a.end()
}

/// A page has the rights of all segments that it holds a byte of; RAM without a
/// segment can be written.
fn rights(segments: &[Segment], page: Range) -> (bool, bool) {
    let on_it = segments.iter().filter(|s| overlaps(page, Range { start: s.address, len: s.len }));
    let rights = on_it.map(|s| (s.write, s.execute));
    rights.reduce(|a, b| (a.0 | b.0, a.1 | b.1)).unwrap_or(RW)
}

/// Joins neighbours with equal rights into one range.
fn merged(mut all: Vec<Given>) -> Vec<Given> {
    all.sort_by_key(|g| g.address);
    let mut out: Vec<Given> = Vec::new();
    for g in all {
        match out.last_mut() {
            Some(l)
                if l.address + l.len == g.address
                    && l.frame + l.len == g.frame
                    && (l.write, l.execute, l.device) == (g.write, g.execute, g.device)
                    && (l.dma, l.may) == (g.dma, g.may) =>
            {
                l.len += g.len;
            }
            _ => out.push(g),
        }
    }
    out
}

/// The range that gives what a page leads to.
pub fn given_for(given: &[Given], address: u64, frame: u64, size: u64) -> Option<usize> {
    let n = given.partition_point(|g| g.address <= address).checked_sub(1)?;
    let g = &given[n];
    let offset = address - g.address;
    (offset.checked_add(size)? <= g.len && g.frame + offset == frame).then_some(n)
}

/// Says what is given at an address, elsewhere or otherwise: words about what would be right.
pub fn right_at(given: &[Given], address: u64) -> String {
    let n = given.partition_point(|g| g.address <= address);
    match n.checked_sub(1).map(|n| &given[n]).filter(|g| address - g.address < g.len) {
        Some(g) => format!(
            "{address:#x} leads to {:#x}, {}",
            g.frame + (address - g.address),
            letters(g.write, g.execute)
        ),
        None => format!("nothing at {address:#x}"),
    }
}

/// In a mailbox, the words of links; phases of one.
const LINK_WORDS: u64 = 0x408;
const IDLE: u64 = 0;
const GONE: u64 = 1;
const OPEN: u64 = 3;
const LEAVING: u64 = 4;
const LOSING: u64 = 5;

impl Context<'_> {
    /// A page that stands for the configuration of a function which is not there, or for a part of a channel's window
    /// that nobody has. It is all ones, read only, of the image.
    pub(crate) fn is_absent(&self, i: usize, leaf: &Leaf) -> bool {
        let ends = &self.claim.sandboxes[i].ends;
        let &Places { page, function, configuration, .. } = self.claim.arch.places();
        let absent = if configuration.contains(leaf.address) {
            let bdf = ((leaf.address - configuration.start) / function) as u16;
            let mut all = self.claim.functions.iter();
            !all.any(|f| self.claim.has(i, f) && f.bdf == bdf) && !ends.iter().any(|e| e.bdf == bdf)
        } else {
            ends.iter().any(|end| end.memory.contains(leaf.address))
        };
        absent
            && leaf.size == page
            && !leaf.write
            && !leaf.execute
            && self.claim.image.contains(leaf.frame)
            && reads(self.words.memory(), leaf.frame, &vec![0xFF; page as usize])
    }

    /// A page that stands for memory which was taken from a guest with a channel made at run time. It is zeros or, for
    /// the page that the guest wrote, a page of the image for this guest alone.
    pub(crate) fn is_taken(&self, i: usize, leaf: &Leaf) -> bool {
        let links = self.claim.links.iter().filter(|s| s.owner != i && s.to.contains(&i));
        let within =
            |s: &&crate::claim::Link| Range { start: s.gpa, len: s.len }.contains(leaf.address);
        let page = self.page();
        links.clone().find(within).is_some_and(|link| {
            let own = leaf.address == link.gpa + link.len - page;
            leaf.size == page
                && !leaf.execute
                && leaf.write == own
                && self.claim.image.contains(leaf.frame)
                && !self.parts.iter().any(|part| part.frames.contains_key(&leaf.frame))
                && (own || reads(self.words.memory(), leaf.frame, &vec![0; page as usize]))
        })
    }

    /// Checks that a guest has of each link what its monitor's word in its mailbox says (docs/links.md).
    pub(crate) fn links(&mut self, i: usize, regime: &Regime) {
        let mailbox = self.parts[i].mailboxes.get(i).copied();
        let claim = self.claim;
        for (n, link) in claim.links.iter().enumerate().filter(|(_, link)| link.concerns(i)) {
            let word = mailbox.and_then(|at| self.words.word(at + LINK_WORDS + n as u64 * 8));
            let window = Range { start: link.gpa, len: link.len };
            let there = regime.leaves.iter().filter(|leaf| window.contains(leaf.address));
            let (mut own, mut taken) = (0, 0);
            for leaf in there {
                if claim.in_link(leaf.frame).is_some() {
                    own += leaf.size;
                    continue;
                }
                taken += leaf.size;
                let here = (i, leaf.address);
                let first = leaf.write.then(|| *self.instead.entry(leaf.frame).or_insert(here));
                // This holds for one guest, too: two of a kernel's links can be two programs'.
                if let Some((first, address)) = first.filter(|first| *first != here) {
                    let (who, first) = (self.name(i), self.name(first));
                    let message = format!(
                        "in place of link {n} {who} writes a page that {first} has at {address:#x}, too"
                    );
                    self.find(
                        "nested-map",
                        &link.place,
                        Some(leaf.frame),
                        message,
                        "a page of its own",
                    );
                }
            }
            let right = match word.map(|word| word & 7) {
                Some(IDLE | LEAVING) => (0, 0),
                Some(OPEN) => (link.len, 0),
                Some(GONE | LOSING) => (0, link.len),
                // A core is at it.
                _ => continue,
            };
            if (own, taken) != right {
                let who = self.name(i);
                let message = format!(
                    "{who} has {own:#x} bytes of link {n} and {taken:#x} in place of it, in phase {}",
                    word.unwrap_or_default() & 7
                );
                let right = format!("{:#x} and {:#x}", right.0, right.1);
                self.find("links", &link.place, Some(link.hpa), message, right);
            }
        }
    }

    /// Compares a guest's mappings with its grants: beyond them, with other rights, missing ones, and sizes.
    pub(crate) fn guest(&mut self, i: usize, regime: &Regime, given: &[Given]) {
        let who = self.name(i).to_owned();
        let place = self.claim.sandboxes[i].place.clone();
        // Single pages of the second size are taken out of a running Linux' tables.
        let sizes = self.claim.arch.places().larger;
        let most = if self.claim.sandboxes[i].running { 1 } else { sizes.len() };
        let mut covered = vec![0; given.len()];
        for leaf in &regime.leaves {
            let (at, frame) = (leaf.address, leaf.frame);
            let found = given_for(given, at, frame, leaf.size);
            let mmio = found.is_some_and(|n| given[n].device);
            if !leaf.user || !leaf.suits(mmio) {
                let message = format!("{who}'s entry {:#x} for {at:#x}", leaf.entry);
                let right = if mmio { "a page of a device" } else { "a user page, write-back" };
                self.find("encoding", &place, Some(frame), message, right);
            }
            if found.is_none() && (self.is_absent(i, leaf) || self.is_taken(i, leaf)) {
                continue;
            }
            let Some(n) = found else {
                let whose = self.owner(frame);
                let size = leaf.size;
                let message =
                    format!("{who} reaches {frame:#x} ({whose}) at {at:#x}, {size:#x} bytes");
                self.find("nested-map", &place, Some(frame), message, right_at(given, at));
                continue;
            };
            covered[n] += leaf.size;
            let (has, may) = ((leaf.write, leaf.execute), (given[n].write, given[n].execute));
            if has != may {
                let (has, may) = (letters(has.0, has.1), letters(may.0, may.1));
                let message = format!("{who} has {has} at {at:#x}, not {may}");
                self.find("nested-rights", &given[n].place, Some(frame), message, may);
            }
            if let Some(size) = larger(&sizes[..most], leaf, &given[n]) {
                let message = format!("{who} has {:#x} bytes at {at:#x}", leaf.size);
                let right = format!("a page of {size:#x} bytes");
                self.find("page-sizes", &given[n].place, Some(frame), message, right);
            }
        }
        for (g, covered) in
            given.iter().zip(covered).filter(|(g, covered)| !g.may && g.len != *covered)
        {
            let message =
                format!("{who} has {covered:#x} of {:#x} bytes at {:#x}", g.len, g.address);
            let right = format!("all of it, {}", letters(g.write, g.execute));
            self.find("nested-missing", &g.place, Some(g.frame), message, right);
        }
    }
}

/// A larger page that fits around a leaf.
fn larger(sizes: &[u64], leaf: &Leaf, g: &Given) -> Option<u64> {
    sizes.iter().copied().filter(|s| *s > leaf.size).find(|size| {
        let start = leaf.address & !(size - 1);
        let fits = start >= g.address && start + size <= g.address + g.len;
        fits && (g.frame + (start - g.address)).is_multiple_of(*size)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Sandbox;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn a_linux_that_ran_before_has_the_machine_but_what_is_others() {
        let running = Sandbox { running: true, ..Sandbox::default() };
        let range = |start, len| Range { start, len };
        let claim = Claim {
            ram: vec![range(0, 2 * GIB), range(4 * GIB, GIB + 0x5000)],
            block: Some(range(1792 * MIB, 128 * MIB)),
            sandboxes: vec![Sandbox::default(), running],
            ..Claim::default()
        };
        let parts = vec![Parts { info: Some(1800 * MIB), ..Parts::default() }; 2];
        let given = to_guests(&claim, &parts, 1).swap_remove(0);
        let has = |at: u64| given_for(&given, at, at, 4096).is_some_and(|n| given[n].execute);
        for at in [0, 0x7000, 0x9000, 1792 * MIB - 4096, 1920 * MIB, 2 * GIB, 0xFEC0_0000] {
            assert!(has(at), "{at:#x}");
        }
        assert!(has(0xFEDF_F000) && has(0xFEF0_0000) && has(5 * GIB + 0x4000));
        for at in [0x8000, 1792 * MIB, 1920 * MIB - 4096, 0xFEE0_0000, 0xFEEF_F000] {
            assert!(!has(at), "{at:#x}");
        }
        assert!(!has(5 * GIB + 0x5000));
        // The information page is shown in place of the machine's.
        let info = given_for(&given, 0xD000_0000, 1800 * MIB, 4096).expect("it is shown");
        assert!(!given[info].write && !has(0xD000_0000) && has(0xD000_1000));
        let owners = [0, 0x8000, 1792 * MIB, 5 * GIB].map(|at| claim.in_ram_of(at));
        assert_eq!(owners, [Some(1), None, None, Some(1)]);
    }
}
