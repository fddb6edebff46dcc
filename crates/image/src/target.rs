//! Parts of an image for one kind of monitor: tables, control blocks, bitmaps, policies. The machine description
//! chooses it.

use crate::monitor::each_port;
use crate::pages::Pages;
use bulkhead_arch::{Stage1, Stage2};
use bulkhead_arch_x86::bitmap::{IOPM, MSRPM, allow_msr, allow_port};
use bulkhead_arch_x86::ept::Ept;
use bulkhead_arch_x86::start::{Confinement, Entry64, long_mode, real_mode};
use bulkhead_arch_x86::{LongMode, cpuid, msr, vmcs};
use bulkhead_layout::image::{MONITORS_SVM, MONITORS_VMX, NO_MONITORS};
use bulkhead_layout::monitor::{Leaf, Quiet};
use bulkhead_layout::record::Op;
use bulkhead_plan::{Arch, Plan, Sandbox};

/// A kind of monitor and how it confines a guest.
pub trait Target {
    /// Tables of a monitor.
    type Own: Stage1;
    /// Tables that confine a guest.
    type Nested: Stage2;
    /// True if a monitor maps the processor's own page of each core.
    const MAPS_HOST: bool;
    /// Leaves of CPUID that a guest sees changed.
    const CPUID: &'static [Leaf];
    /// MSRs that are quietly absent for an unmodified Linux.
    const ABSENT: &'static [Quiet];

    /// Bakes the bitmaps of a sandbox: of ports, then of MSRs.
    fn bitmaps(pages: &mut Pages, sandbox: &Sandbox) -> [u64; 2];
    /// Control block of a first core.
    fn first(confine: &Confine, entry: &Entry64) -> Vec<Op>;
    /// Control block of a core after a SIPI with vector 0.
    fn sipi(confine: &Confine) -> Vec<Op>;
}

/// The kind of a system's monitors, as an image's header and the guests' information pages name it.
pub fn monitors(plan: &Plan) -> u64 {
    match plan.machine.arch {
        _ if plan.multikernel => NO_MONITORS,
        Arch::Svm => MONITORS_SVM,
        Arch::Vmx => MONITORS_VMX,
    }
}

/// Where the things lie that confine a guest.
pub struct Confine {
    /// Bitmaps of ports and of MSRs.
    pub bitmaps: [u64; 2],
    /// Root of the nested tables.
    pub root: u64,
    /// Number of the guest, from 1 on.
    pub tag: u32,
}

/// AMD's SVM.
pub struct Svm;

impl Target for Svm {
    type Own = LongMode;
    type Nested = LongMode;
    const MAPS_HOST: bool = false;
    const CPUID: &'static [Leaf] = cpuid::FILTER;
    const ABSENT: &'static [Quiet] = msr::ABSENT;

    fn bitmaps(pages: &mut Pages, sandbox: &Sandbox) -> [u64; 2] {
        let mut ports = vec![0xFF; IOPM];
        each_port(sandbox, |port| allow_port(&mut ports, port));
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
}

/// Intel's VT-x.
pub struct Vmx;

impl Target for Vmx {
    type Own = LongMode;
    type Nested = Ept;
    const MAPS_HOST: bool = true;
    const CPUID: &'static [Leaf] = cpuid::INTEL;
    const ABSENT: &'static [Quiet] = msr::ABSENT_INTEL;

    fn bitmaps(pages: &mut Pages, sandbox: &Sandbox) -> [u64; 2] {
        let mut ports = vec![0xFF; vmcs::IO_BITMAPS];
        each_port(sandbox, |port| allow_port(&mut ports, port));
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
}

fn vmx(confine: &Confine) -> vmcs::Confinement {
    let [io, msrs] = confine.bitmaps;
    vmcs::Confinement { io, msrs, ept: confine.root, vpid: confine.tag as u16 }
}

/// A step of a record that the monitor plays by VMWRITE.
fn write(field: u16, value: u64) -> Op {
    Op { kind: Op::STORE, dst: u64::from(field), src: value, len: 8 }
}

fn svm(confine: &Confine) -> Confinement {
    let [iopm, msrpm] = confine.bitmaps;
    Confinement { iopm, msrpm, n_cr3: confine.root, asid: confine.tag }
}

/// Adds a store into a VMCB, which is zeroed before.
fn store(ops: &mut Vec<Op>, offset: u16, value: u64) {
    if value != 0 {
        ops.push(Op { kind: Op::STORE, dst: u64::from(offset), src: value, len: 8 });
    }
}
