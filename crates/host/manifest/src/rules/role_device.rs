//! PCI functions of roles, and the memory that they reach.

use super::pci::{self, is_pci};
use super::{Context, Item};
use crate::diagnostic::{Diagnostic, list};
use crate::raw::{ChannelKind, Role};
use crate::shape::brief;
use crate::source::{k, n};
use bulkhead_plan::{Bar, BarKind, Function};

/// Bytes that a page of table entries maps: a monitor takes all of it from its guest, or nothing.
fn window(cx: &Context<'_, '_>) -> u64 {
    let page = cx.facts().page;
    page * (page / 8)
}

/// First and last window of each part of a function's registers.
fn windows(cx: &Context<'_, '_>, function: &Function) -> Vec<(u64, u64)> {
    let bars = function.bars.iter().filter(|bar| bar.kind != BarKind::Io);
    let last = |bar: &Bar| bar.span.start.saturating_add(bar.span.len.saturating_sub(1));
    bars.map(|bar| (bar.span.start / window(cx), last(bar) / window(cx))).collect()
}

/// Tells if something can bring it to rest between two owners.
fn has_reset(function: &Function) -> bool {
    let levels = [function.pcie, function.af].into_iter().flatten();
    levels.into_iter().any(|capability| capability.flr)
        || function.pm.is_some_and(|pm| pm.resets)
        || !function.reset.is_empty()
}

/// A role's functions have their registers apart from all that a holder keeps.
pub fn role_device(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Some(machine) = &cx.machine else { return };
    for role in &cx.roles {
        for (index, name) in role.devices.iter().enumerate() {
            let function = pci::the_one(machine, name);
            let large = function
                .and_then(|function| function.bars.iter().find(|bar| bar.span.len >= window(cx)));
            let near = || function.and_then(|function| beside(cx, role, function));
            let (message, help) = if !is_pci(name) {
                let message = format!("`{}` is no PCI function", brief(name));
                (message, "a role has PCI functions and channels; give others to a sandbox".into())
            } else if let Some(bar) = large {
                let message = format!(
                    "BAR {} of `{}` has {:#x} bytes, too many to move",
                    bar.number,
                    brief(name),
                    bar.span.len
                );
                (message, format!("take a function with less than {:#x} bytes in each", window(cx)))
            } else if function.is_some_and(|function| !has_reset(function)) {
                let message = format!("`{}` has no reset", brief(name));
                let help = "its next holder would have what the last one told it: describe a reset, or leave it out";
                (message, help.into())
            } else if let Some((holder, other)) = near() {
                let message = format!(
                    "`{}` has registers within {:#x} bytes of those of {}, which `{holder}` keeps",
                    brief(name),
                    window(cx),
                    other.bdf
                );
                (message, "give one of them another address in the machine description".into())
            } else {
                continue;
            };
            let at = cx.at(role, &[k("devices"), n(index)]);
            found.push(Diagnostic::new("role-device", at, message).help(help));
        }
    }
}

/// A holder, and a function that it has without this role, in a window with the role's.
fn beside<'a>(
    cx: &'a Context<'_, '_>,
    role: &'a Item<Role>,
    function: &Function,
) -> Option<(&'a str, &'a Function)> {
    let machine = cx.machine.as_ref()?;
    let own = windows(cx, function);
    role.holders.iter().find_map(|holder| {
        let sandbox = &cx.sandboxes[cx.sandbox_index(holder)?];
        let granted = sandbox.devices.iter().map(|grant| grant.name());
        let holds = |other: &&Item<Role>| other.holders.contains(holder);
        let others = cx.roles.iter().filter(|other| other.index != role.index).filter(holds);
        let others = others.flat_map(|other| other.devices.iter().map(String::as_str));
        let mut all = granted.chain(others).filter_map(|name| pci::the_one(machine, name));
        let meets = |one: (u64, u64)| own.iter().any(|own| own.0 <= one.1 && one.0 <= own.1);
        let near = |other: &&Function| {
            other.bdf != function.bdf && windows(cx, other).into_iter().any(meets)
        };
        all.find(near).map(|other| (holder.as_str(), other))
    })
}

/// A role's functions reach pages of the role, and nothing else.
pub fn role_dma(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for role in &cx.roles {
        for (index, name) in role.dma.iter().enumerate() {
            let own = |kind: Option<ChannelKind>| {
                cx.channels.iter().filter(move |channel| {
                    super::role::of(cx, channel).is_some_and(|(_, one)| one.name == role.name)
                        && kind.is_none_or(|kind| channel.kind == kind)
                })
            };
            let (message, help) = if role.devices.is_empty() {
                let message =
                    format!("role `{}` has no device that could reach `{name}`", role.name);
                (message, "leave `dma` out, or name a function in `devices`".to_owned())
            } else if role.dma[..index].contains(name) {
                (format!("`{}` stands here twice", brief(name)), "name it once".to_owned())
            } else if !own(Some(ChannelKind::Pages)).any(|channel| channel.name == *name) {
                let why = match own(None).any(|channel| channel.name == *name) {
                    true => "is not one of pages",
                    false => "is not one of its own",
                };
                let message = format!("role `{}`: channel `{}` {why}", role.name, brief(name));
                let names: Vec<&str> =
                    own(Some(ChannelKind::Pages)).map(|channel| channel.name.as_str()).collect();
                let help = match names.is_empty() {
                    true => format!(
                        "describe one: `[[channel]]` with `from = \"{}\"` and `to = []`",
                        role.name
                    ),
                    false => format!("its channels of pages are {}", list(&names)),
                };
                (message, help)
            } else {
                continue;
            };
            let at = cx.at(role, &[k("dma"), n(index)]);
            found.push(Diagnostic::new("role-dma", at, message).help(help));
        }
    }
}
