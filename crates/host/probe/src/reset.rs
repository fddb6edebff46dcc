//! How a function that PCI gives no reset is brought to rest by its own registers. An NVMe controller has a reset of
//! PCI's, too, and is at rest by its registers long before that would be over.

use crate::config::Config;
use bulkhead_manifest::raw_machine::{BarEntry, BarKind, ResetEntry};

/// NVM Express I/O controller.
const NVME: u32 = 0x01_08_02;
/// SATA controller, AHCI 1.0 interface.
const AHCI: u32 = 0x01_06_01;
/// QEMU's educational device.
const EDU: (u16, u16) = (0x1234, 0x11E8);
/// Milliseconds; virtio names no limit.
const LONG: u32 = 1000;

/// Finds the steps by registers in these BARs; none for a function with unknown registers.
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
        // It has a reset that takes longer, for the case that these registers don't show what they should.
        return if config.class == NVME { nvme() } else { Vec::new() };
    }
    if let Some((bar, common)) = config.virtio {
        // device_status: 0 resets it, and reads as 0 when that is done (virtio 1.2,
        // 4.1.4.3.1). A place beyond 4 GiB is no register's.
        let Some(at) = common.checked_add(0x14) else { return Vec::new() };
        let (write, mask, value) = (Some(0), 0xFF, 0);
        return vec![ResetEntry { bar, at, size: 1, write, keep: None, mask, value, within: LONG }];
    }
    if config.class == AHCI {
        // GHC in ABAR, BAR 5: HR with AE; HR is clear within a second (AHCI 1.3.1, 3.1.2
        // and 10.4.3).
        let (write, mask, value) = (Some(1 << 31 | 1), 1, 0);
        return vec![ResetEntry {
            bar: 5,
            at: 4,
            size: 4,
            write,
            keep: None,
            mask,
            value,
            within: LONG,
        }];
    }
    if (config.vendor, config.device) == EDU {
        // Nothing stops a transfer: its command register shows when it has ended, which
        // takes 100 ms (QEMU, docs/specs/edu.rst).
        return vec![ResetEntry {
            bar: 0,
            at: 0x98,
            size: 4,
            write: None,
            keep: None,
            mask: 1,
            value: 0,
            within: 500,
        }];
    }
    Vec::new()
}

/// Controller reset (NVM Express 1.4, 7.3.2), by registers in BAR 0 (3.1).
fn nvme() -> Vec<ResetEntry> {
    /// Not longer than the function-level reset that comes else. `CAP.TO` counts in steps of 500 ms.
    const PATIENCE: u32 = 100;
    let (cc, csts, cmbmsc, pmrmscl) = (0x14, 0x1C, 0x50, 0xE14);
    let register = |at, mask, value, within| ResetEntry {
        bar: 0,
        at,
        size: 4,
        write: None,
        keep: None,
        mask,
        value,
        within,
    };
    // CSTS: PP, SHST and CFS are 0, and RDY is 1. In other states the end of CC.EN has undefined results, or no end.
    let works = register(csts, 0b10_1111, 1, 1);
    // CC: EN and SHN are 0, and the rest stays, because it changes only while the controller is off.
    let off = register(cc, 1, 0, 1);
    let off = ResetEntry { write: Some(0), keep: Some(!0xC001), ..off };
    // CSTS: neither RDY nor CFS.
    let ended = register(csts, 0b11, 0, PATIENCE);
    // A controller reset leaves two windows: bus addresses in them would be the controller's own memory's.
    let closed = [(cmbmsc, 0b11), (pmrmscl, 0b10)]
        .map(|(at, mask)| ResetEntry { write: Some(0), ..register(at, mask, 0, 1) });
    [works, off, ended].into_iter().chain(closed).collect()
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
        // This one by its class, and in addition to its reset of PCI's.
        let nvme = Config { class: NVME, ..flr };
        let steps = [(0, 0x1C, 4), (0, 0x14, 4), (0, 0x1C, 4), (0, 0x50, 4), (0, 0xE14, 4)];
        assert_eq!(of(&nvme, 0, MEMORY), steps);
        assert_eq!(of(&Config { pcie: None, ..nvme }, 0, MEMORY), []);
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
