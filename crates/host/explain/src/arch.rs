//! The contract of an architecture: words for the registers, interrupts and addresses that it alone has. The machine
//! description chooses it.

use crate::explain::Words;
use crate::owner::{Answer, Thing};
use crate::x86::X86 as Only;
use bulkhead_layout::report::Denial;
use bulkhead_plan::{Plan, Sandbox};

/// See the module.
pub trait Architecture {
    /// Answers for a register beside memory: a port, or one of the processor's.
    fn register(&self, plan: &Plan, who: &Sandbox, thing: &Thing) -> Answer;
    /// Answers for an interrupt controller's registers, if an address is theirs. The description is left empty.
    fn mapped(&self, plan: &Plan, gpa: u64) -> Option<Answer>;
    /// Explains a denied access to a register, or a denied interrupt.
    fn denied(&self, plan: &Plan, who: &Sandbox, denial: &Denial) -> Words;
    /// Explains a denied access to a device that only this architecture has, if it was one.
    fn device(&self, plan: &Plan, who: &Sandbox, denial: &Denial) -> Option<Words>;
    /// Tells if an earlier record has named all that this one asks for.
    fn was_told(&self, denial: &Denial) -> bool;
    /// Names the thing that was asked for by a register or a line, if a grant could be the answer.
    fn asked(&self, plan: &Plan, who: &Sandbox, denial: &Denial) -> Option<Answer>;
}

/// Finds the architecture of a plan's machine. The builder bakes images for one alone, whatever its monitors.
pub fn of(_: &Plan) -> &'static dyn Architecture {
    &Only
}
