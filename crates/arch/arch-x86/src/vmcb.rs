//! The virtual machine control block (APM, appendix B): what a monitor uses of
//! it, and what only its start state needs.

pub use bulkhead_monitor_abi_x86::vmcb::*;

/// Intercept words 4 (bits 31:0) and 5 (bits 63:32).
pub const INTERCEPT_HIGH: u16 = 0x010;
/// I/O permission map.
pub const IOPM: u16 = 0x040;
/// MSR permission map.
pub const MSRPM: u16 = 0x048;
/// Virtual interrupt control.
pub const V_INTR: u16 = 0x060;
/// Nested paging enable.
pub const NP_ENABLE: u16 = 0x090;
/// Root of the nested tables.
pub const N_CR3: u16 = 0x0B0;
/// CR3.
pub const CR3: u16 = 0x550;
/// DR7.
pub const DR7: u16 = 0x560;
/// DR6.
pub const DR6: u16 = 0x568;
/// RFLAGS.
pub const RFLAGS: u16 = 0x570;
/// RSP.
pub const RSP: u16 = 0x5D8;
/// CR2.
pub const CR2: u16 = 0x640;
/// Guest PAT.
pub const G_PAT: u16 = 0x668;
/// Segment registers: selector, attributes, limit in one word, base in the next.
pub const ES: u16 = 0x400;
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
    pub const CPUID: u64 = super::INTERCEPT_CPUID;
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
    /// INT1 (ICEBP).
    pub const INT1: u64 = 1 << 40;
    /// WBINVD.
    pub const WBINVD: u64 = 1 << 41;
    /// MONITOR.
    pub const MONITOR: u64 = 1 << 42;
    /// MWAIT.
    pub const MWAIT: u64 = 1 << 43;
    /// MWAIT when armed.
    pub const MWAIT_ARMED: u64 = 1 << 44;
}

/// Intercepts of every guest.
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
/// TLB control: flush everything (APM 15.16.1).
pub const TLB_FLUSH_ALL: u64 = 1 << 32;
