//! What a booting guest sees of CPUID: the processor's own answer, less what a
//! guest may not use. There is no hypervisor leaf and no hypervisor bit: a
//! kernel would look for signatures in hundreds of leaves, each one an exit,
//! and would choose other code paths than on the machine itself
//! (docs/decisions/0008-cpuid.md).

/// EAX, EBX, ECX, EDX.
pub type Regs = [u32; 4];

/// Filters the processor's answer for a leaf.
#[must_use]
pub fn filter(leaf: u32, sub: u32, raw: Regs) -> Regs {
    let [a, b, c, d] = raw;
    match leaf {
        // No cache monitoring and allocation (EBX 12, 15), no CET (ECX 7, EDX 20):
        // their MSRs are not on the list.
        7 if sub == 0 => [a, b & !(1 << 12 | 1 << 15), c & !(1 << 7), d & !(1 << 20)],
        // No XSAVES (3), which needs XSS.
        0xD if sub == 1 => [a & !(1 << 3), b, 0, 0],
        0xF | 0x10 => [0; 4],
        // No MONITOR (3), no VMX (5), no PMU (15), no hypervisor (31); x2APIC (21).
        // EDX: no machine checks (7, 14): their registers are the machine's.
        1 => [
            a,
            b,
            c & !(1 << 3 | 1 << 5 | 1 << 15 | 1 << 31) | 1 << 21,
            d & !(1 << 7 | 1 << 14),
        ],
        5 | 0xA => [0; 4],
        // The APIC timer runs in every sleep state: HLT is all there is.
        6 => [1 << 2, 0, 0, 0],
        0x4000_0000..=0x4000_FFFF => [0; 4],
        // No SVM (2), no performance counters (23, 24, 28); no MCE, MCA.
        0x8000_0001 => [
            a,
            b,
            c & !(1 << 2 | 1 << 10 | 1 << 23 | 1 << 24 | 1 << 28),
            d & !(1 << 7 | 1 << 14),
        ],
        // INVLPGB (3) and RDPRU (4) reach beyond the core.
        0x8000_0008 => [a, b & !(1 << 3 | 1 << 4), c, d],
        0x8000_000A | 0x8000_001F => [0; 4],
        _ => raw,
    }
}
