//! The state of a guest's core at its start, as fields of a VMCS. The host bakes them into launch records; the monitor
//! writes each with VMWRITE, and the fields of its own state beside them. References are to Intel's Software
//! Developer's Manual (SDM), volume 3, revision 085.

use crate::bitmap::Direct;
use crate::ept;
use crate::msr::DIRECT;
use crate::start::{Entry64, GDT, PAT_AT_RESET};
use crate::vmcb::{EFER_LMA, EFER_LME, EXCEPTION_BITS};

pub use bulkhead_monitor_abi_x86::vmcs::*;

/// Physical addresses and numbers that a VMCS refers to.
#[derive(Clone, Copy, Debug)]
pub struct Confinement {
    /// I/O bitmaps A and B, one after the other.
    pub io: u64,
    /// MSR bitmap.
    pub msrs: u64,
    /// Root of the extended page tables.
    pub ept: u64,
    /// Tag of the guest's translations, from 1 on.
    pub vpid: u16,
    /// A watchdog has the preemption timer.
    pub ticks: bool,
}

/// Bytes of the I/O bitmaps (25.6.4).
pub const IO_BITMAPS: usize = 2 * 4096;
/// Bytes of the MSR bitmap (25.6.9): reads of low and of high MSRs, then writes.
pub const MSR_BITMAP: usize = 4096;

/// Secondary controls of a guest. Without XSAVES, which [`crate::cpuid::INTEL`] hides, IA32_XSS stays as it is.
pub const SECONDARY: u32 = secondary::WANTED | secondary::WHERE_THERE & !secondary::XSAVES;

/// Returns the byte and bit of an MSR in the half for reads; writes follow 2 KiB on. `None`: the MSR is outside of both
/// ranges and exits always.
#[must_use]
pub fn msr_bit(msr: u32) -> Option<usize> {
    match msr & !0x1FFF {
        0 => Some(msr as usize),
        0xC000_0000 => Some(0x400 * 8 + (msr & 0x1FFF) as usize),
        _ => None,
    }
}

/// Lets a guest use an MSR directly.
pub fn allow_msr(map: &mut [u8], msr: u32, direct: Direct) {
    const WRITES: usize = 0x800;
    let Some(bit) = msr_bit(msr) else { return };
    if direct != Direct::Write {
        map[bit / 8] &= !(1 << (bit % 8));
    }
    if direct != Direct::Read {
        map[WRITES + bit / 8] &= !(1 << (bit % 8));
    }
}

/// The MSR bitmap of every guest, by the one policy ([`DIRECT`]).
pub fn msr_bitmap(map: &mut [u8; MSR_BITMAP]) {
    map.fill(0xFF);
    for &(first, last, direct) in DIRECT {
        (first..=last).for_each(|msr| allow_msr(map, msr, direct));
    }
}

/// Attributes of segments (25.4.1): present, accessed; granular where the limit is 4 GiB.
const CODE64: u64 = 0xA09B;
const DATA: u64 = 0xC093;
const REAL_CODE: u64 = 0x9B;
const REAL_DATA: u64 = 0x93;
const LDT: u64 = 0x82;
const TSS: u64 = 0x8B;

/// Positions in the fields of segments, which are 2 apart.
const CS: u16 = 1;
const LDTR: u16 = 6;
const TR: u16 = 7;

fn segment(out: &mut impl FnMut(u16, u64), n: u16, selector: u64, rights: u64, limit: u64) {
    out(field::GUEST_ES + 2 * n, selector);
    out(field::GUEST_ES_LIMIT + 2 * n, limit);
    out(field::GUEST_ES_RIGHTS + 2 * n, rights);
    out(field::GUEST_ES_BASE + 2 * n, 0);
}

/// All fields, zeros too: VMCLEAR leaves a region's contents open (25.11.3).
fn common(c: &Confinement, entry_controls: u32, out: &mut impl FnMut(u16, u64)) {
    use field::*;
    out(VPID, c.vpid.into());
    out(IO_BITMAP_A, c.io);
    out(IO_BITMAP_B, c.io + 4096);
    out(field::MSR_BITMAP, c.msrs);
    out(TSC_OFFSET, 0);
    out(EPT_POINTER, ept::pointer(c.ept));
    let (timer, saved) = if c.ticks { (pin::TIMER, exit_control::SAVE_TIMER) } else { (0, 0) };
    out(PIN_CONTROLS, (pin::WANTED | timer).into());
    out(PRIMARY_CONTROLS, primary::WANTED.into());
    out(SECONDARY_CONTROLS, SECONDARY.into());
    out(EXIT_CONTROLS, (exit_control::WANTED | saved).into());
    out(ENTRY_CONTROLS, entry_controls.into());
    out(EXCEPTION_BITMAP, EXCEPTION_BITS);
    out(CR0_MASK, bulkhead_monitor_abi_x86::vmcs::CR0_MASK);
    out(CR4_MASK, bulkhead_monitor_abi_x86::vmcs::CR4_MASK);
    for zero in [
        EXIT_MSR_STORE,
        EXIT_MSR_LOAD,
        ENTRY_MSR_LOAD,
        EXIT_MSR_STORES,
        EXIT_MSR_LOADS,
        ENTRY_MSR_LOADS,
        PAGE_FAULT_MASK,
        PAGE_FAULT_MATCH,
        CR3_TARGETS,
        ENTRY_EVENT,
        ENTRY_ERROR_CODE,
        ENTRY_LENGTH,
        GUEST_DEBUGCTL,
        GUEST_PDPTE0,
        GUEST_PDPTE0 + 2,
        GUEST_PDPTE0 + 4,
        GUEST_PDPTE0 + 6,
        GUEST_INTERRUPTIBILITY,
        GUEST_ACTIVITY,
        GUEST_SMBASE,
        GUEST_SYSENTER_CS,
        GUEST_SYSENTER_ESP,
        GUEST_SYSENTER_EIP,
        GUEST_PENDING_DEBUG,
    ] {
        out(zero, 0);
    }
    out(LINK_POINTER, u64::MAX);
    out(GUEST_PAT, PAT_AT_RESET);
    out(GUEST_DR7, 0x400);
    out(GUEST_RFLAGS, 2);
    segment(out, LDTR, 0, LDT, 0xFFFF);
    segment(out, TR, 0, TSS, 0xFFFF);
}

/// CR0 and CR4 as the guest sees them. The processor also has what VMX operation demands (24.8).
fn control_registers(cr0: u64, cr4: u64, out: &mut impl FnMut(u16, u64)) {
    out(field::GUEST_CR0, cr0 | CR0_NE);
    out(field::CR0_SHADOW, cr0);
    out(field::GUEST_CR4, cr4 | CR4_VMXE);
    out(field::CR4_SHADOW, cr4);
}

fn tables([gdt, gdt_limit]: [u64; 2], idt_limit: u64, out: &mut impl FnMut(u16, u64)) {
    out(field::GUEST_GDTR_BASE, gdt);
    out(field::GUEST_GDTR_LIMIT, gdt_limit);
    out(field::GUEST_IDTR_BASE, 0);
    out(field::GUEST_IDTR_LIMIT, idt_limit);
}

/// A first core, in long mode: the state that [`crate::start::long_mode`] gives it under SVM.
pub fn long_mode(c: &Confinement, entry: &Entry64, out: &mut impl FnMut(u16, u64)) {
    common(c, entry_control::WANTED | entry_control::IA32E, out);
    segment(out, CS, 0x10, CODE64, 0xFFFF_FFFF);
    for n in [0, 2, 3, 4, 5] {
        segment(out, n, 0x18, DATA, 0xFFFF_FFFF);
    }
    tables([entry.gdt, size_of_val(&GDT) as u64 - 1], 0, out);
    control_registers(0x8001_0033, 0x620, out);
    out(field::GUEST_EFER, EFER_LME | EFER_LMA | 1 << 11);
    out(field::GUEST_CR3, entry.cr3);
    out(field::GUEST_RIP, entry.rip);
    out(field::GUEST_RSP, entry.rsp);
}

/// A core after a SIPI with vector 0: real mode (SDM, table 10-1 and 9.4.3). The monitor adds the vector to CS.
/// Caching stays on: CR0.CD and NW are clear.
pub fn real_mode(c: &Confinement, out: &mut impl FnMut(u16, u64)) {
    common(c, entry_control::WANTED, out);
    segment(out, CS, 0, REAL_CODE, 0xFFFF);
    for n in [0, 2, 3, 4, 5] {
        segment(out, n, 0, REAL_DATA, 0xFFFF);
    }
    tables([0, 0xFFFF], 0xFFFF, out);
    control_registers(0x10, 0, out);
    for zero in [field::GUEST_EFER, field::GUEST_CR3, field::GUEST_RIP, field::GUEST_RSP] {
        out(zero, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_policy_makes_the_bitmaps_of_both() {
        let mut map = [0; MSR_BITMAP];
        msr_bitmap(&mut map);
        let mut svm = [0xFF; crate::bitmap::MSRPM];
        for &(first, last, direct) in DIRECT {
            (first..=last).for_each(|msr| crate::bitmap::allow_msr(&mut svm, msr, direct));
        }
        let bit = |map: &[u8], at: usize| map[at / 8] >> (at % 8) & 1;
        for msr in (0..0x2000).chain(0xC000_0000..0xC000_2000) {
            let (own, other) = (msr_bit(msr).unwrap(), crate::bitmap::msr_bit(msr).unwrap());
            assert_eq!(bit(&map, own), bit(&svm, other), "read of {msr:#x}");
            assert_eq!(bit(&map, own + 0x4000), bit(&svm, other + 1), "write of {msr:#x}");
        }
        assert_eq!(msr_bit(0xC001_0010), None);
        // SDM 25.6.9: EFER is in the second and the fourth quarter.
        assert_eq!((map[0x400 + 0x80 / 8] & 1, map[0xC00 + 0x80 / 8] & 1), (1, 1));
        assert_eq!((map[0x400 + 0x80 / 8] >> 2 & 1, map[0xC00 + 0x80 / 8] >> 2 & 1), (0, 0));
    }
}
