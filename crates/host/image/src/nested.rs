//! The nested tables: what a sandbox reaches.

use crate::guest::Guest;
use crate::pages::Pages;
use crate::space::Space;
use crate::{Error, end, pci};
use bulkhead_arch::{MapError, Memory, Rights, Stage2, TableMemory};
use bulkhead_layout::PAGE;
use bulkhead_plan::{Access, Plan, Ram, Reach, Span, What};

/// Memory that a sandbox and its devices reach: its RAM with its rights, and its channels.
pub fn own_memory(plan: &Plan, index: usize, guest: &Guest) -> Space {
    let mut all = Space::default();
    for Reach { at, len, access, what } in plan.reach(index) {
        match what {
            What::Ram(hpa) => ram(&mut all, Ram { gpa: at, hpa, len }, guest),
            What::Channel(n) => {
                let rights = if access == Access::Write { Rights::RW } else { Rights::R };
                all.add(at, plan.channels[n].hpa, len, rights, "channel");
            }
            _ => {}
        }
    }
    all.regions.retain(|region| region.len > 0);
    all
}

/// Adds a piece of RAM with the rights of the guest's segments.
fn ram(all: &mut Space, ram: Ram, guest: &Guest) {
    let mut at = ram.gpa;
    let mut add = |first: u64, end: u64, rights| {
        all.add(first, ram.hpa + (first - ram.gpa), end - first, rights, "RAM");
    };
    let inside = |s: &&(u64, u64, Rights)| s.0 >= ram.gpa && s.1 <= ram.gpa + ram.len;
    for &(first, end, rights) in guest.segments.iter().filter(inside) {
        add(at, first, guest.default_rights);
        add(first, end, rights);
        at = end;
    }
    add(at, ram.gpa + ram.len, guest.default_rights);
}

/// A role, in the tables of a holder.
pub struct Role {
    /// Its number.
    pub number: usize,
    /// The table of its entries, and nobody else's: physical address.
    pub table: u64,
    /// Its entries while the guest has it.
    pub entries: Vec<u64>,
}

/// Makes room for the roles of a sandbox below the root of its nested tables. No entry is there yet.
pub fn roles<F: Stage2>(
    pages: &mut Pages,
    plan: &Plan,
    index: usize,
    root: u64,
) -> Result<Vec<Role>, Error> {
    let mut all = Vec::new();
    for (number, role) in plan.roles_of(index) {
        let mut space = Space::default();
        let mut end = role.gpa;
        for channel in &plan.channels {
            let own = channel.stands(index).is_some_and(|stand| stand.role == number);
            if own && channel.len > 0 {
                let rights = if channel.writes(index) { Rights::RW } else { Rights::R };
                space.add(channel.gpa, channel.hpa, channel.len, rights, "role");
                end = end.max(channel.gpa + channel.len);
            }
        }
        if end == role.gpa {
            // A role can be without memory.
            all.push(Role { number, table: 0, entries: Vec::new() });
            continue;
        }
        space.bake::<F>(pages, Some(root))?;
        let first = space.regions.first().map_or(role.gpa, |region| region.at);
        let table = bulkhead_arch::lowest::<F>(pages, root, first);
        let table = table.ok_or(MapError::Overlap(role.gpa))?;
        let count = ((end - role.gpa) / F::PAGE) as usize;
        let entries = (0..count).map(|n| TableMemory::read(pages, table, n)).collect();
        let whole = 0..bulkhead_arch::entries::<F>();
        whole.for_each(|n| TableMemory::write(pages, table, n, F::empty()));
        all.push(Role { number, table, entries });
    }
    Ok(all)
}

/// Parts of the image that a sandbox is shown.
pub struct Shown<'a> {
    /// Its information page.
    pub info: u64,
    /// Its progress words.
    pub progress: Option<u64>,
    /// Words of its roles.
    pub roles: Option<u64>,
    /// Its snapshots.
    pub snapshots: Option<u64>,
    /// All sandboxes' reports.
    pub reports: &'a [u64],
    /// Its ends of channels.
    pub ends: &'a [end::Made],
}

/// A link, in the tables of a party.
pub struct Link {
    /// Its number.
    pub number: usize,
    /// The table of its entries, and nobody else's: physical address.
    pub table: u64,
    /// Its entries while the guest has it.
    pub open: Vec<u64>,
    /// Its entries while it was taken from the guest: pages of zeros, and one to write to.
    pub gone: Vec<u64>,
}

/// Makes room for the links of a sandbox below the root of its nested tables. No entry is there yet.
pub fn links<F: Stage2>(
    pages: &mut Pages,
    plan: &Plan,
    index: usize,
    root: u64,
) -> Result<Vec<Link>, Error> {
    let own = plan.links.iter().enumerate().filter(|(_, link)| link.concerns(index));
    let own: Vec<_> = own.collect();
    let other = own.iter().any(|(_, link)| link.owner != index);
    let zeros = if other { pages.take(F::PAGE) } else { 0 };
    let mut all = Vec::new();
    for (number, link) in own {
        let mine = link.owner == index;
        let rights = |first: bool| if first == mine { Rights::RW } else { Rights::R };
        let mut space = Space::default();
        space.add(link.gpa, link.hpa, link.sent, rights(true), "link");
        let (at, behind) = (link.gpa + link.sent, link.hpa + link.sent);
        space.add(at, behind, link.len - link.sent, rights(false), "link");
        space.bake::<F>(pages, Some(root))?;
        let count = (link.len / F::PAGE) as usize;
        let lowest = bulkhead_arch::lowest::<F>(pages, root, link.gpa);
        let alone = |table: &u64| {
            let mut others = count..bulkhead_arch::entries::<F>();
            others.all(|n| TableMemory::read(pages, *table, n) == F::empty())
        };
        let table = lowest.filter(alone).ok_or(MapError::Overlap(link.gpa))?;
        let open = (0..count).map(|n| TableMemory::read(pages, table, n)).collect();
        (0..count).for_each(|n| TableMemory::write(pages, table, n, F::empty()));
        let mut gone = Vec::new();
        if !mine {
            gone = vec![F::page(zeros, Rights::R, Memory::Normal, 0); count - 1];
            // A page for each: two links of a kernel can be two programs', which have nothing else in common.
            gone.push(F::page(pages.take(F::PAGE), Rights::RW, Memory::Normal, 0));
        }
        all.push(Link { number, table, open, gone });
    }
    Ok(all)
}

/// The nested tables: own memory, what it is shown, devices' registers. Gives the space and the root.
pub fn tables<F: Stage2>(
    pages: &mut Pages,
    plan: &Plan,
    index: usize,
    mut space: Space,
    shown: &Shown,
) -> Result<(Space, u64), Error> {
    let sandbox = &plan.sandboxes[index];
    let own: Vec<Span> = space.regions.iter().map(|m| Span { start: m.at, len: m.len }).collect();
    let reach = plan.reach(index);
    let of_image = |space: &mut Space, page: &dyn Fn(What) -> Option<(u64, &'static str)>| {
        for &Reach { at, len, what, .. } in &reach {
            if let Some((pa, why)) = page(what) {
                space.add(at, pa, len, Rights::R, why);
            }
        }
    };
    of_image(&mut space, &|what| match what {
        What::Info => Some((shown.info, "information page")),
        What::Roles => shown.roles.map(|pa| (pa, "roles")),
        What::Snapshots => shown.snapshots.map(|pa| (pa, "snapshots")),
        What::Report(other) => Some((shown.reports[other], "report of an observed sandbox")),
        _ => None,
    });
    let progress = reach.iter().filter(|reach| reach.what == What::Progress);
    for (words, pa) in progress.zip(shown.progress) {
        space.add(words.at, pa, words.len, Rights::RW, "progress words");
    }
    for span in pci::mapped(&sandbox.functions, F::PAGE) {
        space.device(span.start, span.start, span.len, Rights::RW, "registers of a function");
    }
    of_image(&mut space, &|what| match what {
        What::Registers(n) => Some((shown.ends[n].registers, "registers of a channel's end")),
        What::States(n) => Some((shown.ends[n].states, "states of a channel's peers")),
        _ => None,
    });
    // Functions that are not there read as all ones without an exit: a kernel
    // looks for them hundreds of times.
    let ends = plan.ends(index);
    let absent = pci::absent(&plan.machine, &sandbox.functions, &ends);
    let facts = plan.machine.arch.facts();
    let hole = |bdf| facts.configuration(facts.guest.configuration, bdf).start;
    let mut holes: Vec<u64> = absent.into_iter().map(hole).collect();
    for end in &ends {
        let own: Vec<&Span> = own.iter().filter(|m| end.memory.encloses(**m)).collect();
        // Behind the states; what nobody has of a section, or of the window, reads as absent memory does.
        let all = (end.memory.start + PAGE..end.memory.end()).step_by(PAGE as usize);
        holes.extend(all.filter(|page| !own.iter().any(|m| m.contains(*page))));
    }
    let mut root = space.bake::<F>(pages, None)?;
    if !holes.is_empty() {
        let ones = pages.put(&vec![0xFF; F::PAGE as usize]);
        let mut absent = Space::default();
        holes.iter().for_each(|at| absent.add(*at, ones, F::PAGE, Rights::R, "nothing: all ones"));
        root = absent.bake::<F>(pages, root)?;
        space.regions.extend(absent.regions);
    }
    Ok((space, root.unwrap_or_default()))
}
