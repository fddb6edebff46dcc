//! Numbers of the model-specific registers that privileged code uses.

/// EFER.
pub const EFER: u32 = 0xC000_0080;
/// APIC_BASE.
pub const APIC_BASE: u32 = 0x1B;
/// VM_CR: SVM lock and disable.
pub const VM_CR: u32 = 0xC001_0114;
/// VM_HSAVE_PA.
pub const VM_HSAVE_PA: u32 = 0xC001_0117;
/// First of the 256 x2APIC registers.
pub const X2APIC: u32 = 0x800;
/// x2APIC end of interrupt.
pub const X2APIC_EOI: u32 = 0x80B;
/// x2APIC spurious vector register.
pub const X2APIC_SVR: u32 = 0x80F;
/// x2APIC in-service register, first of eight.
pub const X2APIC_ISR: u32 = 0x810;
/// x2APIC interrupt request register, first of eight.
pub const X2APIC_IRR: u32 = 0x820;
/// x2APIC error status register.
pub const X2APIC_ESR: u32 = 0x828;
/// x2APIC timer's divide configuration register.
pub const X2APIC_DCR: u32 = 0x83E;
/// SPEC_CTRL, where CPUID 8000_0008 EBX has bit 14, 15 or 24.
pub const SPEC_CTRL: u32 = 0x48;
/// x2APIC interrupt command register.
pub const X2APIC_ICR: u32 = 0x830;
/// First of the x2APIC LVT registers (timer).
pub const X2APIC_LVT: u32 = 0x832;
/// The one of the pin that brings NMIs from outside of the machine.
pub const X2APIC_LINT1: u32 = 0x836;
/// Last of them (error).
pub const X2APIC_LVT_LAST: u32 = 0x837;
/// x2APIC timer's initial count.
pub const X2APIC_TMICT: u32 = 0x838;
/// x2APIC timer's current count.
pub const X2APIC_TMCCT: u32 = 0x839;
/// PAT.
pub const PAT: u32 = 0x277;
/// XSS, where CPUID 0xD.1 EAX has bit 3.
pub const XSS: u32 = 0xDA0;
/// STAR.
pub const STAR: u32 = 0xC000_0081;
/// LSTAR.
pub const LSTAR: u32 = 0xC000_0082;
/// CSTAR.
pub const CSTAR: u32 = 0xC000_0083;
/// FMASK.
pub const FMASK: u32 = 0xC000_0084;
/// KERNEL_GS_BASE.
pub const KERNEL_GS_BASE: u32 = 0xC000_0102;
/// TSC_AUX, where CPUID 8000_0001 EDX has bit 27.
pub const TSC_AUX: u32 = 0xC000_0103;

/// Base of FS.
pub const FS_BASE: u32 = 0xC000_0100;
/// Base of GS.
pub const GS_BASE: u32 = 0xC000_0101;
