//! The nested tables: what a sandbox reaches.

use crate::guest::Guest;
use crate::pages::Pages;
use crate::space::Space;
use crate::target::Target;
use crate::{Error, end, pci};
use bulkhead_arch::{Entry, MapError, Memory, PageFormat, Rights, Stage2, TableMemory};
use bulkhead_layout::PAGE;
use bulkhead_layout::map::ROLE_TABLES_VA;
use bulkhead_layout::role::ROLES;
use bulkhead_plan::{Access, BarKind, End, Granted, Plan, Ram, Reach, Span, What};
use std::collections::BTreeMap;
use std::marker::PhantomData;

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
    /// Tables that its monitor fills while the guest has it.
    pub pieces: Vec<Piece>,
}

/// A table of the guest's with entries of a role, and nobody else's.
pub struct Piece {
    /// Number among the sandbox's: [`ROLES`] and above are of functions.
    number: usize,
    /// The table: physical address.
    pub table: u64,
    /// Number of the first entry that is used.
    pub first: usize,
    /// The entries from there on while the guest has the role.
    pub entries: Vec<u64>,
}

impl Piece {
    /// Address of the table in the monitor's address space.
    pub fn at(&self, page: u64) -> u64 {
        ROLE_TABLES_VA + self.number as u64 * page
    }
}

/// Makes room for the roles of a sandbox below the root of its nested tables. No entry is there yet.
pub fn roles<F: Stage2>(
    pages: &mut Pages,
    plan: &Plan,
    index: usize,
    root: u64,
) -> Result<Vec<Role>, Error> {
    let mut all = Vec::new();
    let mut functions = ROLES..;
    for (number, _) in plan.roles_of(index) {
        let mut memory = Space::default();
        for channel in &plan.channels {
            let own = channel.stands(index).is_some_and(|stand| stand.role == number);
            if own && channel.len > 0 {
                let rights = if channel.writes(index) { Rights::RW } else { Rights::R };
                memory.add(channel.gpa, channel.hpa, channel.len, rights, "role");
            }
        }
        let own = plan.sandboxes[index].functions.iter().filter(|one| one.role == Some(number));
        let own: Vec<Granted> = own.cloned().collect();
        let mut windows: BTreeMap<u64, Space> = BTreeMap::new();
        for page in pci::mapped(&own, F::PAGE).iter().flat_map(|span| each::<F>(*span)) {
            let window = page / (F::PAGE * bulkhead_arch::entries::<F>() as u64);
            let space = windows.entry(window).or_default();
            space.device(page, page, F::PAGE, Rights::RW, "registers of a role's function");
        }
        // A role can be without memory.
        let memory = Some(memory).filter(|memory| !memory.regions.is_empty());
        let memory = memory.map(|memory| (number, memory));
        let windows = windows.into_values().map(|space| (functions.next().unwrap_or(ROLES), space));
        let mut pieces = Vec::new();
        for (number, space) in memory.into_iter().chain(windows) {
            pieces.push(piece::<F>(pages, root, number, &space)?);
        }
        all.push(Role { number, pieces });
    }
    Ok(all)
}

/// Pages of a span.
fn each<F: Stage2>(span: Span) -> impl Iterator<Item = u64> {
    (span.start..span.end()).step_by(F::PAGE as usize)
}

/// Bakes memory into a table of its own, and takes the entries out of it.
fn piece<F: Stage2>(
    pages: &mut Pages,
    root: u64,
    number: usize,
    space: &Space,
) -> Result<Piece, Error> {
    let at = space.regions.iter().map(|region| region.at).min().unwrap_or(0);
    // An entry that is there already is the guest's for good, and the monitor would take it.
    let before = bulkhead_arch::lowest::<F>(pages, root, at);
    let whole = || 0..bulkhead_arch::entries::<F>();
    let used =
        |pages: &Pages, table: u64, n: usize| TableMemory::read(pages, table, n) != F::empty();
    if before.is_some_and(|table| whole().any(|n| used(pages, table, n))) {
        return Err(MapError::Overlap(at).into());
    }
    space.bake::<F>(pages, Some(root))?;
    let table = bulkhead_arch::lowest::<F>(pages, root, at).ok_or(MapError::Overlap(at))?;
    let first = whole().find(|n| used(pages, table, *n)).unwrap_or(0);
    let end = whole().rev().find(|n| used(pages, table, *n)).map_or(first, |n| n + 1);
    let entries = (first..end).map(|n| TableMemory::read(pages, table, n)).collect();
    whole().for_each(|n| TableMemory::write(pages, table, n, F::empty()));
    Ok(Piece { number, table, first, entries })
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

/// Returns own memory and what a sandbox is shown, and devices' registers.
fn reached<F: Stage2>(plan: &Plan, index: usize, mut space: Space, shown: &Shown) -> Space {
    let sandbox = &plan.sandboxes[index];
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
    let kept = sandbox.functions.iter().filter(|granted| granted.role.is_none());
    for span in pci::mapped(&kept.cloned().collect::<Vec<_>>(), F::PAGE) {
        space.device(span.start, span.start, span.len, Rights::RW, "registers of a function");
    }
    for part in reach.iter().filter(|part| part.access != Access::Trap) {
        if let What::Shared(_) = part.what {
            let rights = if part.access == Access::Write { Rights::RW } else { Rights::R };
            space.device(part.at, part.at, part.len, rights, "shared registers");
        }
    }
    of_image(&mut space, &|what| match what {
        What::Registers(n) => Some((shown.ends[n].registers, "registers of a channel's end")),
        What::States(n) => Some((shown.ends[n].states, "states of a channel's peers")),
        _ => None,
    });
    space
}

/// A format with pages of two sizes: the smallest ones, and those of the level above.
pub struct Small<F>(PhantomData<F>);

impl<F: PageFormat> PageFormat for Small<F> {
    const PAGE: u64 = F::PAGE;
    const LEVELS: u32 = F::LEVELS;
    const LARGEST: u32 = if F::LARGEST > 1 { 1 } else { F::LARGEST };

    fn page(pa: u64, rights: Rights, memory: Memory, level: u32) -> u64 {
        F::page(pa, rights, memory, level)
    }

    fn table(pa: u64, level: u32) -> u64 {
        F::table(pa, level)
    }

    fn decode(entry: u64, level: u32) -> Entry {
        F::decode(entry, level)
    }

    fn empty() -> u64 {
        F::empty()
    }
}

/// Content of the page with the machine's timer, which could send messages.
pub const TIMER: &str = "the machine's timer";
/// Content of the page with a core's registers for interrupts.
pub const CONTROLLER: &str = "a core's own interrupt controller";

/// Registers of the machine that a Linux which runs already does not reach, where its devices are confined.
fn mediated(plan: &Plan, index: usize) -> Vec<Span> {
    let (machine, facts) = (&plan.machine, plan.machine.arch.facts());
    let functions = plan.sandboxes[index].functions.iter();
    let space = machine.pci.as_ref().map(|root| root.space(facts));
    let lines = machine.controller.map(|lines| Span { start: lines.base(), len: facts.page });
    let unit = machine.iommu.map(|iommu| iommu.registers());
    let others = plan.sandboxes.iter().enumerate().filter(|(n, _)| *n != index);
    // Functions of others decode their addresses still.
    let others = others.flat_map(|(_, other)| &other.functions).flat_map(|own| &own.function.bars);
    let bars =
        others.filter(|bar| bar.kind != BarKind::Io).map(|bar| bar.span.pages_of(facts.page));
    let traps = functions.map(|own| pci::trap(&own.function, facts.page));
    [space, lines, unit]
        .into_iter()
        .flatten()
        .chain(traps.filter(|t| t.len > 0))
        .chain(bars)
        .collect()
}

/// The nested tables of a Linux that runs already. It reaches RAM and the devices that the machine description names,
/// at their own addresses. The late boot code takes out the pages of the block. Pages that it is shown take the place
/// of the machine's there.
pub fn under_linux<T: Target>(
    pages: &mut Pages,
    plan: &Plan,
    index: usize,
    space: Space,
    shown: &Shown,
) -> Result<(Space, u64), Error> {
    let (ends, own) = (plan.ends(index), spans(&space));
    let mut space = reached::<T::Nested>(plan, index, space, shown);
    let facts = plan.machine.arch.facts();
    let [low, monitors] = T::MACHINE;
    if let Some(timer) = &plan.machine.hpet {
        space.device(timer.base, timer.base, facts.page, Rights::R, TIMER);
    }
    for (_, span) in plan.withheld(low) {
        space.device(span.start, span.start, span.len, Rights::R, "a device that is nobody's");
    }
    let start_code = facts.start_code.map(|start| Span { start, len: facts.page });
    let links = plan.links.iter().filter(|link| link.concerns(index));
    let mut holes: Vec<Span> = start_code.into_iter().chain([monitors]).collect();
    // No other memory shares a link's table of entries.
    holes.extend(links.map(|link| Span { start: link.gpa, len: facts.guest.link_stride }));
    holes.extend(space.regions.iter().map(|region| Span { start: region.at, len: region.len }));
    holes.extend(mediated(plan, index));
    for end in &ends {
        holes.extend([Span { start: end.registers, len: end.pages() }, end.memory]);
    }
    holes.extend(plan.unnamed(low));
    let high = plan.machine.banks.iter().flat_map(|bank| bank.without(low));
    let mut left: Vec<Span> = [low].into_iter().chain(high).collect();
    for hole in holes {
        left = left.into_iter().flat_map(|piece| piece.without(hole)).collect();
    }
    left.iter().for_each(|all| space.add(all.start, all.start, all.len, Rights::RWX, "machine"));
    // A core can have its own interrupt controller's registers there. The late boot code takes the page out if not.
    if monitors.len > 0 {
        let (at, len) = (monitors.start, facts.page);
        space.device(at, at, len, Rights::R, CONTROLLER);
    }
    let root = space.bake::<Small<T::Nested>>(pages, None)?;
    let root = ones::<Small<T::Nested>>(pages, &mut space, &windows(&ends, &own), root)?;
    Ok((space, root.unwrap_or_default()))
}

/// The nested tables: own memory, what it is shown, devices' registers. Gives the space and the root.
pub fn tables<F: Stage2>(
    pages: &mut Pages,
    plan: &Plan,
    index: usize,
    space: Space,
    shown: &Shown,
) -> Result<(Space, u64), Error> {
    let sandbox = &plan.sandboxes[index];
    let own = spans(&space);
    let mut space = reached::<F>(plan, index, space, shown);
    // Functions that are not there read as all ones without an exit: a kernel
    // looks for them hundreds of times.
    let ends = plan.ends(index);
    let absent = pci::absent(&plan.machine, &sandbox.functions, &ends);
    let facts = plan.machine.arch.facts();
    let hole = |bdf| facts.configuration(facts.guest.configuration, bdf).start;
    let mut holes: Vec<u64> = absent.into_iter().map(hole).collect();
    holes.extend(windows(&ends, &own));
    let root = space.bake::<F>(pages, None)?;
    let root = ones::<F>(pages, &mut space, &holes, root)?;
    Ok((space, root.unwrap_or_default()))
}

fn spans(space: &Space) -> Vec<Span> {
    space.regions.iter().map(|m| Span { start: m.at, len: m.len }).collect()
}

/// Pages of windows to channels' memory behind the peers' states, but for those of `own` memory.
fn windows(ends: &[End], own: &[Span]) -> Vec<u64> {
    let mut holes = Vec::new();
    for end in ends {
        let own: Vec<&Span> = own.iter().filter(|m| end.memory.encloses(**m)).collect();
        let all = (end.memory.start + PAGE..end.memory.end()).step_by(PAGE as usize);
        holes.extend(all.filter(|page| !own.iter().any(|m| m.contains(*page))));
    }
    holes
}

/// Puts a page of ones in the places of absent ones, as absent memory and functions read.
fn ones<F: PageFormat>(
    pages: &mut Pages,
    space: &mut Space,
    holes: &[u64],
    root: Option<u64>,
) -> Result<Option<u64>, Error> {
    if holes.is_empty() {
        return Ok(root);
    }
    let ones = pages.put(&vec![0xFF; F::PAGE as usize]);
    let mut absent = Space::default();
    holes.iter().for_each(|at| absent.add(*at, ones, F::PAGE, Rights::R, "nothing: all ones"));
    let root = absent.bake::<F>(pages, root)?;
    space.regions.extend(absent.regions);
    Ok(root)
}
