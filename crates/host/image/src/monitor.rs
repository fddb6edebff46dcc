//! One sandbox's monitor and everything that confines its guest.

use crate::elf::Program;
use crate::guest::Guest;
use crate::iommu::vtd::Source;
use crate::iommu::{self, Grant, Route};
use crate::pages::{Pages, Tables};
use crate::parts::{Part, Shared};
use crate::pci::{self, Seen, Shadow};
use crate::target::{Confine, Target};
use crate::{Error, end, info, ioapic, nested, ports};
use bulkhead_arch::Rights;
use bulkhead_arch_x86::config::{Config, Quiet};
use bulkhead_arch_x86::iommu::{Messages, Requester};
use bulkhead_arch_x86::msr;
use bulkhead_channel::layout::{ARMED, HELLO};
use bulkhead_ioapic::Lines;
use bulkhead_layout::bell::{Bell, End};
use bulkhead_layout::hypercall;
use bulkhead_layout::image::{self, Range};
use bulkhead_layout::info::Info;
use bulkhead_layout::link::Link;
use bulkhead_layout::load::PROGRAM_GPA;
use bulkhead_layout::map::*;
use bulkhead_layout::monitor::{Action, Core, Mailbox, Ram, Slice};
use bulkhead_layout::pci::Function;
use bulkhead_layout::record::Op;
use bulkhead_layout::report::{self, CoreReport, State};
use bulkhead_layout::{MAX_CORES, MAX_SANDBOXES, PAGE, need};
use bulkhead_plan::{self as plan, Bdf, Granted, Plan, RTC, Sandbox, Span};
use core::mem::offset_of;
use zerocopy::{FromZeros, IntoBytes};

const MAILBOX: u64 = size_of::<Mailbox>() as u64;
/// The info page in the monitor's address space: after its own configuration.
const INFO_VA: u64 = CONFIG_VA + 0x8_0000;

/// Where a piece of the pristine guest lies: physical and guest-physical address, bytes.
pub struct Pristine {
    pub pa: u64,
    pub gpa: u64,
    pub len: u64,
}

/// Everything that one sandbox's monitor is made of.
pub struct Input<'a> {
    pub plan: &'a Plan,
    pub index: usize,
    pub guest: &'a Guest,
    pub pristine: &'a [Pristine],
    pub program: &'a Program,
    pub shared: &'a Shared,
}

/// What baking a monitor gives.
pub struct Made {
    /// The boot code's description.
    pub sandbox: image::Sandbox,
    /// Parts for the memory map.
    pub parts: Vec<Part>,
    /// What its functions may do.
    pub grants: Vec<Grant>,
}

/// Bakes it.
pub fn bake<T: Target>(pages: &mut Pages, input: &Input) -> Result<Made, Error> {
    let sandbox = &input.plan.sandboxes[input.index];
    let start = pages.end();
    let mut parts = Vec::new();
    let mut part = |pages: &Pages, from: u64, what: &'static str, privileged: bool| {
        parts.push(Part {
            start: from,
            len: pages.end() - from,
            owner: Some(input.index),
            what,
            mapped: privileged,
        });
    };

    let text = pages.end();
    let text_pages = segments(pages, input.program);
    part(pages, text, "monitor text", true);

    let table = input.shared.lines.and_then(|l| l.table);
    let lines = ioapic::lines(input.plan, input.index, table)?;
    let info = info::page(input.plan, input.index, &input.guest.args, lines.unwrap_or_default());
    let info_pa = pages.put(info.as_bytes());
    let idt_pa = pages.put(&idt(input.program)?);
    part(pages, info_pa, "info page, IDT", true);

    let written = lines.map(|_| ioapic::shadow(pages));
    if let Some(at) = written {
        part(pages, at, "interrupt lines", true);
    }

    let cores = sandbox.cores.len() as u64;
    let stacks = pages.take(cores * CORE_STACK_SIZE);
    let control = pages.take(cores * PAGE);
    let host = T::MAPS_HOST.then(|| pages.take(cores * PAGE));
    part(pages, stacks, "stacks, control blocks", true);

    let remapping = pages.end();
    let mut functions = Functions::bake(pages, input)?;
    let shadow = std::mem::take(&mut functions.shadow.words);
    let shadow_len = (shadow.len() as u64 * 4).next_multiple_of(PAGE);
    let shadow_pa = pages.take(shadow_len);
    part(pages, remapping, "interrupt remapping tables, device shadows", true);

    let confining = pages.end();
    let host = host.unwrap_or_else(|| pages.take(cores * PAGE));
    let bitmaps = T::bitmaps(pages, sandbox);
    let memory = nested::own_memory(input.plan, input.index, input.guest);
    let (reports, machine) = (&input.shared.reports, &input.plan.machine);
    let with_its_sandbox =
        |(n, granted): (usize, &Granted)| !granted.unconfined && own_reach(sandbox, n).is_none();
    let confined = sandbox.functions.iter().enumerate().any(with_its_sandbox);
    let io_root = if confined { iommu::io_pages(pages, machine, &memory)? } else { None };
    let roots = { 0..sandbox.functions.len() }
        .map(|n| match own_reach(sandbox, n) {
            Some(own) => iommu::io_pages(pages, machine, &own),
            None => Ok(io_root),
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let shown = nested::Shown { info: info_pa, reports, ends: &functions.ends };
    let root = nested::tables::<T::Nested>(pages, input.plan, input.index, &memory, &shown)?;
    let slots = nested::slots::<T::Nested>(pages, input.plan, input.index, root)?;
    part(pages, confining, "host save areas, bitmaps, nested and I/O tables", false);

    let config_pa = pages.end();
    let confine = Confine { bitmaps, root, tag: input.index as u32 + 1 };
    let config = config::<T>(input, &confine, [control, host], &functions, &shadow, lines, &slots)?;
    pages.put(&config);
    part(pages, config_pa, "configuration, launch record", true);

    let tables = pages.end();
    let mut monitor = Tables::<T::Own>::new(pages);
    for (va, pa, len, rights) in text_pages {
        monitor.map(va, pa, len, rights)?;
    }
    monitor.map(CONFIG_VA, config_pa, (config.len() as u64).next_multiple_of(PAGE), Rights::R)?;
    monitor.map(INFO_VA, info_pa, PAGE, Rights::R)?;
    monitor.map(IDT_VA, idt_pa, PAGE, Rights::R)?;
    monitor.map(SHADOW_VA, shadow_pa, shadow_len, Rights::RW)?;
    for (span, rights) in &functions.pages {
        monitor.device(MMIO_VA + span.start, span.start, span.len, *rights)?;
    }
    for (n, made) in functions.ends.iter().enumerate() {
        let at = FUNCTIONS_VA + n as u64 * FUNCTION_STRIDE;
        for (n, page) in [made.config, made.registers, made.states].into_iter().enumerate() {
            monitor.map(at + n as u64 * PAGE, page, PAGE, Rights::RW)?;
        }
    }
    let report = input.shared.reports[input.index];
    monitor.map(REPORT_VA, report, report::size(0), Rights::RW)?;
    for other in 0..input.plan.sandboxes.len() {
        let rights = if other == input.index { Rights::RW } else { Rights::R };
        monitor.map(
            MAILBOX_VA + other as u64 * MAILBOX,
            input.shared.mailboxes + other as u64 * MAILBOX,
            MAILBOX,
            rights,
        )?;
    }
    for core in 0..cores {
        let block = CORES_VA + core * CORE_STRIDE;
        monitor.map(
            block + CORE_STACK,
            stacks + core * CORE_STACK_SIZE,
            CORE_STACK_SIZE,
            Rights::RW,
        )?;
        monitor.map(block + CORE_CONTROL, control + core * PAGE, PAGE, Rights::RW)?;
        if T::MAPS_HOST {
            monitor.map(block + CORE_HOST, host + core * PAGE, PAGE, Rights::RW)?;
        }
        monitor.map(
            block + CORE_REPORT,
            report + report::size(core as usize),
            size_of::<CoreReport>() as u64,
            Rights::RW,
        )?;
    }
    if let Some(written) = written {
        monitor.map(LINES_VA + PAGE, written, PAGE, Rights::RW)?;
    }
    let has_lines = lines.is_some_and(|lines| lines.own & !lines.channels != 0);
    if let (true, Some(shared), Some(ioapic)) =
        (has_lines, input.shared.lines, input.plan.machine.ioapic)
    {
        monitor.map(LINES_VA, shared.lock, PAGE, Rights::RW)?;
        for page in [Some(ioapic.base), shared.table].into_iter().flatten() {
            monitor.device(MMIO_VA + page, page, PAGE, Rights::RW)?;
        }
    }
    for (rx, _) in bells(input.plan, input.index) {
        monitor.map(GUEST_VA + rx.gpa, rx.hpa, PAGE, Rights::R)?;
    }
    if let Some(from) = loads(input.plan, input.index) {
        monitor.map(GUEST_VA + from.gpa, from.hpa, from.len, Rights::R)?;
    }
    for own in &slots {
        monitor.map(SLOT_TABLES_VA + own.number as u64 * PAGE, own.table, PAGE, Rights::RW)?;
        let slot = &input.plan.slots[own.number];
        if slot.owner == input.index {
            monitor.map(GUEST_VA + slot.gpa, slot.hpa, slot.len, Rights::RW)?;
        }
    }
    for own in ends(input.plan, input.index) {
        monitor.map(GUEST_VA + own.gpa, own.hpa, PAGE, Rights::RW)?;
    }
    for ram in &sandbox.ram {
        monitor.map(GUEST_VA + ram.gpa, ram.hpa, ram.len, Rights::RW)?;
    }
    for p in input.pristine {
        let (first, end) = (p.pa / PAGE * PAGE, (p.pa + p.len).next_multiple_of(PAGE));
        monitor.map(PRISTINE_VA + (first - IMAGE_PA), first, end - first, Rights::R)?;
    }
    monitor.map(TRAMPOLINE_PA, TRAMPOLINE_PA, PAGE, Rights::RX)?;
    let monitor_root = monitor.root.unwrap_or_default();
    part(pages, tables, "monitor's page tables", false);

    let mut described = described(sandbox);
    described.monitor = Range { start, len: pages.end() - start };
    described.monitor_root = monitor_root;
    described.entry_va = input.program.entry;
    described.info_pa = info_pa;
    let grants = |(granted, root): (&Granted, Option<u64>)| {
        let bdf = granted.function.bdf;
        let table = functions.remap.iter().find(|(of, _)| *of == bdf);
        let messages = table.map_or(Messages::Pass, |(_, table)| Messages::Remap(*table));
        // Those of one domain have one root.
        let domain = match root == io_root {
            true => input.index,
            false => {
                let all = &input.plan.machine.functions;
                MAX_SANDBOXES + all.iter().position(|one| one.bdf == bdf).unwrap_or(0)
            }
        };
        let requester = Requester { root, domain: domain as u16 + 1, messages };
        let ids = [bdf].into_iter().chain(granted.function.requesters.clone());
        ids.map(|id| (id, requester)).collect::<Vec<_>>()
    };
    let grants = sandbox.functions.iter().zip(roots).flat_map(grants).collect();
    Ok(Made { sandbox: described, parts, grants })
}

/// What a function reaches that a program of a kernel drives; `None`: what its sandbox does.
fn own_reach(sandbox: &Sandbox, function: usize) -> Option<Vec<nested::Mapping>> {
    let plan::Guest::Kernel(kernel) = &sandbox.guest else { return None };
    if sandbox.functions[function].unconfined {
        return None;
    }
    let ram = sandbox.ram.first()?;
    let reach = kernel.dma(function, ram.len).into_iter().map(|reach| nested::Mapping {
        gpa: ram.gpa + reach.at,
        hpa: ram.hpa + reach.at,
        len: reach.len,
        rights: if reach.write { Rights::RW } else { Rights::R },
    });
    Some(reach.collect())
}

/// What the boot code has to know of a sandbox's memory and cores.
pub fn described(sandbox: &Sandbox) -> image::Sandbox {
    let mut described = image::Sandbox::new_zeroed();
    for (range, ram) in described.memory.iter_mut().zip(&sandbox.ram) {
        *range = Range { start: ram.hpa, len: ram.len };
    }
    described.cores = sandbox.cores.len() as u32;
    described.core_ids = ids(sandbox);
    described
}

/// x2APIC IDs of its cores as a set, of those below 256.
fn set_of(sandbox: &Sandbox) -> [u64; 4] {
    let mut set = [0; 4];
    for &id in sandbox.apic_ids.iter().filter(|&&id| id < 256) {
        set[id as usize / 64] |= 1 << (id % 64);
    }
    set
}

fn ids(sandbox: &Sandbox) -> [u32; MAX_CORES] {
    let mut ids = [0; MAX_CORES];
    for (to, from) in ids.iter_mut().zip(&sandbox.apic_ids) {
        *to = *from;
    }
    ids
}

/// This sandbox's copy of the monitor: virtual address, page, length, rights.
fn segments(pages: &mut Pages, program: &Program) -> Vec<(u64, u64, u64, Rights)> {
    let copy = |s: &crate::elf::Segment| {
        let pa = pages.put(&s.bytes);
        (s.address, pa, s.size.next_multiple_of(PAGE), s.rights)
    };
    program.segments.iter().map(copy).collect()
}

/// Regions of others that a sandbox rings for, by number.
fn bells(plan: &Plan, index: usize) -> impl Iterator<Item = (&plan::Channel, plan::Bell)> {
    let own = plan.channels.iter().filter(move |rx| rx.to.contains(&index));
    own.filter_map(|rx| Some((rx, rx.bell?)))
}

/// What another sandbox may load into this one.
fn loads(plan: &Plan, index: usize) -> Option<&plan::Channel> {
    let mut all = plan.channels.iter().filter(|c| c.part == plan::Part::Program);
    all.find(|c| c.to.contains(&index))
}

/// Regions of messages that a sandbox writes.
fn ends(plan: &Plan, index: usize) -> impl Iterator<Item = &plan::Channel> {
    let own = plan.channels.iter().filter(move |region| region.from == index);
    own.filter(|region| region.part.has_header())
}

/// Interrupt gates (APM 4.8.4) for the monitor: NMI, faults, and a drain for
/// whatever vectors a former guest left pending: from 16 on, as a local APIC
/// accepts them.
fn idt(program: &Program) -> Result<Vec<u8>, Error> {
    const CODE: u64 = 0x18;
    const INTERRUPT_GATE: u64 = 0x8E00;
    let [nmi, fault, drain] = [
        program.symbol("monitor_nmi")?,
        program.symbol("monitor_fault")?,
        program.symbol("monitor_drain")?,
    ];
    let gate = |vector: u64| {
        let handler = match vector {
            2 => nmi,
            0..16 => fault,
            _ => drain,
        };
        let low =
            handler & 0xFFFF | CODE << 16 | INTERRUPT_GATE << 32 | (handler >> 16 & 0xFFFF) << 48;
        [low, handler >> 32]
    };
    Ok((0..256).flat_map(gate).flat_map(u64::to_le_bytes).collect())
}

/// Calls `allow` for each port that a guest uses without an exit.
pub fn each_port(sandbox: &Sandbox, mut allow: impl FnMut(u16)) {
    // The clock's owner reaches it by its monitor (docs/decisions/0038-clock.md).
    for ports in sandbox.devices.iter().filter(|d| d.class != RTC).flat_map(|d| &d.ports) {
        (ports.first..=ports.last).for_each(&mut allow);
    }
    for bar in sandbox.functions.iter().flat_map(|granted| &granted.function.bars) {
        if bar.kind == plan::BarKind::Io {
            let ports = bar.span.start..bar.span.end();
            ports.for_each(|port| allow(port as u16));
        }
    }
}

/// What a monitor knows of PCI.
#[derive(Default)]
struct Functions {
    seen: Vec<pci::Described>,
    shadow: Shadow,
    /// Pages that the monitor maps at [`MMIO_VA`].
    pages: Vec<(Span, Rights)>,
    /// Interrupt remapping tables by function.
    remap: Vec<(Bdf, u64)>,
    /// Its ends of channels.
    ends: Vec<end::Made>,
}

impl Functions {
    fn bake(pages: &mut Pages, input: &Input) -> Result<Self, Error> {
        let mut all = Self::default();
        all.hardware(pages, input)?;
        for (n, own) in input.plan.ends(input.index).iter().enumerate() {
            let states = input.shared.states[&own.region];
            let (made, described) = end::bake(pages, input.plan, (n, own), states, &mut all.shadow);
            all.ends.push(made);
            all.seen.push(described);
        }
        Ok(all)
    }

    /// The machine's functions.
    fn hardware(&mut self, pages: &mut Pages, input: &Input) -> Result<(), Error> {
        let machine = &input.plan.machine;
        let Some(root) = &machine.pci else { return Ok(()) };
        for seen in pci::seen(machine, &input.plan.sandboxes[input.index].functions) {
            let bdf = seen.bdf();
            let mut page = Span { start: root.config(bdf), len: PAGE };
            let mut rights = Rights::R;
            let mut described = pci::Described::default();
            match seen {
                Seen::Own(granted) => {
                    rights = Rights::RW;
                    described = pci::own(granted, &mut self.shadow);
                    self.reach(pci::trap(&granted.function));
                    pci::reset_registers(&granted.function).for_each(|page| self.reach(page));
                    described.function.remap_va =
                        match iommu::route(input.plan, Source::Function(bdf))? {
                            Route::Direct => 0,
                            Route::Table => {
                                let table = pages.take(PAGE);
                                self.pages.push((Span { start: table, len: PAGE }, Rights::RW));
                                self.remap.push((bdf, table));
                                MMIO_VA + table
                            }
                            Route::Entries(first) => first.into(),
                        };
                }
                Seen::Bridge(_) => described.registers = pci::bridge(),
                Seen::Placeholder(_) => page.start = pages.put(&pci::placeholder()),
            }
            described.function.bdf = u32::from(bdf.0);
            described.function.config_va = MMIO_VA + page.start;
            self.pages.push((page, rights));
            self.seen.push(described);
        }
        Ok(())
    }

    /// Maps pages of registers. Small BARs of several functions can be on one.
    fn reach(&mut self, span: Span) {
        for start in (span.start..span.end()).step_by(PAGE as usize) {
            let page = (Span { start, len: PAGE }, Rights::RW);
            if !self.pages.contains(&page) {
                self.pages.push(page);
            }
        }
    }
}

/// Configuration, launch record and tables of a monitor, as one block of bytes.
fn config<T: Target>(
    input: &Input,
    confine: &Confine,
    [control, host]: [u64; 2],
    functions: &Functions,
    shadow: &[u32],
    lines: Option<Lines>,
    slots: &[nested::Slot],
) -> Result<Vec<u8>, Error> {
    let (plan, index) = (input.plan, input.index);
    let sandbox = &plan.sandboxes[index];
    let mut config = Config::new_zeroed();
    config.own = set_of(sandbox);
    config.sandbox = index as u32;
    config.cores = sandbox.cores.len() as u32;
    let set = |of: &mut dyn Iterator<Item = usize>| of.fold(0u32, |set, i| set | 1 << i);
    let offers = plan.slots.iter().filter(|slot| slot.owner == index);
    config.rights = hypercall::Rights {
        control: [0, 1, 2].map(|n: usize| set(&mut sandbox.control[n].iter().map(|r| r.sandbox))),
        connect: set(&mut offers.flat_map(|slot| slot.to.iter().copied())),
        slots: set(&mut slots.iter().map(|slot| slot.number)),
    };
    config.controlled_by = [0, 1, 2].map(|n: usize| {
        let has = |s: &Sandbox| s.control[n].iter().any(|right| right.sandbox == index);
        set(&mut plan.sandboxes.iter().enumerate().filter_map(|(i, s)| has(s).then_some(i)))
    });
    for (n, rights) in sandbox.control.iter().enumerate() {
        let every = |right: &plan::Right| (right.every / 1_000).min(u64::from(u32::MAX)) as u32;
        rights.iter().for_each(|right| config.every[right.sandbox][n] = every(right));
    }
    config.sandboxes = plan.sandboxes.len() as u32;
    config.begin = match sandbox.autostart {
        true => State::Launching as u32,
        false => State::Stopped as u32,
    };
    config.ends = sandbox.actions.map(Action::ends_in);
    // The table's limit, then its address, lowest bits first.
    let address = |n: usize| (IDT_VA >> (16 * n)) as u16;
    config.idtr[..5].copy_from_slice(&[0xFFF, address(0), address(1), address(2), address(3)]);
    config.core_ids = ids(sandbox);
    for (to, s) in config.first_core.iter_mut().zip(&plan.sandboxes).take(MAX_SANDBOXES) {
        *to = s.apic_ids[0];
    }
    for (i, core) in config.core.iter_mut().enumerate().take(sandbox.cores.len()) {
        let at = i as u64 * PAGE;
        *core = Core { control_pa: control + at, host_pa: host + at };
    }
    config.clock_va = INFO_VA + offset_of!(Info, clock) as u64;
    config.argument = input.guest.argument;
    for (to, ram) in config.ram.iter_mut().zip(&sandbox.ram) {
        *to = Ram { gpa: ram.gpa, len: ram.len };
    }

    let mut tail: Vec<u8> = Vec::new();
    let mut append = |bytes: &[u8], len: usize| {
        tail.resize(tail.len().next_multiple_of(8), 0);
        let slice = Slice { offset: (size_of::<Config>() + tail.len()) as u32, len: len as u32 };
        tail.extend_from_slice(bytes);
        slice
    };
    let mut shadow = shadow.to_vec();
    shadow.resize(shadow.len().next_multiple_of(2), 0);
    let begin = append(shadow.as_bytes(), shadow.len());
    let src = CONFIG_VA + u64::from(begin.offset);
    let shadow = Op { kind: Op::COPY, dst: SHADOW_VA, src, len: u64::from(begin.len) * 4 };
    let shadow = || (begin.len > 0).then_some(shadow);
    let whole: Vec<Op> = launch(input, u64::MAX).chain(shadow()).collect();
    config.launch = append(whole.as_bytes(), whole.len());
    if let Some(from) = loads(plan, index) {
        let empty: Vec<Op> = launch(input, PROGRAM_GPA).chain(shadow()).collect();
        config.empty = append(empty.as_bytes(), empty.len());
        (config.loads, config.room) = (GUEST_VA + from.gpa, from.len);
    }
    let first = T::first(confine, &input.guest.entry);
    config.first_state = append(first.as_bytes(), first.len());
    let sipi = T::sipi(confine);
    if let Some(why) = [&first, &sipi].into_iter().find_map(|state| T::refused(state)) {
        let name = &sandbox.name;
        return Err(Error::Program(format!(
            "the processor would refuse the start of {name}: {why}"
        )));
    }
    config.other_state = append(sipi.as_bytes(), sipi.len());
    // A bare guest knows what it has: nothing is quietly absent for it.
    let linux = matches!(sandbox.guest, bulkhead_plan::Guest::Linux { .. });
    let quiet_ports = if linux { ports::absent(plan) } else { Vec::new() };
    config.ports = append(quiet_ports.as_bytes(), quiet_ports.len());
    let only_needed = [Quiet { first: msr::X2APIC_TMCCT, last: msr::X2APIC_TMCCT, value: 0 }];
    let quiet_msrs: &[Quiet] = if linux { T::ABSENT } else { &only_needed };
    config.msrs = append(quiet_msrs.as_bytes(), quiet_msrs.len());
    config.cpuid = append(T::CPUID.as_bytes(), T::CPUID.len());
    let known = functions.seen.iter().map(|seen| Function {
        registers: append(seen.registers.as_bytes(), seen.registers.len()),
        resets: append(seen.resets.as_bytes(), seen.resets.len()),
        ..seen.function
    });
    let known: Vec<_> = known.collect();
    // A Linux that finds the ports makes two exits of each access, and a thousand
    // to see that they work; without them it takes the memory.
    config.config_ports = u64::from(!linux);
    config.clock = u64::from(sandbox.devices.iter().any(|d| d.class == RTC));
    config.functions = append(known.as_bytes(), known.len());
    config.lines = append(lines.as_slice().as_bytes(), lines.iter().len());
    let word = |region: &plan::Channel, at: usize| GUEST_VA + region.gpa + at as u64;
    let bells = bells(plan, index).map(|(rx, bell)| {
        let receiver = &plan.sandboxes[rx.from];
        let core = receiver.apic_ids.first().copied().unwrap_or(0);
        let aims = MAILBOX_VA + rx.from as u64 * MAILBOX + offset_of!(Mailbox, aims) as u64;
        Bell {
            armed: word(rx, ARMED),
            message: u64::from(core) << 32 | u64::from(bell.vector),
            aim: match receiver.guest {
                plan::Guest::Linux { .. } => aims + 8 * u64::from(bell.nth()),
                _ => 0,
            },
            cores: set_of(receiver),
        }
    });
    let bells: Vec<_> = bells.collect();
    let ends =
        ends(plan, index).map(|own| End { hello: word(own, HELLO), armed: word(own, ARMED) });
    let ends: Vec<_> = ends.collect();
    config.channel_ends = append(ends.as_bytes(), ends.len());
    config.bells = append(bells.as_bytes(), bells.len());
    let links = slots.iter().map(|own| {
        let slot = &plan.slots[own.number];
        let (mine, at) = (slot.owner == index, GUEST_VA + slot.gpa);
        let end = |base: u64| End { hello: base + HELLO as u64, armed: base + ARMED as u64 };
        Link {
            number: own.number as u32,
            owner: slot.owner as u32,
            to: set(&mut slot.to.iter().copied()),
            open: append(own.open.as_bytes(), own.open.len()),
            gone: append(own.gone.as_bytes(), own.gone.len()),
            table: SLOT_TABLES_VA + own.number as u64 * PAGE,
            memory: if mine { [at, slot.len] } else { [0; 2] },
            ends: if mine { [end(at), end(at + slot.sent())] } else { [End::default(); 2] },
            ..Link::default()
        }
    });
    let links: Vec<_> = links.collect();
    config.links = append(links.as_bytes(), links.len());
    has_code(&config, input)?;
    Ok([config.as_bytes(), &tail].concat())
}

/// Needs of a sandbox, by the plan. A look at the baked configuration follows ([`has_code`]).
pub fn needs(plan: &Plan, index: usize) -> u32 {
    let sandbox = &plan.sandboxes[index];
    let answered = |device: &plan::Device| device.irq.is_some() || device.class == RTC;
    let shown = || !plan.ends(index).is_empty();
    let devices = !sandbox.functions.is_empty() || shown() || sandbox.devices.iter().any(answered);
    let controls = |s: &Sandbox, of: &dyn Fn(usize) -> bool| {
        s.control.iter().flatten().any(|right| of(right.sandbox))
    };
    let controlled = |s: &Sandbox| controls(s, &|target| target == index);
    let control = controls(sandbox, &|_| true) || plan.sandboxes.iter().any(controlled);
    let party = |slot: &plan::Slot| slot.owner == index || slot.to.contains(&index);
    let channels = bells(plan, index).next().is_some() || ends(plan, index).next().is_some();
    let all = [
        (devices, need::DEVICES),
        (sandbox.cores.len() > 1, need::CORES),
        (plan.slots.iter().any(party), need::SLOTS),
        (loads(plan, index).is_some(), need::LOADS),
        (control, need::CONTROL),
        (channels, need::CHANNELS),
        (matches!(sandbox.guest, plan::Guest::Linux { .. }), need::LINUX),
    ];
    all.into_iter().filter(|(needed, _)| *needed).fold(0, |set, (_, need)| set | need)
}

/// A monitor has code for each thing that its configuration names, whatever chose the monitor.
fn has_code(config: &Config, input: &Input) -> Result<(), Error> {
    let has = input.program.symbol("monitor_needs")? as u32;
    let control = config.rights.control.iter().chain(&config.controlled_by);
    let told = [
        (config.functions.len != 0, need::DEVICES, "PCI functions"),
        (config.lines.len != 0, need::DEVICES, "interrupt lines"),
        (config.clock != 0, need::DEVICES, "the clock"),
        (config.cores > 1, need::CORES, "several cores"),
        (config.links.len != 0, need::SLOTS, "slots"),
        (config.loads != 0, need::LOADS, "loading"),
        (control.fold(0, |all, set| all | set) != 0, need::CONTROL, "control"),
        (config.bells.len + config.channel_ends.len != 0, need::CHANNELS, "channels"),
        (config.ports.len != 0, need::LINUX, "a Linux"),
    ];
    let lacks = told.into_iter().find(|&(named, need, _)| named && !need::has(has, need));
    let name = &input.plan.sandboxes[input.index].name;
    let say = |what| Error::Program(format!("the monitor of {name} has no code for {what}"));
    lacks.map_or(Ok(()), |(_, _, what)| Err(say(what)))
}

/// The launch record: zero all RAM, copy what of the pristine guest lies below an address.
fn launch(input: &Input, below: u64) -> impl Iterator<Item = Op> {
    let rams = &input.plan.sandboxes[input.index].ram;
    let zero =
        rams.iter().map(|r| Op { kind: Op::ZERO, dst: GUEST_VA + r.gpa, src: 0, len: r.len });
    let copy = input.pristine.iter().filter(move |p| p.gpa < below).map(|p| Op {
        kind: Op::COPY,
        dst: GUEST_VA + p.gpa,
        src: PRISTINE_VA + (p.pa - IMAGE_PA),
        len: p.len,
    });
    zero.chain(copy)
}
