//! Owners of ports, of model-specific registers and of interrupt controllers' pages.

use crate::owner::{Allow, Answer, PORTS, REGISTERS, device, linux, nobodys, pci, simple};
use bulkhead_arch_x86::bitmap::Direct;
use bulkhead_arch_x86::config::Quiet;
use bulkhead_arch_x86::msr;
use bulkhead_layout::PAGE;
use bulkhead_layout::x86::port::{CALL_PORT, POWER_PORT};
use bulkhead_plan::{BarKind, Channel, Device, Function, Guest, Plan, RTC, Sandbox};

/// Says what a port gives to a sandbox that does not have it.
fn quiet_port(plan: &Plan, who: &Sandbox, port: u16) -> String {
    let runs = who.guest == Guest::Running;
    let linux = runs || linux(who);
    let quiet = if linux { bulkhead_image::absent_ports(plan, runs) } else { Vec::new() };
    match Quiet::find(&quiet, port.into()) {
        Some(0) => "reads give 0, writes go nowhere, no record".into(),
        Some(_) => "reads give all ones, writes go nowhere, no record".into(),
        None => "reads give all ones, writes go nowhere, each with a record".into(),
    }
}

/// A port.
pub fn port(plan: &Plan, who: &Sandbox, port: u16) -> Answer {
    let what = format!("port {port:#x}");
    let of_device = |d: &&Device| d.ports.iter().any(|p| (p.first..=p.last).contains(&port));
    let of_function = |f: &Function| {
        f.bars.iter().any(|bar| bar.kind == BarKind::Io && bar.span.contains(port.into()))
    };
    if port == POWER_PORT || port == POWER_PORT + 1 {
        return Answer {
            what,
            owner: "the monitor's".into(),
            why: "through it a guest switches itself off, in every sandbox (port-emulated)".into(),
            rule: PORTS,
            gets: "its own end or restart".into(),
            allow: Allow::Has,
        };
    }
    if port == CALL_PORT {
        return Answer {
            what,
            owner: "the monitor's".into(),
            why: "by a 32-bit read programs make hypercalls, in every sandbox (port-emulated)"
                .into(),
            rule: PORTS,
            gets: "what the manifest grants: `stop`, `start`, `restart`".into(),
            allow: Allow::Has,
        };
    }
    let own = plan.sandboxes.iter().position(|one| one.name == who.name);
    let rings = |c: &&Channel| {
        c.bell.is_some_and(|bell| bell.ring == port) && own.is_some_and(|own| c.reads(own))
    };
    if let Some(channel) = plan.channels.iter().find(rings) {
        return Answer {
            what,
            owner: "the monitor's".into(),
            why: format!("a doorbell, by `notify` of channel `{}`", channel.name),
            rule: PORTS,
            gets: "a write wakes the receiver, if it wants to be woken".into(),
            allow: Allow::Has,
        };
    }
    let configures = (0xCF8..=0xCFF).contains(&port) && port != 0xCF9;
    if configures && !who.functions.is_empty() {
        return Answer {
            what,
            owner: "the monitor's".into(),
            why: format!("{} has PCI functions", who.name),
            rule: PORTS,
            gets: "its monitor answers: the functions that it owns, and the bridges above".into(),
            allow: Allow::Has,
        };
    }
    // The narrowest device: 0xcf9 is the reset port before it is PCI's.
    let width = |d: &&Device| d.ports.iter().map(|p| p.span().len).sum::<u64>();
    let owned = plan.sandboxes.iter().flat_map(|s| &s.devices).filter(of_device).min_by_key(width);
    let described = plan.machine.devices.iter().filter(of_device).min_by_key(width);
    let function = plan.machine.functions.iter().find(|f| of_function(f));
    let answer = match (owned.or(described), function) {
        (Some(found), _) => device(plan, who, found),
        (None, Some(found)) => pci(plan, who, found),
        (None, None) => {
            let why = "no device of the machine description has it";
            let gets = quiet_port(plan, who, port);
            return Answer { rule: PORTS, gets, ..nobodys(what, why) };
        }
    };
    let owner = match answer.owner.strip_suffix("'s") {
        Some(owner) => format!("{owner}'s {}", answer.what),
        None => answer.owner,
    };
    let clock = owned.or(described).is_some_and(|found| found.class == RTC);
    let gets = match answer.allow {
        Allow::Has if clock => "date, time and status to read, by its monitor".into(),
        Allow::Has => "it, without an exit".into(),
        _ => quiet_port(plan, who, port),
    };
    Answer { what, owner, rule: PORTS, gets, ..answer }
}

/// A model-specific register.
pub fn model_specific(who: &Sandbox, number: u32) -> Answer {
    let direct = msr::DIRECT.iter().filter(|(first, last, _)| (*first..=*last).contains(&number));
    let (mut reads, mut writes) = (false, false);
    for (_, _, direct) in direct {
        reads |= matches!(direct, Direct::Read | Direct::Both);
        writes |= matches!(direct, Direct::Write | Direct::Both);
    }
    let checked = [msr::APIC_BASE, msr::EFER, msr::X2APIC_ICR].contains(&number)
        || (msr::X2APIC_LVT..=msr::X2APIC_LVT_LAST).contains(&number);
    let running = who.guest == Guest::Running;
    let quiet = linux(who).then(|| Quiet::find(msr::ABSENT, number)).flatten();
    let seen = running.then(|| Quiet::find(msr::ABSENT_RUNNING, number)).flatten();
    let quiet = quiet.or(seen);
    let rest = match quiet {
        Some(value) => format!("read as {value:#x} and written to nowhere, no record"),
        None => "denied with #GP and a record".to_owned(),
    };
    let gets = match (reads, writes, checked) {
        (true, true, _) => "reads and writes without an exit".to_owned(),
        (_, _, true) => "its monitor answers, within what the sandbox may".into(),
        (true, false, _) => format!("reads without an exit; writes are {rest}"),
        (false, true, _) => format!("writes without an exit; reads are {rest}"),
        (false, false, _) => rest,
    };
    let some = reads || writes || checked;
    Answer {
        what: format!("MSR {number:#x}"),
        owner: if some { "each core's" } else { "the machine's" }.into(),
        why: "the same list for all (docs/decisions/0004-msr-policy.md)".into(),
        rule: REGISTERS,
        gets,
        allow: if some { Allow::Has } else { Allow::Never("the list is fixed".into()) },
    }
}

/// Answers for the pages of the local APIC and of the IOAPIC.
pub fn mapped(plan: &Plan, gpa: u64) -> Option<Answer> {
    if (0xFEE0_0000..0xFEF0_0000).contains(&gpa) {
        let why = "a store there could interrupt any core; use x2APIC registers".to_owned();
        let never = Allow::Never(why);
        return Some(simple("the machine's local APIC", "the processor", "nothing", never));
    }
    plan.machine.ioapic().filter(|ioapic| gpa.wrapping_sub(ioapic.base) < PAGE)?;
    let why = "the machine description, `[ioapic]`";
    let gets = "its monitor answers: the lines of its devices";
    Some(simple("the machine's IOAPIC", why, gets, Allow::Has))
}
