//! Intel VT-d: a root table, context tables, and one interrupt remapping table for all requesters. Steps for the boot
//! code give a unit its tables.
//!
//! Each entry of the interrupt table is written here and never changed. An owner of a function or of lines has one for
//! each vector on each of its cores. So no monitor maps the table, and nothing is invalidated at run time
//! (docs/decisions/0041-vt-d.md).

use super::ioapic;
use crate::Error;
use crate::devices::{Grant, Unit};
use crate::pages::Pages;
use bulkhead_arch_x86::vtd::{
    ENTRY, INVALIDATE_ALL, MOST_ENTRIES, NEEDED, context_entry, global, interrupt_entry, register,
    root_entry,
};
use bulkhead_layout::PAGE;
use bulkhead_layout::image::{ConfigOp, Range};
use bulkhead_layout::x86;
use bulkhead_plan::{Bdf, Iommu, Plan, Sandbox};

/// Entries for one core: one a vector.
const BLOCK: u64 = 256;
/// Lowest vector that a local APIC accepts.
const FIRST_VECTOR: u8 = 16;

/// Sources of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A function.
    Function(Bdf),
    /// Edge-triggered lines of a sandbox.
    Edge(usize),
    /// Level-triggered lines of a sandbox.
    Level(usize),
}

/// The entries for one core and all vectors.
struct Block {
    source: Source,
    /// Requester ID of its messages.
    requester: Bdf,
    core: u32,
    /// Vectors, as a set.
    vectors: [u64; 4],
}

/// All blocks, in the order of their entries. The first 256 entries are no block: a message without an index would
/// name one of them.
fn blocks(plan: &Plan) -> Result<Vec<Block>, Error> {
    let mut all = Vec::new();
    let Some(iommu) = remapping(plan) else { return Ok(all) };
    let mut any = [u64::MAX; 4];
    any[0] &= !0 << FIRST_VECTOR;
    for (index, sandbox) in plan.sandboxes.iter().enumerate() {
        let mut add = |source, requester, vectors| {
            let block = |core| Block { source, requester, core, vectors };
            all.extend(cores(sandbox).into_iter().map(block));
        };
        // A role's functions have no entry: they send no interrupts.
        for granted in sandbox.functions.iter().filter(|granted| granted.role.is_none()) {
            let bdf = granted.function.bdf;
            add(Source::Function(bdf), bdf, any);
        }
        if let Some(ioapic) = iommu.ioapic()
            && !ioapic::of(&plan.machine, sandbox).is_empty()
        {
            add(Source::Edge(index), ioapic, any);
            if sandbox.has_level_line() {
                add(Source::Level(index), ioapic, ioapic::level_vectors(plan, index)?);
            }
        }
    }
    Ok(all)
}

/// The unit, where it remaps messages of sandboxes with monitors.
fn remapping(plan: &Plan) -> Option<Iommu> {
    plan.machine.iommu.filter(|iommu| iommu.remaps_interrupts && !plan.multikernel)
}

/// Local APICs of a sandbox that messages can name, ascending.
fn cores(sandbox: &Sandbox) -> Vec<u32> {
    let mut cores: Vec<_> = sandbox.core_ids.iter().copied().filter(|id| *id < 256).collect();
    cores.sort_unstable();
    cores
}

/// The first entry of a source: of its owner's core with the lowest ID. 256 further ones are the next core's.
pub fn first(plan: &Plan, source: Source) -> Result<Option<u32>, Error> {
    let at = blocks(plan)?.iter().position(|block| block.source == source);
    Ok(at.map(|at| ((at as u64 + 1) * BLOCK) as u32))
}

/// Entries of the table: a power of two.
fn entries(blocks: usize) -> Result<u64, Error> {
    let entries = ((blocks as u64 + 1) * BLOCK).next_power_of_two();
    if entries > MOST_ENTRIES {
        return Err(Error::Lines(format!(
            "the IOMMU's interrupt table has no room: {blocks} times 256 entries are wanted, for each core of each owner \
             of a function or of lines, and 255 times 256 are there"
        )));
    }
    Ok(entries)
}

/// All of a unit's tables and its invalidation queue.
pub fn tables(pages: &mut Pages, plan: &Plan, grants: &[Grant]) -> Result<Unit<x86::Iommu>, Error> {
    let Some(iommu) = plan.machine.iommu else { return Ok(Unit::default()) };
    let start = pages.end();
    let root = pages.take(PAGE);
    for bus in 0..=u8::MAX {
        let of_bus: Vec<_> = grants.iter().filter(|grant| grant.requester.bus() == bus).collect();
        if of_bus.is_empty() {
            continue;
        }
        let context = pages.take(PAGE);
        write(pages, root + u64::from(bus) * 16, root_entry(context));
        for grant in of_bus {
            let at = context + u64::from(grant.requester.0 & 0xFF) * 16;
            if let Some(tables) = grant.root {
                write(pages, at, context_entry(tables, grant.domain));
            }
        }
    }
    let blocks = blocks(plan)?;
    let interrupts = match remapping(plan) {
        Some(_) => {
            let len = entries(blocks.len())? * ENTRY;
            Range { start: pages.take(len), len }
        }
        None => Range::default(),
    };
    for (n, block) in blocks.iter().enumerate() {
        let level = matches!(block.source, Source::Level(_));
        for vector in 0..=u8::MAX {
            if block.vectors[usize::from(vector / 64)] >> (vector % 64) & 1 != 0 {
                let index = (n as u64 + 1) * BLOCK + u64::from(vector);
                let entry = interrupt_entry(block.core, vector, level, block.requester.0);
                write(pages, interrupts.start + index * ENTRY, entry);
            }
        }
    }
    let queue = pages.take(PAGE);
    for (command, n) in INVALIDATE_ALL.into_iter().zip(0..) {
        write(pages, queue + n * 16, command);
    }
    let tables = Range { start, len: pages.end() - start };
    let header = x86::Iommu { device_table: tables, ..x86::Iommu::default() };
    Ok(Unit { header, events: header.events, steps: steps(&iommu, root, interrupts, queue) })
}

fn write(pages: &mut Pages, at: u64, words: [u64; 2]) {
    pages.write(at, words.map(u64::to_le_bytes).as_flattened());
}

/// How many steps there are.
pub fn count(iommu: &Iommu) -> usize {
    let interrupts = Range { start: 0, len: u64::from(iommu.remaps_interrupts) * BLOCK * ENTRY };
    steps(iommu, 0, interrupts, 0).len()
}

/// The steps of the boot code: the unit is switched off, gets its tables with nothing in its caches, and is switched
/// on. Each change is waited for.
fn steps(iommu: &Iommu, root: u64, interrupts: Range, queue: u64) -> Vec<ConfigOp> {
    let op = |kind, offset, value| ConfigOp { bdf: 0, offset, kind, value };
    let set = |offset, value| op(ConfigOp::SET, offset, value);
    let wide =
        |offset, value: u64| [set(offset, value as u32), set(offset + 4, (value >> 32) as u32)];
    let remaps = interrupts.len != 0;
    let [low, high, mut extended] = NEEDED;
    if !remaps {
        extended = 1 << 1;
    }
    let mut ops = vec![
        op(ConfigOp::AT, 0, iommu.base as u32),
        op(ConfigOp::NEED, register::CAP, low),
        op(ConfigOp::NEED, register::CAP + 4, high),
        op(ConfigOp::NEED, register::ECAP, extended),
        // The firmware may have used it.
        set(register::COMMAND, 0),
        op(
            ConfigOp::CLEAR,
            register::STATUS,
            global::TRANSLATION | global::REMAPPING | global::QUEUE | global::COMPATIBILITY,
        ),
        set(register::PROTECTED, 0),
        op(ConfigOp::CLEAR, register::PROTECTED, 1),
        // No interrupt of its own; a 1 clears what was found wrong before.
        set(register::FAULT_CONTROL, 1 << 31),
        set(register::COMPLETED_CONTROL, 1 << 31),
        set(register::FAULTS, 0x7F),
        set(register::COMPLETED, 1),
        // A unit may read memory past the caches.
        op(ConfigOp::FLUSH, 0, 0),
    ];
    // Bits that are on, then one that is switched on with them or takes an address.
    let command = |on: u32, bit: u32| {
        [set(register::COMMAND, on | bit), op(ConfigOp::AWAIT, register::STATUS, bit)]
    };
    ops.extend(wide(register::ROOT, root));
    ops.extend(command(0, global::ROOT));
    ops.extend(wide(register::QUEUE_TAIL, 0));
    ops.extend(wide(register::QUEUE, queue));
    ops.extend(command(0, global::QUEUE));
    let mut on = global::QUEUE;
    if remaps {
        /// Destinations are x2APIC IDs; then messages without an index are blocked, whatever else is said.
        const EXTENDED: u64 = 1 << 11;
        let size = (interrupts.len / ENTRY).ilog2() - 1;
        ops.extend(wide(register::INTERRUPTS, interrupts.start | EXTENDED | u64::from(size)));
        ops.extend(command(on, global::INTERRUPTS));
    }
    ops.extend(wide(register::QUEUE_TAIL, INVALIDATE_ALL.len() as u64 * 16));
    ops.push(op(ConfigOp::AWAIT, register::COMPLETED, 1));
    if remaps {
        ops.extend(command(on, global::REMAPPING));
        on |= global::REMAPPING;
    }
    ops.extend(command(on, global::TRANSLATION));
    ops.push(op(ConfigOp::AWAIT, register::STATUS, on | global::TRANSLATION));
    ops.push(op(ConfigOp::CLEAR, register::STATUS, global::COMPATIBILITY));
    ops
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_plan::{
        Controller, Device, Function, Granted, Ioapic, IommuKind, Machine, Trigger,
    };

    const DISK: Bdf = Bdf(0x18);
    const CARD: Bdf = Bdf(0x100);
    const IOAPIC: Bdf = Bdf(0xFF00);

    fn sandbox(core_ids: &[u32], functions: &[Bdf], irq: Option<(u32, Trigger)>) -> Sandbox {
        let function = |bdf| Function { bdf, ..Function::default() };
        let granted = |bdf: &Bdf| Granted { function: function(*bdf), ..Granted::default() };
        let device = |(irq, trigger)| Device { irq: Some(irq), trigger, ..Device::default() };
        Sandbox {
            core_ids: core_ids.to_vec(),
            devices: irq.map(device).into_iter().collect(),
            functions: functions.iter().map(granted).collect(),
            ..Sandbox::default()
        }
    }

    fn plan(sandboxes: Vec<Sandbox>) -> Plan {
        let iommu = Iommu {
            kind: IommuKind::VtD { ioapic: Some(IOAPIC) },
            base: 0xFED9_0000,
            remaps_interrupts: true,
        };
        let ioapic = Controller::Ioapic(Ioapic { base: 0xFEC0_0000, lines: 24 });
        let controller = Some(ioapic);
        let machine = Machine { controller, iommu: Some(iommu), ..Machine::default() };
        Plan { machine, sandboxes, ..Plan::default() }
    }

    fn two() -> Plan {
        plan(vec![
            sandbox(&[5, 2], &[DISK], Some((4, Trigger::LevelLow))),
            sandbox(&[3], &[CARD], Some((3, Trigger::Edge))),
        ])
    }

    fn words(pages: &Pages, at: u64) -> [u64; 2] {
        let bytes = pages.read(at, 16);
        [0, 8].map(|n| u64::from_le_bytes(bytes[n..n + 8].try_into().unwrap()))
    }

    /// The last value written to a register.
    fn written(made: &Unit<x86::Iommu>, offset: u16) -> u64 {
        let last = |offset| {
            let mut all = made.steps.iter().rev();
            let op = all.find(|op| op.kind == ConfigOp::SET && op.offset == offset);
            op.map_or(0, |op| u64::from(op.value))
        };
        last(offset) | last(offset + 4) << 32
    }

    #[test]
    fn each_entry_is_bound_to_a_requester_and_leads_to_its_owner() {
        let plan = two();
        let mut pages = Pages::new(&Plan::default());
        let made = tables(&mut pages, &plan, &[]).unwrap();
        let register = written(&made, register::INTERRUPTS);
        let (table, len) = (register & !0xFFF, 2 << (register & 0xF));
        // Blocks: none, disk on 2 and 5, edges on 2 and 5, levels on 2 and 5, card on 3, edges on 3.
        assert_eq!((len, register >> 11 & 1), (4096, 1));
        let expected = [
            None,
            Some((DISK, 2, false)),
            Some((DISK, 5, false)),
            Some((IOAPIC, 2, false)),
            Some((IOAPIC, 5, false)),
            Some((IOAPIC, 2, true)),
            Some((IOAPIC, 5, true)),
            Some((CARD, 3, false)),
            Some((IOAPIC, 3, false)),
        ];
        let level = ioapic::level_vectors(&plan, 0).unwrap();
        let owns = |set: [u64; 4], vector: u64| set[vector as usize / 64] >> (vector % 64) & 1 != 0;
        for index in 0..len {
            let entry = words(&pages, table + index * ENTRY);
            let (block, vector) =
                (expected.get(index as usize / 256).copied().flatten(), index % 256);
            let wanted =
                block.filter(|(.., is_level)| vector >= 16 && (!is_level || owns(level, vector)));
            let right = wanted.map_or([0; 2], |(source, core, level)| {
                let low = 1 | u64::from(level) << 4 | vector << 16 | core << 32;
                [low, 0b01 << 18 | u64::from(source.0)]
            });
            assert_eq!(entry, right, "{index}");
        }
        let first = |source| first(&plan, source).unwrap();
        assert_eq!(first(Source::Function(DISK)), Some(256));
        assert_eq!(first(Source::Edge(0)), Some(3 * 256));
        assert_eq!(first(Source::Level(0)), Some(5 * 256));
        assert_eq!(first(Source::Function(CARD)), Some(7 * 256));
        assert_eq!((first(Source::Edge(1)), first(Source::Level(1))), (Some(8 * 256), None));
        assert_eq!(first(Source::Function(Bdf(0x20))), None);
    }

    #[test]
    fn only_owners_have_contexts() {
        let mut pages = Pages::new(&Plan::default());
        let grant = |requester, root, domain| Grant {
            requester,
            root,
            domain,
            messages: None,
            silent: false,
        };
        let grants = [
            grant(DISK, Some(0x5000), 1),
            grant(CARD, Some(0x6000), 2),
            grant(Bdf(0x108), None, 3),
        ];
        let made = tables(&mut pages, &two(), &grants).unwrap();
        let root = written(&made, register::ROOT);
        for bus in 0..256 {
            let [low, high] = words(&pages, root + bus * 16);
            assert_eq!((low & 1, high), (u64::from(bus < 2), 0), "{bus}");
            for function in (0..256).filter(|_| low & 1 != 0) {
                let expected = match bus << 8 | function {
                    0x18 => [0x5001, 0x102],
                    0x100 => [0x6001, 0x202],
                    _ => [0; 2],
                };
                assert_eq!(words(&pages, (low & !0xFFF) + function * 16), expected);
            }
        }
        // All of it is in the range of which the boot code sees that no monitor has a part.
        let whole = made.header.device_table;
        for at in [root, written(&made, register::QUEUE), written(&made, register::INTERRUPTS)] {
            assert!((whole.start..whole.start + whole.len).contains(&(at & !0xFFF)), "{at:#x}");
        }
        assert_eq!(made.header.base, 0);
    }

    #[test]
    fn a_unit_is_switched_on_last_and_with_empty_caches() {
        let plan = two();
        let made = tables(&mut Pages::new(&Plan::default()), &plan, &[]).unwrap();
        assert_eq!(made.steps.len(), count(&plan.machine.iommu.unwrap()));
        assert_eq!((made.steps[0].kind, made.steps[0].value), (ConfigOp::AT, 0xFED9_0000));
        let position =
            |found: &dyn Fn(&ConfigOp) -> bool| made.steps.iter().position(found).unwrap();
        let commanded = |bit: u32| {
            position(&|op| {
                (op.kind, op.offset) == (ConfigOp::SET, register::COMMAND) && op.value & bit != 0
            })
        };
        let awaited =
            position(&|op| (op.kind, op.offset) == (ConfigOp::AWAIT, register::COMPLETED));
        let order = [
            position(&|op| op.kind == ConfigOp::FLUSH),
            commanded(global::ROOT),
            commanded(global::QUEUE),
            commanded(global::INTERRUPTS),
            awaited,
            commanded(global::REMAPPING),
            commanded(global::TRANSLATION),
        ];
        assert!(order.is_sorted(), "{order:?}");
        let never = made.steps.iter().all(|op| {
            (op.kind, op.offset) != (ConfigOp::SET, register::COMMAND)
                || op.value & global::COMPATIBILITY == 0
        });
        assert!(never, "messages without an index would pass");
        // Without remapping there is no table of it.
        let plain = Iommu { remaps_interrupts: false, ..plan.machine.iommu.unwrap() };
        let plan = Plan { machine: Machine { iommu: Some(plain), ..plan.machine }, ..plan };
        let made = tables(&mut Pages::new(&Plan::default()), &plan, &[]).unwrap();
        assert_eq!(made.steps.len(), count(&plain));
        assert_eq!(written(&made, register::INTERRUPTS), 0);
        assert_eq!(first(&plan, Source::Function(DISK)).unwrap(), None);
    }

    #[test]
    fn more_blocks_than_an_index_can_name_are_refused() {
        let functions: Vec<_> = (0..64).map(|n| Bdf(n << 3)).collect();
        let cores = |n: u32| plan(vec![sandbox(&(0..n).collect::<Vec<_>>(), &functions, None)]);
        let made = |plan: &Plan| tables(&mut Pages::new(&Plan::default()), plan, &[]);
        assert!(made(&cores(3)).is_ok());
        let error = made(&cores(4)).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("256 times 256 entries are wanted"), "{error}");
    }
}
