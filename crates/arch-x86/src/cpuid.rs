//! What a booting guest sees of CPUID: the processor's own answer, less what a
//! guest may not use, plus how to learn the clocks' frequencies. Linux knows
//! the interface of VMware's leaf 0x4000_0000 (Linux,
//! arch/x86/kernel/cpu/vmware.c) without any kernel parameter.

/// EAX, EBX, ECX, EDX.
pub type Regs = [u32; 4];

/// First hypervisor leaf.
pub const HYPERVISOR: u32 = 0x4000_0000;
/// Last hypervisor leaf.
pub const HYPERVISOR_LAST: u32 = 0x4000_0010;

/// Filters the processor's answer for a leaf.
#[must_use]
pub fn filter(leaf: u32, raw: Regs) -> Regs {
    let [a, b, c, d] = raw;
    match leaf {
        // No MONITOR (3), no VMX (5), no PMU (15); x2APIC (21) and a hypervisor (31).
        // EDX: no machine checks (7, 14): their registers are the machine's.
        1 => [a, b, c & !(1 << 3 | 1 << 5 | 1 << 15) | 1 << 21 | 1 << 31, d & !(1 << 7 | 1 << 14)],
        5 | 0xA => [0; 4],
        // The APIC timer runs in every sleep state: HLT is all there is.
        6 => [1 << 2, 0, 0, 0],
        HYPERVISOR => {
            [HYPERVISOR_LAST, u32::from_le_bytes(*b"VMwa"), u32::from_le_bytes(*b"reVM"), u32::from_le_bytes(*b"ware")]
        }
        // VMMCALL is the way to call.
        HYPERVISOR_LAST => [0, 0, 1, 0],
        0x4000_0001..=0x4000_000F => [0; 4],
        // No SVM (2), no performance counters (23, 24, 28); no MCE, MCA.
        0x8000_0001 => [a, b, c & !(1 << 2 | 1 << 10 | 1 << 23 | 1 << 24 | 1 << 28), d & !(1 << 7 | 1 << 14)],
        // INVLPGB (3) and RDPRU (4) reach beyond the core.
        0x8000_0008 => [a, b & !(1 << 3 | 1 << 4), c, d],
        0x8000_000A | 0x8000_001F => [0; 4],
        _ => raw,
    }
}
