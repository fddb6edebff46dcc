//! Statements about address spaces: for each entry of a table there is a capability.

use crate::tree::{Held, must};
use crate::{Machine, World};
use bulkhead_arch::Entry;
use bulkhead_kernel::abi::{Kind, Rights, at};
use bulkhead_kernel::{Cap, Link, Machine as _, Mapping, PageTable, Ref, Thread};
use std::collections::{HashMap, HashSet};

/// Capabilities to map: by kind, space, address there, and physical address.
type Claims = HashMap<(Kind, u32, u64, u64), Vec<Cap>>;

fn claims(m: &Machine, held: &[Held]) -> Claims {
    let mut claims = Claims::new();
    for cap in held.iter().map(|held| held.content.cap) {
        if !matches!(cap.kind(), Kind::Frame | Kind::Table) {
            continue;
        }
        let Some(Mapping { space, address }) = Mapping::unpack(cap.data) else { continue };
        let pa = match cap.kind() {
            Kind::Frame if cap.flags & Cap::DEVICE != 0 => u64::from(cap.object) << 12,
            Kind::Frame => m.physical(0) + (u64::from(cap.object) << 12),
            _ => m.physical(cap.object),
        };
        claims.entry((cap.kind(), space, address, pa)).or_default().push(cap);
    }
    claims
}

fn is_marked(world: &World, at: u32) -> bool {
    let page = at >> 12;
    let word = Ref::<u64>::new(world.core.spaces).nth(page / 64);
    world.machine.get(word) >> (page % 64) & 1 != 0
}

/// Links that a space shows, by address: true if the sandbox has them, and the table that maps them.
fn links(world: &World) -> HashMap<(u32, u64), (bool, u64)> {
    let m = &world.machine;
    let all = (0..world.core.link_count).map(|n| *m.get(world.core.links.nth(n)));
    let seen = all.filter(|link: &Link| link.slot.cap.is(Kind::Space));
    let number = |link: Link| {
        let address = at::LINKS + u64::from(link.number) * at::LINK;
        let has = m.has >> link.number & 1 != 0;
        ((link.slot.cap.object, address), (has, m.physical(link.table.at())))
    };
    seen.map(number).collect()
}

/// Checks the kernel's knowledge of links: it agrees with the monitor's, and the threads in it exist.
fn check_links(world: &World) -> Result<(), String> {
    let m = &world.machine;
    for n in 0..world.core.link_count {
        let Link { number, thread, open, .. } = *m.get(world.core.links.nth(n));
        let has = m.has >> number & 1 != 0;
        must!(has == (open != 0), "link {number} is {open}, and the sandbox has it: {has}");
        let Some(thread) = thread.some() else { continue };
        must!(m.begins(thread.at(), Kind::Thread), "link {number} is of a thread that was");
        let flags = m.get(thread).flags;
        must!(flags & Thread::LINKS != 0, "link {number} does not end with its thread");
    }
    Ok(())
}

/// Checks all spaces.
pub fn check(world: &World, held: &[Held]) -> Result<(), String> {
    let m = &world.machine;
    let (claims, mut placed) = (claims(m, held), HashSet::new());
    let links = links(world);
    check_links(world)?;
    let spaces: HashSet<u32> =
        m.objects().filter(|(_, kind)| *kind == Kind::Space).map(|(at, _)| at).collect();
    for page in 1..world.core.pages {
        let at = page << 12;
        must!(is_marked(world, at) == spaces.contains(&at), "the bitmap has {at:#x} wrong");
    }
    for root in spaces {
        if let Some((entry, index)) = m.kernel_entry() {
            let kept = m.get(Ref::<PageTable>::new(root)).0[index];
            must!(kept == entry, "the kernel is not in the space {root:#x}");
        }
        for (address, level, entry) in m.walk(root) {
            let link = links.get(&(root, address / at::LINK * at::LINK));
            match (entry, link.filter(|_| level < 2)) {
                (Entry::Table(pa), Some(&(has, table))) => {
                    must!(pa == table, "{pa:#x} at {address:#x}, where a link is seen");
                    must!(has, "the link at {address:#x} is seen, and the sandbox has it not");
                    continue;
                }
                (Entry::Page(pa, ..), Some(_)) => {
                    let own = World::LINK_MEMORY + (address & (at::LINK - 1));
                    must!(pa == own, "{pa:#x} at {address:#x}, in a link");
                    continue;
                }
                _ => (),
            }
            match entry {
                Entry::Page(pa, rights, _) => {
                    must!(!(rights.write && rights.execute), "{address:#x} in {root:#x}: W+X");
                    let mut needed = Rights::READ;
                    for (has, right) in
                        [(rights.write, Rights::WRITE), (rights.execute, Rights::EXECUTE)]
                    {
                        needed = if has { needed.and(right) } else { needed };
                    }
                    let bits = 12 + 9 * level as u8;
                    let by = claims.get(&(Kind::Frame, root, address, pa));
                    let good = |cap: &Cap| cap.bits == bits && cap.rights().has(needed);
                    let stands = by.is_some_and(|caps| caps.iter().any(good));
                    must!(stands, "{pa:#x} at {address:#x} in {root:#x}, {rights:?}: by {by:?}");
                }
                Entry::Table(pa) => {
                    let covers = |address: u64| address >> (12 + 9 * level);
                    let by = |(kind, space, mapped, of): &(Kind, u32, u64, u64)| {
                        (*kind, *space, *of) == (Kind::Table, root, pa)
                            && covers(*mapped) == covers(address)
                    };
                    must!(claims.keys().any(by), "table {pa:#x} at {address:#x} in {root:#x}");
                    must!(placed.insert(pa), "table {pa:#x} lies in two places");
                    let at = (pa - m.physical(0)) as u32;
                    must!(m.begins(at, Kind::Table), "{at:#x} is no table any more");
                }
                Entry::Empty => return Err(format!("an empty entry at {address:#x}")),
            }
        }
    }
    Ok(())
}

/// Lists the mappings of the space in use.
pub fn mapped(world: &World) -> HashMap<u64, Entry> {
    let m = &world.machine;
    let root = (m.space - m.physical(0)) as u32;
    if root == 0 || !m.begins(root, Kind::Space) {
        return HashMap::new();
    }
    let pages = m.walk(root).into_iter().filter(|(.., entry)| matches!(entry, Entry::Page(..)));
    pages.map(|(address, _, entry)| (address, entry)).collect()
}
