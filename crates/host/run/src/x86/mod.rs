//! Parts of a run that only x86-64 has: auditors of SVM and VT-x, units of AMD and Intel, clock and
//! serial ports of a PC.

mod clock;

pub use clock::Clock;

use crate::arch::Architecture;
use bulkhead_audit::arch::Architecture as Auditor;
use bulkhead_audit::{Svm, Vmx, claim};
use bulkhead_plan::{Arch, BarKind, Guest, Iommu, IommuKind, Machine, Plan, Sandbox};
use bulkhead_qemu::Serial;
use bulkhead_qemu::bochs::Virtualization;

/// The architecture of a PC, with SVM or VT-x.
pub struct X86(pub Arch);

/// COM1 to COM4.
const SERIALS: [u16; 4] = [0x3F8, 0x2F8, 0x3E8, 0x2E8];

impl X86 {
    fn is_vmx(&self) -> bool {
        self.0 == Arch::Vmx
    }
}

impl Architecture for X86 {
    fn auditor(&self) -> Option<&'static dyn Auditor> {
        Some(if self.is_vmx() { &Vmx } else { &Svm })
    }

    fn bochs(&self) -> Option<Virtualization> {
        Some(if self.is_vmx() { Virtualization::Vmx } else { Virtualization::Svm })
    }

    fn unaudited_in_bochs(&self) -> Option<&'static str> {
        (!self.is_vmx()).then_some("shows no VMCB of SVM: it is audited on VT-x only")
    }

    fn cpuid_exits(&self) -> bool {
        self.is_vmx()
    }

    // They reach memory, reset the machine, or take parts out of it. The port of a delay (0x80) is among those of a DMA
    // controller.
    fn withheld(&self, machine: &Machine) -> Vec<(u32, u32)> {
        let mut all = Vec::new();
        for device in machine.devices.iter().filter(|device| device.nobody.is_some()) {
            let answers = device.class == "acpi-pm" && device.irq.is_some();
            if answers || ["pic", "i8042", "pci-config"].contains(&device.class.as_str()) {
                continue;
            }
            all.extend(device.ports.iter().map(|p| (u32::from(p.first), u32::from(p.last))));
        }
        for function in
            machine.functions.iter().filter(|f| f.nobody.is_some() && f.bridge.is_none())
        {
            let bars = function.bars.iter().filter(|bar| bar.kind == BarKind::Io);
            all.extend(bars.map(|bar| (bar.span.start as u32, bar.span.end() as u32 - 1)));
        }
        let around = |(first, last): (u32, u32)| match (first..=last).contains(&0x80) {
            true => vec![(first, 0x7F), (0x81, last)],
            false => vec![(first, last)],
        };
        all.into_iter().flat_map(around).filter(|(first, last)| first <= last).collect()
    }

    // A PC wires ISA interrupt 0 to the IOAPIC's second line.
    fn line(&self, irq: u32) -> u32 {
        if irq == 0 { 2 } else { irq }
    }

    fn unit(&self, plan: &Plan, iommu: &Iommu) -> Option<(claim::Kind, u64, u16)> {
        /// Class of an IOMMU's function (PCI code and ID assignment, 1.9).
        const CLASS: u32 = 0x08_06_00;
        match iommu.kind {
            IommuKind::AmdVi { .. } => {
                let function = plan.machine.functions.iter().find(|f| f.class == CLASS)?;
                Some((claim::Kind::AmdVi, 0x4000, function.bdf.0))
            }
            _ => Some((claim::Kind::VtD, 0x1000, 0)),
        }
    }

    fn sender_of_lines(&self, iommu: &Iommu) -> Option<u16> {
        iommu.ioapic().map(|bdf| bdf.0)
    }

    fn serials(&self, plan: &Plan, terminal: bool) -> Vec<Serial> {
        let linux = plan.sandboxes.iter().find(|s| matches!(s.guest, Guest::Linux { .. }));
        let shown = linux.and_then(|linux| self.serial(linux)).filter(|_| terminal);
        let kind = |n| if shown == Some(n) { Serial::Terminal } else { Serial::File };
        (0..SERIALS.len()).map(kind).collect()
    }

    fn serial(&self, sandbox: &Sandbox) -> Option<usize> {
        let mut ports = sandbox.devices.iter().flat_map(|device| &device.ports);
        ports.find_map(|range| SERIALS.iter().position(|port| *port == range.first))
    }
}
