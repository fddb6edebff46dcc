//! Words that only x86 has: ports, model-specific registers, interrupts between cores, the IOAPIC, the clock's memory.

mod denial;
pub mod dma;
pub mod ipi;
mod register;

use crate::arch::Architecture;
use crate::explain::Words;
use crate::owner::{self, Answer, Thing, nobodys};
use bulkhead_layout::report::{Denial, Kind};
use bulkhead_plan::{Plan, Sandbox};

/// The architecture's name in reports.
pub const ARCH: &str = "x86-64";

/// x86-64: monitors of both kinds leave such records.
pub struct X86;

impl Architecture for X86 {
    fn register(&self, plan: &Plan, who: &Sandbox, thing: &Thing) -> Answer {
        match thing {
            Thing::Port(number) => register::port(plan, who, *number),
            Thing::Msr(number) => register::model_specific(who, *number),
            _ => nobodys(format!("{thing:?}"), "no register"),
        }
    }

    fn mapped(&self, plan: &Plan, gpa: u64) -> Option<Answer> {
        register::mapped(plan, gpa)
    }

    fn denied(&self, plan: &Plan, who: &Sandbox, denial: &Denial) -> Words {
        match denial.kind {
            kind if kind == Kind::Ipi as u16 => ipi::explain(plan, who, denial),
            kind if kind == Kind::Msr as u16 => denial::model_specific(denial),
            _ => denial::port(plan, who, denial),
        }
    }

    fn device(&self, plan: &Plan, who: &Sandbox, denial: &Denial) -> Option<Words> {
        denial::clock(plan, who, denial).or_else(|| denial::line(plan, who, denial))
    }

    fn was_told(&self, denial: &Denial) -> bool {
        denial.kind == Kind::Port as u16 && denial::is_data(denial.address)
    }

    fn asked(&self, plan: &Plan, who: &Sandbox, denial: &Denial) -> Option<Answer> {
        match denial.kind {
            kind if kind == Kind::Port as u16 => Some(denial::asked(plan, who, denial)),
            kind if kind == Kind::Msr as u16 => {
                Some(register::model_specific(who, denial.address as u32))
            }
            kind if kind == Kind::Device as u16 => {
                denial::line_of(plan, denial.address).map(|line| owner::line(plan, who, line))
            }
            _ => None,
        }
    }
}
