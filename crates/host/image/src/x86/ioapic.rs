//! Interrupt lines: their owners, which vectors level-triggered ones may have, and who may use which slots of the
//! IOAPIC's remapping table.

use super::iommu::{self, RING};
use super::vtd::Source;
use crate::Error;
use crate::devices::Route;
use crate::pages::Pages;
use crate::space::Space;
use bulkhead_arch::Rights;
use bulkhead_arch_x86::iommu::{ENTRY, Messages, Requester, device_entry};
use bulkhead_ioapic::{
    FIRST_SLOT_VECTOR, Lines, MASKED, MAX_LINES, Remapping, SLOTS, Shadow as Written,
};
use bulkhead_kernel_x86::{FIRST_LEVEL, FIRST_VECTOR as FIRST_EDGE};
use bulkhead_layout::PAGE;
use bulkhead_layout::lock::Lock;
use bulkhead_layout::map::{COMMANDS_VA, LINES_VA, MMIO_VA};
use bulkhead_layout::x86::LineTest;
use bulkhead_plan::kernel::Driven;
use bulkhead_plan::{End, Guest, Machine, PIT, Plan, Sandbox, Trigger, forges};
use std::mem::offset_of;

/// First slot with a number that ends in a vector that may arrive: the IOAPIC sees the low eight bits as one. Slots of
/// delivery mode 0 are left out, so that a message that was not made here finds nothing.
const FIRST_SLOT: usize = SLOTS / 2 + FIRST_SLOT_VECTOR as usize;
/// The highest vector of a bare guest's level-triggered line: below the SDK's timer.
const LAST_LEVEL: u8 = 0xEE;
/// Vectors for kernels' level-triggered lines.
const LEVELS: u8 = FIRST_EDGE - FIRST_LEVEL;

/// Parts that monitors of sandboxes with lines share.
#[derive(Clone, Copy)]
pub struct Shared {
    /// The IOAPIC's lock.
    pub lock: u64,
    /// The IOAPIC's remapping table that monitors fill; `None`: its entries never hold slots.
    pub table: Option<u64>,
    /// The table that the boot code's test uses, that one or another page; `None`: there is no test.
    pub tested: Option<u64>,
    /// The ring of commands to the IOMMU, if a running Linux' monitor sends some.
    pub commands: Option<u64>,
}

/// The line of an ISA interrupt or GSI: the PIT's arrives at line 2 (ICH9, 5.9.2).
#[must_use]
pub const fn line(irq: u32) -> u32 {
    if irq == 0 { 2 } else { irq }
}

/// A sandbox's lines and how they signal, by number.
#[must_use]
pub fn of(machine: &Machine, sandbox: &Sandbox) -> Vec<(u32, Trigger)> {
    let count = count(machine);
    let devices = sandbox.devices.iter().filter_map(|d| d.irq.map(|irq| (line(irq), d.trigger)));
    // PCI's lines are level-triggered and active low (PCI 3.0, 2.2.6).
    let granted = sandbox.functions.iter().filter(|g| g.line);
    let functions = granted.filter_map(|g| g.function.irq.map(|line| (line, Trigger::LevelLow)));
    let mut all: Vec<_> = devices.chain(functions).filter(|(line, _)| *line < count).collect();
    all.sort_by_key(|(line, _)| *line);
    all.dedup_by_key(|(line, _)| *line);
    all
}

/// Lines that a guest sees.
fn count(machine: &Machine) -> u32 {
    machine.ioapic().map_or(0, |i| i.lines.min(MAX_LINES as u32))
}

/// Tells if some sandbox has a level-triggered line. Then messages of the IOAPIC are not remapped: QEMU's IOMMU drops
/// their trigger mode, so that no EOI would come back. Nor are they passed by IntCtl: it turns such ones into vector 0
/// (10.0.13).
#[must_use]
pub fn any_level(plan: &Plan) -> bool {
    plan.sandboxes.iter().any(|s| s.guest == Guest::Running || s.has_level_line())
}

/// Tells what the IOMMU does with the IOAPIC's messages, if it sees them; until the test has shown it, too.
#[must_use]
pub fn messages(machine: &Machine, shared: Option<Shared>) -> Messages {
    match shared {
        None => Messages::Abort,
        // They do not pass the IOMMU: whoever sends under this ID is somebody else.
        Some(_) if machine.iommu.is_some_and(|iommu| iommu.remaps_lines() == Some(false)) => {
            Messages::Abort
        }
        Some(Shared { table: Some(table), .. }) => Messages::Remap(table),
        Some(_) => Messages::Unseen,
    }
}

/// Treatment of these messages while the boot code tests them.
#[must_use]
pub fn until_tested(machine: &Machine, shared: Option<Shared>) -> Messages {
    let tested = shared.and_then(|lines| lines.tested);
    tested.map_or_else(|| messages(machine, shared), Messages::Remap)
}

/// The boot code's test of the device table at `table`, if there is one.
#[must_use]
pub fn test(plan: &Plan, shared: Option<Shared>, device_table: u64) -> LineTest {
    let machine = &plan.machine;
    let Some((lines, iommu)) = shared.zip(machine.iommu) else { return LineTest::default() };
    let (Some(tested), Some(bdf), Some(ioapic), Some(line)) =
        (lines.tested, iommu.ioapic(), machine.ioapic(), fired(machine))
    else {
        return LineTest::default();
    };
    let said = match iommu.remaps_lines() {
        None => 0,
        Some(true) => LineTest::SAID_SEEN,
        Some(false) => LineTest::SAID_UNSEEN,
    };
    let slots = if lines.table.is_some() { LineTest::SLOTS } else { 0 };
    let refused = if forges(plan.sandboxes.iter()) { LineTest::REFUSED } else { 0 };
    // Refused, with the table's address in its place: the auditor knows by it what monitors of lines map.
    let kept = |table| {
        device_entry(&Requester { messages: Messages::Remap(table), ..Requester::default() })[2]
            & !(0b11 << 60)
    };
    let word = |messages| device_entry(&Requester { messages, ..Requester::default() })[2];
    LineTest {
        entry: device_table + u64::from(bdf.0) * ENTRY as u64,
        table: tested,
        ioapic: ioapic.base,
        seen: word(lines.table.map_or(Messages::Unseen, Messages::Remap)),
        unseen: lines.table.map_or(word(Messages::Abort), kept),
        line,
        flags: said | slots | refused,
    }
}

/// The line that the boot code fires.
fn fired(machine: &Machine) -> Option<u32> {
    let pit = machine.devices.iter().find(|device| device.class == PIT)?;
    pit.irq.map(line).filter(|line| *line < count(machine))
}

/// Sets the monitors' shared parts aside, if there are lines. They are the lock and, with an IOMMU that may remap
/// lines, the IOAPIC's [`Remapping`] in a page of its own.
pub fn shared(pages: &mut Pages, plan: &Plan) -> Option<Shared> {
    let has = |s: &&Sandbox| s.guest == Guest::Running || !of(&plan.machine, s).is_empty();
    plan.machine.ioapic().and(plan.sandboxes.iter().find(has))?;
    let lock = pages.take(size_of::<Lock>() as u64);
    // Others' tables are not filled by monitors, and there is nothing to find out.
    let iommu = plan.machine.iommu.filter(|iommu| !iommu.is_vtd());
    let remaps = iommu.is_some_and(|iommu| iommu.remaps_lines() != Some(false));
    let table = (remaps && !any_level(plan)).then(|| pages.take(PAGE));
    if let Some((table, Some(true))) = table.zip(iommu.map(|iommu| iommu.remaps_lines())) {
        // So it is, if there is no test to see it by.
        let applies = table + offset_of!(Remapping, applies) as u64;
        pages.write(applies, &1u32.to_le_bytes());
    }
    let may = iommu.is_some_and(|iommu| iommu.remaps_interrupts) && fired(&plan.machine).is_some();
    let tested = may.then(|| table.unwrap_or_else(|| pages.take(PAGE)));
    let commands = unit(plan).map(|_| pages.take(RING));
    Some(Shared { lock, table, tested, commands })
}

/// Describes the lines for a monitor; `None` for a sandbox without lines.
///
/// # Errors
/// Level-triggered lines in two Linux sandboxes: each would need all vectors.
pub fn lines(plan: &Plan, index: usize, table: Option<u64>) -> Result<Option<Lines>, Error> {
    let own = of(&plan.machine, &plan.sandboxes[index]);
    let pins = pins(&plan.ends(index));
    if plan.runs(index) && plan.machine.ioapic().is_some() {
        return Ok(Some(running(plan)));
    }
    if own.is_empty() && pins == 0 {
        return Ok(None);
    }
    let set = |which: &dyn Fn(Trigger) -> bool| {
        own.iter().filter(|(_, t)| which(*t)).fold(0, |set, (line, _)| set | 1 << line)
    };
    let first = |source| match iommu::route(plan, source)? {
        Route::Entries(first) => Ok(first),
        _ => Ok::<_, Error>(0),
    };
    let entries = [first(Source::Edge(index))?, first(Source::Level(index))?];
    let slots = table.map_or(entries, |_| slots(plan, index));
    Ok(Some(Lines {
        registers: plan.machine.ioapic().map_or(0, |i| MMIO_VA + i.base),
        unit: 0,
        // It is mapped for those that have a line of the machine's.
        table: table.filter(|_| !own.is_empty()).map_or(0, |table| MMIO_VA + table),
        own: set(&|_| true) | pins,
        channels: pins,
        indexed: u32::from(entries != [0; 2]),
        level: set(&|trigger| trigger != Trigger::Edge),
        low: set(&|trigger| trigger == Trigger::LevelLow),
        count: match plan.sandboxes[index].guest {
            // A Linux writes each of them several times at its boot, at an exit each.
            Guest::Linux { .. } => {
                let last = own.iter().map(|(line, _)| line + 1).max().unwrap_or(0);
                last.max(u32::BITS - pins.leading_zeros())
            }
            Guest::Bare { .. } | Guest::Kernel(_) | Guest::Running => count(&plan.machine),
        },
        slots,
        level_vectors: level_vectors(plan, index)?,
    }))
}

/// Describes the lines for the monitor of a Linux that runs already. It has all of them that nobody else has, and says
/// itself how each signals. Others' signal by edges, so no end of a level's interrupt concerns them.
fn running(plan: &Plan) -> Lines {
    let machine = &plan.machine;
    let count = count(machine);
    let others = plan.sandboxes.iter().filter(|sandbox| sandbox.guest != Guest::Running);
    let others =
        others.flat_map(|sandbox| of(machine, sandbox)).fold(0, |set, (line, _)| set | 1 << line);
    Lines {
        registers: machine.ioapic().map_or(0, |i| MMIO_VA + i.base),
        own: u32::MAX >> (u32::BITS - count.clamp(1, u32::BITS)) & !others,
        count,
        unit: unit(plan).map_or(0, |page| MMIO_VA + page),
        level_vectors: [u64::MAX; 4],
        ..Lines::default()
    }
}

/// Finds the page of the IOMMU's registers by which a running Linux' monitor has entries of remapping tables forgotten.
#[must_use]
pub fn unit(plan: &Plan) -> Option<u64> {
    /// Head and tail of the rings, and the status (AMD IOMMU specification, 3.4.12).
    const RINGS: u64 = 0x2000;
    let iommu = plan.machine.iommu.filter(|iommu| iommu.remaps_interrupts && !iommu.is_vtd());
    iommu.filter(|_| plan.block.is_some()).map(|iommu| iommu.base + RINGS)
}

/// Lines that channels' ends have, as a set: they are no lines of the machine's.
#[must_use]
pub fn pins(ends: &[End]) -> u32 {
    ends.iter().filter_map(End::pin).fold(0, |set, pin| set | 1 << pin.line)
}

/// This sandbox's share of the remapping table: equal ones for all that have lines.
fn slots(plan: &Plan, index: usize) -> [u32; 2] {
    let with_lines = |s: &&Sandbox| !of(&plan.machine, s).is_empty();
    let sharers = plan.sandboxes.iter().filter(with_lines).count().max(1);
    let before = plan.sandboxes.iter().take(index).filter(with_lines).count();
    let share = (SLOTS - FIRST_SLOT) / sharers;
    let first = FIRST_SLOT + before * share;
    [first as u32, (first + share) as u32]
}

/// Vectors for a sandbox's level-triggered lines, unique in the machine. A bare guest gets one for each of them, from
/// the top: its information page says which. A kernel gets one of the lowest class for the line that its programs have
/// ([`FIRST_LEVEL`]). The vectors left are the one Linux', which chooses as it likes.
///
/// # Errors
/// See [`lines`].
pub fn level_vectors(plan: &Plan, index: usize) -> Result<[u64; 4], Error> {
    let mut bare = [0u64; 4];
    let (mut own, mut next, mut linux, mut kernels) = ([0u64; 4], LAST_LEVEL, None, 0);
    for (i, sandbox) in plan.sandboxes.iter().enumerate() {
        let all = of(&plan.machine, sandbox);
        let level = all.iter().filter(|(_, trigger)| *trigger != Trigger::Edge).count();
        match sandbox.guest {
            Guest::Linux { .. } if level > 0 => {
                if let Some(first) = linux.replace(i) {
                    let first: &Sandbox = &plan.sandboxes[first];
                    return Err(Error::Lines(format!(
                        "{} and {} both have a level-triggered line; a Linux needs all vectors for that",
                        first.name, sandbox.name
                    )));
                }
            }
            Guest::Linux { .. } | Guest::Running => {}
            Guest::Kernel(_) => {
                if held(sandbox).is_some() {
                    if kernels == LEVELS {
                        return Err(Error::Lines(format!(
                            "more than {LEVELS} kernels take interrupts of a level-triggered line"
                        )));
                    }
                    let bit = 1 << (FIRST_LEVEL + kernels);
                    bare[0] |= bit;
                    own[0] |= if i == index { bit } else { 0 };
                    kernels += 1;
                }
            }
            Guest::Bare { .. } => {
                for _ in 0..level {
                    let bit = 1 << (next % 64);
                    bare[usize::from(next / 64)] |= bit;
                    if i == index {
                        own[usize::from(next / 64)] |= bit;
                    }
                    next -= 1;
                }
            }
        }
    }
    if linux == Some(index) {
        own = bare.map(|taken| !taken);
        own[0] &= !0xFFFF;
    }
    Ok(own)
}

/// The level-triggered line of which a program of a kernel takes interrupts. It has one at
/// most: the manifest's rules see to that.
pub fn held(sandbox: &Sandbox) -> Option<u32> {
    let Guest::Kernel(kernel) = &sandbox.guest else { return None };
    let uses = kernel.programs.iter().flat_map(|program| &program.devices);
    let mut lines = uses.filter(|used| !used.interrupts.is_empty()).filter_map(|used| {
        let (line, trigger) = source(sandbox, used.device)?;
        (trigger != Trigger::Edge).then_some(line)
    });
    lines.next()
}

/// The line by which a device signals a program, if it does so by a line.
pub fn source(sandbox: &Sandbox, driven: Driven) -> Option<(u32, Trigger)> {
    match driven {
        Driven::Device(n) => {
            let device = &sandbox.devices[n];
            Some((line(device.irq?), device.trigger))
        }
        Driven::Function(n) => {
            let granted = &sandbox.functions[n];
            let line = granted.function.irq.filter(|_| granted.line);
            Some((line?, Trigger::LevelLow))
        }
    }
}

/// The vector of a kernel's level-triggered line.
///
/// # Errors
/// See [`lines`].
pub fn level_vector(plan: &Plan, index: usize) -> Result<Option<u8>, Error> {
    if held(&plan.sandboxes[index]).is_none() {
        return Ok(None);
    }
    Ok(Some(level_vectors(plan, index)?[0].trailing_zeros() as u8))
}

/// Sets aside what a guest writes to its lines, and lists all that its monitor maps for them.
pub fn space(pages: &mut Pages, plan: &Plan, lines: &Lines, shared: Option<Shared>) -> Space {
    let mut own = Space::default();
    own.add(LINES_VA + PAGE, shadow(pages), PAGE, Rights::RW, "writes to its lines");
    let has_lines = lines.own & !lines.channels != 0;
    if let (true, Some(shared), Some(ioapic)) = (has_lines, shared, plan.machine.ioapic()) {
        own.add(LINES_VA, shared.lock, PAGE, Rights::RW, "lock of the lines");
        for pa in [Some(ioapic.base), shared.table].into_iter().flatten() {
            own.device(MMIO_VA + pa, pa, PAGE, Rights::RW, "lines");
        }
        if let (Some(commands), Some(page)) =
            (shared.commands.filter(|_| lines.unit != 0), unit(plan))
        {
            own.add(COMMANDS_VA, commands, RING, Rights::RW, "commands to the IOMMU");
            own.device(lines.unit, page, PAGE, Rights::RW, "registers of the IOMMU");
        }
    }
    own
}

/// Sets aside the page with the registers as a guest finds them, before it has written any.
fn shadow(pages: &mut Pages) -> u64 {
    let at = pages.take(size_of::<Written>() as u64);
    let [low, high] = MASKED.map(u32::to_le_bytes);
    // The selected register is 0; then the entries.
    let entries = [low, high].concat().repeat(MAX_LINES);
    pages.write(at + (size_of::<Written>() - entries.len()) as u64, &entries);
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_plan::kernel::{DeviceUse, Interrupt, Kernel, Program};
    use bulkhead_plan::{Bdf, Controller, Device, Granted, Ioapic, Iommu, IommuKind};

    fn sandbox(linux: bool, irqs: &[(u32, Trigger)]) -> Sandbox {
        let device = |&(irq, trigger): &(u32, Trigger)| Device {
            name: format!("irq{irq}"),
            irq: Some(irq),
            trigger,
            ..Device::default()
        };
        let guest = match linux {
            true => Guest::Linux { kernel: "k".into(), initrd: None, cmdline: String::new() },
            false => Guest::default(),
        };
        let devices = irqs.iter().map(device).collect();
        Sandbox { name: "s".into(), guest, devices, ..Sandbox::default() }
    }

    fn unit(remaps_interrupts: bool, remaps_lines: Option<bool>, ioapic: Option<Bdf>) -> Iommu {
        let kind = IommuKind::AmdVi { ioapic, remaps_lines };
        Iommu { kind, remaps_interrupts, ..Iommu::default() }
    }

    fn plan(sandboxes: Vec<Sandbox>) -> Plan {
        let ioapic = Controller::Ioapic(Ioapic { base: 0xFEC0_0000, lines: 24 });
        let iommu = Some(unit(false, Some(true), None));
        let machine = Machine { controller: Some(ioapic), iommu, ..Machine::default() };
        Plan { machine, sandboxes, ..Plan::default() }
    }

    use Trigger::{Edge, LevelHigh, LevelLow};

    #[test]
    fn a_running_linux_has_all_lines_but_those_of_others() {
        let linux = Sandbox { guest: Guest::Running, ..sandbox(false, &[(3, Edge)]) };
        let plan = plan(vec![sandbox(false, &[(4, Edge)]), linux]);
        let own = |index| lines(&plan, index, None).unwrap().unwrap().own;
        assert_eq!([own(0), own(1)], [1 << 4, 0xFF_FFEF]);
    }

    #[test]
    fn commands_to_the_iommu_are_a_running_linuxs() {
        let plan = |remaps, block| {
            let linux = Sandbox { guest: Guest::Running, ..sandbox(false, &[]) };
            let mut plan = plan(vec![sandbox(false, &[(4, Edge)]), linux]);
            let machine = &mut plan.machine;
            machine.iommu = Some(Iommu { base: 0xFED8_0000, ..unit(remaps, None, None) });
            plan.block = block;
            plan
        };
        let block = Some(bulkhead_plan::Span { start: 0, len: PAGE });
        let running = plan(true, block);
        let own = |index| lines(&running, index, None).unwrap().unwrap().unit;
        assert_eq!([own(0), own(1)], [0, MMIO_VA + 0xFED8_2000]);
        let mut pages = Pages::new(&running);
        let all = shared(&mut pages, &running);
        let reached = |index| {
            let lines = lines(&running, index, None).unwrap().unwrap();
            let space = space(&mut Pages::new(&running), &running, &lines, all);
            let regions = space.regions.iter();
            regions.filter(|r| [COMMANDS_VA, MMIO_VA + 0xFED8_2000].contains(&r.at)).count()
        };
        assert_eq!([reached(0), reached(1)], [0, 2]);
        for other in [plan(false, block), plan(true, None)] {
            assert_eq!(super::unit(&other), None);
        }
    }

    #[test]
    fn lines_are_those_of_devices() {
        let plan = plan(vec![
            sandbox(true, &[(4, Edge), (0, Edge), (16, LevelLow), (24, Edge)]),
            sandbox(false, &[]),
            sandbox(false, &[(3, Edge), (9, LevelHigh)]),
        ]);
        let of = |index| lines(&plan, index, None).unwrap();
        let linux = of(0).unwrap();
        assert_eq!(
            [linux.own, linux.level, linux.low],
            [1 << 2 | 1 << 4 | 1 << 16, 1 << 16, 1 << 16]
        );
        // Up to its last line; a bare guest sees all.
        assert_eq!((linux.count, linux.slots), (17, [0, 0]));
        assert_eq!(of(1), None);
        let bare = of(2).unwrap();
        assert_eq!(bare.count, 24);
        assert_eq!([bare.own, bare.level, bare.low], [1 << 3 | 1 << 9, 1 << 9, 0]);
        assert_eq!(bare.level_vectors, [0, 0, 0, 1 << (0xEE - 192)]);
        assert_eq!(linux.level_vectors, [!0xFFFF, !0, !0, !(1 << (0xEE - 192))]);
    }

    #[test]
    fn level_vectors_are_unique() {
        let level = [(16, LevelLow), (17, LevelLow)];
        let bare = plan(vec![
            sandbox(false, &level),
            sandbox(true, &[(4, Edge)]),
            sandbox(false, &[(18, LevelLow)]),
        ]);
        let sets: Vec<_> = (0..3).map(|i| level_vectors(&bare, i).unwrap()).collect();
        let shared = |a: usize, b: usize| sets[a].iter().zip(sets[b]).any(|(a, b)| a & b != 0);
        assert!(!shared(0, 2) && sets[1] == [0; 4]);
        let two = plan(vec![sandbox(true, &level), sandbox(true, &[(18, LevelLow)])]);
        assert!(lines(&two, 0, None).is_err());
    }

    #[test]
    fn kernels_have_vectors_of_the_lowest_class_for_what_their_programs_take() {
        let kernel = |takes| {
            let interrupts = match takes {
                true => vec![Interrupt { number: 0, notification: 0, bits: 1 }],
                false => Vec::new(),
            };
            let program = Program {
                name: "p".into(),
                devices: vec![DeviceUse { device: Driven::Device(0), interrupts, dma: Vec::new() }],
                ..Program::default()
            };
            let kernel = Kernel { file: "k".into(), programs: vec![program], ..Kernel::default() };
            Sandbox { guest: Guest::Kernel(Box::new(kernel)), ..sandbox(true, &[(16, LevelLow)]) }
        };
        let plan = plan(vec![kernel(true), kernel(false), sandbox(false, &[]), kernel(true)]);
        let of = |index| level_vector(&plan, index).unwrap();
        assert_eq!([of(0), of(1), of(2), of(3)], [Some(32), None, None, Some(33)]);
        assert_eq!(level_vectors(&plan, 3).unwrap(), [1 << 33, 0, 0, 0]);
    }

    #[test]
    fn shares_of_the_table_do_not_overlap() {
        let line = |irq| sandbox(false, &[(irq, Edge)]);
        let plan = plan(vec![line(1), sandbox(true, &[]), line(3), line(4)]);
        assert!(shared(&mut Pages::new(&Plan::default()), &plan).unwrap().table.is_some());
        let of = |index| lines(&plan, index, Some(PAGE)).unwrap().map(|l| l.slots);
        assert_eq!([of(0), of(2), of(3)], [Some([288, 362]), Some([362, 436]), Some([436, 510])]);
    }

    #[test]
    fn a_level_line_ends_remapping() {
        let plan = plan(vec![sandbox(false, &[(16, LevelLow)])]);
        let level = shared(&mut Pages::new(&Plan::default()), &plan);
        assert_eq!(messages(&plan.machine, level), Messages::Unseen);
        let none = super::tests::plan(vec![sandbox(true, &[])]);
        let shared = shared(&mut Pages::new(&Plan::default()), &none);
        assert_eq!(messages(&none.machine, shared), Messages::Abort);
    }

    #[test]
    fn who_does_not_see_lines_lets_nothing_through() {
        let mut plan = plan(vec![sandbox(false, &[(4, Edge), (16, LevelLow)])]);
        plan.machine.iommu = Some(unit(true, Some(false), None));
        let made = shared(&mut Pages::new(&Plan::default()), &plan).unwrap();
        assert_eq!(made.table, None);
        assert_eq!(messages(&plan.machine, Some(made)), Messages::Abort);
    }

    /// Makes a machine on which the boot code can find out, with sandboxes.
    fn open(sandboxes: Vec<Sandbox>) -> Plan {
        let mut plan = plan(sandboxes);
        plan.machine.iommu = Some(unit(true, None, Some(Bdf(0xA0))));
        plan.machine.devices = sandbox(false, &[(0, Edge)]).devices;
        plan.machine.devices[0].class = PIT.into();
        plan
    }

    #[test]
    fn the_boot_code_is_told_both_outcomes() {
        let edge = open(vec![sandbox(false, &[(4, Edge)])]);
        let made = shared(&mut Pages::new(&Plan::default()), &edge).unwrap();
        assert_eq!(made.table, made.tested);
        let found = test(&edge, Some(made), 0x10_0000);
        assert_eq!((found.entry, found.table), (0x10_1400, made.tested.unwrap()));
        assert_eq!((found.ioapic, found.line, found.flags), (0xFEC0_0000, 2, LineTest::SLOTS));
        let table = 9 << 1 | 1 | found.table;
        assert_eq!((found.seen, found.unseen), (2 << 60 | table, table));
        // Level-triggered: not looked at; refused beside a function of whomever, if there are several sandboxes.
        let level = || sandbox(false, &[(16, LevelLow)]);
        let alone = open(vec![level(), level()]);
        let made = shared(&mut Pages::new(&Plan::default()), &alone).unwrap();
        let found = test(&alone, Some(made), 0x10_0000);
        assert_eq!((made.table, found.seen, found.unseen, found.flags), (None, 0, 1, 0));
        let mut forges = open(vec![level(), sandbox(true, &[])]);
        forges.sandboxes[1].functions = vec![Granted::default()];
        assert_eq!(test(&forges, Some(made), 0).flags, LineTest::REFUSED);
        forges.sandboxes.swap(0, 1);
        forges.sandboxes.truncate(1);
        assert_eq!(test(&forges, Some(made), 0).flags, 0);
        // No lines, nothing to be found out.
        assert_eq!(test(&forges, None, 0), LineTest::default());
    }

    #[test]
    fn what_the_description_says_is_checked() {
        for (said, flag) in [(true, LineTest::SAID_SEEN), (false, LineTest::SAID_UNSEEN)] {
            let mut plan = open(vec![sandbox(false, &[(16, LevelLow)])]);
            plan.machine.iommu = Some(unit(true, Some(said), Some(Bdf(0xA0))));
            let made = shared(&mut Pages::new(&Plan::default()), &plan);
            assert_eq!(test(&plan, made, 0).flags, flag);
            // Without an 8254 nobody can look.
            plan.machine.devices.clear();
            let made = shared(&mut Pages::new(&Plan::default()), &plan);
            assert_eq!(test(&plan, made, 0), LineTest::default());
        }
    }

    #[test]
    fn a_fresh_shadow_is_masked() {
        let mut pages = Pages::new(&Plan::default());
        let at = shadow(&mut pages);
        let bytes = pages.read(at, size_of::<Written>() as u64);
        let words: Vec<_> =
            bytes.chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
        assert_eq!(words[0], 0);
        assert!(words[1..].chunks(2).all(|entry| entry == MASKED));
    }
}
