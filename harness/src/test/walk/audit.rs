//! Compares what the tables in a machine's memory confine with what the manifest
//! says. Bits and offsets are those of the AMD64 APM volume 2, appendix B.

use super::given::{self, Given, PAGE, host_save, owner, part, vmcb};
use super::regime::{Leaf, Regime, Words};
use bulkhead_image::Baked;
use bulkhead_layout::image::{Header, Sandbox};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::Path;

/// What is looked at, each a test of its own.
pub const RULES: [&str; 15] = [
    "nested-map",
    "nested-rights",
    "nested-missing",
    "page-sizes",
    "encoding",
    "shared-frames",
    "tables-unmapped",
    "boot-code-unmapped",
    "monitor-map",
    "monitor-rights",
    "write-xor-execute",
    "vmcb",
    "host-state",
    "ports",
    "registers",
];

const EXCEPTIONS: u64 = 0x008;
const WORD_3: u64 = 0x00C;
const WORD_4: u64 = 0x010;
const IOPM_BASE: u64 = 0x040;
const MSRPM_BASE: u64 = 0x048;
const GUEST_ASID: u64 = 0x058;
const V_INTR: u64 = 0x060;
const NESTED_CTL: u64 = 0x090;
const LBR_VIRTUALIZATION: u64 = 0x0B8;
const N_CR3: u64 = 0x0B0;
/// From the start of a VMCB or host save area.
const SAVED_GDTR_BASE: u64 = 0x468;
const SAVED_IDTR_BASE: u64 = 0x488;
const SAVED_CR3: u64 = 0x550;
const SAVED_RIP: u64 = 0x578;
const SAVED_RSP: u64 = 0x5D8;

/// NMI, SMI, INIT, CPUID aside: RSM, INVD, INVLPGA, IOIO, MSR, shutdown.
const NEEDED_3: u64 =
    1 << 1 | 1 << 2 | 1 << 3 | 1 << 19 | 1 << 22 | 1 << 26 | 1 << 27 | 1 << 28 | 1 << 31;
/// VMRUN, VMMCALL, VMLOAD, VMSAVE, STGI, CLGI, SKINIT, WBINVD, MONITOR, MWAIT twice.
const NEEDED_4: u64 = 0x7F | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12;
/// #DB, #AC, #MC.
const NEEDED_EXCEPTIONS: u64 = 1 << 1 | 1 << 17 | 1 << 18;
/// AVIC.
const AVIC: u64 = 1 << 31;

/// Registers that docs/decisions/0004-msr-policy.md lets a guest use without an
/// exit, by the manual's numbers: first, last, readable, writable.
const MSRS: &[(u32, u32, bool, bool)] = &[
    (0x010, 0x010, true, false),             // TSC
    (0x048, 0x049, true, true),              // SPEC_CTRL, PRED_CMD
    (0x08B, 0x08B, true, false),             // PATCH_LEVEL
    (0x0FE, 0x0FE, true, false),             // MTRRcap
    (0x174, 0x176, true, true),              // SYSENTER_CS, ESP, EIP
    (0x200, 0x20F, true, false),             // MTRRphysBase, Mask
    (0x250, 0x250, true, false),             // MTRRfix64K
    (0x258, 0x259, true, false),             // MTRRfix16K
    (0x268, 0x26F, true, false),             // MTRRfix4K
    (0x277, 0x277, true, true),              // PAT
    (0x2FF, 0x2FF, true, false),             // MTRRdefType
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

/// A rule that does not hold, and where.
pub type Findings = Vec<(&'static str, String)>;

/// A machine to be looked at.
pub struct Audit<'a> {
    pub words: Words<'a>,
    pub baked: &'a Baked,
    /// The monitor's program.
    pub monitor: &'a Path,
}

/// What was looked at.
#[derive(Default)]
pub struct Looked {
    pub findings: Findings,
    /// Nested pages by size.
    pub pages: BTreeMap<u64, usize>,
    pub tables: usize,
}

impl Audit<'_> {
    /// Root of a sandbox's monitor's tables, from the compiled manifest.
    pub fn monitor_root(&self, sandbox: usize) -> u64 {
        let at =
            size_of::<Header>() + sandbox * size_of::<Sandbox>() + offset_of!(Sandbox, monitor_cr3);
        (self.words)(self.baked.map.header + at as u64)
    }

    /// Root of a sandbox's nested tables, from its first core's VMCB.
    pub fn nested_root(&self, sandbox: usize) -> u64 {
        (self.words)(vmcb(self.baked, sandbox, 0) + N_CR3)
    }

    /// A permission map's word, from the first core's VMCB.
    pub fn port_bit(&self, sandbox: usize, port: u64) -> (u64, u64) {
        let map = (self.words)(vmcb(self.baked, sandbox, 0) + IOPM_BASE);
        (map + port / 64 * 8, 1 << (port % 64))
    }

    /// Where an MSR's two bits are (APM 15.11).
    pub fn msr_bits(&self, sandbox: usize, msr: u32) -> (u64, u32) {
        let map = (self.words)(vmcb(self.baked, sandbox, 0) + MSRPM_BASE);
        let vector = match msr {
            0xC000_0000..=0xC000_1FFF => 0x800,
            0xC001_0000..=0xC001_1FFF => 0x1000,
            _ => 0,
        };
        let bit = u64::from(msr & 0x1FFF) * 2;
        (map + vector + bit / 64 * 8, (bit % 64) as u32)
    }

    /// Looks at everything.
    pub fn run(&self) -> Looked {
        let mut looked = Looked::default();
        let count = self.baked.plan.sandboxes.len();
        let nested: Vec<_> =
            (0..count).map(|i| Regime::walk(self.words, self.nested_root(i))).collect();
        let monitors: Vec<_> =
            (0..count).map(|i| Regime::walk(self.words, self.monitor_root(i))).collect();
        for leaf in nested.iter().flat_map(|r| &r.leaves) {
            *looked.pages.entry(leaf.size).or_default() += 1;
        }
        looked.tables = nested.iter().chain(&monitors).map(|r| r.tables.len()).sum();
        let out = &mut looked.findings;
        for i in 0..count {
            let rules = ["nested-map", "nested-rights", "nested-missing"];
            let given = given::to_guest(self.baked, i);
            self.compare(out, i, "", &nested[i], &given, rules);
            page_sizes(out, self.name(i), &nested[i], &given);
            let rules = ["monitor-map", "monitor-rights", "monitor-map"];
            let given = given::to_monitor(self.baked, i, self.monitor);
            self.compare(out, i, "'s monitor", &monitors[i], &given, rules);
            write_xor_execute(out, self.name(i), &monitors[i]);
            self.vmcbs(out, i);
            self.host_state(out, i, &monitors[i]);
            self.ports(out, i);
            self.registers(out, i);
        }
        self.shared(out, &nested, &monitors);
        self.unmapped(out, &nested, &monitors);
        for regime in nested.iter().chain(&monitors) {
            for (at, entry) in &regime.odd {
                out.push(("encoding", format!("the entry {entry:#x} at {at:#x}")));
            }
        }
        for (i, leaf) in
            nested.iter().enumerate().flat_map(|(i, r)| r.leaves.iter().map(move |l| (i, l)))
        {
            if !leaf.user {
                out.push((
                    "encoding",
                    format!("{:#x} of {} is no user page", leaf.address, self.name(i)),
                ));
            }
        }
        looked
    }

    fn name(&self, sandbox: usize) -> &str {
        &self.baked.plan.sandboxes[sandbox].name
    }

    /// Rules: what is mapped beyond what is given, with other rights, and what is not mapped.
    fn compare(
        &self,
        out: &mut Findings,
        i: usize,
        of: &str,
        regime: &Regime,
        given: &[Given],
        rules: [&'static str; 3],
    ) {
        let who = format!("{}{of}", self.name(i));
        let mut covered = vec![0; given.len()];
        for leaf in &regime.leaves {
            let Some(n) = given_for(given, leaf) else {
                let whose = owner(self.baked, leaf.frame);
                let (at, frame) = (leaf.address, leaf.frame);
                out.push((rules[0], format!("{who} reaches {frame:#x} ({whose}) at {at:#x}")));
                continue;
            };
            covered[n] += leaf.size;
            let (has, may) = ((leaf.write, leaf.execute), (given[n].write, given[n].execute));
            if has != may {
                out.push((
                    rules[1],
                    format!("{who} has write, execute {has:?} at {:#x}, not {may:?}", leaf.address),
                ));
            }
        }
        for (g, covered) in given.iter().zip(covered) {
            if covered != g.len {
                let text =
                    format!("{who} has {covered:#x} of {:#x} bytes at {:#x}", g.len, g.address);
                out.push((rules[2], text));
            }
        }
    }

    /// Two sandboxes share a frame only where a channel or `observe` says so; two
    /// monitors only mailboxes and the start-up code; a monitor and another's guest only
    /// an observed report.
    fn shared(&self, out: &mut Findings, nested: &[Regime], monitors: &[Regime]) {
        let plan = &self.baked.plan;
        let inside = |frame: u64, start: u64, len: u64| (start..start + len).contains(&frame);
        let report = |of: usize, frame: u64| {
            inside(frame, self.baked.map.reports[of], given::report_len(self.baked, of))
        };
        let mailboxes = part(self.baked, None, "mailboxes").start;
        for a in 0..nested.len() {
            for b in 0..nested.len() {
                let observes = |who: usize, of: usize| plan.sandboxes[who].observe.contains(&of);
                let guests = |f: u64| {
                    plan.channels.iter().any(|c| {
                        let at = |s: usize| c.from == s || c.to.contains(&s);
                        at(a) && at(b) && inside(f, c.hpa, c.len)
                    }) || (0..nested.len())
                        .any(|of| observes(a, of) && observes(b, of) && report(of, f))
                };
                if a < b {
                    self.meet(out, &nested[a], &nested[b], (a, b), guests);
                    let both =
                        |f: u64| f == 0x8000 || inside(f, mailboxes, nested.len() as u64 * PAGE);
                    self.meet(out, &monitors[a], &monitors[b], (a, b), both);
                }
                if a != b {
                    self.meet(out, &monitors[a], &nested[b], (a, b), |f| {
                        observes(b, a) && report(a, f)
                    });
                }
            }
        }
    }

    fn meet(
        &self,
        out: &mut Findings,
        one: &Regime,
        other: &Regime,
        (a, b): (usize, usize),
        allowed: impl Fn(u64) -> bool,
    ) {
        let mut frames: Vec<_> = one.leaves.iter().map(|l| (l.frame, l.frame + l.size)).collect();
        frames.sort_unstable();
        for leaf in &other.leaves {
            let end = leaf.frame + leaf.size;
            // Pages of one regime may overlap only if something is wrong; a
            // gibibyte is the longest of them.
            let from = frames.partition_point(|f| f.0 + (1 << 30) <= leaf.frame);
            let mut overlaps =
                frames[from..].iter().take_while(|f| f.0 < end).filter(|f| f.1 > leaf.frame);
            if let Some(f) = overlaps.find(|f| !allowed(f.0.max(leaf.frame))) {
                let frame = f.0.max(leaf.frame);
                let (whose, a, b) = (owner(self.baked, frame), self.name(a), self.name(b));
                out.push((
                    "shared-frames",
                    format!("{a}'s and {b}'s tables both lead to {frame:#x} ({whose})"),
                ));
            }
        }
    }

    /// Nobody reaches a table that confines, nor anything of the boot code.
    fn unmapped(&self, out: &mut Findings, nested: &[Regime], monitors: &[Regime]) {
        let mut confining: Vec<u64> =
            nested.iter().chain(monitors).flat_map(|r| r.tables.clone()).collect();
        for i in 0..nested.len() {
            let at = |field| (self.words)(vmcb(self.baked, i, 0) + field);
            confining.extend((0..3).map(|p| at(IOPM_BASE) + p * PAGE));
            confining.extend((0..2).map(|p| at(MSRPM_BASE) + p * PAGE));
            let cores = self.baked.plan.sandboxes[i].cores.len();
            confining.extend((0..cores).map(|c| host_save(self.baked, i, c)));
        }
        confining.sort_unstable();
        let boot: Vec<_> =
            ["boot code", "compiled manifest"].map(|w| part(self.baked, None, w)).into();
        for (n, regime) in nested.iter().chain(monitors).enumerate() {
            let who = format!(
                "{}{}",
                self.name(n % nested.len()),
                if n < nested.len() { "" } else { "'s monitor" }
            );
            for leaf in &regime.leaves {
                let (start, end) = (leaf.frame, leaf.frame + leaf.size);
                let first = confining.partition_point(|t| *t < start);
                if let Some(table) = confining.get(first).filter(|t| **t < end) {
                    out.push(("tables-unmapped", format!("{who} reaches a table at {table:#x}")));
                }
                if let Some(p) = boot.iter().find(|p| p.start < end && start < p.start + p.len) {
                    out.push((
                        "boot-code-unmapped",
                        format!("{who} reaches the {} at {:#x}", p.what, leaf.address),
                    ));
                }
            }
        }
    }

    /// The guests' control blocks: nested paging with these tables, an address space ID
    /// of its own, everything intercepted that must be.
    fn vmcbs(&self, out: &mut Findings, i: usize) {
        let first = vmcb(self.baked, i, 0);
        for core in 0..self.baked.plan.sandboxes[i].cores.len() {
            let block = vmcb(self.baked, i, core);
            let at = |field| (self.words)(block + field);
            let half = |field: u64| at(field & !7) >> (field % 8 * 8) & 0xFFFF_FFFF;
            let mut wrong =
                |what: String| out.push(("vmcb", format!("{} core {core}: {what}", self.name(i))));
            if half(WORD_3) == 0 {
                wrong("it was never launched".into());
                continue;
            }
            let needed = [(EXCEPTIONS, NEEDED_EXCEPTIONS), (WORD_3, NEEDED_3), (WORD_4, NEEDED_4)];
            for (field, bits) in needed {
                if half(field) & bits != bits {
                    wrong(format!("intercepts at {field:#x} lack {:#x}", bits & !half(field)));
                }
            }
            for field in [IOPM_BASE, MSRPM_BASE, N_CR3] {
                if at(field) != (self.words)(first + field) {
                    wrong(format!("another table at {field:#x} than the first core's"));
                }
            }
            if at(NESTED_CTL) != 1 || at(V_INTR) & AVIC != 0 || at(LBR_VIRTUALIZATION) != 0 {
                wrong(format!("nested control {:#x}, V_INTR {:#x}", at(NESTED_CTL), at(V_INTR)));
            }
            let asid = half(GUEST_ASID);
            let others = (0..self.baked.plan.sandboxes.len()).filter(|o| *o != i);
            let taken =
                |o: usize| (self.words)(vmcb(self.baked, o, 0) + GUEST_ASID) & 0xFFFF_FFFF == asid;
            if asid == 0 || { others }.any(taken) {
                wrong(format!("address space ID {asid} is not its own"));
            }
        }
    }

    /// What QEMU saved of the host at the last VMRUN: the core is in its monitor, with
    /// nothing of the boot code's behind it.
    fn host_state(&self, out: &mut Findings, i: usize, monitor: &Regime) {
        for core in 0..self.baked.plan.sandboxes[i].cores.len() {
            let at = |field| (self.words)(host_save(self.baked, i, core) + field);
            let mut wrong = |what: String| {
                out.push(("host-state", format!("{} core {core}: {what}", self.name(i))))
            };
            if at(SAVED_CR3) != self.monitor_root(i) {
                wrong(format!("CR3 is {:#x}", at(SAVED_CR3)));
            }
            for (field, what, execute) in [
                (SAVED_RIP, "RIP", true),
                (SAVED_RSP, "RSP", false),
                (SAVED_GDTR_BASE, "GDTR", false),
                (SAVED_IDTR_BASE, "IDTR", false),
            ] {
                // A stack that is empty ends where its pages end.
                let address = if what == "RSP" { at(field) - 8 } else { at(field) };
                match monitor.leaf(address) {
                    Some(leaf) if leaf.execute || !execute => {}
                    _ => wrong(format!("{what} is {address:#x}, which its monitor does not map")),
                }
            }
        }
    }

    fn ports(&self, out: &mut Findings, i: usize) {
        let devices = &self.baked.plan.sandboxes[i].devices;
        let owned = |port: u64| {
            devices
                .iter()
                .flat_map(|d| &d.ports)
                .any(|p| (u64::from(p.first)..=u64::from(p.last)).contains(&port))
        };
        // The last three bits are for accesses that go beyond port 0xFFFF.
        for port in 0..0x1_0003 {
            let (at, bit) = self.port_bit(i, port);
            let open = (self.words)(at) & bit == 0;
            if open != (port < 0x1_0000 && owned(port)) {
                let what = if open { "reaches" } else { "does not reach" };
                out.push(("ports", format!("{} {what} port {port:#x}", self.name(i))));
            }
        }
    }

    fn registers(&self, out: &mut Findings, i: usize) {
        for base in [0, 0xC000_0000, 0xC001_0000u32] {
            for msr in base..base + 0x2000 {
                let (at, shift) = self.msr_bits(i, msr);
                let bits = (self.words)(at) >> shift;
                let open = (bits & 1 == 0, bits & 2 == 0);
                let of = MSRS.iter().filter(|m| (m.0..=m.1).contains(&msr));
                let may = of.fold((false, false), |may, m| (may.0 | m.2, may.1 | m.3));
                if open != may {
                    out.push((
                        "registers",
                        format!(
                            "{} reads, writes MSR {msr:#x} {open:?}, not {may:?}",
                            self.name(i)
                        ),
                    ));
                }
            }
        }
    }
}

/// The range that gives what a page leads to.
fn given_for(given: &[Given], leaf: &Leaf) -> Option<usize> {
    let n = given.partition_point(|g| g.address <= leaf.address).checked_sub(1)?;
    let g = &given[n];
    let offset = leaf.address - g.address;
    (offset + leaf.size <= g.len && g.frame + offset == leaf.frame).then_some(n)
}

/// Each page is the largest that fits.
fn page_sizes(out: &mut Findings, who: &str, regime: &Regime, given: &[Given]) {
    for leaf in &regime.leaves {
        let Some(g) = given_for(given, leaf).map(|n| &given[n]) else {
            continue;
        };
        for size in [2 << 20, 1u64 << 30].into_iter().filter(|s| *s > leaf.size) {
            let start = leaf.address & !(size - 1);
            let fits = start >= g.address && start + size <= g.address + g.len;
            if fits && (g.frame + (start - g.address)) % size == 0 {
                out.push((
                    "page-sizes",
                    format!(
                        "{who} has {:#x} bytes at {:#x} where {size:#x} fit",
                        leaf.size, leaf.address
                    ),
                ));
                break;
            }
        }
    }
}

/// No frame of a monitor can be both written and executed, whatever the address.
fn write_xor_execute(out: &mut Findings, who: &str, monitor: &Regime) {
    let code: Vec<_> = monitor.leaves.iter().filter(|l| l.execute).collect();
    for leaf in monitor.leaves.iter().filter(|l| l.write) {
        let aliased =
            code.iter().any(|c| c.frame < leaf.frame + leaf.size && leaf.frame < c.frame + c.size);
        if aliased {
            out.push((
                "write-xor-execute",
                format!("{who}'s monitor writes and executes {:#x}", leaf.frame),
            ));
        }
    }
}
