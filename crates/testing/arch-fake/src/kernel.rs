//! Kernels on the odd machine. A kernel has a root table of its own, beside the program's. Programs' tables have pages
//! of 4 KiB, as the kernel's ABI wants, and nested tables larger ones. Interrupts have 12 bits, and scripts begin with
//! their length. A thread's own data lies above its pointer. There are no ports.

use crate::FakeFormat;
use crate::devices::interrupt;
use crate::messages::{DOORBELL, INTERRUPTS};
use crate::target::{Odd, PAGE};
use bulkhead_arch::{Entry, Memory, PageFormat, Rights, Run, TableMemory, map};
use bulkhead_image::space::Space;
use bulkhead_image::{
    Asked, Hold, KernelMemory, KernelRoute, Kernels, Local, Piece, Placed, Program, State, offset,
};
use bulkhead_kernel::abi::Kind;
use bulkhead_kernel::{Cap, Core, Layout, Machine as _, host};
use bulkhead_plan::kernel::Driven;
use bulkhead_plan::{Controller, Facts, Ram, Trigger};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Address at which the kernel sees its memory.
pub const WINDOW: u64 = 0x7000_0000_0000;
/// Address at which the kernel sees its devices.
pub const DEVICES: u64 = WINDOW + (1 << 29);
/// Most interrupts that a kernel takes.
pub const MOST: usize = 6;
/// Bytes of a page of the kernel and its programs.
const SMALL: u64 = FakeFormat::PAGE;

/// The state that a kernel's entry reads.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Baked {
    /// Numbers of interrupts, and offsets of their objects.
    pub interrupts: [[u32; 2]; MOST],
    /// Offsets of the script of the start and of the clock.
    pub start: [u32; 2],
    /// Physical address of its memory.
    pub base: u64,
    /// The core.
    pub core: Core,
}

/// Pages for tables, handed out one by one, in a kernel's memory.
struct Own<'a> {
    memory: &'a mut KernelMemory<Odd>,
    left: &'a [u32],
}

impl Own<'_> {
    fn at(&self, table: u64, index: usize) -> usize {
        (table - self.memory.physical(0)) as usize + 8 * index
    }
}

impl TableMemory for Own<'_> {
    fn alloc(&mut self, _: u64) -> Option<u64> {
        let (first, rest) = self.left.split_first()?;
        self.left = rest;
        Some(self.memory.physical(*first))
    }

    fn read(&self, table: u64, index: usize) -> u64 {
        let at = self.at(table, index);
        u64::from_le_bytes(self.memory.bytes()[at..at + 8].try_into().expect("8 bytes"))
    }

    fn write(&mut self, table: u64, index: usize, entry: u64) {
        let at = self.at(table, index);
        self.memory.bytes_mut()[at..at + 8].copy_from_slice(&entry.to_le_bytes());
    }
}

impl Kernels for Odd {
    type Layout = host::Odd;
    type Pages = FakeFormat;
    const WINDOW: u64 = WINDOW;
    // Root, two tables below it, those of small pages, and one for devices. Without a monitor memory of less than a
    // large page of the machine's begins anywhere, so all pages of the kernel's are small.
    const TABLES: usize = 16;
    const DEVICES: (u64, usize) = (DEVICES, 8);
    const INFO: u32 = 0x2_4000;
    const REPORT: u32 = 0x2_8000;
    const ABOVE_STACK: u64 = 48;
    const END_OF_INTERRUPT: (u64, u32) = (1, 0xE01);

    fn start() -> Vec<Piece> {
        Vec::new()
    }

    fn start_tables() -> u64 {
        0
    }

    fn first_space(ram: Ram, _: &Facts) -> Space {
        let mut space = Space::default();
        space.add(WINDOW, ram.hpa, ram.len, Rights::RWX, "memory");
        space
    }

    // The kernel's segments have small pages with their rights, all other memory is written. The first page is left
    // out, and so is the rest of the kernel's last large page.
    fn window(
        memory: &mut KernelMemory<Self>,
        tables: &[u32],
        image: &Program,
        len: u32,
    ) -> Result<Option<(u64, usize)>, String> {
        let Some((devices, own)) = tables.split_last() else { return Err("no tables".into()) };
        let base = memory.physical(0);
        let mut own = Own { memory, left: own };
        let mut at = SMALL;
        let mut root = None;
        let mut add = |own: &mut Own, from: u64, end: u64, rights| {
            let (va, pa) = (WINDOW + from, base + from);
            let run = Run { va, pa, len: end - from, rights, memory: Memory::Normal };
            root = Some(map::<FakeFormat>(own, root, run).map_err(|e| format!("{e:?}"))?);
            Ok::<_, String>(())
        };
        for segment in &image.segments {
            let start = offset::<Self>(segment.address).ok_or("a segment is below the window")?;
            let (first, end) = (u64::from(start) / SMALL * SMALL, u64::from(start) + segment.size);
            let end = end.next_multiple_of(SMALL);
            add(&mut own, at, first, Rights::RW)?;
            add(&mut own, first, end, segment.rights)?;
            at = end;
        }
        add(&mut own, at, len.into(), Rights::RW)?;
        let root = root.unwrap_or_default();
        let own_devices = base + u64::from(*devices);
        let (mut table, bits) = (root, SMALL.ilog2() - 3);
        for level in [3, 2] {
            let index = (DEVICES >> (SMALL.ilog2() + bits * level)) as usize & 511;
            let Entry::Table(next) = FakeFormat::decode(own.read(table, index), level) else {
                return Err("devices have no table above theirs".into());
            };
            table = next;
        }
        let index = (DEVICES >> (SMALL.ilog2() + bits)) as usize & 511;
        own.write(table, index, FakeFormat::table(own_devices, 0));
        (0..512).for_each(|n| own.write(own_devices, n, FakeFormat::empty()));
        Ok(None)
    }

    fn device_page(physical: u64) -> u64 {
        FakeFormat::page(physical, Rights::RW, Memory::Device, 0)
    }

    fn local(local: &Local) -> Placed {
        const BELOW: u64 = 32;
        let align = local.align.max(BELOW);
        let data = local.size.next_multiple_of(align);
        Placed { len: data + align, pointer: data + BELOW, data, holds_itself: false }
    }

    fn ports(_: u16, _: u16) -> Option<Cap> {
        None
    }

    // A register of the doorbells' own, which only instructions reach: its number, and that it is one.
    fn bell(ring: u16) -> Cap {
        Cap::original(Kind::Ports, u32::from(ring) << 16 | 1, 0)
    }

    fn route(asked: &Asked) -> Result<KernelRoute, String> {
        let sandbox = &asked.plan.sandboxes[asked.index];
        let core = sandbox.core_ids[0];
        match asked.device {
            Driven::Device(n) => {
                let device = &sandbox.devices[n];
                let (Some(line), Some(Controller::Other { base })) =
                    (device.irq, asked.plan.machine.controller)
                else {
                    return Err("it has no line".into());
                };
                let interrupt = interrupt(line);
                let at = base + u64::from(line) * PAGE;
                let level = device.trigger != Trigger::Edge;
                let low = core | interrupt << 24;
                let high = interrupt >> 8 | u32::from(level) << 30;
                let on = vec![(at + 4, high | 1 << 31)];
                let hold = match level {
                    true => Hold::Service,
                    false => Hold::Writes { mask: vec![(at + 4, high)], unmask: on.clone() },
                };
                let set = [vec![(at, low)], on].concat();
                Ok(KernelRoute { interrupt, set, hold })
            }
            Driven::Function(n) => {
                let function = &sandbox.functions[n].function;
                let msix = function.msix.ok_or("it sends no messages")?;
                let mut free = INTERRUPTS.filter(|number| !asked.taken.contains(number));
                let interrupt = free.next().ok_or("all interrupts are taken")?;
                let entry = msix.table + 16 * u64::from(asked.number);
                let config = asked.ground.config(asked.plan, function.bdf);
                let masked = |mask: u32| vec![(entry + 12, mask)];
                let message = [DOORBELL, core, interrupt].into_iter().zip(0..);
                let message = message.map(|(word, n): (u32, u64)| (entry + 4 * n, word)).collect();
                let on = vec![(config + u64::from(msix.at), 1 << 31)];
                let set = [masked(1), message, masked(0), on].concat();
                let hold = Hold::Writes { mask: masked(1), unmask: masked(0) };
                Ok(KernelRoute { interrupt, set, hold })
            }
        }
    }

    fn script(writes: &[(u64, u32)]) -> Vec<u8> {
        let step = |&(at, value): &(u64, u32)| [u64::from(value), at];
        let steps = writes.iter().flat_map(step);
        [writes.len() as u64].into_iter().chain(steps).flat_map(u64::to_be_bytes).collect()
    }

    fn state(state: State) -> Result<Vec<u8>, String> {
        let mut baked = Baked::new_zeroed();
        for (n, (number, at)) in state.interrupts.into_iter().enumerate() {
            let room = baked.interrupts.get_mut(n);
            *room.ok_or(format!("a kernel takes at most {MOST} interrupts"))? = [number, at];
        }
        (baked.start, baked.base, baked.core) =
            ([state.script, state.clock], state.base, state.core);
        Ok(baked.as_bytes().to_vec())
    }
}

/// Reads a script: writes in their order.
///
/// # Panics
/// It is cut off.
#[must_use]
pub fn script(bytes: &[u8]) -> Vec<(u64, u32)> {
    let word = |n: usize| u64::from_be_bytes(bytes[8 * n..][..8].try_into().expect("8 bytes"));
    (0..word(0) as usize).map(|n| (word(2 * n + 2), word(2 * n + 1) as u32)).collect()
}

const _: () = assert!(WINDOW > <host::Odd as Layout>::USER_END);
