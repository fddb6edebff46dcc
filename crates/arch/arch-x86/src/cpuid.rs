//! CPUID for a booting guest: the processor's own answer, less the features that a guest may not use. There is no
//! hypervisor leaf and no hypervisor bit (docs/decisions/0008-cpuid.md). With them a kernel would look for signatures
//! in hundreds of leaves, each one an exit. It would also choose other code paths than on the machine itself. A leaf
//! that is not here is the processor's.

use bulkhead_monitor_abi_x86::config::Leaf;

/// On AMD's processors. At most one entry applies to a leaf.
pub const FILTER: &[Leaf] = &[
    // No MONITOR (3), no VMX (5), no PMU (15), no hypervisor (31); x2APIC (21).
    // EDX: no machine checks (7, 14): their registers are the machine's.
    Leaf {
        set: [0, 0, 1 << 21, 0],
        ..without(1, [0, 0, 1 << 3 | 1 << 5 | 1 << 15 | 1 << 31, 1 << 7 | 1 << 14])
    },
    nothing(5, 5), // MONITOR and MWAIT
    // The APIC timer runs in every sleep state: HLT is all there is.
    Leaf { set: [1 << 2, 0, 0, 0], ..nothing(6, 6) },
    // No cache monitoring and allocation (EBX 12, 15), no CET (ECX 7, EDX 20):
    // their MSRs are not on the list.
    Leaf { sub: 0, ..without(7, [0, 1 << 12 | 1 << 15, 1 << 7, 1 << 20]) },
    nothing(0xA, 0xA), // performance monitoring
    // No XSAVES (3), which needs XSS.
    Leaf { sub: 1, ..without(0xD, [1 << 3, 0, u32::MAX, u32::MAX]) },
    nothing(0xF, 0x10), // cache monitoring and allocation
    nothing(0x4000_0000, 0x4000_FFFF),
    // No SVM (2), no performance counters (10, 23, 24, 28); no MCE, MCA.
    without(0x8000_0001, [0, 0, 1 << 2 | 1 << 10 | 1 << 23 | 1 << 24 | 1 << 28, 1 << 7 | 1 << 14]),
    // INVLPGB (3) and RDPRU (4) reach beyond the core.
    without(0x8000_0008, [0, 1 << 3 | 1 << 4, 0, 0]),
    nothing(0x8000_000A, 0x8000_000A), // SVM
    nothing(0x8000_001F, 0x8000_001F), // memory encryption
];

/// On Intel's processors. At most one entry applies to a leaf. A feature with MSRs that are not on the list
/// ([`crate::msr::DIRECT`]), or that needs a control of VT-x that is off, is not there.
pub const INTEL: &[Leaf] = &[
    // ECX: no DTES64 (2), MONITOR (3), DS-CPL (4), VMX (5), SMX (6), EIST (7), TM2 (8), SDBG (11). Nor are xTPR (14),
    // PDCM (15) and hypervisor (31) there; x2APIC (21) is. EDX: no MCE (7), MCA (14), DS (21), ACPI (22), TM (29),
    // PBE (31).
    Leaf {
        set: [0, 0, 1 << 21, 0],
        ..without(
            1,
            [
                0,
                0,
                0b1_1111_1100 | 1 << 11 | 0b11 << 14 | 1 << 31,
                1 << 7 | 1 << 14 | 0b11 << 21 | 1 << 29 | 1 << 31,
            ],
        )
    },
    nothing(5, 5), // MONITOR and MWAIT
    // The APIC timer runs in every sleep state: HLT is all there is.
    Leaf { set: [1 << 2, 0, 0, 0], ..nothing(6, 6) },
    // EBX: no TSC_ADJUST (1), which moves a core's clock, SGX (2), HLE (4), RTM (11), cache monitoring (12) and
    // allocation (15), trace (25). ECX: no WAITPKG (5), CET (7), TME (13), key locker (23), bus-lock exceptions (24),
    // ENQCMD (29), SGX_LC (30). EDX: no user interrupts (5), PCONFIG (18), LBRs (19), CET (20), L1D_FLUSH (28),
    // CORE_CAPABILITIES (30).
    Leaf {
        sub: 0,
        ..without(
            7,
            [
                0,
                0b1_0110 | 0b11 << 11 | 1 << 15 | 1 << 25,
                1 << 5 | 1 << 7 | 1 << 13 | 0b11 << 23 | 0b11 << 29,
                1 << 5 | 0b111 << 18 | 1 << 28 | 1 << 30,
            ],
        )
    },
    nothing(0xA, 0xA), // performance monitoring
    // No XSAVES (3), which needs XSS.
    Leaf { sub: 1, ..without(0xD, [1 << 3, 0, u32::MAX, u32::MAX]) },
    nothing(0xF, 0x10),  // cache monitoring and allocation
    nothing(0x12, 0x12), // SGX
    nothing(0x14, 0x14), // processor trace
    nothing(0x19, 0x19), // key locker
    nothing(0x1B, 0x1C), // PCONFIG, last branch records
    nothing(0x20, 0x21), // HRESET, TDX
    nothing(0x23, 0x23), // performance monitoring
    nothing(0x4000_0000, 0x4000_FFFF),
];

/// A leaf without these bits.
const fn without(leaf: u32, [a, b, c, d]: [u32; 4]) -> Leaf {
    Leaf { first: leaf, last: leaf, sub: Leaf::ANY, keep: [!a, !b, !c, !d], set: [0; 4] }
}

/// Leaves of zeros.
const fn nothing(first: u32, last: u32) -> Leaf {
    Leaf { first, last, ..without(first, [u32::MAX; 4]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(leaf: u32, sub: u32, raw: [u32; 4]) -> [u32; 4] {
        Leaf::filter(FILTER, leaf, sub, raw)
    }

    #[test]
    fn of_every_leaf_at_most_one_entry_applies() {
        for filter in [FILTER, INTEL] {
            for (n, a) in filter.iter().enumerate() {
                assert!(a.first <= a.last);
                assert!(filter[n + 1..].iter().all(|b| a.last < b.first));
            }
        }
    }

    #[test]
    fn an_intel_guest_sees_no_feature_whose_registers_exit() {
        let seen = |leaf, sub| Leaf::filter(INTEL, leaf, sub, [u32::MAX; 4]);
        let clear = |word: u32, bits: &[u32]| bits.iter().all(|bit| word >> bit & 1 == 0);
        let [_, _, c, d] = seen(1, 0);
        assert!(
            clear(c, &[2, 3, 4, 5, 6, 7, 8, 11, 14, 15, 31]) && clear(d, &[7, 14, 21, 22, 29, 31])
        );
        // SSE3, FMA, x2APIC, TSC deadline, XSAVE, AVX; the TSC, an APIC, PAT, SSE2 stay.
        assert_eq!(c & 0x1520_1201, 0x1520_1001 | c & 0x200, "{c:#x}");
        assert_eq!(d & 0x0701_0211, 0x0701_0211);
        let [_, b, c, d] = seen(7, 0);
        assert!(clear(b, &[1, 2, 4, 11, 12, 15, 25]) && clear(c, &[5, 7, 13, 23, 24, 29, 30]));
        assert!(clear(d, &[5, 18, 19, 20, 28, 30]));
        // FSGSBASE, AVX2, SMEP, INVPCID, SMAP; SPEC_CTRL and ARCH_CAPABILITIES stay.
        assert_eq!((b & 0x10_04A1, d & 0x2400_0000), (0x10_04A1, 0x2400_0000));
        assert_eq!(seen(0xD, 1)[0], !(1 << 3));
        for leaf in [5, 0xA, 0xF, 0x12, 0x14, 0x4000_0000] {
            assert_eq!(seen(leaf, 0), [0; 4], "{leaf:#x}");
        }
    }

    #[test]
    fn what_a_guest_may_not_use_is_not_there() {
        let all = [u32::MAX; 4];
        assert_eq!(seen(1, 0, all)[2] >> 31, 0);
        assert_eq!(seen(1, 0, [0; 4])[2], 1 << 21);
        assert_eq!(seen(0x8000_0001, 0, all)[2] & 1 << 2, 0);
        for leaf in [5, 0xA, 0xF, 0x10, 0x4000_0000, 0x4000_0100, 0x8000_000A] {
            assert_eq!(seen(leaf, 7, all), [0; 4], "{leaf:#x}");
        }
        assert_eq!(seen(6, 0, all), [4, 0, 0, 0]);
    }

    #[test]
    fn only_the_named_subleaf_is_filtered() {
        let all = [u32::MAX; 4];
        assert_eq!(seen(7, 0, all)[3], !(1 << 20));
        assert_eq!(seen(7, 1, all), all);
        assert_eq!(seen(0xD, 0, all), all);
        assert_eq!(seen(0xD, 1, all), [!(1 << 3), u32::MAX, 0, 0]);
    }

    #[test]
    fn the_rest_is_the_processors() {
        for leaf in [0, 2, 4, 0xB, 0x8000_0000, 0x8000_0002, 0x8000_001E] {
            assert_eq!(seen(leaf, 0, [1, 2, 3, 4]), [1, 2, 3, 4], "{leaf:#x}");
        }
    }
}
