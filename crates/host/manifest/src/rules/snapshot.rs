//! Snapshots, and restarts that they are for.

use super::{Context, Item};
use crate::diagnostic::Diagnostic;
use crate::raw::{Action, Guest, Health, Sandbox, Step};
use crate::shape::brief;
use crate::size;
use crate::source::{Location, k, n};
use bulkhead_layout::PAGE;
use bulkhead_layout::snapshot::PAGES;

/// Bytes of the largest snapshot.
const MOST: u64 = PAGES as u64 * PAGE;

/// A snapshot is some pages, and no more than the sandbox has.
pub fn snapshot_size(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for sandbox in &cx.sandboxes {
        let Some(text) = &sandbox.snapshot else { continue };
        let memory = size::parse(sandbox.memory.size()).unwrap_or(u64::MAX);
        let why = match size::parse(text) {
            Err(why) => format!(": {why}"),
            Ok(size) if size == 0 || !size.is_multiple_of(PAGE) || size > MOST => String::new(),
            Ok(size) if size > memory => ": that is more than its memory".into(),
            Ok(_) => continue,
        };
        let message =
            format!("a snapshot of `{}` cannot have `{}`{why}", sandbox.name, brief(text));
        let meant = size::meant(text).filter(|_| size::parse(text).is_err());
        let meant = meant.map(|meant| format!("; did you mean `\"{meant}\"`?"));
        let help = format!(
            "write whole pages of 4 KiB, up to `\"{} KiB\"`{}",
            MOST >> 10,
            meant.unwrap_or_default()
        );
        let at = cx.at(sandbox, &[k("snapshot")]);
        found.push(Diagnostic::new("snapshot-size", at, message).help(help));
    }
}

/// A bare guest alone takes snapshots.
pub fn snapshot_guest(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let takes = |sandbox: &&Item<Sandbox>| matches!(sandbox.guest, Guest::Bare { .. });
    let others = cx.sandboxes.iter().filter(|sandbox| !takes(sandbox));
    for sandbox in others.filter(|sandbox| sandbox.snapshot.is_some()) {
        let message = format!("the guest of `{}` takes no snapshots", sandbox.name);
        let help = "leave the key out: a bare guest names its state, a Linux and a kernel do not";
        let at = cx.at(sandbox, &[k("snapshot")]);
        found.push(Diagnostic::new("snapshot-guest", at, message).help(help));
    }
}

/// Warm restarts of an entry, and where it names them.
fn warm(cx: &Context<'_, '_>, health: &Item<Health>) -> Vec<Location> {
    let action = (health.action == Some(Action::Warm)).then(|| cx.at(health, &[k("action")]));
    let rungs = health.ladder.iter().flatten().enumerate();
    let rungs = rungs.filter(|(_, rung)| rung.action == Step::Warm);
    let rungs = rungs.map(|(index, _)| cx.at(health, &[k("ladder"), n(index), k("action")]));
    action.into_iter().chain(rungs).collect()
}

/// Some failure is answered with it.
pub fn snapshot_unused(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for sandbox in cx.sandboxes.iter().filter(|sandbox| sandbox.snapshot.is_some()) {
        let mut own = cx.healths.iter().filter(|health| health.sandbox == sandbox.name);
        if !own.any(|health| !warm(cx, health).is_empty()) {
            let message = format!("no life of `{}` ever begins with a snapshot", sandbox.name);
            let help = "write `action = \"restart warm\"` in a `[[health]]` of it, or in a rung";
            let at = cx.at(sandbox, &[k("snapshot")]);
            found.push(Diagnostic::new("snapshot-unused", at, message).help(help));
        }
    }
}

/// A warm restart is of a sandbox with room for snapshots.
pub fn health_warm(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for health in &cx.healths {
        let named = cx.sandboxes.iter().find(|sandbox| sandbox.name == health.sandbox);
        let Some(sandbox) = named.filter(|sandbox| sandbox.snapshot.is_none()) else { continue };
        for at in warm(cx, health) {
            let message = format!("there is no room for snapshots of `{}`", sandbox.name);
            let help = "give it `snapshot`, the most bytes of one, such as `\"64 KiB\"`";
            found.push(Diagnostic::new("health-warm", at, message).help(help));
        }
    }
}

/// The pages of a sandbox's snapshots, if the key is there and right.
pub fn pages(sandbox: &Sandbox) -> Option<u64> {
    let size = size::parse(sandbox.snapshot.as_deref()?).ok()?;
    (size.is_multiple_of(PAGE) && size <= MOST).then_some(size / PAGE)
}
