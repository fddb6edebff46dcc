//! An image that starts under a Linux that runs already: what confines that Linux, and that the image can be moved.

use bulkhead_arch::{Leaf, Memory, Rights, TableMemory, walk};
use bulkhead_arch_fake::elf;
use bulkhead_arch_x86::vmcb::{
    ASID, CR0, INTERCEPT_ALL, INTERCEPT_LOW, IOPM, MSRPM, N_CR3, NP_ENABLE, RIP, intercept,
};
use bulkhead_arch_x86::{LongMode, config};
use bulkhead_image::late::{BASE, Head, Late, MAGIC, VERSION, relocate};
use bulkhead_image::{Baked, Programs, bake};
use bulkhead_layout::image::{Sandbox as Described, checksum};
use bulkhead_layout::map::{
    CHANNELS_GPA, GUEST_VA, IMAGE_PA, INFO_GPA, LINKS_GPA, MMIO_VA, REPORTS_GPA, TEXT_VA,
};
use bulkhead_layout::monitor::{Action, Ram};
use bulkhead_layout::need::{ALL, MONITORS, RUNNING};
use bulkhead_layout::report::{Kind, State};
use bulkhead_layout::x86::Header;
use bulkhead_plan::{
    BLOCK, Channel, Controller, Device, Guest, Ioapic, Link, Machine, Part, Place, Ports, Right,
    Sandbox, Span, System, UnderLinux, Wanted,
};
use std::path::PathBuf;
use zerocopy::{FromBytes, FromZeros};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const CHANNEL: u64 = CHANNELS_GPA + 0x3000;
const RX: Rights = Rights::RX;

/// Where the boot code's datum lies.
const DATUM: u64 = IMAGE_PA + 0x1000;

/// Appends relocations to a file of one segment and symbols, with the section that they are about.
fn relocatable(mut file: Vec<u8>, len: u64, relocations: &[(u64, u64, u32)]) -> Vec<u8> {
    let word = |file: &[u8], at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let sections = word(&file, 40) as usize;
    let old = file[sections..sections + 3 * 64].to_vec();
    let contents = word(&file, 64 + 8);
    let at = file.len() as u64;
    for &(place, symbol, kind) in relocations {
        for value in [place, symbol << 32 | u64::from(kind), 0] {
            file.extend(value.to_le_bytes());
        }
    }
    let moved = file.len() as u64;
    file.extend(old);
    // Loaded contents; relocations of the third section, by the symbols of the first one.
    let sections = [
        (1u32, [2, IMAGE_PA, contents, len, 0, 8, 0]),
        (4, [0, 0, at, 24 * relocations.len() as u64, 1 | 3 << 32, 8, 24]),
    ];
    for (kind, words) in sections {
        file.extend([0, kind].iter().flat_map(|word| word.to_le_bytes()));
        file.extend(words.iter().flat_map(|word: &u64| word.to_le_bytes()));
    }
    file[40..48].copy_from_slice(&moved.to_le_bytes());
    file[60..62].copy_from_slice(&5u16.to_le_bytes());
    file
}

/// Boot code with fields of four and eight bytes, a distance, and an address that is not its own.
fn boot(relocations: bool) -> Vec<u8> {
    let mut text = vec![0x90; 0x2000];
    let mut put = |at: usize, value: u64, len: usize| {
        text[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
    };
    put(0x200, DATUM, 8);
    put(0x301, DATUM, 4);
    put(0x305, DATUM + 8, 4);
    put(0x400, DATUM - IMAGE_PA - 0x404, 4);
    put(0x500, 0x8000, 8);
    let symbols = [("datum", DATUM), ("page", 0x8000)];
    let file = elf::file(IMAGE_PA + 0x200, &[(IMAGE_PA, RX, &text)], &symbols);
    if !relocations {
        return file;
    }
    let [eight, distance, four, signed] = [1, 2, 10, 11];
    let all = [
        (IMAGE_PA + 0x200, 1, eight),
        (IMAGE_PA + 0x301, 1, signed),
        (IMAGE_PA + 0x305, 1, four),
        (IMAGE_PA + 0x400, 1, distance),
        (IMAGE_PA + 0x500, 2, eight),
    ];
    relocatable(file, text.len() as u64, &all)
}

fn monitor() -> Vec<u8> {
    let handlers = ["monitor_nmi", "monitor_fault", "monitor_drain"].map(|name| (name, TEXT_VA));
    let needs = [("monitor_needs", u64::from(ALL))];
    elf::file(TEXT_VA, &[(TEXT_VA, RX, &[2; 0x3000])], &[&handlers[..], &needs].concat())
}

fn channel() -> Channel {
    Channel {
        name: "told".into(),
        place: Place::default(),
        part: Part::Pages,
        bell: None,
        from: 1,
        to: vec![0],
        stand: None,
        hpa: 0,
        gpa: CHANNEL,
        len: 0x2000,
    }
}

/// A Linux that becomes the running one, and a bare guest with a device that has ports alone.
fn system(test: &str) -> System {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("late-{test}"));
    std::fs::write(&program, elf::file(MIB, &[(MIB, RX, &[3; 0x1000])], &[])).unwrap();
    let mut actions = Sandbox::default().actions;
    actions[Kind::Failure as usize] = Action::Ignore;
    let linux = Sandbox {
        actions,
        name: "ground".into(),
        guest: Guest::Linux { kernel: "none".into(), initrd: None, cmdline: String::new() },
        cores: vec![0],
        core_ids: vec![0],
        control: [vec![Right { sandbox: 1, every: Right::EVERY }], Vec::new(), Vec::new()],
        observe: vec![1],
        ..Sandbox::default()
    };
    let device = Device {
        name: "log".into(),
        ports: vec![Ports { first: 0xE9, last: 0xE9 }],
        ..Device::default()
    };
    let hello = Sandbox {
        name: "hello".into(),
        guest: Guest::Bare { program, args: String::new(), enforce_segments: true },
        cores: vec![1],
        core_ids: vec![2],
        devices: vec![device],
        ..Sandbox::default()
    };
    let wanted = |sandbox| Wanted { sandbox, memory: 16 * MIB, at: None };
    let place = Place { file: "late.toml".into(), line: 7, column: 1 };
    System {
        manifest: "late.toml".into(),
        machine: Machine {
            core_ids: vec![0, 2, 4, 6],
            ram: vec![Span { start: 16 * MIB, len: 2032 * MIB }],
            banks: vec![
                Span { start: 0, len: 2 * GIB },
                Span { start: 4 * GIB, len: GIB + 0x5000 },
            ],
            controller: Some(Controller::Ioapic(Ioapic { base: 0xFEC0_0000, lines: 24 })),
            ..Machine::default()
        },
        sandboxes: vec![wanted(linux), wanted(hello)],
        channels: vec![channel()],
        links: vec![Link {
            owner: 1,
            to: vec![0],
            place: Place::default(),
            hpa: 0,
            gpa: LINKS_GPA,
            len: 0x3000,
            sent: 0x2000,
        }],
        under_linux: Some(UnderLinux {
            sandbox: 0,
            memory: BLOCK,
            unconfined: true,
            restart: false,
            place,
        }),
        ..System::default()
    }
}

fn late(system: &System, relocations: bool) -> Result<Late, String> {
    let (boot, monitor) = (boot(relocations), monitor());
    let programs = Programs { boot: &boot, monitors: [&monitor; MONITORS.len()] };
    Late::bake(system, usize::MAX, &programs).map_err(|e| e.to_string())
}

fn at(system: &System, base: u64) -> Baked {
    let (boot, monitor) = (boot(true), monitor());
    let programs = Programs { boot: &boot, monitors: [&monitor; MONITORS.len()] };
    Late::bake_at(system, usize::MAX, &programs, base).unwrap()
}

/// An image at its address.
struct Image<'a>(&'a [u8]);

impl Image<'_> {
    fn bytes(&self, pa: u64, len: u64) -> &[u8] {
        &self.0[(pa - BASE) as usize..][..len as usize]
    }

    fn word(&self, pa: u64) -> u64 {
        u64::from_le_bytes(self.bytes(pa, 8).try_into().unwrap())
    }

    fn header(&self) -> Header {
        let at = self.word(BASE + 256);
        Header::read_from_prefix(self.bytes(at, size_of::<Header>() as u64)).unwrap().0
    }

    fn sandbox(&self, index: u64) -> Described {
        let at = self.word(BASE + 256) + self.header().sandboxes_at() as u64;
        let len = size_of::<Described>() as u64;
        Described::read_from_bytes(self.bytes(at + index * len, len)).unwrap()
    }
}

impl TableMemory for Image<'_> {
    fn alloc(&mut self, _: u64) -> Option<u64> {
        None
    }

    fn read(&self, pa: u64, index: usize) -> u64 {
        self.word(pa + 8 * index as u64)
    }

    fn write(&mut self, _: u64, _: usize, _: u64) {}
}

#[test]
fn an_image_with_its_relocations_applied_is_the_one_for_another_address() {
    let system = system("moved");
    let late = late(&system, true).unwrap();
    let base = late.baked.plan.image.start;
    assert_eq!((base, late.block), (BASE, BLOCK));
    let offset = |at: u64| late.relocations.contains(&(at as u32));
    assert_eq!([0x200, 0x301, 0x305, 0x400, 0x500].map(offset), [true, true, true, false, false]);
    assert!(late.relocations.is_sorted());
    let sum = (late.baked.map.header - BASE) as usize + 8;
    // Below and above the address for which it was made.
    for other in [BASE + 5 * BLOCK, BASE - 3 * BLOCK] {
        let mut moved = late.baked.bytes.clone();
        relocate(&mut moved, &late.relocations, other.wrapping_sub(BASE));
        let mut expected = at(&system, other).bytes;
        assert_ne!(moved[sum..sum + 8], expected[sum..sum + 8]);
        expected[sum..sum + 8].copy_from_slice(&moved[sum..sum + 8]);
        assert!(moved == expected, "{other:#x}");
    }
    // As the boot code finds it at its address.
    let image = Image(&late.baked.bytes);
    assert_eq!(image.word(BASE + 0x200), DATUM - IMAGE_PA + BASE);
    assert_eq!(image.word(BASE + 0x500), 0x8000);
}

#[test]
fn a_file_has_its_head_the_image_and_the_relocations() {
    let late = late(&system("file"), true).unwrap();
    let file = late.file();
    let (head, rest) = Head::read_from_prefix(&file).unwrap();
    let words = rest.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let (image, relocations) = (late.baked.bytes.len() as u64, late.relocations.len() as u64);
    let (magic, version, base, block) = (MAGIC, VERSION, BASE, BLOCK);
    let checksum = checksum(words);
    let reserved = 0;
    let expected = Head { magic, version, base, image, relocations, block, checksum, reserved };
    assert_eq!(head, expected);
    assert_eq!(&file[..8], b"BHUNDER1");
    assert_eq!(rest[..image as usize], late.baked.bytes);
    assert_eq!(rest.len() as u64, image + (4 * relocations).next_multiple_of(8));
    let first = rest[image as usize..].first_chunk().unwrap();
    assert_eq!(u32::from_le_bytes(*first), late.relocations[0]);
}

#[test]
fn a_normal_image_needs_no_relocations_and_another_one_does() {
    let mut system = system("normal");
    let why = late(&system, false).err().unwrap();
    assert!(why.contains("--emit-relocs"), "{why}");
    // The Linux' kernel is no file.
    system.sandboxes.remove(0);
    system.sandboxes[0].sandbox.control = Default::default();
    (system.channels, system.links) = (Vec::new(), Vec::new());
    let monitor = monitor();
    let baked = |boot: Vec<u8>| {
        bake(&system, &Programs { boot: &boot, monitors: [&monitor; MONITORS.len()] }).unwrap()
    };
    let [without, with] = [false, true].map(|relocations| baked(boot(relocations)));
    assert!(without.bytes == with.bytes && with.map.fields.is_empty());
    assert_eq!(with.plan.image.start, IMAGE_PA);
}

#[test]
fn the_header_says_where_the_control_blocks_and_the_block_are() {
    let late = late(&system("header"), true).unwrap();
    let image = Image(&late.baked.bytes);
    let header = image.header();
    let (running, block) = (header.running, header.block);
    assert_eq!((header.sandboxes, header.config_ops), (2, 0));
    assert_eq!((block.start, block.len), (BASE, BLOCK));
    let linux = image.sandbox(1);
    assert_eq!((linux.cores, &linux.core_ids[..3]), (3, &[0, 4, 6][..]));
    assert!(linux.memory.iter().all(|range| range.len == 0));
    assert_eq!(running.len, 3 * 4096);
    assert!(running.start >= linux.monitor.start);
    assert!(running.start + running.len <= linux.monitor.start + linux.monitor.len);
    let hello = image.sandbox(0);
    assert!(hello.memory[0].start > BASE && hello.memory[0].len == 16 * MIB);
    // All cores alike: confined, without any state.
    let block = |core: u64| image.bytes(running.start + core * 4096, 4096);
    assert!(block(0) == block(1) && block(1) == block(2));
    let field = |at: u16| image.word(running.start + u64::from(at));
    let free = intercept::CPUID | intercept::MONITOR | intercept::MWAIT | intercept::MWAIT_ARMED;
    let all = field(INTERCEPT_LOW) >> 32 | field(INTERCEPT_LOW + 8) << 32;
    assert_eq!(all & INTERCEPT_ALL, INTERCEPT_ALL & !free);
    assert_eq!((field(NP_ENABLE), field(ASID) as u32), (1, 2));
    assert_eq!([RIP, CR0].map(field), [0; 2]);
    // MSRs as for any guest: not the control of SVM.
    assert_eq!(image.bytes(field(MSRPM) + 0x800, 1)[0] & 0b11, 0b11);
}

#[test]
fn ports_are_the_linux_but_those_of_others_and_those_that_reset() {
    let mut system = system("ports");
    let trapped = |late: &Late| -> Vec<u64> {
        let image = Image(&late.baked.bytes);
        let map = image.word(image.header().running.start + u64::from(IOPM));
        let trapped = |port: u64| image.bytes(map + port / 8, 1)[0] >> (port % 8) & 1 == 1;
        (0..0x1_0000).filter(|port| trapped(*port)).collect()
    };
    let baked = late(&system, true).unwrap();
    let (all, image) = (trapped(&baked), Image(&baked.baked.bytes));
    let map = image.word(image.header().running.start + u64::from(IOPM));
    let bells = 0x640..0x640 + bulkhead_layout::bell::MAX_BELLS as u64;
    let expected: Vec<u64> = [0x64, 0xB2, 0xE9, 0x604, 0x605]
        .into_iter()
        .chain(bells)
        .chain(0x660..0x681)
        .chain([0xCF9])
        .collect();
    assert_eq!(all, expected);
    // Those of devices that are nobody's, but for the port of a delay, and for power management that it answers.
    let device = |class: &str, first, last, irq, nobody: bool| Device {
        class: class.into(),
        ports: vec![Ports { first, last }],
        irq,
        nobody: nobody.then(|| "it harms".into()),
        ..Device::default()
    };
    system.machine.devices = vec![
        device("dma", 0x80, 0x8F, None, true),
        device("reset", 0x92, 0x92, None, true),
        device("acpi-pm", 0x600, 0x607, Some(9), true),
        device("acpi-pm", 0xCC0, 0xCC1, None, true),
        device("pic", 0x20, 0x21, None, true),
        device("reset", 0x93, 0x93, None, false),
    ];
    let more = trapped(&late(&system, true).unwrap());
    let added: Vec<u64> = more.into_iter().filter(|port| !expected.contains(port)).collect();
    assert_eq!(added, (0x81..0x90).chain([0x92, 0xCC0, 0xCC1]).collect::<Vec<_>>());
    // An access that begins at the last port does not leave the map.
    assert_eq!(image.bytes(map + 0x2000, 1)[0], 0xFF);
}

#[test]
fn the_monitor_reads_the_linux_memory_and_writes_the_page_of_its_apic() {
    let late = late(&system("reads"), true).unwrap();
    let (plan, image) = (&late.baked.plan, Image(&late.baked.bytes));
    let root = image.sandbox(1).monitor_root;
    let leaf = |at: u64| walk::<LongMode>(&image, root, at);
    let ram = |gpa: u64| leaf(GUEST_VA + gpa).map(|leaf| (leaf.pa, leaf.rights, leaf.size));
    // In pages of 2 MiB: the block too, for the late boot code takes that out.
    for gpa in [16 * MIB, BASE, BASE + BLOCK - 2 * MIB, 4 * GIB] {
        assert_eq!(ram(gpa), Some((gpa, Rights::R, 2 * MIB)), "{gpa:#x}");
    }
    // Nothing but RAM of the machine's description.
    assert_eq!([0x8000, 0xC000_0000, 0xFEC0_0000, 0xFEE0_0000, 6 * GIB].map(ram), [None; 5]);
    let page = leaf(MMIO_VA + 0xFEE0_0000).map(|leaf| (leaf.pa, leaf.rights, leaf.size));
    assert_eq!(page, Some((0xFEE0_0000, Rights::RW, 4096)));
    assert_eq!(leaf(MMIO_VA + 0xFEE0_1000), None);
    // The list for the monitor's check is what is mapped.
    let memory = plan.running_memory(1);
    assert!(
        memory.iter().all(|piece| ram(piece.start).is_some() && ram(piece.end() - 1).is_some())
    );
    assert!(!memory.iter().any(|piece| piece.contains(0x8000) || piece.contains(CHANNELS_GPA)));
    let mut config = config::Config::new_zeroed();
    config.block = Ram { gpa: BASE, len: BLOCK };
    let pieces: Vec<_> = memory.iter().map(|span| Ram { gpa: span.start, len: span.len }).collect();
    for (at, reads) in [
        (0x7FF8, true),
        (0x8000, false),
        (BASE - 8, true),
        (BASE, false),
        (BASE + BLOCK - 8, false),
        (BASE + BLOCK, true),
        (0xFEE0_0000, false),
        (4 * GIB, true),
        (6 * GIB, false),
        (!7, false),
    ] {
        assert_eq!(config.reads(&pieces, at), reads, "{at:#x}");
    }
    // No other monitor has any of it.
    assert_eq!(
        walk::<LongMode>(&image, image.sandbox(0).monitor_root, MMIO_VA + 0xFEE0_0000),
        None
    );
}

#[test]
fn the_linux_reaches_its_machine_and_what_it_is_shown() {
    let late = late(&system("reach"), true).unwrap();
    let image = Image(&late.baked.bytes);
    let root = image.word(image.header().running.start + u64::from(N_CR3));
    let leaf = |gpa: u64| walk::<LongMode>(&image, root, gpa);
    let to = |gpa: u64| leaf(gpa).map(|leaf| leaf.pa);
    let own = |gpa: u64| {
        leaf(gpa).map(|Leaf { pa, rights, size, .. }| (pa == gpa, rights == Rights::RWX, size))
    };
    // Identity, in pages of 2 MiB: the block too, for its boot code takes that out.
    for gpa in [16 * MIB, BASE, BASE + BLOCK - 1, 0xC000_0000, 0xFEC0_0000, 4 * GIB, 5 * GIB - 1] {
        assert_eq!(own(gpa), Some((true, true, 2 * MIB)), "{gpa:#x}");
    }
    for gpa in [0, 0x7000, 0x9000, 5 * GIB + 0x4FFF] {
        assert_eq!(own(gpa), Some((true, true, 4096)), "{gpa:#x}");
    }
    // Registers of the core's own APIC can be read, and messages to others cannot be written.
    let apic = |pa| Leaf { pa, rights: Rights::R, memory: Memory::Normal, size: 4096 };
    assert_eq!(leaf(0xFEE0_0000), Some(apic(0xFEE0_0000)));
    for gpa in [0x8000, 0xFEE0_1000, 0xFEEF_FFFF, LINKS_GPA, LINKS_GPA + 0x1F_FFFF] {
        assert_eq!(leaf(gpa), None, "{gpa:#x}");
    }
    assert_eq!([5 * GIB + 0x5000, 6 * GIB].map(leaf), [None; 2]);
    let plan = &late.baked.plan;
    let shown = |gpa: u64, pa: u64| {
        assert_eq!(leaf(gpa).map(|leaf| (leaf.pa, leaf.rights)), Some((pa, Rights::R)), "{gpa:#x}");
    };
    shown(INFO_GPA, image.sandbox(1).info_pa);
    shown(CHANNEL + 0x1000, plan.channels[0].hpa + 0x1000);
    shown(REPORTS_GPA, late.baked.map.reports[0]);
    assert_eq!(to(CHANNEL - 0x1000), Some(CHANNEL - 0x1000));
    assert_eq!(to(CHANNEL + 0x2000), Some(CHANNEL + 0x2000));
}

#[test]
fn monitors_are_told_that_the_linux_runs_and_that_cores_are_had_back() {
    let late = late(&system("told"), true).unwrap();
    let image = Image(&late.baked.bytes);
    let config = |index: u64| {
        let root = image.sandbox(index).monitor_root;
        let at = walk::<LongMode>(&image, root, bulkhead_layout::map::CONFIG_VA).unwrap().pa;
        let len = size_of::<config::Config>() as u64;
        (at, config::Config::read_from_bytes(image.bytes(at, len)).unwrap())
    };
    let [(_, hello), (at, linux)] = [0, 1].map(config);
    assert_eq!([hello.begin, linux.begin], [State::Launching as u32, State::Running as u32]);
    assert_eq!((linux.start.launch.len, linux.cpuid.len), (0, 0));
    assert!(hello.start.launch.len > 0 && hello.cpuid.len > 0 && linux.ports.len > 0);
    assert!(linux.ram.iter().all(|ram| ram.len == 0));
    assert_eq!(linux.core[0].control_pa, image.header().running.start);
    // The intercept of INIT in the states in which cores start.
    let init = |at: u64, state: bulkhead_layout::monitor::Slice| {
        let ops = (0..u64::from(state.len)).map(|n| at + u64::from(state.offset) + 32 * n);
        let words = ops.map(|op| [8, 16].map(|word| image.word(op + word)));
        let low = words.filter(|[dst, _]| *dst == u64::from(INTERCEPT_LOW)).map(|[_, src]| src);
        low.map(|low| low >> 32 & intercept::INIT != 0).collect::<Vec<_>>()
    };
    assert_eq!(init(config(0).0, hello.start.first_state), [false]);
    assert_eq!(init(at, linux.start.other_state), [true]);
    let needs = MONITORS.iter().find(|(name, _)| *name == "monitor-running");
    assert!(needs.is_some_and(|(_, has)| has & RUNNING != 0));
}

#[test]
fn a_system_that_does_not_fit_in_the_block_is_refused_with_the_key() {
    let mut system = system("misfit");
    system.sandboxes[1].memory = 256 * MIB;
    let why = late(&system, true).err().unwrap();
    assert!(why.starts_with("late.toml:7: the block of 128 MiB "), "{why}");
    assert!(why.contains("256 MiB of sandbox `hello`") && why.contains("`under_linux.memory`"));
    system.under_linux = None;
    let why = late(&system, true).err().unwrap();
    assert!(why.contains("add `[under_linux]`"), "{why}");
}
