//! Address spaces: page tables in memory that programs gave for them.

use crate::{Cap, Kernel, Layout, Link, Machine, Mapping, Ref, Slot};
use bulkhead_arch::{Entry, Memory, PageFormat, Rights as PageRights};
use bulkhead_kernel_abi::{Code, Kind, Rights, Status, at};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A page table.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub struct PageTable(pub [u64; 512]);

/// First address that is not a program's.
pub(crate) const fn user_end<M: Machine>() -> u64 {
    <M::Layout as Layout>::USER_END
}

const fn index(address: u64, level: u32) -> usize {
    (address >> (12 + 9 * level)) as usize & 511
}

/// Makes a fresh table a space's root.
pub(crate) fn begin<M: Machine>(kernel: &mut Kernel<'_, M>, at: u32) {
    begin_table(kernel, at);
    if let Some((entry, index)) = kernel.machine.kernel_entry() {
        kernel.machine.get_mut::<PageTable>(Ref::new(at)).0[index & 511] = entry;
    }
    set_live(kernel, at, true);
}

/// Makes fresh memory an empty table.
pub(crate) fn begin_table<M: Machine>(kernel: &mut Kernel<'_, M>, at: u32) {
    // Memory is zeroed already: on most architectures that is the empty entry.
    if M::Pages::empty() != 0 {
        kernel.machine.get_mut::<PageTable>(Ref::new(at)).0 = [M::Pages::empty(); 512];
    }
}

/// Ends a space: its mappings are gone.
pub(crate) fn end<M: Machine>(kernel: &mut Kernel<'_, M>, at: u32) -> bool {
    set_live(kernel, at, false);
    // The processor must not walk tables that are other memory soon.
    if kernel.core.space == kernel.machine.physical(at) {
        kernel.core.space = kernel.core.own_space;
        kernel.machine.enter_space(kernel.core.own_space);
    }
    true
}

fn live_bit<M: Machine>(kernel: &Kernel<'_, M>, at: u32) -> (Ref<u64>, u64) {
    let page = at >> 12;
    (Ref::<u64>::new(kernel.core.spaces).nth(page / 64), 1 << (page % 64))
}

fn set_live<M: Machine>(kernel: &mut Kernel<'_, M>, at: u32, live: bool) {
    let (word, bit) = live_bit(kernel, at);
    let word = kernel.machine.get_mut(word);
    *word = if live { *word | bit } else { *word & !bit };
}

/// Tells if a space's root lies at an offset. The space of a mapped frame may have ended, and other data may lie there
/// now.
fn is_live<M: Machine>(kernel: &Kernel<'_, M>, at: u32) -> bool {
    let (word, bit) = live_bit(kernel, at);
    at >> 12 < kernel.core.pages && kernel.machine.get(word) & bit != 0
}

/// Returns the table with an address' entry at a level.
///
/// # Errors
/// The level at which one is missing.
#[inline(never)]
fn table<M: Machine>(
    kernel: &Kernel<'_, M>,
    root: u32,
    address: u64,
    level: u32,
) -> Result<Ref<PageTable>, u32> {
    let base = kernel.machine.physical(0);
    let mut at = Ref::<PageTable>::new(root);
    for above in (level + 1..M::Pages::LEVELS).rev() {
        match M::Pages::decode(kernel.machine.get(at).0[index(address, above)], above) {
            Entry::Table(next) => at = Ref::new((next - base) as u32),
            _ => return Err(above - 1),
        }
    }
    Ok(at)
}

/// Tells if links are seen there, so that nothing else can be. A mapping on a link's table comes back with the table,
/// when the program that made it has long given it up.
fn is_links(address: u64) -> bool {
    (at::LINKS..at::LINKS_END).contains(&address)
}

/// Shows a link's memory in its space, or takes it out.
pub(crate) fn set_link<M: Machine>(kernel: &mut Kernel<'_, M>, at: Ref<Link>, there: bool) {
    let Link { slot, number, table: own, .. } = *kernel.machine.get(at);
    let (space, address) = (slot.cap.object, at::LINKS + u64::from(number) * at::LINK);
    if !slot.cap.is(Kind::Space) {
        return;
    }
    let Ok(above) = table(kernel, space, address, 1) else { return };
    let entry = match there {
        true => M::Pages::table(kernel.machine.physical(own.at()), 0),
        false => M::Pages::empty(),
    };
    kernel.machine.get_mut(above).0[index(address, 1)] = entry;
    // All translations of the space: a link has up to 512 pages.
    if !there && kernel.core.space == kernel.machine.physical(space) {
        let root = kernel.core.space;
        kernel.machine.enter_space(root);
    }
}

fn level_of(cap: &Cap) -> u32 {
    if cap.bits == 21 { 1 } else { 0 }
}

/// Returns the physical address of a frame.
pub(crate) fn physical<M: Machine>(kernel: &Kernel<'_, M>, cap: &Cap) -> u64 {
    let at = u64::from(cap.object) << 12;
    match cap.flags & Cap::DEVICE {
        0 => kernel.machine.physical(0) + at,
        _ => at,
    }
}

/// Maps the frame of a slot.
#[inline(never)]
pub(crate) fn map_frame<M: Machine>(
    kernel: &mut Kernel<'_, M>,
    slot: Ref<Slot>,
    space: u32,
    address: u64,
    rights: Rights,
) -> Result<(), Status> {
    let cap = kernel.machine.get(slot).cap;
    let rights = rights.masked(cap.rights());
    // A page format need not know pages that cannot be read.
    if !rights.has(Rights::READ) {
        return Err(Status::new(Code::NoRight, 3, u64::from(Rights::READ.0)));
    }
    // No program can change its code, whatever it is talked into.
    if rights.has(Rights::WRITE.and(Rights::EXECUTE)) {
        return Err(Status::new(Code::WriteExecute, 3, 0));
    }
    let size = 1u64 << cap.bits;
    let end = user_end::<M>();
    if address % size != 0 || address >= end || end - address < size {
        return Err(Status::new(Code::OutOfRange, 2, end - size));
    }
    // One mapping for each capability, so that its end finds it.
    if frame_entry(kernel, &cap).is_some() {
        return Err(Status::new(Code::Occupied, 0, 0));
    }
    let level = level_of(&cap);
    let missing = |level| Status::new(Code::NoTable, 2, u64::from(level));
    let at = table(kernel, space, address, level).map_err(missing)?;
    let entry = kernel.machine.get(at).0[index(address, level)];
    if is_links(address) || !matches!(M::Pages::decode(entry, level), Entry::Empty) {
        return Err(Status::new(Code::Occupied, 2, 0));
    }
    let write = rights.has(Rights::WRITE);
    let execute = rights.has(Rights::EXECUTE);
    let page = M::Pages::page(
        physical(kernel, &cap),
        PageRights { write, execute },
        Memory::Normal,
        level,
    );
    kernel.machine.get_mut(at).0[index(address, level)] = page;
    kernel.machine.get_mut(slot).cap.data = Mapping { space, address }.pack();
    Ok(())
}

/// Finds where a frame is mapped: where its capability says so, if that is still true. Space and tables may
/// have gone since, or others come.
fn frame_entry<M: Machine>(
    kernel: &Kernel<'_, M>,
    cap: &Cap,
) -> Option<(Mapping, Ref<PageTable>, usize)> {
    let mapping = Mapping::unpack(cap.data).filter(|at| is_live(kernel, at.space))?;
    let level = level_of(cap);
    let at = table(kernel, mapping.space, mapping.address, level).ok()?;
    let n = index(mapping.address, level);
    let entry = M::Pages::decode(kernel.machine.get(at).0[n], level);
    let frame = physical(kernel, cap);
    matches!(entry, Entry::Page(pa, ..) if pa == frame).then_some((mapping, at, n))
}

/// Unmaps a frame where it is mapped.
pub(crate) fn unmap_frame<M: Machine>(kernel: &mut Kernel<'_, M>, cap: &Cap) {
    let Some((Mapping { space, address }, at, n)) = frame_entry(kernel, cap) else { return };
    kernel.machine.get_mut(at).0[n & 511] = M::Pages::empty();
    if kernel.core.space == kernel.machine.physical(space) {
        kernel.machine.forget(address);
    }
}

/// Puts a table where one is missing on the way to an address.
#[inline(never)]
pub(crate) fn map_table<M: Machine>(
    kernel: &mut Kernel<'_, M>,
    slot: Ref<Slot>,
    space: u32,
    address: u64,
) -> Result<(), Status> {
    let cap = kernel.machine.get(slot).cap;
    if address >= user_end::<M>() {
        return Err(Status::new(Code::OutOfRange, 2, user_end::<M>() - 1));
    }
    if table_entry(kernel, &cap).is_some() {
        return Err(Status::new(Code::Occupied, 0, 0));
    }
    let Err(level) = table(kernel, space, address, 0) else {
        return Err(Status::new(Code::Occupied, 2, 0));
    };
    let Ok(above) = table(kernel, space, address, level + 1) else {
        return Err(Status::new(Code::NoTable, 2, u64::from(level + 1)));
    };
    let at = index(address, level + 1);
    let entry = kernel.machine.get(above).0[at];
    let taken = level == 0 && is_links(address);
    if taken || !matches!(M::Pages::decode(entry, level + 1), Entry::Empty) {
        return Err(Status::new(Code::Occupied, 2, 0));
    }
    // Its entries from another place must not appear here: they could not be found to take them out.
    kernel.machine.get_mut::<PageTable>(cap.at()).0 = [M::Pages::empty(); 512];
    let entry = M::Pages::table(kernel.machine.physical(cap.object), level);
    kernel.machine.get_mut(above).0[at] = entry;
    kernel.machine.get_mut(slot).cap.data = Mapping { space, address }.pack();
    Ok(())
}

/// Returns the place of a table, from its capability.
fn table_entry<M: Machine>(
    kernel: &Kernel<'_, M>,
    cap: &Cap,
) -> Option<(Mapping, Ref<PageTable>, usize)> {
    let mapping = Mapping::unpack(cap.data).filter(|at| is_live(kernel, at.space))?;
    let this = kernel.machine.physical(cap.object);
    (1..M::Pages::LEVELS).find_map(|level| {
        let above = table(kernel, mapping.space, mapping.address, level).ok()?;
        let n = index(mapping.address, level);
        let entry = M::Pages::decode(kernel.machine.get(above).0[n], level);
        matches!(entry, Entry::Table(pa) if pa == this).then_some((mapping, above, n))
    })
}

/// Takes a table out of where it is, and with it whatever is mapped through it.
pub(crate) fn unmap_table<M: Machine>(kernel: &mut Kernel<'_, M>, cap: &Cap) {
    let Some((Mapping { space, .. }, above, n)) = table_entry(kernel, cap) else { return };
    kernel.machine.get_mut(above).0[n & 511] = M::Pages::empty();
    if kernel.core.space == kernel.machine.physical(space) {
        let root = kernel.core.space;
        kernel.machine.enter_space(root);
    }
}

/// Ends a frame's or table's mapping.
#[inline(never)]
pub(crate) fn unmap<M: Machine>(kernel: &mut Kernel<'_, M>, slot: Ref<Slot>) {
    let cap = kernel.machine.get(slot).cap;
    match cap.kind() {
        Kind::Frame => unmap_frame(kernel, &cap),
        _ => unmap_table(kernel, &cap),
    }
    kernel.machine.get_mut(slot).cap.data = 0;
}
