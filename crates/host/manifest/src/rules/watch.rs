//! Watchdogs.

use super::{Context, Item, kernel};
use crate::diagnostic::Diagnostic;
use crate::raw::{Event, Sandbox};
use crate::shape::brief;
use crate::source::{Location, Step, k};
use crate::time;
use bulkhead_plan::{Alive, Watch};

/// Shortest and longest time between two ticks, ns. The instructions of a tick are a part of a core's time; a monitor
/// counts microseconds in 32 bits.
const PERIOD: [u64; 2] = [100_000, 60_000_000_000];

/// Longest time until a first move, ns.
const LONGEST: u64 = 3_600_000_000_000;

/// `watchdog` is a time.
pub fn watchdog_time(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for sandbox in &cx.sandboxes {
        let Some(text) = &sandbox.watchdog else { continue };
        refuse(cx, sandbox, &[k("watchdog")], text, PERIOD, found);
    }
}

/// `alive` is a time, and goes with a watchdog.
pub fn alive_time(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for sandbox in &cx.sandboxes {
        let Some(alive) = &sandbox.alive else { continue };
        if sandbox.watchdog.is_none() {
            let message = format!("nobody looks whether `{}` goes on", sandbox.name);
            let help = "add `watchdog`, the time from a look to the next, such as `\"100 ms\"`";
            found.push(
                Diagnostic::new("alive-time", cx.at(sandbox, &[k("alive")]), message).help(help),
            );
        }
        let limits = [1_000, LONGEST];
        let every =
            if alive.first().is_some() { &[k("alive"), k("every")][..] } else { &[k("alive")] };
        refuse(cx, sandbox, every, alive.every(), limits, found);
        if let Some(first) = alive.first() {
            refuse(cx, sandbox, &[k("alive"), k("first")], first, limits, found);
        }
    }
}

/// `sweep` is a time of several ticks, and goes with a watchdog.
pub fn sweep_time(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for sandbox in &cx.sandboxes {
        let Some(text) = &sandbox.sweep else { continue };
        let period = sandbox.watchdog.as_deref().map(|period| read(period, PERIOD));
        let (message, help) = match period {
            None => (
                format!("nobody looks at the memory of `{}`", sandbox.name),
                "add `watchdog`, the time from a look to the next, such as `\"100 ms\"`".to_owned(),
            ),
            Some(Ok(period)) if read(text, [2 * period, LONGEST]).is_err() => (
                format!("`sweep` of `{}` cannot be `{}`", sandbox.name, brief(text)),
                format!(
                    "write whole microseconds, from two periods of the watchdog (`\"{}\"`) to `\"{}\"`",
                    time::show(2 * period),
                    time::show(LONGEST)
                ),
            ),
            Some(_) => continue,
        };
        let at = cx.at(sandbox, &[k("sweep")]);
        found.push(Diagnostic::new("sweep-time", at, message).help(help));
    }
}

/// A finding that no sweep can have.
pub fn health_corruption(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for health in cx.healths.iter().filter(|h| h.on.all().contains(&Event::Corruption)) {
        let named = cx.sandboxes.iter().find(|sandbox| sandbox.name == health.sandbox);
        if let Some(sandbox) = named.filter(|sandbox| sandbox.sweep.is_none()) {
            let message = format!("nobody looks at the memory of `{}`", sandbox.name);
            let help = "give it `watchdog` and `sweep`, the time for a look at all of it";
            let at = cx.at(health, &[k("on")]);
            found.push(Diagnostic::new("health-corruption", at, message).help(help));
        }
    }
}

/// A finding that no look can have.
pub fn health_hang(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for health in cx.healths.iter().filter(|health| health.on.all().contains(&Event::Hang)) {
        let named = cx.sandboxes.iter().find(|sandbox| sandbox.name == health.sandbox);
        if let Some(sandbox) = named.filter(|sandbox| sandbox.alive.is_none()) {
            let message = format!("nobody looks whether `{}` hangs", sandbox.name);
            let help =
                "give it `watchdog` and `alive`, the time between two moves of its progress word";
            found.push(
                Diagnostic::new("health-hang", cx.at(health, &[k("on")]), message).help(help),
            );
        }
    }
}

/// One program of a kernel moves its sandbox's progress word.
pub fn program_watchdog(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for parts in kernel::all(cx) {
        let sandbox = parts.sandbox;
        let mut named = parts.programs.iter().filter(|program| program.watchdog);
        let first = named.next();
        let mut refuse = |at, message, help| {
            found.push(Diagnostic::new("program-watchdog", at, message).help(help));
        };
        match (&sandbox.alive, first) {
            (None, Some(program)) => refuse(
                cx.at(program, &[k("watchdog")]),
                format!("nobody looks whether `{}` goes on", sandbox.name),
                "give its sandbox `watchdog` and `alive`, or leave the key out",
            ),
            (Some(_), None) => refuse(
                cx.at(sandbox, &[k("alive")]),
                format!("no program of `{}` moves its progress word", sandbox.name),
                "write `watchdog = true` in the program that shows that it goes on",
            ),
            _ => {}
        }
        for program in named {
            let message = format!("another program of `{}` moves its progress word", sandbox.name);
            let help = "one program has `watchdog = true`: a second one would hide that it stops";
            refuse(cx.at(program, &[k("watchdog")]), message, help);
        }
    }
}

/// The machine has a timer for each core with a watchdog.
pub fn watchdog_timer(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Some(machine) = cx.machine.as_ref().filter(|m| m.arch.facts().ticks_beside) else { return };
    let mut left = machine.hpet.map_or(0, |hpet| hpet.comparators as usize);
    for sandbox in cx.sandboxes.iter().filter(|sandbox| sandbox.watchdog.is_some()) {
        if sandbox.cores.len() > left {
            let at = cx.at(sandbox, &[k("watchdog")]);
            let (message, help) = match machine.hpet {
                None => (
                    format!("machine `{}` has no timer for a watchdog", machine.name),
                    "describe its HPET in `[hpet]`, if it has one that sends messages".to_owned(),
                ),
                Some(hpet) => (
                    format!("no timer of the HPET is left for each core of `{}`", sandbox.name),
                    format!("it has {} comparators, and each core takes one", hpet.comparators),
                ),
            };
            found.push(Diagnostic::new("watchdog-timer", at, message).help(help));
            return;
        }
        left -= sandbox.cores.len();
    }
}

/// Reads a time in whole microseconds between two limits, ns.
fn read(text: &str, [least, most]: [u64; 2]) -> Result<u64, String> {
    match time::parse(text) {
        Err(why) => Err(format!(": {why}")),
        Ok(time) if time < least || time > most || !time.is_multiple_of(1_000) => {
            Err(String::new())
        }
        Ok(time) => Ok(time),
    }
}

fn refuse(
    cx: &Context<'_, '_>,
    sandbox: &Item<Sandbox>,
    path: &[Step<'_>],
    text: &str,
    limits: [u64; 2],
    found: &mut Vec<Diagnostic>,
) {
    let Err(why) = read(text, limits) else { return };
    let (rule, key) = match path {
        [Step::Key("watchdog"), ..] => ("watchdog-time", "watchdog"),
        _ => ("alive-time", "alive"),
    };
    let at: Location = cx.at(sandbox, path);
    let message = format!("`{key}` of `{}` cannot be `{}`{why}", sandbox.name, brief(text));
    let [least, most] = limits.map(time::show);
    let meant = time::meant(text).filter(|_| !why.is_empty());
    let meant = meant.map(|meant| format!("; did you mean `\"{meant}\"`?"));
    let help = format!(
        "write whole microseconds, from `\"{least}\"` to `\"{most}\"`{}",
        meant.unwrap_or_default()
    );
    found.push(Diagnostic::new(rule, at, message).help(help));
}

/// A sandbox's watchdog, if it is right.
pub fn watch(sandbox: &Sandbox) -> Option<Watch> {
    let period = read(sandbox.watchdog.as_deref()?, PERIOD).ok()?;
    let limits = [1_000, LONGEST];
    let alive = sandbox.alive.as_ref().and_then(|alive| {
        let every = read(alive.every(), limits).ok()?;
        Some(Alive { every, first: alive.first().and_then(|first| read(first, limits).ok()) })
    });
    let sweep = sandbox.sweep.as_deref().and_then(|time| read(time, limits).ok());
    Some(Watch { period, alive, sweep })
}
