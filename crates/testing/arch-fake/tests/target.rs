//! A system is planned and baked for the odd target, with its numbers. `audit.rs` reads the tables.

use bulkhead_arch::{Leaf, leaves};
use bulkhead_arch_fake::FakeOwn;
use bulkhead_arch_fake::devices::Line;
use bulkhead_arch_fake::system::{
    IDS, LINES, MIB, Tables, baked, config, described, header, slice, system,
};
use bulkhead_arch_fake::target::{FACTS, Odd, PAGE};
use bulkhead_image::{Baked, Programs, Target, bake, bake_for};
use bulkhead_layout::bell;
use bulkhead_layout::info::Info;
use bulkhead_layout::map::MMIO_VA;
use bulkhead_layout::record::Op;
use bulkhead_plan::System;
use std::path::{Path, PathBuf};
use zerocopy::FromBytes;

fn odd() -> System {
    system(Path::new(env!("CARGO_TARGET_TMPDIR")))
}

fn made() -> Baked {
    baked(&odd()).expect("an image")
}

#[test]
fn the_plan_asks_the_target() {
    let plan = odd().plan(MIB).expect("room");
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
    let mut small = odd();
    small.sandboxes[1].memory = 3 * MIB + 4096;
    assert!(baked(&small).is_err());
}

#[test]
fn the_record_of_a_monitors_space_is_what_its_tables_say() {
    let baked = made();
    assert_eq!(&baked.bytes[..8], Odd::MAGIC);
    assert_eq!(header(&baked.bytes).monitors, FACTS.monitors);
    assert_eq!((header(&baked.bytes).console, header(&baked.bytes).own), (Odd::CONSOLE, 24));
    for (index, spaces) in baked.map.spaces.iter().enumerate() {
        let mut found = Vec::new();
        let root = described(&baked.bytes, index).monitor_root;
        leaves::<FakeOwn<PAGE>>(&Tables(&baked.bytes), root, &mut |at, leaf: Leaf| {
            let pages = 0..leaf.size / PAGE;
            found.extend(pages.map(|n| (at + n * PAGE, leaf.pa + n * PAGE, leaf.rights)));
        });
        // Addresses as tables know them, without the bits above.
        let low = |at: u64| at & ((PAGE << 44) - 1);
        let pages = |len: u64| (0..len).step_by(PAGE as usize);
        let regions = spaces.monitor.regions.iter();
        let mut said: Vec<_> = regions
            .flat_map(|r| pages(r.len).map(|n| (low(r.at + n), r.pa + n, r.rights)))
            .collect();
        said.sort_by_key(|page| page.0);
        assert!(said == found, "{index}");
    }
}

#[test]
fn interrupts_and_cores_have_the_targets_numbers() {
    let baked = made();
    let right = config(&baked.bytes, 1);
    let bells: Vec<bell::Bell> = slice(&baked.bytes, 1, right.bells);
    let [one] = bells[..] else { panic!("{} doorbells", bells.len()) };
    assert_eq!((one.message, one.cores), (Odd::signal(IDS[0], 715), Odd::cores(&IDS[..2])));
    assert_eq!(slice::<u32>(&baked.bytes, 1, right.affinities), IDS[2..]);
    let line = Line { registers: MMIO_VA + LINES + 5 * PAGE, number: 5, interrupt: 2965, level: 1 };
    assert_eq!(slice::<Line>(&baked.bytes, 1, right.lines), [line]);
    let info = |index: usize| {
        let at = (described(&baked.bytes, index).info_pa - FACTS.image) as usize;
        Info::read_from_prefix(&baked.bytes[at..]).expect("a page").0
    };
    assert_eq!((info(0).bells[1], info(1).bells[1]), (715, 0x202));
    assert_eq!(info(0).monitors, FACTS.monitors);
    assert_eq!((info(0).lines, info(1).lines), (1 << 4 | 1 << 9, 1 << 5));
    // Channels are cleared by the boot code, wherever they lie.
    let launch = header(&baked.bytes).launch;
    assert_eq!(launch.len, 3 * size_of::<Op>() as u64);
}

#[test]
fn a_builder_refuses_a_machine_of_another_target() {
    let mut system = odd();
    let no = [0u8; 4];
    let programs = Programs { boot: &no, monitors: [&no; bulkhead_layout::need::MONITORS.len()] };
    assert!(bake(&system, &programs).is_err_and(|e| e.to_string().contains("odd")));
    system.machine.arch = bulkhead_plan::Arch::Svm;
    let refused = bake_for::<Odd>(&system, &programs).map(|_| ()).expect_err("other pages");
    assert!(refused.to_string().contains("4096 bytes"), "{refused}");
}

/// Modules of planner, checker and builder that name x86's crates or constants. Others ask the target.
const KNOW_X86: [&str; 2] = ["image/src/x86/", "plan/src/x86.rs"];

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
