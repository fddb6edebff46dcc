//! Where a kernel finds what is not its memory: in a sandbox at addresses that all sandboxes have, without a
//! monitor at the machine's own.

use bulkhead_plan::{Bdf, Channel, Plan};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Ground {
    /// There is no monitor.
    pub alone: bool,
    /// Guest-physical address of the kernel's memory.
    pub start: u64,
    /// Address of the kernel's memory, as its page tables have it.
    pub base: u64,
    /// Configuration space of functions in memory.
    pub configuration: u64,
}

impl Ground {
    /// Finds it for a sandbox of a plan.
    pub fn new(plan: &Plan, index: usize) -> Self {
        let (machine, alone) = (&plan.machine, plan.multikernel);
        let (start, hpa) = plan.sandboxes[index].ram.first().map_or((0, 0), |r| (r.gpa, r.hpa));
        let shown = machine.arch.facts().guest.configuration;
        let own = machine.pci.as_ref().map(|root| root.ecam).filter(|_| alone);
        let base = if alone { hpa } else { start };
        Self { alone, start, base, configuration: own.unwrap_or(shown) }
    }

    /// A function's configuration space.
    pub fn config(self, plan: &Plan, function: Bdf) -> u64 {
        plan.machine.arch.facts().configuration(self.configuration, function).start
    }

    /// A channel's memory.
    pub fn channel(self, channel: &Channel) -> u64 {
        if self.alone { channel.hpa } else { channel.gpa }
    }
}
