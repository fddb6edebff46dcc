//! Denied accesses to ports, to model-specific registers, to the IOAPIC and to the clock's memory.

use crate::explain::{FORM, Words, access, words};
use crate::owner::{self, Allow, Answer};
use crate::rule::Rule;
use crate::x86::register;
use bulkhead_arch_x86::{cmos, msr};
use bulkhead_layout::PAGE;
use bulkhead_layout::report::{Condition, Denial};
use bulkhead_plan::{Bdf, Plan, RTC, Sandbox};

/// The address port of configuration mechanism #1 (PCI 3.0, 3.2.2.3.2).
const CONFIG_ADDRESS: u16 = 0xCF8;

/// Tells if a port is one of its data ports. The write of the address has told the function.
pub fn is_data(port: u64) -> bool {
    (0xCFC..0xD00).contains(&port)
}

/// A model-specific register.
pub fn model_specific(denial: &Denial) -> Words {
    let rule = match denial.address {
        n if n == u64::from(msr::EFER) => const { Rule::of("virtualization-switch") },
        _ => owner::REGISTERS,
    };
    (
        format!("access to MSR {:#x}, value {:#x}", denial.address, denial.info),
        "the machine's".into(),
        rule,
        "nothing in a manifest allows it (docs/decisions/0004-msr-policy.md)".into(),
    )
}

/// A port.
pub fn port(plan: &Plan, who: &Sandbox, denial: &Denial) -> Words {
    let port = denial.address as u16;
    const PORTS: Rule = FORM
        .with("PCI's ports take IN and OUT: 32 bits at 0xcf8, within one register from 0xcfc on");
    let access = format!("access to port {port:#x}, value {:#x}", denial.info);
    let answer = register::port(plan, who, port);
    let rule = match answer.allow {
        Allow::Has if (CONFIG_ADDRESS..0xD00).contains(&port) => PORTS,
        _ => answer.rule,
    };
    words(access, denial, Answer { rule, ..answer })
}

/// Names the thing that was asked for by a port: the selected function, or the port.
pub fn asked(plan: &Plan, who: &Sandbox, denial: &Denial) -> Answer {
    // Bit 31 enables, 23:8 are bus, device and function (PCI 3.0, 3.2.2.3.2).
    let port = denial.address as u16;
    let function = Bdf((denial.info >> 8) as u16);
    let selects = port == CONFIG_ADDRESS && denial.info >> 31 & 1 == 1;
    let known = plan.machine.functions.iter().find(|f| f.bdf == function);
    match known.filter(|_| selects) {
        Some(function) => owner::pci(plan, who, function),
        None => register::port(plan, who, port),
    }
}

/// A register behind the real-time clock's ports.
pub fn clock(plan: &Plan, who: &Sandbox, denial: &Denial) -> Option<Words> {
    const RULE: Rule = Rule::of("clock-write");
    let index = denial.address.checked_sub(cmos::ADDRESS).filter(|n| *n < cmos::REGISTERS)?;
    let access = access(denial, &format!("CMOS memory at index {index:#x}"));
    let answer = plan.machine.devices.iter().find(|device| device.class == RTC);
    let owner = answer.map_or("nobody's".into(), |found| owner::device(plan, who, found).owner);
    Some((access, owner, RULE, "nothing in a manifest allows it".into()))
}

/// Index of an IOAPIC's register. A record's address names it: the registers' address and the index.
fn index(plan: &Plan, at: u64) -> Option<u64> {
    Some(at.wrapping_sub(plan.machine.ioapic()?.base)).filter(|index| *index < PAGE)
}

/// Finds the line of an entry in the IOAPIC's table.
pub fn line_of(plan: &Plan, at: u64) -> Option<u32> {
    /// Index of the first register of the redirection table (82093AA, 3.2.4).
    const TABLE: u64 = 0x10;
    Some((index(plan, at)?.checked_sub(TABLE)? / 2) as u32)
}

/// A register of the IOAPIC.
pub fn line(plan: &Plan, who: &Sandbox, denial: &Denial) -> Option<Words> {
    let index = index(plan, denial.address)?;
    let access = match denial.condition == Condition::DeviceRead as u16 {
        true => format!("read of IOAPIC register {index:#x}"),
        false => format!("write of {:#x} to IOAPIC register {index:#x}", denial.info),
    };
    let Some(line) = line_of(plan, denial.address) else {
        let allow = "nothing in a manifest allows it".into();
        return Some((access, "the machine's IOAPIC".into(), owner::LINES, allow));
    };
    let answer = owner::line(plan, who, line);
    let allow = match answer.allow {
        Allow::Has => {
            "fixed interrupts to its own cores, physical destination, vectors from 16 on".into()
        }
        other => other.to_string(),
    };
    Some((access, answer.owner, answer.rule, allow))
}
