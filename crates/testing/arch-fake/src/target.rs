//! A whole odd target. Pages have 16 KiB. All memory lies above 4 GiB, a guest's too. Identities of cores are sparse,
//! interrupts of doorbells ascend from 700 on in steps of 3. There are no ports, no page of vectors, no start-up code
//! outside of the image, and two trap registers in place of bitmaps.

use crate::devices::{Line, OddDevices};
use crate::{FakeNested, FakeOwn};
use bulkhead_image::{Confine, Entry, Error, Guest, Pages, Program, Start, Tail, Target, bare};
use bulkhead_layout::image::Range;
use bulkhead_layout::record::Op;
use bulkhead_layout::{image, monitor};
use bulkhead_plan::facts::{Doorbells, Facts, GuestMap};
use bulkhead_plan::{self as plan, Arch, Plan, Sandbox, Span};
use core::ops::{Deref, DerefMut};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a page.
pub const PAGE: u64 = 16 << 10;

/// Facts of the target.
pub const FACTS: Facts = Facts {
    name: "odd",
    elf: ("odd", 0xFA7E),
    monitors: 0xFA,
    files: "odd-",
    pc: false,
    ram: 0x4_0000_0000,
    page: PAGE,
    large: PAGE << 11,
    huge: PAGE << 22,
    function: PAGE,
    image: 0x5_0000_0000,
    ticks_beside: false,
    debugger: false,
    start_code: None,
    lowest: 0x4_1000_0000,
    boot_sees: u64::MAX,
    last_core: 0xFF_FFFF,
    core: "affinity",
    answered: &[],
    guest: GuestMap {
        ram: [
            Span { start: 0x1_8000_0000, len: 32 << 20 },
            Span { start: 0x40_0000_0000, len: 1 << 36 },
        ],
        info: 0x1_1000_0000,
        progress: 0x1_1800_0000,
        roles: 0x1_1880_0000,
        snapshots: 0x1_1900_0000,
        reports: 0x1_2000_0000,
        report_stride: 0x10_0000,
        configuration: 0x1_4000_0000,
        functions: 0x1_3000_0000,
        channels: Span { start: 0x2_0000_0000, len: 1 << 30 },
        role_stride: PAGE << 11,
        links: Span { start: 0x3_0000_0000, len: 16 * (PAGE << 11) },
        link_stride: PAGE << 11,
    },
    doorbells: Doorbells { first: 700, step: 3, ring: 0x200 },
};

/// The architecture, for a machine.
pub const ARCH: Arch = Arch::Other(&FACTS);

/// Header of an image: the portable part, and what only this architecture has.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// Part that all architectures have.
    pub portable: image::Header,
    /// Registers of the boot code's console.
    pub console: u64,
    /// The IOMMU's table of streams.
    pub streams: Range,
}

impl Deref for Header {
    type Target = image::Header;

    fn deref(&self) -> &image::Header {
        &self.portable
    }
}

impl DerefMut for Header {
    fn deref_mut(&mut self) -> &mut image::Header {
        &mut self.portable
    }
}

/// A monitor's configuration: the portable part, and what only this architecture has.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Config {
    /// Part that all architectures have.
    pub portable: monitor::Config,
    /// Identities of its cores, in a table.
    pub affinities: monitor::Slice,
    /// Its lines, in a table.
    pub lines: monitor::Slice,
}

impl Deref for Config {
    type Target = monitor::Config;

    fn deref(&self) -> &monitor::Config {
        &self.portable
    }
}

impl DerefMut for Config {
    fn deref_mut(&mut self) -> &mut monitor::Config {
        &mut self.portable
    }
}

/// The target.
pub struct Odd;

impl Odd {
    /// Register of a control block that holds the root of the nested tables.
    pub const ROOT: u64 = 0xA1;
    /// Register with the first instruction.
    pub const PC: u64 = 0xA3;
    /// First of two trap registers.
    pub const TRAPS: u64 = 0xB0;
    /// Registers of the boot code's console.
    pub const CONSOLE: u64 = 0x70_0000_9000;
    /// First bytes of an image.
    pub const MAGIC: &[u8; 8] = b"ODD BOOT";
}

fn set(register: u64, value: u64) -> Op {
    Op { kind: Op::STORE, dst: register, src: value, len: 8 }
}

impl Target for Odd {
    type Own = FakeOwn<PAGE>;
    type Nested = FakeNested;
    type Header = Header;
    type Config = Config;
    type Devices = OddDevices;
    type Kernels = Self;
    const MAPS_HOST: bool = true;

    fn headers(entry: u64) -> Vec<u8> {
        [*Self::MAGIC, entry.to_be_bytes()].concat()
    }

    fn describe(header: &mut Header, _: &Plan, streams: Range) {
        (header.console, header.streams) = (Self::CONSOLE, streams);
    }

    fn vectors(_: &Program) -> Result<Option<Vec<u8>>, Error> {
        Ok(None)
    }

    fn guest(plan: &Plan, index: usize) -> Result<Guest, Error> {
        let sandbox = &plan.sandboxes[index];
        let plan::Guest::Bare { program, args, enforce_segments } = &sandbox.guest else {
            return Err(Error::Program(format!("sandbox {} is no bare guest", sandbox.name)));
        };
        let bytes = std::fs::read(program).map_err(|e| Error::File(program.clone(), e))?;
        let file = Program::parse(&program.display().to_string(), &bytes)?;
        let start = Start {
            pieces: Vec::new(),
            below: FACTS.guest.ram[0].start,
            entry: Entry { pc: 0, sp: FACTS.guest.ram[0].end(), tables: 0 },
            argument: FACTS.guest.info,
            page: PAGE,
        };
        bare(sandbox, start, &file, args, *enforce_segments)
    }

    fn traps(_: &mut Pages, plan: &Plan, index: usize) -> [u64; 2] {
        [0xF0F0, !(plan.sandboxes[index].cores.len() as u64)]
    }

    fn first(confine: &Confine, entry: &Entry) -> Vec<Op> {
        [vec![set(Self::PC, entry.pc), set(0xA2, entry.sp)], Self::further(confine)].concat()
    }

    fn further(confine: &Confine) -> Vec<Op> {
        let [first, second] = confine.traps;
        vec![
            set(Self::TRAPS, first),
            set(Self::TRAPS + 1, second),
            set(Self::ROOT, confine.root | u64::from(confine.tag) << 56),
        ]
    }

    fn cores(ids: &[u32]) -> [u64; 4] {
        ids.iter().fold([0; 4], |mut set, id| {
            set[3 - (id >> 16 & 3) as usize] |= 1 << (id >> 8 & 63);
            set
        })
    }

    fn take(core: u32) -> [u64; 2] {
        [u64::from(core) << 8 | 1, u64::from(core) << 8 | 2]
    }

    fn signal(core: u32, interrupt: u32) -> u64 {
        u64::from(interrupt) << 24 | u64::from(core) | 1 << 63
    }

    fn configure(
        config: &mut Config,
        tail: &mut Tail,
        _: &Plan,
        sandbox: &Sandbox,
        lines: Option<Vec<Line>>,
    ) {
        config.affinities = tail.append(&sandbox.core_ids);
        config.lines = tail.append(&lines.unwrap_or_default());
    }
}
