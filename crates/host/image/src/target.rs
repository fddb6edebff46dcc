//! Parts of an image for one kind of monitor: tables, control blocks, bitmaps, policies. The machine description
//! chooses it.

use crate::monitor::each_port;
use crate::pages::Pages;
use bulkhead_arch::{Stage1, Stage2};
use bulkhead_arch_x86::bitmap::{IOPM, MSRPM, allow_msr, allow_port};
use bulkhead_arch_x86::config::{Leaf, Quiet};
use bulkhead_arch_x86::ept::Ept;
use bulkhead_arch_x86::start::{Confinement, Entry64, long_mode, real_mode};
use bulkhead_arch_x86::{LongMode, cpuid, entry, msr, vmcs};
use bulkhead_layout::image::{MONITORS_SVM, MONITORS_VMX, NO_MONITORS};
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
    /// Why the processor would refuse a start state, by the manual's checks.
    fn refused(_: &[Op]) -> Option<String> {
        None
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const CONFINE: Confine =
        Confine { bitmaps: [0x100_0000, 0x100_2000], root: 0x100_3000, tag: 1 };
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
