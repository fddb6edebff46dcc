//! How a function that PCI gives no reset is brought to rest by its own registers.

use crate::config::Config;
use bulkhead_manifest::raw_machine::{BarEntry, BarKind, ResetEntry};

/// SATA controller, AHCI 1.0 interface.
const AHCI: u32 = 0x01_06_01;
/// QEMU's educational device.
const EDU: (u16, u16) = (0x1234, 0x11E8);
/// Milliseconds; virtio names no limit.
const LONG: u32 = 1000;

/// Finds the steps by registers in these BARs; none for a function with FLR, and for one with unknown registers.
#[must_use]
pub fn steps(config: &Config, bars: &[BarEntry]) -> Vec<ResetEntry> {
    let there = |step: &ResetEntry| {
        let end = u64::from(step.at) + u64::from(step.size);
        let memory = |b: &&BarEntry| b.bar == step.bar && b.kind != BarKind::Io;
        bars.iter().find(memory).is_some_and(|bar| end <= bar.size)
    };
    let steps = known(config);
    if steps.iter().all(there) { steps } else { Vec::new() }
}

fn known(config: &Config) -> Vec<ResetEntry> {
    if config.pcie.iter().chain(&config.af).any(|capability| capability.flr) {
        return Vec::new();
    }
    if let Some((bar, common)) = config.virtio {
        // device_status: 0 resets it, and reads as 0 when that is done (virtio 1.2,
        // 4.1.4.3.1). A place beyond 4 GiB is no register's.
        let Some(at) = common.checked_add(0x14) else { return Vec::new() };
        let (write, mask, value) = (Some(0), 0xFF, 0);
        return vec![ResetEntry { bar, at, size: 1, write, mask, value, within: LONG }];
    }
    if config.class == AHCI {
        // GHC in ABAR, BAR 5: HR with AE; HR is clear within a second (AHCI 1.3.1, 3.1.2
        // and 10.4.3).
        let (write, mask, value) = (Some(1 << 31 | 1), 1, 0);
        return vec![ResetEntry { bar: 5, at: 4, size: 4, write, mask, value, within: LONG }];
    }
    if (config.vendor, config.device) == EDU {
        // Nothing stops a transfer: its command register shows when it has ended, which
        // takes 100 ms (QEMU, docs/specs/edu.rst).
        return vec![ResetEntry {
            bar: 0,
            at: 0x98,
            size: 4,
            write: None,
            mask: 1,
            value: 0,
            within: 500,
        }];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_manifest::raw_machine::PcieEntry;

    const MEMORY: BarKind = BarKind::Memory;

    fn of(config: &Config, bar: u8, kind: BarKind) -> Vec<(u8, u32, u8)> {
        let bars = [BarEntry { bar, kind, start: 0xFEB0_0000, size: 0x4000 }];
        steps(config, &bars).iter().map(|s| (s.bar, s.at, s.size)).collect()
    }

    #[test]
    fn what_has_no_other_reset_has_its_own() {
        let virtio = Config { virtio: Some((4, 0x1000)), ..Config::default() };
        assert_eq!(of(&virtio, 4, MEMORY), [(4, 0x1014, 1)]);
        let flr = Config { pcie: Some(PcieEntry { at: 0x40, flr: true }), ..virtio };
        assert_eq!(of(&flr, 4, MEMORY), []);
        assert_eq!(of(&Config { class: AHCI, ..Config::default() }, 5, MEMORY), [(5, 4, 4)]);
        let (vendor, device) = EDU;
        assert_eq!(of(&Config { vendor, device, ..Config::default() }, 0, MEMORY), [(0, 0x98, 4)]);
        assert_eq!(of(&Config::default(), 0, MEMORY), []);
    }

    #[test]
    fn a_register_is_in_a_memory_bar() {
        let at = |at| Config { virtio: Some((4, at)), ..Config::default() };
        assert_eq!(of(&at(0x3FEB), 4, MEMORY), [(4, 0x3FFF, 1)]);
        let none = [(0x3FEC, 4, MEMORY), (0, 3, MEMORY), (0, 4, BarKind::Io)];
        for (place, bar, kind) in none {
            assert_eq!(of(&at(place), bar, kind), []);
        }
        assert_eq!(of(&at(u32::MAX - 4), 4, MEMORY), []);
    }
}
