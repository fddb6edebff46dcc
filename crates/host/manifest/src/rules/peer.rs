//! Monitors that look whether other sandboxes' monitors go on.

use super::{Context, Item};
use crate::diagnostic::Diagnostic;
use crate::raw::{Action, Build, Event, May, Peer, Sandbox};
use crate::shape::brief;
use crate::source::k;
use crate::time;
use bulkhead_layout::peer::PEERS;
use bulkhead_plan as plan;

/// Longest time without a heartbeat, ns.
const LONGEST: u64 = 3_600_000_000_000;

/// Both sandboxes exist, and are two.
pub fn peer_known(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for peer in &cx.peers {
        for (key, name) in [("sandbox", &peer.sandbox), ("watches", &peer.watches)] {
            if !cx.knows(name) {
                found.push(cx.unknown_sandbox("peer-known", cx.at(peer, &[k(key)]), name));
            }
        }
        if peer.sandbox == peer.watches {
            let message = format!("the monitor of `{}` would look at itself", peer.sandbox);
            let help = "name another sandbox: a monitor that has stopped finds nothing";
            let at = cx.at(peer, &[k("watches")]);
            found.push(Diagnostic::new("peer-known", at, message).help(help));
        }
    }
}

/// A monitor looks at few others, once at each, and one alone takes the cores.
pub fn peer_twice(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for (index, peer) in cx.peers.iter().enumerate() {
        let before = || cx.peers[..index].iter();
        let mut refuse = |key, message: String, first: &Item<Peer>, help: &str| {
            found.push(
                Diagnostic::new("peer-twice", cx.at(peer, &[k(key)]), message)
                    .related(cx.at(first, &[]), "the first one")
                    .help(help),
            );
        };
        let same = |other: &&Item<Peer>| other.watches == peer.watches;
        let own = |other: &&Item<Peer>| other.sandbox == peer.sandbox;
        if let Some(first) = before().filter(same).find(own) {
            let message = format!("`{}` looks at `{}` already", peer.sandbox, peer.watches);
            refuse("watches", message, first, "keep one of them");
        } else if let Some(first) =
            before().find(own).filter(|_| before().filter(own).count() == PEERS)
        {
            let message = format!("`{}` looks at more than {PEERS} sandboxes", peer.sandbox);
            refuse("sandbox", message, first, "let another sandbox' monitor look");
        }
        let takes = |peer: &Item<Peer>| peer.may.contains(&May::Init);
        let first = before().filter(same).find(|other| takes(other));
        if let Some(first) = first.filter(|_| takes(peer)) {
            let message = format!("`{}` takes the cores of `{}`", first.sandbox, peer.watches);
            let help = "leave `\"init\"` out of one: two would start the cores twice";
            refuse("may", message, first, help);
        }
    }
}

/// Heartbeats are moved at ticks, and looked at at ticks.
pub fn peer_watchdog(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for peer in &cx.peers {
        for (key, name) in [("sandbox", &peer.sandbox), ("watches", &peer.watches)] {
            let named = cx.sandbox_index(name).map(|index| &cx.sandboxes[index]);
            if named.is_some_and(|sandbox| sandbox.watchdog.is_none()) {
                let message = format!("the monitor of `{name}` has no ticks");
                let help = format!("give `{name}` a `watchdog`, such as `\"10 ms\"`");
                let at = cx.at(peer, &[k(key)]);
                found.push(Diagnostic::new("peer-watchdog", at, message).help(help));
            }
        }
    }
}

/// Times without a heartbeat.
pub fn peer_time(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for peer in &cx.peers {
        // Each second tick is surely one.
        let least = watched(cx, peer).map_or(1_000, |watch| 2 * watch.period);
        let times = [("every", Some(&peer.every)), ("first", peer.first.as_ref())];
        for (key, text) in times.into_iter().filter_map(|(key, text)| Some((key, text?))) {
            let Err(why) = read(text, least) else { continue };
            let message = format!("`{key}` cannot be `{}`{why}", brief(text));
            let limits = [least, LONGEST].map(time::show);
            let help = format!(
                "write whole microseconds, from `\"{}\"`, two periods of the watchdog of `{}`, to `\"{}\"`",
                limits[0], peer.watches, limits[1]
            );
            let at = cx.at(peer, &[k(key)]);
            found.push(Diagnostic::new("peer-time", at, message).help(help));
        }
    }
}

/// Cores have ticks while no guest runs on them, and can be taken: an INIT leads the one that boots to the firmware.
pub fn peer_core(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Some(machine) = &cx.machine else { return };
    for peer in &cx.peers {
        let Some(index) = cx.sandbox_index(&peer.watches) else { continue };
        let (key, message, help) = if !machine.arch.facts().ticks_beside {
            let message = format!("on `{}` a core without a guest has no heartbeat", machine.name);
            ("watches", message, "leave it out: VT-x' timer counts in guests alone")
        } else if peer.may.contains(&May::Init) && cx.sandboxes[index].cores.contains(&0) {
            let message = format!("`{}` has core 0, which boots the machine", peer.watches);
            let help = "leave `\"init\"` out, or give it another core: an INIT leads core 0 to the firmware";
            ("may", message, help)
        } else {
            continue;
        };
        found.push(Diagnostic::new("peer-core", cx.at(peer, &[k(key)]), message).help(help));
    }
}

/// A finding that nobody answers, or that cannot be passed over.
pub fn health_monitor(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for health in cx.healths.iter().filter(|health| health.on.all().contains(&Event::Monitor)) {
        let takes =
            |peer: &Item<Peer>| peer.watches == health.sandbox && peer.may.contains(&May::Init);
        let (key, message, help) = if !cx.peers.iter().any(takes) {
            let message = format!("nobody takes the cores of `{}`", health.sandbox);
            let help =
                "add a `[[peer]]` that `watches` it, with `may = [\"init\", \"bus-master\"]`";
            ("on", message, help)
        } else if health.action == Some(Action::Ignore) {
            let message = "a guest does not go on when its monitor has stopped".to_owned();
            ("action", message, "write `action = \"stop\"` or `action = \"restart\"`")
        } else {
            continue;
        };
        let at = cx.at(health, &[k(key)]);
        found.push(Diagnostic::new("health-monitor", at, message).help(help));
    }
}

/// A sandbox has a spare monitor if a peer takes its cores.
pub fn spare_unused(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let takes = |peer: &Item<Peer>| peer.may.contains(&May::Init);
    let taken = |name: &str| cx.peers.iter().any(|peer| peer.watches == name && takes(peer));
    let spare = |item: &&Item<Sandbox>| item.spare != Build::Usual;
    for sandbox in cx.sandboxes.iter().filter(spare).filter(|item| !taken(&item.name)) {
        let message = format!("`{}` has no spare monitor", sandbox.name);
        let help = "add a `[[peer]]` that `watches` it, with `may = [\"init\", \"bus-master\"]`";
        let at = cx.at(sandbox, &[k("spare")]);
        found.push(Diagnostic::new("spare-unused", at, message).help(help));
    }
}

fn read(text: &str, least: u64) -> Result<u64, String> {
    match time::parse(text) {
        Err(why) => Err(format!(": {why}")),
        Ok(time) if !(least..=LONGEST).contains(&time) || !time.is_multiple_of(1_000) => {
            Err(String::new())
        }
        Ok(time) => Ok(time),
    }
}

/// The watchdog of the sandbox that is looked at.
fn watched(cx: &Context<'_, '_>, peer: &Peer) -> Option<plan::Watch> {
    super::watch::watch(&cx.sandboxes[cx.sandbox_index(&peer.watches)?])
}

/// The peers of a sandbox; what some rule refuses is left out.
pub fn peers(cx: &Context<'_, '_>, sandbox: &Item<Sandbox>) -> Vec<plan::Peer> {
    let make = |peer: &Item<Peer>| {
        Some(plan::Peer {
            place: cx.at(peer, &[]).place(),
            sandbox: cx.sandbox_index(&peer.watches)?,
            every: read(&peer.every, 1).ok()?,
            first: peer.first.as_ref().and_then(|first| read(first, 1).ok()),
            takes: peer.may.contains(&May::Init),
            quiets: peer.may.contains(&May::BusMaster),
        })
    };
    let own = cx.peers.iter().filter(|peer| peer.sandbox == sandbox.name);
    own.filter_map(make).take(PEERS).collect()
}
