//! A sandbox's report: the monitor's words ([`bulkhead_monitor_abi::report`]), and further facts for its readers.

use crate::MAX_CORES;
pub use bulkhead_monitor_abi::report::*;

/// `"BHREPORT"`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BHREPORT");
/// Version of this layout.
pub const VERSION: u32 = 9;
/// Their names in reports, by [`Cause`].
pub const CAUSE_NAMES: [&str; ALL_CAUSES] = [
    "hypercall",
    "cpuid",
    "ipi",
    "lvt",
    "msr",
    "port",
    "doorbell",
    "cache",
    "exception",
    "denied",
    "other",
    "config",
    "ring",
    "watchdog",
    "xapic",
    "mmio",
];
/// Their names in the manifest and in reports, by [`Kind`].
pub const KIND_NAMES: [&str; KINDS] = [
    "memory-violation",
    "port-violation",
    "msr-violation",
    "ipi-violation",
    "instruction-violation",
    "hypercall-violation",
    "triple-fault",
    "device-violation",
    "hang",
    "failure",
    "corruption",
    "monitor",
];
/// Their names in reports, by [`Condition`].
pub const CONDITION_NAMES: [&str; CONDITIONS] = [
    "memory-read",
    "memory-write",
    "memory-fetch",
    "port-read",
    "port-write",
    "msr-read",
    "msr-write",
    "ipi-reserved-bits",
    "ipi-level-triggered",
    "ipi-mode",
    "ipi-shorthand",
    "ipi-logical",
    "ipi-destination",
    "instruction",
    "control-right",
    "offer-right",
    "link-right",
    "shutdown",
    "device-read",
    "device-write",
    "device-not-at-rest",
    "hang",
    "failure",
    "guest-sum",
    "monitor-sum",
    "control-block",
    "monitor-hang",
    "snapshot-range",
];
/// Names of a ladder's actions in the manifest and in reports, by [`bulkhead_monitor_abi::ladder::Rung::action`].
pub const ACTION_NAMES: [&str; 7] =
    ["none", "stop", "restart", "alternative", "restart warm", "failover", "took over"];

/// Returns the size of a report with `cores` cores.
#[must_use]
pub const fn size(cores: usize) -> u64 {
    (size_of::<Report>() + cores * size_of::<CoreReport>()) as u64
}

const _: () = assert!(size(MAX_CORES) <= crate::map::REPORT_STRIDE);
