//! The policy for model-specific registers: an allow-list. An MSR that is not in [`DIRECT`] exits. One that the monitor
//! does not mediate and that is not in [`ABSENT`] is denied. docs/decisions/0004-msr-policy.md argues each group.

use crate::bitmap::Direct::{self, Both, Read, Write};
use bulkhead_monitor_abi_x86::config::Quiet;

pub use bulkhead_monitor_abi_x86::msr::*;

/// MSRs that a guest uses without an exit, inclusive ranges.
pub const DIRECT: &[(u32, u32, Direct)] = &[
    (0x10, 0x10, Read),   // TSC; writing it would move a core's clock
    (0x48, 0x49, Both),   // SPEC_CTRL, PRED_CMD: the core's own
    (0x8B, 0x8B, Read),   // patch level
    (0x174, 0x176, Both), // SYSENTER: in the VMCB
    (0x200, 0x20F, Read), // MTRRs: read only
    (0x250, 0x250, Read),
    (0x258, 0x259, Read),
    (0x268, 0x26F, Read),
    (0x277, 0x277, Both), // PAT: the guest's own in the VMCB
    (0x6E0, 0x6E0, Both), // TSC deadline
    (0x800, 0x82F, Read), // x2APIC: whatever it says is this core's
    (0x808, 0x808, Write),
    (X2APIC_EOI, X2APIC_EOI, Write),
    (X2APIC_SVR, X2APIC_SVR, Write),
    (X2APIC_ESR, X2APIC_ESR, Write),
    (X2APIC_LVT, X2APIC_LVT_LAST, Read),
    (X2APIC_TMICT, X2APIC_TMICT, Both),
    (X2APIC_DCR, X2APIC_DCR, Both),
    (0x83F, 0x83F, Write),            // self-IPI
    (0xC000_0081, 0xC000_0084, Both), // STAR, LSTAR, CSTAR, SFMASK: in the VMCB
    (0xC000_0100, 0xC000_0103, Both), // FS, GS, kernel GS base, TSC_AUX
    (0xC001_0010, 0xC001_0010, Read), // SYSCFG
    (0xC001_0015, 0xC001_0015, Read), // HWCR
    (0xC001_001A, 0xC001_001A, Read), // TOP_MEM
    (0xC001_001D, 0xC001_001D, Read), // TOP_MEM2
    (0xC001_001F, 0xC001_001F, Read), // NB_CFG
];

/// MSRs that unmodified kernels probe and that are absent for a guest: reads
/// give the value, writes are dropped, no record.
pub const ABSENT: &[Quiet] = &[
    quiet(0x17, 0x17, 0),   // platform ID
    quiet(0x3A, 0x3A, 1),   // feature control: locked
    quiet(0x140, 0x140, 0), // MISC_FEATURE_ENABLES
    quiet(0x179, 0x179, 0), // MCG_CAP: no bank of machine checks
    quiet(0x186, 0x189, 0), // performance event selects
    quiet(0xC1, 0xC4, 0),   // performance counters
    quiet(0x1A0, 0x1A0, 1), // MISC_ENABLE: fast strings
    quiet(0x1D9, 0x1D9, 0), // DebugCtl
    // MTRRcap: fixed ranges alone; MTRRdefType: all else is write-back. The machine's own MTRRs hold for the memory
    // behind a guest's addresses, whatever it believes (APM 15.25.8). The machine's variable ranges are about other
    // addresses than the guest's.
    quiet(0xFE, 0xFE, 1 << 10 | 1 << 8),
    quiet(0x2FF, 0x2FF, 1 << 11 | 1 << 10 | 6),
    quiet(0x200, 0x2FE, 0),               // MTRR writes
    quiet(X2APIC_TMCCT, X2APIC_TMCCT, 0), // reading it aborts QEMU under icount
    quiet(0xC001_0000, 0xC001_0009, 0),   // performance counters
    quiet(0xC001_0015, 0xC001_0015, 0),   // HWCR writes
    quiet(0xC001_001F, 0xC001_001F, 0),   // NB_CFG writes
    quiet(0xC001_0055, 0xC001_0058, 0),   // interrupt pending, MMIO configuration base
    quiet(0xC001_0061, 0xC001_0071, 0),   // P-states
    quiet(0xC001_0112, 0xC001_0113, 0),   // SMM
    quiet(0xC001_0200, 0xC001_020B, 0),   // core performance counters
    quiet(0xC001_0299, 0xC001_029B, 0),   // power units
    quiet(0xC001_1000, 0xC001_10FF, 0),   // core configuration
];

/// Absent as [`ABSENT`] besides, for a Linux that ran first. It has seen all features of the processor, and looks at
/// these registers again and again. A fault at one of machine checks makes a kernel panic.
pub const ABSENT_RUNNING: &[Quiet] = &[
    quiet(0x17A, 0x17B, 0),             // MCG_STATUS, MCG_CTL: no machine check
    quiet(0x400, 0x47F, 0),             // banks
    quiet(0xC000_0408, 0xC000_0410, 0), // thresholds
    quiet(0xC000_2000, 0xC000_2FFF, 0), // banks of scalable machine checks
    quiet(0xC001_0044, 0xC001_0054, 0), // masks of banks
    quiet(0xC001_0114, 0xC001_0114, 1 << 4 | 1 << 3), // VM_CR: SVM is off, and stays so
];

/// As [`ABSENT`], on Intel's processors.
pub const ABSENT_INTEL: &[Quiet] = &[
    quiet(0x17, 0x17, 0),                       // platform ID
    quiet(0x33, 0x34, 0),                       // TEST_CTRL, SMI count
    quiet(0x3A, 0x3A, 1),                       // feature control: locked
    quiet(0x4E, 0x4F, 0),                       // serial number of the processor
    quiet(0x79, 0x79, 0),                       // a microcode update
    quiet(0x8B, 0x8B, 0), // patch level: kernels write 0 before they ask for it
    quiet(0xC1, 0xC8, 0), // performance counters
    quiet(0xCE, 0xCE, 0), // PLATFORM_INFO
    quiet(0xE2, 0xE2, 0), // PKG_CST_CONFIG
    quiet(0xE7, 0xE8, 0), // MPERF, APERF
    quiet(0xFE, 0xFE, 1 << 10 | 1 << 8), // MTRRcap: fixed ranges alone, as for AMD
    quiet(0x140, 0x140, 0), // MISC_FEATURES_ENABLES
    quiet(0x179, 0x179, 0), // MCG_CAP: no bank of machine checks
    quiet(0x186, 0x18D, 0), // performance event selects
    quiet(0x198, 0x19D, 0), // performance status and control, clock modulation, thermal
    quiet(0x1A0, 0x1A0, 1), // MISC_ENABLE: fast strings
    quiet(0x1A2, 0x1A2, 0), // temperature target
    quiet(0x1A4, 0x1A4, 0), // prefetchers
    quiet(0x1AA, 0x1AD, 0), // power management, turbo ratios
    quiet(0x1B0, 0x1B2, 0), // energy bias, package thermal
    quiet(0x1D9, 0x1D9, 0), // DEBUGCTL
    quiet(0x1FC, 0x1FC, 0), // POWER_CTL
    quiet(0x200, 0x2FE, 0), // MTRR writes
    quiet(0x2FF, 0x2FF, 1 << 11 | 1 << 10 | 6), // MTRRdefType: enabled, write-back
    quiet(0x345, 0x345, 0), // PERF_CAPABILITIES
    quiet(0x38D, 0x390, 0), // performance: fixed and global control
    quiet(0x606, 0x606, 0), // RAPL units
    quiet(0x610, 0x61E, 0), // RAPL
    quiet(0x638, 0x642, 0), // RAPL
    quiet(0x64E, 0x64F, 0), // performance limits
    quiet(0x770, 0x777, 0), // HWP
    quiet(0xC001_1000, 0xC001_10FF, 0), // core configuration of AMD, which kernels ask for here, too
    quiet(X2APIC_TMCCT, X2APIC_TMCCT, 0), // as for AMD
];

const fn quiet(first: u32, last: u32, value: u64) -> Quiet {
    Quiet { first, last, value }
}
