//! The two targets of x86-64, and all that they alone mean: loaders' headers, a guest's firmware tables, a Linux's
//! start, descriptor tables, ports, MSRs, CPUID.

mod acpi;
mod devices;
mod guest;
mod hpet;
pub mod ioapic;
mod iommu;
mod kernel;
mod linux;
mod loader;
mod ports;
mod smbios;
mod vtd;

pub use guest::{GDT_GPA, load};
pub use kernel::set_console;
pub use ports::absent as absent_ports;

use crate::Error;
use crate::build::{Baked, Programs, bake_for};
use crate::config::Tail;
use crate::elf::{Program, Relocated};
use crate::guest::{Entry, Guest};
use crate::kernel::Kernels;
use crate::pages::Pages;
use crate::target::{Confine, Target};
use bulkhead_arch::Stage2;
use bulkhead_arch_x86::bitmap::{IOPM, MSRPM, allow_msr, allow_port};
use bulkhead_arch_x86::config::{Config, Leaf, Quiet};
use bulkhead_arch_x86::ept::Ept;
use bulkhead_arch_x86::start::{Confinement, Entry64, long_mode, real_mode, running};
use bulkhead_arch_x86::vmcs::field;
use bulkhead_arch_x86::{LongMode, cpuid, entry, msr, vmcb, vmcs};
use bulkhead_ioapic::Lines;
use bulkhead_kernel_x86::X86;
use bulkhead_layout::map::VECTORS_VA;
use bulkhead_layout::monitor::Ram;
use bulkhead_layout::record::Op;
use bulkhead_layout::x86::{Header, Iommu, TRAMPOLINE_PA};
use bulkhead_layout::{mmio, need};
use bulkhead_plan::{self as plan, Arch, Plan, RTC, Sandbox, Span, System};
use object::elf;

/// Address at which kernels see their memory.
pub const KERNEL_WINDOW: u64 = <X86 as Kernels>::WINDOW;

/// Bakes a system for its machine.
pub fn bake(arch: Arch, system: &System, programs: &Programs) -> Result<Baked, Error> {
    match arch {
        Arch::Vmx => bake_for::<Vmx>(system, programs),
        _ => bake_for::<Svm>(system, programs),
    }
}

/// The part of a target in which SVM and VT-x differ.
pub trait Virtualization {
    /// Tables that confine a guest.
    type Nested: Stage2;
    /// True if a monitor maps the processor's own page of each core.
    const MAPS_HOST: bool;
    /// See [`Target::STEADY`].
    const STEADY: &'static [(u64, u64)];
    /// Leaves of CPUID that a guest sees changed.
    const CPUID: &'static [Leaf];
    /// MSRs that are quietly absent for an unmodified Linux.
    const ABSENT: &'static [Quiet];

    /// Bakes bitmaps of ports and of MSRs.
    fn bitmaps(pages: &mut Pages, plan: &Plan, index: usize) -> [u64; 2];
    /// Control block of a first core.
    fn first(confine: &Confine, entry: &Entry64) -> Vec<Op>;
    /// Control block of a core after a SIPI with vector 0.
    fn sipi(confine: &Confine) -> Vec<Op>;
    /// See [`Target::running`].
    fn running(_: &Confine) -> Vec<Op> {
        Vec::new()
    }
    /// Why the processor would refuse a start state.
    fn refused(_: &[Op]) -> Option<String> {
        None
    }
}

impl<V: Virtualization> Target for V {
    type Own = LongMode;
    type Nested = V::Nested;
    type Header = Header;
    type Config = Config;
    type Devices = devices::Pc;
    type Kernels = X86;
    const MAPS_HOST: bool = V::MAPS_HOST;
    const STEADY: &'static [(u64, u64)] = V::STEADY;

    // All below 4 GiB; each core's local APIC (APM 16.3.1).
    const MACHINE: [Span; 2] =
        [Span { start: 0, len: 4 << 30 }, Span { start: 0xFEE0_0000, len: 1 << 20 }];

    // System V ABI for x86-64, 4.4.1.
    fn relocated(kind: u32) -> Relocated {
        match elf::RelocationType(kind) {
            elf::R_X86_64_NONE => Relocated::Nothing,
            elf::R_X86_64_64 => Relocated::Address(8),
            elf::R_X86_64_32 | elf::R_X86_64_32S => Relocated::Address(4),
            elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX => {
                Relocated::Either
            }
            elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 | elf::R_X86_64_PC64 => Relocated::Distance,
            _ => Relocated::Unknown,
        }
    }

    fn headers(entry: u64) -> Vec<u8> {
        loader::headers(entry)
    }

    fn describe(header: &mut Header, plan: &Plan, iommu: Iommu) {
        header.console = plan.machine.console;
        header.debug_port = plan.machine.debug_port;
        header.iommu = iommu;
    }

    fn vectors(program: &Program) -> Result<Option<Vec<u8>>, Error> {
        idt(program).map(Some)
    }

    fn guest(plan: &Plan, index: usize) -> Result<Guest, Error> {
        load(plan, index, &plan.ends(index))
    }

    fn traps(pages: &mut Pages, plan: &Plan, index: usize) -> [u64; 2] {
        V::bitmaps(pages, plan, index)
    }

    fn first(confine: &Confine, entry: &Entry) -> Vec<Op> {
        V::first(confine, &entry64(entry))
    }

    fn further(confine: &Confine) -> Vec<Op> {
        V::sipi(confine)
    }

    fn running(confine: &Confine) -> Vec<Op> {
        V::running(confine)
    }

    fn refused(state: &[Op]) -> Option<String> {
        V::refused(state)
    }

    // x2APIC IDs as a set, of those below 256.
    fn cores(ids: &[u32]) -> [u64; 4] {
        let mut set = [0; 4];
        for &id in ids.iter().filter(|&&id| id < 256) {
            set[id as usize / 64] |= 1 << (id % 64);
        }
        set
    }

    // The interrupt command register of a local APIC.
    fn signal(core: u32, interrupt: u32) -> u64 {
        u64::from(core) << 32 | u64::from(interrupt)
    }

    // INIT, then a start-up at the page of the start-up code (SDM volume 3, 11.6.1).
    fn take(core: u32) -> [u64; 2] {
        const ASSERT: u64 = 1 << 14;
        let to = |mode: u64, vector: u64| u64::from(core) << 32 | ASSERT | mode << 8 | vector;
        [to(5, 0), to(6, TRAMPOLINE_PA >> 12)]
    }

    fn configure(
        config: &mut Config,
        tail: &mut Tail,
        plan: &Plan,
        sandbox: &Sandbox,
        lines: Option<Lines>,
    ) {
        config.own = Self::cores(&sandbox.core_ids);
        // The descriptor table's limit, then its address, lowest bits first.
        let address = |n: usize| (VECTORS_VA >> (16 * n)) as u16;
        config.idtr[..5].copy_from_slice(&[0xFFF, address(0), address(1), address(2), address(3)]);
        // A bare guest knows what it has: nothing is quietly absent for it.
        let runs = sandbox.guest == plan::Guest::Running;
        let linux = runs || matches!(sandbox.guest, plan::Guest::Linux { .. });
        if linux {
            config.ports = tail.append(&ports::absent(plan, runs));
        }
        let only_needed = [Quiet { first: msr::X2APIC_TMCCT, last: msr::X2APIC_TMCCT, value: 0 }];
        config.msrs = match (linux, runs) {
            (_, true) => tail.append(&[V::ABSENT, msr::ABSENT_RUNNING].concat()),
            (true, _) => tail.append(V::ABSENT),
            _ => tail.append(&only_needed),
        };
        // A Linux that runs already has seen all leaves.
        config.cpuid = tail.append(if runs { &[] } else { V::CPUID });
        // A Linux that finds the ports makes two exits of each access, and a thousand
        // to see that they work. Without them it takes the memory.
        // A Linux that runs already goes on with them: mediated, or by itself where nothing confines its devices.
        let goes_on = runs && (!sandbox.functions.is_empty() || plan.machine.pci.is_none());
        config.config_ports = u64::from(!linux || goes_on);
        config.clock = u64::from(sandbox.devices.iter().any(|d| d.class == RTC));
        config.lines = tail.append(lines.as_slice());
        let index = plan.sandboxes.iter().position(|other| other.name == sandbox.name);
        let own = plan.mmio.iter().flat_map(|shared| shared.of(index.unwrap_or_default()));
        let range = |part: &plan::MmioPart| {
            let plan::Span { start, len } = part.range?;
            Some(mmio::Range { start, len, write: part.write.into() })
        };
        config.ranges = tail.append(&own.filter_map(range).collect::<Vec<_>>());
        if runs {
            let index = plan.sandboxes.iter().position(|other| other.name == sandbox.name);
            let memory = plan.running_memory(index.unwrap_or_default());
            let ram = |span: &plan::Span| Ram { gpa: span.start, len: span.len };
            config.memory = tail.append(&memory.iter().map(ram).collect::<Vec<_>>());
            config.block = plan.block.as_ref().map(ram).unwrap_or_default();
            let space = plan.machine.pci.as_ref();
            let space = space.map(|root| root.space(plan.machine.arch.facts())).unwrap_or_default();
            (config.ecam, config.ecam_len) = (space.start, space.len);
            let withheld = plan.withheld(Self::MACHINE[0]).map(|(_, span)| Quiet {
                first: span.start as u32,
                last: (span.end() - 1) as u32,
                value: 0,
            });
            config.withheld = tail.append(&withheld.collect::<Vec<_>>());
            config.hpet = plan.machine.hpet.as_ref().map_or(0, |hpet| hpet.base);
        }
    }

    fn named(config: &Config) -> Vec<(bool, u32, &'static str)> {
        vec![
            (config.lines.len != 0, need::DEVICES, "interrupt lines"),
            (config.clock != 0, need::DEVICES, "the clock"),
            (config.ranges.len != 0, need::MMIO, "ranges of shared registers"),
            (config.ports.len != 0, need::LINUX, "a Linux"),
        ]
    }
}

fn entry64(entry: &Entry) -> Entry64 {
    Entry64 { rip: entry.pc, rsp: entry.sp, cr3: entry.tables, gdt: GDT_GPA }
}

/// AMD's SVM.
pub struct Svm;

impl Virtualization for Svm {
    type Nested = LongMode;
    const MAPS_HOST: bool = false;
    const STEADY: &'static [(u64, u64)] = &[
        // Control registers, exceptions, then all others; a kernel that has booted has no exits by CPUID.
        (0, u64::MAX),
        (vmcb::INTERCEPT_LOW as u64, !(vmcb::INTERCEPT_CPUID << 32)),
        (vmcb::INTERCEPT_HIGH as u64, u64::MAX),
        (vmcb::IOPM as u64, u64::MAX),
        (vmcb::MSRPM as u64, u64::MAX),
        // Beside it is what a flush of the TLB needs.
        (vmcb::ASID as u64, u32::MAX as u64),
        (vmcb::NP_ENABLE as u64, u64::MAX),
        (vmcb::N_CR3 as u64, u64::MAX),
    ];

    const CPUID: &'static [Leaf] = cpuid::FILTER;
    const ABSENT: &'static [Quiet] = msr::ABSENT;

    fn bitmaps(pages: &mut Pages, plan: &Plan, index: usize) -> [u64; 2] {
        let mut ports = vec![0xFF; IOPM];
        each_port(plan, index, |port| allow_port(&mut ports, port));
        let mut msrs = vec![0xFF; MSRPM];
        for &(first, last, direct) in msr::DIRECT {
            (first..=last).for_each(|m| allow_msr(&mut msrs, m, direct));
        }
        [pages.put(&ports), pages.put(&msrs)]
    }

    fn first(confine: &Confine, entry: &Entry64) -> Vec<Op> {
        let mut ops = Vec::new();
        long_mode(&svm(confine), entry, &mut |offset, value| store(&mut ops, offset, value));
        ops
    }

    fn sipi(confine: &Confine) -> Vec<Op> {
        let mut ops = Vec::new();
        real_mode(&svm(confine), &mut |offset, value| store(&mut ops, offset, value));
        ops
    }

    fn running(confine: &Confine) -> Vec<Op> {
        let mut ops = Vec::new();
        running(&svm(confine), &mut |offset, value| store(&mut ops, offset, value));
        ops
    }
}

/// Intel's VT-x.
pub struct Vmx;

impl Virtualization for Vmx {
    type Nested = Ept;
    const MAPS_HOST: bool = true;
    // The controls have bits that the processor wants.
    const STEADY: &'static [(u64, u64)] = &[
        (field::EPT_POINTER as u64, u64::MAX),
        (field::IO_BITMAP_A as u64, u64::MAX),
        (field::IO_BITMAP_B as u64, u64::MAX),
        (field::MSR_BITMAP as u64, u64::MAX),
        (field::EXCEPTION_BITMAP as u64, u64::MAX),
    ];

    const CPUID: &'static [Leaf] = cpuid::INTEL;
    const ABSENT: &'static [Quiet] = msr::ABSENT_INTEL;

    fn bitmaps(pages: &mut Pages, plan: &Plan, index: usize) -> [u64; 2] {
        let mut ports = vec![0xFF; vmcs::IO_BITMAPS];
        each_port(plan, index, |port| allow_port(&mut ports, port));
        let mut msrs = [0; vmcs::MSR_BITMAP];
        vmcs::msr_bitmap(&mut msrs);
        [pages.put(&ports), pages.put(&msrs)]
    }

    fn first(confine: &Confine, entry: &Entry64) -> Vec<Op> {
        let mut ops = Vec::new();
        vmcs::long_mode(&vmx(confine), entry, &mut |field, value| ops.push(write(field, value)));
        ops
    }

    fn sipi(confine: &Confine) -> Vec<Op> {
        let mut ops = Vec::new();
        vmcs::real_mode(&vmx(confine), &mut |field, value| ops.push(write(field, value)));
        ops
    }

    fn refused(state: &[Op]) -> Option<String> {
        let fields: Vec<_> = state.iter().map(|op| (op.dst as u16, op.src)).collect();
        let mut first = None;
        entry::check(entry::Written(&fields), &mut |refused| {
            first.get_or_insert(refused);
        });
        first.map(|entry::Refused { field, rule }| format!("VMCS field {field:#06x}: {rule}"))
    }
}

fn vmx(confine: &Confine) -> vmcs::Confinement {
    let [io, msrs] = confine.traps;
    vmcs::Confinement {
        io,
        msrs,
        ept: confine.root,
        vpid: confine.tag as u16,
        ticks: confine.ticks,
    }
}

/// A step of a record that the monitor plays by VMWRITE. Its length is the register that the monitor looks into for a
/// field of controls.
fn write(field: u16, value: u64) -> Op {
    let register = vmcs::capability(field).into();
    Op { kind: Op::STORE, dst: u64::from(field), src: value, len: register }
}

fn svm(confine: &Confine) -> Confinement {
    let [iopm, msrpm] = confine.traps;
    let Confine { root, tag, taken, running, debug, .. } = *confine;
    Confinement { iopm, msrpm, n_cr3: root, asid: tag, init: taken, running, debug }
}

/// Adds a store into a VMCB, which is zeroed before.
fn store(ops: &mut Vec<Op>, offset: u16, value: u64) {
    if value != 0 {
        ops.push(Op { kind: Op::STORE, dst: u64::from(offset), src: value, len: 8 });
    }
}

/// Interrupt gates (APM 4.8.4) for the monitor: NMI, faults, and a drain for whatever vectors a former guest left
/// pending. The drain begins at 16, the first vector that a local APIC accepts.
fn idt(program: &Program) -> Result<Vec<u8>, Error> {
    const CODE: u64 = 0x18;
    const INTERRUPT_GATE: u64 = 0x8E00;
    let [nmi, fault, drain] = [
        program.symbol("monitor_nmi")?,
        program.symbol("monitor_fault")?,
        program.symbol("monitor_drain")?,
    ];
    let gate = |vector: u64| {
        let handler = match vector {
            2 => nmi,
            0..16 => fault,
            _ => drain,
        };
        let low =
            handler & 0xFFFF | CODE << 16 | INTERRUPT_GATE << 32 | (handler >> 16 & 0xFFFF) << 48;
        [low, handler >> 32]
    };
    Ok((0..256).flat_map(gate).flat_map(u64::to_le_bytes).collect())
}

/// Calls `allow` for each port that a guest uses without an exit.
fn each_port(plan: &Plan, index: usize, mut allow: impl FnMut(u16)) {
    if plan.runs(index) {
        return (0..=u16::MAX).filter(|port| ports::left(plan, *port)).for_each(allow);
    }
    let sandbox = &plan.sandboxes[index];
    // The clock's owner reaches it by its monitor (docs/decisions/0038-clock.md).
    for ports in sandbox.devices.iter().filter(|d| d.class != RTC).flat_map(|d| &d.ports) {
        (ports.first..=ports.last).for_each(&mut allow);
    }
    // Ports of a role's function could not be taken away.
    let own = sandbox.functions.iter().filter(|granted| granted.role.is_none());
    for bar in own.flat_map(|granted| &granted.function.bars) {
        if bar.kind == plan::BarKind::Io {
            let ports = bar.span.start..bar.span.end();
            ports.for_each(|port| allow(port as u16));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Confine, Entry64, Op, Svm, Virtualization, Vmx};

    const CONFINE: Confine = Confine {
        traps: [0x100_0000, 0x100_2000],
        root: 0x100_3000,
        tag: 1,
        ticks: false,
        taken: false,
        running: false,
        debug: false,
    };
    const ENTRY: Entry64 = Entry64 { rip: 0x20_0000, rsp: 0x8000, cr3: 0x2000, gdt: 0x1000 };

    #[test]
    fn a_start_state_that_a_processor_would_refuse_is_not_baked() {
        let [first, sipi] = [Vmx::first(&CONFINE, &ENTRY), Vmx::sipi(&CONFINE)];
        assert_eq!((Vmx::refused(&first), Vmx::refused(&sipi)), (None, None));
        // Guest code beyond the canonical addresses, as a program's entry could be.
        let beyond = Vmx::first(&CONFINE, &Entry64 { rip: 1 << 47, ..ENTRY });
        assert_eq!(
            Vmx::refused(&beyond).as_deref(),
            Some("VMCS field 0x681e: the address is canonical")
        );
        let less = Vmx::refused(&first[1..]);
        assert_eq!(less.as_deref(), Some("VMCS field 0x0000: is written"));
    }

    #[test]
    fn a_vmcb_has_offsets_and_a_vmcs_has_fields() {
        let rip = |ops: &[Op], dst: u64| ops.iter().find(|op| op.dst == dst).map(|op| op.src);
        assert_eq!(rip(&Svm::first(&CONFINE, &ENTRY), 0x578), Some(ENTRY.rip));
        assert_eq!(rip(&Vmx::first(&CONFINE, &ENTRY), 0x681E), Some(ENTRY.rip));
        // A VMCB is zeroed before, a VMCS is not.
        assert!(Svm::sipi(&CONFINE).iter().all(|op| op.src != 0));
        assert_eq!(rip(&Vmx::sipi(&CONFINE), 0x681E), Some(0));
    }
}
