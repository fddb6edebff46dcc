//! One sandbox's monitor and everything that confines its guest.

use crate::config::{Other, Told, config};
use crate::devices::{Devices, Grant, Route, grants};
use crate::elf::Program;
use crate::guest::Guest;
use crate::pages::Pages;
use crate::parts::{Part, Shared};
use crate::pci::{self, Seen, Shadow};
use crate::space::{Space, Spaces};
use crate::target::{Confine, Target};
use crate::{Error, end, info, nested};
use bulkhead_arch::Rights;
use bulkhead_layout::image::{self, Range};
use bulkhead_layout::map::*;
use bulkhead_layout::monitor::Mailbox;
use bulkhead_layout::report::{self, CoreReport};
use bulkhead_layout::{MAX_CORES, PAGE};
use bulkhead_plan::{self as plan, Bdf, Granted, Plan, Sandbox, Span};
use zerocopy::{FromZeros, IntoBytes};

/// The info page in the monitor's address space: after its own configuration.
pub const INFO_VA: u64 = CONFIG_VA + 0x8_0000;

/// Where a piece of the pristine guest lies: physical and guest-physical address, bytes.
pub struct Pristine {
    pub pa: u64,
    pub gpa: u64,
    pub len: u64,
}

/// A guest that can take the place of the sandbox's own.
pub struct Standby<'a> {
    pub guest: &'a Guest,
    pub pristine: Vec<Pristine>,
}

/// Everything that one sandbox's monitor is made of.
pub struct Input<'a> {
    pub plan: &'a Plan,
    pub index: usize,
    pub guest: &'a Guest,
    pub pristine: &'a [Pristine],
    pub standbys: &'a [Standby<'a>],
    pub program: &'a Program,
    /// The spare monitor's.
    pub spare: Option<&'a Program>,
    pub shared: &'a Shared,
}

/// A baked monitor.
#[derive(Default)]
pub struct Made {
    /// The boot code's description.
    pub sandbox: image::Sandbox,
    /// Parts for the memory map.
    pub parts: Vec<Part>,
    /// Rights of its functions.
    pub grants: Vec<Grant>,
    /// Control blocks of a Linux that runs already; empty for any other guest.
    pub running: Range,
    /// Its address spaces.
    pub spaces: Spaces,
}

/// A monitor's text and constants.
pub const MONITOR_TEXT: &str = "monitor text";
/// A monitor's configuration.
pub const CONFIGURATION: &str = "configuration, launch record";
/// A debugger's page.
pub const DEBUGGER: &str = "a debugger's page";

/// Places of a monitor's parts, physical addresses, with their lengths where they have several pages.
#[derive(Clone)]
struct Places {
    text: Space,
    config: (u64, u64),
    info: u64,
    progress: Option<u64>,
    roles: Option<u64>,
    snapshots: Option<(u64, u64)>,
    debug: Option<u64>,
    vectors: Option<u64>,
    shadow: (u64, u64),
    stacks: u64,
    /// Control blocks and the processor's own pages, one for each core.
    control: [u64; 2],
    /// Pages for its interrupt lines.
    lines: Space,
}

/// Bakes it.
pub fn bake<T: Target>(
    pages: &mut Pages,
    input: &Input,
    shared: Option<<T::Devices as Devices>::Shared>,
) -> Result<Made, Error> {
    let sandbox = &input.plan.sandboxes[input.index];
    let facts = input.plan.machine.arch.facts();
    let start = pages.end();
    let mut parts = Vec::new();
    let mut part = |pages: &Pages, from: u64, what: &'static str| {
        parts.push(Part::new(from, pages.end(), Some(input.index), what));
    };

    let text = segments(pages, input.program);
    part(pages, start, MONITOR_TEXT);

    let lines = T::Devices::lines(input.plan, input.index, shared)?;
    let mut info = info::page(input.plan, input.index, &input.guest.args);
    lines.iter().for_each(|lines| T::Devices::tell(lines, &mut info));
    let info_pa = pages.put(info.as_bytes());
    let vectors = T::vectors(input.program)?.map(|bytes| pages.put(&bytes));
    part(pages, info_pa, "info page, vectors");

    let written = pages.end();
    let map = |lines| T::Devices::map(pages, input.plan, lines, shared);
    let line_pages = lines.as_ref().map(map).unwrap_or_default();
    if pages.end() > written {
        part(pages, written, "interrupt lines");
    }

    let cores = sandbox.cores.len() as u64;
    let stacks = pages.take(cores * facts.paged(CORE_STACK_SIZE));
    let control = pages.take(cores * facts.page);
    let host = T::MAPS_HOST.then(|| pages.take(cores * facts.page));
    part(pages, stacks, "stacks, control blocks");

    let remapping = pages.end();
    let mut functions = Functions::bake::<T::Devices>(pages, input)?;
    let shadow = std::mem::take(&mut functions.shadow.words);
    let shadow_len = (shadow.len() as u64 * 4).next_multiple_of(facts.page);
    let shadow_pa = pages.take(shadow_len);
    part(pages, remapping, "interrupt remapping tables, device shadows");

    let confining = pages.end();
    let host = host.unwrap_or_else(|| pages.take(cores * facts.page));
    let traps = T::traps(pages, input.plan, input.index);
    let memory = nested::own_memory(input.plan, input.index, input.guest);
    let (reports, machine) = (&input.shared.reports, &input.plan.machine);
    let with_its_sandbox =
        |(n, granted): (usize, &Granted)| !granted.unconfined && own_reach(input, n).is_none();
    let confined = sandbox.functions.iter().enumerate().any(with_its_sandbox);
    let io_root = match input.plan.runs(input.index) {
        _ if !confined => None,
        false => T::Devices::tables(pages, machine, &memory)?,
        true => {
            let mut all = memory.clone();
            for piece in input.plan.running_memory(input.index) {
                all.add(piece.start, piece.start, piece.len, Rights::RW, "memory of the Linux");
            }
            T::Devices::running(pages, machine, &all)?
        }
    };
    let roots = { 0..sandbox.functions.len() }
        .map(|n| match own_reach(input, n) {
            _ if !first_has(input, n) => Ok(None),
            Some(own) => T::Devices::tables(pages, machine, &own),
            None => Ok(io_root),
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let alive = sandbox.watch.is_some_and(|watch| watch.alive.is_some());
    let progress = alive.then(|| pages.take(facts.page));
    let held = input.plan.roles_of(input.index).next().is_some();
    let role_words = held.then(|| pages.take(facts.page));
    let store = sandbox.store(facts);
    let snapshots = (sandbox.snapshot > 0).then(|| (pages.take(store), store));
    let kept = snapshots.map(|(pa, _)| pa);
    let shown = nested::Shown {
        info: info_pa,
        progress,
        roles: role_words,
        snapshots: kept,
        reports,
        ends: &functions.ends,
    };
    let runs = input.plan.runs(input.index);
    let (reached, root) = match runs {
        true => nested::under_linux::<T>(pages, input.plan, input.index, memory, &shown)?,
        false => nested::tables::<T::Nested>(pages, input.plan, input.index, memory, &shown)?,
    };
    let links = nested::links::<T::Nested>(pages, input.plan, input.index, root)?;
    let roles = nested::roles::<T::Nested>(pages, input.plan, input.index, root)?;
    let mut others = Vec::new();
    for standby in input.standbys {
        // A kernel's tables, and a Linux', do not depend on what is in its memory; and links are in these tables alone.
        let own = |guest: &Guest| (guest.segments.clone(), guest.default_rights);
        let root = if own(standby.guest) == own(input.guest) {
            root
        } else {
            let memory = nested::own_memory(input.plan, input.index, standby.guest);
            nested::tables::<T::Nested>(pages, input.plan, input.index, memory, &shown)?.1
        };
        others.push(Other { standby, root });
    }
    part(pages, confining, "host save areas, bitmaps, nested and I/O tables");

    let page = pages.end();
    let debug = sandbox.debug.then(|| pages.take(facts.page));
    if debug.is_some() {
        part(pages, page, DEBUGGER);
    }

    let config_pa = pages.end();
    let control = [control, host];
    let confine = || Confine {
        traps,
        root,
        tag: input.index as u32 + 1,
        ticks: sandbox.watch.is_some(),
        // The Linux under which a system starts can have its cores back.
        taken: input.plan.is_taken(input.index) || input.plan.block.is_some() && !runs,
        running: runs,
        debug: sandbox.debug,
    };
    let mut running = Range::default();
    if runs {
        running = Range { start: control[0], len: cores * facts.page };
        for block in (0..cores).map(|core| running.start + core * facts.page) {
            let fields = T::running(&confine());
            fields.iter().for_each(|op| pages.store(block + op.dst, &op.src));
        }
    }
    let told = |shadow, lines| Told {
        confine: confine(),
        control,
        functions: &functions,
        shadow,
        lines,
        links: &links,
        roles: &roles,
        others: &others,
    };
    pages.put(&config::<T>(input, told(shadow.clone(), lines))?);
    part(pages, config_pa, CONFIGURATION);

    let spare_start = pages.end();
    let mut spare = None;
    if let Some(program) = input.spare {
        let text = segments(pages, program);
        // Addresses of handlers and sums of pages are its own: it can be another build.
        let vectors = T::vectors(program)?.map(|bytes| pages.put(&bytes));
        let lines = T::Devices::lines(input.plan, input.index, shared)?;
        let own = config::<T>(&Input { program, ..*input }, told(shadow, lines))?;
        let at = pages.put(&own);
        spare = Some((text, vectors, (at, pages.end() - at)));
        part(pages, spare_start, "spare monitor's text, vectors, configuration");
    }

    let tables = pages.end();
    let places = Places {
        text,
        config: (config_pa, spare_start - config_pa),
        info: info_pa,
        progress,
        roles: role_words,
        snapshots,
        debug,
        vectors,
        shadow: (shadow_pa, shadow_len),
        stacks,
        control,
        lines: line_pages,
    };
    // All that can be written is the first one's: what that has done is seen by the spare one, and ended.
    let other = |(text, vectors, config)| Places { text, vectors, config, ..places.clone() };
    let linux = linux::<T>(input.plan, input.index);
    let mut whole = |space: &Space| {
        let root = space.bake::<T::Own>(pages, None)?;
        linux.bake::<nested::Small<T::Own>>(pages, root)
    };
    let spare = spare.map(|own| space::<T>(input, other(own), &functions, &links, &roles));
    let spare_root = spare.map(|space| whole(&space)).transpose()?.flatten();
    let mut own = space::<T>(input, places, &functions, &links, &roles);
    let monitor_root = whole(&own)?.unwrap_or_default();
    own.regions.extend(linux.regions);
    part(pages, tables, "monitor's page tables");

    let mut described = described(sandbox);
    described.monitor = Range { start, len: pages.end() - start };
    described.monitor_root = monitor_root;
    described.entry_va = input.program.entry;
    described.spare_root = spare_root.unwrap_or_default();
    described.spare_entry_va = input.spare.map_or(0, |program| program.entry);
    described.info_pa = info_pa;
    let grants = grants(input.plan, input.index, io_root, &roots, &functions.remap);
    let spaces = Spaces { monitor: own, guest: reached };
    Ok(Made { sandbox: described, parts, grants, running, spaces })
}

/// The address space of a monitor: all that it reaches, with which rights, and why.
fn space<T: Target>(
    input: &Input,
    places: Places,
    functions: &Functions,
    links: &[nested::Link],
    roles: &[nested::Role],
) -> Space {
    let (plan, index) = (input.plan, input.index);
    let (sandbox, facts) = (&plan.sandboxes[index], plan.machine.arch.facts());
    let page = facts.page;
    let mut own = places.text;
    own.add(CONFIG_VA, places.config.0, places.config.1, Rights::R, "configuration");
    own.add(INFO_VA, places.info, page, Rights::R, "information page");
    if let Some(vectors) = places.vectors {
        own.add(VECTORS_VA, vectors, page, Rights::R, "vectors");
    }
    if let Some(progress) = places.progress {
        own.add(PROGRESS_VA, progress, page, Rights::R, "progress words");
    }
    if let Some(words) = places.roles {
        own.add(ROLES_VA, words, page, Rights::RW, "roles");
    }
    for piece in roles.iter().flat_map(|role| &role.pieces) {
        own.add(piece.at(page), piece.table, page, Rights::RW, "entries of a role");
    }
    if let Some((pa, len)) = places.snapshots {
        own.add(SNAPSHOTS_VA, pa, len, Rights::RW, "snapshots");
    }
    if let Some(pa) = places.debug {
        own.add(DEBUG_VA, pa, page, Rights::RW, DEBUGGER);
    }
    own.add(SHADOW_VA, places.shadow.0, places.shadow.1, Rights::RW, "shadow of registers");
    for (span, rights) in &functions.pages {
        own.device(MMIO_VA + span.start, span.start, span.len, *rights, "function");
    }
    for &(at, pa, rights) in &functions.moved {
        own.device(at, pa, page, rights, "function");
    }
    for page in sandbox.peers.iter().flat_map(|peer| quieted(plan, peer)) {
        own.device(MMIO_VA + page.start, page.start, page.len, Rights::RW, "function of a peer");
    }
    for (n, made) in functions.ends.iter().enumerate() {
        let at = FUNCTIONS_VA + n as u64 * FUNCTION_STRIDE;
        for (n, pa) in [made.config, made.registers, made.states].into_iter().enumerate() {
            own.add(at + n as u64 * PAGE, pa, PAGE, Rights::RW, "end of a channel");
        }
    }
    let report = input.shared.reports[index];
    own.add(REPORT_VA, report, facts.paged(report::size(0)), Rights::RW, "report");
    let mailbox = facts.paged(size_of::<Mailbox>() as u64);
    for other in 0..plan.sandboxes.len() {
        let rights = if other == index { Rights::RW } else { Rights::R };
        let at = other as u64 * mailbox;
        own.add(MAILBOX_VA + at, input.shared.mailboxes + at, mailbox, rights, "mailbox");
    }
    for core in 0..sandbox.cores.len() {
        let block = CORES_VA + core as u64 * facts.paged(CORE_STRIDE);
        let at = |of: u64| block + facts.paged(of);
        let nth = |start: u64, len: u64| start + core as u64 * len;
        let stack = facts.paged(CORE_STACK_SIZE);
        own.add(at(CORE_STACK), nth(places.stacks, stack), stack, Rights::RW, "stack, state");
        let [control, host] = places.control;
        own.add(at(CORE_CONTROL), nth(control, page), page, Rights::RW, "control block");
        if T::MAPS_HOST {
            own.add(at(CORE_HOST), nth(host, page), page, Rights::RW, "processor's own page");
        }
        let counts = report + facts.paged(report::size(core));
        let len = facts.paged(size_of::<CoreReport>() as u64);
        own.add(at(CORE_REPORT), counts, len, Rights::RW, "report of a core");
    }
    own.regions.extend(places.lines.regions);
    for (rx, _) in bells(plan, index) {
        own.add(GUEST_VA + rx.gpa, rx.hpa, page, Rights::R, "armed word of a receiver");
    }
    if let Some(from) = loads(plan, index) {
        own.add(GUEST_VA + from.gpa, from.hpa, from.len, Rights::R, "program to load");
    }
    for link in links {
        let at = LINK_TABLES_VA + link.number as u64 * page;
        own.add(at, link.table, page, Rights::RW, "entries of a link");
        let link = &plan.links[link.number];
        if link.owner == index {
            own.add(GUEST_VA + link.gpa, link.hpa, link.len, Rights::RW, "link");
        }
    }
    for shared in &plan.mmio {
        if shared.of(index).any(|part| part.range.is_some()) {
            let Span { start, len } = shared.span;
            own.device(MMIO_VA + start, start, len, Rights::RW, "shared registers");
        }
    }
    for end in ends(plan, index) {
        own.add(GUEST_VA + end.gpa, end.hpa, page, Rights::RW, "header of a region");
    }
    for ram in &sandbox.ram {
        own.add(GUEST_VA + ram.gpa, ram.hpa, ram.len, Rights::RW, "RAM");
    }
    let others = input.standbys.iter().flat_map(|standby| &standby.pristine);
    for p in input.pristine.iter().chain(others) {
        let (first, end) = (p.pa / page * page, (p.pa + p.len).next_multiple_of(page));
        let at = PRISTINE_VA + (first - plan.image.start);
        own.add(at, first, end - first, Rights::R, "pristine guest");
    }
    if let Some(start) = facts.start_code {
        own.add(start, start, page, Rights::RX, "cores' start-up code");
    }
    own
}

/// Further parts of the address space of a monitor with a Linux that runs already. A core can have its own interrupt
/// controller's registers in a page, and the monitor writes them for the guest. It decodes the guest's instruction for
/// that. Pages of memory are small enough for the late boot code to take out those of the block.
fn linux<T: Target>(plan: &Plan, index: usize) -> Space {
    let mut space = Space::default();
    // It fills that memory when the Linux begins anew.
    let rights = if plan.begins_anew(index) { Rights::RW } else { Rights::R };
    for piece in plan.running_memory(index) {
        space.add(GUEST_VA + piece.start, piece.start, piece.len, rights, "memory of the Linux");
    }
    let [_, monitors] = T::MACHINE;
    if plan.runs(index) && monitors.len > 0 {
        let (at, len) = (monitors.start, plan.machine.arch.facts().page);
        space.device(MMIO_VA + at, at, len, Rights::RW, nested::CONTROLLER);
    }
    if let Some(timer) = plan.machine.hpet.as_ref().filter(|_| plan.runs(index)) {
        let len = plan.machine.arch.facts().page;
        space.device(MMIO_VA + timer.base, timer.base, len, Rights::RW, nested::TIMER);
    }
    space
}

/// Tells if the sandbox's part of the image has the tables by which a function reaches memory. For a role's it is the
/// first holder's.
fn first_has(input: &Input, function: usize) -> bool {
    let granted = &input.plan.sandboxes[input.index].functions[function];
    input.plan.counts(input.index, granted)
}

/// Memory that a function reaches if a program of a kernel drives it, or a role has it; `None`: its sandbox's memory.
fn own_reach(input: &Input, function: usize) -> Option<Space> {
    let mut space = Space::default();
    for reach in input.plan.dma(input.index, function)? {
        let rights = if reach.write { Rights::RW } else { Rights::R };
        space.add(reach.gpa, reach.hpa, reach.len, rights, "memory for DMA");
    }
    Some(space)
}

/// Describes a sandbox's memory and cores for the boot code.
pub fn described(sandbox: &Sandbox) -> image::Sandbox {
    let mut described = image::Sandbox::new_zeroed();
    for (range, ram) in described.memory.iter_mut().zip(&sandbox.ram) {
        *range = Range { start: ram.hpa, len: ram.len };
    }
    described.cores = sandbox.cores.len() as u32;
    described.core_ids = ids(sandbox);
    described
}

pub fn ids(sandbox: &Sandbox) -> [u32; MAX_CORES] {
    let mut ids = [0; MAX_CORES];
    for (to, from) in ids.iter_mut().zip(&sandbox.core_ids) {
        *to = *from;
    }
    ids
}

/// This sandbox's copy of the monitor.
fn segments(pages: &mut Pages, program: &Program) -> Space {
    let mut space = Space::default();
    for s in &program.segments {
        let pa = pages.take(s.size);
        pages.write(pa, &s.bytes);
        space.add(s.address, pa, pages.end() - pa, s.rights, "text");
    }
    space
}

/// Regions of others that a sandbox rings for, by number.
pub fn bells(plan: &Plan, index: usize) -> impl Iterator<Item = (&plan::Channel, plan::Bell)> {
    let own = plan.channels.iter().filter(move |rx| rx.reads(index));
    own.filter_map(|rx| Some((rx, rx.bell?)))
}

/// Finds the channel by which another sandbox may load a program into this one.
pub fn loads(plan: &Plan, index: usize) -> Option<&plan::Channel> {
    let mut all = plan.channels.iter().filter(|c| c.part == plan::Part::Program);
    all.find(|c| c.to.contains(&index))
}

/// Configuration pages of the functions that a monitor keeps from memory, for a peer.
pub fn quieted(plan: &Plan, peer: &plan::Peer) -> Vec<Span> {
    let facts = plan.machine.arch.facts();
    // A role's function reaches memory of the role. The next holder gets that from a monitor that stopped the function.
    let own = |granted: &&Granted| peer.quiets && granted.role.is_none();
    let functions = plan.sandboxes[peer.sandbox].functions.iter().filter(own);
    let page = |granted: &Granted| {
        let root = plan.machine.pci.as_ref()?;
        Some(facts.configuration(root.ecam, granted.function.bdf))
    };
    functions.filter_map(page).collect()
}

/// Regions of messages that a sandbox writes.
pub fn ends(plan: &Plan, index: usize) -> impl Iterator<Item = &plan::Channel> {
    let own = plan.channels.iter().filter(move |region| region.writes(index));
    own.filter(|region| region.part.has_header())
}

/// Finds the further requester ID of a function's messages.
///
/// # Errors
/// A running Linux' function with several: its monitor has those of two IDs forgotten.
fn alias(plan: &Plan, granted: &Granted) -> Result<u32, Error> {
    let function = &granted.function;
    match &function.requesters[..] {
        [] => Ok(0),
        [one] => Ok(u32::from(one.0)),
        _ if plan.block.is_none() => Ok(0),
        _ => Err(Error::Lines(format!(
            "PCI function {} sends messages under more than two requester IDs: leave those out that it does not use",
            function.bdf
        ))),
    }
}

/// A monitor's knowledge of PCI.
#[derive(Default)]
pub struct Functions {
    pub seen: Vec<pci::Described>,
    shadow: Shadow,
    /// Pages that the monitor maps at [`MMIO_VA`].
    pages: Vec<(Span, Rights)>,
    /// Those that it maps elsewhere, by their physical addresses.
    moved: Vec<(u64, u64, Rights)>,
    /// Interrupt remapping tables by function.
    remap: Vec<(Bdf, u64)>,
    /// Its ends of channels.
    ends: Vec<end::Made>,
}

impl Functions {
    fn bake<D: Devices>(pages: &mut Pages, input: &Input) -> Result<Self, Error> {
        let mut all = Self::default();
        all.hardware::<D>(pages, input)?;
        for (n, own) in input.plan.ends(input.index).iter().enumerate() {
            let states = input.shared.states[&own.region];
            let (made, described) = end::bake(pages, input.plan, (n, own), states, &mut all.shadow);
            all.ends.push(made);
            all.seen.push(described);
        }
        Ok(all)
    }

    /// The machine's functions.
    fn hardware<D: Devices>(&mut self, pages: &mut Pages, input: &Input) -> Result<(), Error> {
        let machine = &input.plan.machine;
        let facts = machine.arch.facts();
        let Some(root) = &machine.pci else { return Ok(()) };
        let all = match input.plan.runs(input.index) {
            true => pci::found(input.plan, input.index),
            false => pci::seen(machine, &input.plan.sandboxes[input.index].functions),
        };
        for seen in all {
            let bdf = seen.bdf();
            let page = facts.configuration(root.ecam, bdf);
            let mut rights = Rights::R;
            let mut described = pci::Described::default();
            match seen {
                Seen::Own(granted) => {
                    rights = Rights::RW;
                    described = pci::own(granted, &mut self.shadow, facts.page);
                    let resets = pci::reset_registers(&granted.function, facts.page);
                    let trapped = pci::trap(&granted.function, facts.page);
                    { [trapped].into_iter().chain(resets) }
                        .for_each(|span| self.reach(span, facts.page));
                    described.function.role = granted.role.map_or(0, |role| role as u32 + 1);
                    described.function.remap_va = match D::route(input.plan, bdf)? {
                        _ if granted.role.is_some() => 0,
                        Route::Direct => 0,
                        Route::Table => {
                            described.function.alias = alias(input.plan, granted)?;
                            let table = pages.take(facts.page);
                            self.remap.push((bdf, table));
                            self.of_image(input.plan, table, Rights::RW)
                        }
                        Route::Entries(first) => first.into(),
                    };
                }
                Seen::Bridge(_) => described.registers = pci::bridge(),
                Seen::Fixed(_) => {}
                Seen::Placeholder(_) => {
                    // No hardware has it: the guest reads a page of the image, and no access to it changes anything.
                    let at = pages.put(&pci::placeholder());
                    described.function.bdf = u32::from(bdf.0);
                    described.function.config_va = self.of_image(input.plan, at, rights);
                    self.seen.push(described);
                    continue;
                }
            }
            described.function.bdf = u32::from(bdf.0);
            described.function.config_va = MMIO_VA + page.start;
            self.pages.push((page, rights));
            self.seen.push(described);
        }
        Ok(())
    }

    /// Maps a page of the image, and returns where. In an image that is moved, no table's shape depends on its address.
    /// Nothing but memory is at the physical addresses from 0 on.
    fn of_image(&mut self, plan: &Plan, pa: u64, rights: Rights) -> u64 {
        let page = plan.machine.arch.facts().page;
        match plan.block {
            None => {
                self.pages.push((Span { start: pa, len: page }, rights));
                MMIO_VA + pa
            }
            Some(block) => {
                self.moved.push((MMIO_VA + (pa - block.start), pa, rights));
                MMIO_VA + (pa - block.start)
            }
        }
    }

    /// Maps pages of registers. Small BARs of several functions can be on one.
    fn reach(&mut self, span: Span, page: u64) {
        for start in (span.start..span.end()).step_by(page as usize) {
            let page = (Span { start, len: page }, Rights::RW);
            if !self.pages.contains(&page) {
                self.pages.push(page);
            }
        }
    }
}
