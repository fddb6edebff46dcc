//! Channels made at run time: the sandboxes that may offer them, their partners, and the memory for them.

use super::build::indices;
use super::memory::wrong_size;
use super::{Context, Item};
use crate::diagnostic::Diagnostic;
use crate::raw::{MayConnect, Sandbox};
use crate::size::{self, show};
use crate::source::{Location, k};
use bulkhead_layout::link::SLOTS;
use bulkhead_plan::{Facts, Slot};

/// Lists the sandboxes that may offer channels, each with its terms.
fn all<'a>(cx: &'a Context<'_, '_>) -> impl Iterator<Item = (&'a Item<Sandbox>, &'a MayConnect)> {
    cx.sandboxes.iter().filter_map(|one| Some((one, one.may_connect.as_ref()?)))
}

/// `may_connect` names other sandboxes, each once.
pub fn connect_known(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let help = "a sandbox needs no channel to itself; name others";
    for (sandbox, may) in all(cx) {
        let path = [k("may_connect"), k("to")];
        super::rights::others(cx, sandbox, (&path, &may.to), "connect-known", help, found);
        if may.to.is_empty() {
            let message = format!("`{}` may make channels with nobody", sandbox.name);
            let at = cx.at(sandbox, &path);
            let help = "name at least one sandbox, or remove `may_connect`";
            found.push(Diagnostic::new("connect-known", at, message).help(help));
        }
    }
}

/// There are slots, and not more than monitors can tell apart.
pub fn connect_slots(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let mut sum = 0u64;
    for (sandbox, may) in all(cx) {
        let before = sum;
        sum += u64::from(may.slots);
        let message = match may.slots {
            0 => format!("`{}` may make channels, but has no memory for one", sandbox.name),
            _ if before <= SLOTS as u64 && sum > SLOTS as u64 => {
                format!("up to `{}` there are {sum} slots", sandbox.name)
            }
            _ => continue,
        };
        let at = cx.at(sandbox, &[k("may_connect"), k("slots")]);
        let help = format!("write at least 1; all sandboxes together have at most {SLOTS}");
        found.push(Diagnostic::new("connect-slots", at, message).help(help));
    }
}

/// A slot has whole pages, and fits together with the other end's page.
pub fn connect_size(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let facts = cx.facts();
    let most = facts.guest.slot_stride - facts.page;
    for (sandbox, may) in all(cx) {
        let large = || {
            let why = format!("{} is more than a slot holds", may.size);
            let help = format!("write at most `\"{}\"`", show(most));
            size::parse(&may.size).is_ok_and(|bytes| bytes > most).then_some((why, help))
        };
        if let Some((message, help)) = wrong_size(&may.size, facts.page).or_else(large) {
            let message = format!("slots of `{}`: {message}", sandbox.name);
            let at = cx.at(sandbox, &[k("may_connect"), k("size")]);
            found.push(Diagnostic::new("connect-size", at, message).help(help));
        }
    }
}

/// Slots that a sandbox sees.
pub fn windows(cx: &Context<'_, '_>, name: &str) -> usize {
    let sees = |(one, may): &(&Item<Sandbox>, &MayConnect)| {
        one.name == name || may.to.iter().any(|to| to == name)
    };
    all(cx).filter(sees).map(|(_, may)| may.slots as usize).sum()
}

/// All slots, in the sandboxes' order.
pub fn slots(cx: &Context<'_, '_>) -> Vec<(Slot, Location)> {
    let Facts { page, guest, .. } = cx.facts();
    let of = |(sandbox, may): (&Item<Sandbox>, &MayConnect)| {
        let sent = size::parse(&may.size).ok().filter(|_| wrong_size(&may.size, *page).is_none());
        let (owner, sent) = (cx.sandbox_index(&sandbox.name)?, sent?);
        let at = cx.at(sandbox, &[k("may_connect")]);
        let (to, place, len) = (indices(cx, &may.to), at.place(), sent.saturating_add(*page));
        let slot = Slot { owner, to, place, hpa: 0, gpa: 0, len, sent };
        Some(std::iter::repeat_n((slot, at), (may.slots as usize).min(SLOTS)))
    };
    let all = all(cx).filter_map(of).flatten().take(SLOTS);
    let place = |(number, (slot, at)): (u64, (Slot, Location))| {
        (Slot { gpa: guest.slots.start + number * guest.slot_stride, ..slot }, at)
    };
    (0..).zip(all).map(place).collect()
}
