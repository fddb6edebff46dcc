//! Fields of the virtual machine control structure (VMCS), its controls and the reasons of exits. Names and sections
//! are those of Intel's Software Developer's Manual, volume 3 (SDM), revision 085. A launch record of a
//! VT-x guest names fields by these encodings; the monitor writes them with VMWRITE.

/// Encodings of fields (SDM, appendix B).
pub mod field {
    /// Tag of the guest's translations.
    pub const VPID: u16 = 0x0000;
    /// Guest's ES selector; CS, SS, DS, FS, GS, LDTR and TR follow, 2 apart.
    pub const GUEST_ES: u16 = 0x0800;
    /// Guest's CS selector.
    pub const GUEST_CS: u16 = 0x0802;
    /// Guest's SS selector.
    pub const GUEST_SS: u16 = 0x0804;
    /// Guest's DS selector.
    pub const GUEST_DS: u16 = 0x0806;
    /// Guest's FS selector.
    pub const GUEST_FS: u16 = 0x0808;
    /// Guest's GS selector.
    pub const GUEST_GS: u16 = 0x080A;
    /// Guest's LDTR selector.
    pub const GUEST_LDTR: u16 = 0x080C;
    /// Guest's TR selector.
    pub const GUEST_TR: u16 = 0x080E;
    /// Monitor's ES selector; CS, SS, DS, FS, GS and TR follow, 2 apart.
    pub const HOST_ES: u16 = 0x0C00;
    /// Monitor's CS selector.
    pub const HOST_CS: u16 = 0x0C02;
    /// Monitor's SS selector.
    pub const HOST_SS: u16 = 0x0C04;
    /// Monitor's DS selector.
    pub const HOST_DS: u16 = 0x0C06;
    /// Monitor's FS selector.
    pub const HOST_FS: u16 = 0x0C08;
    /// Monitor's GS selector.
    pub const HOST_GS: u16 = 0x0C0A;
    /// Monitor's TR selector.
    pub const HOST_TR: u16 = 0x0C0C;

    /// Physical address of the bitmap of ports 0 to 0x7FFF.
    pub const IO_BITMAP_A: u16 = 0x2000;
    /// Physical address of the bitmap of ports 0x8000 to 0xFFFF.
    pub const IO_BITMAP_B: u16 = 0x2002;
    /// Physical address of the MSR bitmap.
    pub const MSR_BITMAP: u16 = 0x2004;
    /// Physical address of the list of MSRs that an exit stores.
    pub const EXIT_MSR_STORE: u16 = 0x2006;
    /// Physical address of the list of MSRs that an exit loads.
    pub const EXIT_MSR_LOAD: u16 = 0x2008;
    /// Physical address of the list of MSRs that an entry loads.
    pub const ENTRY_MSR_LOAD: u16 = 0x200A;
    /// Offset of the guest's TSC.
    pub const TSC_OFFSET: u16 = 0x2010;
    /// EPT pointer ([`super::EPTP`]).
    pub const EPT_POINTER: u16 = 0x201A;
    /// Bits of IA32_XSS that exit in XSAVES and XRSTORS. Only with [`super::secondary::XSAVES`].
    pub const XSS_EXITING: u16 = 0x202C;
    /// Guest-physical address that an EPT violation or misconfiguration tells.
    pub const GUEST_PHYSICAL_ADDRESS: u16 = 0x2400;
    /// VMCS link pointer: all ones.
    pub const LINK_POINTER: u16 = 0x2800;
    /// Guest's IA32_DEBUGCTL.
    pub const GUEST_DEBUGCTL: u16 = 0x2802;
    /// Guest's IA32_PAT.
    pub const GUEST_PAT: u16 = 0x2804;
    /// Guest's IA32_EFER.
    pub const GUEST_EFER: u16 = 0x2806;
    /// Guest's IA32_PERF_GLOBAL_CTRL.
    pub const GUEST_PERF_GLOBAL_CTRL: u16 = 0x2808;
    /// Guest's first page-directory-pointer entry under PAE paging; three more follow, 2 apart.
    pub const GUEST_PDPTE0: u16 = 0x280A;
    /// Monitor's IA32_PAT.
    pub const HOST_PAT: u16 = 0x2C00;
    /// Monitor's IA32_EFER.
    pub const HOST_EFER: u16 = 0x2C02;
    /// Monitor's IA32_PERF_GLOBAL_CTRL.
    pub const HOST_PERF_GLOBAL_CTRL: u16 = 0x2C04;

    /// Pin-based controls ([`super::pin`]).
    pub const PIN_CONTROLS: u16 = 0x4000;
    /// Primary processor-based controls ([`super::primary`]).
    pub const PRIMARY_CONTROLS: u16 = 0x4002;
    /// Exceptions that exit, by vector.
    pub const EXCEPTION_BITMAP: u16 = 0x4004;
    /// Mask of page faults' error codes.
    pub const PAGE_FAULT_MASK: u16 = 0x4006;
    /// Value that a masked error code is compared with.
    pub const PAGE_FAULT_MATCH: u16 = 0x4008;
    /// Number of values that a CR3 write may have without an exit.
    pub const CR3_TARGETS: u16 = 0x400A;
    /// Exit controls ([`super::exit_control`]).
    pub const EXIT_CONTROLS: u16 = 0x400C;
    /// Number of MSRs that an exit stores.
    pub const EXIT_MSR_STORES: u16 = 0x400E;
    /// Number of MSRs that an exit loads.
    pub const EXIT_MSR_LOADS: u16 = 0x4010;
    /// Entry controls ([`super::entry_control`]).
    pub const ENTRY_CONTROLS: u16 = 0x4012;
    /// Number of MSRs that an entry loads.
    pub const ENTRY_MSR_LOADS: u16 = 0x4014;
    /// Event that an entry injects ([`super::event`]).
    pub const ENTRY_EVENT: u16 = 0x4016;
    /// Error code of that event.
    pub const ENTRY_ERROR_CODE: u16 = 0x4018;
    /// Bytes of the instruction that makes that event.
    pub const ENTRY_LENGTH: u16 = 0x401A;
    /// Secondary processor-based controls ([`super::secondary`]).
    pub const SECONDARY_CONTROLS: u16 = 0x401E;

    /// Error of the last VMX instruction that failed (SDM 31.4).
    pub const INSTRUCTION_ERROR: u16 = 0x4400;
    /// Reason of the exit ([`super::exit`]).
    pub const EXIT_REASON: u16 = 0x4402;
    /// Event that caused the exit.
    pub const EXIT_EVENT: u16 = 0x4404;
    /// Error code of that event.
    pub const EXIT_ERROR_CODE: u16 = 0x4406;
    /// Event: the exit broke off its delivery.
    pub const VECTORING_EVENT: u16 = 0x4408;
    /// Error code of that event.
    pub const VECTORING_ERROR_CODE: u16 = 0x440A;
    /// Bytes of the instruction that caused the exit.
    pub const EXIT_LENGTH: u16 = 0x440C;
    /// Details of the instruction that caused the exit.
    pub const EXIT_INSTRUCTION: u16 = 0x440E;

    /// Limit of the guest's ES; CS, SS, DS, FS, GS, LDTR, TR, GDTR and IDTR follow, 2 apart.
    pub const GUEST_ES_LIMIT: u16 = 0x4800;
    /// Limit of the guest's GDTR.
    pub const GUEST_GDTR_LIMIT: u16 = 0x4810;
    /// Limit of the guest's IDTR.
    pub const GUEST_IDTR_LIMIT: u16 = 0x4812;
    /// Access rights of the guest's ES; CS, SS, DS, FS, GS, LDTR and TR follow, 2 apart.
    pub const GUEST_ES_RIGHTS: u16 = 0x4814;
    /// Access rights of the guest's CS.
    pub const GUEST_CS_RIGHTS: u16 = 0x4816;
    /// Access rights of the guest's SS; their DPL is the guest's privilege level (SDM 25.4.1).
    pub const GUEST_SS_RIGHTS: u16 = 0x4818;
    /// Guest's interruptibility ([`super::blocking`]).
    pub const GUEST_INTERRUPTIBILITY: u16 = 0x4824;
    /// Guest's activity ([`super::activity`]).
    pub const GUEST_ACTIVITY: u16 = 0x4826;
    /// Guest's SMBASE.
    pub const GUEST_SMBASE: u16 = 0x4828;
    /// Preemption timer.
    pub const TIMER: u16 = 0x482E;
    /// Guest's IA32_SYSENTER_CS.
    pub const GUEST_SYSENTER_CS: u16 = 0x482A;
    /// Monitor's IA32_SYSENTER_CS.
    pub const HOST_SYSENTER_CS: u16 = 0x4C00;

    /// Bits of CR0 that are the monitor's.
    pub const CR0_MASK: u16 = 0x6000;
    /// Bits of CR4 that are the monitor's.
    pub const CR4_MASK: u16 = 0x6002;
    /// Values of the monitor's bits of CR0 that the guest reads.
    pub const CR0_SHADOW: u16 = 0x6004;
    /// Values of the monitor's bits of CR4 that the guest reads.
    pub const CR4_SHADOW: u16 = 0x6006;
    /// Qualification of the exit (SDM 28.2.1).
    pub const QUALIFICATION: u16 = 0x6400;
    /// Guest-linear address that the exit tells.
    pub const GUEST_LINEAR_ADDRESS: u16 = 0x640A;

    /// Guest's CR0.
    pub const GUEST_CR0: u16 = 0x6800;
    /// Guest's CR3.
    pub const GUEST_CR3: u16 = 0x6802;
    /// Guest's CR4.
    pub const GUEST_CR4: u16 = 0x6804;
    /// Base of the guest's ES; CS, SS, DS, FS, GS, LDTR, TR, GDTR and IDTR follow, 2 apart.
    pub const GUEST_ES_BASE: u16 = 0x6806;
    /// Base of the guest's CS.
    pub const GUEST_CS_BASE: u16 = 0x6808;
    /// Base of the guest's GDTR.
    pub const GUEST_GDTR_BASE: u16 = 0x6816;
    /// Base of the guest's IDTR.
    pub const GUEST_IDTR_BASE: u16 = 0x6818;
    /// Guest's DR7.
    pub const GUEST_DR7: u16 = 0x681A;
    /// Guest's RSP.
    pub const GUEST_RSP: u16 = 0x681C;
    /// Guest's RIP.
    pub const GUEST_RIP: u16 = 0x681E;
    /// Guest's RFLAGS.
    pub const GUEST_RFLAGS: u16 = 0x6820;
    /// Guest's debug exceptions that are pending.
    pub const GUEST_PENDING_DEBUG: u16 = 0x6822;
    /// Guest's IA32_SYSENTER_ESP.
    pub const GUEST_SYSENTER_ESP: u16 = 0x6824;
    /// Guest's IA32_SYSENTER_EIP.
    pub const GUEST_SYSENTER_EIP: u16 = 0x6826;

    /// Monitor's CR0.
    pub const HOST_CR0: u16 = 0x6C00;
    /// Monitor's CR3.
    pub const HOST_CR3: u16 = 0x6C02;
    /// Monitor's CR4.
    pub const HOST_CR4: u16 = 0x6C04;
    /// Base of the monitor's FS.
    pub const HOST_FS_BASE: u16 = 0x6C06;
    /// Base of the monitor's GS.
    pub const HOST_GS_BASE: u16 = 0x6C08;
    /// Base of the monitor's TR.
    pub const HOST_TR_BASE: u16 = 0x6C0A;
    /// Base of the monitor's GDTR.
    pub const HOST_GDTR_BASE: u16 = 0x6C0C;
    /// Base of the monitor's IDTR.
    pub const HOST_IDTR_BASE: u16 = 0x6C0E;
    /// Monitor's IA32_SYSENTER_ESP.
    pub const HOST_SYSENTER_ESP: u16 = 0x6C10;
    /// Monitor's IA32_SYSENTER_EIP.
    pub const HOST_SYSENTER_EIP: u16 = 0x6C12;
    /// Monitor's RSP.
    pub const HOST_RSP: u16 = 0x6C14;
    /// Monitor's RIP.
    pub const HOST_RIP: u16 = 0x6C16;
}

/// Pin-based controls (SDM 25.6.1).
pub mod pin {
    /// NMIs exit: the monitors' doorbell.
    pub const NMI: u32 = 1 << 3;
    /// The preemption timer counts: with a watchdog. At 0 the guest is left before its first instruction, after an
    /// event that the entry has injected.
    pub const TIMER: u32 = 1 << 6;
    /// Those of each guest. External interrupts go through the guest's IDT.
    pub const WANTED: u32 = NMI;
}

/// Primary processor-based controls (SDM 25.6.2).
pub mod primary {
    /// MWAIT exits.
    pub const MWAIT: u32 = 1 << 10;
    /// Ports exit by the I/O bitmaps.
    pub const IO_BITMAPS: u32 = 1 << 25;
    /// MSRs exit by the MSR bitmap.
    pub const MSR_BITMAPS: u32 = 1 << 28;
    /// MONITOR exits.
    pub const MONITOR: u32 = 1 << 29;
    /// Secondary controls count.
    pub const SECONDARY: u32 = 1 << 31;
    /// Those of each guest.
    pub const WANTED: u32 = MWAIT | IO_BITMAPS | MSR_BITMAPS | MONITOR | SECONDARY;
    /// Those that must be off, so that a processor must allow it. They are exits at HLT, INVLPG, RDPMC, RDTSC and
    /// PAUSE, and at accesses to CR3, CR8 and the debug registers.
    pub const UNWANTED: u32 =
        1 << 7 | 1 << 9 | 1 << 11 | 1 << 12 | 0b11 << 15 | 0b11 << 19 | 1 << 23 | 1 << 24 | 1 << 30;
}

/// Secondary processor-based controls (SDM 25.6.2).
pub mod secondary {
    /// Nested tables: EPT.
    pub const EPT: u32 = 1 << 1;
    /// RDTSCP does not fault.
    pub const RDTSCP: u32 = 1 << 3;
    /// Translations have a tag.
    pub const VPID: u32 = 1 << 5;
    /// WBINVD exits.
    pub const WBINVD: u32 = 1 << 6;
    /// The guest may run in real mode and without paging.
    pub const UNRESTRICTED: u32 = 1 << 7;
    /// INVPCID does not fault.
    pub const INVPCID: u32 = 1 << 12;
    /// XSAVES and XRSTORS do not fault.
    pub const XSAVES: u32 = 1 << 20;
    /// Those of each guest.
    pub const WANTED: u32 = EPT | VPID | WBINVD | UNRESTRICTED;
    /// Those of each guest on a processor that has them. The monitor drops the ones that the processor lacks.
    pub const WHERE_THERE: u32 = RDTSCP | INVPCID | XSAVES;
}

/// Exit controls (SDM 25.7.1).
pub mod exit_control {
    /// An exit saves DR7 and IA32_DEBUGCTL.
    pub const SAVE_DEBUG: u32 = 1 << 2;
    /// The monitor runs in 64-bit mode.
    pub const HOST_64: u32 = 1 << 9;
    /// An exit saves IA32_PAT.
    pub const SAVE_PAT: u32 = 1 << 18;
    /// An exit loads IA32_PAT.
    pub const LOAD_PAT: u32 = 1 << 19;
    /// An exit saves IA32_EFER.
    pub const SAVE_EFER: u32 = 1 << 20;
    /// An exit loads IA32_EFER.
    pub const LOAD_EFER: u32 = 1 << 21;
    /// An exit saves the preemption timer. With a watchdog.
    pub const SAVE_TIMER: u32 = 1 << 22;
    /// Those of each guest.
    pub const WANTED: u32 = SAVE_DEBUG | HOST_64 | SAVE_PAT | LOAD_PAT | SAVE_EFER | LOAD_EFER;
}

/// Entry controls (SDM 25.8.1).
pub mod entry_control {
    /// An entry loads DR7 and IA32_DEBUGCTL.
    pub const LOAD_DEBUG: u32 = 1 << 2;
    /// The guest is in IA-32e mode. An exit sets the bit as EFER.LMA is (SDM 28.2, 28.3.1).
    pub const IA32E: u32 = 1 << 9;
    /// An entry loads IA32_PAT.
    pub const LOAD_PAT: u32 = 1 << 14;
    /// An entry loads IA32_EFER.
    pub const LOAD_EFER: u32 = 1 << 15;
    /// Those of each guest; [`IA32E`] is one of its start state.
    pub const WANTED: u32 = LOAD_DEBUG | LOAD_PAT | LOAD_EFER;
}

/// Interruptibility (SDM 25.4.2).
pub mod blocking {
    /// STI blocks interrupts for one instruction.
    pub const STI: u64 = 1 << 0;
    /// MOV SS or POP SS does.
    pub const MOV_SS: u64 = 1 << 1;
    /// System-management interrupts are blocked.
    pub const SMI: u64 = 1 << 2;
    /// Non-maskable interrupts are blocked.
    pub const NMI: u64 = 1 << 3;
}

/// Activity (SDM 25.4.2).
pub mod activity {
    /// The guest executes instructions.
    pub const ACTIVE: u64 = 0;
    /// The guest has executed HLT.
    pub const HLT: u64 = 1;
}

/// Reasons of exits (SDM, appendix C): bits 15:0 of [`field::EXIT_REASON`].
pub mod exit {
    /// Exception or NMI.
    pub const EXCEPTION_OR_NMI: u16 = 0;
    /// External interrupt.
    pub const INTERRUPT: u16 = 1;
    /// Triple fault.
    pub const TRIPLE_FAULT: u16 = 2;
    /// INIT.
    pub const INIT: u16 = 3;
    /// Start-up IPI.
    pub const SIPI: u16 = 4;
    /// Task switch.
    pub const TASK_SWITCH: u16 = 9;
    /// CPUID.
    pub const CPUID: u16 = 10;
    /// GETSEC.
    pub const GETSEC: u16 = 11;
    /// INVD.
    pub const INVD: u16 = 13;
    /// VMCALL.
    pub const VMCALL: u16 = 18;
    /// VMCLEAR: the first of the VMX instructions without a use for a guest.
    pub const VMCLEAR: u16 = 19;
    /// VMXON: the last of them with consecutive numbers.
    pub const VMXON: u16 = 27;
    /// Access to a control register.
    pub const CONTROL_REGISTER: u16 = 28;
    /// IN, OUT, INS or OUTS.
    pub const IO: u16 = 30;
    /// RDMSR.
    pub const RDMSR: u16 = 31;
    /// WRMSR.
    pub const WRMSR: u16 = 32;
    /// The entry failed: the guest's state is refused.
    pub const INVALID_STATE: u16 = 33;
    /// The entry failed: an MSR of its list cannot be loaded.
    pub const MSR_LOADING: u16 = 34;
    /// MWAIT.
    pub const MWAIT: u16 = 36;
    /// MONITOR.
    pub const MONITOR: u16 = 39;
    /// The entry failed: machine check.
    pub const MACHINE_CHECK: u16 = 41;
    /// EPT violation.
    pub const EPT_VIOLATION: u16 = 48;
    /// EPT misconfiguration: a fault of the tables, never of the guest.
    pub const EPT_MISCONFIGURATION: u16 = 49;
    /// INVEPT.
    pub const INVEPT: u16 = 50;
    /// Preemption timer.
    pub const TIMER: u16 = 52;
    /// INVVPID.
    pub const INVVPID: u16 = 53;
    /// WBINVD or WBNOINVD.
    pub const WBINVD: u16 = 54;
    /// XSETBV.
    pub const XSETBV: u16 = 55;
    /// In [`super::field::EXIT_REASON`]: the entry failed.
    pub const ENTRY_FAILED: u64 = 1 << 31;
}

/// Numbers of the model-specific registers that VT-x has (SDM, appendix A; volume 4).
pub mod msr {
    /// IA32_FEATURE_CONTROL.
    pub const FEATURE_CONTROL: u32 = 0x3A;
    /// IA32_VMX_BASIC.
    pub const BASIC: u32 = 0x480;
    /// IA32_VMX_PINBASED_CTLS.
    pub const PIN: u32 = 0x481;
    /// IA32_VMX_PROCBASED_CTLS.
    pub const PRIMARY: u32 = 0x482;
    /// IA32_VMX_EXIT_CTLS.
    pub const EXIT: u32 = 0x483;
    /// IA32_VMX_ENTRY_CTLS.
    pub const ENTRY: u32 = 0x484;
    /// IA32_VMX_MISC.
    pub const MISC: u32 = 0x485;
    /// IA32_VMX_CR0_FIXED0: bits that must be 1.
    pub const CR0_FIXED0: u32 = 0x486;
    /// IA32_VMX_CR0_FIXED1: bits that may be 1.
    pub const CR0_FIXED1: u32 = 0x487;
    /// IA32_VMX_CR4_FIXED0: bits that must be 1.
    pub const CR4_FIXED0: u32 = 0x488;
    /// IA32_VMX_CR4_FIXED1: bits that may be 1.
    pub const CR4_FIXED1: u32 = 0x489;
    /// IA32_VMX_PROCBASED_CTLS2.
    pub const SECONDARY: u32 = 0x48B;
    /// IA32_VMX_EPT_VPID_CAP.
    pub const EPT_VPID: u32 = 0x48C;
    /// IA32_VMX_TRUE_PINBASED_CTLS.
    pub const TRUE_PIN: u32 = 0x48D;
    /// IA32_VMX_TRUE_PROCBASED_CTLS.
    pub const TRUE_PRIMARY: u32 = 0x48E;
    /// IA32_VMX_TRUE_EXIT_CTLS.
    pub const TRUE_EXIT: u32 = 0x48F;
    /// IA32_VMX_TRUE_ENTRY_CTLS.
    pub const TRUE_ENTRY: u32 = 0x490;
    /// In [`FEATURE_CONTROL`]: the register is locked.
    pub const LOCKED: u64 = 1 << 0;
    /// In [`FEATURE_CONTROL`]: VMXON works outside SMX.
    pub const VMX_OUTSIDE_SMX: u64 = 1 << 2;
    /// In [`BASIC`]: the `TRUE` registers exist.
    pub const HAS_TRUE: u64 = 1 << 55;
}

/// Capabilities of EPT and VPID that a monitor needs (IA32_VMX_EPT_VPID_CAP, SDM appendix A.10).
pub mod ept_vpid {
    /// Page walks of 4 levels.
    pub const FOUR_LEVELS: u64 = 1 << 6;
    /// Tables may be write-back.
    pub const WRITE_BACK: u64 = 1 << 14;
    /// 2 MiB pages.
    pub const PAGES_2M: u64 = 1 << 16;
    /// 1 GiB pages.
    pub const PAGES_1G: u64 = 1 << 17;
    /// INVEPT, of one EPT pointer and of all.
    pub const INVEPT: u64 = 1 << 20 | 1 << 25 | 1 << 26;
    /// INVVPID, of one VPID and of all.
    pub const INVVPID: u64 = 1 << 32 | 1 << 41 | 1 << 42;
    /// All of them.
    pub const WANTED: u64 = FOUR_LEVELS | WRITE_BACK | PAGES_2M | PAGES_1G | INVEPT | INVVPID;
}

/// EPT pointer, without the root: write-back, a walk of 4 levels, no accessed and dirty bits (SDM 25.6.11).
pub const EPTP: u64 = 6 | 3 << 3;
/// INVEPT: translations by one EPT pointer (SDM 31.3).
pub const INVEPT_SINGLE: u64 = 1;
/// INVEPT: all translations by EPT pointers.
pub const INVEPT_ALL: u64 = 2;
/// INVVPID: translations with one VPID (SDM 31.3).
pub const INVVPID_SINGLE: u64 = 1;
/// INVVPID: translations with any VPID but 0.
pub const INVVPID_ALL: u64 = 2;
/// Error of a VMX instruction: VMRESUME wants a VMCS that was launched (SDM 31.4).
pub const NOT_LAUNCHED: u64 = 5;

/// CR0.NE.
pub const CR0_NE: u64 = 1 << 5;
/// CR0.NW.
pub const CR0_NW: u64 = 1 << 29;
/// CR0.CD.
pub const CR0_CD: u64 = 1 << 30;
/// CR4.VMXE.
pub const CR4_VMXE: u64 = 1 << 13;
/// CR4.SMXE.
pub const CR4_SMXE: u64 = 1 << 14;
/// Bits of CR0 that are the monitor's. VMX demands NE. Exits leave CD and NW as they are, so a guest would switch off
/// the monitor's cache (SDM 28.5.1). The guest sees its own values.
pub const CR0_MASK: u64 = CR0_NE | CR0_NW | CR0_CD;
/// Bits of CR4 that are the monitor's. The guest sees them clear.
pub const CR4_MASK: u64 = CR4_VMXE | CR4_SMXE;

/// Events (SDM 25.8.3): bits 7:0 vector, 10:8 type, 11 error code, 31 valid.
pub mod event {
    /// The event is one.
    pub const VALID: u64 = 1 << 31;
    /// With an error code.
    pub const ERROR: u64 = 1 << 11;
    /// Mask of the type.
    pub const TYPE: u64 = 0b111 << 8;
    /// Type of a non-maskable interrupt.
    pub const NMI: u64 = 2 << 8;
    /// Type of an exception.
    pub const EXCEPTION: u64 = 3 << 8;

    /// Returns the event of a vector, with an error code where its handler expects one: in protected mode (SDM
    /// 27.2.1.3).
    ///
    /// A guest's NMI goes as an exception with vector 2. An event of type NMI would block NMIs, and so the doorbell,
    /// until the guest chooses to execute IRET (SDM 27.6.1). An external interrupt would need RFLAGS.IF (27.3.1.4).
    #[must_use]
    pub const fn of(vector: u8, protected: bool) -> u64 {
        let error = if protected && crate::vmcb::has_error_code(vector) { ERROR } else { 0 };
        VALID | EXCEPTION | error | vector as u64
    }
}

/// Nested page fault: the entry was there, without the right (APM 15.25.6).
pub const NPF_PRESENT: u64 = 1 << 0;
/// Nested page fault: a write.
pub const NPF_WRITE: u64 = 1 << 1;
/// Nested page fault: a fetch.
pub const NPF_FETCH: u64 = 1 << 4;
/// Nested page fault: of the final address.
pub const NPF_FINAL: u64 = 1 << 32;
/// Nested page fault: in the walk of the guest's tables.
pub const NPF_WALK: u64 = 1 << 33;

/// Returns the qualification of an EPT violation (SDM 28.2.1) in the words of a nested page fault, so that both have
/// one reader. An access in the delivery of an event is none of the instruction at the guest's RIP, so it is not final
/// either.
#[must_use]
pub const fn violation(qualification: u64, delivers: bool) -> u64 {
    const FINAL: u64 = 0b11 << 7;
    let last = qualification & FINAL == FINAL && !delivers;
    let place = if last { NPF_FINAL } else { NPF_WALK };
    let write = (qualification >> 1 & 1) * NPF_WRITE;
    let fetch = (qualification >> 2 & 1) * NPF_FETCH;
    let present = if qualification >> 3 & 0b111 != 0 { NPF_PRESENT } else { 0 };
    place | write | fetch | present
}

/// Returns the read shadow of CR0 after the guest has written `value` to CR0. `None`: the write faults (SDM,
/// volume 2, MOV to control registers).
#[must_use]
pub const fn cr0_shadow(value: u64, shadow: u64) -> Option<u64> {
    if value & CR0_NW != 0 && value & CR0_CD == 0 {
        return None;
    }
    Some(shadow & !CR0_MASK | value & CR0_MASK)
}

/// Tells if a guest may not write this to CR4.
#[must_use]
pub const fn cr4_is_refused(value: u64) -> bool {
    value & CR4_MASK != 0
}

/// Tells if XSETBV takes a value for XCR0 (SDM, volume 1, 13.3), of the components in `seen`.
#[must_use]
pub fn xcr0_is_valid(value: u64, seen: u64) -> bool {
    const AVX: u64 = 1 << 2;
    const MPX: u64 = 0b11 << 3;
    const AVX512: u64 = 0b111 << 5;
    const AMX: u64 = 0b11 << 17;
    let whole = |part: u64| value & part == 0 || value & part == part;
    value & !seen == 0
        && value & 1 != 0
        && (value & AVX == 0 || value & 0b10 != 0)
        && whole(MPX)
        && whole(AVX512)
        && (value & AVX512 == 0 || value & AVX != 0)
        && whole(AMX)
}

/// Returns the control word for a processor: the wanted bits that it allows, and those that it demands. `capability` is
/// the control's MSR: bits 31:0 must be 1, 63:32 may be 1 (SDM, appendix A.2).
#[must_use]
pub const fn control(wanted: u32, capability: u64) -> u32 {
    wanted & (capability >> 32) as u32 | capability as u32
}

/// Register with the bits that a processor allows and demands in a field of controls; 0 for other fields. The boot code
/// has seen that the processor has these (SDM, appendix A).
#[must_use]
pub const fn capability(field: u16) -> u32 {
    match field {
        field::PIN_CONTROLS => msr::TRUE_PIN,
        field::PRIMARY_CONTROLS => msr::TRUE_PRIMARY,
        field::SECONDARY_CONTROLS => msr::SECONDARY,
        field::EXIT_CONTROLS => msr::TRUE_EXIT,
        field::ENTRY_CONTROLS => msr::TRUE_ENTRY,
        _ => 0,
    }
}

/// Wanted bits that a processor does not allow.
#[must_use]
pub const fn lacks(wanted: u32, capability: u64) -> u32 {
    wanted & !((capability >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_word_has_what_is_wanted_and_what_is_demanded() {
        // Bit 1 demanded, bits 0 to 3 allowed.
        let capability = 0b1111 << 32 | 0b10;
        assert_eq!(control(0b1_0100, capability), 0b0110);
        assert_eq!(lacks(0b1_0100, capability), 0b1_0000);
        assert_eq!(lacks(0b0100, capability), 0);
    }

    #[test]
    fn an_event_is_what_an_entry_accepts() {
        assert_eq!(event::of(6, true), 0x8000_0306);
        assert_eq!(event::of(13, true), 0x8000_0B0D);
        assert_eq!(event::of(13, false), 0x8000_030D, "real mode has no error codes");
        let nmi = event::of(2, true);
        assert_eq!(nmi, 0x8000_0302, "as an exception: an NMI would block doorbells");
    }

    #[test]
    fn a_violation_is_told_as_a_nested_page_fault() {
        // Read, write, fetch of a final address that the tables lack; then of one with rights.
        assert_eq!(violation(0x181, false), NPF_FINAL);
        assert_eq!(violation(0x182, false), NPF_FINAL | NPF_WRITE);
        assert_eq!(violation(0x184, false), NPF_FINAL | NPF_FETCH);
        assert_eq!(violation(0x18A, false), NPF_FINAL | NPF_WRITE | NPF_PRESENT);
        // A read-modify-write is a write.
        assert_eq!(violation(0x183, false) & NPF_WRITE, NPF_WRITE);
        // In the guest's own walk; without a linear address; while an event was delivered.
        assert_eq!(violation(0x081, false), NPF_WALK);
        assert_eq!(violation(0x001, false), NPF_WALK);
        assert_eq!(violation(0x182, true), NPF_WALK | NPF_WRITE);
    }

    #[test]
    fn a_guest_has_its_own_bits_in_cr0_and_none_of_the_monitors_in_cr4() {
        let shadow = CR0_CD | CR0_NW | 0x10;
        assert_eq!(cr0_shadow(0x8000_0033, shadow), Some(CR0_NE | 0x10));
        assert_eq!(cr0_shadow(CR0_CD | 0x11, 0), Some(CR0_CD));
        assert_eq!(
            cr0_shadow(CR0_NW | 0x11, 0),
            None,
            "write-through without cache-disable faults"
        );
        assert!(cr4_is_refused(CR4_VMXE | 0x20) && cr4_is_refused(CR4_SMXE));
        assert!(!cr4_is_refused(!CR4_MASK));
    }

    #[test]
    fn xcr0_is_what_xsetbv_takes() {
        let avx512 = 0b1110_0111;
        for good in [1, 0b11, 0b111, avx512, 0b1_1111, avx512 | 1 << 9] {
            assert!(xcr0_is_valid(good, u64::MAX), "{good:#x}");
        }
        let amx = 0b11 << 17;
        assert!(xcr0_is_valid(0b111 | amx, u64::MAX));
        // x87 missing; AVX without SSE; half of MPX, of AVX-512 and of AMX; AVX-512 without AVX.
        for bad in [0, 0b10, 0b101, 0b1011, 0b10_0111, 0b1110_0011, 0b111 | 1 << 17, 1 << 8 | 1] {
            assert!(!xcr0_is_valid(bad, !(1 << 8)), "{bad:#x}");
        }
        assert!(!xcr0_is_valid(0b111, 0b11), "not one that the guest does not see");
    }
}
