//! Links of programs. Each link that a kernel's sandbox may offer or be offered belongs
//! to one program.

use super::{Parts, all, complete};
use crate::diagnostic::{Diagnostic, list};
use crate::raw;
use crate::raw_kernel::LinkUse;
use crate::rules::link::links;
use crate::rules::{Context, Item};
use crate::shape::brief;
use crate::source::{Location, k, n};
use bulkhead_plan::Link;

/// A link that a sandbox may offer or be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its number in the system.
    pub number: usize,
    /// Its number among those of its owner.
    pub which: u32,
}

/// The links of a sandbox that another one, or itself, may have, by number.
fn between(cx: &Context<'_, '_>, owner: &str, other: &Item<raw::Sandbox>) -> Vec<Named> {
    let (from, to) = (cx.sandbox_index(owner), cx.sandbox_index(&other.name));
    let all: Vec<(Link, Location)> = links(cx);
    let own = all.iter().enumerate().filter(|(_, (link, _))| Some(link.owner) == from);
    let (Some(to), own) = (to, own) else { return Vec::new() };
    let concerns = own.filter(|(_, (link, _))| link.concerns(to));
    let named = |(which, (number, _)): (usize, (usize, _))| Named { number, which: which as u32 };
    concerns.enumerate().map(named).collect()
}

/// The links that an entry of a program of a sandbox names, but those that are not there.
#[must_use]
pub fn named(cx: &Context<'_, '_>, sandbox: &Item<raw::Sandbox>, used: &LinkUse) -> Vec<Named> {
    let mut all = between(cx, used.name(), sandbox);
    if let Some(wanted) = used.numbers() {
        all.retain(|one| wanted.contains(&one.which));
    }
    all
}

/// Lists the links of a kernel's programs, in their order: program, entry and link.
fn given<'a>(
    cx: &Context<'_, '_>,
    parts: &Parts<'a>,
) -> Vec<(&'a Item<raw::Program>, usize, Named)> {
    let mut all = Vec::new();
    for program in &parts.programs {
        for (index, used) in program.links.iter().enumerate() {
            let links = named(cx, parts.sandbox, used);
            all.extend(links.into_iter().map(|link| (*program, index, link)));
        }
    }
    all
}

/// Counts a program's links, and the sandboxes to which it may offer one.
#[must_use]
pub fn count(cx: &Context<'_, '_>, parts: &Parts<'_>, program: &raw::Program) -> [usize; 2] {
    let links = program.links.iter().map(|used| named(cx, parts.sandbox, used).len()).sum();
    let offers = program.links.iter().any(|used| used.name() == parts.sandbox.name);
    let may = parts.sandbox.links.as_ref().filter(|_| offers);
    [links, may.map_or(0, |may| may.to.len())]
}

/// Programs have links of their sandbox's, each link one program.
pub fn program_links(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for parts in all(cx) {
        for program in &parts.programs {
            for (index, used) in program.links.iter().enumerate() {
                let at = cx.at(program, &[k("links"), n(index)]);
                if !cx.knows(used.name()) {
                    found.push(cx.unknown_sandbox("program-links", at, used.name()));
                } else if let Some((message, help)) = absent(cx, &parts, used) {
                    found.push(Diagnostic::new("program-links", at, message).help(help));
                }
            }
        }
        let given = given(cx, &parts);
        for (n_th, (program, index, link)) in given.iter().enumerate() {
            let before = given[..n_th].iter().find(|(.., first)| first.number == link.number);
            let Some((first, there, _)) = before else { continue };
            let owner = brief(program.links[*index].name());
            let again = match first.name == program.name {
                true => "again".to_owned(),
                false => format!("to `{}`", program.name),
            };
            let message = format!(
                "link {} of `{owner}` is given to `{}` and {again}",
                link.which, first.name
            );
            let at = cx.at(program, &[k("links"), n(*index)]);
            found.push(
                Diagnostic::new("program-links", at, message)
                    .label("given again")
                    .related(cx.at(first, &[k("links"), n(*there)]), "given here first")
                    .help(format!("write `{{ sandbox = \"{owner}\", numbers = [...] }}`, each link in one program")),
            );
        }
    }
}

/// Returns the missing link or sandbox that an entry names, and how to mend it.
fn absent(cx: &Context<'_, '_>, parts: &Parts<'_>, used: &LinkUse) -> Option<(String, String)> {
    let (sandbox, name) = (parts.sandbox, brief(used.name()));
    let there = between(cx, used.name(), sandbox);
    if there.is_empty() {
        let names: Vec<&str> = { cx.sandboxes.iter() }
            .map(|one| one.name.as_str())
            .filter(|one| !between(cx, one, sandbox).is_empty())
            .collect();
        let message = format!("`{}` may have no link of `{name}`", sandbox.name);
        let help = match names.is_empty() {
            true => format!(
                "give `{name}` `links`{}",
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
    let wrong = |which: &&u32| there.iter().all(|link| link.which != **which);
    if let Some(which) = used.numbers()?.iter().find(wrong) {
        let message = format!("`{name}` has no link {which}");
        return Some((message, format!("its links are 0 to {}", there.len() - 1)));
    }
    let numbers = used.numbers()?;
    let again = numbers.iter().enumerate().find(|(n, which)| numbers[..*n].contains(which));
    if let Some((_, which)) = again {
        let message = format!("link {which} of `{name}` is named twice");
        return Some((message, "name each link once".into()));
    }
    numbers.is_empty().then(|| {
        (format!("no link of `{name}` is named"), format!("write `\"{name}\"` for all of them"))
    })
}

/// Each link that a kernel's sandbox may offer or be offered belongs to a program: otherwise it could not be used.
pub fn link_program(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    if !complete(cx) {
        return;
    }
    for parts in all(cx) {
        let given = given(cx, &parts);
        for owner in cx.sandboxes.iter().filter(|owner| owner.links.is_some()) {
            let there = between(cx, &owner.name, parts.sandbox);
            let nobodys = |link: &&Named| given.iter().all(|(.., one)| one.number != link.number);
            let Some(link) = there.iter().find(nobodys) else { continue };
            let to = owner.links.iter().flat_map(|may| &may.to);
            let nth = to.into_iter().position(|name| *name == parts.sandbox.name);
            let mut path = vec![k("links")];
            path.extend(nth.into_iter().flat_map(|nth| [k("to"), n(nth)]));
            let message = format!(
                "no program of `{}` has link {} of `{}`",
                parts.sandbox.name, link.which, owner.name
            );
            let entry = match there.iter().any(|link| !nobodys(&link)) {
                true => format!("{{ sandbox = \"{}\", numbers = [{}] }}", owner.name, link.which),
                false => format!("\"{}\"", owner.name),
            };
            let sandbox = &parts.sandbox.name;
            let help = format!("add `links = [{entry}]` to a `[[program]]` of `{sandbox}`");
            found.push(Diagnostic::new("link-program", cx.at(owner, &path), message).help(help));
        }
    }
}
