//! A system is planned and baked for the odd target, and its tables are walked. Each sandbox and each monitor reaches
//! the plan's pages with the plan's rights, and nothing else. A wrong right in an entry is found.

use bulkhead_arch::{Leaf, Memory, PageFormat, Rights, TableMemory, leaves, lowest, walk};
use bulkhead_arch_fake::target::{ARCH, Config, FACTS, Odd, PAGE};
use bulkhead_arch_fake::{FakeNested, FakeOwn, elf};
use bulkhead_channel::layout::{Kind, Shape};
use bulkhead_image::{Baked, Error, Programs, Target, bake, bake_for};
use bulkhead_layout::image::{Header, Sandbox as Described};
use bulkhead_layout::info::Info;
use bulkhead_layout::map::{CONFIG_VA, CORES_VA, GUEST_VA, LINK_TABLES_VA, MAILBOX_VA, REPORT_VA};
use bulkhead_layout::monitor::{Action, Slice};
use bulkhead_layout::record::Op;
use bulkhead_layout::report::{KINDS, size};
use bulkhead_layout::{bell, need};
use bulkhead_plan::{
    Bell, Channel, Guest, Link, Machine, Part, Plan, Right, Sandbox, Span, System, Wanted,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use zerocopy::FromBytes;

const MIB: u64 = 1 << 20;
/// A guest's program: text, then data.
const TEXT: u64 = FACTS.guest.ram[0].start + 4 * PAGE;
/// A monitor's text.
const MONITOR: u64 = 0xFFFF_FFFF_8000_0000;
const IDS: [u32; 3] = [0x2_0000, 0x1_0100, 0x1_0300];

fn program(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let segments: [(u64, Rights, &[u8]); 2] =
        [(TEXT, Rights::RX, &[7; 64]), (TEXT + 2 * PAGE, Rights::RW, &[9; 64])];
    // Tests make it at once. A rename shows each of them a whole file.
    let own = path.with_extension(format!("{:?}", std::thread::current().id()));
    std::fs::write(&own, elf::file(TEXT, &segments, &[])).expect("a file");
    std::fs::rename(&own, &path).expect("a file");
    path
}

fn sandbox(name: &str, cores: &[usize], enforce_segments: bool) -> Sandbox {
    Sandbox {
        name: name.into(),
        place: Default::default(),
        guest: Guest::Bare { program: program(name), args: "odd".into(), enforce_segments },
        cores: cores.to_vec(),
        core_ids: cores.iter().map(|core| IDS[*core]).collect(),
        ram: Vec::new(),
        devices: Vec::new(),
        functions: Vec::new(),
        control: Default::default(),
        observe: Vec::new(),
        actions: [Action::Stop; KINDS],
        autostart: true,
        learn: false,
        criticality: None,
    }
}

/// Two sandboxes: raw pages to the right, messages with a doorbell to the left, a link of the left one's.
fn system() -> System {
    let machine = Machine {
        name: "odd".into(),
        arch: ARCH,
        core_ids: IDS.to_vec(),
        ram: vec![Span { start: 0x4_0000_0000, len: 0x2_0000_0000 }],
        ..Machine::default()
    };
    let mut left = sandbox("left", &[0, 1], true);
    left.observe = vec![1];
    left.control[0] = vec![Right { sandbox: 1, every: Right::EVERY }];
    let right = sandbox("right", &[2], false);
    let mut gpa = FACTS.guest.channels.start;
    let mut channel = |name: &str, part, bell, from, to, len| {
        let channel = Channel {
            name: name.into(),
            place: Default::default(),
            part,
            bell,
            from,
            to: vec![to],
            hpa: 0,
            gpa,
            len,
        };
        gpa += len;
        channel
    };
    let shape = Shape::within(Kind::Queue, 2 * PAGE as usize, 64).expect("room");
    let bell = Bell::new(ARCH, 2, 5, false);
    let channels = vec![
        channel("pages", Part::Pages, None, 0, 1, 3 * PAGE),
        channel("queue", Part::Tx(shape), None, 1, 0, 2 * PAGE),
        channel("queue", Part::Rx, Some(bell), 0, 1, PAGE),
    ];
    let link = Link {
        owner: 0,
        to: vec![1],
        place: Default::default(),
        hpa: 0,
        gpa: FACTS.guest.links.start,
        len: 3 * PAGE,
        sent: 2 * PAGE,
    };
    let wanted = |sandbox, memory| Wanted { sandbox, memory, at: None };
    System {
        name: "odd".into(),
        machine,
        // One fills the first window of RAM, and the other one needs both.
        sandboxes: vec![wanted(left, 33 * MIB), wanted(right, 3 * MIB)],
        channels,
        links: vec![link],
        ..System::default()
    }
}

fn made() -> Baked {
    baked(&system()).expect("an image")
}

fn baked(system: &System) -> Result<Baked, Error> {
    let boot = elf::file(FACTS.image + 0x400, &[(FACTS.image, Rights::RX, &[1; 0x2000])], &[]);
    let text: [(u64, Rights, &[u8]); 2] =
        [(MONITOR, Rights::RX, &[2; 0x5000]), (MONITOR + 4 * PAGE, Rights::R, &[3; 8])];
    let monitor = elf::file(MONITOR, &text, &[("monitor_needs", u64::from(need::ALL))]);
    bake_for::<Odd>(system, &Programs { boot: &boot, monitors: [&monitor; 4] })
}

/// The image in memory.
struct Memory16<'a>(&'a [u8]);

impl TableMemory for Memory16<'_> {
    fn alloc(&mut self, _: u64) -> Option<u64> {
        None
    }

    fn read(&self, pa: u64, index: usize) -> u64 {
        let at = (pa - FACTS.image) as usize + 8 * index;
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("8 bytes"))
    }

    fn write(&mut self, _: u64, _: usize, _: u64) {}
}

fn header(bytes: &[u8]) -> Header {
    let at = Memory16(bytes).read(FACTS.image + 256, 0) - FACTS.image;
    Header::read_from_prefix(&bytes[at as usize..]).expect("a header").0
}

fn described(bytes: &[u8], index: usize) -> Described {
    let at = (Memory16(bytes).read(FACTS.image + 256, 0) - FACTS.image) as usize;
    let at = at + size_of::<Header>() + index * size_of::<Described>();
    Described::read_from_prefix(&bytes[at..]).expect("a sandbox").0
}

/// Physical address of a monitor's configuration, by its own tables.
fn config_at(bytes: &[u8], index: usize) -> usize {
    let root = described(bytes, index).monitor_root;
    let leaf = walk::<FakeOwn<PAGE>>(&Memory16(bytes), root, CONFIG_VA).expect("mapped");
    (leaf.pa - FACTS.image) as usize
}

fn config(bytes: &[u8], index: usize) -> Config {
    Config::read_from_prefix(&bytes[config_at(bytes, index)..]).expect("a configuration").0
}

fn slice<T: FromBytes>(bytes: &[u8], index: usize, slice: Slice) -> Vec<T> {
    let at = config_at(bytes, index) + slice.offset as usize;
    let each = |n: usize| match T::read_from_prefix(&bytes[at + n * size_of::<T>()..]) {
        Ok((value, _)) => value,
        Err(_) => panic!("element {n} is cut off"),
    };
    (0..slice.len as usize).map(each).collect()
}

/// Root of a sandbox' nested tables, out of the state in which its first core starts.
fn nested_root(bytes: &[u8], index: usize) -> u64 {
    let state: Vec<Op> = slice(bytes, index, config(bytes, index).first_state);
    let root = state.iter().find(|op| op.dst == Odd::ROOT).expect("a root").src;
    assert_eq!(root >> 56, index as u64 + 1, "tag");
    root << 8 >> 8
}

type Reach = BTreeMap<u64, (u64, Rights)>;

fn walked<F: PageFormat>(bytes: &[u8], root: u64) -> BTreeMap<u64, Leaf> {
    let mut all = BTreeMap::new();
    leaves::<F>(&Memory16(bytes), root, &mut |at, leaf| {
        for n in 0..leaf.size / PAGE {
            let page = Leaf { pa: leaf.pa + n * PAGE, ..leaf };
            assert_eq!(all.insert(at + n * PAGE, page), None, "{at:#x} twice");
        }
    });
    all
}

fn reach(all: &BTreeMap<u64, Leaf>) -> Reach {
    all.iter().map(|(at, leaf)| (*at, (leaf.pa, leaf.rights))).collect()
}

/// All that a sandbox reaches according to the plan, beside pages of the image.
fn planned(plan: &Plan, index: usize) -> Reach {
    let mut all = Reach::new();
    let mut add = |gpa: u64, hpa: u64, len: u64, rights| {
        for at in (0..len).step_by(PAGE as usize) {
            all.insert(gpa + at, (hpa + at, rights));
        }
    };
    let segments = index == 0;
    for ram in &plan.sandboxes[index].ram {
        add(ram.gpa, ram.hpa, ram.len, if segments { Rights::RW } else { Rights::RWX });
    }
    if segments {
        add(TEXT, plan.sandboxes[0].ram[0].hpa + 4 * PAGE, PAGE, Rights::RX);
    }
    for c in &plan.channels {
        add(c.gpa, c.hpa, c.len, if c.from == index { Rights::RW } else { Rights::R });
    }
    all
}

/// Compares what a sandbox reaches with the plan; the first difference.
fn wrong(baked: &Baked, index: usize) -> Option<String> {
    let bytes = &baked.bytes;
    let mut found = reach(&walked::<FakeNested>(bytes, nested_root(bytes, index)));
    let mut shown = vec![(FACTS.guest.info, described(bytes, index).info_pa)];
    if index == 0 {
        let cores = baked.plan.sandboxes[1].cores.len();
        let pages = (0..FACTS.paged(size(cores))).step_by(PAGE as usize);
        let report = FACTS.guest.reports + FACTS.guest.report_stride;
        shown.extend(pages.map(|at| (report + at, baked.map.reports[1] + at)));
    }
    for (at, pa) in shown {
        if found.remove(&at) != Some((pa, Rights::R)) {
            return Some(format!("{at:#x} shows another page, or may be written"));
        }
    }
    let planned = planned(&baked.plan, index);
    let one = |a: &Reach, b: &Reach| {
        a.iter().find(|(at, to)| b.get(at) != Some(to)).map(|(at, to)| format!("{at:#x} {to:x?}"))
    };
    one(&found, &planned).or_else(|| one(&planned, &found))
}

#[test]
fn the_plan_asks_the_target() {
    let plan = system().plan(MIB).expect("room");
    assert_eq!(plan.image.start, FACTS.image);
    let [first, second] = plan.sandboxes[0].ram[..] else { panic!("{:?}", plan.sandboxes[0].ram) };
    assert_eq!((first.gpa, first.len), (FACTS.guest.ram[0].start, 32 * MIB));
    assert_eq!((second.gpa, second.len), (FACTS.guest.ram[1].start, MIB));
    let rams = plan.sandboxes.iter().flat_map(|s| &s.ram).map(|ram| (ram.hpa, ram.len));
    let others = plan.channels.iter().map(|c| (c.hpa, c.len));
    for (hpa, len) in rams.chain(others).chain(plan.links.iter().map(|s| (s.hpa, s.len))) {
        assert!(hpa >= FACTS.lowest && hpa.is_multiple_of(PAGE), "{hpa:#x}");
        assert!(len < FACTS.large || hpa.is_multiple_of(FACTS.large), "{hpa:#x}");
    }
    let bell = plan.bell(1).expect("a doorbell");
    assert_eq!((bell.vector, bell.ring, bell.nth), (715, 0x202, 5));
    // A size of x86's pages is none here.
    let mut small = system();
    small.sandboxes[1].memory = 3 * MIB + 4096;
    assert!(baked(&small).is_err());
}

#[test]
fn each_sandbox_reaches_what_the_plan_says() {
    let baked = made();
    assert_eq!(wrong(&baked, 0).or(wrong(&baked, 1)), None);
    assert_eq!(&baked.bytes[..8], Odd::MAGIC);
    assert_eq!(header(&baked.bytes).monitors, FACTS.monitors);
}

/// Finds the entry of the smallest page around an address.
fn entry<F: PageFormat>(bytes: &[u8], root: u64, at: u64) -> usize {
    let table = lowest::<F>(&Memory16(bytes), root, at).expect("mapped");
    (table - FACTS.image) as usize + (at / PAGE % (PAGE / 8)) as usize * 8
}

#[test]
fn a_wrong_right_in_any_entry_is_found() {
    let mut baked = made();
    for index in 0..2 {
        let root = nested_root(&baked.bytes, index);
        let all = walked::<FakeNested>(&baked.bytes, root);
        // All pages but RAM, and some of it.
        let some = all.keys().enumerate().filter(|(n, at)| {
            !FACTS.guest.ram.iter().any(|ram| ram.contains(**at)) || n % 401 == 0
        });
        for (_, at) in some {
            let entry = entry::<FakeNested>(&baked.bytes, root, *at);
            for bit in [0, 1, 2, 22, 32] {
                let whole = u64::from_le_bytes(baked.bytes[entry..entry + 8].try_into().unwrap());
                // Bit 0 has no meaning in an entry of a page.
                let found = |baked: &Baked| wrong(baked, index).is_some();
                let mutant = if bit == 0 { 0xEE } else { whole ^ 1 << bit };
                baked.bytes[entry..entry + 8].copy_from_slice(&mutant.to_le_bytes());
                assert!(found(&baked), "sandbox {index}, {at:#x}, bit {bit}");
                baked.bytes[entry..entry + 8].copy_from_slice(&whole.to_le_bytes());
            }
        }
    }
    assert_eq!(wrong(&baked, 0).or(wrong(&baked, 1)), None);
}

/// All that a monitor reaches outside of the image, by the plan.
fn planned_monitor(plan: &Plan, index: usize) -> Reach {
    let mut all = Reach::new();
    let mut add = |gpa: u64, hpa: u64, len: u64, rights| {
        for at in (0..len).step_by(PAGE as usize) {
            all.insert(GUEST_VA + gpa + at, (hpa + at, rights));
        }
    };
    for ram in &plan.sandboxes[index].ram {
        add(ram.gpa, ram.hpa, ram.len, Rights::RW);
    }
    for c in &plan.channels {
        if c.bell.is_some() && c.to.contains(&index) {
            add(c.gpa, c.hpa, PAGE, Rights::R);
        } else if c.part.has_header() && c.from == index {
            add(c.gpa, c.hpa, PAGE, Rights::RW);
        }
    }
    for link in plan.links.iter().filter(|link| link.owner == index) {
        add(link.gpa, link.hpa, link.len, Rights::RW);
    }
    all
}

/// Addresses as tables know them, without the bits above.
fn low(at: u64) -> u64 {
    at & ((PAGE << 44) - 1)
}

/// Finds a page that a monitor reaches against the rules.
fn wrong_monitor(baked: &Baked, index: usize) -> Option<String> {
    let root = described(&baked.bytes, index).monitor_root;
    let all = walked::<FakeOwn<PAGE>>(&baked.bytes, root);
    let (inside, outside): (Reach, Reach) =
        reach(&all).into_iter().partition(|(_, (pa, _))| baked.plan.image.contains(*pa));
    let planned = planned_monitor(&baked.plan, index);
    let planned: Reach = planned.into_iter().map(|(at, to)| (low(at), to)).collect();
    if outside != planned {
        return Some("other memory than the plan says".into());
    }
    let reports = FACTS.paged(size(baked.plan.sandboxes[index].cores.len()));
    let report = Span { start: baked.map.reports[index], len: reports };
    let mailboxes = low(MAILBOX_VA)..low(MAILBOX_VA) + 2 * PAGE;
    for (at, (pa, rights)) in inside {
        let mut parts = baked.map.parts.iter();
        let Some(part) = parts.find(|part| pa.wrapping_sub(part.start) < part.len) else {
            return Some(format!("{at:#x} leads to {pa:#x}, which is no part"));
        };
        let right = match (part.owner, part.what) {
            _ if mailboxes.contains(&at) => {
                rights.write == (at == mailboxes.start + index as u64 * PAGE)
            }
            (None, "mailboxes, reports") => report.contains(pa) && rights == Rights::RW,
            (Some(owner), what) if owner == index => match what {
                "monitor text" => !rights.write,
                "stacks, control blocks" | "interrupt remapping tables, device shadows" => {
                    rights == Rights::RW
                }
                "info page, IDT" | "configuration, launch record" | "pristine guest" => {
                    rights == Rights::R
                }
                // The entries of the one link.
                _ => at == low(LINK_TABLES_VA) && rights == Rights::RW,
            },
            _ => false,
        };
        if !right {
            return Some(format!("{at:#x} leads to {pa:#x}, {}", part.what));
        }
    }
    None
}

#[test]
fn each_monitor_reaches_its_own_and_nothing_else() {
    let mut baked = made();
    for index in 0..2 {
        assert_eq!(wrong_monitor(&baked, index), None);
        // The record of its space is what its tables say.
        let root = described(&baked.bytes, index).monitor_root;
        let mut said = Reach::new();
        for region in &baked.map.spaces[index].monitor.regions {
            let pages = (0..region.len).step_by(PAGE as usize);
            said.extend(pages.map(|n| (low(region.at + n), (region.pa + n, region.rights))));
        }
        assert_eq!(said, reach(&walked::<FakeOwn<PAGE>>(&baked.bytes, root)));
        // Its own page of a core's is scaled with the page.
        let core = CORES_VA + (baked.plan.sandboxes[index].cores.len() as u64 - 1) * 16 * PAGE;
        for page in [2, 3, 8, 9, 10, 11] {
            assert!(said.contains_key(&low(core + page * PAGE)), "{page}");
        }
        assert!(said.contains_key(&low(REPORT_VA)));
    }
    let root = described(&baked.bytes, 0).monitor_root;
    for (at, to) in [
        // Its configuration becomes writable, its report the other one's, a stack the boot code.
        (CONFIG_VA, None),
        (REPORT_VA, Some(baked.map.reports[1])),
        (CORES_VA + 2 * PAGE, Some(FACTS.image)),
    ] {
        let entry = entry::<FakeOwn<PAGE>>(&baked.bytes, root, at);
        let whole = baked.bytes[entry..entry + 8].to_vec();
        let pa = walk::<FakeOwn<PAGE>>(&Memory16(&baked.bytes), root, at).expect("mapped").pa;
        let mutant = FakeOwn::<PAGE>::page(to.unwrap_or(pa), Rights::RW, Memory::Normal, 0);
        baked.bytes[entry..entry + 8].copy_from_slice(&mutant.to_le_bytes());
        assert!(wrong_monitor(&baked, 0).is_some(), "{at:#x}");
        baked.bytes[entry..entry + 8].copy_from_slice(&whole);
    }
    assert_eq!(wrong_monitor(&baked, 0), None);
}

#[test]
fn interrupts_and_cores_have_the_targets_numbers() {
    let baked = made();
    let right = config(&baked.bytes, 1);
    let bells: Vec<bell::Bell> = slice(&baked.bytes, 1, right.bells);
    let [one] = bells[..] else { panic!("{} doorbells", bells.len()) };
    assert_eq!((one.message, one.cores), (Odd::signal(IDS[0], 715), Odd::cores(&IDS[..2])));
    assert_eq!(slice::<u32>(&baked.bytes, 1, right.affinities), IDS[2..]);
    let info = |index: usize| {
        let at = (described(&baked.bytes, index).info_pa - FACTS.image) as usize;
        Info::read_from_prefix(&baked.bytes[at..]).expect("a page").0
    };
    assert_eq!((info(0).bells[1], info(1).bells[1]), (715, 0x202));
    assert_eq!(info(0).monitors, FACTS.monitors);
    // Channels are cleared by the boot code, wherever they lie.
    let launch = header(&baked.bytes).launch;
    assert_eq!(launch.len, 3 * size_of::<Op>() as u64);
}

#[test]
fn a_builder_refuses_a_machine_of_another_target() {
    let mut system = system();
    let no = [0u8; 4];
    let programs = Programs { boot: &no, monitors: [&no; 4] };
    assert!(bake(&system, &programs).is_err_and(|e| e.to_string().contains("odd")));
    system.machine.arch = bulkhead_plan::Arch::Svm;
    let refused = bake_for::<Odd>(&system, &programs).map(|_| ()).expect_err("other pages");
    assert!(refused.to_string().contains("4096 bytes"), "{refused}");
}

/// Modules of planner, checker and builder that name x86's crates or constants. Others ask the target.
const KNOW_X86: [&str; 7] = [
    "image/src/iommu.rs",
    "image/src/iommu/",
    "image/src/ioapic.rs",
    "image/src/kernel/",
    "image/src/multikernel.rs",
    "image/src/x86/",
    "plan/src/facts.rs",
];

#[test]
fn x86_stands_in_few_modules() {
    let host = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../host");
    let mut waiting: Vec<_> =
        ["image", "plan", "manifest"].map(|name| host.join(name).join("src")).into();
    let mut found = Vec::new();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(std::fs::read_dir(&path).expect("a folder").map(|e| e.unwrap().path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("text");
        let words = ["bulkhead_arch_x86", "kernel_x86", "IMAGE_PA", "GUEST_LOW_END", "GUEST_HIGH"];
        let words = words.iter().chain(&["TRAMPOLINE_PA", "INFO_GPA", "LINKS_GPA", "BELL_PORT"]);
        let name = path.strip_prefix(&host).expect("below").display().to_string();
        let code = || text.lines().filter(|line| !line.trim_start().starts_with("//"));
        if words.into_iter().any(|word| code().any(|line| line.contains(word))) {
            found.push(name);
        }
    }
    found.retain(|name| !KNOW_X86.iter().any(|known| name.starts_with(known)));
    assert_eq!(found, [""; 0]);
}
