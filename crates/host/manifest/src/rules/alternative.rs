//! Guests that can take the place of a sandbox's own.

use super::health::own_alternatives;
use super::{Context, GuestFile, Item, Opened, guests::resolve, kernel};
use crate::diagnostic::{Diagnostic, list};
use crate::raw::{Access, Alternative, Guest, Other, Sandbox};
use crate::shape::brief;
use crate::source::{k, n};
use bulkhead_plan as plan;

/// Most alternatives of a sandbox.
const MOST: usize = 4;

/// An alternative is for a sandbox that exists, and a sandbox has few.
pub fn alternative_known(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for one in cx.alternatives.iter().filter(|one| !cx.knows(&one.sandbox)) {
        let at = cx.at(one, &[k("sandbox")]);
        found.push(cx.unknown_sandbox("alternative-known", at, &one.sandbox));
    }
    for sandbox in &cx.sandboxes {
        if let Some((_, one)) = own_alternatives(cx, &sandbox.name).nth(MOST) {
            let message = format!("`{}` has more than {MOST} alternatives", sandbox.name);
            let help = "keep those that differ most";
            found.push(Diagnostic::new("alternative-known", cx.at(one, &[]), message).help(help));
        }
    }
}

/// Alternatives have names of their own.
pub fn alternative_twice(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for (index, one) in cx.alternatives.iter().enumerate() {
        let Some(first) = cx.alternatives[..index].iter().find(|other| other.name == one.name)
        else {
            continue;
        };
        let message = format!("there is an alternative `{}` already", brief(&one.name));
        found.push(
            Diagnostic::new("alternative-twice", cx.at(one, &[k("name")]), message)
                .label("second use")
                .related(cx.at(first, &[k("name")]), "first use")
                .help("give it another name"),
        );
    }
}

/// An alternative fits in its sandbox's place: the tables, devices and channels stay.
pub fn alternative_guest(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for one in &cx.alternatives {
        let Some(index) = cx.sandbox_index(&one.sandbox) else { continue };
        let sandbox = &cx.sandboxes[index];
        let mut refuse = |key: &'static str, message: String, help: String| {
            let at = if key.is_empty() { cx.at(one, &[]) } else { cx.at(one, &[k(key)]) };
            found.push(Diagnostic::new("alternative-guest", at, message).help(help));
        };
        if let Guest::Kernel { .. } = sandbox.guest {
            if one.guest.is_some() {
                let message =
                    format!("the kernel of `{}` stays, with other programs", sandbox.name);
                let help = "write `programs = [{ name = \"…\", file = \"…\" }]` instead".into();
                refuse("guest", message, help);
            }
            if one.programs.is_empty() {
                let message = format!("`{}` does not differ from `{}`", one.name, sandbox.name);
                let help = "add `programs = [{ name = \"…\", file = \"…\" }]`".into();
                refuse("", message, help);
            }
            programs(cx, one, sandbox, found);
            continue;
        }
        if !one.programs.is_empty() {
            let message = format!("the guest of `{}` has no programs", sandbox.name);
            refuse("programs", message, "write `guest` instead".into());
        }
        let Some(guest) = &one.guest else {
            let message = format!("`{}` does not differ from `{}`", one.name, sandbox.name);
            refuse("", message, "add `guest`".into());
            continue;
        };
        if let Some((message, help)) = misfit(cx, index, guest) {
            refuse("guest", message, help);
        }
    }
}

/// Why a guest cannot take a place, and the mend.
fn misfit(cx: &Context<'_, '_>, index: usize, guest: &Other) -> Option<(String, String)> {
    let sandbox = &cx.sandboxes[index];
    let access = match (&sandbox.guest, guest) {
        (Guest::Linux { .. }, Other::Linux { .. }) => return None,
        (Guest::Bare { access: own, .. }, Other::Bare { access, .. }) => [*own, *access],
        _ => {
            let message = format!("it is of another kind than the guest of `{}`", sandbox.name);
            return Some((message, "monitor and tables are made for one kind of guest".into()));
        }
    };
    // Its segments have other addresses, and tables follow them.
    let segments = access.contains(&Access::Segments);
    let reach = |what: &str| {
        let message = format!("the tables of {what} follow the segments of the first guest");
        Some((message, "write `access = \"rwx\"` for both".into()))
    };
    let linked = |other: &Item<Sandbox>| {
        let to = other.links.iter().flat_map(|links| &links.to);
        to.into_iter().any(|to| *to == sandbox.name)
    };
    if segments && !super::build::functions(cx, sandbox).is_empty() {
        return reach("its devices");
    }
    if segments && cx.roles.iter().any(|role| role.holders.contains(&sandbox.name)) {
        return reach("its roles");
    }
    if sandbox.links.is_some() || cx.sandboxes.iter().any(linked) {
        let message = "links are made in the tables of one guest".into();
        return Some((message, "leave `links` out, or take a kernel with other programs".into()));
    }
    None
}

/// Programs with other files.
fn programs(
    cx: &Context<'_, '_>,
    one: &Item<Alternative>,
    sandbox: &Item<Sandbox>,
    found: &mut Vec<Diagnostic>,
) {
    let parts = kernel::parts(cx, sandbox);
    for (index, instead) in one.programs.iter().enumerate() {
        let at = |key| cx.at(one, &[k("programs"), n(index), k(key)]);
        let names: Vec<&str> = parts.names("program");
        if !names.contains(&instead.name.as_str()) {
            let message = format!("`{}` has no program `{}`", sandbox.name, brief(&instead.name));
            let help = format!("there is {}", list(&names));
            found.push(Diagnostic::new("alternative-guest", at("name"), message).help(help));
            continue;
        }
        if one.programs[..index].iter().any(|other| other.name == instead.name) {
            let message = format!("program `{}` has two files", instead.name);
            let help = "keep one of them";
            found.push(Diagnostic::new("alternative-guest", at("name"), message).help(help));
        }
        let opened = |o: &&Opened| {
            o.table == one.table && o.index == one.index && o.inner == index && o.key == "file"
        };
        let Some(Some(Ok(GuestFile::Program(elf)))) =
            cx.guests.iter().find(opened).map(|opened| &opened.file)
        else {
            continue;
        };
        let own = parts.threads.iter().filter(|thread| thread.program == instead.name);
        for entry in own.filter_map(|thread| thread.entry.as_ref()) {
            if !elf.symbols.contains_key(entry) {
                let message = format!("a thread begins at `{entry}`, which is not in this file");
                let help = "both files have the entries of all threads";
                found.push(Diagnostic::new("alternative-guest", at("file"), message).help(help));
            }
        }
    }
}

/// A ladder names it.
pub fn alternative_unused(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for one in cx.alternatives.iter().filter(|one| cx.knows(&one.sandbox)) {
        let own = cx.healths.iter().filter(|health| health.sandbox == one.sandbox);
        let mut rungs = own.flat_map(|health| health.ladder.iter().flatten());
        if !rungs.any(|rung| rung.name.as_ref() == Some(&one.name)) {
            let message = format!("nothing ever starts `{}`", brief(&one.name));
            let help = format!(
                "name it in a ladder of `{}`: `{{ action = \"alternative\", name = \"{}\" }}`",
                one.sandbox,
                brief(&one.name)
            );
            found.push(
                Diagnostic::new("alternative-unused", cx.at(one, &[k("name")]), message).help(help),
            );
        }
    }
}

/// The alternatives of a sandbox; what some rule refuses is left out.
pub fn alternatives(
    cx: &Context<'_, '_>,
    sandbox: &Item<Sandbox>,
    own: &plan::Guest,
) -> Vec<plan::Alternative> {
    let path = |written: &str| resolve(&cx.base, &cx.artifacts, written);
    let make = |one: &Item<Alternative>| {
        let mut guest = match &one.guest {
            Some(guest) => super::build::guest(cx, sandbox, &guest.guest()),
            None => own.clone(),
        };
        match (&mut guest, own) {
            (plan::Guest::Kernel(kernel), _) => {
                for program in &mut kernel.programs {
                    let instead = one.programs.iter().find(|other| other.name == program.name);
                    instead.iter().for_each(|other| program.file = path(&other.file));
                }
            }
            (plan::Guest::Bare { args, .. }, plan::Guest::Bare { args: own, .. }) => {
                args.clone_from(own);
            }
            _ => {}
        }
        plan::Alternative { name: one.name.clone(), place: cx.at(one, &[]).place(), guest }
    };
    own_alternatives(cx, &sandbox.name).take(MOST).map(|(_, one)| make(one)).collect()
}
