//! Offsets and bits of the virtual machine control block (APM, appendix B) that
//! a monitor uses; the host's are in `bulkhead_arch_x86::vmcb`.

/// Intercepted exceptions by vector (bits 31:0) and intercept word 3 (bits 63:32).
pub const INTERCEPT_LOW: u16 = 0x008;
/// ASID (bits 31:0) and TLB control (39:32).
pub const ASID: u16 = 0x058;
/// Virtual interrupts: their masking is bit 24.
pub const INT_CTL: u16 = 0x060;
/// Bit 0: the instruction before blocks interrupts for this one.
pub const INTERRUPT_SHADOW: u16 = 0x068;
/// Why the guest was left (APM, appendix C).
pub const EXIT_CODE: u16 = 0x070;
/// First exit detail.
pub const EXIT_INFO1: u16 = 0x078;
/// Second exit detail.
pub const EXIT_INFO2: u16 = 0x080;
/// Event to inject.
pub const EVENT_INJ: u16 = 0x0A8;
/// Clean bits.
pub const CLEAN: u16 = 0x0C0;
/// RIP after the intercepted instruction, where CPUID 8000_000A EDX bit 3 says so;
/// otherwise nobody writes it.
pub const NEXT_RIP: u16 = 0x0C8;
/// Number of fetched instruction bytes and the first seven, then eight more, where
/// CPUID 8000_000A EDX bit 7 says so; otherwise nobody writes them.
pub const FETCHED: u16 = 0x0D0;
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
/// RFLAGS.
pub const RFLAGS: u16 = 0x570;
/// RIP.
pub const RIP: u16 = 0x578;
/// RSP.
pub const RSP: u16 = 0x5D8;
/// RAX.
pub const RAX: u16 = 0x5F8;
/// CS: selector, attributes, limit in one word, base in the next.
pub const CS: u16 = 0x410;

/// Intercept of CPUID, in word 3.
pub const INTERCEPT_CPUID: u64 = 1 << 18;

/// Exit codes (APM, appendix C).
pub mod exit {
    /// First exception; the vector is added.
    pub const EXCEPTION: u32 = 0x40;
    /// #DB.
    pub const DEBUG: u32 = EXCEPTION + 1;
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
    /// INT1 (ICEBP).
    pub const INT1: u32 = 0x88;
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
/// Vector of #DB.
pub const DB: u8 = 1;
/// Vector of an NMI.
pub const NMI: u8 = 2;
/// Vector of #UD.
pub const UD: u8 = 6;
/// Vector of #GP.
pub const GP: u8 = 13;

/// Tells if the handler of an exception expects an error code (APM 8.2): #DF, #TS, #NP, #SS, #GP, #PF, #AC, #CP.
#[must_use]
pub const fn has_error_code(vector: u8) -> bool {
    const WITH_ERROR: u32 = 1 << 8 | 0b1_1111 << 10 | 1 << 17 | 1 << 21;
    WITH_ERROR >> (vector & 31) & 1 != 0
}

/// EVENTINJ for an exception by its vector, with an error code of 0 where its handler expects one.
#[must_use]
pub const fn event(vector: u8) -> u64 {
    if vector == NMI {
        return INJECT_NMI;
    }
    let error = if has_error_code(vector) { INJECT_ERROR } else { 0 };
    INJECT_EXCEPTION | error | vector as u64
}

/// EFER.SVME.
pub const EFER_SVME: u64 = 1 << 12;
/// EFER.LME.
pub const EFER_LME: u64 = 1 << 8;
/// EFER.LMA.
pub const EFER_LMA: u64 = 1 << 10;
/// Finds the bits of EFER that a guest may set: SCE, LME, NXE, and FFXSR, TCE and AIBRSE where the processor has them.
/// CPUID says so: EDX and ECX of 8000_0001, EAX of 8000_0021. VMRUN refuses a guest that has another one (APM 15.5.1),
/// so a write of it has to fault. No guest may set LMSLE: not every processor's CPUID says if it has that.
#[must_use]
pub const fn efer_guest(edx: u32, ecx: u32, more: u32) -> u64 {
    let ffxsr = (edx >> 25 & 1) << 14;
    let tce = (ecx >> 17 & 1) << 15;
    let aibrse = (more >> 8 & 1) << 21;
    1 | EFER_LME | 1 << 11 | (ffxsr | tce | aibrse) as u64
}

/// TLB control: flush all entries.
pub const TLB_FLUSH_ALL: u64 = 1 << 32;
/// TLB control: flush this guest's entries.
pub const TLB_FLUSH_GUEST: u64 = 3 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_is_injected_as_its_handler_expects_it() {
        assert_eq!(event(1), 0x8000_0301);
        assert_eq!(event(UD), 0x8000_0306);
        assert_eq!(event(GP), 0x8000_0B0D);
        assert_eq!(event(17), 0x8000_0B11);
        assert_eq!(event(18), 0x8000_0312);
        assert_eq!(event(NMI), 0x8000_0002, "as an interrupt: an NMI would block doorbells");
    }

    #[test]
    fn a_guest_sets_no_bit_of_efer_that_the_processor_lacks() {
        let always = 1 | EFER_LME | 1 << 11;
        assert_eq!(efer_guest(0, 0, 0), always);
        assert_eq!(efer_guest(1 << 25, 0, 0), always | 1 << 14);
        assert_eq!(efer_guest(0, 1 << 17, 0), always | 1 << 15);
        assert_eq!(efer_guest(0, 0, 1 << 8), always | 1 << 21);
        // LMSLE and what is reserved.
        assert_eq!(efer_guest(u32::MAX, u32::MAX, u32::MAX), always | 1 << 14 | 1 << 15 | 1 << 21);
    }
}
