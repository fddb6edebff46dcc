//! Offsets and bits of the virtual machine control block (APM, appendix B).

/// Intercepted exceptions by vector (bits 31:0) and intercept word 3 (bits 63:32).
pub const INTERCEPT_LOW: u16 = 0x008;
/// Intercept words 4 (bits 31:0) and 5 (bits 63:32).
pub const INTERCEPT_HIGH: u16 = 0x010;
/// I/O permission map.
pub const IOPM: u16 = 0x040;
/// MSR permission map.
pub const MSRPM: u16 = 0x048;
/// ASID (bits 31:0) and TLB control (39:32).
pub const ASID: u16 = 0x058;
/// Virtual interrupt control.
pub const V_INTR: u16 = 0x060;
/// Bit 0: the instruction before blocks interrupts for this one.
pub const INTERRUPT_SHADOW: u16 = 0x068;
/// Why the guest was left (APM, appendix C).
pub const EXIT_CODE: u16 = 0x070;
/// First exit detail.
pub const EXIT_INFO1: u16 = 0x078;
/// Second exit detail.
pub const EXIT_INFO2: u16 = 0x080;
/// Nested paging enable.
pub const NP_ENABLE: u16 = 0x090;
/// Event to inject.
pub const EVENT_INJ: u16 = 0x0A8;
/// Root of the nested tables.
pub const N_CR3: u16 = 0x0B0;
/// Clean bits.
pub const CLEAN: u16 = 0x0C0;
/// RIP after the intercepted instruction, where CPUID 8000_000A EDX bit 3 says so.
pub const NEXT_RIP: u16 = 0x0C8;
/// Word that holds CPL in bits 31:24 (offset 0x4CB).
pub const CPL_WORD: u16 = 0x4C8;
/// EFER.
pub const EFER: u16 = 0x4D0;
/// CR4.
pub const CR4: u16 = 0x548;
/// CR3.
pub const CR3: u16 = 0x550;
/// CR0.
pub const CR0: u16 = 0x558;
/// DR7.
pub const DR7: u16 = 0x560;
/// DR6.
pub const DR6: u16 = 0x568;
/// RFLAGS.
pub const RFLAGS: u16 = 0x570;
/// RIP.
pub const RIP: u16 = 0x578;
/// RSP.
pub const RSP: u16 = 0x5D8;
/// RAX.
pub const RAX: u16 = 0x5F8;
/// CR2.
pub const CR2: u16 = 0x640;
/// Guest PAT.
pub const G_PAT: u16 = 0x668;
/// Segment registers: selector, attributes, limit in one word, base in the next.
pub const ES: u16 = 0x400;
/// See [`ES`].
pub const CS: u16 = 0x410;
/// See [`ES`].
pub const SS: u16 = 0x420;
/// See [`ES`].
pub const DS: u16 = 0x430;
/// See [`ES`].
pub const FS: u16 = 0x440;
/// See [`ES`].
pub const GS: u16 = 0x450;
/// See [`ES`].
pub const GDTR: u16 = 0x460;
/// See [`ES`].
pub const LDTR: u16 = 0x470;
/// See [`ES`].
pub const IDTR: u16 = 0x480;
/// See [`ES`].
pub const TR: u16 = 0x490;

/// Intercepts of word 3 (bits 31:0) and word 4 (bits 63:32).
pub mod intercept {
    /// NMI: the monitors' doorbell.
    pub const NMI: u64 = 1 << 1;
    /// SMI.
    pub const SMI: u64 = 1 << 2;
    /// INIT.
    pub const INIT: u64 = 1 << 3;
    /// CPUID.
    pub const CPUID: u64 = 1 << 18;
    /// RSM.
    pub const RSM: u64 = 1 << 19;
    /// INVD.
    pub const INVD: u64 = 1 << 22;
    /// INVLPGA.
    pub const INVLPGA: u64 = 1 << 26;
    /// Ports by bitmap.
    pub const IOIO: u64 = 1 << 27;
    /// MSRs by bitmap.
    pub const MSR: u64 = 1 << 28;
    /// FERR freeze.
    pub const FERR_FREEZE: u64 = 1 << 30;
    /// Shutdown (triple fault).
    pub const SHUTDOWN: u64 = 1 << 31;
    /// VMRUN; must be set.
    pub const VMRUN: u64 = 1 << 32;
    /// VMMCALL.
    pub const VMMCALL: u64 = 1 << 33;
    /// VMLOAD.
    pub const VMLOAD: u64 = 1 << 34;
    /// VMSAVE.
    pub const VMSAVE: u64 = 1 << 35;
    /// STGI.
    pub const STGI: u64 = 1 << 36;
    /// CLGI.
    pub const CLGI: u64 = 1 << 37;
    /// SKINIT.
    pub const SKINIT: u64 = 1 << 38;
    /// WBINVD.
    pub const WBINVD: u64 = 1 << 41;
    /// MONITOR.
    pub const MONITOR: u64 = 1 << 42;
    /// MWAIT.
    pub const MWAIT: u64 = 1 << 43;
    /// MWAIT when armed.
    pub const MWAIT_ARMED: u64 = 1 << 44;
}

/// What every guest is intercepted on.
pub const INTERCEPT_ALL: u64 = {
    use intercept::*;
    NMI | SMI
        | INIT
        | CPUID
        | RSM
        | INVD
        | INVLPGA
        | IOIO
        | MSR
        | FERR_FREEZE
        | SHUTDOWN
        | VMRUN
        | VMMCALL
        | VMLOAD
        | VMSAVE
        | STGI
        | CLGI
        | SKINIT
        | WBINVD
        | MONITOR
        | MWAIT
        | MWAIT_ARMED
};
/// INVLPGB and TLBSYNC (word 5, bits 0, 1 and 4): they reach other cores' TLBs.
pub const INTERCEPT_BROADCAST: u64 = 0b1_0011;
/// #DB, #AC and #MC: on real processors a guest can loop in the delivery of the
/// first two for ever and shut the doorbell out.
pub const EXCEPTION_BITS: u64 = 1 << 1 | 1 << 17 | 1 << 18;

/// Exit codes (APM, appendix C).
pub mod exit {
    /// First exception; the vector is added.
    pub const EXCEPTION: u32 = 0x40;
    /// NMI.
    pub const NMI: u32 = 0x61;
    /// SMI.
    pub const SMI: u32 = 0x62;
    /// INIT.
    pub const INIT: u32 = 0x63;
    /// CPUID.
    pub const CPUID: u32 = 0x72;
    /// INVD.
    pub const INVD: u32 = 0x76;
    /// I/O.
    pub const IOIO: u32 = 0x7B;
    /// MSR; EXITINFO1 = 1 for a write.
    pub const MSR: u32 = 0x7C;
    /// Shutdown.
    pub const SHUTDOWN: u32 = 0x7F;
    /// VMMCALL.
    pub const VMMCALL: u32 = 0x81;
    /// WBINVD.
    pub const WBINVD: u32 = 0x89;
    /// Nested page fault.
    pub const NPF: u32 = 0x400;
    /// The guest's state is refused.
    pub const INVALID: u32 = 0xFFFF_FFFF;
}

/// EVENTINJ: valid.
pub const INJECT_VALID: u64 = 1 << 31;
/// EVENTINJ: an exception; the vector is added.
pub const INJECT_EXCEPTION: u64 = INJECT_VALID | 3 << 8;
/// EVENTINJ: an interrupt with the NMI's vector. As type NMI it would block NMIs,
/// and so the doorbell, until the guest chooses to execute IRET (APM 15.20, 15.21.9).
pub const INJECT_NMI: u64 = INJECT_VALID | 2;
/// EVENTINJ: push the error code in bits 63:32.
pub const INJECT_ERROR: u64 = 1 << 11;
/// #UD.
pub const UD: u64 = INJECT_EXCEPTION | 6;
/// #GP(0).
pub const GP: u64 = INJECT_EXCEPTION | INJECT_ERROR | 13;

/// EFER.SVME.
pub const EFER_SVME: u64 = 1 << 12;
/// EFER.LME.
pub const EFER_LME: u64 = 1 << 8;
/// EFER.LMA.
pub const EFER_LMA: u64 = 1 << 10;
/// Bits of EFER that a guest may set: SCE, LME, NXE, LMSLE, FFXSR, TCE, AIBRSE.
pub const EFER_GUEST: u64 = 1 | EFER_LME | 1 << 11 | 1 << 13 | 1 << 14 | 1 << 15 | 1 << 21;

/// TLB control: flush everything (APM 15.16.1).
pub const TLB_FLUSH_ALL: u64 = 1 << 32;
/// TLB control: flush this guest's entries.
pub const TLB_FLUSH_GUEST: u64 = 3 << 32;
