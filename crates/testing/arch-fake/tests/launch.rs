//! The launch on a machine that does not exist. It tests the rules for the compiled manifest, the order of cores, and
//! the effects of a launch record on memory.

use bulkhead_arch::{BootMachine, CoreStart};
use bulkhead_arch_fake::FakeMachine;
use bulkhead_launch::{Error, Image, Own, play, start_cores, start_of, verify, words};
use bulkhead_layout::image::{self, ConfigOp, MAGIC, Range, Sandbox, VERSION, checksum};
use bulkhead_layout::map::{CORE_STRIDE, IMAGE_PA};
use bulkhead_layout::record::Op;
use bulkhead_layout::x86::{Header, Iommu, LineTest};
use std::collections::BTreeSet;
use std::ops::Deref;

const MONITORS: u64 = IMAGE_PA + 0x10_0000;

fn machine() -> FakeMachine {
    FakeMachine {
        ram: vec![(0x1000, 0x9E000), (IMAGE_PA, 0x4000_0000)],
        cores: vec![4, 5, 6, 7],
        dead: BTreeSet::new(),
        started: Vec::new(),
        spare: Vec::new(),
        memory: vec![0xEE; 4096],
    }
}

fn portable() -> image::Header {
    image::Header {
        magic: MAGIC,
        version: VERSION,
        sandboxes: 2,
        image: Range { start: IMAGE_PA, len: 0x20_0000 },
        boot: Range { start: IMAGE_PA, len: 0x1_0000 },
        own: Header::OWN,
        ..Default::default()
    }
}

fn header() -> Header {
    Header { portable: portable(), ..Default::default() }
}

/// With a sealed part of these words.
fn sealing(sealed: &[u64]) -> Header {
    let mut header = header();
    header.sealed = size_of_val(sealed) as u64;
    header.checksum = checksum(words(sealed));
    header
}

/// Sandbox `n` with cores of its own and 16 MiB.
fn sandbox(n: u64, ids: &[u32]) -> Sandbox {
    let monitor = MONITORS + n * 0x1_0000;
    let mut sandbox = Sandbox {
        monitor: Range { start: monitor, len: 0x1_0000 },
        monitor_root: monitor + 0x2000,
        entry_va: 0xFFFF_FFFF_8000_0000,
        info_pa: monitor + 0x1000,
        cores: ids.len() as u32,
        ..Default::default()
    };
    sandbox.memory[0] = Range { start: 0x200_0000 + n * 0x100_0000, len: 0x100_0000 };
    sandbox.core_ids[..ids.len()].copy_from_slice(ids);
    sandbox
}

/// Verifies with a checksum that fits, whatever the header says.
fn check(header: &mut Header, sandboxes: &[Sandbox], machine: &FakeMachine) -> Result<(), Error> {
    let sealed = [0, 0, 17, 4];
    header.sealed = 32;
    header.checksum = checksum(words(&sealed));
    verify(
        &Image { at: IMAGE_PA, header, sandboxes, config_ops: &[], launch: &[] },
        &sealed,
        machine,
    )
}

#[test]
fn a_right_image_passes() {
    let two = [sandbox(0, &[5]), sandbox(1, &[4, 7])];
    assert_eq!(check(&mut header(), &two, &machine()), Ok(()));
}

#[test]
fn each_wrong_thing_has_its_error() {
    type Spoil = fn(&mut Header, &mut [Sandbox], &mut FakeMachine);
    let cases: [(Spoil, Error); 18] = [
        (|h, _, _| h.magic = 1, Error::Magic),
        (|h, _, _| h.version = VERSION + 1, Error::Version(VERSION + 1)),
        (|h, _, _| h.image.start += 4096, Error::Bounds("image")),
        (|h, _, _| h.boot.len = u64::MAX, Error::Bounds("boot")),
        (|h, _, _| h.sandboxes = 0, Error::Bounds("number of sandboxes")),
        (|h, _, _| h.own += 8, Error::Bounds("the header's own part")),
        (|h, _, _| h.monitors = 3, Error::Bounds("the kind of monitors")),
        (|_, s, _| s[1].cores = 17, Error::Bounds("number of cores")),
        (|_, s, _| s[0].monitor_root = 0x1000, Error::Bounds("monitor's page tables")),
        (|_, s, _| s[0].spare_root = 0x1000, Error::Bounds("spare monitor's page tables")),
        // A core that is taken has its first vectors there.
        (|_, s, _| s[0].spare_root = s[0].monitor_root, Error::NoRam(u32::MAX, 0, 4096)),
        (
            |_, s, m| {
                m.ram[0] = (0, 0x9F000);
                s[1].spare_root = s[1].monitor_root;
            },
            Error::BootCore(1, 4),
        ),
        (|_, s, _| s[0].memory[0].len = 0, Error::Bounds("memory")),
        (
            |_, s, _| s[1].memory[0].start = s[0].memory[0].start + 0xFF_F000,
            Error::Overlap(1, 0x2FF_F000),
        ),
        (|_, s, _| s[1].memory[0].start = IMAGE_PA, Error::Overlap(1, IMAGE_PA)),
        (|_, _, m| m.ram[1].1 = 0x280_0000, Error::NoRam(1, 0x300_0000, 0x100_0000)),
        (|_, _, m| m.cores.truncate(3), Error::NoCore(1, 7)),
        (|_, s, _| s[1].core_ids[1] = 5, Error::CoreTwice(1, 5)),
    ];
    for (spoil, expected) in cases {
        let (mut h, mut s, mut m) = (header(), [sandbox(0, &[5]), sandbox(1, &[4, 7])], machine());
        spoil(&mut h, &mut s, &mut m);
        assert_eq!(check(&mut h, &s, &m), Err(expected));
    }
}

#[test]
fn kernels_without_monitors_are_filled_from_the_image_alone() {
    let copy = Op { kind: Op::COPY, dst: 0x200_0000, src: IMAGE_PA + 0x1000, len: 0x1000 };
    let check = |op: Op| {
        let (sealed, two) = ([0, 0, 17, 4], [sandbox(0, &[5]), sandbox(1, &[4, 7])]);
        let h = sealing(&sealed);
        let image =
            Image { at: IMAGE_PA, header: &h, sandboxes: &two, config_ops: &[], launch: &[op] };
        verify(&image, &sealed, &machine())
    };
    assert_eq!(check(copy), Ok(()));
    assert_eq!(check(Op { kind: Op::ZERO, src: 0, dst: 0x300_0000, len: 0x100_0000 }), Ok(()));
    let wrong = [
        Op { kind: Op::STORE, ..copy },
        Op { kind: 0, ..copy },
        // Two sandboxes' memory; nobody's; the image itself; beyond all addresses.
        Op { dst: 0x2FF_F800, ..copy },
        Op { dst: 0x400_0000, ..copy },
        Op { dst: IMAGE_PA, ..copy },
        Op { dst: u64::MAX - 7, ..copy },
        // Not from the image.
        Op { src: IMAGE_PA + 0x1F_F800, ..copy },
        Op { src: 0, ..copy },
        Op { dst: copy.dst + 4, ..copy },
        Op { src: copy.src + 4, ..copy },
        Op { len: 12, ..copy },
    ];
    for op in wrong {
        assert_eq!(check(op), Err(Error::Bounds("launch record")), "{op:x?}");
    }
}

#[test]
fn a_channel_that_is_cleared_is_nobodys_ram() {
    let check = |dst, len| {
        let (sealed, two) = ([0, 0, 17, 4], [sandbox(0, &[5]), sandbox(1, &[4, 7])]);
        let mut h = sealing(&sealed);
        h.monitors = 1;
        let op = Op { kind: Op::ZERO, dst, src: 0, len };
        let image =
            Image { at: IMAGE_PA, header: &h, sandboxes: &two, config_ops: &[], launch: &[op] };
        verify(&image, &sealed, &machine())
    };
    assert_eq!(check(0x400_0000, 0x1_0000), Ok(()));
    // Partly a sandbox's memory, or the image; no RAM; the page of start-up code.
    for dst in [0x3FF_F000, IMAGE_PA, IMAGE_PA - 0x1000] {
        assert_eq!(check(dst, 0x2000), Err(Error::Bounds("launch record")), "{dst:#x}");
    }
    assert_eq!(check(0x8000_0000, 8), Err(Error::NoRam(u32::MAX, 0x8000_0000, 8)));
    assert_eq!(check(0x8000, 8), Err(Error::Overlap(u32::MAX, 0x8000)));
}

#[test]
fn kernels_without_monitors_lie_where_the_boot_code_sees() {
    let mut high = sandbox(0, &[5]);
    high.memory[0].start = 0x1_0000_0000;
    let mut machine = machine();
    machine.ram.push((0x1_0000_0000, 0x1000_0000));
    let sealed = [0, 0, 17, 4];
    let mut h = sealing(&sealed);
    h.sandboxes = 1;
    let op = Op { kind: Op::ZERO, dst: 0x1_0000_0000, src: 0, len: 0x1000 };
    let check = |launch: &[Op]| {
        let sandboxes = &[high];
        verify(
            &Image { at: IMAGE_PA, header: &h, sandboxes, config_ops: &[], launch },
            &sealed,
            &machine,
        )
    };
    assert_eq!(check(&[]), Ok(()));
    assert_eq!(check(&[op]), Err(Error::Bounds("launch record")));
}

/// With an IOMMU: device table, command buffer, event log.
fn with_iommu() -> Header {
    let range = |at, len| Range { start: IMAGE_PA + at, len };
    let iommu = Iommu {
        base: 0xFED8_0000,
        device_table: range(0x4_0000, 0x2000),
        commands: range(0x4_2000, 0x2000),
        events: range(0x4_4000, 0x2000),
        lines: LineTest {
            entry: IMAGE_PA + 0x4_0000 + 0xA0 * 32,
            table: IMAGE_PA + 0x4_6000,
            ioapic: 0xFEC0_0000,
            line: 2,
            ..LineTest::default()
        },
    };
    Header { iommu, ..header() }
}

#[test]
fn the_iommu_has_tables_of_its_own() {
    type Spoil = fn(&mut Iommu);
    let two = [sandbox(0, &[5]), sandbox(1, &[4])];
    assert_eq!(check(&mut with_iommu(), &two, &machine()), Ok(()));
    let cases: [Spoil; 20] = [
        |i| i.lines.entry += 8,
        |i| i.lines.entry -= 0x2000,
        |i| i.lines.entry += 0x2000,
        |i| i.lines.table += 8,
        |i| i.lines.table = 0x7000_0000,
        |i| i.lines.table = IMAGE_PA + 0x4_2000,
        |i| i.lines.ioapic += 4,
        |i| i.lines.ioapic = 1 << 32,
        |i| i.lines.line = 32,
        |i| i.base += 1,
        |i| i.base = 1 << 32,
        |i| i.device_table.len = 0,
        |i| i.device_table.len += 8,
        |i| i.device_table.start = IMAGE_PA - 0x1_0000,
        |i| i.events.start = IMAGE_PA + 0x1F_F000,
        |i| i.events.len = 0x1000,
        |i| i.commands.len = 0x4000,
        |i| i.commands.start = i.device_table.start + 0x1000,
        |i| i.events.start = i.commands.start,
        |i| i.device_table.start = IMAGE_PA + 0xF000,
    ];
    for (number, spoil) in cases.into_iter().enumerate() {
        let mut h = with_iommu();
        spoil(&mut h.iommu);
        let found = check(&mut h, &two, &machine());
        assert_eq!(found, Err(Error::Bounds("IOMMU")), "{number}");
    }
    let mut h = with_iommu();
    h.iommu.events.start = MONITORS + 0x1_0000;
    assert_eq!(check(&mut h, &two, &machine()), Err(Error::Overlap(1, MONITORS + 0x1_0000)));
}

#[test]
fn steps_name_registers() {
    let two = [sandbox(0, &[5]), sandbox(1, &[4])];
    let sealed = [0, 0, 17, 4];
    let h = sealing(&sealed);
    let found = |op| {
        verify(
            &Image { at: IMAGE_PA, header: &h, sandboxes: &two, config_ops: &[op], launch: &[] },
            &sealed,
            &machine(),
        )
    };
    let right = ConfigOp { bdf: 8, offset: 0x10, kind: ConfigOp::WRITE, value: 3 };
    assert_eq!(found(right), Ok(()));
    let at = ConfigOp { kind: ConfigOp::EXPECT_AT, value: 0xB000_8000, ..right };
    assert_eq!(found(at), Ok(()));
    let wrong = [
        ConfigOp { kind: 0, ..right },
        ConfigOp { kind: 4, ..right },
        ConfigOp { offset: 0x11, ..right },
        ConfigOp { offset: 256, ..right },
        ConfigOp { value: 0xB000_8002, ..at },
    ];
    for op in wrong {
        assert_eq!(found(op), Err(Error::Bounds("PCI steps")), "{op:?}");
    }
}

#[test]
fn a_changed_word_shows_in_the_checksum() {
    let mut h = header();
    let two = [sandbox(0, &[5]), sandbox(1, &[4])];
    check(&mut h, &two, &machine()).unwrap();
    let image = Image { at: IMAGE_PA, header: &h, sandboxes: &two, config_ops: &[], launch: &[] };
    assert_eq!(verify(&image, &[0, 0, 4, 17], &machine()), Err(Error::Checksum));
    assert_eq!(verify(&image, &[0, 0, 17], &machine()), Err(Error::Checksum));
}

#[test]
fn the_boot_core_goes_last_and_first_cores_after_their_others() {
    let two = [sandbox(0, &[5, 6]), sandbox(1, &[4, 7])];
    let mut m = machine();
    let own = start_cores(&two, &mut m).unwrap();
    let order: Vec<u32> = m.started.iter().map(|s| s.0).collect();
    assert_eq!(order, [6, 5, 7]);
    assert_eq!(own, Some(start_of(&two[1], 0)));
    assert_eq!(m.started[0].1.stack - m.started[1].1.stack, CORE_STRIDE);
    assert_eq!(m.this_core(), 4);
}

#[test]
fn a_core_that_is_taken_goes_to_the_spare_monitor_on_its_own_stack() {
    let mut two = [sandbox(0, &[5, 6]), sandbox(1, &[4, 7])];
    (two[0].spare_root, two[0].spare_entry_va) = (two[0].monitor_root + 4096, 0x1234);
    let mut m = machine();
    start_cores(&two, &mut m).unwrap();
    let spare = |core| CoreStart {
        root: two[0].spare_root,
        entry: 0x1234,
        stack: start_of(&two[0], core).stack,
    };
    assert_eq!(m.spare, [(6, spare(1)), (5, spare(0))]);
}

#[test]
fn a_core_that_does_not_arrive_is_named() {
    let one = [sandbox(0, &[5, 6])];
    let mut m = machine();
    m.dead.insert(6);
    assert_eq!(start_cores(&one, &mut m), Err(6));
}

#[test]
fn a_record_zeroes_copies_and_stores() {
    let mut m = machine();
    m.memory[2048..2056].copy_from_slice(b"pristine");
    let op = |kind, dst, src, len| Op { kind, dst, src, len };
    let record = [op(Op::ZERO, 0, 0, 64), op(Op::COPY, 8, 2048, 8), op(Op::STORE, 24, 0x1122, 8)];
    play(&mut m, &record, 1024);
    assert_eq!(m.memory[1023], 0xEE);
    assert_eq!(&m.memory[1024..1032], &[0; 8]);
    assert_eq!(&m.memory[1032..1040], b"pristine");
    assert_eq!(m.memory[1048..1056], 0x1122u64.to_le_bytes());
    assert_eq!(&m.memory[1056..1088], &[0; 32]);
    assert_eq!(m.memory[1088], 0xEE);
}

#[test]
fn steps_with_registers_come_after_the_page_of_these() {
    let two = [sandbox(0, &[5]), sandbox(1, &[4])];
    let sealed = [0, 0, 17, 4];
    let h = sealing(&sealed);
    let found = |ops: &[ConfigOp]| {
        let image =
            Image { at: IMAGE_PA, header: &h, sandboxes: &two, config_ops: ops, launch: &[] };
        verify(&image, &sealed, &machine())
    };
    let op = |kind, offset, value| ConfigOp { bdf: 0, offset, kind, value };
    let at = op(ConfigOp::AT, 0, 0xFED9_0000);
    let wrong = Err(Error::Bounds("PCI steps"));
    for kind in [ConfigOp::SET, ConfigOp::NEED, ConfigOp::AWAIT, ConfigOp::CLEAR] {
        assert_eq!(found(&[at, op(kind, 0xFFC, 1)]), Ok(()));
        assert_eq!(found(&[at, op(kind, 0x1000, 1)]), wrong);
        assert_eq!(found(&[at, op(kind, 0x1A, 1)]), wrong);
        assert_eq!(found(&[op(kind, 0x18, 1)]), wrong, "of which page?");
        assert_eq!(found(&[op(kind, 0x18, 1), at]), wrong, "too late");
    }
    assert_eq!(found(&[op(ConfigOp::FLUSH, 0, 0)]), Ok(()));
    for odd in
        [op(ConfigOp::AT, 0, 0), op(ConfigOp::AT, 0, 0xFED9_0800), op(ConfigOp::AT, 4, 0x1000)]
    {
        assert_eq!(found(&[odd]), wrong);
    }
}

#[test]
fn tables_of_another_kind_of_iommu_lie_apart_too() {
    let two = [sandbox(0, &[5]), sandbox(1, &[4])];
    let found = |start, len| {
        let iommu = Iommu { device_table: Range { start, len }, ..Iommu::default() };
        check(&mut Header { iommu, ..header() }, &two, &machine())
    };
    assert_eq!(found(IMAGE_PA + 0x4_0000, 0x8_0000), Ok(()));
    assert_eq!(found(IMAGE_PA + 0x4_0008, 0x1000), Err(Error::Bounds("IOMMU")));
    assert_eq!(found(0x7000_0000, 0x1000), Err(Error::Bounds("IOMMU")));
    assert_eq!(found(MONITORS, 0x1000), Err(Error::Overlap(0, MONITORS)));
}

/// A header of another architecture: cores start in the image, and one unit reads tables.
struct Odd(image::Header, Range);

impl Deref for Odd {
    type Target = image::Header;

    fn deref(&self) -> &image::Header {
        &self.0
    }
}

impl Own for Odd {
    const START_CODE: Option<Range> = None;

    fn check(&self) -> Result<(), &'static str> {
        if self.own == 16 { Ok(()) } else { Err("the odd part") }
    }

    fn tables(&self) -> impl Iterator<Item = Range> {
        [self.1].into_iter()
    }
}

#[test]
fn another_architecture_checks_its_own_part() {
    let (sealed, two) = ([0, 0, 17, 4], [sandbox(0, &[5]), sandbox(1, &[4, 7])]);
    let check = |own, table, dst| {
        let h = Odd(image::Header { own, ..*sealing(&sealed) }, table);
        let launch = &[Op { kind: Op::ZERO, dst, src: 0, len: 8 }];
        let image = Image { at: IMAGE_PA, header: &h, sandboxes: &two, config_ops: &[], launch };
        verify(&image, &sealed, &machine())
    };
    // The page in which x86's cores start is memory as any other.
    assert_eq!(check(16, Range::default(), 0x8000), Ok(()));
    assert_eq!(check(15, Range::default(), 0x8000), Err(Error::Bounds("the odd part")));
    let table = Range { start: MONITORS + 0x1_0000, len: 8 };
    assert_eq!(check(16, table, 0x8000), Err(Error::Overlap(1, MONITORS + 0x1_0000)));
}
