//! Where a kernel finds what is not its memory: in a sandbox at addresses that all sandboxes have, without a
//! monitor at the machine's own.

use bulkhead_layout::map::ECAM_GPA;
use bulkhead_plan::{Bdf, Channel, Machine, Sandbox};

/// Where the IOAPIC is in every sandbox.
const IOAPIC_GPA: u64 = 0xFEC0_0000;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Ground {
    /// There is no monitor.
    pub alone: bool,
    /// Physical address of the kernel's memory.
    pub base: u64,
    /// PCI's configuration space in memory.
    pub ecam: u64,
    /// The IOAPIC's registers.
    pub ioapic: u64,
    /// Vector of the level-triggered line that its programs may have.
    pub level: Option<u8>,
}

impl Ground {
    /// A sandbox's.
    pub const fn sandbox(level: Option<u8>) -> Self {
        Self { alone: false, base: 0, ecam: ECAM_GPA, ioapic: IOAPIC_GPA, level }
    }

    /// A core's without a monitor.
    pub fn alone(machine: &Machine, sandbox: &Sandbox, level: Option<u8>) -> Self {
        Self {
            alone: true,
            base: sandbox.ram.first().map_or(0, |ram| ram.hpa),
            ecam: machine.pci.as_ref().map_or(ECAM_GPA, |root| root.ecam),
            ioapic: machine.ioapic().map_or(IOAPIC_GPA, |ioapic| ioapic.base),
            level,
        }
    }

    /// A function's configuration space.
    pub fn config(self, function: Bdf) -> u64 {
        self.ecam + (u64::from(function.0) << 12)
    }

    /// A channel's memory.
    pub fn channel(self, channel: &Channel) -> u64 {
        if self.alone { channel.hpa } else { channel.gpa }
    }
}
