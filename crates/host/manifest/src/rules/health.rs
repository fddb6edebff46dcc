//! Health: answers to denied accesses and other findings.

use super::{Context, Item};
use crate::diagnostic::{Diagnostic, list};
use crate::raw::{Action, AtMost, Event, Health, Rung, Step};
use crate::shape::brief;
use crate::source::{Location, k, n};
use crate::time;
use bulkhead_layout::ladder::{LADDERS, RUNGS, TIMES};
use bulkhead_plan as plan;

/// Shortest and longest time of a rung's limit, ns: a monitor counts milliseconds.
const WITHIN: [u64; 2] = [1_000_000, 86_400_000_000_000];

/// Entries are for sandboxes that exist.
pub fn health_known(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for health in cx.healths.iter().filter(|health| !cx.knows(&health.sandbox)) {
        let at = cx.at(health, &[k("sandbox")]);
        found.push(cx.unknown_sandbox("health-known", at, &health.sandbox));
    }
}

/// A kind of finding, by the entry that has it.
struct Answered<'a> {
    health: &'a Item<Health>,
    event: Event,
    at: Location,
}

/// Lists all kinds of all entries.
fn answered<'a>(cx: &'a Context<'_, '_>) -> Vec<Answered<'a>> {
    let several = |health: &Item<Health>, index| match health.on {
        crate::raw::Events::One(_) => cx.at(health, &[k("on")]),
        crate::raw::Events::Several(_) => cx.at(health, &[k("on"), n(index)]),
    };
    let of = |health: &'a Item<Health>| {
        let events = health.on.all().iter().enumerate();
        events.map(move |(index, &event)| Answered { health, event, at: several(health, index) })
    };
    cx.healths.iter().flat_map(of).collect()
}

/// One answer for each kind.
pub fn health_twice(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let all = answered(cx);
    for (index, one) in all.iter().enumerate() {
        let same = |other: &&Answered<'_>| {
            other.health.sandbox == one.health.sandbox && other.event == one.event
        };
        if let Some(first) = all[..index].iter().find(same) {
            let message =
                format!("`{}` of `{}` has an action already", one.event.name(), one.health.sandbox);
            found.push(
                Diagnostic::new("health-twice", one.at.clone(), message)
                    .label("given again")
                    .related(first.at.clone(), "given here first")
                    .help("keep one of them"),
            );
        }
    }
}

/// An instruction that cannot be completed cannot be passed over either.
pub fn health_ignore(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for Answered { health, event, .. } in answered(cx) {
        let fatal = matches!(event, Event::MemoryViolation | Event::TripleFault);
        if fatal && health.action == Some(Action::Ignore) {
            let message = format!(
                "`{}` cannot be ignored: the instruction cannot be completed",
                event.name()
            );
            let help = "write `action = \"stop\"` or `action = \"restart\"`";
            let at = cx.at(health, &[k("action")]);
            found.push(Diagnostic::new("health-ignore", at, message).help(help));
        }
    }
}

/// An entry has one answer: an action for each time, or a ladder.
pub fn health_action(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for health in &cx.healths {
        let mut refuse = |key: &str, message: String, help: &str| {
            let at = if key.is_empty() { cx.at(health, &[]) } else { cx.at(health, &[k(key)]) };
            found.push(Diagnostic::new("health-action", at, message).help(help));
        };
        if health.on.all().is_empty() {
            let help = "name the kinds of findings, such as `on = [\"hang\", \"failure\"]`";
            refuse("on", "`on` names nothing".into(), help);
        }
        match (&health.action, &health.ladder) {
            (None, None) => refuse(
                "",
                format!("`{}` has no answer here", health.sandbox),
                "add `action = \"restart\"`, or a `ladder` of actions with limits",
            ),
            (Some(_), Some(_)) => refuse(
                "ladder",
                "there are an `action` and a `ladder`".into(),
                "keep one: a ladder's first rung can have that action",
            ),
            _ => {}
        }
    }
}

/// Rungs are in an order in which each can be reached, and the last one stays.
pub fn health_ladder(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for sandbox in &cx.sandboxes {
        let ladders = cx.healths.iter().filter(|health| has_ladder(health));
        if let Some(health) = ladders.filter(|h| h.sandbox == sandbox.name).nth(LADDERS) {
            let message = format!("`{}` has more than {LADDERS} ladders", sandbox.name);
            let help = "give several kinds of findings one ladder: `on = [\"hang\", \"failure\"]`";
            let at = cx.at(health, &[k("ladder")]);
            found.push(Diagnostic::new("health-ladder", at, message).help(help));
        }
    }
    for health in &cx.healths {
        let Some(ladder) = &health.ladder else { continue };
        let mut refuse = |at, message: String, help: &str| {
            found.push(Diagnostic::new("health-ladder", at, message).help(help));
        };
        if ladder.is_empty() || ladder.len() > RUNGS {
            let message = format!("a ladder of `{}` has {} rungs", health.sandbox, ladder.len());
            let help = format!("write 1 to {RUNGS} of them, `{{ action = \"stop\" }}` the last");
            refuse(cx.at(health, &[k("ladder")]), message, &help);
            continue;
        }
        for (index, rung) in ladder.iter().enumerate() {
            let at = |key: &'static str| match key {
                "" => cx.at(health, &[k("ladder"), n(index)]),
                _ => cx.at(health, &[k("ladder"), n(index), k(key)]),
            };
            let last = index + 1 == ladder.len();
            match (&rung.at_most, last) {
                (None, false) => refuse(
                    at(""),
                    "no rung above this one is ever reached: it has no limit".into(),
                    "add `at_most = { times = 3, within = \"10 s\" }`, or make it the last one",
                ),
                (Some(_), true) => refuse(
                    at("at_most"),
                    "nothing follows when the last rung's limit is reached".into(),
                    "add `{ action = \"stop\" }` behind it, or leave the limit out",
                ),
                _ => {}
            }
            match (rung.action, &rung.name) {
                (Step::Alternative, None) => refuse(
                    at(""),
                    "it does not say which guest takes the place".into(),
                    "add `name`: the name of an `[[alternative]]` of this sandbox",
                ),
                (Step::Alternative, Some(name)) if alternative(cx, health, name).is_none() => {
                    let own = own_alternatives(cx, &health.sandbox);
                    let names: Vec<&str> = own.map(|(_, one)| one.name.as_str()).collect();
                    let help = match names.is_empty() {
                        true => "describe it: `[[alternative]]` with `name`, `sandbox` and `guest`"
                            .into(),
                        false => format!("there is {}", list(&names)),
                    };
                    let message =
                        format!("`{}` has no alternative `{}`", health.sandbox, brief(name));
                    refuse(at("name"), message, &help);
                }
                (Step::Restart | Step::Warm | Step::Stop | Step::Failover, Some(_)) => refuse(
                    at("name"),
                    "this action has no guest of its own".into(),
                    "leave `name` out: a restart begins the guest that runs",
                ),
                _ => {}
            }
        }
    }
}

/// Tells if an answer is a ladder for the monitor: one that is given, or a warm restart each time.
fn has_ladder(health: &Health) -> bool {
    health.ladder.is_some() || health.action == Some(Action::Warm)
}

/// A limit is a number of times in a time.
pub fn health_limit(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for health in &cx.healths {
        for (index, rung) in health.ladder.iter().flatten().enumerate() {
            let Some(limit) = &rung.at_most else { continue };
            let at = |key| cx.at(health, &[k("ladder"), n(index), k("at_most"), k(key)]);
            if limit.times == 0 || limit.times as usize > TIMES {
                let message = format!("a rung cannot be taken {} times", limit.times);
                let help = format!("write a number from 1 to {TIMES}");
                found.push(Diagnostic::new("health-limit", at("times"), message).help(help));
            }
            if let Err(why) = within(limit) {
                let message = format!("`within` cannot be `{}`{why}", brief(&limit.within));
                let [least, most] = WITHIN.map(time::show);
                let help = format!("write whole milliseconds, from `\"{least}\"` to `\"{most}\"`");
                found.push(Diagnostic::new("health-limit", at("within"), message).help(help));
            }
        }
    }
}

/// Reads the time of a limit, ns.
fn within(limit: &AtMost) -> Result<u64, String> {
    let [least, most] = WITHIN;
    match time::parse(&limit.within) {
        Err(why) => Err(format!(": {why}")),
        Ok(time) if !(least..=most).contains(&time) || !time.is_multiple_of(least) => {
            Err(String::new())
        }
        Ok(time) => Ok(time),
    }
}

/// Lists the alternatives of a sandbox, by number.
pub fn own_alternatives<'a>(
    cx: &'a Context<'_, '_>,
    sandbox: &'a str,
) -> impl Iterator<Item = (usize, &'a Item<crate::raw::Alternative>)> {
    cx.alternatives.iter().filter(move |one| one.sandbox == sandbox).enumerate()
}

fn alternative(cx: &Context<'_, '_>, health: &Item<Health>, name: &str) -> Option<usize> {
    own_alternatives(cx, &health.sandbox).find(|(_, one)| one.name == name).map(|(n, _)| n)
}

/// The ladders of a sandbox, and which of its entries have which; what some rule refuses is left out.
pub fn ladders(cx: &Context<'_, '_>, sandbox: &str) -> (Vec<plan::Ladder>, Vec<usize>) {
    let own = |health: &&Item<Health>| health.sandbox == sandbox && has_ladder(health);
    let (mut ladders, mut entries) = (Vec::new(), Vec::new());
    for health in cx.healths.iter().filter(own).take(LADDERS) {
        let rung = |rung: &Rung| {
            let step = match rung.action {
                Step::Restart => plan::Step::Restart,
                Step::Warm => plan::Step::Warm,
                Step::Stop => plan::Step::Stop,
                Step::Failover => plan::Step::Failover(match &rung.to {
                    Some(to) => Some(cx.sandbox_index(to)?),
                    None => None,
                }),
                Step::Alternative => {
                    plan::Step::Alternative(alternative(cx, health, rung.name.as_deref()?)?)
                }
            };
            let limit = |limit: &AtMost| Some((limit.times as u8, within(limit).ok()?));
            Some(plan::Rung { step, at_most: rung.at_most.as_ref().and_then(limit) })
        };
        let mut rungs: Vec<_> =
            health.ladder.iter().flatten().filter_map(rung).take(RUNGS).collect();
        if health.action == Some(Action::Warm) {
            rungs = vec![plan::Rung { step: plan::Step::Warm, at_most: None }];
        }
        ladders.push(plan::Ladder { place: cx.at(health, &[]).place(), rungs });
        entries.push(health.index);
    }
    (ladders, entries)
}
