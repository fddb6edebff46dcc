//! Permission maps: ports and MSRs. Formats are those of the APM volume 2, 15.10 and 15.11, and of Intel's manual (SDM)
//! volume 3, 25.6.4 and 25.6.9.

use super::Virtualization;
use crate::arch::Block;
use crate::check::Context;
use crate::claim::{Ports, Sandbox};
use crate::memory::Words;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Registers that docs/decisions/0004-msr-policy.md lets a guest use without an
/// exit, by the manual's numbers: first, last, readable, writable.
const MSRS: &[(u32, u32, bool, bool)] = &[
    (0x010, 0x010, true, false),             // TSC
    (0x048, 0x049, true, true),              // SPEC_CTRL, PRED_CMD
    (0x08B, 0x08B, true, false),             // PATCH_LEVEL
    (0x174, 0x176, true, true),              // SYSENTER_CS, ESP, EIP
    (0x200, 0x20F, true, false),             // MTRRphysBase, Mask
    (0x250, 0x250, true, false),             // MTRRfix64K
    (0x258, 0x259, true, false),             // MTRRfix16K
    (0x268, 0x26F, true, false),             // MTRRfix4K
    (0x277, 0x277, true, true),              // PAT
    (0x6E0, 0x6E0, true, true),              // TSC deadline
    (0x800, 0x82F, true, false),             // x2APIC, up to the ICR
    (0x808, 0x808, true, true),              // task priority
    (0x80B, 0x80B, true, true),              // end of interrupt
    (0x80F, 0x80F, true, true),              // spurious vector
    (0x828, 0x828, true, true),              // error status
    (0x832, 0x837, true, false),             // local vector table
    (0x838, 0x838, true, true),              // timer initial count
    (0x83E, 0x83E, true, true),              // timer divide configuration
    (0x83F, 0x83F, false, true),             // self-IPI
    (0xC000_0081, 0xC000_0084, true, true),  // STAR, LSTAR, CSTAR, SFMASK
    (0xC000_0100, 0xC000_0103, true, true),  // FS.base, GS.base, KernelGSbase, TSC_AUX
    (0xC001_0010, 0xC001_0010, true, false), // SYSCFG
    (0xC001_0015, 0xC001_0015, true, false), // HWCR
    (0xC001_001A, 0xC001_001A, true, false), // TOP_MEM
    (0xC001_001D, 0xC001_001D, true, false), // TOP_MEM2
    (0xC001_001F, 0xC001_001F, true, false), // NB_CFG
];

/// Ports that a Linux which ran before its monitor has no more, beside those of others' devices. They reset the
/// machine, put it to sleep or call its firmware. At others its monitor answers.
const WITHHELD: &[(u32, u32)] = &[
    (0x64, 0x64),   // keyboard controller's command
    (0xB2, 0xB2),   // SMI command
    (0x604, 0x605), // power management control of QEMU's q35
    (0x640, 0x65F), // doorbells
    (0x660, 0x67F), // TCO of QEMU's q35
    (0x680, 0x680), // hypercalls
    (0xCF9, 0xCF9), // reset control
];

/// Ports by which PCI is configured.
const CONFIGURES: RangeInclusive<u32> = 0xCF8..=0xCFF;

/// Ports that a page of a map decides about.
const PORTS: u64 = 0x8000;

impl Block {
    /// Words and bits that decide about reads and about writes of an MSR. `None`: no bit does, and it exits always.
    fn msr_bits<V: Virtualization>(&self, msr: u32) -> Option<[(u64, u64); 2]> {
        let [read, write, step] = V::msrs(msr & !0x1FFF)?;
        let (msrs, n) = (self.map(super::MSRS), u64::from(msr & 0x1FFF));
        Some([read, write].map(|first| {
            let bit = first + n * step;
            (msrs + bit / 64 * 8, bit % 64)
        }))
    }

    /// Word and bit of a port.
    fn port_bit(&self, port: u32) -> (u64, u64) {
        let port = u64::from(port);
        // Maps of ports come first.
        let (page, _) = self.maps[(port / PORTS) as usize];
        (page + port % PORTS / 64 * 8, port % 64)
    }

    /// Ports that the map leaves open.
    fn open_ports<V: Virtualization>(&self, words: &Words) -> Vec<bool> {
        let open = |port| {
            let (at, bit) = self.port_bit(port);
            words.word(at).is_none_or(|w| w >> bit & 1 == 0)
        };
        (0..V::PORT_BITS).map(open).collect()
    }
}

/// Numbers where something holds, as ranges.
pub fn ranges(numbers: impl Iterator<Item = u32>) -> Vec<(u32, u32)> {
    let mut out: Vec<(u32, u32)> = Vec::new();
    for n in numbers {
        match out.last_mut() {
            Some(last) if last.1 + 1 == n => last.1 = n,
            _ => out.push((n, n)),
        }
    }
    out
}

impl Context<'_> {
    /// Ports.
    pub(super) fn ports<V: Virtualization>(&mut self, i: usize, block: &Block) {
        let open = block.open_ports::<V>(self.words);
        let sandbox = &self.claim.sandboxes[i];
        let of = |sandbox: &'_ Sandbox, port: u32| {
            let has = |p: &&Ports| (u32::from(p.first)..=u32::from(p.last)).contains(&port);
            sandbox.ports.iter().find(has).map(|p| p.place.clone())
        };
        let all = &self.claim.sandboxes;
        let left = |port: u32| {
            let mut withheld = WITHHELD.iter().chain(&self.claim.withheld);
            let withheld = withheld.any(|w| (w.0..=w.1).contains(&port));
            let configures = !self.claim.mediated().is_empty() && CONFIGURES.contains(&port);
            let mut others = all.iter().filter(|other| !other.running);
            let others = configures || others.any(|other| of(other, port).is_some());
            (port <= 0xFFFF && !withheld && !others).then(|| sandbox.place.clone())
        };
        let owned = |port: u32| if sandbox.running { left(port) } else { of(sandbox, port) };
        let differs = |want: bool| {
            let differs = |p: &u32| open[*p as usize] == want && owned(*p).is_some() != want;
            ranges((0..V::PORT_BITS).filter(differs))
        };
        let place = sandbox.place.clone();
        let (beyond, missing) = (differs(true), differs(false));
        self.access[i].ports = ranges((0..V::PORT_BITS).filter(|p| open[*p as usize]));
        for (first, last) in beyond {
            let message = format!("{} reaches ports {first:#x} to {last:#x}", self.name(i));
            let (at, _) = block.port_bit(first);
            self.find("ports", &place, Some(at), message, "an exit: no device of it has them");
        }
        for (first, last) in missing {
            let grant = owned(first).unwrap_or_else(|| place.clone());
            let message = format!("{} does not reach ports {first:#x} to {last:#x}", self.name(i));
            let (at, _) = block.port_bit(first);
            self.find("ports", &grant, Some(at), message, "no exit: its device has them");
        }
    }

    /// MSRs.
    pub(super) fn msrs<V: Virtualization>(&mut self, i: usize, block: &Block) {
        let words = self.words;
        let all = [0, 0xC000_0000, 0xC001_0000u32].into_iter().flat_map(|b| b..b + 0x2000);
        let mut all_open: BTreeMap<u32, (bool, bool)> = BTreeMap::new();
        let mut wrong: BTreeMap<(&str, &str), Vec<u32>> = BTreeMap::new();
        for msr in all {
            let Some(bits) = block.msr_bits::<V>(msr) else { continue };
            let open = bits.map(|(at, bit)| words.word(at).unwrap_or(0) >> bit & 1 == 0);
            let has = (open[0], open[1]);
            let of = MSRS.iter().filter(|m| (m.0..=m.1).contains(&msr));
            let may = of.fold((false, false), |may, m| (may.0 | m.2, may.1 | m.3));
            if has != (false, false) {
                all_open.insert(msr, has);
            }
            for (does, has, may) in [("read", has.0, may.0), ("write", has.1, may.1)] {
                if has != may {
                    wrong
                        .entry((does, if has { "does" } else { "does not" }))
                        .or_default()
                        .push(msr);
                }
            }
        }
        let list = |right: fn(&(bool, bool)) -> bool| {
            ranges(all_open.iter().filter(|o| right(o.1)).map(|o| *o.0))
        };
        self.access[i].msrs_read = list(|o| o.0);
        self.access[i].msrs_written = list(|o| o.1);
        let place = self.claim.sandboxes[i].place.clone();
        for ((does, has), msrs) in wrong {
            for (first, last) in ranges(msrs.into_iter()) {
                let who = self.name(i);
                let message =
                    format!("{who} {has} {does} MSRs {first:#x} to {last:#x} without an exit");
                let right = "docs/decisions/0004-msr-policy.md";
                let at = block.msr_bits::<V>(first).map(|bits| bits[0].0);
                self.find("registers", &place, at, message, right);
            }
        }
    }
}
