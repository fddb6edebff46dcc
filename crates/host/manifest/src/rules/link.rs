//! Channels made at run time: the sandboxes that may offer them, their partners, and the memory for them.

use super::build::indices;
use super::memory::wrong_size;
use super::{Context, Item};
use crate::diagnostic::Diagnostic;
use crate::raw::{Links, Sandbox};
use crate::size::{self, show};
use crate::source::{Location, k};
use bulkhead_layout::link::MAX_LINKS;
use bulkhead_plan::{Facts, Link};

/// Lists the sandboxes that may offer channels, each with its terms.
fn all<'a>(cx: &'a Context<'_, '_>) -> impl Iterator<Item = (&'a Item<Sandbox>, &'a Links)> {
    cx.sandboxes.iter().filter_map(|one| Some((one, one.links.as_ref()?)))
}

/// `links` names other sandboxes, each once.
pub fn link_known(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let help = "a sandbox needs no channel to itself; name others";
    for (sandbox, may) in all(cx) {
        let path = [k("links"), k("to")];
        super::rights::others(cx, sandbox, (&path, &may.to), "link-known", help, found);
        if may.to.is_empty() {
            let message = format!("`{}` may make channels with nobody", sandbox.name);
            let at = cx.at(sandbox, &path);
            let help = "name at least one sandbox, or remove `links`";
            found.push(Diagnostic::new("link-known", at, message).help(help));
        }
    }
}

/// There are links, and not more than monitors can tell apart.
pub fn link_count(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let mut sum = 0u64;
    for (sandbox, may) in all(cx) {
        let before = sum;
        sum += u64::from(may.count);
        let message = match may.count {
            0 => format!("`{}` may make channels, but has no memory for one", sandbox.name),
            _ if before <= MAX_LINKS as u64 && sum > MAX_LINKS as u64 => {
                format!("up to `{}` there are {sum} links", sandbox.name)
            }
            _ => continue,
        };
        let at = cx.at(sandbox, &[k("links"), k("count")]);
        let help = format!("write at least 1; all sandboxes together have at most {MAX_LINKS}");
        found.push(Diagnostic::new("link-count", at, message).help(help));
    }
}

/// A link has whole pages, and fits together with the other end's page.
pub fn link_size(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let facts = cx.facts();
    let most = facts.guest.link_stride - facts.page;
    for (sandbox, may) in all(cx) {
        let large = || {
            let why = format!("{} is more than a link holds", may.size);
            let help = format!("write at most `\"{}\"`", show(most));
            size::parse(&may.size).is_ok_and(|bytes| bytes > most).then_some((why, help))
        };
        if let Some((message, help)) = wrong_size(&may.size, facts.page).or_else(large) {
            let message = format!("links of `{}`: {message}", sandbox.name);
            let at = cx.at(sandbox, &[k("links"), k("size")]);
            found.push(Diagnostic::new("link-size", at, message).help(help));
        }
    }
}

/// Links that a sandbox sees.
pub fn windows(cx: &Context<'_, '_>, name: &str) -> usize {
    let sees = |(one, may): &(&Item<Sandbox>, &Links)| {
        one.name == name || may.to.iter().any(|to| to == name)
    };
    all(cx).filter(sees).map(|(_, may)| may.count as usize).sum()
}

/// All links, in the sandboxes' order.
pub fn links(cx: &Context<'_, '_>) -> Vec<(Link, Location)> {
    let Facts { page, guest, .. } = cx.facts();
    let of = |(sandbox, may): (&Item<Sandbox>, &Links)| {
        let sent = size::parse(&may.size).ok().filter(|_| wrong_size(&may.size, *page).is_none());
        let (owner, sent) = (cx.sandbox_index(&sandbox.name)?, sent?);
        let at = cx.at(sandbox, &[k("links")]);
        let (to, place, len) = (indices(cx, &may.to), at.place(), sent.saturating_add(*page));
        let link = Link { owner, to, place, hpa: 0, gpa: 0, len, sent };
        Some(std::iter::repeat_n((link, at), (may.count as usize).min(MAX_LINKS)))
    };
    let all = all(cx).filter_map(of).flatten().take(MAX_LINKS);
    let place = |(number, (link, at)): (u64, (Link, Location))| {
        (Link { gpa: guest.links.start + number * guest.link_stride, ..link }, at)
    };
    (0..).zip(all).map(place).collect()
}
