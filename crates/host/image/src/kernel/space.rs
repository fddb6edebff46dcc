//! Address spaces: the kernel's own, and programs'.

use super::build::{Build, Place};
use super::offset;
use crate::elf::Program;
use bulkhead_arch::{Memory, PageFormat, Rights as PageRights};
use bulkhead_arch_x86::LongMode;
pub use bulkhead_kernel::abi::at;
use bulkhead_kernel::abi::{Code, Kind, Rights, label};
use bulkhead_kernel::host::Host;
use bulkhead_kernel::{Machine, PageTable, Ref};
use bulkhead_kernel_x86::{WINDOW_INDEX, X86};
use bulkhead_layout::PAGE;

/// Tables of the kernel's own root: root, 1 GiB entries of the window, 2 MiB entries of its two, small pages, and two
/// for devices. The small pages are for the memory beside the kernel and for the memory's end.
pub const TABLES: usize = 9;

/// A page of the kernel only.
const SUPERVISOR: u64 = !(1 << 2);
/// It stays in the TLB when the root changes.
const GLOBAL: u64 = 1 << 8;

/// Builds the kernel's own root table in `tables`, and returns the entry by which it is reached. The kernel's text is
/// executable, its constants are read-only. All other memory is writable, but the page below its stack and the first
/// one.
pub fn window(machine: &mut Host<X86, LongMode>, tables: &[u32], image: &Program, len: u32) -> u64 {
    let [root, gigabytes, first, second, small, small_too, end, devices, device] = tables[..TABLES]
    else {
        return 0;
    };
    let base = machine.physical(0);
    let mut set = |table: u32, index: usize, entry: u64| {
        machine.get_mut::<PageTable>(Ref::new(table)).0[index] = entry & SUPERVISOR;
    };
    let guard = image.symbol("kernel_guard").ok().and_then(offset).map_or(0, u64::from);
    let table = |at: u32| LongMode::table(base + u64::from(at), 0);
    let page =
        |at: u64, rights, level| LongMode::page(base + at, rights, Memory::Normal, level) | GLOBAL;
    set(root, WINDOW_INDEX, table(gigabytes));
    set(gigabytes, 510, table(first));
    set(gigabytes, 511, table(second));
    set(gigabytes, 509, table(devices));
    set(devices, 0, table(device));
    let directory = |n: u64| if n < 512 { first } else { second };
    let whole = u64::from(len) >> 21;
    for n in 0..whole {
        set(directory(n), n as usize % 512, page(n << 21, PageRights::RW, 1));
    }
    // Behind its end may lie somebody else's, and no monitor between them.
    let rest = whole << 21..u64::from(len);
    if !rest.is_empty() {
        set(directory(whole), whole as usize % 512, table(end));
        for (index, at) in rest.step_by(PAGE as usize).enumerate() {
            set(end, index, page(at, PageRights::RW, 0));
        }
    }
    // The first 4 MiB, where the kernel lies, in small pages.
    for (n, pages) in [(0u64, small), (1, small_too)] {
        set(first, n as usize, table(pages));
        for index in 0..512u64 {
            let at = n << 21 | index << 12;
            let within = |s: &&crate::elf::Segment| {
                offset(s.address).is_some_and(|start| {
                    (u64::from(start)..u64::from(start) + s.size.next_multiple_of(PAGE))
                        .contains(&at)
                })
            };
            let rights = image.segments.iter().find(within).map_or(PageRights::RW, |s| s.rights);
            if at != guard && at != 0 {
                set(pages, index as usize, page(at, rights, 0));
            }
        }
    }
    table(gigabytes) & SUPERVISOR
}

/// The entry of a page with devices' registers, for the kernel: never cached.
pub fn device_page(physical: u64) -> u64 {
    const UNCACHED: u64 = 1 << 4 | 1 << 3;
    LongMode::page(physical, PageRights::RW, Memory::Device, 0) & SUPERVISOR | GLOBAL | UNCACHED
}

impl Build {
    /// Makes frames of 4 KiB for so many bytes; the first one's place, and their offset in memory.
    pub fn frames(&mut self, len: u64) -> Result<(Place, u32), String> {
        let count = len.div_ceil(PAGE) as u32;
        let first = self.make(Kind::Frame, 12, count)?;
        Ok((first, self.cap(first).object << 12))
    }

    /// Maps frames side by side, with the tables that they need.
    pub fn map(
        &mut self,
        space: Place,
        frames: Place,
        count: u32,
        address: u64,
        rights: Rights,
    ) -> Result<(), String> {
        for n in 0..count {
            self.map_one(space, frames + n, address + u64::from(n) * PAGE, rights)?;
        }
        Ok(())
    }

    fn map_one(
        &mut self,
        space: Place,
        frame: Place,
        address: u64,
        rights: Rights,
    ) -> Result<(), String> {
        loop {
            let words = [u64::from(space), address, u64::from(rights.0), 0];
            match self.try_call(frame, label::MAP, words) {
                Err(status) if status.code() == Some(Code::NoTable) => {
                    let table = self.make(Kind::Table, 0, 1)?;
                    self.call(table, label::MAP_TABLE, [u64::from(space), address, 0, 0])?;
                }
                Err(status) => return Err(format!("{address:#x} cannot be mapped: {status:x?}")),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Maps frames that are mapped elsewhere already: by capabilities derived for it.
    pub fn map_again(
        &mut self,
        space: Place,
        frames: Place,
        count: u32,
        address: u64,
        rights: Rights,
    ) -> Result<(), String> {
        for n in 0..count {
            let derived = self.slot()?;
            self.give(1, derived, frames + n, rights, 0)?;
            self.map_one(space, derived, address + u64::from(n) * PAGE, rights)?;
        }
        Ok(())
    }
}
