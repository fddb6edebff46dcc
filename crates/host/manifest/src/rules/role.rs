//! Roles: places that one of several sandboxes has at a time.

use super::memory::wrong_size;
use super::{Context, Item};
use crate::diagnostic::{Diagnostic, list};
use crate::raw::{self, Channel, ChannelKind, Choose, Guest, Notify, Role, Rung, Standby, Step};
use crate::size::show;
use crate::source::{k, n};
use bulkhead_layout::role::{HOLDERS, ROLES};
use bulkhead_plan as plan;

/// There are not more roles than monitors can tell apart.
pub fn role_count(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    if let Some(role) = cx.roles.get(ROLES) {
        let message = format!("with `{}` there are more than {ROLES} roles", role.name);
        let help = "channels that always move together can have one role";
        found.push(Diagnostic::new("role-count", cx.at(role, &[]), message).help(help));
    }
}

/// A role has two holders or more, and each can take it over. Its guest can be told what it has, and one core decides.
pub fn role_holders(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for role in &cx.roles {
        if !(2..=HOLDERS).contains(&role.holders.len()) {
            let message = format!("role `{}` has {} holders", role.name, role.holders.len());
            let help = format!("name 2 to {HOLDERS} sandboxes, the one that has it at first first");
            let at = cx.at(role, &[k("holders")]);
            found.push(Diagnostic::new("role-holders", at, message).help(help));
        }
        for (index, holder) in role.holders.iter().enumerate() {
            let at = cx.at(role, &[k("holders"), n(index)]);
            if !cx.knows(holder) {
                found.push(cx.unknown_sandbox("role-holders", at, holder));
            } else if role.holders[..index].contains(holder) {
                let message = format!("`{holder}` stands here twice");
                found.push(Diagnostic::new("role-holders", at, message).help("name it once"));
            } else if let Some((why, help)) = unfit(cx, holder, index) {
                let message = format!("`{holder}` cannot hold a role: {why}");
                found.push(Diagnostic::new("role-holders", at, message).help(help));
            }
        }
    }
}

/// Why a sandbox cannot hold a role, and the mend.
fn unfit(cx: &Context<'_, '_>, holder: &str, index: usize) -> Option<(String, String)> {
    let sandbox = &cx.sandboxes[cx.sandbox_index(holder)?];
    if index == 0 && !sandbox.autostart {
        let why = "it has it at first, and does not start with the machine".to_owned();
        return Some((why, "name another one first, or leave out `autostart = false`".into()));
    }
    if matches!(sandbox.guest, Guest::Linux { .. }) {
        let why = "a Linux finds its ends of channels when it starts".to_owned();
        return Some((why, "give the role to bare guests or kernels".into()));
    }
    if sandbox.cores.len() > 1 {
        let why = format!("it has {} cores", sandbox.cores.len());
        return Some((why, "its memory is taken away at once: give it one core".into()));
    }
    cx.multikernel().then(|| {
        let why = "it is a monitor that gives and takes, and there are none".to_owned();
        (why, "leave out `monitors = false`".into())
    })
}

/// A channel has a role at one end, and somebody else at the other. Its ends look: nobody is rung.
pub fn role_channel(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for channel in &cx.channels {
        let Some((_, role)) = of(cx, channel) else { continue };
        let ends = || std::iter::once(&channel.from).chain(&channel.to);
        let holder = ends().find(|end| role.holders.contains(end));
        let (key, why, help) = if ends().filter(|end| cx.role(end).is_some()).count() > 1 {
            ("to", "two of its ends are roles".to_owned(), "give one end to a sandbox")
        } else if let Some(holder) = holder {
            let why = format!("`{holder}` would be at both ends while it has `{}`", role.name);
            ("to", why, "let it lead to a sandbox that never has the role")
        } else if channel.notify != Notify::Poll {
            let why = "a role's channel has no doorbell".to_owned();
            ("notify", why, "write `notify = \"poll\"`: both ends look")
        } else if matches!(channel.kind, ChannelKind::Virtio | ChannelKind::Program) {
            let why = format!("a role has no end of kind `{}`", word(channel.kind));
            ("kind", why, "take `pages`, `queue`, `records` or `mailbox`")
        } else {
            continue;
        };
        let message = format!("channel `{}`: {why}", channel.name);
        let at = cx.at(channel, &[k(key)]);
        found.push(Diagnostic::new("role-channel", at, message).help(help));
    }
}

fn word(kind: ChannelKind) -> &'static str {
    if kind == ChannelKind::Virtio { "virtio" } else { "program" }
}

/// All channels of a role fit in the memory that one page of table entries maps.
pub fn role_size(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let stride = cx.facts().guest.role_stride;
    let mut ends = super::build::Ends::new(cx);
    for channel in &cx.channels {
        let Some((number, role)) = of(cx, channel) else { continue };
        if number >= ROLES || wrong_size(&channel.size, cx.facts().page).is_some() {
            continue;
        }
        let most = gpa(cx, number) + stride - cx.facts().page;
        let fitted = ends.roles[number] <= most;
        let _ = super::build::seen(cx, channel, &mut ends);
        let end = ends.roles[number];
        if fitted && end > most {
            let name = &role.name;
            let sum = end - gpa(cx, number);
            let message = format!("up to channel `{}` role `{name}` has {sum} bytes", channel.name);
            let help = format!(
                "all channels of a role together have at most {}",
                show(stride - cx.facts().page)
            );
            let at = cx.at(channel, &[k("size")]);
            found.push(Diagnostic::new("role-size", at, message).help(help));
        }
    }
}

/// A failover is of a sandbox that has a role, and to one that can take it.
pub fn health_failover(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for health in &cx.healths {
        let own = |role: &&Item<Role>| role.holders.contains(&health.sandbox);
        let fits = |to: &String| cx.roles.iter().filter(own).any(|role| role.holders.contains(to));
        for (index, rung) in health.ladder.iter().flatten().enumerate() {
            let (key, message, help) = match rung {
                Rung { action: Step::Failover, .. } if !cx.roles.iter().any(|role| own(&role)) => (
                    "action",
                    format!(
                        "`{}` has no role that another sandbox could take over",
                        health.sandbox
                    ),
                    "describe one: `[[role]]` with `name` and `holders`".to_owned(),
                ),
                Rung { action: Step::Failover, to: Some(to), .. }
                    if *to == health.sandbox || !fits(to) =>
                {
                    let holders = cx.roles.iter().filter(own).flat_map(|role| &role.holders);
                    let mut others: Vec<&str> =
                        holders.map(String::as_str).filter(|one| *one != health.sandbox).collect();
                    others.sort_unstable();
                    others.dedup();
                    (
                        "to",
                        format!("`{}` holds no role of `{}` with it", to, health.sandbox),
                        format!("there is {}", list(&others)),
                    )
                }
                Rung { action, to: Some(_), .. } if *action != Step::Failover => (
                    "to",
                    "this action leads to no other sandbox".to_owned(),
                    "leave `to` out".to_owned(),
                ),
                _ => continue,
            };
            let at = cx.at(health, &[k("ladder"), n(index), k(key)]);
            found.push(Diagnostic::new("health-failover", at, message).help(help));
        }
    }
}

/// The role at an end of a channel, with its number.
pub fn of<'a>(cx: &'a Context<'_, '_>, channel: &Channel) -> Option<(usize, &'a Item<Role>)> {
    std::iter::once(&channel.from).chain(&channel.to).find_map(|end| cx.role(end))
}

/// True if a sandbox waits for a role that another one has at first.
pub fn waits(cx: &Context<'_, '_>, sandbox: &str) -> bool {
    let cold = |role: &&Item<Role>| role.standby == Standby::Cold;
    let holds = |role: &Item<Role>| role.holders.iter().any(|holder| holder == sandbox);
    let first = |role: &Item<Role>| role.holders.first().is_some_and(|first| first == sandbox);
    let waits = cx.roles.iter().filter(cold).any(holds);
    waits && !cx.roles.iter().any(first)
}

/// Guest-physical address of a role's memory.
pub fn gpa(cx: &Context<'_, '_>, role: usize) -> u64 {
    let guest = &cx.facts().guest;
    guest.channels.start + role as u64 * guest.role_stride
}

/// The roles of a manifest; what some rule refuses is left out.
pub fn roles(cx: &Context<'_, '_>) -> Vec<plan::Role> {
    let role = |(number, item): (usize, &Item<raw::Role>)| plan::Role {
        name: item.name.clone(),
        place: cx.at(item, &[]).place(),
        holders: super::build::indices(cx, &item.holders),
        least_loaded: item.choose == Choose::LeastLoaded,
        cold: item.standby == Standby::Cold,
        gpa: gpa(cx, number),
        dma: item.dma.clone(),
    };
    cx.roles.iter().enumerate().take(ROLES).map(role).collect()
}
