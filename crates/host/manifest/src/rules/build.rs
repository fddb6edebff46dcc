//! From a manifest to the plan's types, after the rules are checked (for sizes alone: while they are). Pieces that
//! some rule refuses are left out, so that this never fails.

use super::guests::resolve;
use super::memory::place_at;
use super::{Context, Item, Places};
use crate::raw::{self, Access, Guest};
use crate::size;
use crate::source::{Location, k, n};
use bulkhead_channel::layout::Shape;
use bulkhead_layout::monitor::Action;
use bulkhead_layout::report::{KINDS, Kind};
use bulkhead_layout::role::ROLES;
use bulkhead_plan as plan;
use bulkhead_plan::{Appended, Channel, Part, System, Wanted};

/// Returns the actions after denied accesses for which the manifest has none. An access that cannot be completed
/// stops the sandbox, and so does a core that hangs; any other has no effect.
#[must_use]
pub fn default_actions() -> [Action; KINDS] {
    let mut actions = [Action::Ignore; KINDS];
    actions[Kind::Memory as usize] = Action::Stop;
    actions[Kind::Shutdown as usize] = Action::Stop;
    // Its core does nothing more.
    actions[Kind::Hang as usize] = Action::Stop;
    actions[Kind::Corruption as usize] = Action::Stop;
    actions[Kind::Monitor as usize] = Action::Stop;
    actions
}

/// The system that a manifest describes.
pub fn system(cx: &Context<'_, '_>) -> (System, Places) {
    let (mut system, places) = sizes(cx);
    system.ends_with = cx.run.iter().flat_map(|run| indices(cx, &run.ends_with)).collect();
    let drives = cx.run.iter().flat_map(|run| &run.drive);
    let behind = |drive: &raw::Drive| bulkhead_plan::Drive {
        name: drive.name.clone(),
        file: resolve(&cx.base, &cx.artifacts, &drive.file),
        keep: drive.keep,
    };
    system.drives = drives.map(behind).collect();
    system.hub = cx.run.iter().flat_map(|run| run.hub.clone()).collect();
    system.under_linux = super::under_linux::under_linux(cx);
    let scenario = cx.run.iter().flat_map(|run| &run.scenario);
    let planned = scenario.clone().filter(|scenario| scenario.restarts > 0);
    let planned = planned.filter_map(|one| Some((cx.sandbox_index(&one.sandbox)?, one.restarts)));
    system.restarts = planned.collect();
    system.scenario = scenario
        .filter(|scenario| !scenario.append.is_empty())
        .filter_map(|scenario| {
            let sandbox = cx.sandbox_index(&scenario.sandbox)?;
            let program = |name| {
                let parts = super::kernel::parts(cx, &cx.sandboxes[sandbox]);
                super::kernel::find(&parts.programs, name)
            };
            let program = scenario.program.as_deref().map_or(Some(0), program)?;
            Some(Appended { sandbox, program, text: scenario.append.clone() })
        })
        .collect();
    (system, places)
}

/// Returns the part of the system that can be placed: sandboxes and channels with valid sizes. After all rules are
/// kept, that is every one.
pub fn sizes(cx: &Context<'_, '_>) -> (System, Places) {
    let mut places = Places {
        sandboxes: Vec::new(),
        channels: Vec::new(),
        links: Vec::new(),
        system: cx.document.at(&[k("system")]),
    };
    let mut system = System {
        name: cx.system.as_ref().map(|system| system.name.clone()).unwrap_or_default(),
        manifest: cx.document.source().path.clone(),
        machine: cx.machine.clone().unwrap_or_default(),
        multikernel: cx.multikernel(),
        ..System::default()
    };
    for item in &cx.sandboxes {
        if let Some(wanted) = wanted(cx, item) {
            places.sandboxes.push(place_at(cx, item));
            system.sandboxes.push(wanted);
        }
    }
    let mut ends = Ends::new(cx);
    for (mut region, at) in cx.channels.iter().flat_map(|item| seen(cx, item, &mut ends)) {
        let placed =
            |bell| super::channels::placed(system.machine.arch, bell, &region, &system.channels);
        region.bell = region.bell.map(placed);
        places.channels.push(at);
        system.channels.push(region);
    }
    system.roles = super::role::roles(cx);
    system.mmio = super::mmio::shared(cx);
    for (link, at) in super::link::links(cx) {
        places.links.push(at);
        system.links.push(link);
    }
    (system, places)
}

/// Ends of all that guests see so far.
pub struct Ends {
    /// Channels without a role.
    pub channels: u64,
    /// The channels of each role.
    pub roles: Vec<u64>,
}

impl Ends {
    /// Begins: first comes memory of the roles, each with a page of table entries to itself.
    pub fn new(cx: &Context<'_, '_>) -> Self {
        let start = |role| super::role::gpa(cx, role);
        Self { channels: start(cx.roles.len()), roles: (0..cx.roles.len()).map(start).collect() }
    }
}

/// Places the regions of a channel in guests' memory, behind all that guests see up to its end, and moves that on. A
/// region with an end in a Linux lies in a window of its own ([`plan::End`]), where a base address register can
/// begin.
pub fn seen(
    cx: &Context<'_, '_>,
    item: &Item<raw::Channel>,
    ends: &mut Ends,
) -> Vec<(Channel, Location)> {
    let role = super::role::of(cx, item).and_then(|(role, _)| ends.roles.get_mut(role));
    let end = role.unwrap_or(&mut ends.channels);
    let linux = |index: &usize| {
        cx.sandboxes.get(*index).is_some_and(|s| matches!(s.guest, Guest::Linux { .. }))
    };
    let mut behind = *end;
    let place = |(mut region, at): (Channel, Location)| {
        let peers = plan::peers(&region);
        if region.part != Part::Rx && peers.iter().any(linux) {
            let window = plan::window(region.len, peers.len() as u64);
            let first = end.checked_next_multiple_of(window).unwrap_or(u64::MAX);
            behind = first.saturating_add(cx.facts().page);
            *end = first.saturating_add(window);
        } else if region.part != Part::Rx {
            behind = *end;
        }
        region.gpa = behind;
        behind = behind.saturating_add(region.len);
        *end = behind.max(*end);
        (region, at)
    };
    regions(cx, item).map(place).collect()
}

/// Those of the named sandboxes that could be decoded.
pub fn indices(cx: &Context<'_, '_>, names: &[String]) -> Vec<usize> {
    names.iter().filter_map(|name| cx.sandbox_index(name)).collect()
}

fn wanted(cx: &Context<'_, '_>, item: &Item<raw::Sandbox>) -> Option<Wanted> {
    if super::memory::wrong_size(item.memory.size(), cx.facts().page).is_some() {
        return None;
    }
    let at = match item.memory.at().map(size::parse) {
        None => None,
        Some(Ok(at)) if at.is_multiple_of(cx.facts().page) => Some(at),
        Some(_) => return None,
    };
    Some(Wanted { sandbox: sandbox(cx, item), memory: size::parse(item.memory.size()).ok()?, at })
}

fn sandbox(cx: &Context<'_, '_>, item: &Item<raw::Sandbox>) -> plan::Sandbox {
    let ids = cx.machine.as_ref().map_or(&[][..], |machine| &machine.core_ids);
    let cores: Vec<usize> = item.cores.iter().map(|core| *core as usize).collect();
    let mut actions = default_actions();
    // A sandbox that learns goes on wherever it can.
    let healths = cx.healths.iter().filter(|health| health.sandbox == item.name && !item.learn);
    let (ladders, entries) = super::health::ladders(cx, &item.name);
    for health in healths {
        let ladder = || entries.iter().position(|index| *index == health.index);
        let action = match health.action {
            Some(raw::Action::Ignore) => Action::Ignore,
            Some(raw::Action::Stop) => Action::Stop,
            Some(raw::Action::Restart) => Action::Restart,
            Some(raw::Action::Warm) | None => {
                ladder().map_or(Action::Stop, |number| Action::Ladder(number as u8))
            }
        };
        health.on.all().iter().for_each(|event| actions[*event as usize] = action);
    }
    let guest = guest(cx, item, &item.guest);
    plan::Sandbox {
        again: None,
        name: item.name.clone(),
        place: cx.at(item, &[]).place(),
        alternatives: super::alternative::alternatives(cx, item, &guest),
        guest,
        ladders,
        core_ids: cores.iter().filter_map(|core| ids.get(*core).copied()).collect(),
        cores,
        ram: Vec::new(),
        devices: devices(cx, item),
        functions: functions(cx, item),
        control: super::rights::control(cx, item),
        observe: indices(cx, &item.observe),
        actions,
        watch: super::watch::watch(item),
        peers: super::peer::peers(cx, item),
        monitor: built(item.monitor),
        spare: built(item.spare),
        snapshot: super::snapshot::pages(item).unwrap_or(0),
        autostart: item.autostart && !super::role::waits(cx, &item.name),
        bay: cx.bays.contains(&item.index),
        releases: item.release == raw::Release::Ask,
        lockable: item.lockable,
        debug: item.debug,
        learn: item.learn,
        criticality: item.criticality.map(|criticality| match criticality {
            raw::Criticality::Low => plan::Criticality::Low,
            raw::Criticality::Medium => plan::Criticality::Medium,
            raw::Criticality::High => plan::Criticality::High,
        }),
    }
}

fn built(build: raw::Build) -> plan::Build {
    match build {
        raw::Build::Usual => plan::Build::Usual,
        raw::Build::Checked => plan::Build::Checked,
    }
}

/// A guest of a sandbox.
pub fn guest(cx: &Context<'_, '_>, item: &Item<raw::Sandbox>, guest: &Guest) -> plan::Guest {
    let path = |written: &str| resolve(&cx.base, &cx.artifacts, written);
    match guest {
        Guest::Linux { kernel, initrd, cmdline } => plan::Guest::Linux {
            kernel: path(kernel),
            initrd: initrd.as_deref().map(path),
            cmdline: cmdline.clone().unwrap_or_default(),
        },
        Guest::Bare { program, args, access } => plan::Guest::Bare {
            program: path(program),
            args: args.clone().unwrap_or_default(),
            enforce_segments: *access == Access::Segments,
        },
        Guest::Vacant {} => self::guest(cx, item, &Guest::of_bay()),
        Guest::Kernel { kernel, admission, trace } => {
            let file = path(super::kernel::file(kernel.as_deref(), trace.as_deref()));
            let kernel = super::kernel::build::kernel(cx, item, file, *admission);
            plan::Guest::Kernel(Box::new(kernel))
        }
    }
}

/// The granted devices, each with the place of its grant.
fn devices(cx: &Context<'_, '_>, item: &Item<raw::Sandbox>) -> Vec<plan::Device> {
    let known = cx.machine.as_ref().map_or(&[][..], |machine| &machine.devices);
    let grant = |(index, grant): (usize, &raw::DeviceGrant)| {
        let device = known.iter().find(|device| device.name == grant.name())?;
        let place = cx.at(item, &[k("devices"), n(index)]).place();
        Some(plan::Device { place, ..device.clone() })
    };
    item.devices.iter().enumerate().filter_map(grant).collect()
}

/// The granted PCI functions, each with the place of its grant, by address.
pub fn functions(cx: &Context<'_, '_>, item: &Item<raw::Sandbox>) -> Vec<plan::Granted> {
    let Some(machine) = &cx.machine else {
        return Vec::new();
    };
    let grant = |(index, grant): (usize, &raw::DeviceGrant)| {
        let function = super::pci::the_one(machine, grant.name())?.clone();
        Some(plan::Granted {
            unconfined: grant.detailed().dma == raw::Dma::Unconfined,
            line: super::pci::uses_line(&function, grant),
            role: None,
            function,
            place: cx.at(item, &[k("devices"), n(index)]).place(),
        })
    };
    let mut granted: Vec<_> = item.devices.iter().enumerate().filter_map(grant).collect();
    granted.extend(of_roles(cx, machine, &item.name));
    granted.sort_by_key(|granted| granted.function.bdf);
    granted.dedup_by_key(|granted| granted.function.bdf);
    granted
}

/// PCI functions that a sandbox has while it has a role. They send no interrupts: an entry for those could not move.
fn of_roles(cx: &Context<'_, '_>, machine: &plan::Machine, holder: &str) -> Vec<plan::Granted> {
    let held = |(_, role): &(usize, &Item<raw::Role>)| role.holders.iter().any(|one| one == holder);
    let roles = cx.roles.iter().enumerate().take(ROLES).filter(held);
    let grant = |number: usize, role: &Item<raw::Role>, index: usize| plan::Granted {
        function: super::pci::the_one(machine, &role.devices[index]).cloned().unwrap_or_default(),
        unconfined: false,
        line: false,
        role: Some(number),
        place: cx.at(role, &[k("devices"), n(index)]).place(),
    };
    let known = |role: &Item<raw::Role>, index: &usize| {
        super::pci::the_one(machine, &role.devices[*index]).is_some()
    };
    let all = roles.flat_map(|(number, role)| {
        let indices = (0..role.devices.len()).filter(|index| known(role, index));
        indices.map(|index| grant(number, role, index)).collect::<Vec<_>>()
    });
    all.collect()
}

/// The regions of a channel, each with the place of its size.
pub fn regions(
    cx: &Context<'_, '_>,
    item: &Item<raw::Channel>,
) -> impl Iterator<Item = (Channel, Location)> {
    let len = match super::memory::wrong_size(&item.size, cx.facts().page) {
        None => size::parse(&item.size).unwrap_or(0),
        Some(_) => 0,
    };
    let from = cx.end_index(&item.from).unwrap_or(0);
    let stand = super::role::of(cx, item).map(|(role, of)| (role, of.raw.name.clone()));
    let holders = |role: usize| indices(cx, &cx.roles[role].holders);
    let page = cx.facts().page;
    let (at, place) = (cx.at(item, &[k("size")]), cx.at(item, &[]).place());
    let bell = super::channels::bell(cx.arch(), item);
    let region = |part, from, to, len| {
        let (name, place) = (item.name.clone(), place.clone());
        let woken = matches!(part, Part::Rx | Part::Tx(Shape::Virtio { .. }));
        let bell = bell.filter(|_| woken);
        let stand = stand.as_ref().map(|(role, name)| {
            // The receiver's region is written by the other end.
            let writes = (item.from == *name) != (part == Part::Rx);
            plan::Stand { role: *role, writes, holders: holders(*role) }
        });
        Channel { name, place, part, bell, from, to, stand, hpa: 0, gpa: 0, len }
    };
    let to: Vec<usize> = item.to.iter().filter_map(|to| cx.end_index(to)).collect();
    let all = match super::channels::shape(item) {
        _ if len == 0 => Vec::new(),
        None if item.kind.messages().is_some() => Vec::new(),
        None if item.kind == raw::ChannelKind::Program => {
            vec![region(Part::Program, from, to, len)]
        }
        None => vec![region(Part::Pages, from, to, len)],
        Some(shape) => { to.iter() }
            .flat_map(|receiver| {
                let tx = region(Part::Tx(shape), from, vec![*receiver], len);
                let own = (shape.rx_bytes() as u64).next_multiple_of(page);
                [tx, region(Part::Rx, *receiver, vec![from], own)]
            })
            .collect(),
    };
    all.into_iter().map(move |region| (region, at.clone()))
}
