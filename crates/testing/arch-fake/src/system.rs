//! A system for the odd target, and readers of its image.

use crate::kernel::WINDOW;
use crate::target::{ARCH, Config, FACTS, Header, Odd, PAGE};
use crate::{FakeOwn, elf};
use bulkhead_arch::{Rights, TableMemory, walk};
use bulkhead_channel::layout::{Kind, Shape};
use bulkhead_image::{Baked, Error, Programs, bake_for};
use bulkhead_kernel::abi::at;
use bulkhead_layout::image::Sandbox as Described;
use bulkhead_layout::map::CONFIG_VA;
use bulkhead_layout::monitor::Slice;
use bulkhead_layout::need::{self, MONITORS};
use bulkhead_layout::record::Op;
use bulkhead_plan::kernel::{self, Kernel};
use bulkhead_plan::{
    Bar, BarKind, Bdf, Bell, Channel, Controller, Device, Function, Granted, Guest, Iommu,
    IommuKind, Link, Machine, Msix, Part, PciRoot, Right, Sandbox, Span, System, Trigger, Wanted,
};
use std::path::{Path, PathBuf};
use zerocopy::FromBytes;

/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;
/// A guest's program: text, then data.
pub const TEXT: u64 = FACTS.guest.ram[0].start + 4 * PAGE;
/// A monitor's text.
const MONITOR: u64 = 0xFFFF_FFFF_8000_0000;
/// Identities of the machine's cores.
pub const IDS: [u32; 3] = [0x2_0000, 0x1_0100, 0x1_0300];
/// All RAM of the machine.
const RAM: Span = Span { start: FACTS.ram, len: 0x2_0000_0000 };
/// Registers of the function.
pub const CARD: u64 = 0x2_8000_0000;
/// Messages that the function has, by a table in its last page.
pub const VECTORS: u16 = 8;
/// Configuration space of functions.
pub const ECAM: u64 = 0xB000_0000;
/// Registers of line 0.
pub const LINES: u64 = 0x2_9000_0000;
/// Registers of the IOMMU.
pub const IOMMU: u64 = 0x2_A000_0000;
/// Stream of the function, which the left sandbox owns.
pub const STREAM: u16 = 0x21;

/// First instruction of a kernel.
pub const KERNEL: u64 = WINDOW + 0x20_0000;
/// State that a kernel's entry reads.
pub const BAKED: u64 = KERNEL + 0x4000;
/// First instruction of a kernel's program.
pub const PROGRAM: u64 = at::PROGRAM;
/// Function of a program's thread.
pub const WORK: u64 = PROGRAM + 0x20;
/// Data of a program.
pub const DATA: u64 = PROGRAM + 0x1_0000;
/// Thread-local data of a program.
pub const LOCAL: [u8; 24] = [0x1D; 24];
/// Alignment of these data.
pub const ALIGN: u64 = 128;

fn program(dir: &Path, name: &str) -> PathBuf {
    let segments: [(u64, Rights, &[u8]); 2] =
        [(TEXT, Rights::RX, &[7; 64]), (TEXT + 2 * PAGE, Rights::RW, &[9; 64])];
    written(dir, name, &elf::file(TEXT, &segments, &[]))
}

fn written(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    // Tests make it at once. A rename shows each of them a whole file.
    let own = path.with_extension(format!("{:?}", std::thread::current().id()));
    std::fs::write(&own, bytes).expect("a file");
    std::fs::rename(&own, &path).expect("a file");
    path
}

fn sandbox(dir: &Path, name: &str, cores: &[usize], enforce_segments: bool) -> Sandbox {
    let program = program(dir, name);
    Sandbox {
        name: name.into(),
        guest: Guest::Bare { program, args: "odd".into(), enforce_segments },
        cores: cores.to_vec(),
        core_ids: cores.iter().map(|core| IDS[*core]).collect(),
        ..Sandbox::default()
    }
}

/// Makes a system of two sandboxes, with programs in a folder. Raw pages go to the right, messages with a doorbell to
/// the left. The left one has a link. Each has a device with a line; the left one also has a function with DMA, a
/// line and messages.
///
/// # Panics
/// The folder cannot be written.
#[must_use]
pub fn system(dir: &Path) -> System {
    let device = |name: &str, irq, trigger| Device {
        name: name.into(),
        irq: Some(irq),
        trigger,
        ..Device::default()
    };
    let bar = |number, start, len| Bar {
        number,
        kind: BarKind::Memory { wide: true, prefetchable: false },
        span: Span { start, len },
    };
    let card = Function {
        bdf: Bdf(STREAM),
        irq: Some(9),
        bars: vec![bar(0, CARD, 2 * PAGE)],
        msix: Some(Msix { at: 0x40, vectors: VECTORS, table: CARD + PAGE, pba: CARD + PAGE + 512 }),
        ..Function::default()
    };
    let iommu = Iommu { kind: IommuKind::Other, base: IOMMU, remaps_interrupts: false };
    let machine = Machine {
        name: "odd".into(),
        arch: ARCH,
        core_ids: IDS.to_vec(),
        ram: vec![RAM],
        banks: vec![RAM],
        controller: Some(Controller::Other { base: LINES }),
        iommu: Some(iommu),
        pci: Some(PciRoot {
            ecam: ECAM,
            memory: vec![Span { start: CARD, len: 16 * PAGE }],
            ..PciRoot::default()
        }),
        functions: vec![card.clone()],
        ..Machine::default()
    };
    let mut left = sandbox(dir, "left", &[0, 1], true);
    left.observe = vec![1];
    left.control[0] = vec![Right { sandbox: 1, every: Right::EVERY }];
    left.devices = vec![device("clock", 4, Trigger::Edge)];
    left.functions = vec![Granted { function: card, line: true, ..Granted::default() }];
    let mut right = sandbox(dir, "right", &[2], false);
    right.devices = vec![device("sensor", 5, Trigger::LevelHigh)];
    let mut gpa = FACTS.guest.channels.start;
    let mut channel = |name: &str, part, bell, from, to, len| {
        let channel = Channel {
            name: name.into(),
            place: Default::default(),
            part,
            bell,
            from,
            to: vec![to],
            stand: None,
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

/// Makes that system with a kernel in the right sandbox. One program drives the sensor and answers the other one, which
/// has the channels and the link.
///
/// # Panics
/// The folder cannot be written.
#[must_use]
pub fn kernel_system(dir: &Path) -> System {
    let image: [(u64, Rights, &[u8]); 2] =
        [(KERNEL, Rights::RX, &[5; 64]), (BAKED, Rights::RW, &[0; 0x4000])];
    let file = elf::file(KERNEL, &image, &[("BAKED", BAKED)]);
    let text: [(u64, Rights, &[u8]); 2] =
        [(PROGRAM, Rights::RX, &[8; 64]), (DATA, Rights::RW, &[6; 16])];
    let local = Some((&LOCAL[..], ALIGN));
    let own = elf::file_with(PROGRAM, &text, &[("work", WORK)], local);
    let own = written(dir, "program", &own);
    let program = |name: &str| kernel::Program {
        name: name.into(),
        file: own.clone(),
        heap: 0x3000,
        slots: 64,
        ..kernel::Program::default()
    };
    let line = kernel::Interrupt { number: 0, notification: 0, bits: 1 };
    let channel = |channel, write| kernel::ChannelUse { channel, write, signal: None };
    let driver = kernel::Program {
        serves: vec![0],
        waits: vec![0],
        maps: vec![kernel::Map { shared: 0, write: true }],
        devices: vec![kernel::DeviceUse {
            device: kernel::Driven::Device(0),
            interrupts: vec![line],
            dma: Vec::new(),
        }],
        ..program("driver")
    };
    let worker = kernel::Program {
        calls: vec![kernel::Call { endpoint: 0, badge: 7, grant: false }],
        maps: vec![kernel::Map { shared: 0, write: false }],
        channels: vec![channel(1, true), channel(0, false)],
        links: vec![0],
        ..program("worker")
    };
    let thread = |n: usize| kernel::Thread {
        name: ["driver", "worker"][n].into(),
        program: n,
        entry: [None, Some("work".into())][n].clone(),
        priority: 9 - n as u8,
        max_priority: 9,
        context: Some(n),
        stack: 0x4000,
        ..kernel::Thread::default()
    };
    let context = |n: usize| kernel::Context {
        name: format!("of {n}"),
        place: Default::default(),
        policy: kernel::Policy::Sporadic(kernel::Budget {
            budget: 1_000_000,
            period: 10_000_000,
            refills: 4,
        }),
        background: false,
        guaranteed: true,
        activations: 1,
        user: kernel::User::Thread(n),
    };
    let mut system = system(dir);
    let right = &mut system.sandboxes[1];
    right.memory = 16 * MIB;
    right.sandbox.guest = Guest::Kernel(Box::new(Kernel {
        file: written(dir, "kernel", &file),
        overhead: kernel::OVERHEAD,
        entry: kernel::ENTRY,
        programs: vec![driver, worker],
        threads: [0, 1].map(thread).to_vec(),
        contexts: [0, 1].map(context).to_vec(),
        endpoints: vec![kernel::Endpoint {
            name: "asks".into(),
            place: Default::default(),
            longest: None,
        }],
        notifications: vec![kernel::Notification {
            name: "senses".into(),
            place: Default::default(),
            context: None,
        }],
        shared: vec![kernel::Shared { name: "state".into(), place: Default::default(), len: PAGE }],
        ..Kernel::default()
    }));
    system
}

/// A monitor's program.
#[must_use]
pub fn monitor() -> Vec<u8> {
    let text: [(u64, Rights, &[u8]); 2] =
        [(MONITOR, Rights::RX, &[2; 0x5000]), (MONITOR + 4 * PAGE, Rights::R, &[3; 8])];
    elf::file(MONITOR, &text, &[("monitor_needs", u64::from(need::ALL))])
}

/// Bakes a system.
///
/// # Errors
/// See [`bake_for`].
pub fn baked(system: &System) -> Result<Baked, Error> {
    let boot = elf::file(FACTS.image + 0x400, &[(FACTS.image, Rights::RX, &[1; 0x2000])], &[]);
    bake_for::<Odd>(system, &Programs { boot: &boot, monitors: [&monitor(); MONITORS.len()] })
}

/// An image's tables, in memory.
pub struct Tables<'a>(pub &'a [u8]);

impl TableMemory for Tables<'_> {
    fn alloc(&mut self, _: u64) -> Option<u64> {
        None
    }

    fn read(&self, pa: u64, index: usize) -> u64 {
        let at = (pa - FACTS.image) as usize + 8 * index;
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("8 bytes"))
    }

    fn write(&mut self, _: u64, _: usize, _: u64) {}
}

fn header_at(bytes: &[u8]) -> usize {
    (Tables(bytes).read(FACTS.image + 256, 0) - FACTS.image) as usize
}

/// Returns an image's header.
///
/// # Panics
/// It is no image.
#[must_use]
pub fn header(bytes: &[u8]) -> Header {
    Header::read_from_prefix(&bytes[header_at(bytes)..]).expect("a header").0
}

/// Returns a sandbox as the boot code knows it.
///
/// # Panics
/// It is no image.
#[must_use]
pub fn described(bytes: &[u8], index: usize) -> Described {
    let at = header_at(bytes) + header(bytes).sandboxes_at() + index * size_of::<Described>();
    Described::read_from_prefix(&bytes[at..]).expect("a sandbox").0
}

/// Finds a monitor's configuration in an image, by the monitor's own tables.
fn config_at(bytes: &[u8], index: usize) -> usize {
    let root = described(bytes, index).monitor_root;
    let leaf = walk::<FakeOwn<PAGE>>(&Tables(bytes), root, CONFIG_VA).expect("mapped");
    (leaf.pa - FACTS.image) as usize
}

/// Returns a monitor's configuration.
///
/// # Panics
/// It is no image.
#[must_use]
pub fn config(bytes: &[u8], index: usize) -> Config {
    Config::read_from_prefix(&bytes[config_at(bytes, index)..]).expect("a configuration").0
}

/// Returns a table of a monitor's configuration.
///
/// # Panics
/// It is cut off.
#[must_use]
pub fn slice<T: FromBytes>(bytes: &[u8], index: usize, slice: Slice) -> Vec<T> {
    let at = config_at(bytes, index) + slice.offset as usize;
    let each = |n: usize| match T::read_from_prefix(&bytes[at + n * size_of::<T>()..]) {
        Ok((value, _)) => value,
        Err(_) => panic!("element {n} is cut off"),
    };
    (0..slice.len as usize).map(each).collect()
}

/// Plays the start states of a sandbox' cores: each control block, register by register.
#[must_use]
pub fn control_blocks(bytes: &[u8], index: usize) -> Vec<Vec<Op>> {
    let config = config(bytes, index);
    let states = [config.start.first_state, config.start.other_state];
    (0..config.cores as usize).map(|core| slice(bytes, index, states[core.min(1)])).collect()
}
