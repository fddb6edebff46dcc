//! Registers that only x86-64 has.

use serde::{Deserialize, Serialize};

/// A core's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// CS.base.
    #[serde(default)]
    pub cs_base: u64,
    /// CR0.
    #[serde(default)]
    pub cr0: u64,
    /// CR4.
    #[serde(default)]
    pub cr4: u64,
    /// EFER.
    #[serde(default)]
    pub efer: u64,
    /// VM_HSAVE_PA (MSR C001_0117), where a debugger can read it. QEMU shows it to
    /// nobody: then memory is searched for what VMRUN left there. The format of the host save area is a real
    /// processor's own (APM 15.30.4); QEMU's is a VMCB's.
    #[serde(default)]
    pub vm_hsave_pa: Option<u64>,
    /// VT-x: physical address of the current VMCS, if it has one. Fields are read in Bochs' layout.
    #[serde(default)]
    pub vmcs: Option<u64>,
}

/// An IOAPIC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ioapic {
    /// Redirection table entries (82093AA, 3.2.4), pin 0 first.
    pub entries: Vec<u64>,
}

/// An IOMMU's registers by their offsets (IOMMU specification, 3.4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iommu {
    /// Where the PCI capability says that they are (offsets 04h and 08h of the capability).
    pub base: u64,
    /// 0000h Device Table Base Address.
    pub device_table: u64,
    /// 0008h Command Buffer Base Address.
    pub command_buffer: u64,
    /// 0010h Event Log Base Address.
    pub event_log: u64,
    /// 0018h Control.
    pub control: u64,
    /// 0020h Exclusion Base.
    pub exclusion_base: u64,
    /// 0028h Exclusion Range Limit.
    pub exclusion_limit: u64,
}

/// A VT-d unit's registers by their offsets (VT-d specification, 11.4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vtd {
    /// Where they were read.
    pub base: u64,
    /// 0008h Capability.
    pub capabilities: u64,
    /// 0010h Extended Capability.
    pub extended: u64,
    /// 001Ch Global Status.
    pub status: u64,
    /// 0020h Root Table Address.
    pub root: u64,
    /// 0064h Protected Memory Enable.
    pub protected: u64,
    /// 0090h Invalidation Queue Address.
    pub queue: u64,
    /// 00B8h Interrupt Remapping Table Address.
    pub interrupts: u64,
}

/// A machine's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Units {
    /// The IOAPIC.
    #[serde(default)]
    pub ioapic: Option<Ioapic>,
    /// Interrupt masks of the two 8259A, master first.
    #[serde(default)]
    pub pic_masks: Option<[u8; 2]>,
    /// AMD's IOMMU.
    #[serde(default)]
    pub iommu: Option<Iommu>,
    /// Intel's.
    #[serde(default)]
    pub vtd: Option<Vtd>,
}
