//! The contract of an architecture in a run: its auditor, its emulators' words for it, and what its machines have. The
//! machine description chooses it.

use crate::x86::X86 as Pc;
use bulkhead_audit::arch::Architecture as Auditor;
use bulkhead_audit::claim::Kind;
use bulkhead_plan::{Arch, Iommu, Machine, Plan, Sandbox};
use bulkhead_qemu::Serial;
use bulkhead_qemu::bochs::Virtualization;

/// See the module. A machine without an emulator needs no more than the defaults.
pub trait Architecture {
    /// Returns its auditor; `None`: there is none.
    fn auditor(&self) -> Option<&'static dyn Auditor> {
        None
    }
    /// Returns Bochs' name of it; `None`: Bochs has no such processor.
    fn bochs(&self) -> Option<Virtualization> {
        None
    }
    /// Returns the reason for which its machine in Bochs is not audited, if there is one.
    fn unaudited_in_bochs(&self) -> Option<&'static str> {
        None
    }
    /// Tells if each question about the processor leaves a guest: exits of the cause `cpuid`.
    fn cpuid_exits(&self) -> bool {
        false
    }
    /// Lists the ports of a machine that a Linux which ran before its monitor would harm others by.
    fn withheld(&self, _: &Machine) -> Vec<(u32, u32)> {
        Vec::new()
    }

    /// Returns the line of an interrupt.
    fn line(&self, irq: u32) -> u32 {
        irq
    }
    /// Returns the kind of an IOMMU, the bytes of its registers and its function. `None`: it should have a function,
    /// and the machine has none.
    fn unit(&self, plan: &Plan, _: &Iommu) -> Option<(Kind, u64, u16)> {
        Some((Kind::default(), plan.machine.arch.facts().page, 0))
    }
    /// Returns the requester ID of the interrupts of lines, if an IOMMU sees them.
    fn sender_of_lines(&self, _: &Iommu) -> Option<u16> {
        None
    }
    /// Sends the emulated serial ports to files, or the first Linux's first one to the terminal.
    fn serials(&self, _: &Plan, _terminal: bool) -> Vec<Serial> {
        Vec::new()
    }
    /// Returns a sandbox' first serial port, as an index of those.
    fn serial(&self, _: &Sandbox) -> Option<usize> {
        None
    }
}

/// An architecture that no emulator has: a test's.
struct Plain;

impl Architecture for Plain {}

/// Finds the architecture of a machine.
pub fn of(arch: Arch) -> Box<dyn Architecture> {
    match arch {
        Arch::Other(_) => Box::new(Plain),
        known => Box::new(Pc(known)),
    }
}
