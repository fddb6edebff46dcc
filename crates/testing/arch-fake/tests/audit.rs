//! The auditor reads the odd machine, as it was baked and as it stands after the launch. It finds nothing. Then faults
//! are planted one by one, and each is found by its guarantee.

mod odd;

use bulkhead_arch_fake::messages::{DOORBELL, Mediated, UPPER};
use bulkhead_arch_fake::system::{
    CARD, ECAM, IDS, IOMMU, LINES, STREAM, VECTORS, baked, config, control_blocks, described,
    header, kernel_system, monitor, slice, system,
};
use bulkhead_arch_fake::target::{self, FACTS, PAGE};
use bulkhead_audit::claim::Range;
use bulkhead_audit::memory::Words;
use bulkhead_audit::paging::{Format, entry_at};
use bulkhead_audit::registers::{Core, Registers};
use bulkhead_audit::{Claim, Memory, Report, audit, segments};
use bulkhead_image::{Baked, Target as _};
use bulkhead_layout::map::{CONFIG_VA, CORES_VA, MMIO_VA, REPORT_VA};
use bulkhead_layout::pci::Function;
use bulkhead_plan::Span;
use odd::{Nested, Odd, Own, ROOT, TRAPS};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const TEXT_VA: u64 = 0xFFFF_FFFF_8000_0000;
/// An address of monitors that leads nowhere, below the table of the configuration.
const FREE_VA: u64 = CONFIG_VA + 0x4_0000;
const LEFT: usize = 0;
const RIGHT: usize = 1;

/// Words of a memory that differ from zeros and from the image.
#[derive(Clone)]
struct Physical<'a> {
    baked: &'a Baked,
    words: BTreeMap<u64, u64>,
}

impl Memory for Physical<'_> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let end = address + bytes.len() as u64;
        let all = Span { start: address, len: bytes.len() as u64 };
        let devices = [CARD, LINES, IOMMU].map(|start| Span { start, len: 16 * PAGE });
        let ram = &self.baked.plan.machine.ram;
        if !ram.iter().chain(&devices).any(|there| there.encloses(all)) {
            return false;
        }
        let image = self.baked.bytes.get(address.wrapping_sub(FACTS.image) as usize..);
        let image = image.unwrap_or_default();
        let len = image.len().min(bytes.len());
        bytes[..len].copy_from_slice(&image[..len]);
        bytes[len..].fill(0);
        for (at, word) in self.words.range(address..end) {
            let at = (at - address) as usize;
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        true
    }

    fn data(&self) -> Vec<Range> {
        Vec::new()
    }
}

/// A machine after the launch.
#[derive(Clone)]
struct Rig<'a> {
    memory: Physical<'a>,
    registers: Registers,
    claim: Claim,
}

impl Rig<'_> {
    fn audit(&self) -> Report {
        audit(&self.claim, &self.registers, &self.memory)
    }

    fn word(&self, at: u64) -> u64 {
        Words::new(&self.memory).word(at).expect("memory")
    }

    fn set(&mut self, at: u64, word: u64) {
        self.memory.words.insert(at, word);
    }

    fn control(&self, sandbox: usize, core: usize) -> u64 {
        config(&self.memory.baked.bytes, sandbox).core[core].control_pa
    }

    fn nested_root(&self, sandbox: usize) -> u64 {
        self.word(self.control(sandbox, 0) + ROOT) << 8 >> 8
    }

    fn monitor_root(&self, sandbox: usize) -> u64 {
        described(&self.memory.baked.bytes, sandbox).monitor_root
    }

    fn entry(&self, format: &dyn Format, root: u64, at: u64) -> u64 {
        entry_at(&Words::new(&self.memory), format, root, at)
    }

    /// Changes an entry of a guest's tables.
    fn nested(&mut self, sandbox: usize, gpa: u64, change: impl Fn(u64) -> u64) {
        let at = self.entry(&Nested, self.nested_root(sandbox), gpa);
        self.set(at, change(self.word(at)));
    }

    /// A page of the right guest's RAM leads to a frame.
    fn show(&mut self, frame: u64) {
        self.nested(RIGHT, FACTS.guest.ram[0].start, |_| frame << 8 | 0x24);
    }

    /// Changes an entry of a monitor's tables.
    fn monitor(&mut self, sandbox: usize, va: u64, change: impl Fn(u64) -> u64) {
        let at = self.entry(&Own, self.monitor_root(sandbox), va);
        self.set(at, change(self.word(at)));
    }

    /// A free page of the left monitor's leads to a frame, which it may read, and write by choice.
    fn lead(&mut self, frame: u64, write: bool) {
        let write = if write { 0 } else { 0x80 };
        self.monitor(LEFT, FREE_VA, |_| (frame | 0x22 | write) ^ 0xA5A5_0000_0000_05A5);
    }

    fn stream(&self, stream: u16) -> u64 {
        self.word(IOMMU) / PAGE * PAGE + (255 - u64::from(stream)) * 32
    }

    /// Where the entry for DMA lies that decides about an address.
    fn dma(&self, address: u64) -> u64 {
        let mut table = !self.word(self.stream(STREAM));
        for level in [2, 1] {
            let index = address >> (14 + 11 * level) & 2047;
            table = self.word(table + (2047 - index) * 8).rotate_right(13);
        }
        table + (2047 - (address >> 14 & 2047)) * 8
    }

    /// The card's table for messages.
    fn messages(&self) -> u64 {
        !self.word(self.stream(STREAM) + 16)
    }

    fn ram(&self, sandbox: usize) -> u64 {
        self.memory.baked.plan.sandboxes[sandbox].ram[0].hpa
    }
}

/// Messages that the left guest asks for, one a vector: the second one as the first one.
const MESSAGES: [[u32; 4]; 3] =
    [[DOORBELL, IDS[1], 1000, 0], [DOORBELL, IDS[1], 1000, 0], [DOORBELL, IDS[0], 2899, 0]];

/// The function as the left one's monitor knows it, and its table for messages.
fn card(bytes: &[u8]) -> (Mediated, u64) {
    let functions = slice::<Function>(bytes, LEFT, config(bytes, LEFT).functions);
    let card = functions.into_iter().find(|f| f.bdf == u32::from(STREAM)).expect("the card");
    assert_eq!(card.config_va, MMIO_VA + ECAM + u64::from(STREAM) * PAGE);
    assert_eq!((card.trap, card.trap_len, card.vectors), (CARD + PAGE, PAGE, VECTORS.into()));
    let (registers, table) = (slice(bytes, LEFT, card.registers), card.remap_va - MMIO_VA);
    (Mediated::new(card, registers, &IDS[..2], PAGE as usize / 8), table)
}

/// Plays the launch of a baked system. The left guest has asked for its messages.
fn rig(baked: &Baked) -> Rig<'_> {
    let (bytes, plan) = (&baked.bytes, &baked.plan);
    let programs =
        vec![segments(&monitor()).expect("a program"); bulkhead_layout::need::MONITORS.len()];
    let claim = bulkhead_run::audit::translate(plan, &Odd, &programs).expect("programs");
    let mut memory = Physical { baked, words: BTreeMap::new() };
    let mut registers = Registers::default();
    for (index, sandbox) in plan.sandboxes.iter().enumerate() {
        let root = described(bytes, index).monitor_root;
        for (n, state) in control_blocks(bytes, index).iter().enumerate() {
            let control = config(bytes, index).core[n].control_pa;
            memory.words.extend(state.iter().map(|op| (control + op.dst * 8, op.src)));
            let stack = CORES_VA + (n as u64 * 16 + 4) * PAGE;
            registers.cores.push(Core {
                number: sandbox.cores[n],
                root,
                block: Some(control),
                host: Some([root, TEXT_VA, stack]),
                ..Core::default()
            });
        }
    }
    for (line, core, level) in [(4u64, IDS[1], 0u64), (9, IDS[0], 1), (5, IDS[2], 1)] {
        let word: u64 = 1 << 63 | level << 62 | (3000 - 7 * line) << 24 | u64::from(core);
        memory.words.insert(LINES + line * PAGE, word);
    }
    memory.words.insert(IOMMU, header(bytes).streams.start | 1);
    let (card, table) = card(bytes);
    for (vector, message) in MESSAGES.iter().enumerate() {
        for (word, value) in message.iter().enumerate() {
            card.write(vector as u64, word as u64, *value).expect("the owner's right");
        }
    }
    memory.words.extend((table..).step_by(8).zip(card.entries()));
    Rig { memory, registers, claim }
}

fn made() -> Baked {
    baked(&system(Path::new(env!("CARGO_TARGET_TMPDIR")))).expect("an image")
}

/// The system with a kernel in the right sandbox.
fn with_kernel() -> Baked {
    baked(&kernel_system(Path::new(env!("CARGO_TARGET_TMPDIR")))).expect("an image")
}

#[test]
fn a_kernels_machine_is_what_the_plan_says() {
    let baked = with_kernel();
    let report = rig(&baked).audit();
    assert_eq!((report.findings, report.remarks), (vec![], vec![]));
    assert_eq!(report.access[RIGHT].lines, [(5, IDS[2], 2965)]);
}

#[test]
fn the_machine_is_what_the_plan_says() {
    let baked = made();
    let report = rig(&baked).audit();
    assert_eq!((report.findings, report.remarks), (vec![], vec![]));
    let lines = report.access.iter().map(|access| access.lines.clone());
    let expected = [vec![(4, IDS[1], 2972), (9, IDS[0], 2937)], vec![(5, IDS[2], 2965)]];
    assert_eq!(lines.collect::<Vec<_>>(), expected);
    // The function reaches the left one's RAM and the three regions.
    let plan = &baked.plan;
    let own = plan.sandboxes[LEFT].ram.iter().map(|r| r.len);
    let reached: u64 = own.chain(plan.channels.iter().map(|c| c.len)).sum();
    let [card] = &report.access[LEFT].devices[..] else { panic!("{:?}", report.access) };
    assert_eq!(card.memory.iter().map(|r| r.len).sum::<u64>(), reached);
    assert_eq!(card.interrupts, [(IDS[1], 1000), (IDS[0], 2899)]);
    assert!(report.access[RIGHT].devices.is_empty());
}

#[test]
fn a_message_is_an_interrupt_that_the_owner_may_raise() {
    let baked = made();
    let (card, _) = card(&baked.bytes);
    for (message, allowed) in [
        ([DOORBELL, IDS[1], 2000], true),
        ([DOORBELL, IDS[2], 2000], false),
        ([DOORBELL, IDS[0], 999], false),
        ([DOORBELL, IDS[0], 2900], false),
        ([DOORBELL + 4, IDS[0], 2000], false),
        ([DOORBELL, IDS[0], 2000], true),
    ] {
        card.write(3, 3, 1).expect("a mask");
        for (word, value) in (0..).zip(message) {
            card.write(3, word, value).expect("it is masked");
        }
        assert_eq!(card.write(3, 3, 0).is_ok(), allowed, "{message:x?}");
        assert_eq!(card.has(3, 3), u32::from(!allowed), "{message:x?}");
    }
    // The hardware has the number of the entry in place of the core and the interrupt.
    assert_eq!([0, 1, 2].map(|word| card.has(3, word)), [DOORBELL, UPPER, 1]);
    assert_eq!(card.entries(), [IDS[1], IDS[0]].map(|core| target::Odd::signal(core, 2000)));
}

type Plant = (&'static str, &'static str, fn(&mut Rig));

const PLANTS: &[Plant] = &[
    ("foreign RAM", "nested-map", |r| r.show(r.ram(LEFT))),
    ("foreign RAM, shared", "shared-frames", |r| r.show(r.ram(LEFT))),
    ("own page elsewhere", "nested-map", |r| r.show(r.ram(RIGHT) + PAGE)),
    ("missing page", "nested-missing", |r| r.nested(RIGHT, FACTS.guest.ram[0].start, |_| 0xEE)),
    ("a guest's own table", "tables-unmapped", |r| r.show(r.nested_root(RIGHT))),
    ("a monitor's table", "tables-unmapped", |r| r.show(r.monitor_root(LEFT))),
    ("the IOMMU's table", "tables-unmapped", |r| r.show(r.word(IOMMU) / PAGE * PAGE)),
    ("boot code", "boot-code-unmapped", |r| r.show(FACTS.image)),
    ("channel written by its reader", "nested-rights", |r| {
        r.nested(RIGHT, FACTS.guest.channels.start, |e| e | 4);
    }),
    ("channel not written by its writer", "nested-rights", |r| {
        r.nested(LEFT, FACTS.guest.channels.start, |e| e & !4);
    }),
    ("channel executed", "nested-rights", |r| {
        r.nested(LEFT, FACTS.guest.channels.start, |e| e & !2);
    }),
    ("observed report written", "nested-rights", |r| {
        r.nested(LEFT, FACTS.guest.reports + FACTS.guest.report_stride, |e| e | 4);
    }),
    ("RAM as a device", "encoding", |r| {
        r.nested(LEFT, FACTS.guest.ram[0].start, |e| e | 1 << 63);
    }),
    ("registers as RAM", "encoding", |r| r.nested(LEFT, CARD, |e| e & !(1 << 63))),
    ("reserved bit", "encoding", |r| r.nested(LEFT, FACTS.guest.info, |e| e | 8)),
    ("foreign registers", "nested-map", |r| r.show(CARD)),
    ("link that is not open", "links", |r| {
        let link = r.memory.baked.plan.links[0].clone();
        r.nested(LEFT, link.gpa, |_| link.hpa << 8 | 0x26);
    }),
    ("monitor with foreign RAM", "monitor-map", |r| r.lead(r.ram(RIGHT), false)),
    ("monitor with foreign RAM, shared", "shared-frames", |r| r.lead(r.ram(RIGHT), false)),
    ("monitor with its guest's table", "tables-unmapped", |r| r.lead(r.nested_root(LEFT), true)),
    ("monitor with another line", "monitor-map", |r| r.lead(LINES + 5 * PAGE, true)),
    ("monitor with the IOMMU", "monitor-map", |r| r.lead(IOMMU, true)),
    ("monitor that writes its configuration", "monitor-rights", |r| {
        r.monitor(LEFT, CONFIG_VA, |e| e ^ 0x80);
    }),
    ("monitor that cannot report", "monitor-rights", |r| r.monitor(LEFT, REPORT_VA, |e| e ^ 0x80)),
    ("monitor with another's report", "shared-frames", |r| {
        let other = r.memory.baked.map.reports[RIGHT];
        r.monitor(LEFT, REPORT_VA, |_| (other | 0x22) ^ 0xA5A5_0000_0000_05A5);
    }),
    ("monitor that writes its text", "write-xor-execute", |r| {
        r.monitor(LEFT, TEXT_VA, |e| e ^ 0x80);
    }),
    ("monitor with another text", "monitor-text", |r| {
        r.set(r.memory.baked.map.texts[LEFT].0 + 0x100, 7);
    }),
    ("core with other tables", "control-block", |r| {
        let at = r.control(LEFT, 1) + ROOT;
        r.set(at, r.word(at) + PAGE);
    }),
    ("core with another's tag", "control-block", |r| {
        let at = r.control(LEFT, 0) + ROOT;
        r.set(at, r.nested_root(LEFT) | 2 << 56);
    }),
    ("core without a trap", "registers", |r| r.set(r.control(LEFT, 1) + TRAPS, 0xF0E0)),
    ("core that comes back elsewhere", "host-state", |r| {
        r.registers.cores[2].host = r.registers.cores[2].host.map(|[root, _, sp]| [root, 8, sp]);
    }),
    ("core in another sandbox", "core-state", |r| {
        // Executable in the right one only.
        let pc = FACTS.guest.ram[0].start;
        r.registers.cores[1] = Core { root: 0, pc, ..r.registers.cores[1].clone() };
    }),
    ("IOMMU switched off", "iommu-control", |r| r.set(IOMMU, r.word(IOMMU) & !1)),
    ("stream of nobody", "dma-map", |r| {
        let root = r.word(r.stream(STREAM));
        r.set(r.stream(0x40), root);
    }),
    ("DMA elsewhere", "dma-map", |r| {
        let at = r.dma(FACTS.guest.ram[0].start);
        r.set(at, (r.ram(RIGHT) | 5).rotate_left(13));
    }),
    ("DMA that writes a channel that is read", "dma-rights", |r| {
        let at = r.dma(r.memory.baked.plan.channels[1].gpa);
        r.set(at, (r.word(at).rotate_right(13) | 4).rotate_left(13));
    }),
    ("DMA without a page", "dma-missing", |r| r.set(r.dma(FACTS.guest.ram[0].start), u64::MAX)),
    ("stream without tables", "dma-missing", |r| r.set(r.stream(STREAM), u64::MAX)),
    ("stream without a domain", "device-table", |r| r.set(r.stream(STREAM) + 8, u64::MAX)),
    ("entry for DMA that makes no sense", "device-table", |r| {
        r.set(r.dma(FACTS.guest.ram[0].start), 3u64.rotate_left(13));
    }),
    ("message to another's core", "message-core", |r| {
        r.set(r.messages() + 8, 1 << 63 | 2000 << 24 | u64::from(IDS[2]));
    }),
    ("message with a line's interrupt", "message-vector", |r| {
        r.set(r.messages(), r.word(r.messages()) + (2000 << 24));
    }),
    ("message with a reserved bit", "message-form", |r| {
        r.set(r.messages(), r.word(r.messages()) | 1 << 50);
    }),
    ("table for messages in RAM", "dma-messages", |r| r.set(r.stream(STREAM) + 16, !r.ram(RIGHT))),
    ("table for messages between pages", "dma-messages", |r| {
        r.set(r.stream(STREAM) + 16, !(r.messages() + 8));
    }),
    ("table for messages of two", "dma-messages", |r| {
        let words = [0, 8, 16].map(|at| r.word(r.stream(STREAM) + at));
        [0, 8, 16].into_iter().zip(words).for_each(|(at, word)| r.set(r.stream(0x40) + at, word));
    }),
    ("a guest's own table for messages", "tables-unmapped", |r| r.show(r.messages())),
    ("monitor with another's table for messages", "tables-unmapped", |r| {
        let messages = r.messages();
        r.monitor(RIGHT, FREE_VA, |_| (messages | 0x22) ^ 0xA5A5_0000_0000_05A5);
    }),
    ("a guest's own configuration", "nested-map", |r| r.show(ECAM + u64::from(STREAM) * PAGE)),
    ("a guest's own vectors", "nested-map", |r| r.nested(LEFT, CARD, |e| e + (PAGE << 8))),
    ("line of nobody", "line-owner", |r| r.set(LINES + 3 * PAGE, 1 << 63)),
    ("line to another's core", "line-core", |r| {
        let at = LINES + 4 * PAGE;
        r.set(at, r.word(at) & !0xFF_FFFF | u64::from(IDS[2]));
    }),
    ("line with another interrupt", "line-vector", |r| {
        r.set(LINES + 4 * PAGE, r.word(LINES + 4 * PAGE) + (1 << 24));
    }),
    ("line with another trigger", "line-mode", |r| {
        r.set(LINES + 4 * PAGE, r.word(LINES + 4 * PAGE) | 1 << 62);
    }),
];

#[test]
fn each_fault_is_found_by_its_guarantee() {
    for baked in [made(), with_kernel()] {
        let whole = rig(&baked);
        for (name, rule, plant) in PLANTS {
            let mut planted = whole.clone();
            plant(&mut planted);
            let found = planted.audit().findings;
            let rules: Vec<_> = found.iter().map(|finding| finding.rule).collect();
            assert!(rules.contains(rule), "{name}: {rule} is not among {rules:?}");
        }
    }
}

#[test]
fn a_wrong_bit_in_any_entry_is_found() {
    let baked = made();
    let whole = rig(&baked);
    let report = whole.audit();
    for (sandbox, access) in report.access.iter().enumerate() {
        // Pages that stand for absent functions are alike: two of them do.
        let absent = |gpa: u64| gpa.wrapping_sub(FACTS.guest.configuration) / PAGE;
        for run in access.memory.iter().filter(|run| !(2..256).contains(&absent(run.address))) {
            // The first page of each run and the last one.
            for gpa in BTreeSet::from([run.address, run.address + run.len - PAGE]) {
                for bit in [1, 2, 3, 22, 32, 63] {
                    let mut planted = whole.clone();
                    planted.nested(sandbox, gpa, |entry| entry ^ 1 << bit);
                    assert!(!planted.audit().findings.is_empty(), "{gpa:#x}, bit {bit}");
                }
            }
        }
    }
}
