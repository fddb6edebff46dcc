//! Slots of programs for channels made at run time. Each slot that a kernel's sandbox may offer or be offered belongs
//! to one program.

use super::{Parts, all, complete};
use crate::diagnostic::{Diagnostic, list};
use crate::raw;
use crate::raw_kernel::LinkUse;
use crate::rules::connect::slots;
use crate::rules::{Context, Item};
use crate::shape::brief;
use crate::source::{Location, k, n};
use bulkhead_plan::Slot;

/// A slot that a sandbox may offer or be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its number in the system.
    pub number: usize,
    /// Its number among those of its owner.
    pub which: u32,
}

/// The slots of a sandbox that another one, or itself, may have, by number.
fn between(cx: &Context<'_, '_>, owner: &str, other: &Item<raw::Sandbox>) -> Vec<Named> {
    let (from, to) = (cx.sandbox_index(owner), cx.sandbox_index(&other.name));
    let all: Vec<(Slot, Location)> = slots(cx);
    let own = all.iter().enumerate().filter(|(_, (slot, _))| Some(slot.owner) == from);
    let (Some(to), own) = (to, own) else { return Vec::new() };
    let concerns = own.filter(|(_, (slot, _))| slot.concerns(to));
    let named = |(which, (number, _)): (usize, (usize, _))| Named { number, which: which as u32 };
    concerns.enumerate().map(named).collect()
}

/// The slots that an entry of a program of a sandbox names, but those that are not there.
#[must_use]
pub fn named(cx: &Context<'_, '_>, sandbox: &Item<raw::Sandbox>, used: &LinkUse) -> Vec<Named> {
    let mut all = between(cx, used.name(), sandbox);
    if let Some(wanted) = used.slots() {
        all.retain(|one| wanted.contains(&one.which));
    }
    all
}

/// Lists the slots of a kernel's programs, in their order: program, entry and slot.
fn given<'a>(
    cx: &Context<'_, '_>,
    parts: &Parts<'a>,
) -> Vec<(&'a Item<raw::Program>, usize, Named)> {
    let mut all = Vec::new();
    for program in &parts.programs {
        for (index, used) in program.connects.iter().enumerate() {
            let slots = named(cx, parts.sandbox, used);
            all.extend(slots.into_iter().map(|slot| (*program, index, slot)));
        }
    }
    all
}

/// Counts a program's slots, and the sandboxes to which it may offer one.
#[must_use]
pub fn count(cx: &Context<'_, '_>, parts: &Parts<'_>, program: &raw::Program) -> [usize; 2] {
    let slots = program.connects.iter().map(|used| named(cx, parts.sandbox, used).len()).sum();
    let offers = program.connects.iter().any(|used| used.name() == parts.sandbox.name);
    let may = parts.sandbox.may_connect.as_ref().filter(|_| offers);
    [slots, may.map_or(0, |may| may.to.len())]
}

/// Programs have slots of their sandbox's, each slot one program.
pub fn program_connect(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for parts in all(cx) {
        for program in &parts.programs {
            for (index, used) in program.connects.iter().enumerate() {
                let at = cx.at(program, &[k("connects"), n(index)]);
                if !cx.knows(used.name()) {
                    found.push(cx.unknown_sandbox("program-connect", at, used.name()));
                } else if let Some((message, help)) = absent(cx, &parts, used) {
                    found.push(Diagnostic::new("program-connect", at, message).help(help));
                }
            }
        }
        let given = given(cx, &parts);
        for (n_th, (program, index, slot)) in given.iter().enumerate() {
            let before = given[..n_th].iter().find(|(.., first)| first.number == slot.number);
            let Some((first, there, _)) = before else { continue };
            let owner = brief(program.connects[*index].name());
            let again = match first.name == program.name {
                true => "again".to_owned(),
                false => format!("to `{}`", program.name),
            };
            let message = format!(
                "slot {} of `{owner}` is given to `{}` and {again}",
                slot.which, first.name
            );
            let at = cx.at(program, &[k("connects"), n(*index)]);
            found.push(
                Diagnostic::new("program-connect", at, message)
                    .label("given again")
                    .related(cx.at(first, &[k("connects"), n(*there)]), "given here first")
                    .help(format!("write `{{ sandbox = \"{owner}\", slots = [...] }}`, each slot in one program")),
            );
        }
    }
}

/// Returns the missing slot or sandbox that an entry names, and how to mend it.
fn absent(cx: &Context<'_, '_>, parts: &Parts<'_>, used: &LinkUse) -> Option<(String, String)> {
    let (sandbox, name) = (parts.sandbox, brief(used.name()));
    let there = between(cx, used.name(), sandbox);
    if there.is_empty() {
        let names: Vec<&str> = { cx.sandboxes.iter() }
            .map(|one| one.name.as_str())
            .filter(|one| !between(cx, one, sandbox).is_empty())
            .collect();
        let message = format!("`{}` may have no slot of `{name}`", sandbox.name);
        let help = match names.is_empty() {
            true => format!(
                "give `{name}` `may_connect`{}",
                if *name == *sandbox.name {
                    String::new()
                } else {
                    format!(" to `{}`", sandbox.name)
                }
            ),
            false => format!("it may have those of {}", list(&names)),
        };
        return Some((message, help));
    }
    let wrong = |which: &&u32| there.iter().all(|slot| slot.which != **which);
    if let Some(which) = used.slots()?.iter().find(wrong) {
        let message = format!("`{name}` has no slot {which}");
        return Some((message, format!("its slots are 0 to {}", there.len() - 1)));
    }
    let slots = used.slots()?;
    let again = slots.iter().enumerate().find(|(n, which)| slots[..*n].contains(which));
    if let Some((_, which)) = again {
        let message = format!("slot {which} of `{name}` is named twice");
        return Some((message, "name each slot once".into()));
    }
    slots.is_empty().then(|| {
        (format!("no slot of `{name}` is named"), format!("write `\"{name}\"` for all of them"))
    })
}

/// Each slot that a kernel's sandbox may offer or be offered belongs to a program: otherwise it could not be used.
pub fn connect_program(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    if !complete(cx) {
        return;
    }
    for parts in all(cx) {
        let given = given(cx, &parts);
        for owner in cx.sandboxes.iter().filter(|owner| owner.may_connect.is_some()) {
            let there = between(cx, &owner.name, parts.sandbox);
            let nobodys = |slot: &&Named| given.iter().all(|(.., one)| one.number != slot.number);
            let Some(slot) = there.iter().find(nobodys) else { continue };
            let to = owner.may_connect.iter().flat_map(|may| &may.to);
            let nth = to.into_iter().position(|name| *name == parts.sandbox.name);
            let mut path = vec![k("may_connect")];
            path.extend(nth.into_iter().flat_map(|nth| [k("to"), n(nth)]));
            let message = format!(
                "no program of `{}` has slot {} of `{}`",
                parts.sandbox.name, slot.which, owner.name
            );
            let entry = match there.iter().any(|slot| !nobodys(&slot)) {
                true => format!("{{ sandbox = \"{}\", slots = [{}] }}", owner.name, slot.which),
                false => format!("\"{}\"", owner.name),
            };
            let sandbox = &parts.sandbox.name;
            let help = format!("add `connects = [{entry}]` to a `[[program]]` of `{sandbox}`");
            found.push(Diagnostic::new("connect-program", cx.at(owner, &path), message).help(help));
        }
    }
}
