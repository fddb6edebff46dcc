//! Errors in what confines a Linux that ran before its monitor did, and in the monitors under it.

use super::{ALL, EFER, Hand, LARGE, Plant};

/// The two sandboxes, as such a system has them: the Linux is the last one.
const FLIGHT: usize = 0;
const GROUND: usize = 1;

impl Hand<'_> {
    /// The block that the Linux gave away.
    fn given(&self) -> u64 {
        self.baked.plan.block.map_or(0, |block| block.start)
    }

    /// Opens a port to the Linux.
    fn open(&mut self, port: u64) {
        let (at, bit) = self.port(GROUND, port);
        self.memory.change(at, 0, bit);
    }
}

pub static PLANTS: &[Plant] = &[
    ("late-block", "nested-map", |h| {
        let last = h.given() + (126 << 20);
        h.nested(GROUND, last, last | ALL | LARGE, u64::MAX);
    }),
    ("late-flights-ram", "shared-frames", |h| {
        let ram = h.ram(FLIGHT) >> 21 << 21;
        h.nested(GROUND, ram, ram | ALL | LARGE, u64::MAX);
    }),
    ("late-image", "boot-code-unmapped", |h| {
        h.nested(GROUND, h.given(), h.given() | ALL | LARGE, u64::MAX);
    }),
    ("late-own-tables", "tables-unmapped", |h| {
        let root = h.nested_root(GROUND) >> 21 << 21;
        h.nested(GROUND, root, root | ALL | LARGE, u64::MAX);
    }),
    ("late-start-up-code", "nested-map", |h| h.nested(GROUND, 0x8000, 0x8000 | ALL, u64::MAX)),
    ("late-local-apic", "nested-rights", |h| {
        h.nested(GROUND, 0xFEE0_0000, 0xFEE0_0000 | ALL | LARGE, u64::MAX);
    }),
    ("late-page-taken-away", "nested-missing", |h| h.nested(GROUND, 0x400_0000, 0, u64::MAX)),
    ("late-page-leads-elsewhere", "nested-map", |h| {
        h.nested(GROUND, 0x400_0000, 0x420_0000 | ALL | LARGE, u64::MAX);
    }),
    ("late-no-vmrun-intercept", "instructions", |h| h.vmcb(0, 0x010, 0, 1)),
    ("late-no-nmi-intercept", "doorbell", |h| h.vmcb(1, 0x008, 0, 1 << (32 + 1))),
    ("late-no-init-intercept", "control-block", |h| h.vmcb(1, 0x008, 0, 1 << (32 + 3))),
    ("late-nested-paging-off", "control-block", |h| h.vmcb(0, 0x090, 0, 1)),
    ("late-reset-port", "ports", |h| h.open(0xCF9)),
    ("late-power-port", "ports", |h| h.open(0x604)),
    ("late-efer-writable", "registers", |h| h.msr_bits(EFER, 0, 2)),
    ("late-monitor-maps-block", "monitor-map", |h| h.lead(h.given() + (126 << 20))),
    ("late-monitor-maps-linux", "monitor-map", |h| h.lead(0x400_0000)),
    ("late-monitor-maps-flight", "shared-frames", |h| h.lead(h.ram(FLIGHT))),
    ("late-flights-monitor-maps-linux", "monitor-map", |h| {
        h.monitor(FLIGHT, super::FREE_VA, 0x400_0000 | 1 | super::NO_EXECUTE, u64::MAX);
    }),
];
