//! The nested tables: what a sandbox reaches.

use crate::guest::Guest;
use crate::pages::{Pages, Tables};
use crate::{Error, end, pci};
use bulkhead_arch::{MapError, Memory, Rights, Stage2, TableMemory};
use bulkhead_layout::map::{ECAM_GPA, INFO_GPA, REPORT_STRIDE, REPORTS_GPA};
use bulkhead_layout::{PAGE, report};
use bulkhead_plan::{Plan, Span};

/// A range of guest-physical addresses and what it leads to.
pub struct Mapping {
    /// Guest-physical address.
    pub gpa: u64,
    /// Host-physical address.
    pub hpa: u64,
    /// Bytes.
    pub len: u64,
    /// Rights.
    pub rights: Rights,
}

/// What a sandbox and its devices reach: its RAM with its rights, and its channels.
pub fn own_memory(plan: &Plan, index: usize, guest: &Guest) -> Vec<Mapping> {
    let mut all = Vec::new();
    for ram in &plan.sandboxes[index].ram {
        let mut at = ram.gpa;
        let mut add = |first: u64, end: u64, rights| {
            let hpa = ram.hpa + (first - ram.gpa);
            all.push(Mapping { gpa: first, hpa, len: end - first, rights });
        };
        let inside = |s: &&(u64, u64, Rights)| s.0 >= ram.gpa && s.1 <= ram.gpa + ram.len;
        for &(first, end, rights) in guest.segments.iter().filter(inside) {
            add(at, first, guest.default_rights);
            add(first, end, rights);
            at = end;
        }
        add(at, ram.gpa + ram.len, guest.default_rights);
    }
    for c in &plan.channels {
        let rights = match c.from == index {
            true => Rights::RW,
            false if c.to.contains(&index) => Rights::R,
            false => continue,
        };
        all.push(Mapping { gpa: c.gpa, hpa: c.hpa, len: c.len, rights });
    }
    all.retain(|m| m.len > 0);
    all
}

/// What a sandbox is shown of the image.
pub struct Shown<'a> {
    /// Its information page.
    pub info: u64,
    /// All sandboxes' reports.
    pub reports: &'a [u64],
    /// Its ends of channels.
    pub ends: &'a [end::Made],
}

/// A slot for a channel made at run time, in the tables of a party.
pub struct Slot {
    /// Its number.
    pub number: usize,
    /// The table of its entries, and nobody else's: physical address.
    pub table: u64,
    /// Its entries while the guest has it.
    pub open: Vec<u64>,
    /// Its entries while it was taken from the guest: pages of zeros, and one to write to.
    pub gone: Vec<u64>,
}

/// Makes room for the slots of a sandbox below the root of its nested tables. No entry is there yet.
pub fn slots<F: Stage2>(
    pages: &mut Pages,
    plan: &Plan,
    index: usize,
    root: u64,
) -> Result<Vec<Slot>, Error> {
    let own = plan.slots.iter().enumerate().filter(|(_, slot)| slot.concerns(index));
    let own: Vec<_> = own.collect();
    let other = own.iter().any(|(_, slot)| slot.owner != index);
    let zeros = if other { pages.take(PAGE) } else { 0 };
    let mut all = Vec::new();
    for (number, slot) in own {
        let mine = slot.owner == index;
        let rights = |first: bool| if first == mine { Rights::RW } else { Rights::R };
        let mut tables = Tables::<F>::below(pages, root);
        tables.map(slot.gpa, slot.hpa, slot.sent(), rights(true))?;
        tables.map(slot.gpa + slot.sent(), slot.hpa + slot.sent(), PAGE, rights(false))?;
        let count = (slot.len / PAGE) as usize;
        let lowest = bulkhead_arch::lowest::<F>(pages, root, slot.gpa);
        let alone = |table: &u64| {
            let mut others = count..512;
            others.all(|n| TableMemory::read(pages, *table, n) == F::empty())
        };
        let table = lowest.filter(alone).ok_or(MapError::Overlap(slot.gpa))?;
        let open = (0..count).map(|n| TableMemory::read(pages, table, n)).collect();
        (0..count).for_each(|n| TableMemory::write(pages, table, n, F::empty()));
        let mut gone = Vec::new();
        if !mine {
            gone = vec![F::page(zeros, Rights::R, Memory::Normal, 0); count - 1];
            // A page for each: two slots of a kernel can be two programs', which have nothing else in common.
            gone.push(F::page(pages.take(PAGE), Rights::RW, Memory::Normal, 0));
        }
        all.push(Slot { number, table, open, gone });
    }
    Ok(all)
}

/// The nested tables: own memory, what it is shown, devices' registers. Gives the root.
pub fn tables<F: Stage2>(
    pages: &mut Pages,
    plan: &Plan,
    index: usize,
    memory: &[Mapping],
    shown: &Shown,
) -> Result<u64, Error> {
    let sandbox = &plan.sandboxes[index];
    let mut tables = Tables::<F>::new(pages);
    for m in memory {
        tables.map(m.gpa, m.hpa, m.len, m.rights)?;
    }
    tables.map(INFO_GPA, shown.info, PAGE, Rights::R)?;
    for &o in &sandbox.observe {
        let len = report::size(plan.sandboxes[o].cores.len());
        tables.map(REPORTS_GPA + o as u64 * REPORT_STRIDE, shown.reports[o], len, Rights::R)?;
    }
    for span in pci::mapped(&sandbox.functions) {
        tables.device(span.start, span.start, span.len, Rights::RW)?;
    }
    // Functions that are not there read as all ones without an exit: a kernel
    // looks for them hundreds of times.
    let ends = plan.ends(index);
    let absent = pci::absent(&plan.machine, &sandbox.functions, &ends);
    let mut holes: Vec<u64> =
        absent.into_iter().map(|bdf| ECAM_GPA + (u64::from(bdf.0) << 12)).collect();
    for (end, made) in ends.iter().zip(shown.ends) {
        tables.map(end.registers, made.registers, PAGE, Rights::R)?;
        tables.map(end.memory.start, made.states, PAGE, Rights::R)?;
        let own = memory.iter().map(|m| Span { start: m.gpa, len: m.len });
        let own: Vec<Span> = own.filter(|m| end.memory.encloses(*m)).collect();
        // Behind the states; what nobody has of a section, or of the window, reads as absent memory does.
        let all = (end.memory.start + PAGE..end.memory.end()).step_by(PAGE as usize);
        holes.extend(all.filter(|page| !own.iter().any(|m| m.contains(*page))));
    }
    if !holes.is_empty() {
        let ones = tables.pages.put(&[0xFF; PAGE as usize]);
        for page in holes {
            tables.map(page, ones, PAGE, Rights::R)?;
        }
    }
    Ok(tables.root.unwrap_or_default())
}
