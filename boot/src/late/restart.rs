//! The start of a Linux that begins anew in the place of the one that runs now. The host has put kernel, initrd and
//! command line into the image. This adds the facts of this machine's firmware: the memory map, and ACPI's tables.
//!
//! The memory map lacks the block. The table of cores lacks those of other sandboxes: a kernel tries to start each core
//! that it finds there. No code runs when the Linux begins anew but the monitor's copy of all that.

use crate::devices::Devices;
use crate::stop::Stop;
use bulkhead_firmware::{Memory, acpi};
use bulkhead_handover::image::Range;
use bulkhead_handover::x86::TRAMPOLINE_PA;
use bulkhead_handover::x86::late::restart::{ACPI_END, ACPI_GPA, ZERO_PAGE_GPA};
use bulkhead_handover::x86::late::{Late, zero};
use bulkhead_launch::Op;
use bulkhead_monitor_abi::PAGE;
use bulkhead_monitor_abi::map::GUEST_VA;

/// End of the memory that a kernel leaves alone.
const LOW_END: u64 = 1 << 20;

/// The first 4 GiB, as the module maps them.
struct Physical;

impl Memory for Physical {
    fn bytes(&self, pa: u64, len: usize) -> Option<&[u8]> {
        const END: u64 = 4 << 30;
        let inside = pa != 0 && pa.checked_add(len as u64)? <= END;
        // SAFETY: mapped to itself. The firmware's tables are memory that nobody writes.
        inside.then(|| unsafe { core::slice::from_raw_parts(pa as *const u8, len) })
    }
}

/// Fills in what the host could not know; nothing, if this Linux cannot begin anew.
///
/// # Errors
/// This machine lacks something that a new Linux needs.
pub fn fill(devices: &Devices, late: &Late, block: Range) -> Result<(), Stop> {
    if !devices.begins_anew() {
        return Ok(());
    }
    let [page, tables] = [ZERO_PAGE_GPA, ACPI_GPA].map(|at| devices.pristine(at));
    let (Some(page), Some(tables)) = (page, tables) else {
        return Err(Stop::Restart("boot parameters and ACPI tables in the image: build it again"));
    };
    if late.boot_params == 0 {
        return Err(Stop::Restart("/sys/kernel/boot_params, which is not there"));
    }
    // SAFETY: the module's copy of a page. The other two are pieces of the pristine guest in the block. The host has
    // made them that large, and no monitor reads them yet.
    let (now, page, tables) = unsafe {
        (
            &*(late.boot_params as *const [u8; PAGE as usize]),
            &mut *(page as *mut [u8; PAGE as usize]),
            &mut *(tables as *mut [u8; (ACPI_END - ACPI_GPA) as usize]),
        )
    };
    let map = Map::of(now, devices, block)?;
    let pieces = || devices.launch().iter().filter_map(destination);
    // The kernel unpacks itself between its own place and its initrd's, and there may be no initrd.
    let own = zero::room(page);
    let [low, high] =
        [0, 1].map(|n| pieces().filter(move |piece| u64::from(piece.start >= LOW_END) == n));
    let end = high
        .clone()
        .map(|piece| piece.start.saturating_add(piece.len))
        .fold(own.start.saturating_add(own.len), u64::max);
    let start = high.map(|piece| piece.start).fold(own.start, u64::min);
    let whole = Range { start, len: end.saturating_sub(start) };
    if !low.chain([whole]).all(|piece| map.holds(piece)) {
        return Err(Stop::Restart(
            "memory at the places of its kernel and its initrd: they are not this Linux' own",
        ));
    }
    map.write(page);
    page[..zero::SCREEN].copy_from_slice(&now[..zero::SCREEN]);
    let told = u64_at(now, zero::ACPI_RSDP);
    let root = Some(told).filter(|at| *at != 0).or_else(|| acpi::find_rsdp(&Physical));
    let root = root
        .and_then(|root| acpi::only(root, &Physical, tables, ACPI_GPA, |id| devices.has_core(id)));
    if root.is_none() {
        return Err(Stop::Restart("ACPI tables with cores below 4 GiB, of less than 16 KiB"));
    }
    page[zero::ACPI_RSDP..zero::ACPI_RSDP + 8].copy_from_slice(&ACPI_GPA.to_le_bytes());
    Ok(())
}

/// Returns the guest's memory that a step of its launch record fills.
fn destination(op: &Op) -> Option<Range> {
    let start = op.dst.wrapping_sub(GUEST_VA);
    (op.kind == Op::COPY && start < 1 << 46).then_some(Range { start, len: op.len })
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// The memory map of a new Linux.
struct Map {
    entries: [(Range, u32); zero::E820_MOST],
    count: usize,
}

impl Map {
    /// Makes it of the map that this Linux has booted with.
    fn of(now: &[u8], devices: &Devices, block: Range) -> Result<Self, Stop> {
        let none = (Range { start: 0, len: 0 }, 0);
        let mut map = Self { entries: [none; zero::E820_MOST], count: 0 };
        let start_code = Range { start: TRAMPOLINE_PA, len: PAGE };
        let tables = Range { start: ACPI_GPA, len: ACPI_END - ACPI_GPA };
        let holes = [start_code, tables, block];
        let count = usize::from(now.get(zero::E820_ENTRIES).copied().unwrap_or(0));
        for n in 0..count.min(zero::E820_MOST) {
            let at = zero::E820_TABLE + n * zero::E820_ENTRY;
            let range = Range { start: u64_at(now, at), len: u64_at(now, at + 8) };
            // The map's end is within the page, and so is what lies behind it.
            let kind = u64_at(now, at + 16) as u32;
            if kind != zero::E820_RAM {
                map.add(range, kind)?;
                continue;
            }
            // As much of it as the sandbox has.
            for own in devices.memory() {
                let own = Range { start: own.gpa, len: own.len };
                let mut start = range.start.max(own.start);
                let end = (range.start + range.len).min(own.start + own.len);
                // Holes ascend.
                for hole in holes.iter().filter(|hole| hole.start < end) {
                    if hole.start + hole.len <= start {
                        continue;
                    }
                    map.ram(start, hole.start)?;
                    start = hole.start + hole.len;
                }
                map.ram(start, end)?;
            }
        }
        holes.iter().try_for_each(|hole| map.add(*hole, zero::E820_RESERVED))?;
        Ok(map)
    }

    fn ram(&mut self, start: u64, end: u64) -> Result<(), Stop> {
        match end > start {
            true => self.add(Range { start, len: end - start }, zero::E820_RAM),
            false => Ok(()),
        }
    }

    fn add(&mut self, range: Range, kind: u32) -> Result<(), Stop> {
        let full = Stop::Restart("a memory map of fewer pieces");
        *self.entries.get_mut(self.count).ok_or(full)? = (range, kind);
        self.count += 1;
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = &(Range, u32)> {
        self.entries.iter().take(self.count)
    }

    /// Tells if a piece lies in the memory, or where the copied tables go.
    fn holds(&self, piece: Range) -> bool {
        let inside = |whole: &Range| {
            let offset = piece.start.wrapping_sub(whole.start);
            offset <= whole.len && piece.len <= whole.len - offset
        };
        piece.start == ACPI_GPA
            || self.all().any(|(whole, kind)| *kind == zero::E820_RAM && inside(whole))
    }

    /// Writes it into a zero page.
    fn write(&self, page: &mut [u8; PAGE as usize]) {
        page[zero::E820_ENTRIES] = self.count as u8;
        for (n, (range, kind)) in self.all().enumerate() {
            let at = zero::E820_TABLE + n * zero::E820_ENTRY;
            let Some(entry) = page.get_mut(at..at + zero::E820_ENTRY) else { return };
            entry[..8].copy_from_slice(&range.start.to_le_bytes());
            entry[8..16].copy_from_slice(&range.len.to_le_bytes());
            entry[16..].copy_from_slice(&kind.to_le_bytes());
        }
    }
}
