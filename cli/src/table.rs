//! A plan as tables.

use crate::kernel;
use crate::pci::{self, Remark};
use crate::text::{Sheet, about, count, joined, port_range, table};
use bulkhead_channel::layout::Shape;
use bulkhead_channel::records::longest;
use bulkhead_layout::monitor::Action;
use bulkhead_layout::report::KIND_NAMES;
use bulkhead_manifest::size::show;
use bulkhead_plan::{
    Access, Bell, Build, Channel, Criticality, Device, Granted, Guest, Ladder, MmioPart, Part,
    Plan, Reach, Sandbox, Span, Step, What,
};

/// The owner of a piece of the machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// No owner.
    Free,
    /// A part of the machine description that is no RAM, by index.
    Reserved(usize),
    /// Boot code, monitors, tables, pristine guests.
    Image,
    /// A sandbox, by index.
    Sandbox(usize),
    /// A channel, by index.
    Channel(usize),
    /// Memory for a channel made at run time, by number.
    Link(usize),
}

/// The whole memory map, ascending.
#[must_use]
pub fn memory_map(plan: &Plan) -> Vec<(Span, Owner)> {
    let mut owned: Vec<(Span, Owner)> = vec![(plan.image, Owner::Image)];
    for (index, sandbox) in plan.sandboxes.iter().enumerate() {
        owned.extend(
            sandbox
                .ram
                .iter()
                .map(|ram| (Span { start: ram.hpa, len: ram.len }, Owner::Sandbox(index))),
        );
    }
    for (index, channel) in plan.channels.iter().enumerate() {
        owned.push((Span { start: channel.hpa, len: channel.len }, Owner::Channel(index)));
    }
    for (number, link) in plan.links.iter().enumerate() {
        owned.push((Span { start: link.hpa, len: link.len }, Owner::Link(number)));
    }
    owned.sort_by_key(|(span, _)| span.start);
    let mut all = Vec::new();
    for piece in &plan.machine.ram {
        let mut start = piece.start;
        for (span, owner) in owned.iter().filter(|(span, _)| piece.encloses(*span)) {
            if start < span.start {
                all.push((Span { start, len: span.start - start }, Owner::Free));
            }
            all.push((*span, *owner));
            start = span.end();
        }
        if start < piece.end() {
            all.push((Span { start, len: piece.end() - start }, Owner::Free));
        }
    }
    let reserved = plan.machine.reserved.iter().enumerate();
    all.extend(reserved.map(|(index, (_, span))| (*span, Owner::Reserved(index))));
    all.sort_by_key(|(span, _)| span.start);
    all
}

/// An owner's name.
#[must_use]
pub fn owner_name(plan: &Plan, owner: Owner) -> String {
    match owner {
        Owner::Free => "free".into(),
        Owner::Reserved(index) => plan.machine.reserved[index].0.clone(),
        Owner::Image => "image".into(),
        Owner::Sandbox(index) => plan.sandboxes[index].name.clone(),
        Owner::Channel(index) => format!("channel {}", plan.channels[index].title()),
        Owner::Link(number) => {
            let which = plan.which_link(number);
            format!("link {which} of {}", plan.sandboxes[plan.links[number].owner].name)
        }
    }
}

/// Names a sandbox's guest, in a word or two.
#[must_use]
pub fn guest(sandbox: &Sandbox) -> String {
    let file = |path: &std::path::Path| {
        path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    };
    match &sandbox.guest {
        Guest::Linux { kernel, .. } => format!("linux {}", file(kernel)),
        Guest::Bare { .. } if sandbox.bay => "vacant".into(),
        Guest::Bare { program, .. } => format!("bare {}", file(program)),
        Guest::Running => "linux that runs".into(),
        Guest::Kernel(kernel) => format!("kernel {}", file(&kernel.file)),
    }
}

/// A criticality's name.
#[must_use]
pub fn criticality(sandbox: &Sandbox) -> &'static str {
    match sandbox.criticality {
        None => "-",
        Some(Criticality::Low) => "low",
        Some(Criticality::Medium) => "medium",
        Some(Criticality::High) => "high",
    }
}

/// A device's ports.
#[must_use]
pub fn ports(device: &Device) -> String {
    joined(device.ports.iter().map(|ports| port_range(*ports)))
}

/// Name of a function, and that it comes and goes with a role.
#[must_use]
pub fn function(granted: &Granted) -> String {
    let moves = if granted.role.is_some() { " (with its role)" } else { "" };
    format!("pci:{}{moves}", granted.function.bdf)
}

/// Names of a sandbox's devices and functions.
pub fn owned(sandbox: &Sandbox) -> impl Iterator<Item = String> {
    let functions = sandbox.functions.iter().map(function);
    sandbox.devices.iter().map(|device| device.name.clone()).chain(functions)
}

fn action(action: Action) -> &'static str {
    match action {
        Action::Ignore => "ignore",
        Action::Stop => "stop",
        Action::Restart => "restart",
        Action::Ladder(_) => "ladder",
    }
}

/// Everything.
#[must_use]
pub fn plan(plan: &Plan) -> Sheet {
    let mut out = Sheet::new(summary(plan));
    memory(&mut out, plan);
    sandboxes(&mut out, plan);
    doorbells(&mut out, plan);
    if !plan.multikernel {
        rights(&mut out, plan);
    }
    cores(&mut out, plan);
    devices(&mut out, plan);
    if !plan.mmio.is_empty() {
        shared_registers(&mut out, plan);
    }
    pci::functions(&mut out, plan);
    pci::interrupt_lines(&mut out, plan);
    channels(&mut out, plan);
    kernel::tables(&mut out, plan);
    if !plan.multikernel {
        watchdogs(&mut out, plan);
        peers(&mut out, plan);
        roles(&mut out, plan);
        builds(&mut out, plan);
        health(&mut out, plan);
    }
    shared(&mut out, plan);
    out
}

fn summary(plan: &Plan) -> String {
    let used: usize = plan.sandboxes.iter().map(|sandbox| sandbox.cores.len()).sum();
    let memory: u64 =
        plan.sandboxes.iter().flat_map(|sandbox| &sandbox.ram).map(|ram| ram.len).sum();
    format!(
        "{} on {}: {}, {used} of {} cores, {} of {} memory\n",
        plan.system,
        plan.machine.name,
        count(plan.sandboxes.len(), "sandbox", "sandboxes"),
        plan.machine.core_ids.len(),
        show(memory),
        show(plan.machine.ram_size()),
    )
}

fn memory(out: &mut Sheet, plan: &Plan) {
    let rows: Vec<Vec<String>> = memory_map(plan)
        .into_iter()
        .map(|(span, owner)| {
            let what = match owner {
                Owner::Free => "RAM",
                Owner::Reserved(_) => "reserved",
                Owner::Image if plan.multikernel => "boot code, tables, pristine kernels",
                Owner::Image => "boot code, monitors, tables, pristine guests",
                Owner::Sandbox(_) => "RAM",
                Owner::Channel(_) => "shared memory",
                Owner::Link(_) => "shared memory, at run time",
            };
            let (start, last) = (format!("{:#x}", span.start), format!("{:#x}", span.end()));
            vec![start, last, about(span.len), owner_name(plan, owner), what.into()]
        })
        .collect();
    table(
        out,
        "Memory (host-physical; the image's length is an estimate until it is built)",
        &["from", "to", "size", "owner", "what"],
        &rows,
    );
}

/// Rights of a sandbox over others' lives: `stop, start rogue; restart store`.
pub fn over_lives(plan: &Plan, who: usize) -> String {
    let over = |(other, sandbox): (usize, &bulkhead_plan::Sandbox)| {
        let names: Vec<_> = plan.sandboxes[who].rights(other).map(|(name, _)| name).collect();
        (!names.is_empty()).then(|| format!("{} {}", names.join(", "), sandbox.name))
    };
    let all: Vec<String> = plan.sandboxes.iter().enumerate().filter_map(over).collect();
    if all.is_empty() { "-".into() } else { all.join("; ") }
}

/// Doorbells that the manifest allows: sender, receiver, rate.
fn doorbells(out: &mut Sheet, plan: &Plan) {
    const SECOND: u64 = 1_000_000_000;
    let mut rows = Vec::new();
    for (index, sandbox) in plan.sandboxes.iter().enumerate() {
        for rings in plan.rings(index, SECOND) {
            let sender = &plan.sandboxes[rings.sender];
            let by = sender.rights(index).map(|(name, right)| {
                format!("{name} each {}", bulkhead_manifest::time::show(right.every))
            });
            let by: Vec<String> = by.collect();
            rows.push(vec![
                sandbox.name.clone(),
                sender.name.clone(),
                if by.is_empty() { "-".into() } else { by.join(", ") },
                rings.timed.to_string(),
                match (rings.consented, rings.roles) {
                    (true, true) => "one each offer, one each role that comes",
                    (true, false) => "one each",
                    (false, true) => "one each role that comes",
                    (false, false) => "-",
                }
                .into(),
            ]);
        }
    }
    if !rows.is_empty() {
        let title = "Doorbells that others' monitors may ring";
        let heads = [
            "of",
            "by",
            "rights over its life",
            "in a second, at most",
            "offers made and accepted",
        ];
        table(out, title, &heads, &rows);
    }
}

fn sandboxes(out: &mut Sheet, plan: &Plan) {
    let names =
        |indices: &[usize]| joined(indices.iter().map(|index| &plan.sandboxes[*index].name));
    let rows: Vec<Vec<String>> = plan
        .sandboxes
        .iter()
        .enumerate()
        .map(|(index, sandbox)| {
            vec![
                index.to_string(),
                sandbox.name.clone(),
                guest(sandbox),
                joined(&sandbox.cores),
                show(sandbox.ram.iter().map(|ram| ram.len).sum()),
                joined(owned(sandbox)),
                over_lives(plan, index),
                names(&sandbox.observe),
                criticality(sandbox).into(),
                starts(sandbox),
            ]
        })
        .collect();
    let heads = [
        "#",
        "name",
        "guest",
        "cores",
        "memory",
        "devices",
        "may",
        "observes",
        "criticality",
        "starts at",
    ];
    table(out, "Sandboxes", &heads, &rows);
}

/// Tells what starts it, and what is special about its life.
fn starts(sandbox: &Sandbox) -> String {
    let start = if sandbox.autostart { "boot" } else { "request" };
    let notes =
        [("learns", sandbox.learn), ("lockable", sandbox.lockable), ("debug", sandbox.debug)];
    joined([start].into_iter().chain(notes.iter().filter(|(_, is)| *is).map(|(note, _)| *note)))
}

/// All memory that each sandbox reaches, as it sees it.
fn rights(out: &mut Sheet, plan: &Plan) {
    let mut rows = Vec::new();
    for (index, sandbox) in plan.sandboxes.iter().enumerate() {
        let ends = plan.ends(index);
        for Reach { at, len, access, what } in plan.reach(index) {
            let bdf = |n: usize| sandbox.functions[n].function.bdf;
            let end = |n: usize| {
                let name = &plan.channels[ends[n].region].name;
                format!("channel {name} (function {}), mediated", ends[n].bdf)
            };
            let moves = |n: usize| match sandbox.functions[n].role {
                Some(role) => format!(", while it has role {}", plan.roles[role].name),
                None => String::new(),
            };
            let content = match what {
                What::Ram(hpa) => format!("RAM at {hpa:#x}"),
                What::Info => "its info page".into(),
                What::Progress => "its progress words".into(),
                What::Roles => "the roles that it has".into(),
                What::Role(n) => {
                    let stand = plan.channels[n].stand.as_ref();
                    let role = stand.map_or("", |stand| &plan.roles[stand.role].name);
                    format!("channel {}, while it has role {role}", plan.channels[n].title())
                }
                What::Snapshots => {
                    format!(
                        "its snapshots: two of {}",
                        show(sandbox.snapshot * bulkhead_layout::PAGE)
                    )
                }
                What::Report(other) => format!("report of {}", plan.sandboxes[other].name),
                What::Bar(n, bar) => format!("BAR {bar} of pci:{}{}", bdf(n), moves(n)),
                What::Shared(n) if access == Access::Trap => {
                    format!("registers of {}, mediated", plan.mmio[n].name)
                }
                What::Shared(n) => format!("registers of {}, shared", plan.mmio[n].name),
                What::Vectors(n) => format!("MSI-X table of pci:{}, mediated{}", bdf(n), moves(n)),
                What::Registers(n) => format!("registers of {}", end(n)),
                What::EndVectors(n) => format!("MSI-X table of {}", end(n)),
                What::States(n) => {
                    format!("states of the peers of channel {}", plan.channels[ends[n].region].name)
                }
                What::Channel(n) => format!("channel {}", plan.channels[n].title()),
                What::Link(n) => {
                    let owner = &plan.sandboxes[plan.links[n].owner].name;
                    let which = plan.which_link(n);
                    format!("link {which} of {owner}, while it has a channel there")
                }
            };
            let (at, access) = (format!("{at:#x}"), access.to_string());
            rows.push(vec![sandbox.name.clone(), at, show(len), access, content]);
        }
    }
    table(
        out,
        "Reach (guest-physical; everything else is denied)",
        &["sandbox", "address", "size", "access", "what"],
        &rows,
    );
}

fn cores(out: &mut Sheet, plan: &Plan) {
    let rows: Vec<Vec<String>> = plan
        .machine
        .core_ids
        .iter()
        .enumerate()
        .map(|(core, id)| {
            let owner = plan.sandboxes.iter().find(|sandbox| sandbox.cores.contains(&core));
            let role = match owner {
                None => "-",
                Some(sandbox) if sandbox.cores.first() == Some(&core) => "first",
                Some(_) => "secondary",
            };
            let name = owner.map_or("-", |sandbox| &sandbox.name);
            vec![core.to_string(), id.to_string(), name.to_owned(), role.to_owned()]
        })
        .collect();
    table(out, "Cores", &["core", "x2APIC ID", "owner", "role"], &rows);
}

fn devices(out: &mut Sheet, plan: &Plan) {
    let rows: Vec<Vec<String>> = plan
        .machine
        .devices
        .iter()
        .map(|device| {
            let grant = plan.sandboxes.iter().find_map(|sandbox| {
                let own = sandbox.devices.iter().find(|own| own.name == device.name)?;
                Some((sandbox.name.clone(), format!("line {}", own.place.line)))
            });
            let (owner, line) = grant.unwrap_or_else(|| match &device.nobody {
                Some(why) => ("nobody".into(), why.clone()),
                None => ("-".into(), "-".into()),
            });
            let irq = device.irq.map_or("-".into(), |irq| irq.to_string());
            vec![device.name.clone(), device.class.clone(), ports(device), irq, owner, line]
        })
        .collect();
    let heads = ["name", "class", "ports", "interrupt", "owner", "granted at, or why not"];
    table(out, "Devices", &heads, &rows);
}

/// Registers that sandboxes share, and what that means.
fn shared_registers(out: &mut Sheet, plan: &Plan) {
    let mut rows = Vec::new();
    for shared in &plan.mmio {
        let name = |part: &MmioPart| plan.sandboxes[part.sandbox].name.as_str();
        let writers = shared.parts.iter().filter(|part| part.write).map(name);
        let writers: Vec<&str> = writers.collect();
        for part in &shared.parts {
            let span = part.range.unwrap_or(shared.span);
            let others = writers.iter().filter(|other| **other != name(part));
            let others = joined(others);
            let means = match part.range {
                Some(_) => "an exit each access".to_owned(),
                None if others == "-" => "nobody else writes".to_owned(),
                None => format!("no exit; {others} can change it"),
            };
            rows.push(vec![
                shared.name.clone(),
                shared.device.clone(),
                format!("{:#x}", span.start),
                show(span.len),
                name(part).to_owned(),
                if part.write { "rw-" } else { "r--" }.into(),
                means,
                part.place.line.to_string(),
            ]);
        }
    }
    let heads = ["name", "device", "address", "size", "sandbox", "access", "means", "line"];
    table(out, "Shared registers", &heads, &rows);
}

/// Names the content of a channel's region, by the part before it: both regions of a device carry its packets.
fn carries(part: Part, before: Option<Part>) -> String {
    match part.shape() {
        None if part == Part::Program => "program".into(),
        None if part == Part::Pages => "pages".into(),
        None => match before {
            Some(Part::Tx(Shape::Virtio { .. })) => "virtio".into(),
            _ => "receipts".into(),
        },
        Some(Shape::Queue { slots, size }) => format!("queue, {slots} of {size} bytes"),
        Some(Shape::Records { bytes }) => format!("records, up to {} bytes", longest(bytes)),
        Some(Shape::Mailbox { size }) => format!("mailbox of {size} bytes"),
        Some(Shape::Virtio { .. }) => "virtio".into(),
    }
}

/// Says which ends of a wall copy: a Linux has one copy between its own pages and the channel's.
fn copies(plan: &Plan, channel: &Channel) -> String {
    let virtio = matches!(channel.part.shape(), Some(Shape::Virtio { .. }));
    let ends = std::iter::once(channel.from).chain(channel.to.iter().copied());
    let linux = ends
        .map(|end| &plan.sandboxes[end])
        .filter(|one| matches!(one.guest, Guest::Linux { .. }))
        .map(|one| &one.name);
    let names: Vec<&String> = linux.filter(|_| virtio).collect();
    if names.is_empty() { String::new() } else { format!(", a copy in {}", joined(names)) }
}

/// Says how the reader of a region is woken, and by which port the writer is: a Linux chooses its vector itself.
fn notify(reader: Option<Bell>, writer: Option<Bell>, linux: bool) -> String {
    let how = reader.map(|bell| if bell.adaptive { "adaptive" } else { "doorbell" }.to_owned());
    let by = writer.map(|bell| match linux {
        true => format!("port {:#x}", bell.ring),
        false => format!("port {:#x}, vector {:#x}", bell.ring, bell.vector),
    });
    let words: Vec<String> = how.into_iter().chain(by).collect();
    if words.is_empty() { "poll".into() } else { words.join(", ") }
}

/// Names of those who write a channel, or read it. A role stands for its holders.
fn end(plan: &Plan, channel: &Channel, writes: bool) -> String {
    let role = channel.stand.as_ref().filter(|stand| stand.writes == writes);
    let role = role.map(|stand| (stand, format!("role {}", plan.roles[stand.role].name)));
    let own = if writes { vec![channel.from] } else { channel.to.clone() };
    let apart =
        |sandbox: &&usize| !role.as_ref().is_some_and(|(stand, _)| stand.holders.contains(sandbox));
    let names: Vec<_> =
        own.iter().filter(apart).map(|one| plan.sandboxes[*one].name.clone()).collect();
    joined(role.as_ref().map(|(_, name)| name).into_iter().chain(&names))
}

/// Roles, if there are any: who can hold each, and what moves with it.
fn roles(out: &mut Sheet, plan: &Plan) {
    let row = |(n, role): (usize, &bulkhead_plan::Role)| {
        let name = |holder: &usize| {
            let name = &plan.sandboxes[*holder].name;
            if plan.waits(*holder) { format!("{name} (begins for it)") } else { name.clone() }
        };
        let holders: Vec<_> = role.holders.iter().map(name).collect();
        let of = |c: &&Channel| c.stand.as_ref().is_some_and(|stand| stand.role == n);
        let regions = plan.channels.iter().filter(of).filter(|c| c.part != Part::Rx);
        let channels: Vec<_> = regions.map(|c| c.name.clone()).collect();
        let choice = if role.least_loaded { "the one with the fewest roles" } else { "the first" };
        let first = role.holders.first().map(|first| &plan.sandboxes[*first]);
        let own = first.iter().flat_map(|first| &first.functions).filter(|f| f.role == Some(n));
        let functions: Vec<_> = own.map(|f| format!("pci:{}", f.function.bdf)).collect();
        let reach = joined(&role.dma);
        vec![
            role.name.clone(),
            joined(&holders),
            choice.into(),
            joined(&channels),
            joined(&functions),
            reach,
        ]
    };
    let rows: Vec<_> = plan.roles.iter().enumerate().map(row).collect();
    if !rows.is_empty() {
        let heads = ["role", "holders", "next", "channels that move", "functions", "they reach"];
        table(out, "Roles", &heads, &rows);
    }
}

fn channels(out: &mut Sheet, plan: &Plan) {
    let rows: Vec<Vec<String>> = plan
        .channels
        .iter()
        .enumerate()
        .map(|(n, channel)| {
            vec![
                channel.title(),
                carries(channel.part, n.checked_sub(1).map(|n| plan.channels[n].part))
                    + &copies(plan, channel),
                end(plan, channel, true),
                end(plan, channel, false),
                show(channel.len),
                format!("{:#x}", channel.hpa),
                match plan.multikernel {
                    true => "-".into(),
                    false => format!("{:#x}", channel.gpa),
                },
                notify(
                    plan.bell(n),
                    channel.bell,
                    matches!(plan.sandboxes[channel.from].guest, Guest::Linux { .. }),
                ),
            ]
        })
        .collect();
    let heads = [
        "name",
        "carries",
        "writer (rw-)",
        "readers (r--)",
        "size",
        "host-physical",
        "guest-physical",
        "notify",
    ];
    table(out, "Channels", &heads, &rows);
}

/// Watchdogs, if there are any: what they look at, and how soon they find it.
fn watchdogs(out: &mut Sheet, plan: &Plan) {
    let show = bulkhead_manifest::time::show;
    let ticks = plan.ticks();
    let rows = plan.sandboxes.iter().filter_map(|sandbox| {
        let watch = sandbox.watch?;
        let [every, first, found] = match watch.alive {
            None => ["-".to_owned(), "-".to_owned(), "-".to_owned()],
            Some(alive) => [
                show(alive.every),
                alive.first.map_or_else(|| "no limit".to_owned(), show),
                show(watch.found_within(alive)),
            ],
        };
        let own = ticks.iter().filter(|tick| sandbox.core_ids.contains(&tick.core));
        let timers: Vec<_> = own.map(|tick| tick.comparator.to_string()).collect();
        let timers = match &timers[..] {
            [] => "each core's own".to_owned(),
            some => format!("HPET comparators {}", some.join(", ")),
        };
        let sweep = watch.sweep.map_or_else(|| "-".to_owned(), show);
        Some(vec![sandbox.name.clone(), show(watch.period), every, first, found, sweep, timers])
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        let heads = [
            "sandbox",
            "looks each",
            "progress each",
            "first within",
            "hang found within",
            "text looked at in",
            "timer",
        ];
        table(out, "Watchdogs", &heads, &rows);
    }
}

/// Monitors that look at others, if there are any: how soon they find one that has stopped, and what they do to it.
fn peers(out: &mut Sheet, plan: &Plan) {
    let show = bulkhead_manifest::time::show;
    let rows = plan.sandboxes.iter().flat_map(|sandbox| {
        let watch = sandbox.watch.unwrap_or_default();
        sandbox.peers.iter().map(move |peer| {
            let other = &plan.sandboxes[peer.sandbox];
            let mut does = vec!["a record".to_owned()];
            if peer.takes {
                let ids = joined(other.core_ids.iter().map(ToString::to_string));
                does.push(format!("INIT and start-up to APIC {ids}"));
            }
            if peer.quiets {
                let all = other.functions.iter().filter(|granted| granted.role.is_none());
                let all = all.map(|granted| granted.function.bdf.to_string());
                does.push(format!("bus mastering off in {}", joined(all)));
            }
            vec![
                sandbox.name.clone(),
                other.name.clone(),
                show(peer.every),
                peer.first.map_or_else(|| "no limit".to_owned(), show),
                show(watch.stopped_within(peer.every)),
                does.join(", "),
            ]
        })
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        let heads =
            ["monitor of", "looks at", "heartbeat each", "launch within", "found within", "then"];
        table(out, "Peers", &heads, &rows);
    }
}

/// Builds of monitors, if some sandbox has another one than the usual one.
fn builds(out: &mut Sheet, plan: &Plan) {
    let name = |build| match build {
        Build::Usual => "usual",
        Build::Checked => "checked",
    };
    let row = |(index, sandbox): (usize, &Sandbox)| {
        let spare = if plan.is_taken(index) { name(sandbox.spare) } else { "-" };
        vec![sandbox.name.clone(), name(sandbox.monitor).into(), spare.into()]
    };
    let rows: Vec<_> = plan.sandboxes.iter().enumerate().map(row).collect();
    if rows.iter().flatten().any(|cell| cell == name(Build::Checked)) {
        table(out, "Builds of monitors", &["sandbox", "monitor", "spare monitor"], &rows);
    }
}

fn health(out: &mut Sheet, plan: &Plan) {
    let rows: Vec<Vec<String>> = plan
        .sandboxes
        .iter()
        .map(|sandbox| {
            let actions = sandbox.actions.iter().map(|one| action(*one).to_owned());
            std::iter::once(sandbox.name.clone()).chain(actions).collect()
        })
        .collect();
    let heads: Vec<&str> = std::iter::once("sandbox").chain(KIND_NAMES).collect();
    table(out, "After a denied access, or another finding", &heads, &rows);
    ladders(out, plan);
}

/// Ladders, if there are any: what is done, in which order, how often.
fn ladders(out: &mut Sheet, plan: &Plan) {
    let show = bulkhead_manifest::time::show;
    let rows = plan.sandboxes.iter().flat_map(|sandbox| {
        let named = move |number: usize| {
            let own = move |action: &Action| *action == Action::Ladder(number as u8);
            let kinds = sandbox.actions.iter().zip(KIND_NAMES).filter(move |(one, _)| own(one));
            joined(kinds.map(|(_, name)| name.to_owned()))
        };
        let rung = move |(number, ladder, at): (usize, &Ladder, usize)| {
            let rung = ladder.rungs[at];
            let (first, action) = (
                at == 0,
                match rung.step {
                    Step::Stop => "stop".to_owned(),
                    Step::Restart => "restart".to_owned(),
                    Step::Warm => "restart warm".to_owned(),
                    Step::Failover(None) => "failover".to_owned(),
                    Step::Failover(Some(to)) => {
                        format!("failover to {}", plan.sandboxes[to].name)
                    }
                    Step::Alternative(other) => {
                        let name = sandbox.alternatives.get(other).map_or("?", |other| &other.name);
                        format!("alternative {name}")
                    }
                },
            );
            let limit = rung.at_most.map_or_else(
                || "each time".to_owned(),
                |(times, within)| format!("{times} in {}", show(within)),
            );
            let [name, kinds] = match first {
                true => [sandbox.name.clone(), named(number)],
                false => [String::new(), String::new()],
            };
            vec![name, kinds, format!("{}.", at + 1), action, limit]
        };
        let ladders = sandbox.ladders.iter().enumerate();
        let rungs =
            ladders.flat_map(|(n, ladder)| (0..ladder.rungs.len()).map(move |at| (n, ladder, at)));
        rungs.map(rung).collect::<Vec<_>>()
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        let heads = ["sandbox", "failure", "rung", "action", "at most"];
        table(out, "Ladders", &heads, &rows);
    }
}

/// Lists the things that a partition by cores, memory and devices leaves common.
#[must_use]
pub fn still_shared(plan: &Plan) -> Vec<Remark> {
    let always = [
        ("last-level cache", "a sandbox can evict lines of others: their speed, not their data"),
        ("memory bus and controllers", "a sandbox can slow memory down for others"),
        (
            "core pairs (hyper-threads)",
            "not described by this machine file: keep siblings in one sandbox",
        ),
        ("time stamp counter", "all sandboxes read the same one"),
    ];
    let always = always.map(|(what, effect)| (what.to_owned(), effect.to_owned()));
    always.into_iter().chain(pci::shared(plan)).collect()
}

fn shared(out: &mut Sheet, plan: &Plan) {
    let remarks = |out: &mut Sheet, title: &str, all: Vec<Remark>| {
        let rows: Vec<Vec<String>> =
            all.into_iter().map(|(what, effect)| vec![what, effect]).collect();
        table(out, title, &["what", "effect"], &rows);
    };
    if plan.sandboxes.len() > 1 {
        remarks(out, "Still shared by all sandboxes", still_shared(plan));
    }
    if plan.multikernel || !plan.machine.functions.is_empty() {
        remarks(out, "Not confined by hardware", pci::not_confined(plan));
    }
}
