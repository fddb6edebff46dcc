//! The checks of a VM entry on a VMCS (SDM volume 3, chapter 27): the processor tells a number only. These name the
//! field and the rule. It knows the settings that Bulkhead uses. The fields of the monitor's own state are not here:
//! the monitor writes them.

use crate::vmcs::{
    CR0_NE, CR4_VMXE, activity, blocking, entry_control, event, exit_control, field, pin, primary,
    secondary,
};
use field::*;

/// A VMCS as far as it is written: fields and values.
#[derive(Clone, Copy)]
pub struct Written<'a>(pub &'a [(u16, u64)]);

/// A rule that a field breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Encoding of the field.
    pub field: u16,
    /// The rule.
    pub rule: &'static str,
}

const IS_THERE: &str = "is written";

impl Written<'_> {
    /// Returns the value of a field that was written last; 0 of one that was not, which [`check`] tells.
    fn get(&self, field: u16) -> u64 {
        self.0.iter().rev().find(|(of, _)| *of == field).map_or(0, |(_, value)| *value)
    }

    fn has(&self, field: u16) -> bool {
        self.0.iter().any(|(of, _)| *of == field)
    }

    fn on(&self, field: u16, bits: u32) -> bool {
        self.get(field) & u64::from(bits) == u64::from(bits)
    }
}

/// Bits of physical addresses, at most.
const WIDTH: u32 = 52;
const PE: u64 = 1 << 0;
const PG: u64 = 1 << 31;
const PAE: u64 = 1 << 5;
const PCIDE: u64 = 1 << 17;
const INTERRUPTS: u64 = 1 << 9;
const VIRTUAL_8086: u64 = 1 << 17;
const UNUSABLE: u64 = 1 << 16;
/// Positions in the fields of segments, which are 2 apart.
const CS: u16 = 1;
const SS: u16 = 2;
const FS: u16 = 4;
const GS: u16 = 5;
const LDTR: u16 = 6;
const TR: u16 = 7;

const fn canonical(address: u64) -> bool {
    let high = address >> 47;
    high == 0 || high == 0x1_FFFF
}

const fn page(address: u64) -> bool {
    address.is_multiple_of(4096) && address >> WIDTH == 0
}

/// Tells each rule that a start state breaks.
pub fn check(state: Written, broken: &mut impl FnMut(Refused)) {
    let mut rule = |field, rule, held: bool| {
        if !held {
            broken(Refused { field, rule });
        }
    };
    for field in EVERY.iter().copied().chain(segments()) {
        rule(field, IS_THERE, state.has(field));
    }
    controls(state, &mut rule);
    registers(state, &mut rule);
    (0..8).for_each(|n| segment(state, n, &mut rule));
    instruction(state, &mut rule);
    rest(state, &mut rule);
}

/// Fields that a start state writes, without those of segments.
pub const EVERY: &[u16] = &[
    VPID,
    IO_BITMAP_A,
    IO_BITMAP_B,
    MSR_BITMAP,
    EXIT_MSR_STORE,
    EXIT_MSR_LOAD,
    ENTRY_MSR_LOAD,
    TSC_OFFSET,
    EPT_POINTER,
    LINK_POINTER,
    GUEST_DEBUGCTL,
    GUEST_PAT,
    GUEST_EFER,
    PIN_CONTROLS,
    PRIMARY_CONTROLS,
    SECONDARY_CONTROLS,
    EXCEPTION_BITMAP,
    PAGE_FAULT_MASK,
    PAGE_FAULT_MATCH,
    CR3_TARGETS,
    EXIT_CONTROLS,
    EXIT_MSR_STORES,
    EXIT_MSR_LOADS,
    ENTRY_CONTROLS,
    ENTRY_MSR_LOADS,
    ENTRY_EVENT,
    ENTRY_ERROR_CODE,
    ENTRY_LENGTH,
    GUEST_GDTR_LIMIT,
    GUEST_IDTR_LIMIT,
    GUEST_GDTR_BASE,
    GUEST_IDTR_BASE,
    GUEST_INTERRUPTIBILITY,
    GUEST_ACTIVITY,
    GUEST_SMBASE,
    GUEST_SYSENTER_CS,
    GUEST_SYSENTER_ESP,
    GUEST_SYSENTER_EIP,
    CR0_MASK,
    CR4_MASK,
    CR0_SHADOW,
    CR4_SHADOW,
    GUEST_CR0,
    GUEST_CR3,
    GUEST_CR4,
    GUEST_DR7,
    GUEST_RSP,
    GUEST_RIP,
    GUEST_RFLAGS,
    GUEST_PENDING_DEBUG,
];

/// Fields of the eight segments.
fn segments() -> impl Iterator<Item = u16> {
    let of = |n: u16| {
        [GUEST_ES, GUEST_ES_LIMIT, GUEST_ES_RIGHTS, GUEST_ES_BASE].map(|first| first + 2 * n)
    };
    (0..8).flat_map(of)
}

/// Control fields (27.2.1).
fn controls(s: Written, rule: &mut impl FnMut(u16, &'static str, bool)) {
    const VIRTUAL_NMIS: u32 = 1 << 5;
    const NMI_WINDOW: u32 = 1 << 22;
    const TPR_SHADOW: u32 = 1 << 21;
    const APIC: u32 = 1 << 4 | 1 << 8 | 1 << 9;
    const SAVE_TIMER: u32 = 1 << 22;
    const TIMER: u32 = 1 << 6;
    const SMM: u32 = 0b11 << 10;
    let on = |field, bits| s.on(field, bits);
    let none = |field, bits: u32| s.get(field) & u64::from(bits) == 0;
    rule(
        PIN_CONTROLS,
        "virtual NMIs need NMI exiting",
        !on(PIN_CONTROLS, VIRTUAL_NMIS) || on(PIN_CONTROLS, pin::NMI),
    );
    rule(
        PRIMARY_CONTROLS,
        "NMI-window exiting needs virtual NMIs",
        !on(PRIMARY_CONTROLS, NMI_WINDOW) || on(PIN_CONTROLS, VIRTUAL_NMIS),
    );
    if on(PRIMARY_CONTROLS, primary::IO_BITMAPS) {
        for field in [IO_BITMAP_A, IO_BITMAP_B] {
            rule(field, "the address is a page's", page(s.get(field)));
        }
    }
    if on(PRIMARY_CONTROLS, primary::MSR_BITMAPS) {
        rule(MSR_BITMAP, "the address is a page's", page(s.get(MSR_BITMAP)));
    }
    let second = |bits| on(PRIMARY_CONTROLS, primary::SECONDARY) && on(SECONDARY_CONTROLS, bits);
    rule(
        SECONDARY_CONTROLS,
        "virtual APICs need the TPR shadow",
        on(PRIMARY_CONTROLS, TPR_SHADOW) || none(SECONDARY_CONTROLS, APIC),
    );
    rule(VPID, "with VPIDs it is not 0", !second(secondary::VPID) || s.get(VPID) != 0);
    rule(VPID, "it has 16 bits", s.get(VPID) >> 16 == 0);
    rule(
        SECONDARY_CONTROLS,
        "an unrestricted guest needs EPT",
        !second(secondary::UNRESTRICTED) || second(secondary::EPT),
    );
    if second(secondary::EPT) {
        let pointer = s.get(EPT_POINTER);
        rule(
            EPT_POINTER,
            "the memory type is uncached or write-back",
            matches!(pointer & 7, 0 | 6),
        );
        rule(EPT_POINTER, "a walk has four levels", pointer >> 3 & 7 == 3);
        rule(EPT_POINTER, "reserved bits are 0", pointer & 0xF80 == 0 && pointer >> WIDTH == 0);
    }
    rule(CR3_TARGETS, "there are four at most", s.get(CR3_TARGETS) <= 4);
    rule(
        EXIT_CONTROLS,
        "a timer is saved only where it is on",
        !on(EXIT_CONTROLS, SAVE_TIMER) || on(PIN_CONTROLS, TIMER),
    );
    rule(
        EXIT_CONTROLS,
        "the monitor runs in 64-bit mode",
        on(EXIT_CONTROLS, exit_control::HOST_64),
    );
    rule(ENTRY_CONTROLS, "no entry to system management mode", none(ENTRY_CONTROLS, SMM));
    let lists = [
        (EXIT_MSR_STORES, EXIT_MSR_STORE),
        (EXIT_MSR_LOADS, EXIT_MSR_LOAD),
        (ENTRY_MSR_LOADS, ENTRY_MSR_LOAD),
    ];
    for (count, list) in lists {
        let aligned = s.get(list).is_multiple_of(16) && s.get(list) >> WIDTH == 0;
        rule(list, "a list of MSRs is aligned to 16 bytes", s.get(count) == 0 || aligned);
    }
    let injected = s.get(ENTRY_EVENT);
    rule(ENTRY_EVENT, "a start state injects nothing", injected & event::VALID == 0);
}

/// Control registers, debug registers and MSRs (27.3.1.1).
fn registers(s: Written, rule: &mut impl FnMut(u16, &'static str, bool)) {
    let [cr0, cr4, efer] = [GUEST_CR0, GUEST_CR4, GUEST_EFER].map(|field| s.get(field));
    let unrestricted = s.on(SECONDARY_CONTROLS, secondary::UNRESTRICTED);
    let long = s.on(ENTRY_CONTROLS, entry_control::IA32E);
    rule(GUEST_CR0, "NE is 1 in VMX operation", cr0 & CR0_NE != 0);
    rule(
        GUEST_CR0,
        "PE and PG are 1 unless the guest is unrestricted",
        unrestricted || cr0 & (PE | PG) == PE | PG,
    );
    rule(GUEST_CR0, "PG needs PE", cr0 & PG == 0 || cr0 & PE != 0);
    rule(GUEST_CR0, "bits 63:32 are 0", cr0 >> 32 == 0);
    rule(GUEST_CR4, "VMXE is 1 in VMX operation", cr4 & CR4_VMXE != 0);
    rule(GUEST_CR4, "bits 63:32 are 0", cr4 >> 32 == 0);
    rule(GUEST_CR4, "IA-32e mode needs PAE", !long || cr4 & PAE != 0);
    rule(GUEST_CR4, "PCIDE needs IA-32e mode", long || cr4 & PCIDE == 0);
    rule(GUEST_CR0, "IA-32e mode needs PG", !long || cr0 & PG != 0);
    rule(GUEST_CR3, "it is a physical address", s.get(GUEST_CR3) >> WIDTH == 0);
    rule(GUEST_DEBUGCTL, "reserved bits are 0", s.get(GUEST_DEBUGCTL) & !0xDFC3 == 0);
    rule(GUEST_DR7, "bits 63:32 are 0", s.get(GUEST_DR7) >> 32 == 0);
    for field in [GUEST_SYSENTER_ESP, GUEST_SYSENTER_EIP] {
        rule(field, "the address is canonical", canonical(s.get(field)));
    }
    let types = s.get(GUEST_PAT).to_le_bytes();
    rule(GUEST_PAT, "each byte is a memory type", types.iter().all(|t| matches!(t, 0 | 1 | 4..=7)));
    rule(GUEST_EFER, "reserved bits are 0", efer & !0xD01 == 0);
    rule(GUEST_EFER, "LMA is the entry's control", (efer >> 10 & 1 != 0) == long);
    rule(GUEST_EFER, "with PG, LMA is LME", cr0 & PG == 0 || efer >> 10 & 1 == efer >> 8 & 1);
}

/// A segment register, by its number (27.3.1.2).
fn segment(s: Written, n: u16, rule: &mut impl FnMut(u16, &'static str, bool)) {
    let [selector, limit, rights, base] =
        [GUEST_ES, GUEST_ES_LIMIT, GUEST_ES_RIGHTS, GUEST_ES_BASE].map(|f| f + 2 * n);
    let unrestricted = s.on(SECONDARY_CONTROLS, secondary::UNRESTRICTED);
    let long = s.on(ENTRY_CONTROLS, entry_control::IA32E);
    let (bits, at) = (s.get(rights), s.get(base));
    let usable = bits & UNUSABLE == 0;
    let (kind, dpl, rpl) = (bits & 15, bits >> 5 & 3, s.get(selector) & 3);
    rule(
        selector,
        "a system segment is in the GDT",
        n < LDTR || n == LDTR && !usable || s.get(selector) & 4 == 0,
    );
    match n {
        TR | FS | GS => rule(base, "the address is canonical", canonical(at)),
        LDTR => rule(base, "the address is canonical", !usable || canonical(at)),
        CS => rule(base, "bits 63:32 are 0", at >> 32 == 0),
        _ => rule(base, "bits 63:32 are 0", !usable || at >> 32 == 0),
    }
    rule(rights, "CS and TR are usable", usable || n != CS && n != TR);
    rule(rights, "bits 31:17 are 0", bits >> 17 == 0);
    if !usable {
        return;
    }
    match n {
        CS => {
            rule(
                rights,
                "code, accessed; data in an unrestricted guest",
                matches!(kind, 9 | 11 | 13 | 15) || unrestricted && kind == 3,
            );
            let level = s.get(GUEST_SS_RIGHTS) >> 5 & 3;
            let right = match kind {
                3 => dpl == 0,
                9 | 11 => dpl == level,
                _ => dpl <= level,
            };
            rule(rights, "DPL goes with the type and with SS", right);
            rule(
                rights,
                "64-bit code has D clear",
                !long || bits >> 13 & 1 == 0 || bits >> 14 & 1 == 0,
            );
        }
        SS => {
            rule(rights, "writable data, accessed", matches!(kind, 3 | 7));
            rule(rights, "DPL is RPL unless the guest is unrestricted", unrestricted || dpl == rpl);
            let real = s.get(GUEST_CR0) & PE == 0 || s.get(GUEST_CS_RIGHTS) & 15 == 3;
            rule(rights, "DPL is 0 in real mode", !real || dpl == 0);
        }
        LDTR => rule(rights, "an LDT", kind == 2),
        TR => rule(rights, "a busy TSS, 64-bit in IA-32e mode", kind == 11 || !long && kind == 3),
        _ => {
            rule(
                rights,
                "accessed, and readable if it is code",
                kind & 1 != 0 && (kind & 8 == 0 || kind & 2 != 0),
            );
            rule(
                rights,
                "DPL is RPL at least unless the guest is unrestricted",
                unrestricted || kind > 11 || dpl >= rpl,
            );
        }
    }
    rule(rights, "S tells system segments", (bits >> 4 & 1 == 0) == (n >= LDTR));
    rule(rights, "present", bits >> 7 & 1 != 0);
    rule(rights, "bits 11:8 are 0", bits >> 8 & 15 == 0);
    let (granular, end) = (bits >> 15 & 1 != 0, s.get(limit));
    rule(rights, "G is 0 unless the limit ends a page", !granular || end & 0xFFF == 0xFFF);
    rule(rights, "G is 1 for a limit of 1 MiB and more", granular || end >> 20 == 0);
}

/// Descriptor tables, RIP and RFLAGS (27.3.1.3, 27.3.1.4).
fn instruction(s: Written, rule: &mut impl FnMut(u16, &'static str, bool)) {
    for (base, limit) in [(GUEST_GDTR_BASE, GUEST_GDTR_LIMIT), (GUEST_IDTR_BASE, GUEST_IDTR_LIMIT)]
    {
        rule(base, "the address is canonical", canonical(s.get(base)));
        rule(limit, "bits 31:16 are 0", s.get(limit) >> 16 == 0);
    }
    let long = s.on(ENTRY_CONTROLS, entry_control::IA32E);
    let wide = long && s.get(GUEST_CS_RIGHTS) >> 13 & 1 != 0;
    let (rip, flags) = (s.get(GUEST_RIP), s.get(GUEST_RFLAGS));
    rule(GUEST_RIP, "bits 63:32 are 0 outside of 64-bit mode", wide || rip >> 32 == 0);
    rule(GUEST_RIP, "the address is canonical", !wide || canonical(rip));
    rule(GUEST_RFLAGS, "bit 1 is 1", flags & 2 != 0);
    rule(GUEST_RFLAGS, "reserved bits are 0", flags & !0x3F_7FD7 == 0);
    let real = s.get(GUEST_CR0) & PE == 0;
    rule(
        GUEST_RFLAGS,
        "VM needs protected mode without IA-32e",
        !(long || real) || flags & VIRTUAL_8086 == 0,
    );
}

/// State that is no register (27.3.1.5), and PAE paging (27.3.1.6).
fn rest(s: Written, rule: &mut impl FnMut(u16, &'static str, bool)) {
    let (doing, blocked) = (s.get(GUEST_ACTIVITY), s.get(GUEST_INTERRUPTIBILITY));
    rule(GUEST_ACTIVITY, "it is one of four", doing <= 3);
    let level = s.get(GUEST_SS_RIGHTS) >> 5 & 3;
    rule(GUEST_ACTIVITY, "only privileged code halts", doing != activity::HLT || level == 0);
    let both = blocking::STI | blocking::MOV_SS;
    rule(
        GUEST_ACTIVITY,
        "blocked for one instruction, it is active",
        doing == activity::ACTIVE || blocked & both == 0,
    );
    rule(GUEST_INTERRUPTIBILITY, "reserved bits are 0", blocked & !0x1F == 0);
    rule(GUEST_INTERRUPTIBILITY, "STI and MOV SS do not both block", blocked & both != both);
    let enabled = s.get(GUEST_RFLAGS) & INTERRUPTS != 0;
    rule(
        GUEST_INTERRUPTIBILITY,
        "blocking by STI needs IF",
        enabled || blocked & blocking::STI == 0,
    );
    rule(GUEST_INTERRUPTIBILITY, "no blocking by SMI outside of SMM", blocked & blocking::SMI == 0);
    rule(GUEST_PENDING_DEBUG, "reserved bits are 0", s.get(GUEST_PENDING_DEBUG) & !0x1_500F == 0);
    rule(LINK_POINTER, "all ones: no shadow VMCS", s.get(LINK_POINTER) == u64::MAX);
    let long = s.on(ENTRY_CONTROLS, entry_control::IA32E);
    if !long && s.get(GUEST_CR0) & PG != 0 && s.get(GUEST_CR4) & PAE != 0 {
        for n in 0..4 {
            let entry = s.get(GUEST_PDPTE0 + 2 * n);
            rule(GUEST_PDPTE0 + 2 * n, "reserved bits are 0", entry & 1 == 0 || entry & 0x1E6 == 0);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::start::Entry64;
    use crate::vmcs::{Confinement, long_mode, real_mode};
    use std::vec::Vec;

    fn states() -> [Vec<(u16, u64)>; 2] {
        let confinement =
            Confinement { io: 0x5000, msrs: 0x7000, ept: 0x8000, vpid: 3, ticks: false };
        let entry = Entry64 { rip: 0x20_0000, rsp: 0x8000, cr3: 0x2000, gdt: 0x1000 };
        let (mut first, mut sipi) = (Vec::new(), Vec::new());
        long_mode(&confinement, &entry, &mut |field, value| first.push((field, value)));
        real_mode(&confinement, &mut |field, value| sipi.push((field, value)));
        [first, sipi]
    }

    fn found(state: &[(u16, u64)]) -> Vec<Refused> {
        let mut all = Vec::new();
        check(Written(state), &mut |refused| all.push(refused));
        all
    }

    #[test]
    fn an_entry_accepts_both_start_states_and_each_field_is_written_once() {
        for state in states() {
            assert_eq!(found(&state), []);
            for (n, (field, _)) in state.iter().enumerate() {
                assert!(state[..n].iter().all(|(other, _)| other != field), "{field:#x} twice");
            }
        }
    }

    #[test]
    fn a_field_that_is_left_out_is_named() {
        for state in states() {
            for n in 0..state.len() {
                let mut less = state.clone();
                let (field, _) = less.remove(n);
                // Not of every processor's guests.
                if (GUEST_PDPTE0..GUEST_PDPTE0 + 8).contains(&field) {
                    continue;
                }
                assert!(found(&less).contains(&Refused { field, rule: IS_THERE }), "{field:#x}");
            }
        }
    }

    /// Planted errors: state (0: long mode, 1: real mode), field, value, the rule that it breaks.
    const PLANTED: &[(usize, u16, u64, &str)] = &[
        (0, PIN_CONTROLS, 1 << 5, "virtual NMIs need NMI exiting"),
        (
            0,
            PRIMARY_CONTROLS,
            primary::WANTED as u64 | 1 << 22,
            "NMI-window exiting needs virtual NMIs",
        ),
        (0, IO_BITMAP_B, 0x6800, "the address is a page's"),
        (0, MSR_BITMAP, 1 << 52, "the address is a page's"),
        (
            0,
            SECONDARY_CONTROLS,
            secondary::WANTED as u64 | 1 << 4,
            "virtual APICs need the TPR shadow",
        ),
        (0, SECONDARY_CONTROLS, secondary::UNRESTRICTED as u64, "an unrestricted guest needs EPT"),
        (0, VPID, 0, "with VPIDs it is not 0"),
        (0, VPID, 1 << 16, "it has 16 bits"),
        (0, EPT_POINTER, 0x8018 | 1, "the memory type is uncached or write-back"),
        (0, EPT_POINTER, 0x8006, "a walk has four levels"),
        (0, EPT_POINTER, 0x809E, "reserved bits are 0"),
        (0, CR3_TARGETS, 5, "there are four at most"),
        (
            0,
            EXIT_CONTROLS,
            exit_control::WANTED as u64 | 1 << 22,
            "a timer is saved only where it is on",
        ),
        (0, EXIT_CONTROLS, 0, "the monitor runs in 64-bit mode"),
        (0, ENTRY_CONTROLS, 1 << 9 | 1 << 10, "no entry to system management mode"),
        (0, ENTRY_EVENT, event::VALID | 14, "a start state injects nothing"),
        (0, GUEST_CR0, 0x8001_0013, "NE is 1 in VMX operation"),
        (1, GUEST_CR0, PG | CR0_NE, "PG needs PE"),
        (0, GUEST_CR0, 1 << 32 | 0x8001_0033, "bits 63:32 are 0"),
        (0, GUEST_CR0, 0x33, "IA-32e mode needs PG"),
        (0, GUEST_CR4, 0x620, "VMXE is 1 in VMX operation"),
        (0, GUEST_CR4, 0x2600, "IA-32e mode needs PAE"),
        (1, GUEST_CR4, 0x2000 | PCIDE, "PCIDE needs IA-32e mode"),
        (0, GUEST_CR3, 1 << 52, "it is a physical address"),
        (0, GUEST_DEBUGCTL, 1 << 2, "reserved bits are 0"),
        (0, GUEST_DR7, 1 << 32, "bits 63:32 are 0"),
        (0, GUEST_SYSENTER_EIP, 1 << 47, "the address is canonical"),
        (0, GUEST_PAT, 2, "each byte is a memory type"),
        (0, GUEST_EFER, 0xD00 | 1 << 12, "reserved bits are 0"),
        (1, GUEST_EFER, 1 << 10, "LMA is the entry's control"),
        (0, GUEST_EFER, 1 << 10, "with PG, LMA is LME"),
        (0, GUEST_TR, 4, "a system segment is in the GDT"),
        (0, GUEST_ES_BASE + 14, 1 << 47, "the address is canonical"),
        (0, GUEST_CS_BASE, 1 << 32, "bits 63:32 are 0"),
        (0, GUEST_ES_BASE, 1 << 32, "bits 63:32 are 0"),
        (0, GUEST_ES_RIGHTS + 14, UNUSABLE, "CS and TR are usable"),
        (0, GUEST_ES_RIGHTS, 1 << 17 | 0xC093, "bits 31:17 are 0"),
        (0, GUEST_CS_RIGHTS, 0xA098, "code, accessed; data in an unrestricted guest"),
        (0, GUEST_CS_RIGHTS, 0xA0FB, "DPL goes with the type and with SS"),
        (0, GUEST_CS_RIGHTS, 0xE09B, "64-bit code has D clear"),
        (0, GUEST_SS_RIGHTS, 0xC091, "writable data, accessed"),
        (1, GUEST_SS_RIGHTS, 0xF3, "DPL is 0 in real mode"),
        (0, GUEST_ES_RIGHTS + 12, 0x81, "an LDT"),
        (0, GUEST_ES_RIGHTS + 14, 0x83, "a busy TSS, 64-bit in IA-32e mode"),
        (0, GUEST_ES_RIGHTS + 6, 0xC092, "accessed, and readable if it is code"),
        (0, GUEST_ES_RIGHTS, 0xC083, "S tells system segments"),
        (0, GUEST_ES_RIGHTS, 0xC013, "present"),
        (0, GUEST_ES_RIGHTS, 0xC193, "bits 11:8 are 0"),
        (0, GUEST_ES_LIMIT, 0xFFFF_F000, "G is 0 unless the limit ends a page"),
        (1, GUEST_ES_LIMIT, 0x10_0000, "G is 1 for a limit of 1 MiB and more"),
        (0, GUEST_GDTR_BASE, 1 << 47, "the address is canonical"),
        (0, GUEST_IDTR_LIMIT, 1 << 16, "bits 31:16 are 0"),
        (1, GUEST_RIP, 1 << 32, "bits 63:32 are 0 outside of 64-bit mode"),
        (0, GUEST_RIP, 1 << 47, "the address is canonical"),
        (0, GUEST_RFLAGS, 0, "bit 1 is 1"),
        (0, GUEST_RFLAGS, 2 | 1 << 15, "reserved bits are 0"),
        (0, GUEST_RFLAGS, 2 | VIRTUAL_8086, "VM needs protected mode without IA-32e"),
        (0, GUEST_ACTIVITY, 4, "it is one of four"),
        (0, GUEST_INTERRUPTIBILITY, 1 << 5, "reserved bits are 0"),
        (0, GUEST_INTERRUPTIBILITY, 3, "STI and MOV SS do not both block"),
        (0, GUEST_INTERRUPTIBILITY, 1, "blocking by STI needs IF"),
        (0, GUEST_INTERRUPTIBILITY, 4, "no blocking by SMI outside of SMM"),
        (0, GUEST_PENDING_DEBUG, 1 << 4, "reserved bits are 0"),
        (0, LINK_POINTER, 0, "all ones: no shadow VMCS"),
    ];

    #[test]
    fn each_planted_error_is_named_with_its_field() {
        for &(which, field, value, rule) in PLANTED {
            let mut state = states()[which].clone();
            let planted =
                state.iter_mut().find(|(of, _)| *of == field).expect("a field of the state");
            planted.1 = value;
            let found = found(&state);
            // Rules of access rights also judge a limit.
            let named = found.iter().any(|refused| {
                refused.rule == rule && (refused.field == field || rule.starts_with("G "))
            });
            assert!(named, "{field:#x} = {value:#x}: {rule}: {found:x?}");
        }
    }
}
