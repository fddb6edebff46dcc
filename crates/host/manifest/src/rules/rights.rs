//! Rights over other sandboxes.

use super::{Context, Item};
use crate::diagnostic::Diagnostic;
use crate::raw::{RightOver, Sandbox};
use crate::shape::brief;
use crate::source::{Step, k, n};
use crate::time;
use bulkhead_layout::hypercall::REQUESTS;
use bulkhead_plan::Right;

/// `stop`, `start` and `restart` name other sandboxes, each once.
pub fn right_known(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let help = "a sandbox restarts and ends itself by hypercalls, without a right to it";
    for sandbox in &cx.sandboxes {
        for (key, rights) in sandbox.rights() {
            let names: Vec<String> = rights.iter().map(|right| right.name().to_owned()).collect();
            others(cx, sandbox, (&[k(key)], &names), "right-known", help, found);
        }
    }
}

/// A right over a life is used every so often at most.
pub fn right_every(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for sandbox in &cx.sandboxes {
        for (key, rights) in sandbox.rights() {
            for (index, right) in rights.iter().enumerate() {
                let Err(why) = every(right) else { continue };
                let at = cx.at(sandbox, &[k(key), n(index), k("every")]);
                let name = right.name();
                let message = format!("`{key}` of `{}` over `{name}`: {why}", sandbox.name);
                let help = format!(
                    "write whole microseconds, from `\"1 us\"` to `\"{}\"`",
                    time::show(LONGEST)
                );
                found.push(Diagnostic::new("right-every", at, message).help(help));
            }
        }
    }
}

/// Longest time between two requests, ns: a monitor counts it in ticks of its counter, by 64 bits.
const LONGEST: u64 = 60_000_000_000;

/// Nanoseconds between two uses of a right.
fn every(right: &RightOver) -> Result<u64, String> {
    let Some(text) = right.every() else { return Ok(Right::EVERY) };
    match time::parse(text) {
        Err(why) => Err(format!("`every` cannot be `{}`: {why}", brief(text))),
        Ok(time) if time == 0 || time > LONGEST || time % 1_000 != 0 => {
            Err(format!("`every` cannot be `{}`", brief(text)))
        }
        Ok(time) => Ok(time),
    }
}

/// A sandbox's rights over others' lives, those that are right.
pub fn control(cx: &Context<'_, '_>, sandbox: &Item<Sandbox>) -> [Vec<Right>; REQUESTS] {
    let right = |written: &RightOver| {
        let every = every(written).ok()?;
        Some(Right { sandbox: cx.sandbox_index(written.name())?, every })
    };
    sandbox.rights().map(|(_, rights)| rights.iter().filter_map(right).collect())
}

/// `observe` names other sandboxes, each once.
pub fn observe_known(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let help = "name sandboxes whose reports it should see, other than its own";
    for sandbox in &cx.sandboxes {
        let named = (&[k("observe")][..], &sandbox.observe[..]);
        others(cx, sandbox, named, "observe-known", help, found);
    }
}

/// A list at `path` names other sandboxes, each once.
pub fn others(
    cx: &Context<'_, '_>,
    sandbox: &Item<Sandbox>,
    (path, names): (&[Step<'_>], &[String]),
    rule: &'static str,
    self_help: &str,
    found: &mut Vec<Diagnostic>,
) {
    for (index, name) in names.iter().enumerate() {
        let at = cx.at(sandbox, &[path, &[n(index)]].concat());
        if !cx.knows(name) {
            found.push(cx.unknown_sandbox(rule, at, name));
        } else if *name == sandbox.name {
            let key = path.iter().find_map(|step| match step {
                Step::Key(key) => Some(*key),
                Step::Index(_) => None,
            });
            let message = format!("`{}` of `{name}` names itself", key.unwrap_or_default());
            found.push(Diagnostic::new(rule, at, message).help(self_help));
        } else if names[..index].contains(name) {
            let message = format!("`{name}` stands here twice");
            found.push(Diagnostic::new(rule, at, message).help("name it once"));
        }
    }
}
