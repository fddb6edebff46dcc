//! A kernel and its programs, baked for the odd machine. A monitor's launch record fills the memory; the kernel's code
//! runs on it, and a reader of its tables compares them with the plan.

use bulkhead_arch::{Entry, Memory, PageFormat, Rights};
use bulkhead_arch_fake::FakeFormat;
use bulkhead_arch_fake::devices::interrupt;
use bulkhead_arch_fake::kernel::{Baked as State, DEVICES, WINDOW, script};
use bulkhead_arch_fake::messages::{DOORBELL, INTERRUPTS};
use bulkhead_arch_fake::system::{
    ALIGN, BAKED, CARD, DATA, ECAM, IDS, KERNEL, LINES, LOCAL, PROGRAM, STREAM, WORK, baked,
    config, kernel_system, slice,
};
use bulkhead_arch_fake::target::{FACTS, Odd, PAGE};
use bulkhead_image::{Baked, Kernels};
use bulkhead_kernel::abi::name::Memory as Named;
use bulkhead_kernel::abi::{Grant, Page, at};
use bulkhead_kernel::host::{self, Host};
use bulkhead_kernel::{Interrupt, Kernel, Layout as _, Machine as _, Ref, Thread};
use bulkhead_layout::map::{GUEST_VA, PRISTINE_VA};
use bulkhead_layout::record::Op;
use bulkhead_plan::kernel::{DeviceUse, Driven, Interrupt as Wanted};
use bulkhead_plan::{Guest, Ports, System};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use zerocopy::FromBytes;

const RIGHT: usize = 1;
/// Bytes of a page of the kernel's ABI.
const SMALL: u64 = 4096;
/// First address of the kernel's memory, for its guest.
const RAM: u64 = FACTS.guest.ram[0].start;

type Machine = Host<host::Odd, FakeFormat>;

fn system() -> System {
    kernel_system(Path::new(env!("CARGO_TARGET_TMPDIR")))
}

fn kernel(system: &mut System) -> &mut bulkhead_plan::kernel::Kernel {
    match &mut system.sandboxes[RIGHT].sandbox.guest {
        Guest::Kernel(kernel) => kernel,
        other => panic!("{other:?}"),
    }
}

/// The kernel's memory after its launch.
struct Launched {
    baked: Baked,
    memory: Vec<u8>,
}

impl Launched {
    fn new(system: &System) -> Self {
        let baked = baked(system).expect("an image");
        let mut memory = vec![0u8; baked.plan.sandboxes[RIGHT].ram[0].len as usize];
        let record: Vec<Op> = slice(&baked.bytes, RIGHT, config(&baked.bytes, RIGHT).start.launch);
        let own = GUEST_VA + RAM..GUEST_VA + RAM + memory.len() as u64;
        for op in record.iter().filter(|op| op.kind == Op::COPY && own.contains(&op.dst)) {
            let (from, to) = ((op.src - PRISTINE_VA) as usize, (op.dst - GUEST_VA - RAM) as usize);
            let len = op.len as usize;
            memory[to..to + len].copy_from_slice(&baked.bytes[from..from + len]);
        }
        Self { baked, memory }
    }

    fn state(&self) -> State {
        State::read_from_prefix(&self.memory[(BAKED - WINDOW) as usize..]).expect("a state").0
    }

    fn machine(&self) -> Machine {
        let mut machine = Machine::new(self.memory.len() as u32, RAM).with_own_root();
        machine.bytes_mut().copy_from_slice(&self.memory);
        machine
    }

    /// Roots of programs, by name, from the kernel's bitmap of spaces.
    fn spaces(&self) -> BTreeMap<String, u32> {
        let (core, machine) = (self.state().core, self.machine());
        let live = |page: &u32| {
            let word = (core.spaces + page / 64 * 8) as usize;
            let word = u64::from_le_bytes(self.memory[word..word + 8].try_into().expect("a word"));
            word >> (page % 64) & 1 != 0
        };
        let name = |root: u32| {
            let page = self.page(&machine, root);
            let len = page.name.iter().position(|byte| *byte == 0).expect("an end");
            String::from_utf8_lossy(&page.name[..len]).into_owned()
        };
        (0..core.pages).filter(live).map(|page| (name(page << 12), page << 12)).collect()
    }

    fn page(&self, machine: &Machine, root: u32) -> Page {
        let walked = machine.walk(root);
        let at = walked.iter().find(|(address, level, _)| (*address, *level) == (at::PAGE, 0));
        let Some((.., Entry::Page(pa, ..))) = at else { panic!("no page: {at:?}") };
        Page::read_from_bytes(&self.memory[(pa - RAM) as usize..][..SMALL as usize]).expect("one")
    }

    /// Differences between the plan and the programs' tables.
    fn wrong(&self) -> Vec<String> {
        let (plan, machine) = (&self.baked.plan, self.machine());
        let (mut wrong, mut owners) = (Vec::new(), BTreeMap::<u64, String>::new());
        let ram = RAM..RAM + self.memory.len() as u64;
        let mut tables = BTreeSet::new();
        let state = self.state();
        let spaces = self.spaces();
        for (name, root) in &spaces {
            let mut outside = BTreeSet::new();
            tables.insert(RAM + u64::from(*root));
            for (address, level, entry) in machine.walk(*root) {
                match entry {
                    Entry::Table(pa) if ram.contains(&pa) => drop(tables.insert(pa)),
                    Entry::Page(_, Rights { write: true, execute: true }, _) => {
                        wrong.push(format!("{name} writes what it executes at {address:#x}"));
                    }
                    Entry::Page(pa, rights, _) if level == 0 && ram.contains(&pa) => {
                        let shared = (at::SHARED..at::CHANNELS).contains(&address);
                        let clock = pa == RAM + u64::from(state.start[1]) && !rights.write;
                        if shared && rights.write != (name == "driver") {
                            wrong.push(format!("{name} has {rights:?} to shared memory"));
                        }
                        if !(shared || clock) && owners.insert(pa, name.clone()).is_some() {
                            wrong.push(format!("{pa:#x} is {name}'s and another's"));
                        }
                    }
                    Entry::Page(pa, rights, _) => drop(outside.insert((pa, rights.write))),
                    other => wrong.push(format!("{name} has {other:?} at {address:#x}")),
                }
            }
            let mut planned = BTreeSet::new();
            for (region, write) in [(0, false), (1, true), (2, false)] {
                let region = &plan.channels[region];
                let pages = (region.gpa..region.gpa + region.len).step_by(SMALL as usize);
                planned.extend(pages.map(|gpa| (gpa, write)));
            }
            planned.retain(|_| name == "worker");
            wrong.extend(outside.symmetric_difference(&planned).map(|(pa, write)| {
                format!("{name} has or lacks {pa:#x} outside of RAM, write {write}")
            }));
        }
        let known = tables.iter().filter(|table| owners.contains_key(table));
        wrong.extend(known.map(|table| format!("a program has the table at {table:#x}")));
        if spaces.len() != 2 {
            wrong.push(format!("{} programs", spaces.len()));
        }
        wrong
    }

    /// The offset of the entry with an address in a program's tables.
    fn entry(&self, program: &str, address: u64) -> usize {
        let mut table = self.spaces()[program];
        for level in [3, 2, 1] {
            let index = address >> (12 + 9 * level) & 511;
            let at = table as usize + 8 * index as usize;
            let entry = u64::from_le_bytes(self.memory[at..at + 8].try_into().expect("a word"));
            match FakeFormat::decode(entry, level as u32) {
                Entry::Table(next) => table = (next - RAM) as u32,
                other => panic!("{other:?} at level {level}"),
            }
        }
        table as usize + 8 * (address >> 12 & 511) as usize
    }

    fn set(&mut self, program: &str, address: u64, pa: u64, rights: Rights) {
        let at = self.entry(program, address);
        let page = FakeFormat::page(pa, rights, Memory::Normal, 0);
        self.memory[at..at + 8].copy_from_slice(&page.to_le_bytes());
    }

    fn frame(&self, program: &str, address: u64) -> u64 {
        let at = self.entry(program, address);
        let entry = u64::from_le_bytes(self.memory[at..at + 8].try_into().expect("a word"));
        match FakeFormat::decode(entry, 0) {
            Entry::Page(pa, ..) => pa,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_kernels_threads_start_as_the_target_says() {
    let launched = Launched::new(&system());
    let config = config(&launched.baked.bytes, RIGHT);
    let states = slice::<Op>(&launched.baked.bytes, RIGHT, config.start.first_state);
    let pc = states.iter().find(|op| op.dst == Odd::PC).expect("a first instruction");
    assert_eq!((pc.src, config.start.argument), (KERNEL, FACTS.guest.info));

    let State { base, mut core, interrupts, .. } = launched.state();
    assert_eq!(base, RAM);
    let mut machine = launched.machine();
    let mut kernel = Kernel { machine: &mut machine, core: &mut core };
    kernel.start();
    let driver = kernel.core.current;
    let spaces = launched.spaces();
    assert_eq!(kernel.machine.space, RAM + u64::from(spaces["driver"]));
    let Thread { registers, number, .. } = *kernel.machine.get(driver);
    let stack = at::STACKS + SMALL + 0x4000;
    assert_eq!((number, registers.ip::<host::Odd>()), (1, PROGRAM));
    assert_eq!(registers.sp::<host::Odd>(), stack - Odd::ABOVE_STACK);
    assert_eq!(host::Odd::ARGUMENTS.map(|n| registers.0[n]), [at::PAGE, 0]);
    // Its own data lies above its pointer, aligned.
    let pointer = kernel.machine.pointer;
    let data = pointer + 32;
    assert!(data.is_multiple_of(ALIGN) && data > stack, "{pointer:#x}");
    let copy = (launched.frame("driver", data / SMALL * SMALL) - RAM + data % SMALL) as usize;
    assert_eq!(launched.memory[copy..copy + LOCAL.len()], LOCAL);
    // The line's interrupt is the only one, and its object knows its number.
    let [number, at] = interrupts[0];
    assert_eq!((number, interrupts[1]), (interrupt(5), [0, 0]));
    let line = *kernel.machine.get(Ref::<Interrupt>::new(at));
    assert_eq!((line.number, line.rests), (interrupt(5), Interrupt::CAME));
    assert_eq!(line.slot.cap.data, 1);
    // The other thread begins at its function.
    let threads = (0..launched.memory.len()).step_by(2048).map(|n| n as u32);
    let worker = threads.filter(|at| *at > driver.at()).find_map(|at| {
        let thread = kernel.machine.get(Ref::<Thread>::new(at));
        (thread.number == 2).then_some(thread.registers)
    });
    assert_eq!(worker.map(|registers| registers.ip::<host::Odd>()), Some(WORK));
}

#[test]
fn a_kernel_sees_its_memory_by_tables_of_its_own() {
    let launched = Launched::new(&system());
    let own = (launched.state().core.own_space - RAM) as u32;
    let machine = launched.machine();
    let (mut bytes, mut text) = (0, 0);
    for (address, level, entry) in machine.walk(own) {
        let Entry::Page(pa, rights, _) = entry else { continue };
        // The only page of a device is the line's registers.
        if address == DEVICES {
            assert_eq!((pa, rights), (LINES + 5 * PAGE, Rights::RW));
            continue;
        }
        assert_eq!(address - WINDOW, pa - RAM);
        assert!(!(rights.write && rights.execute));
        text += u64::from(rights.execute);
        bytes += SMALL << (9 * level);
    }
    assert_eq!((bytes, text), (launched.memory.len() as u64 - SMALL, 1));
    for root in launched.spaces().into_values() {
        assert!(machine.walk(root).iter().all(|(address, ..)| *address < host::Odd::USER_END));
    }
}

#[test]
fn programs_reach_what_the_plan_says() {
    let launched = Launched::new(&system());
    assert_eq!(launched.wrong(), [""; 0]);
    let worker = launched.page(&launched.machine(), launched.spaces()["worker"]);
    let grants = worker.names().iter().filter_map(|name| Some((name, name.grant()?)));
    let memory = grants.filter_map(|(name, grant)| match grant {
        Grant::Memory(Named { start, len, .. }) if name.is("state") => Some((start, len)),
        _ => None,
    });
    assert_eq!(memory.collect::<Vec<_>>(), [(at::SHARED, PAGE)]);
    let rings = worker.names().iter().find_map(|name| match name.grant() {
        Some(Grant::Messages(end)) => Some((end.sends, end.bell, end.right)),
        _ => None,
    });
    let ring = FACTS.doorbells.ring + 2;
    assert!(matches!(rings, Some((true, bell, 1..)) if bell == ring), "{rings:?}");

    type Plant = (&'static str, fn(&mut Launched));
    let plants: [Plant; 8] = [
        ("another program's data", |m| {
            m.set("worker", DATA, m.frame("driver", DATA), Rights::RW);
        }),
        ("text that is written", |m| {
            m.set("driver", PROGRAM, m.frame("driver", PROGRAM), Rights::RWX);
        }),
        ("shared memory that is written by its reader", |m| {
            m.set("worker", at::SHARED, m.frame("worker", at::SHARED), Rights::RW);
        }),
        ("a channel that is written by its reader", |m| {
            let pages = at::CHANNELS + 3 * PAGE;
            m.set("worker", pages, m.frame("worker", pages), Rights::RW);
        }),
        ("a channel's memory elsewhere", |m| {
            m.set("worker", at::CHANNELS, m.frame("worker", at::CHANNELS) + SMALL, Rights::RW);
        }),
        ("a program's own table", |m| {
            let root = RAM + u64::from(m.spaces()["driver"]);
            m.set("driver", DATA, root, Rights::RW);
        }),
        ("memory of nobody", |m| m.set("driver", DATA, RAM + (1 << 40), Rights::R)),
        ("a clock that is written", |m| {
            m.set("worker", at::CLOCK, m.frame("worker", at::CLOCK), Rights::RW);
            m.set("driver", at::CLOCK, m.frame("driver", at::CLOCK), Rights::RW);
        }),
    ];
    for (name, plant) in plants {
        let mut planted = Launched::new(&system());
        plant(&mut planted);
        assert!(!planted.wrong().is_empty(), "{name}");
    }
}

#[test]
fn a_links_table_waits_with_its_rights() {
    let launched = Launched::new(&system());
    let (core, machine) = (launched.state().core, launched.machine());
    let link = &launched.baked.plan.links[0];
    assert_eq!((link.owner, core.link_count), (0, 1));
    let (owners, all) = ((link.sent / SMALL) as usize, (link.len / SMALL) as usize);
    let table = machine.get(core.links).table;
    for (n, entry) in machine.get(table).0.iter().enumerate() {
        let wanted = match n {
            _ if n >= all => Entry::Empty,
            _ => {
                let rights = if n < owners { Rights::R } else { Rights::RW };
                Entry::Page(link.gpa + n as u64 * SMALL, rights, Memory::Normal)
            }
        };
        assert_eq!(FakeFormat::decode(*entry, 0), wanted, "{n}");
    }
}

/// Writes of the start's script, with the addresses of devices in place of the kernel's.
fn routes(launched: &Launched) -> Vec<(u64, u32)> {
    let state = launched.state();
    let own = (state.core.own_space - RAM) as u32;
    let pages: BTreeMap<u64, u64> = { launched.machine().walk(own).into_iter() }
        .filter_map(|(address, _, entry)| match entry {
            Entry::Page(pa, ..) => Some((address, pa)),
            _ => None,
        })
        .collect();
    let writes = script(&launched.memory[state.start[0] as usize..]);
    let physical = |at: u64| pages[&(at / SMALL * SMALL)] + at % SMALL;
    writes.into_iter().map(|(at, value)| (physical(at), value)).collect()
}

#[test]
fn interrupts_come_by_the_targets_ways() {
    let registers = LINES + 5 * PAGE;
    let (low, high) = (IDS[2] | interrupt(5) << 24, interrupt(5) >> 8 | 1 << 30 | 1 << 31);
    let line = vec![(registers, low), (registers + 4, high)];
    let mut system = system();
    assert_eq!(routes(&Launched::new(&system)), line);

    // A function's second message, too. Its configuration has the target's distance.
    let card = system.sandboxes[0].sandbox.functions.remove(0);
    system.sandboxes[RIGHT].sandbox.functions.push(bulkhead_plan::Granted { line: false, ..card });
    let message = Wanted { number: 2, notification: 0, bits: 2 };
    let used =
        DeviceUse { device: Driven::Function(0), interrupts: vec![message], dma: Vec::new() };
    kernel(&mut system).programs[0].devices.push(used);
    let launched = Launched::new(&system);
    let entry = CARD + PAGE + 2 * 16;
    let shown = FACTS.guest.configuration + u64::from(STREAM) * PAGE;
    assert_ne!(shown, ECAM + u64::from(STREAM) * PAGE);
    let message = [
        (shown + 4, 0b111 | 1 << 10),
        (entry + 12, 1),
        (entry, DOORBELL),
        (entry + 4, IDS[2]),
        (entry + 8, INTERRUPTS.start),
        (entry + 12, 0),
        (shown + 0x40, 1 << 31),
    ];
    assert_eq!(routes(&launched), [line, message.to_vec()].concat());
    assert_eq!(launched.state().interrupts.map(|[n, _]| n)[..2], [interrupt(5), INTERRUPTS.start]);
}

#[test]
fn what_the_target_lacks_is_told() {
    let refused = |change: &dyn Fn(&mut System)| {
        let mut system = system();
        change(&mut system);
        baked(&system).map(|_| ()).expect_err("a refusal").to_string()
    };
    let ports = refused(&|system| {
        system.sandboxes[RIGHT].sandbox.devices[0].ports = vec![Ports { first: 1, last: 2 }];
    });
    assert!(ports.contains("has ports"), "{ports}");
    // One table of a program maps a link.
    let link = refused(&|system| {
        (system.links[0].len, system.links[0].sent) = (129 * PAGE, 128 * PAGE);
    });
    assert!(link.contains("link 0 is longer"), "{link}");
    // Devices' addresses have 32 bits in the ABI, and all memory lies above.
    let reached = refused(&|system| {
        let dma = vec![bulkhead_plan::kernel::Reached::Shared(0)];
        kernel(system).programs[0].devices[0].dma = dma;
    });
    assert!(reached.contains("above 4 GiB"), "{reached}");
}

#[test]
fn a_kernel_without_a_monitor_lies_where_its_memory_is() {
    let mut system = system();
    system.sandboxes[0].sandbox.guest = system.sandboxes[RIGHT].sandbox.guest.clone();
    system.sandboxes[0].sandbox.devices = system.sandboxes[RIGHT].sandbox.devices.clone();
    system.multikernel = true;
    for program in 0..2 {
        let Guest::Kernel(kernel) = &mut system.sandboxes[0].sandbox.guest else { panic!() };
        (kernel.programs[program].channels, kernel.programs[program].links) = (vec![], vec![]);
    }
    let baked = baked(&system).expect("an image");
    let header = bulkhead_arch_fake::system::header(&baked.bytes);
    let at = (header.launch.start - FACTS.image) as usize;
    let ram = baked.plan.sandboxes[RIGHT].ram[0];
    let ops = baked.bytes[at..].chunks_exact(size_of::<Op>());
    let ops = ops.take(header.launch.len as usize / size_of::<Op>());
    let ops = ops.map(|bytes| Op::read_from_bytes(bytes).expect("a step"));
    let own: Vec<_> = ops.filter(|op| (ram.hpa..ram.hpa + ram.len).contains(&op.dst)).collect();
    let copied = |at: u64| {
        let holds = |op: &&Op| op.kind == Op::COPY && (op.dst..op.dst + op.len).contains(&at);
        let op = own.iter().find(holds).expect("a copy");
        (op.src - FACTS.image + (at - op.dst)) as usize
    };
    let at = copied(ram.hpa + (BAKED - WINDOW));
    let state = State::read_from_prefix(&baked.bytes[at..]).expect("a state").0;
    assert_eq!(state.base, ram.hpa);
    let report = copied(ram.hpa + u64::from(Odd::REPORT));
    assert_eq!(baked.map.reports[RIGHT], ram.hpa + u64::from(Odd::REPORT));
    let head = bulkhead_layout::report::Report::read_from_prefix(&baked.bytes[report..]);
    assert_eq!(head.expect("a report").0.sandbox, RIGHT as u32);
    assert!(own.iter().any(|op| op.dst == ram.hpa + u64::from(Odd::INFO)));
}
