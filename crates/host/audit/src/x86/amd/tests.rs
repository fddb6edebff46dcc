//! A machine with an IOMMU, two sandboxes and a function, made by hand from the
//! specification; then errors of each kind, one by one.

use super::*;
use crate::claim::{Channel, Line, Ram, Sandbox};
use crate::fake::Fake;
use crate::x86::registers::{Ioapic, Units};
use crate::{Report, audit};

const TABLE: u64 = 0x100_0000;
const ROOT: u64 = 0x110_0000;
const LOW: u64 = 0x111_0000;
const HIGH: u64 = 0x112_0000;
const LAST: u64 = 0x113_0000;
const REMAP: u64 = 0x120_0000;
const LINES: u64 = 0x121_0000;
const RAM: u64 = 0x4000_0000;
const OTHERS: u64 = 0x6000_0000;
const SHARED: u64 = 0x50_0000;
const CHANNEL: u64 = 0xD200_0000;
/// 00:03.0, the first sandbox's, which appears as 00:06.0 too; 00:04.0, nobody's; 00:05.0, the second's; 00:14.0, the
/// IOAPIC.
const OWNED: u64 = 0x18;
const ALIAS: u64 = 0x30;
const IDLE: u64 = 0x20;
const SECOND: u64 = 0x28;
const IOAPIC: u64 = 0xA0;
/// IntCtl = 2.
const REMAPPED: u64 = 2 << 60;
/// The line's entry says vector 24h.
const INDEX: u64 = 0x24;

struct Rig {
    claim: Claim,
    registers: Registers,
    memory: Fake,
}

fn place(line: usize) -> Place {
    Place { file: "m.toml".into(), line, column: 1 }
}

fn claim() -> Claim {
    let sandbox = |name: &str, hpa, line, apic| Sandbox {
        name: name.into(),
        place: place(line),
        cores: vec![apic as usize],
        core_ids: vec![apic],
        ram: vec![Ram { gpa: 0, hpa, len: 4 << 20 }],
        ..Sandbox::default()
    };
    let mut first = sandbox("drive", RAM, 10, 2);
    first.lines.push(Line { pin: 4, level: Some(false) });
    let function = |name: &str, bdf: u64, owner, line| Function {
        name: name.into(),
        bdf: bdf as u16,
        owner,
        place: place(line),
        ..Function::default()
    };
    let first_function =
        Function { aliases: vec![ALIAS as u16], ..function("00:03.0", OWNED, Some(0), 12) };
    Claim {
        place: place(1),
        ram: vec![Range { start: 0, len: 2 << 30 }],
        free: vec![Range { start: 0, len: 2 << 30 }],
        image: Range { start: TABLE, len: 4 << 20 },
        sandboxes: vec![first, sandbox("other", OTHERS, 20, 3)],
        channels: vec![Channel {
            name: "orders".into(),
            place: place(30),
            from: 1,
            to: vec![0],
            hpa: SHARED,
            gpa: CHANNEL,
            len: 0x2000,
            ..Channel::default()
        }],
        functions: vec![
            first_function,
            function("00:04.0", IDLE, None, 40),
            function("00:05.0", SECOND, Some(1), 22),
        ],
        ecam: Some(Range { start: 0xB000_0000, len: 1 << 28 }),
        iommu: Some(crate::claim::Iommu {
            kind: crate::claim::Kind::AmdVi,
            bdf: 8,
            remaps: true,
            registers: Range { start: 0xFED8_0000, len: 0x4000 },
            lines: Some(IOAPIC as u16),
        }),
        controller: Some(0xFEC0_0000),
        timer: None,
        unnamed: Vec::new(),
        shown: Vec::new(),
        withheld: Vec::new(),
        ..Claim::default()
    }
}

/// Sets a quadword of a device table entry.
fn set(memory: &mut Fake, bdf: u64, quad: u64, value: u64) {
    memory.set(TABLE + bdf * 32 + quad * 8, value);
}

fn rig() -> Rig {
    let mut memory = Fake::default();
    for bdf in 0..256 {
        set(&mut memory, bdf, 0, V | TV);
        set(&mut memory, bdf, 2, IV);
    }
    let all = IR | IW | PR;
    // Three levels; RAM in two pages of 2 MiB, the channel in two of 4 KiB, read only.
    for bdf in [OWNED, ALIAS] {
        set(&mut memory, bdf, 0, V | TV | 3 << 9 | ROOT | IR | IW);
        set(&mut memory, bdf, 1, 1);
        set(&mut memory, bdf, 2, IV | 11 << 1 | REMAP | REMAPPED);
    }
    memory.set(ROOT, LOW | 2 << 9 | all);
    memory.set(LOW, RAM | all);
    memory.set(LOW + 8, (RAM + (2 << 20)) | all);
    memory.set(ROOT + (CHANNEL >> 30) * 8, HIGH | 2 << 9 | all);
    memory.set(HIGH + (CHANNEL >> 21 & 511) * 8, LAST | 1 << 9 | all);
    memory.set(LAST, SHARED | IR | PR);
    memory.set(LAST + 8, (SHARED + 0x1000) | IR | PR);
    // Entry 5: to APIC 2, vector 31h. Two entries share a quadword.
    memory.set(REMAP + 16, (1 | 2 << 8 | 0x31 << 16) << 32);
    // The second's function: four levels; the channel, which it writes, is one page of 8 KiB. The address says the
    // length.
    set(&mut memory, SECOND, 0, V | TV | 4 << 9 | 0x114_0000 | IR | IW);
    set(&mut memory, SECOND, 1, 2);
    memory.set(0x114_0000, 0x115_0000 | 3 << 9 | all);
    memory.set(0x115_0000, 0x116_0000 | 2 << 9 | all);
    memory.set(0x116_0000, OTHERS | all);
    memory.set(0x116_0008, (OTHERS + (2 << 20)) | all);
    memory.set(0x115_0000 + (CHANNEL >> 30) * 8, 0x117_0000 | 2 << 9 | all);
    memory.set(0x117_0000 + (CHANNEL >> 21 & 511) * 8, 0x118_0000 | 1 << 9 | all);
    memory.set(0x118_0000, SHARED | 7 << 9 | all);
    memory.set(0x118_0008, SHARED | 7 << 9 | all);
    // The IOAPIC's table: 256 entries, the line's at the index that it sends.
    set(&mut memory, IOAPIC, 2, IV | 8 << 1 | LINES | REMAPPED);
    memory.set(LINES + INDEX * 4, 1 | 2 << 8 | 0x41 << 16);
    let mut entries = vec![1 << 16; 24];
    // With the core, where it would arrive if nobody remapped it.
    entries[4] = INDEX | 2 << 56;
    let own = Units {
        ioapic: Some(Ioapic { entries }),
        pic_masks: Some([0xFF; 2]),
        iommu: Some(registers::Iommu {
            base: 0xFED8_0000,
            device_table: TABLE | 1,
            command_buffer: 0x130_0000 | 8 << 56,
            event_log: 0x131_0000 | 8 << 56,
            control: IOMMU_EN | 1 << 2 | 1 << 12,
            ..registers::Iommu::default()
        }),
        ..Units::default()
    };
    let registers = Registers { own, ..Registers::default() };
    Rig { claim: claim(), registers, memory }
}

/// Findings about devices; there are no processors in this machine.
fn look(rig: &Rig) -> Report {
    const OTHER: [&str; 3] = ["host-state", "core-state", "frames"];
    let mut report = audit(&rig.claim, &rig.registers, &rig.memory);
    report.findings.retain(|f| !OTHER.contains(&f.rule));
    report
}

#[test]
fn a_right_machine_has_no_findings() {
    let rig = rig();
    let report = look(&rig);
    assert_eq!(report.findings, []);
    let device = &report.access[0].devices[0];
    assert_eq!(device.function, "00:03.0");
    let memory: Vec<_> =
        device.memory.iter().map(|r| (r.address, r.frame, r.len, r.rights)).collect();
    assert_eq!(memory, [(0, RAM, 4 << 20, "rw"), (CHANNEL, SHARED, 0x2000, "r")]);
    assert_eq!(device.interrupts, [(2, 0x31)]);
    assert_eq!(report.access[0].devices[1].function, "00:03.0 (as 00:06.0)");
    assert_eq!(report.access[0].lines, [(4, 2, 0x41)]);
    let memory = report.access[1].devices[0].memory.iter().map(|r| (r.frame, r.len, r.rights));
    assert_eq!(memory.collect::<Vec<_>>(), [(OTHERS, 4 << 20, "rw"), (SHARED, 0x2000, "rw")]);
    let owner = |at: u64| {
        let frames = report.frames.iter().find(|f| (f.start..f.start + f.len).contains(&at));
        frames.map(|f| f.owner.clone()).unwrap_or_default()
    };
    assert_eq!(owner(TABLE + 0x1000), "device table of the IOMMU");
    assert_eq!(owner(LAST), "I/O page table of the IOMMU");
    assert_eq!(owner(REMAP + 0x1000), "interrupt remapping table of 00:03.0");
    assert_eq!(owner(0x131_0000), "event log of the IOMMU");
}

type Plant = (&'static str, &'static str, usize, fn(&mut Rig));

fn iommu(rig: &mut Rig) -> &mut registers::Iommu {
    rig.registers.own.iommu.as_mut().expect("it has one")
}

fn entry(rig: &mut Rig, bdf: u64, quad: u64, put: u64, clear: u64) {
    let at = TABLE + bdf * 32 + quad * 8;
    rig.memory.set(at, rig.memory.get(at) & !clear | put);
}

fn word(rig: &mut Rig, at: u64, put: u64, clear: u64) {
    rig.memory.set(at, rig.memory.get(at) & !clear | put);
}

/// Name, rule, line of the manifest that the finding names, what is planted.
const PLANTS: &[Plant] = &[
    ("IOMMU off", "iommu-control", 1, |r| iommu(r).control &= !IOMMU_EN),
    ("IOMMU elsewhere", "iommu-control", 1, |r| iommu(r).base = 0xFED9_0000),
    ("guest translation", "iommu-control", 1, |r| iommu(r).control |= GT_EN),
    ("long remapping entries", "iommu-control", 1, |r| iommu(r).control |= GA_EN),
    ("x2APIC destinations", "iommu-control", 1, |r| iommu(r).control |= XT_EN),
    ("segments", "iommu-control", 1, |r| iommu(r).control |= 1 << 34),
    ("exclusion", "iommu-control", 1, |r| iommu(r).exclusion_base = RAM | 1),
    ("exclusion of all", "iommu-control", 1, |r| iommu(r).exclusion_base = 2),
    ("registers not known", "iommu-control", 1, |r| r.registers.own.iommu = None),
    ("device table in no RAM", "iommu-control", 1, |r| iommu(r).device_table = 5 << 32),
    ("unowned not valid", "device-table", 40, |r| entry(r, IDLE, 0, 0, V)),
    ("undescribed not valid", "device-table", 1, |r| entry(r, 0xFF, 0, 0, V)),
    ("no translation", "device-table", 12, |r| entry(r, OWNED, 0, 0, TV)),
    ("no interrupt control", "device-table", 40, |r| entry(r, IDLE, 2, 0, IV)),
    ("guest tables", "device-table", 12, |r| entry(r, OWNED, 0, 1 << 55, 0)),
    ("page requests", "device-table", 12, |r| entry(r, OWNED, 0, 1 << 52, 0)),
    ("device translates", "device-table", 12, |r| entry(r, OWNED, 1, 1 << 32, 0)),
    ("ports", "device-table", 12, |r| entry(r, OWNED, 1, 1 << 35, 0)),
    ("exclusion allowed", "device-table", 12, |r| entry(r, OWNED, 1, 1 << 39, 0)),
    ("system management", "device-table", 12, |r| entry(r, OWNED, 1, 1 << 40, 0)),
    ("INIT passes", "device-table", 12, |r| entry(r, OWNED, 2, 1 << 56, 0)),
    ("external interrupts pass", "device-table", 40, |r| entry(r, IDLE, 2, 1 << 57, 0)),
    ("NMI passes", "device-table", 12, |r| entry(r, OWNED, 2, 1 << 58, 0)),
    ("LINT0 passes", "device-table", 12, |r| entry(r, OWNED, 2, 1 << 62, 0)),
    ("LINT1 passes", "device-table", 12, |r| entry(r, OWNED, 2, 1 << 63, 0)),
    ("reserved mode", "device-table", 12, |r| entry(r, OWNED, 0, 7 << 9, 0)),
    ("domain of another", "device-table", 22, |r| entry(r, SECOND, 1, 1, 0xFFFF)),
    ("beyond the table", "device-table", 12, |r| r.claim.functions[0].bdf = 0x800),
    ("entry's reserved bits", "device-table", 12, |r| word(r, LOW, 1 << 55, 0)),
    ("level repeated", "device-table", 12, |r| word(r, ROOT, 3 << 9, 7 << 9)),
    ("page not aligned", "device-table", 12, |r| word(r, LOW, 0x1000, 0)),
    ("table in no RAM", "device-table", 12, |r| word(r, ROOT, 5 << 32, 0)),
    ("untranslated", "dma-map", 40, |r| entry(r, IDLE, 0, IR, 0)),
    ("untranslated owner", "dma-map", 12, |r| entry(r, OWNED, 0, 0, 7 << 9)),
    ("unowned with tables", "dma-map", 40, |r| entry(r, IDLE, 0, 3 << 9 | ROOT | IR | IW, 0)),
    ("undescribed with tables", "dma-map", 1, |r| entry(r, 0x77, 0, 3 << 9 | ROOT | IR, 0)),
    ("foreign RAM", "dma-map", 12, |r| word(r, LOW + 16, OTHERS | IR | PR, 0)),
    ("foreign RAM in place of its own", "dma-map", 12, |r| word(r, LOW, OTHERS, ADDRESS)),
    ("foreign tables", "dma-map", 12, |r| {
        entry(r, OWNED, 0, 0x114_0000 | 4 << 9, ADDRESS | 7 << 9)
    }),
    ("message window", "dma-map", 12, |r| word(r, HIGH + 504 * 8, 0xFEE0_0000 | IW | PR, 0)),
    ("whole machine", "dma-map", 12, |r| word(r, ROOT + 8, 0x4000_0000 | IR | IW | PR, 0)),
    ("page of another length", "dma-map", 12, |r| {
        // 8 KiB behind the channel's.
        word(r, LAST + 16, (SHARED + 0x4000) | 7 << 9 | IR | PR, 0);
    }),
    ("channel written", "dma-rights", 30, |r| word(r, LAST, IW, 0)),
    ("RAM not written", "dma-rights", 10, |r| word(r, LOW, 0, IW)),
    ("RAM not read", "dma-rights", 10, |r| word(r, LOW, 0, IR)),
    ("RAM taken away", "dma-missing", 12, |r| word(r, LOW + 8, 0, PR)),
    ("alias taken away", "dma-missing", 12, |r| entry(r, ALIAS, 0, 0, IR | IW)),
    ("alias with foreign tables", "dma-map", 12, |r| {
        entry(r, ALIAS, 0, 0x114_0000 | 4 << 9, ADDRESS | 7 << 9);
    }),
    ("all taken away", "dma-missing", 12, |r| entry(r, OWNED, 0, 0, IR | IW)),
    ("foreign core", "message-core", 12, |r| word(r, REMAP + 16, 1 << 40, 0)),
    ("SMI", "message-form", 12, |r| word(r, REMAP + 16, 2 << 34, 0)),
    ("logical destination", "message-form", 12, |r| word(r, REMAP + 16, 1 << 38, 0)),
    ("guest mode", "message-form", 12, |r| word(r, REMAP + 16, 1 << 39, 0)),
    ("remapping entry's reserved bits", "message-form", 12, |r| word(r, REMAP + 16, 1 << 63, 0)),
    ("low vector", "message-vector", 12, |r| word(r, REMAP + 16, 0, 0xFF << 48)),
    ("second entry of a quadword", "message-core", 12, |r| {
        word(r, REMAP + 16, 1 | 3 << 8 | 0x31 << 16, 0);
    }),
    ("last entry", "message-core", 12, |r| {
        word(r, REMAP + 2047 * 4 - 4, (1 | 3 << 8 | 0x31 << 16) << 32, 0);
    }),
    ("messages pass", "dma-messages", 12, |r| entry(r, OWNED, 2, 1 << 60, 3 << 60)),
    ("unowned messages pass", "dma-messages", 40, |r| entry(r, IDLE, 2, 1 << 60, 0)),
    ("reserved control", "dma-messages", 12, |r| entry(r, OWNED, 2, 3 << 60, 0)),
    ("unowned remapped", "message-core", 40, |r| entry(r, IDLE, 2, REMAPPED | REMAP | 11 << 1, 0)),
    ("reserved length", "dma-messages", 12, |r| entry(r, OWNED, 2, 15 << 1, 0)),
    ("remapping table in no RAM", "dma-messages", 12, |r| entry(r, OWNED, 2, 5 << 32, 0)),
    ("IOAPIC passes without a level line", "dma-messages", 1, |r| {
        entry(r, IOAPIC, 2, 1 << 60, 3 << 60)
    }),
    ("line's entry to a foreign core", "line-core", 10, |r| word(r, LINES + INDEX * 4, 1 << 8, 0)),
    ("line's slot with a foreign core behind it", "line-core", 10, |r| {
        r.registers.own.ioapic.iter_mut().for_each(|ioapic| ioapic.entries[4] = INDEX | 3 << 56);
    }),
    ("line's trigger", "line-mode", 10, |r| {
        r.claim.sandboxes[0].lines[0].level = Some(true);
    }),
    ("line of nobody", "line-owner", 1, |r| r.claim.sandboxes[0].lines.clear()),
];

#[test]
fn each_planted_error_is_found_by_its_rule_and_line() {
    let right = look(&rig());
    for (name, rule, line, plant) in PLANTS {
        let mut rig = rig();
        plant(&mut rig);
        let report = look(&rig);
        let found = report.findings.iter().filter(|f| f.rule == *rule && f.place.line == *line);
        let new = found.filter(|f| !right.findings.contains(f)).count();
        assert!(new > 0, "{name}: {:#?}", report.findings);
    }
}

/// A level line may pass the IOMMU, by IntCtl or unseen (IV = 0): then its entry is looked at itself.
#[test]
fn a_level_line_passes_to_its_owner_alone() {
    for (set, clear) in [(1 << 60, 3 << 60), (0, 3 << 60 | IV)] {
        passes_to_its_owner_alone(set, clear);
    }
}

fn passes_to_its_owner_alone(set: u64, clear: u64) {
    let mut rig = rig();
    rig.claim.sandboxes[0].lines[0].level = Some(true);
    entry(&mut rig, IOAPIC, 2, set, clear);
    let level = |destination: u64, more: u64| destination << 56 | 0x51 | 1 << 15 | more;
    for (value, rule) in [
        (level(2, 0), None),
        (level(3, 0), Some("line-core")),
        (level(2, 2 << 8), Some("line-mode")),
        (level(2, 1 << 11), Some("line-core")),
        (level(2, 0) & !0xFF | 8, Some("line-vector")),
        (level(2, 0) & !(1 << 15), Some("line-mode")),
        (level(3, 1 << 16), None),
    ] {
        if let Some(ioapic) = &mut rig.registers.own.ioapic {
            ioapic.entries[4] = value;
        }
        let found = look(&rig).findings;
        let rules: Vec<_> = found.iter().map(|f| f.rule).collect();
        assert_eq!(rules, rule.into_iter().collect::<Vec<_>>(), "{value:#x}: {found:#?}");
    }
}

#[test]
fn level_vectors_are_unique() {
    let mut rig = rig();
    let lines = [4, 5].map(|pin| Line { pin, level: Some(true) });
    rig.claim.sandboxes[0].lines = vec![lines[0]];
    rig.claim.sandboxes[1].lines = vec![lines[1]];
    entry(&mut rig, IOAPIC, 2, 1 << 60, 3 << 60);
    for (vector, rule) in [(0x52, None), (0x51, Some("line-level-vector"))] {
        if let Some(ioapic) = &mut rig.registers.own.ioapic {
            ioapic.entries[4] = 2 << 56 | 0x51 | 1 << 15;
            ioapic.entries[5] = 3 << 56 | vector | 1 << 15;
        }
        let rules: Vec<_> = look(&rig).findings.iter().map(|f| f.rule).collect();
        assert_eq!(rules, rule.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn pages_of_all_lengths_are_walked() {
    let mut memory = Fake::default();
    let all = IR | IW | PR;
    // Level 6: 57 bits and more are the root's; then straight to level 1.
    memory.set(0x1000 + 8, 0x2000 | 1 << 9 | all);
    memory.set(0x2000, 0x9000 | all);
    // 16 KiB: one 1 in the address, then a 0; four entries of 4 KiB.
    for n in 0..4u64 {
        memory.set(0x2000 + 8 * (4 + n), 0x10_0000 | 0x1000 | 7 << 9 | all);
    }
    memory.set(0x1000 + 8 * 128, 0x2000 | 1 << 9 | all);
    let pages = Pages::walk(&Words::new(&memory), 0x1000, 6, (true, true));
    assert_eq!(pages.tables, [0x1000, 0x2000]);
    assert_eq!(pages.odd, []);
    let at: Vec<_> = pages.leaves.iter().map(|l| (l.address, l.frame, l.size)).collect();
    let base = 1 << 57;
    assert_eq!(
        at,
        [
            (base, 0x9000, 0x1000),
            (base + 0x4000, 0x10_0000, 0x1000),
            (base + 0x5000, 0x10_1000, 0x1000),
            (base + 0x6000, 0x10_2000, 0x1000),
            (base + 0x7000, 0x10_3000, 0x1000),
        ]
    );
    // Rights are those of all levels.
    memory.set(0x1000 + 8, 0x2000 | 1 << 9 | IR | PR);
    let pages = Pages::walk(&Words::new(&memory), 0x1000, 6, (true, true));
    assert!(pages.leaves.iter().all(|l| l.read && !l.write));
    // A page shorter than its level's entry makes no sense.
    memory.set(0x1000 + 8, 0x1000 | 7 << 9 | all);
    let pages = Pages::walk(&Words::new(&memory), 0x1000, 6, (true, true));
    assert_eq!(pages.odd.len(), 1);
}
