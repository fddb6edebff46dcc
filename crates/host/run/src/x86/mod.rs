//! Parts of a run that only x86-64 has: auditors of SVM and VT-x, units of AMD and Intel, clock and
//! serial ports of a PC.

mod clock;

pub use clock::Clock;

use crate::Error;
use bulkhead_audit::arch::Architecture;
use bulkhead_audit::claim::{self, Claim};
use bulkhead_audit::{Registers, Svm, Vmx, hmp};
use bulkhead_plan::{Arch, Controller, Guest, Iommu, IommuKind, Plan, Sandbox};
use bulkhead_qemu::Serial;
use bulkhead_qemu::bochs::Virtualization;

/// Reason for which Bochs' machine of an architecture is not audited.
pub const NO_AUDIT: &str = "shows no VMCB of SVM: it is audited on VT-x only";

/// Returns the auditor of an architecture; `None`: there is none.
pub fn auditor(arch: Arch) -> Option<&'static dyn Architecture> {
    match arch {
        Arch::Svm => Some(&Svm),
        Arch::Vmx => Some(&Vmx),
        Arch::Other(_) => None,
    }
}

/// Finds out if Bochs' debugger shows the control blocks of an architecture.
pub fn bochs_shows_blocks(arch: Arch) -> bool {
    arch == Arch::Vmx
}

/// Returns Bochs' name of an architecture; `None`: it has none.
pub fn virtualization(arch: Arch) -> Option<Virtualization> {
    match arch {
        Arch::Svm => Some(Virtualization::Svm),
        Arch::Vmx => Some(Virtualization::Vmx),
        Arch::Other(_) => None,
    }
}

/// Finds out if CPUID leaves each guest of an architecture.
pub fn cpuid_exits(arch: Arch) -> bool {
    arch == Arch::Vmx
}

/// Reads the registers of a machine that stands in QEMU, by its monitor's answers.
pub fn registers(
    ask: &mut dyn FnMut(&str) -> Result<String, String>,
    claim: &Claim,
) -> Result<Registers, Error> {
    let unit = claim.iommu.as_ref().and_then(|iommu| match iommu.kind {
        claim::Kind::AmdVi => Some(hmp::Unit::Amd(claim.ecam?.start, iommu.bdf)),
        claim::Kind::VtD => Some(hmp::Unit::Vtd(iommu.registers.start)),
    });
    hmp::registers(ask, unit).map_err(Error::Other)
}

/// Returns the kind of an IOMMU, the bytes of its registers and its function. `None`: it has no function.
pub fn unit(plan: &Plan, iommu: &Iommu) -> Option<(claim::Kind, u64, u16)> {
    /// Class of an IOMMU's function (PCI code and ID assignment, 1.9).
    const CLASS: u32 = 0x08_06_00;
    match iommu.kind {
        IommuKind::AmdVi { .. } => {
            let function = plan.machine.functions.iter().find(|f| f.class == CLASS)?;
            Some((claim::Kind::AmdVi, 0x4000, function.bdf.0))
        }
        IommuKind::VtD { .. } => Some((claim::Kind::VtD, 0x1000, 0)),
        IommuKind::Other => Some((claim::Kind::default(), plan.machine.arch.facts().page, 0)),
    }
}

/// Returns the line of an interrupt. A PC wires ISA interrupt 0 to the IOAPIC's second line.
pub const fn line(irq: u32) -> u32 {
    if irq == 0 { 2 } else { irq }
}

/// Returns the first register of an interrupt controller.
pub const fn controller(controller: Controller) -> u64 {
    match controller {
        Controller::Ioapic(ioapic) => ioapic.base,
        Controller::Other { base } => base,
    }
}

/// Returns the function by which an IOMMU knows the interrupts of lines.
pub fn sender_of_lines(iommu: &Iommu) -> Option<u16> {
    iommu.ioapic().map(|bdf| bdf.0)
}

/// COM1 to COM4.
const SERIALS: [u16; 4] = [0x3F8, 0x2F8, 0x3E8, 0x2E8];

/// Returns a sandbox' first serial port, as an index of [`SERIALS`].
pub fn serial(sandbox: &Sandbox) -> Option<usize> {
    let mut ports = sandbox.devices.iter().flat_map(|device| &device.ports);
    ports.find_map(|range| SERIALS.iter().position(|port| *port == range.first))
}

/// Sends COM1 to COM4 to files, but the first Linux's first port to the terminal.
pub fn serials(plan: &Plan, terminal: bool) -> Vec<Serial> {
    let linux = plan.sandboxes.iter().find(|s| matches!(s.guest, Guest::Linux { .. }));
    let shown = linux.and_then(serial).filter(|_| terminal);
    let kind = |n| if shown == Some(n) { Serial::Terminal } else { Serial::File };
    (0..SERIALS.len()).map(kind).collect()
}
