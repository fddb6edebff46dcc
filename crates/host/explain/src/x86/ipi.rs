//! A denied interrupt in words. The monitor says which condition refused it; here that is put into words, with the
//! cores that it would have reached.

use crate::explain::{Words, place};
use crate::rule::Rule;
use bulkhead_layout::report::{Condition, Denial};
use bulkhead_plan::{Plan, Sandbox};

const LOGICAL: u32 = 1 << 11;
const TRIGGER: u32 = 1 << 15;
/// Bits of an x2APIC's ICR that are reserved (APM 16.13).
const RESERVED: u32 = 0b11 << 12 | 0b11 << 16 | 0xFFF0_0000;
/// Destination of all cores in x2APIC mode.
const BROADCAST: u32 = u32::MAX;
const NEVER: &str = "nothing in a manifest allows it";

/// Rule of the cores that an interrupt reaches.
const DESTINATION: Rule = Rule::of("ipi-destination");
/// Rule of its form.
const FORM: Rule = Rule::of("ipi-form");

/// Cores that an ICR value names.
enum Target {
    Itself,
    /// All cores of the machine, in words.
    All(&'static str),
    /// Sandboxes by x2APIC ID.
    Ids(Vec<u32>),
}

/// Cores that an ICR value would reach (APM 16.5, 16.14): with a shorthand its destination field means nothing.
fn target(icr: u64) -> Target {
    let (low, to) = (icr as u32, (icr >> 32) as u32);
    match low >> 18 & 0b11 {
        0 if to == BROADCAST => Target::All("every core"),
        0 if low & LOGICAL == 0 => Target::Ids(vec![to]),
        0 => {
            let (cluster, set) = (to >> 16, to & 0xFFFF);
            let ids = (0..16).filter(|bit| set >> bit & 1 != 0);
            Target::Ids(ids.map(|bit| cluster << 4 | bit).collect())
        }
        1 => Target::Itself,
        2 => Target::All("all cores"),
        _ => Target::All("all other cores"),
    }
}

/// A denied write of the ICR.
pub fn explain(plan: &Plan, who: &Sandbox, denial: &Denial) -> Words {
    let target = target(denial.address);
    let foreign = foreign(who, &target);
    let detail = match denial.condition {
        c if c == Condition::IpiReserved as u16 => "its reserved bits are 0",
        c if c == Condition::IpiLevel as u16 => {
            "a fixed one is edge-triggered, because the end of another one reaches the IOAPIC"
        }
        c if c == Condition::IpiMode as u16 => "it is fixed, an NMI, an INIT or a SIPI",
        c if c == Condition::IpiShorthand as u16 => {
            "an NMI goes to one core or to all others of the sandbox, an INIT or SIPI to one"
        }
        c if c == Condition::IpiLogical as u16 => {
            "an NMI, INIT or SIPI names its core by the physical ID"
        }
        _ => "",
    };
    let (rule, allow) = match detail {
        "" => (DESTINATION, foreign_core(plan, who, foreign)),
        detail => (FORM.with(detail), NEVER.into()),
    };
    (access(denial.address, &target), owner(plan, who, &target), rule, allow)
}

/// The attempt, in words.
fn access(icr: u64, target: &Target) -> String {
    let low = icr as u32;
    let mode = ["fixed", "lowest priority", "SMI", "reserved", "NMI", "INIT", "SIPI", "ExtINT"]
        [(low >> 8 & 7) as usize];
    let to = match target {
        Target::Itself => "itself".into(),
        Target::All(words) => (*words).into(),
        Target::Ids(ids) => ids_in_words(low, ids),
    };
    let level = if low & TRIGGER != 0 { "level-triggered " } else { "" };
    let more = match low & RESERVED {
        0 => String::new(),
        bits => format!(", with reserved bits {bits:#x}"),
    };
    format!("{level}{mode} interrupt to {to}{more}")
}

fn ids_in_words(low: u32, ids: &[u32]) -> String {
    let how = if low & LOGICAL != 0 { " by its logical ID" } else { "" };
    match ids {
        [] => "no core".into(),
        [one] => format!("APIC ID {one:#x}{how}"),
        more => {
            let more: Vec<_> = more.iter().map(|id| format!("{id:#x}")).collect();
            format!("APIC IDs {} by their logical ID", more.join(", "))
        }
    }
}

/// Owners of these cores.
fn owner(plan: &Plan, who: &Sandbox, target: &Target) -> String {
    let ids = match target {
        Target::Itself => return "its own core".into(),
        Target::All(_) => return "the cores of all sandboxes".into(),
        Target::Ids(ids) if ids.is_empty() => return "nobody's core".into(),
        Target::Ids(ids) => ids,
    };
    let mut owners: Vec<String> = ids.iter().map(|id| owner_of(plan, who, *id)).collect();
    owners.dedup();
    owners.join(" and ")
}

fn owner_of(plan: &Plan, who: &Sandbox, id: u32) -> String {
    match plan.sandboxes.iter().find(|s| s.core_ids.contains(&id)) {
        Some(s) if s.name == who.name => "its own core".into(),
        Some(s) => format!("{}'s core", s.name),
        None => "nobody's core".into(),
    }
}

/// The first core among these that is not the sandbox's own.
fn foreign(who: &Sandbox, target: &Target) -> Option<u32> {
    match target {
        Target::Ids(ids) => ids.iter().find(|id| !who.core_ids.contains(id)).copied(),
        Target::Itself | Target::All(_) => None,
    }
}

/// Manifest line that would make a core the sandbox's own.
fn foreign_core(plan: &Plan, who: &Sandbox, id: Option<u32>) -> String {
    let Some(id) = id else { return NEVER.into() };
    let Some(core) = plan.machine.core_ids.iter().position(|other| *other == id) else {
        return "the machine has no such core".into();
    };
    let had = match plan.sandboxes.iter().find(|s| s.core_ids.contains(&id)) {
        Some(other) => format!(", which {} has ({})", other.name, place(other)),
        None => String::new(),
    };
    format!("{}: `cores` with {core}{had}", place(who))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain;
    use crate::learn::tests::plan;
    use bulkhead_arch_x86::icr::{Ids, Ipi, decide};

    /// Explanation of an ICR value that the monitor of the first sandbox denies. It has x2APIC IDs 0 and 3,
    /// the other one 1 and 0x12, and nobody has core 4 of the machine, with ID 2.
    fn said(icr: u64) -> Option<[String; 4]> {
        const OWN: Ids = [0b1001, 0, 0, 0];
        let Ipi::Denied(condition) = decide(&OWN, icr) else { return None };
        let mut plan = plan();
        plan.machine.core_ids = vec![0, 1, 3, 0x12, 2];
        plan.sandboxes[0].core_ids = vec![0, 3];
        plan.sandboxes[1].core_ids = vec![1, 0x12];
        let (kind, condition) = (condition.kind() as u16, condition as u16);
        let denial = Denial { seq: 1, address: icr, kind, condition, ..Denial::default() };
        let e = explain(&plan, 0, 0, &denial);
        let by_form = e.rule.strip_prefix(&format!("{}: ", FORM.guarantee.sentence));
        assert_eq!(e.guarantee, by_form.map_or(DESTINATION, |_| FORM).guarantee.id);
        Some([e.access, e.owner, by_form.unwrap_or(&e.rule).to_owned(), e.allow])
    }

    const CORES: &str = "an interrupt between cores goes to cores of the sender's own sandbox";
    const NMI_TO: &str =
        "an NMI goes to one core or to all others of the sandbox, an INIT or SIPI to one";
    const EDGE: &str =
        "a fixed one is edge-triggered, because the end of another one reaches the IOAPIC";
    const MODES: &str = "it is fixed, an NMI, an INIT or a SIPI";

    #[test]
    fn each_condition_is_explained_by_itself() {
        let other = "m.toml:7: `cores` with 1, which other has (m.toml:20)";
        for (destination, low, expected) in [
            (1, 0x40, ["fixed interrupt to APIC ID 0x1", "other's core", CORES, other]),
            (
                2,
                0x400,
                [
                    "NMI interrupt to APIC ID 0x2",
                    "nobody's core",
                    CORES,
                    "m.toml:7: `cores` with 4",
                ],
            ),
            (
                9,
                0x40,
                [
                    "fixed interrupt to APIC ID 0x9",
                    "nobody's core",
                    CORES,
                    "the machine has no such core",
                ],
            ),
            // An own core, by level: not for its core.
            (
                3,
                0xC040,
                ["level-triggered fixed interrupt to APIC ID 0x3", "its own core", EDGE, NEVER],
            ),
            (0, 0x200, ["SMI interrupt to APIC ID 0x0", "its own core", MODES, NEVER]),
            (1, 0x140, ["lowest priority interrupt to APIC ID 0x1", "other's core", MODES, NEVER]),
            // The destination of a shorthand means nothing.
            (
                1,
                0xC_4500,
                ["INIT interrupt to all other cores", "the cores of all sandboxes", NMI_TO, NEVER],
            ),
            (1, 0x4_0400, ["NMI interrupt to itself", "its own core", NMI_TO, NEVER]),
            (
                1,
                0x8_0200,
                ["SMI interrupt to all cores", "the cores of all sandboxes", MODES, NEVER],
            ),
            // Two cores of cluster 0, and one of cluster 1.
            (
                0b11,
                0x840,
                [
                    "fixed interrupt to APIC IDs 0x0, 0x1 by their logical ID",
                    "its own core and other's core",
                    CORES,
                    other,
                ],
            ),
            (
                1 << 16 | 0b100,
                0x840,
                [
                    "fixed interrupt to APIC ID 0x12 by its logical ID",
                    "other's core",
                    CORES,
                    "m.toml:7: `cores` with 3, which other has (m.toml:20)",
                ],
            ),
            (
                1,
                0xC00,
                [
                    "NMI interrupt to APIC ID 0x0 by its logical ID",
                    "its own core",
                    "an NMI, INIT or SIPI names its core by the physical ID",
                    NEVER,
                ],
            ),
            (
                BROADCAST,
                0x400,
                ["NMI interrupt to every core", "the cores of all sandboxes", CORES, NEVER],
            ),
            (
                0,
                0x1040,
                [
                    "fixed interrupt to APIC ID 0x0, with reserved bits 0x1000",
                    "its own core",
                    "its reserved bits are 0",
                    NEVER,
                ],
            ),
        ] {
            let icr = u64::from(destination) << 32 | low;
            assert_eq!(said(icr), Some(expected.map(str::to_owned)), "{icr:#x}");
        }
    }

    #[test]
    fn an_own_core_is_never_explained_by_whose_it_is() {
        for destination in [0, 1, 2, 3, 9, 0x12, BROADCAST] {
            // All bits but the vector.
            for bits in 0..1u64 << 12 {
                let low = bits << 8 | 0x40;
                let Some([_, owner, rule, allow]) = said(u64::from(destination) << 32 | low) else {
                    continue;
                };
                assert!(owner != "its own core" || rule != CORES, "{destination:#x} {low:#x}");
                assert!(rule == CORES || allow == NEVER, "{destination:#x} {low:#x}");
            }
        }
    }
}
