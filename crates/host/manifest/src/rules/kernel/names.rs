//! Parts of kernels' sandboxes: their owners, their names, and the names that they use.

use super::{Managed, Parts, all, complete, managed};
use crate::diagnostic::{Diagnostic, list, nearest};
use crate::raw::Guest;
use crate::rules::{Context, Item};
use crate::shape::brief;
use crate::source::{Location, Step, k, n};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A part, as the rules of this file see it.
pub struct Part<'a> {
    /// Its table.
    pub table: &'static str,
    /// Its name.
    pub name: &'a str,
    /// Place of its name.
    pub at: Location,
    /// Its owner: the key, and the name that the key gives.
    owner: (&'static str, &'a str),
    /// Place of that key.
    owner_at: Location,
}

/// All parts that could be decoded.
#[must_use]
pub fn every<'a>(cx: &'a Context<'_, '_>) -> Vec<Part<'a>> {
    fn part<'a, T: super::Named>(
        cx: &Context<'_, '_>,
        item: &'a Item<T>,
        key: &'static str,
        owner: &'a str,
    ) -> Part<'a> {
        Part {
            table: item.table,
            name: item.raw.name(),
            at: cx.at(item, &[k("name")]),
            owner: (key, owner),
            owner_at: cx.at(item, &[k(key)]),
        }
    }
    let own = "sandbox";
    let mut all: Vec<Part<'a>> = Vec::new();
    all.extend(cx.programs.iter().map(|item| part(cx, item, own, &item.sandbox)));
    all.extend(cx.threads.iter().map(|item| part(cx, item, "program", &item.program)));
    all.extend(cx.contexts.iter().map(|item| part(cx, item, own, &item.sandbox)));
    all.extend(cx.endpoints.iter().map(|item| part(cx, item, own, &item.sandbox)));
    all.extend(cx.notifications.iter().map(|item| part(cx, item, own, &item.sandbox)));
    all.extend(cx.shared.iter().map(|item| part(cx, item, own, &item.sandbox)));
    all
}

/// Parts belong to sandboxes with a kernel as guest, threads to programs.
pub fn part_sandbox(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for part in every(cx) {
        let (key, owner) = part.owner;
        let at = part.owner_at;
        if key == "program" {
            found.extend(no_program(cx, at, owner));
        } else if !cx.knows(owner) {
            found.push(cx.unknown_sandbox("part-sandbox", at, owner));
        } else if let Some(index) = cx.sandbox_index(owner)
            && !matches!(cx.sandboxes[index].guest, Guest::Kernel { .. })
        {
            let what = what(part.table);
            let message = format!("`{owner}` runs no kernel, so it has no {what}");
            let help = "name a sandbox with `guest = { kind = \"kernel\" }`";
            found.push(Diagnostic::new("part-sandbox", at, message).help(help));
        }
    }
}

fn no_program(cx: &Context<'_, '_>, at: Location, name: &str) -> Option<Diagnostic> {
    let names: Vec<&str> = cx.programs.iter().map(|program| program.name.as_str()).collect();
    if names.contains(&name) || !complete(cx) {
        return None;
    }
    let message = format!("there is no program `{}`", brief(name));
    let help = other_name(name, &names);
    Some(Diagnostic::new("part-sandbox", at, message).help(help))
}

/// Names the content of a table in a sentence.
fn what(table: &str) -> &str {
    if table == "shared" { "shared memory" } else { table }
}

/// Suggests the nearest name, or lists all names.
fn other_name(name: &str, names: &[&str]) -> String {
    match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there is {}", list(names)),
    }
}

/// Names are unique: programs' in the manifest, the others' in their sandbox and table.
pub fn part_twice(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let homes: BTreeMap<&str, &str> = cx
        .programs
        .iter()
        .rev() // the first of a name counts
        .map(|program| (program.name.as_str(), program.sandbox.as_str()))
        .collect();
    let mut firsts: BTreeMap<(&str, Option<&str>, &str), Location> = BTreeMap::new();
    for part in every(cx) {
        let sandbox = match part.owner {
            _ if part.table == "program" => None,
            ("program", owner) => homes.get(owner).copied(),
            (_, owner) => Some(owner),
        };
        let first = match firsts.entry((part.table, sandbox, part.name)) {
            Entry::Vacant(free) => {
                free.insert(part.at);
                continue;
            }
            Entry::Occupied(first) => first.get().clone(),
        };
        let (what, name) = (what(part.table), brief(part.name));
        let message = format!("there is {what} `{name}` already");
        let help = match part.table {
            "program" => {
                "programs have names of their own in all of the manifest: threads name them"
            }
            _ => "give each one in the sandbox a name of its own",
        };
        found.push(
            Diagnostic::new("part-twice", part.at, message)
                .label("second use")
                .related(first, "first use")
                .help(help),
        );
    }
}

/// Something that a part names.
struct Use<'a> {
    /// Table of the part that is named.
    table: &'static str,
    name: &'a str,
    at: Location,
    /// The program and the key of the list that contains it, if it is in a list.
    list: Option<(usize, &'static str)>,
}

/// Everything that parts of a sandbox name there.
fn uses<'a>(cx: &Context<'_, '_>, parts: &Parts<'a>) -> Vec<Use<'a>> {
    let mut uses: Vec<Use<'a>> = Vec::new();
    for program in parts.programs.iter().copied() {
        let at = |key, index| cx.at(program, &[k(key), n(index)]);
        let mut add = |table, key, names: Vec<&'a str>| {
            let names = names.into_iter().enumerate();
            uses.extend(names.map(|(i, name)| Use {
                table,
                name,
                at: at(key, i),
                list: Some((program.index, key)),
            }));
        };
        let called = |call: &'a crate::raw_kernel::Call| match call {
            crate::raw_kernel::Call::Name(name) => name.as_str(),
            crate::raw_kernel::Call::Detailed(detailed) => &detailed.endpoint,
        };
        add("endpoint", "calls", program.calls.iter().map(called).collect());
        add("endpoint", "serves", program.serves.iter().map(String::as_str).collect());
        add("notification", "signals", program.signals.iter().map(|one| one.parts().0).collect());
        add("notification", "waits", program.waits.iter().map(String::as_str).collect());
        add("shared", "maps", program.maps.iter().map(|one| one.parts().0).collect());
        for (channel, used) in program.channels.iter().enumerate() {
            if let Some(signal) = used.signal() {
                let path = [k("channels"), n(channel), k("notification")];
                let (name, at) = (signal.notification.as_str(), cx.at(program, &path));
                uses.push(Use { table: "notification", name, at, list: None });
            }
        }
        for (device, used) in program.devices.iter().enumerate() {
            for (index, interrupt) in used.parts().1.iter().enumerate() {
                let path = [k("devices"), n(device), k("interrupts"), n(index), k("notification")];
                let (name, at) = (interrupt.notification.as_str(), cx.at(program, &path));
                uses.push(Use { table: "notification", name, at, list: None });
            }
        }
        for (index, text) in program.manages.iter().enumerate() {
            let (table, name) = match managed(text) {
                Some(Managed::Program(name)) => ("program", name),
                Some(Managed::Thread(name)) => ("thread", name),
                Some(Managed::Context(name)) => ("context", name),
                None => continue,
            };
            uses.push(Use {
                table,
                name,
                at: at("manages", index),
                list: Some((program.index, "manages")),
            });
        }
    }
    single(cx, parts, &mut uses);
    uses
}

/// Collects the names that threads and notifications use.
fn single<'a>(cx: &Context<'_, '_>, parts: &Parts<'a>, uses: &mut Vec<Use<'a>>) {
    let mut add = |table, name, at| uses.push(Use { table, name, at, list: None });
    for thread in parts.threads.iter().copied() {
        let at = |key| cx.at(thread, &[k(key)]);
        if let Some(name) = &thread.context {
            add("context", name, at("context"));
        }
        for (key, route) in [("fault", &thread.fault), ("timeout", &thread.timeout)] {
            if let Some(route) = route {
                add("endpoint", route.parts().0, at(key));
            }
        }
    }
    for notification in parts.notifications.iter().copied() {
        if let Some(name) = &notification.context {
            add("context", name, cx.at(notification, &[k("context")]));
        }
    }
}

/// A part that is named is in the sandbox that names it.
pub fn part_unknown(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    if !complete(cx) {
        return;
    }
    for parts in all(cx) {
        for (program, index) in malformed(&parts) {
            let at = cx.at(program, &[k("manages"), n(index)]);
            let text = brief(&program.manages[index]);
            let message = format!("`{text}` names no program, thread or context");
            let help = "write `program:NAME`, `thread:NAME` or `context:NAME`";
            found.push(Diagnostic::new("part-unknown", at, message).help(help));
        }
        for used in uses(cx, &parts) {
            let names = parts.names(used.table);
            if names.contains(&used.name) {
                continue;
            }
            let sandbox = &parts.sandbox.name;
            let (what, name) = (what(used.table), brief(used.name));
            let message = format!("`{sandbox}` has no {what} `{name}`");
            let owner = all(cx).find(|other| other.names(used.table).contains(&used.name));
            let help = match owner {
                Some(other) => format!(
                    "`{}` has one; sandboxes have nothing in common but channels",
                    other.sandbox.name
                ),
                None => other_name(used.name, &names),
            };
            found.push(Diagnostic::new("part-unknown", used.at, message).help(help));
        }
    }
}

/// Entries of `manages` that have no such form.
fn malformed<'a>(parts: &Parts<'a>) -> Vec<(&'a Item<crate::raw::Program>, usize)> {
    let entries = parts
        .programs
        .iter()
        .flat_map(|program| (0..program.manages.len()).map(move |index| (*program, index)));
    entries.filter(|(program, index)| managed(&program.manages[*index]).is_none()).collect()
}

/// Each name stands once in a list.
pub fn part_again(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for parts in all(cx) {
        let uses = uses(cx, &parts);
        for (index, used) in uses.iter().enumerate().filter(|(_, used)| used.list.is_some()) {
            let same = |other: &&Use<'_>| {
                (other.list, other.table, other.name) == (used.list, used.table, used.name)
            };
            if let Some(first) = uses[..index].iter().find(same) {
                let (what, name) = (what(used.table), brief(used.name));
                let message = format!("{what} `{name}` stands here twice");
                found.push(
                    Diagnostic::new("part-again", used.at.clone(), message)
                        .related(first.at.clone(), "here first")
                        .help("name it once"),
                );
            }
        }
    }
}

/// A signal sets a bit.
pub fn signal_bits(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let mut check = |item: &Item<crate::raw::Program>, bits: Option<u64>, path: &[Step<'_>]| {
        if bits == Some(0) {
            let message = format!("a signal of `{}` without a bit wakes nobody", item.name);
            let help = "give at least one bit, such as `bits = 1`";
            found.push(Diagnostic::new("signal-bits", cx.at(item, path), message).help(help));
        }
    };
    for item in &cx.programs {
        for (index, signal) in item.signals.iter().enumerate() {
            let (_, bits) = signal.parts();
            check(item, Some(bits), &[k("signals"), n(index), k("bits")]);
        }
        for (channel, used) in item.channels.iter().enumerate() {
            let bits = used.signal().and_then(|signal| signal.bits);
            check(item, bits, &[k("channels"), n(channel), k("bits")]);
        }
        for (device, used) in item.devices.iter().enumerate() {
            for (index, interrupt) in used.parts().1.iter().enumerate() {
                let path = [k("devices"), n(device), k("interrupts"), n(index), k("bits")];
                check(item, interrupt.bits, &path);
            }
        }
    }
}
