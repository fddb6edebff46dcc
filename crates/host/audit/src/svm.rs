//! What the processor is told about a guest: VMCB, permission maps, the host behind
//! it. Bits and offsets are those of the APM volume 2, appendix B and 15.10, 15.11.

use crate::check::Context;
use crate::claim::Place;
use crate::locate::Area;
use crate::memory::Words;
use crate::paging::{Regime, translate};
use crate::registers::Core;
use std::collections::BTreeMap;

const EXCEPTIONS: u64 = 0x008;
const WORD_3: u64 = 0x00C;
const WORD_4: u64 = 0x010;
const IOPM_BASE: u64 = 0x040;
const MSRPM_BASE: u64 = 0x048;
const GUEST_ASID: u64 = 0x058;
const V_INTR: u64 = 0x060;
const NESTED_CTL: u64 = 0x090;
const N_CR3: u64 = 0x0B0;
const LBR_VIRTUALIZATION: u64 = 0x0B8;

/// Intercepts that a guest needs: the word's offset, its bits, and the guarantee that rests on them.
const NEEDED: &[(u64, u64, &str)] = &[
    // #DB, #AC; #MC.
    (EXCEPTIONS, 1 << 1 | 1 << 17, "exceptions"),
    (EXCEPTIONS, 1 << 18, REST),
    // NMI; SMI, INIT; RSM, INVLPGA; INVD; IOIO; MSR; shutdown.
    (WORD_3, 1 << 1, "doorbell"),
    (WORD_3, 1 << 2 | 1 << 3, REST),
    (WORD_3, 1 << 19 | 1 << 26, "instructions"),
    (WORD_3, 1 << 22, "cache-instructions"),
    (WORD_3, 1 << 27, "ports"),
    (WORD_3, 1 << 28, "registers"),
    (WORD_3, 1 << 31, "shutdown"),
    // VMRUN, VMMCALL, VMLOAD, VMSAVE, STGI, CLGI, SKINIT, MONITOR, MWAIT twice; WBINVD.
    (WORD_4, 0x7F | 1 << 10 | 1 << 11 | 1 << 12, "instructions"),
    (WORD_4, 1 << 9, "cache-instructions"),
];
/// Guarantee that rests on all else in a control block.
const REST: &str = "control-block";
/// AVIC.
const AVIC: u64 = 1 << 31;
/// Bytes of the permission maps, in frames.
pub const IOPM_FRAMES: u64 = 3;
pub const MSRPM_FRAMES: u64 = 2;
/// CR0.PG.
const PAGING: u64 = 1 << 31;
/// CR4.LA57.
const LA57: u64 = 1 << 12;

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

/// What a control block refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Root of the nested tables.
    pub n_cr3: u64,
    /// I/O permission map.
    pub iopm: u64,
    /// MSR permission map.
    pub msrpm: u64,
    /// Address space.
    pub asid: u64,
    /// VMRUN would accept it.
    pub launched: bool,
}

/// Reads a control block.
pub fn block(words: &Words, vmcb: u64) -> Option<Block> {
    let at = |field| words.word(vmcb + field);
    Some(Block {
        n_cr3: at(N_CR3)?,
        iopm: at(IOPM_BASE)?,
        msrpm: at(MSRPM_BASE)?,
        asid: at(GUEST_ASID)? & 0xFFFF_FFFF,
        launched: at(WORD_3 & !7)? >> 32 != 0,
    })
}

/// Which bits decide about an MSR: the word's address, the read bit's number; the write
/// bit is the next one (APM 15.11).
fn msr_bits(map: u64, msr: u32) -> (u64, u64) {
    let vector = match msr {
        0xC000_0000..=0xC000_1FFF => 0x800,
        0xC001_0000..=0xC001_1FFF => 0x1000,
        _ => 0,
    };
    let bit = u64::from(msr & 0x1FFF) * 2;
    (map + vector + bit / 64 * 8, bit % 64)
}

/// Ports that a map leaves open, by word; the last three bits are for accesses that
/// go beyond port FFFFh (15.10.1).
fn open_ports(words: &Words, map: u64) -> Vec<bool> {
    let bit = |port: u64| words.word(map + port / 64 * 8).is_none_or(|w| w >> (port % 64) & 1 == 0);
    (0..0x1_0003).map(bit).collect()
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
    /// A core's control block: nested paging with its sandbox's tables, an address
    /// space ID of its own, everything intercepted that must be.
    pub fn vmcb(&mut self, i: usize, core: usize, area: &Area, first: &Block, others: &[u64]) {
        let words = self.words;
        let at = |field: u64| words.word(area.vmcb + field).unwrap_or(0);
        let half = |field: u64| at(field & !7) >> (field % 8 * 8) & 0xFFFF_FFFF;
        let mut wrong = Vec::new();
        for (field, bits, rule) in NEEDED {
            let lacks = bits & !half(*field);
            if lacks != 0 {
                let right = format!("{bits:#x} set at {field:#x}");
                wrong.push((*rule, format!("intercepts at {field:#x} lack {lacks:#x}"), right));
            }
        }
        let roots = [(IOPM_BASE, first.iopm), (MSRPM_BASE, first.msrpm), (N_CR3, first.n_cr3)];
        for (field, root) in roots {
            if at(field) != root {
                let what = format!("the table at {field:#x} is {:#x}", at(field));
                wrong.push((REST, what, format!("{root:#x}, as for its other cores")));
            }
        }
        if at(NESTED_CTL) != 1 || at(V_INTR) & AVIC != 0 || at(LBR_VIRTUALIZATION) != 0 {
            let what = format!("nested control {:#x}, V_INTR {:#x}", at(NESTED_CTL), at(V_INTR));
            wrong.push((REST, what, "nested paging alone".into()));
        }
        let asid = half(GUEST_ASID);
        if asid == 0 || others.contains(&asid) {
            let what = format!("address space ID {asid} is not its own");
            wrong.push((REST, what, "an ID that no other sandbox has".into()));
        }
        let own = self.parts[i].vmcbs.get(core).copied().flatten();
        if own != Some(area.vmcb) {
            let what = format!("it runs on the VMCB at {:#x}", area.vmcb);
            let right = format!("the one that its monitor has, at {:#x}", own.unwrap_or(0));
            wrong.push((REST, what, right));
        }
        let place = self.claim.sandboxes[i].place.clone();
        for (rule, what, right) in wrong {
            let message = format!("{} core {core}: {what}", self.name(i));
            self.find(rule, &place, Some(area.vmcb), message, right);
        }
    }

    /// The host that the last VMRUN saved: its core is in its monitor, with nothing of
    /// the boot code's behind it.
    pub fn host_state(&mut self, i: usize, core: usize, area: &Area, root: u64, monitor: &Regime) {
        let mut wrong = Vec::new();
        if area.cr3 != root {
            wrong.push((format!("CR3 is {:#x}", area.cr3), format!("{root:#x}, its monitor's")));
        }
        if !area.certain {
            let what = format!("RIP is {:#x}", area.rip);
            wrong.push((what, "behind a VMRUN of its monitor".into()));
        }
        let tables = area.tables.map(|[gdt, idt]| [("GDTR", gdt, false), ("IDTR", idt, false)]);
        let state = [("RIP", area.rip, true), ("RSP", area.rsp.wrapping_sub(8), false)];
        for (what, address, execute) in state.into_iter().chain(tables.into_iter().flatten()) {
            match monitor.leaf(address) {
                Some(leaf) if leaf.execute || !execute => {}
                _ => wrong.push((
                    format!("{what} is {address:#x}, which its monitor does not map"),
                    "an address of its monitor".into(),
                )),
            }
        }
        let place = self.claim.sandboxes[i].place.clone();
        for (what, right) in wrong {
            let message = format!("{} core {core}: {what}", self.name(i));
            self.find("host-state", &place, area.page, message, right);
        }
    }

    /// What a core does now: it is in its sandbox's monitor, or its guest's code is
    /// there in its sandbox's memory. Two sandboxes with equal programs cannot be told
    /// apart so: a core is only found wrong if it fits another sandbox and not its own.
    pub fn cores(&mut self, nested: &[Option<Regime>], roots: &[Option<(u64, u64)>]) {
        let owner =
            |number: usize| self.claim.sandboxes.iter().position(|s| s.cores.contains(&number));
        let mut wrong = Vec::new();
        for core in &self.registers.cores {
            let fits = |s: usize| {
                roots[s].zip(nested[s].as_ref()).is_some_and(|(roots, n)| self.fits(core, roots, n))
            };
            match owner(core.number) {
                None if !core.halted => {
                    wrong.push((
                        core.number,
                        Place::default(),
                        "belongs to no sandbox and runs".into(),
                        "asleep",
                    ));
                }
                Some(i) if !fits(i) => {
                    if let Some(other) = (0..nested.len()).find(|&o| o != i && fits(o)) {
                        let what = format!("runs in {}, not in {}", self.name(other), self.name(i));
                        wrong.push((
                            core.number,
                            self.claim.sandboxes[i].place.clone(),
                            what,
                            "in its own sandbox",
                        ));
                    }
                }
                _ => {}
            }
        }
        for (number, place, what, right) in wrong {
            self.find("core-state", &place, None, format!("core {number} {what}"), right);
        }
        let shown: Vec<_> = self.registers.cores.iter().map(|c| c.number).collect();
        for i in 0..self.claim.sandboxes.len() {
            for core in self.claim.sandboxes[i].cores.iter().filter(|c| !shown.contains(c)) {
                let message = format!("core {core} of {} shows no registers", self.name(i));
                let place = self.claim.sandboxes[i].place.clone();
                self.find("core-state", &place, None, message, "a core that the machine has");
            }
        }
    }

    fn fits(&self, core: &Core, (monitor, root): (u64, u64), nested: &Regime) -> bool {
        if core.cr3 == monitor {
            return true;
        }
        let guest = |gpa: u64| translate(self.words, root, gpa);
        let fetched = if core.cr0 & PAGING == 0 {
            Some(core.cs_base.wrapping_add(core.rip) & 0xFFFF_FFFF)
        } else if core.cr4 & LA57 != 0 || core.efer & 1 << 10 == 0 {
            // Five levels, or a 32-bit guest's tables: nothing is concluded from them.
            return true;
        } else {
            walk(self.words, core.cr3, core.rip, guest)
        };
        fetched.and_then(|gpa| nested.leaf(gpa)).is_some_and(|l| l.execute)
    }

    /// Ports.
    pub fn ports(&mut self, i: usize, map: u64) {
        let open = open_ports(self.words, map);
        let sandbox = &self.claim.sandboxes[i];
        let owned = |port: u32| {
            sandbox.ports.iter().find(|p| (u32::from(p.first)..=u32::from(p.last)).contains(&port))
        };
        let differs = |want: bool| {
            let differs = |p: &u32| open[*p as usize] == want && owned(*p).is_some() != want;
            ranges((0..0x1_0003u32).filter(differs))
        };
        let place = sandbox.place.clone();
        let (beyond, missing) = (differs(true), differs(false));
        self.access[i].ports = ranges((0..0x1_0003).filter(|p| open[*p as usize]));
        for (first, last) in beyond {
            let message = format!("{} reaches ports {first:#x} to {last:#x}", self.name(i));
            let at = map + u64::from(first) / 8;
            self.find("ports", &place, Some(at), message, "an exit: no device of it has them");
        }
        for (first, last) in missing {
            let grant = owned(first).map_or(place.clone(), |p| p.place.clone());
            let message = format!("{} does not reach ports {first:#x} to {last:#x}", self.name(i));
            let at = map + u64::from(first) / 8;
            self.find("ports", &grant, Some(at), message, "no exit: its device has them");
        }
    }

    /// MSRs.
    pub fn msrs(&mut self, i: usize, map: u64) {
        let words = self.words;
        let all = [0, 0xC000_0000, 0xC001_0000u32].into_iter().flat_map(|b| b..b + 0x2000);
        let mut open: BTreeMap<u32, (bool, bool)> = BTreeMap::new();
        let mut wrong: BTreeMap<(&str, &str), Vec<u32>> = BTreeMap::new();
        for msr in all {
            let (at, bit) = msr_bits(map, msr);
            let bits = words.word(at).unwrap_or(0) >> bit;
            let has = (bits & 1 == 0, bits & 2 == 0);
            let of = MSRS.iter().filter(|m| (m.0..=m.1).contains(&msr));
            let may = of.fold((false, false), |may, m| (may.0 | m.2, may.1 | m.3));
            if has != (false, false) {
                open.insert(msr, has);
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
            ranges(open.iter().filter(|o| right(o.1)).map(|o| *o.0))
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
                self.find("registers", &place, Some(msr_bits(map, first).0), message, right);
            }
        }
    }
}

/// A guest's own translation of an address, its tables read through another.
fn walk(
    words: &Words,
    root: u64,
    address: u64,
    through: impl Fn(u64) -> Option<u64>,
) -> Option<u64> {
    const FRAME: u64 = 0x000F_FFFF_FFFF_F000;
    let mut table = root & FRAME;
    for level in (0..4).rev() {
        let shift = 12 + 9 * level;
        let entry = words.word(through(table + (address >> shift & 511) * 8)?)?;
        if entry & 1 == 0 {
            return None;
        }
        if level == 0 || entry & 1 << 7 != 0 {
            let inside = (1 << shift) - 1;
            return Some(entry & FRAME & !inside | address & inside);
        }
        table = entry & FRAME;
    }
    None
}
