//! Learn mode: what a sandbox with `learn = true` touched without having it, and
//! the lines of the manifest that would grant it.

use crate::arch;
use crate::explain::{explain, function_at};
use crate::owner::{self, Allow, Answer};
use bulkhead_layout::hypercall::{CONTROL, STATUS};
use bulkhead_layout::report::{Denial, Kind};
use bulkhead_plan::{Plan, RIGHTS, Right, Sandbox};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Accesses that one grant would allow, or that none can: in words, how often.
type Touched = BTreeMap<String, u64>;

/// Things that one sandbox touched.
#[derive(Clone, Debug, Default)]
pub struct Lessons {
    /// By key and element of its table in the manifest.
    wanted: BTreeMap<(&'static str, String), Touched>,
    /// By what else it would take.
    others: BTreeMap<String, Touched>,
    /// Records that were overwritten before they were read.
    lost: u64,
}

impl Lessons {
    /// Takes a record of the sandbox with that index.
    pub fn take(&mut self, plan: &Plan, sandbox: usize, denial: &Denial) {
        let who = &plan.sandboxes[sandbox];
        if arch::of(plan).was_told(denial) {
            return;
        }
        let (what, allow) = asked(plan, who, denial)
            .filter(|answer| answer.allow != Allow::Has)
            .map(|answer| (answer.what, answer.allow))
            .unwrap_or_else(|| {
                let explained = explain(plan, sandbox, 0, denial);
                (explained.access, Allow::Change(explained.allow))
            });
        let touched = match allow {
            Allow::Line { key, value, .. } => self.wanted.entry((key, value)).or_default(),
            other => self.others.entry(other.to_string()).or_default(),
        };
        *touched.entry(what).or_default() += 1;
    }

    /// Counts records that nobody read.
    pub fn lose(&mut self, records: u64) {
        self.lost += records;
    }

    /// Tells if there is nothing to say.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.others.is_empty() && self.lost == 0
    }

    /// The lines that would grant it all, as they stand in the sandbox's table:
    /// what it has and what it touched.
    #[must_use]
    pub fn lines(&self, who: &Sandbox, plan: &Plan) -> Vec<String> {
        let mut lines = Vec::new();
        for key in ["devices", "stop", "start", "restart", "observe"] {
            let more = self.wanted.keys().filter(|(other, _)| *other == key);
            let more: Vec<String> = more.map(|(_, value)| value.clone()).collect();
            if !more.is_empty() {
                let all: Vec<String> = has(who, plan, key).into_iter().chain(more).collect();
                lines.push(format!("{key} = [{}]", all.join(", ")));
            }
        }
        lines
    }

    /// All of it, for a person.
    #[must_use]
    pub fn text(&self, who: &Sandbox, plan: &Plan) -> String {
        let mut out = format!("{} learned ({}):\n", who.name, owner::at(&who.place));
        for line in self.lines(who, plan) {
            let _ = writeln!(out, "  {line}");
        }
        for ((_, value), touched) in &self.wanted {
            let _ = writeln!(out, "  # {value}: {}", shown(touched));
        }
        for (why, touched) in &self.others {
            let _ = writeln!(out, "  # not by a grant: {} ({why})", shown(touched));
        }
        if self.is_empty() {
            out.push_str("  # it touched nothing that it does not have\n");
        }
        if self.lost > 0 {
            let lost = self.lost;
            let _ = writeln!(out, "  # {lost} records were overwritten before they were read");
        }
        out
    }
}

/// Lists what a sandbox has already under a key, as it is written.
fn has(who: &Sandbox, plan: &Plan, key: &str) -> Vec<String> {
    let quoted = |name: &str| format!("\"{name}\"");
    let names = |indices: &[usize]| {
        indices.iter().map(|index| quoted(&plan.sandboxes[*index].name)).collect()
    };
    let over = |right: &Right| {
        let name = quoted(&plan.sandboxes[right.sandbox].name);
        match right.every {
            Right::EVERY => name,
            every => format!("{{ sandbox = {name}, every = \"{} us\" }}", every / 1_000),
        }
    };
    let function = |own: &bulkhead_plan::Granted| {
        let name = quoted(&format!("pci:{}", own.function.bdf));
        let silent = own.function.msi.is_none() && own.function.msix.is_none();
        let dma = if own.unconfined { ", dma = \"unconfined\"" } else { "" };
        let line = if own.line && !silent { ", line = true" } else { "" };
        match dma.is_empty() && line.is_empty() {
            true => name,
            false => format!("{{ device = {name}{dma}{line} }}"),
        }
    };
    match key {
        "stop" | "start" | "restart" => {
            let of = RIGHTS.iter().zip(&who.control).filter(|(name, _)| **name == key);
            of.flat_map(|(_, rights)| rights).map(over).collect()
        }
        "observe" => names(&who.observe),
        _ => {
            let devices = who.devices.iter().map(|device| quoted(&device.name));
            // A role's come with that.
            let own = who.functions.iter().filter(|granted| granted.role.is_none());
            devices.chain(own.map(function)).collect()
        }
    }
}

/// `port 0x70 (3 times), port 0x71`.
fn shown(touched: &Touched) -> String {
    let one = |(what, times): (&String, &u64)| match times {
        1 => what.clone(),
        more => format!("{what} ({more} times)"),
    };
    touched.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Names the thing that was asked for, if a grant could be the answer.
fn asked(plan: &Plan, who: &Sandbox, denial: &Denial) -> Option<Answer> {
    let kind = |kind: Kind| denial.kind == kind as u16;
    if kind(Kind::Memory) {
        return Some(owner::address(plan, who, denial.address));
    }
    if let Some(answer) = arch::of(plan).asked(plan, who, denial) {
        return Some(answer);
    }
    if kind(Kind::Device) {
        return Some(owner::pci(plan, who, function_at(plan, who, denial.address)?));
    }
    if kind(Kind::Hypercall) && matches!(denial.address, CONTROL | STATUS) {
        let other = plan.sandboxes.get(denial.info as u32 as usize)?;
        return Some(owner::control(plan, who, other, owner::right_of(denial)));
    }
    None
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use bulkhead_layout::hypercall::CONTROL_STOP;
    use bulkhead_layout::monitor::Action;
    use bulkhead_layout::report::{Condition, KINDS};
    use bulkhead_plan::{Bdf, Device, Function, Machine, Place, Ports, Ram};

    fn sandbox(name: &str, line: usize) -> Sandbox {
        Sandbox {
            name: name.into(),
            place: Place { file: "m.toml".into(), line, column: 1 },
            ram: vec![Ram { gpa: 0, hpa: 0x100_0000, len: 0x100_0000 }],
            actions: [Action::Ignore; KINDS],
            learn: true,
            ..Sandbox::default()
        }
    }

    fn device(name: &str, first: u16, nobody: Option<&str>) -> Device {
        Device {
            name: name.into(),
            class: "other".into(),
            ports: vec![Ports { first, last: first + 7 }],
            nobody: nobody.map(str::to_owned),
            ..Device::default()
        }
    }

    /// Two sandboxes; `learner` is the first.
    pub fn plan() -> Plan {
        let function = Function {
            bdf: Bdf(0x40),
            vendor: 0x1234,
            device: 0x11E8,
            class: 0xFF00,
            ..Function::default()
        };
        let mut learner = sandbox("learner", 7);
        learner.devices.push(device("own", 0x100, None));
        Plan {
            system: "test".into(),
            manifest: "m.toml".into(),
            machine: Machine {
                devices: vec![
                    device("own", 0x100, None),
                    device("more", 0x200, None),
                    device("reset", 0x300, Some("it resets the machine")),
                ],
                functions: vec![function],
                ..Machine::default()
            },
            sandboxes: vec![learner, sandbox("other", 20)],
            ..Plan::default()
        }
    }

    fn denial(kind: Kind, address: u64, info: u64) -> Denial {
        Denial { seq: 1, address, info, kind: kind as u16, ..Denial::default() }
    }

    #[test]
    fn lines_grant_what_was_touched_and_keep_what_is_there() {
        let plan = plan();
        let mut lessons = Lessons::default();
        assert!(lessons.is_empty());
        for record in [
            denial(Kind::Port, 0x201, 0),
            denial(Kind::Port, 0x201, 5),
            denial(Kind::Port, 0x207, 0),
            denial(Kind::Port, 0x300, 0),
            denial(Kind::Port, 0xCF8, 0x8000_4010),
            denial(Kind::Port, 0xCFC, 0),
            denial(Kind::Hypercall, CONTROL, 1 | CONTROL_STOP << 32),
            denial(Kind::Hypercall, STATUS, 1 | CONTROL_STOP << 32),
            denial(Kind::Memory, 0xD104_0000, 0),
            Denial { condition: Condition::MemoryWrite as u16, ..denial(Kind::Memory, 0x1000, 0) },
            denial(Kind::Instruction, 0x80, 0),
        ] {
            lessons.take(&plan, 0, &record);
        }
        lessons.lose(3);
        let lines = lessons.lines(&plan.sandboxes[0], &plan);
        let expected = [
            "devices = [\"own\", \"more\", \"pci:00:08.0\"]",
            "stop = [\"other\"]",
            "start = [\"other\"]",
            "observe = [\"other\"]",
        ];
        assert_eq!(lines, expected);
        let text = lessons.text(&plan.sandboxes[0], &plan);
        for part in [
            "learner learned (m.toml:7):\n  devices = [",
            "# \"more\": port 0x201 (2 times), port 0x207\n",
            "# \"pci:00:08.0\": PCI function 00:08.0 (1234:11e8)\n",
            "port 0x300 (nothing in a manifest allows it: it resets the machine)",
            "write to guest-physical 0x1000 (m.toml:7: guest = { access = \"rwx\" }",
            "instruction with exit code 0x80 (nothing in a manifest allows it)",
            "# 3 records were overwritten before they were read",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("0xcfc"), "{text}");
    }
}
