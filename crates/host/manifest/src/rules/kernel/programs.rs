//! Kernels and their programs: sizes, devices, channels, and that there is something to run.

use super::build::driven;
use super::{Managed, Parts, all, complete, managed};
use crate::diagnostic::{Diagnostic, list};
use crate::raw::{self, ChannelKind};
use crate::raw_kernel::ChannelUse;
use crate::rules::memory::wrong_size;
use crate::rules::{Context, GuestFile, Item, Opened};
use crate::shape::brief;
use crate::size::{self, show};
use crate::source::{Location, k, n};
use bulkhead_kernel_abi::{MAX_NAMES, at, slot};
use bulkhead_layout::PAGE;
use bulkhead_plan::Trigger;
use bulkhead_plan::kernel::{Driven, PLACE_BITS, SLOTS};

/// A kernel reaches this much of its sandbox' memory, through a window at the top of its
/// addresses.
const WINDOW: u64 = 2 << 30;

/// A kernel has one core.
pub fn kernel_core(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for parts in all(cx).filter(|parts| parts.sandbox.cores.len() > 1) {
        let sandbox = parts.sandbox;
        let message = format!("kernel `{}` has {} cores", sandbox.name, sandbox.cores.len());
        let help =
            "a kernel runs on one core; give the others to kernels in sandboxes of their own";
        let at = cx.at(sandbox, &[k("cores")]);
        found.push(Diagnostic::new("kernel-core", at, message).help(help));
    }
}

/// A kernel has something to run, and each program a thread.
pub fn kernel_idle(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    if !complete(cx) {
        return;
    }
    for parts in all(cx) {
        if parts.programs.is_empty() {
            let message = format!("kernel `{}` has nothing to run", parts.sandbox.name);
            let at = cx.at(parts.sandbox, &[k("name")]);
            let help = format!(
                "add a `[[program]]` with `sandbox = \"{}\"`, and a `[[thread]]` of it",
                parts.sandbox.name
            );
            found.push(Diagnostic::new("kernel-idle", at, message).help(help));
        }
        let begins = parts.threads.iter().any(|thread| thread.context.is_some())
            || parts.notifications.iter().any(|notification| notification.context.is_some());
        if let Some(first) = parts.threads.first().filter(|_| !begins) {
            let message = format!("nothing in `{}` starts", parts.sandbox.name);
            let help = "each of its threads waits for a call by another one: give one a `context`";
            let at = cx.at(first, &[k("name")]);
            found.push(Diagnostic::new("kernel-idle", at, message).help(help));
        }
        let idle = parts.programs.iter().filter(|program| threads(&parts, program) == 0);
        for program in idle {
            let message = format!("program `{}` has no thread", program.name);
            let help = format!("add a `[[thread]]` with `program = \"{}\"`", program.name);
            let at = cx.at(program, &[k("name")]);
            found.push(Diagnostic::new("kernel-idle", at, message).help(help));
        }
    }
}

fn threads(parts: &Parts<'_>, program: &raw::Program) -> usize {
    parts.threads.iter().filter(|thread| thread.program == program.name).count()
}

/// Sizes are whole pages.
pub fn part_size(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let mut check = |what: &str, name: &str, text: Option<&str>, at: Location| {
        if let Some((message, help)) = text.and_then(|text| wrong_size(text, PAGE)) {
            let message = format!("{what} `{name}`: {message}");
            found.push(Diagnostic::new("part-size", at, message).help(help));
        }
    };
    for item in &cx.sandboxes {
        let at = cx.at(item, &[k("guest"), k("trace")]);
        check("trace of kernel", &item.name, super::trace(item), at);
    }
    for item in &cx.programs {
        let (heap, memory) = (item.heap.as_deref(), item.memory.as_deref());
        check("heap of program", &item.name, heap, cx.at(item, &[k("heap")]));
        check("memory of program", &item.name, memory, cx.at(item, &[k("memory")]));
    }
    for item in &cx.threads {
        check("stack of thread", &item.name, item.stack.as_deref(), cx.at(item, &[k("stack")]));
    }
    for item in &cx.shared {
        check("size of shared", &item.name, Some(&item.size), cx.at(item, &[k("size")]));
    }
    halved(cx, found);
    stacks(cx, found);
}

/// Untyped memory is one piece of a size that objects can have, and a ring finds its records by a mask.
fn halved(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let mut check = |what: &str, name: &str, text: Option<&str>, at: Location, why: &str| {
        let Some(Ok(bytes)) = text.map(size::parse) else { return };
        if bytes.is_multiple_of(PAGE) && !bytes.is_power_of_two() && bytes > 0 {
            let message = format!("{what} `{name}`: {} is no power of two", show(bytes));
            let near = bytes.checked_next_power_of_two().map_or_else(String::new, show);
            let help = format!("{why}: write `\"{near}\"`, or half of that");
            found.push(Diagnostic::new("part-size", at, message).help(help));
        }
    };
    for item in &cx.sandboxes {
        let at = cx.at(item, &[k("guest"), k("trace")]);
        check("trace of kernel", &item.name, super::trace(item), at, "it is a ring");
    }
    for item in &cx.programs {
        let (text, at) = (item.memory.as_deref(), cx.at(item, &[k("memory")]));
        check("memory of program", &item.name, text, at, "untyped memory is divided by halves");
    }
}

/// A program's stacks, each with a missing page below it, lie below its text.
fn stacks(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    const ROOM: u64 = at::PROGRAM - at::STACKS;
    for parts in all(cx) {
        for program in &parts.programs {
            let own = parts.threads.iter().filter(|thread| thread.program == program.name);
            let sizes = own.map(|thread| {
                let text = thread.stack.as_deref().unwrap_or(super::STACK);
                size::parse(text).unwrap_or(0).saturating_add(PAGE)
            });
            let sum = sizes.fold(0, u64::saturating_add);
            if sum > ROOM {
                let message = format!(
                    "stacks of program `{}`: with a page between them they have {}",
                    program.name,
                    show(sum)
                );
                let at = cx.at(program, &[k("name")]);
                let help = format!(
                    "there is room for {}: make `stack` of some threads smaller",
                    show(ROOM)
                );
                found.push(Diagnostic::new("part-size", at, message).help(help));
            }
        }
    }
}

/// A kernel's memory is in its window, and holds its programs.
pub fn kernel_memory(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for parts in all(cx) {
        let Ok(memory) = size::parse(parts.sandbox.memory.size()) else { continue };
        let at = cx.at(parts.sandbox, &[k("memory")]);
        let name = &parts.sandbox.name;
        if memory > WINDOW {
            let message = format!("kernel `{name}` has {}", show(memory));
            let help = format!("a kernel uses at most {}", show(WINDOW));
            found.push(Diagnostic::new("kernel-memory", at, message).help(help));
            continue;
        }
        let needed = needs(cx, &parts);
        if needed > memory && wrong_size(parts.sandbox.memory.size(), PAGE).is_none() {
            let message = format!(
                "{} are too little for `{name}`: its programs, stacks, heaps, shared memory and trace are {} KiB",
                show(memory),
                needed.div_ceil(1 << 10)
            );
            let whole = needed.checked_next_multiple_of(1 << 20).unwrap_or(needed);
            let help =
                format!("give it more than `\"{}\"`: kernel and objects come on top", show(whole));
            found.push(Diagnostic::new("kernel-memory", at, message).help(help));
        }
    }
}

/// Each page that a kernel begins with has a place in the image's first node. Counted are heaps, shared memory and
/// files; the image builder also counts stacks, tables, devices' pages and objects.
pub fn kernel_places(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for parts in all(cx) {
        let all = heaviest(cx, &parts);
        let pages = all.iter().fold(0u64, |sum, (pages, ..)| sum.saturating_add(*pages));
        let Some((_, at, what)) = all.into_iter().max_by_key(|(pages, ..)| *pages) else {
            continue;
        };
        if pages > 1 << PLACE_BITS {
            let (name, room) = (&parts.sandbox.name, 1u64 << PLACE_BITS);
            let message = format!(
                "kernel `{name}` begins with {pages} pages of its programs: {what} has most of them"
            );
            let help = format!(
                "there is room for {room} pages and objects: make heaps and shared memory smaller, or take `memory`, of which a program makes its own at run time"
            );
            found.push(Diagnostic::new("kernel-memory", at, message).help(help));
        }
    }
}

/// Lists a program's pages with their places in the manifest. Shared memory counts once, and once more for each
/// program that sees it.
fn heaviest(cx: &Context<'_, '_>, parts: &Parts<'_>) -> Vec<(u64, Location, String)> {
    let pages = |text: &str| size::parse(text).unwrap_or(0).div_ceil(PAGE);
    let mut all = Vec::new();
    for program in &parts.programs {
        let heap = program.heap.as_deref().map_or(0, pages);
        all.push((heap, cx.at(program, &[k("heap")]), format!("the heap of `{}`", program.name)));
        let text = elf(cx, program).map_or(0, |elf| {
            elf.segments.iter().fold(0u64, |sum, s| sum.saturating_add(s.pages().len / PAGE))
        });
        all.push((text, cx.at(program, &[k("file")]), format!("the file of `{}`", program.name)));
    }
    for shared in &parts.shared {
        let seen = { parts.programs.iter() }
            .filter(|program| program.maps.iter().any(|map| map.parts().0 == shared.name));
        let count = pages(&shared.size).saturating_mul(1 + seen.count() as u64);
        all.push((count, cx.at(shared, &[k("size")]), format!("shared memory `{}`", shared.name)));
    }
    all
}

/// Bytes that the manifest's words alone take.
fn needs(cx: &Context<'_, '_>, parts: &Parts<'_>) -> u64 {
    let bytes = |text: &str| size::parse(text).unwrap_or(0);
    let of = |text: &Option<String>| text.as_deref().map_or(0, bytes);
    let programs = parts.programs.iter().map(|program| {
        let segments = elf(cx, program).map_or(0, |elf| {
            elf.segments.iter().fold(0u64, |sum, segment| sum.saturating_add(segment.pages().len))
        });
        segments.saturating_add(of(&program.heap)).saturating_add(of(&program.memory))
    });
    let stacks = parts.threads.iter().map(|thread| {
        let text = thread.stack.as_deref();
        bytes(text.unwrap_or(super::STACK))
    });
    let shared = parts.shared.iter().map(|shared| bytes(&shared.size));
    let trace = super::trace(parts.sandbox).map(|text| bytes(text).saturating_add(PAGE));
    programs.chain(stacks).chain(shared).chain(trace).fold(0, u64::saturating_add)
}

/// Returns the content of a program's file.
#[must_use]
pub fn elf<'a>(
    cx: &'a Context<'_, '_>,
    program: &Item<raw::Program>,
) -> Option<&'a crate::guest_file::Program> {
    let own = |o: &&Opened| o.table == program.table && o.index == program.index;
    match &cx.guests.iter().find(own)?.file {
        Some(Ok(GuestFile::Program(elf))) => Some(elf),
        _ => None,
    }
}

/// Counts the names of a program that take a slot: a reply object for each of its threads, and each entry of its
/// lists.
fn in_slots(cx: &Context<'_, '_>, parts: &Parts<'_>, program: &raw::Program) -> usize {
    let own = |name: &str| {
        parts.threads.iter().any(|thread| thread.name == name && thread.program == program.name)
    };
    // A program is a capability space and an address space; a foreign thread comes with its reply.
    let managed = program.manages.iter().map(|text| match managed(text) {
        Some(Managed::Program(_)) => 2,
        Some(Managed::Thread(name)) if !own(name) => 2,
        _ => 1,
    });
    // Ports have slots of their own, registers in memory have not.
    let driver = super::alternative::original(parts, program).map_or(program, |other| other);
    let devices = driver.devices.iter().map(|device| device.parts().1.len());
    let lists = [
        threads(parts, program),
        program.calls.len(),
        program.serves.len(),
        program.signals.len(),
        program.waits.len(),
        super::links::count(cx, parts, program)[0],
    ];
    lists.into_iter().chain(managed).chain(devices).sum()
}

/// How many doorbells a program may ring.
fn bells(cx: &Context<'_, '_>, parts: &Parts<'_>, program: &raw::Program) -> usize {
    let rung = |used: &ChannelUse| {
        let known = cx.channels.iter().find(|one| one.name == used.name());
        known.map_or(0, |channel| crate::rules::channels::rings(channel, &parts.sandbox.name))
    };
    program.channels.iter().map(rung).sum()
}

/// How many names a program's channels take.
fn channels(cx: &Context<'_, '_>, parts: &Parts<'_>, program: &raw::Program) -> usize {
    let names = |used: &ChannelUse| {
        let known = cx.channels.iter().find(|channel| channel.name == used.name());
        known.map_or(1, |channel| crate::rules::channels::windows(cx, channel, &parts.sandbox.name))
    };
    program.channels.iter().map(names).sum()
}

/// All that a program has by name has room on the page that tells it about itself.
pub fn program_names(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for parts in all(cx) {
        for program in &parts.programs {
            // A device takes one name at least: for its ports, or for the page that describes it.
            let memory = program.maps.len() + channels(cx, &parts, program) + program.devices.len();
            let offers = super::links::count(cx, &parts, program)[1];
            let count = in_slots(cx, &parts, program) + memory + offers;
            if count > MAX_NAMES {
                let message = format!("program `{}` has {count} things by name", program.name);
                let at = cx.at(program, &[k("name")]);
                let help = format!("there is room for {MAX_NAMES} names: divide the program");
                found.push(Diagnostic::new("program-names", at, message).help(help));
            }
        }
    }
}

/// A capability space has a size that a kernel's object can have, and room.
pub fn program_slots(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for parts in all(cx) {
        for program in &parts.programs {
            let slots = program.slots.unwrap_or(super::SLOTS);
            let at = cx.at(program, &[k("slots")]);
            let (least, most) = (*SLOTS.start(), *SLOTS.end());
            if !SLOTS.contains(&slots) || !slots.is_power_of_two() {
                let message = format!("a capability space cannot have {slots} slots");
                let near = slots.clamp(least, most).next_power_of_two();
                let help = format!("write a power of two from {least} to {most}, such as {near}");
                found.push(Diagnostic::new("program-slots", at, message).help(help));
                continue;
            }
            let needed =
                slot::FIRST as usize + in_slots(cx, &parts, program) + bells(cx, &parts, program);
            if needed > slots as usize {
                let message = format!(
                    "program `{}` begins with {needed} slots in use, and has {slots}",
                    program.name
                );
                let help = format!("write `slots = {}`", needed.next_power_of_two());
                found.push(Diagnostic::new("program-slots", at, message).help(help));
            }
        }
    }
}

/// A device that a program uses.
struct Used<'a> {
    program: &'a Item<raw::Program>,
    index: usize,
    name: &'a str,
    driven: Option<Driven>,
}

fn used<'a>(cx: &Context<'_, '_>, parts: &Parts<'a>) -> Vec<Used<'a>> {
    let all = parts.programs.iter().flat_map(|program| {
        program.devices.iter().enumerate().map(move |(index, device)| {
            let name = device.parts().0;
            Used { program, index, name, driven: driven(cx, parts.sandbox, name) }
        })
    });
    all.collect()
}

/// Programs drive devices of their sandbox, each one program's.
pub fn program_device(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    if cx.machine.is_none() {
        return;
    }
    for parts in all(cx) {
        let all = used(cx, &parts);
        for (index, used) in all.iter().enumerate() {
            let at = cx.at(used.program, &[k("devices"), n(used.index)]);
            let Some(driven) = used.driven else {
                let sandbox = parts.sandbox;
                let message = format!("`{}` has no device `{}`", sandbox.name, brief(used.name));
                let names: Vec<&str> = sandbox.devices.iter().map(|grant| grant.name()).collect();
                let help = match names.is_empty() {
                    true => format!("add it to `devices` of sandbox `{}`", sandbox.name),
                    false => format!("it has {}", list(&names)),
                };
                found.push(Diagnostic::new("program-device", at, message).help(help));
                continue;
            };
            if let Some(first) = all[..index].iter().find(|one| one.driven == Some(driven)) {
                let message = format!(
                    "device `{}` is driven by `{}` and by `{}`",
                    brief(used.name),
                    first.program.name,
                    used.program.name
                );
                let there = cx.at(first.program, &[k("devices"), n(first.index)]);
                found.push(
                    Diagnostic::new("program-device", at, message)
                        .label("given again")
                        .related(there, "given here first")
                        .help("a device has one driver; others can call it"),
                );
            }
        }
    }
}

/// A PCI function reaches memory that its driver has, too: shared memory, and channels with pages for nothing but data.
pub fn program_dma(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for parts in all(cx) {
        for used in used(cx, &parts) {
            let device = &used.program.devices[used.index];
            let maps = used.program.maps.iter().map(|map| map.parts().0);
            let channels = used.program.channels.iter().map(ChannelUse::name);
            let all: Vec<&str> = maps.chain(channels).collect();
            for (index, name) in device.dma().iter().enumerate() {
                let at = cx.at(used.program, &[k("devices"), n(used.index), k("dma"), n(index)]);
                let role = role(cx, &parts, used.driven);
                let (message, help) = if let Some(role) = role {
                    let message = format!("`{}` is a device of role `{role}`", brief(used.name));
                    (message, "leave `dma` out here: it is a key of the role".to_owned())
                } else if !crate::rules::pci::is_pci(used.name) {
                    let message = format!("`{}` is no PCI function", brief(used.name));
                    (message, "leave out `dma`: only PCI functions access memory".to_owned())
                } else if device.dma()[..index].contains(name) {
                    (format!("`{}` stands here twice", brief(name)), "name it once".to_owned())
                } else if let Some(wrong) = unreached(cx, used.program, name, &all) {
                    wrong
                } else {
                    continue;
                };
                found.push(Diagnostic::new("program-dma", at, message).help(help));
            }
        }
    }
}

/// Returns the mistake in the name of memory that a device is to reach, and how to mend it. `all` are the names of its
/// driver's memory.
fn unreached(
    cx: &Context<'_, '_>,
    program: &Item<raw::Program>,
    name: &str,
    all: &[&str],
) -> Option<(String, String)> {
    let (of, shown) = (&program.name, brief(name));
    match all.iter().filter(|one| **one == name).count() {
        0 => {
            let message = format!(
                "`{of}` has no shared memory or channel `{shown}` that its device could reach"
            );
            let help = match all.is_empty() {
                true => format!("add a `[[shared]]`, and it to `maps` of `{of}`"),
                false => format!("it has {}", list(all)),
            };
            return Some((message, help));
        }
        1 => {}
        _ => {
            let message = format!("`{shown}` is shared memory and a channel of `{of}`");
            return Some((message, "give one of them another name".to_owned()));
        }
    }
    let mut channels =
        cx.channels.iter().filter(|_| !program.maps.iter().any(|map| map.parts().0 == name));
    let channel = channels.find(|channel| channel.name == name)?;
    let role = crate::rules::role::of(cx, channel).map(|(_, role)| role);
    if let Some(role) = role.filter(|role| role.holders.contains(&program.sandbox)) {
        // Its device would still reach it when another sandbox has the role.
        let message =
            format!("a device cannot reach channel `{shown}`: role `{}` moves", role.name);
        return Some((message, "let it reach shared memory, and copy".to_owned()));
    }
    let whole = matches!(channel.kind, ChannelKind::Pages | ChannelKind::Virtio);
    (!whole).then(|| {
        let kind = channel.kind.name();
        let message = format!("a device cannot reach channel `{shown}`: it is a `{kind}`");
        let help =
            "only channels of kind `pages` and `virtio` have pages that hold nothing but data";
        (message, help.to_owned())
    })
}

/// Interrupts are the device's, each going to one place.
pub fn program_interrupt(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for parts in all(cx) {
        for used in used(cx, &parts) {
            let Some(driven) = used.driven else { continue };
            let (count, none) = interrupts(cx, &parts, driven);
            let all = used.program.devices[used.index].parts().1;
            for (index, interrupt) in all.iter().enumerate() {
                let number = interrupt.number;
                let (message, help) = if usize::from(number) >= count {
                    let help = match count {
                        0 => format!("leave `interrupts` out: {none}"),
                        1 => "it has interrupt 0 only".to_owned(),
                        _ => format!("its interrupts are 0 to {}", count - 1),
                    };
                    (format!("`{}` has no interrupt {number}", brief(used.name)), help)
                } else if all[..index].iter().any(|first| first.number == number) {
                    let message =
                        format!("interrupt {number} of `{}` goes to two places", used.name);
                    (message, "an interrupt signals one notification".to_owned())
                } else {
                    continue;
                };
                let path = [k("devices"), n(used.index), k("interrupts"), n(index)];
                let at = cx.at(used.program, &path);
                found.push(Diagnostic::new("program-interrupt", at, message).help(help));
            }
        }
    }
}

/// Counts the interrupts of a device that can signal a program. If there are none, it returns the reason, too.
fn interrupts(cx: &Context<'_, '_>, parts: &Parts<'_>, driven: Driven) -> (usize, &'static str) {
    if line(cx, parts, driven).is_some() {
        return (1, "");
    }
    let Driven::Function(index) = driven else { return (0, "it has no line") };
    if role(cx, parts, Some(driven)).is_some() {
        return (0, "a role's function sends none");
    }
    let granted = crate::rules::build::functions(cx, parts.sandbox);
    let function = granted.get(index).map(|one| &one.function);
    let vectors = function.and_then(|one| one.msix).map(|msix| usize::from(msix.vectors));
    let message = usize::from(function.is_some_and(|one| one.msi.is_some()));
    (vectors.unwrap_or(message), "it sends no messages, and has no line")
}

/// The name of the role that a device belongs to.
pub(super) fn role<'a>(
    cx: &'a Context<'_, '_>,
    parts: &Parts<'_>,
    driven: Option<Driven>,
) -> Option<&'a str> {
    let Driven::Function(index) = driven? else { return None };
    let granted = crate::rules::build::functions(cx, parts.sandbox);
    let role = granted.get(index)?.role?;
    Some(&cx.roles.get(role)?.name)
}

/// The line by which a device signals, if it does so by a line.
fn line(cx: &Context<'_, '_>, parts: &Parts<'_>, driven: Driven) -> Option<(u32, Trigger)> {
    match driven {
        Driven::Device(index) => {
            let named = |grant: &&raw::DeviceGrant| !crate::rules::pci::is_pci(grant.name());
            let name = parts.sandbox.devices.iter().filter(named).nth(index)?.name();
            let mut devices = cx.machine.iter().flat_map(|machine| &machine.devices);
            let device = devices.find(|device| device.name == name)?;
            Some((device.irq?, device.trigger))
        }
        Driven::Function(index) => {
            let granted = crate::rules::build::functions(cx, parts.sandbox);
            let one = granted.get(index).filter(|one| one.line)?;
            Some((one.function.irq?, Trigger::LevelLow))
        }
    }
}

/// A device with a line that signals a program.
pub struct Signalled<'a> {
    /// The program's sandbox.
    pub sandbox: &'a str,
    /// The device, as the program names it.
    pub name: &'a str,
    /// Place of that name.
    pub at: Location,
    /// Its line.
    pub line: u32,
    /// Trigger mode of the line.
    pub trigger: Trigger,
}

/// All lines that signal programs, in the order of the file, kernel by kernel.
#[must_use]
pub fn lines<'a>(cx: &'a Context<'_, '_>) -> Vec<Signalled<'a>> {
    let mut all = Vec::new();
    for parts in super::all(cx) {
        for used in used(cx, &parts) {
            let signals = !used.program.devices[used.index].parts().1.is_empty();
            let line = used.driven.filter(|_| signals).and_then(|one| line(cx, &parts, one));
            if let Some((line, trigger)) = line {
                let at = cx.at(used.program, &[k("devices"), n(used.index)]);
                let sandbox = parts.sandbox.name.as_str();
                all.push(Signalled { sandbox, name: used.name, at, line, trigger });
            }
        }
    }
    all
}

/// A line signals for one device, and a kernel has at most one level-triggered line. That line stays in service until
/// its driver acknowledges it, and would hold up another for as long.
pub fn program_line(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let all = lines(cx);
    for (index, this) in all.iter().enumerate() {
        let own = || all[..index].iter().filter(|first| first.sandbox == this.sandbox);
        let level = |one: &&Signalled<'_>| one.trigger != Trigger::Edge;
        let (message, label, first) = if let Some(first) = own().find(|f| f.line == this.line) {
            (
                format!("`{}` and `{}` have line {}", first.name, brief(this.name), this.line),
                "",
                first,
            )
        } else if let Some(first) = own().find(level).filter(|_| level(&this)) {
            let message = format!(
                "`{}` and `{}` both have a level-triggered line",
                brief(first.name),
                brief(this.name)
            );
            (message, "its driver could hold up the other one", first)
        } else {
            continue;
        };
        found.push(
            Diagnostic::new("program-line", this.at.clone(), message)
                .label(label)
                .related(first.at.clone(), "so has this one")
                .help("take messages, leaving out `line = true`, or drive one of them in another sandbox"),
        );
    }
}

/// Channels that a program sees belong to its sandbox, and each doorbell has a notification.
pub fn program_channel(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for parts in all(cx) {
        let own = &parts.sandbox.name;
        let is = |end: &String| cx.is_end(end, own);
        let ends = cx.channels.iter().filter(|one| is(&one.from) || one.to.iter().any(is));
        let ends: Vec<_> = ends.collect();
        let names: Vec<&str> = ends.iter().map(|channel| channel.name.as_str()).collect();
        let mut rung: Vec<&str> = Vec::new();
        for program in &parts.programs {
            for (index, used) in program.channels.iter().enumerate() {
                let (name, signal) = (used.name(), used.signal());
                let at = cx.at(program, &[k("channels"), n(index)]);
                let mut refuse = |message: String, help: String| {
                    let finding = Diagnostic::new("program-channel", at.clone(), message);
                    found.push(finding.help(help));
                };
                let Some(channel) = ends.iter().find(|end| end.name == name) else {
                    let message = format!("`{own}` has no channel `{}`", brief(name));
                    refuse(
                        message,
                        match names.is_empty() {
                            true => format!("add a `[[channel]]` from or to `{own}`"),
                            false => format!("it has {}", list(&names)),
                        },
                    );
                    continue;
                };
                let name = brief(name);
                if program.channels[..index].iter().any(|before| before.name() == channel.name) {
                    refuse(format!("channel `{name}` stands here twice"), "name it once".into());
                } else if signal.is_some() && !crate::rules::channels::is_woken(channel, own) {
                    let message = format!("no doorbell of channel `{name}` rings in `{own}`");
                    let help = "name the channel alone, or write `notify = \"doorbell\"` in the \
                                `[[channel]]` that leads there";
                    refuse(message, help.into());
                } else if signal.is_some() && rung.contains(&channel.name.as_str()) {
                    let message =
                        format!("the doorbell of channel `{name}` signals another program");
                    refuse(message, "name the notification in one program".into());
                }
                rung.extend(signal.map(|_| channel.name.as_str()));
            }
        }
    }
}
