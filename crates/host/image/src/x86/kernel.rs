//! Kernels on x86-64: the tables on which they start and those of their own, and the state that their entry reads.
//! Interrupts come through the IOAPIC and by messages.

use super::guest::GDT_GPA;
use super::ioapic::{level_vector, source};
use crate::Error;
use crate::elf::{Local, Program, Segment};
use crate::guest::{Guest, Piece};
use crate::kernel::{Asked, Hold, KernelMemory, Kernels, Placed, Route, State, offset};
use crate::space::Space;
use bulkhead_arch::{Memory, PageFormat, Rights};
use bulkhead_arch_x86::LongMode;
use bulkhead_arch_x86::start::GDT;
use bulkhead_kernel::{Cap, Machine, PageTable, Ref};
use bulkhead_kernel_x86::{
    Baked, DEVICE_PAGES, DEVICES, EDGE_VECTORS, END_OF_INTERRUPT, FIRST_LEVEL, FIRST_VECTOR, INFO,
    REPORT, Step, TIMER, WINDOW, WINDOW_INDEX, X86,
};
use bulkhead_layout::PAGE;
use bulkhead_plan::kernel::{Driven, Kernel};
use bulkhead_plan::{Facts, Function, Ram, Trigger};
use core::mem::offset_of;
use zerocopy::{FromZeros, IntoBytes};

/// Where the IOAPIC is in every sandbox.
const IOAPIC_GPA: u64 = 0xFEC0_0000;
/// Root of the tables on which a kernel starts.
const START_TABLES: u64 = 0x2000;

impl Kernels for X86 {
    type Layout = Self;
    type Pages = LongMode;
    const WINDOW: u64 = WINDOW;
    // Root, 1 GiB entries of the window, 2 MiB entries of its two, small pages, and two for devices. The small pages
    // are for the memory beside the kernel and for the memory's end.
    const TABLES: usize = 9;
    const DEVICES: (u64, usize) = (DEVICES, DEVICE_PAGES);
    const INFO: u32 = INFO;
    const REPORT: u32 = REPORT;
    // As if a return address lay there (System V ABI for x86-64, section 3.2.2).
    const ABOVE_STACK: u64 = 8;
    const END_OF_INTERRUPT: (u64, u32) = (END_OF_INTERRUPT, 0);

    fn start() -> Vec<Piece> {
        start()
    }

    fn start_tables() -> u64 {
        START_TABLES
    }

    fn first_space(ram: Ram, &Facts { large, boot_sees, .. }: &Facts) -> Space {
        let mut space = Space::default();
        // Not every processor has larger pages.
        for at in (0..boot_sees).step_by(large as usize) {
            space.add(at, at, large, Rights::RWX, "all memory that the boot code sees");
        }
        for at in (0..ram.len).step_by(large as usize) {
            space.add(WINDOW + at, ram.hpa + at, large.min(ram.len - at), Rights::RWX, "memory");
        }
        space
    }

    fn window(
        memory: &mut KernelMemory<Self>,
        tables: &[u32],
        image: &Program,
        len: u32,
    ) -> Result<Option<(u64, usize)>, String> {
        Ok(Some((window(memory, tables, image, len), WINDOW_INDEX)))
    }

    // Never cached.
    fn device_page(physical: u64) -> u64 {
        const UNCACHED: u64 = 1 << 4 | 1 << 3;
        LongMode::page(physical, Rights::RW, Memory::Device, 0) & SUPERVISOR | GLOBAL | UNCACHED
    }

    // The copy of the file's thread-local data ends at the pointer. The pointer's own value lies there (System V ABI
    // for x86-64, section 3.4.6: variant II).
    fn local(local: &Local) -> Placed {
        // The pointer's value, and room for what libraries keep beside it.
        const BESIDE: u64 = 64;
        let align = local.align.max(BESIDE);
        let below = local.size.next_multiple_of(local.align);
        let pointer = BESIDE.next_multiple_of(align);
        let len = below + 2 * align + BESIDE;
        Placed { len, pointer, data: pointer + below, holds_itself: true }
    }

    fn ports(first: u16, last: u16) -> Option<Cap> {
        Some(bulkhead_kernel_x86::ports(first, last))
    }

    // A doorbell is a port.
    fn bell(ring: u16) -> Cap {
        bulkhead_kernel_x86::ports(ring, ring)
    }

    fn route(asked: &Asked) -> Result<Route, String> {
        let sandbox = &asked.plan.sandboxes[asked.index];
        let apic_id = sandbox.core_ids.first().copied().unwrap_or(0);
        if let Some((line, trigger)) = source(sandbox, asked.device) {
            let vector = match trigger {
                Trigger::Edge => free(asked.taken)?,
                _ => { level_vector(asked.plan, asked.index) }
                    .map_err(|e| e.to_string())?
                    .ok_or("its line has no vector")?,
            };
            let own = asked.plan.machine.ioapic().filter(|_| asked.ground.alone);
            let ioapic = own.map_or(IOAPIC_GPA, |ioapic| ioapic.base);
            return Ok(line_route(ioapic, line, trigger, apic_id, vector));
        }
        let Driven::Function(n) = asked.device else { return Err("it has no line".into()) };
        let (function, vector) = (&sandbox.functions[n].function, free(asked.taken)?);
        let config = asked.ground.config(asked.plan, function.bdf);
        message_route(function, config, asked.number, apic_id, vector)
    }

    fn script(writes: &[(u64, u32)]) -> Vec<u8> {
        let step = |&(address, value): &(u64, u32)| Step { address, value: value.into() };
        let steps: Vec<_> = writes.iter().map(step).chain([Step::default()]).collect();
        steps.as_bytes().to_vec()
    }

    fn state(state: State) -> Result<Vec<u8>, String> {
        let mut baked = Baked::new_zeroed();
        baked.core = state.core;
        (baked.base, baked.clock, baked.script) = (state.base, state.clock, state.script.into());
        baked.window = state.window.map_or(0, |(entry, _)| entry);
        baked.alone = state.alone.into();
        (baked.trace, baked.trace_records) = state.trace;
        for (vector, at) in state.interrupts {
            let n = vector.checked_sub(FIRST_LEVEL.into());
            let entry = n.and_then(|n| baked.interrupts.get_mut(n as usize));
            *entry.ok_or(format!("its kernel has no entry for vector {vector:#x}"))? = at;
        }
        Ok(baked.as_bytes().to_vec())
    }
}

const TABLE: u64 = 0b11;
const LARGE: u64 = 1 << 7;

/// Tables for the first instructions, until the kernel has its own: the descriptor table of every guest, and page
/// tables. These map the first 4 GiB to themselves and the window to memory. They know no execute protection, which is
/// still off.
fn start() -> Vec<Piece> {
    let at = |n: u64| (START_TABLES + n * PAGE) | TABLE;
    // Root; tables of 1 GiB entries for low and window addresses; four tables of 2 MiB pages, of which the
    // window shares two.
    let mut words = vec![0u64; 7 * 512];
    words[0] = at(1);
    words[WINDOW_INDEX] = at(2);
    for n in 0..4 {
        words[512 + n as usize] = at(3 + n);
    }
    for n in 0..2 {
        words[1024 + 510 + n as usize] = at(3 + n);
    }
    for n in 0..2048 {
        words[1536 + n as usize] = n << 21 | LARGE | TABLE;
    }
    let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect();
    vec![
        Piece { gpa: GDT_GPA, bytes: bytes(&GDT) },
        Piece { gpa: START_TABLES, bytes: bytes(&words) },
    ]
}

/// A page of the kernel only.
const SUPERVISOR: u64 = !(1 << 2);
/// It stays in the TLB when the root changes.
const GLOBAL: u64 = 1 << 8;

/// Builds the kernel's own root table in `tables`, and returns the entry by which it is reached. The kernel's text is
/// executable, its constants are read-only. All other memory is writable, but the page below its stack and the first
/// one.
fn window(machine: &mut KernelMemory<X86>, tables: &[u32], image: &Program, len: u32) -> u64 {
    let [root, gigabytes, first, second, small, small_too, end, devices, device] =
        tables[..X86::TABLES]
    else {
        return 0;
    };
    let base = machine.physical(0);
    let mut set = |table: u32, index: usize, entry: u64| {
        machine.get_mut::<PageTable>(Ref::new(table)).0[index] = entry & SUPERVISOR;
    };
    let guard = image.symbol("kernel_guard").ok().and_then(offset::<X86>).map_or(0, u64::from);
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
        set(directory(n), n as usize % 512, page(n << 21, Rights::RW, 1));
    }
    // Behind its end may lie somebody else's, and no monitor between them.
    let rest = whole << 21..u64::from(len);
    if !rest.is_empty() {
        set(directory(whole), whole as usize % 512, table(end));
        for (index, at) in rest.step_by(PAGE as usize).enumerate() {
            set(end, index, page(at, Rights::RW, 0));
        }
    }
    // The first 4 MiB, where the kernel lies, in small pages.
    for (n, pages) in [(0u64, small), (1, small_too)] {
        set(first, n as usize, table(pages));
        for index in 0..512u64 {
            let at = n << 21 | index << 12;
            let within = |s: &&Segment| {
                offset::<X86>(s.address).is_some_and(|start| {
                    (u64::from(start)..u64::from(start) + s.size.next_multiple_of(PAGE))
                        .contains(&at)
                })
            };
            let rights = image.segments.iter().find(within).map_or(Rights::RW, |s| s.rights);
            if at != guard && at != 0 {
                set(pages, index as usize, page(at, rights, 0));
            }
        }
    }
    table(gigabytes) & SUPERVISOR
}

/// Finds the next vector of a message or an edge.
fn free(taken: &[u32]) -> Result<u8, String> {
    // Doorbells have theirs from the other end on.
    let free = |vector: &u8| !taken.contains(&u32::from(*vector));
    let none = format!("programs of a kernel take at most {EDGE_VECTORS} interrupts");
    (FIRST_VECTOR..TIMER).find(free).ok_or(none)
}

/// An entry of the IOAPIC's redirection table: fixed, to one core (82093AA, 3.2.4; the register is chosen through the
/// first word). In a sandbox each of these writes is an exit, so a level-triggered line is not masked here. The IOAPIC
/// sends nothing more until the local APIC has ended what it sent.
fn line_route(select: u64, line: u32, trigger: Trigger, apic_id: u32, vector: u8) -> Route {
    const MASKED: u32 = 1 << 16;
    const LEVEL: u32 = 1 << 15;
    const ACTIVE_LOW: u32 = 1 << 13;
    let (window, low) = (select + 0x10, 0x10 + 2 * line);
    let write = |value: u32| vec![(select, low), (window, value)];
    let (entry, hold) = match trigger {
        Trigger::Edge => {
            let (mask, unmask) = (write(MASKED | u32::from(vector)), write(vector.into()));
            (0, Hold::Writes { mask, unmask })
        }
        Trigger::LevelHigh => (LEVEL, Hold::Service),
        Trigger::LevelLow => (LEVEL | ACTIVE_LOW, Hold::Service),
    };
    let mut set = vec![(select, low + 1), (window, apic_id << 24)];
    set.extend(write(entry | u32::from(vector)));
    Route { interrupt: vector.into(), set, hold }
}

/// A message: an entry of the MSI-X table (PCI 3.0, 6.8.2), or the MSI capability (6.8.1).
fn message_route(
    function: &Function,
    config: u64,
    number: u16,
    apic_id: u32,
    vector: u8,
) -> Result<Route, String> {
    let address = 0xFEE0_0000 | (apic_id & 0xFF) << 12;
    if let Some(msix) = function.msix {
        const ENABLE: u32 = 1 << 31;
        let entry = msix.table + 16 * u64::from(number);
        let set = vec![
            (entry + 12, 1),
            (entry, address),
            (entry + 4, 0),
            (entry + 8, vector.into()),
            (entry + 12, 0),
            (config + u64::from(msix.at), ENABLE),
        ];
        let hold = Hold::Writes { mask: vec![(entry + 12, 1)], unmask: vec![(entry + 12, 0)] };
        return Ok(Route { interrupt: vector.into(), set, hold });
    }
    let msi = function.msi.ok_or("it sends no messages, and has no line")?;
    const ENABLE: u32 = 1 << 16;
    let at = config + u64::from(msi.at);
    let mut set = vec![(at, 0), (at + 4, address)];
    let data = if msi.wide { at + 12 } else { at + 8 };
    if msi.wide {
        set.push((at + 8, 0));
    }
    set.extend([(data, u32::from(vector)), (at, ENABLE)]);
    let hold = Hold::Writes { mask: vec![(at, 0)], unmask: vec![(at, ENABLE)] };
    Ok(Route { interrupt: vector.into(), set, hold })
}

/// Tells the kernel of a guest to print to a serial port instead of its monitor's console, of which there is none.
///
/// # Errors
/// [`Error::Program`]: the guest was not made from this kernel.
pub fn set_console(guest: &mut Guest, kernel: &Kernel, port: u16) -> Result<(), Error> {
    let bytes = std::fs::read(&kernel.file).map_err(|e| Error::File(kernel.file.clone(), e))?;
    let image = Program::parse(&kernel.file.display().to_string(), &bytes)?;
    let wrong = || Error::Program("its kernel's BAKED is not in the guest".into());
    let baked = u64::from(offset::<X86>(image.symbol("BAKED")?).ok_or_else(wrong)?);
    let at = baked + offset_of!(Baked, console) as u64;
    let holds =
        |piece: &&mut Piece| (piece.gpa..piece.gpa + piece.bytes.len() as u64).contains(&at);
    let piece = guest.pieces.iter_mut().find(holds).ok_or_else(wrong)?;
    let at = (at - piece.gpa) as usize;
    piece.bytes[at..at + 8].copy_from_slice(&u64::from(port).to_le_bytes());
    Ok(())
}
