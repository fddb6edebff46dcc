//! What a booting guest sees of CPUID: the processor's own answer, less what a
//! guest may not use. There is no hypervisor leaf and no hypervisor bit: a
//! kernel would look for signatures in hundreds of leaves, each one an exit,
//! and would choose other code paths than on the machine itself
//! (docs/decisions/0008-cpuid.md). A leaf that is not here is the processor's.

use bulkhead_layout::monitor::Leaf;

/// Of every leaf at most one entry applies.
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
        for (n, a) in FILTER.iter().enumerate() {
            assert!(a.first <= a.last);
            assert!(FILTER[n + 1..].iter().all(|b| a.last < b.first));
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
