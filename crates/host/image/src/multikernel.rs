//! A kernel without a monitor: what it starts on, and how the boot code fills its memory.

use crate::Error;
use crate::build::report_head;
use crate::guest::{Guest, Piece};
use crate::info;
use crate::kernel::Kernels;
use crate::monitor::{Made, Pristine, described};
use crate::pages::Pages;
use crate::parts::Part;
use crate::target::Target;
use bulkhead_layout::PAGE;
use bulkhead_layout::image::Range;
use bulkhead_layout::record::Op;
use bulkhead_plan::{Plan, Ram};
use zerocopy::IntoBytes;

/// The report that a kernel finds in its memory, where a monitor would have written it.
pub fn head<K: Kernels>(plan: &Plan, index: usize) -> Piece {
    let head = report_head(index, &plan.sandboxes[index]);
    let gpa = memory(plan, index).gpa + u64::from(K::REPORT);
    Piece { gpa, bytes: head.as_bytes().to_vec() }
}

/// Where its report lies.
pub fn report<K: Kernels>(plan: &Plan, index: usize) -> u64 {
    memory(plan, index).hpa + u64::from(K::REPORT)
}

fn memory(plan: &Plan, index: usize) -> Ram {
    plan.sandboxes[index].ram.first().copied().unwrap_or(Ram { gpa: 0, hpa: 0, len: 0 })
}

/// Bakes what it starts on, and the steps that fill its memory.
pub fn bake<T: Target>(
    pages: &mut Pages,
    plan: &Plan,
    index: usize,
    guest: &Guest,
    pristine: &[Pristine],
) -> Result<(Made, Vec<Op>), Error> {
    let start = pages.end();
    let ram = memory(plan, index);
    let info = pages.put(info::page(plan, index, &guest.args).as_bytes());
    let space = T::Kernels::first_space(ram, plan.machine.arch.facts());
    let root = space.bake::<T::Own>(pages, None)?.unwrap_or_default();
    let len = pages.end() - start;
    let mut sandbox = described(&plan.sandboxes[index]);
    sandbox.monitor = Range { start, len };
    (sandbox.monitor_root, sandbox.entry_va) = (root, guest.entry.pc);
    sandbox.info_pa = info;
    let what = "information page, first page tables";
    let parts = vec![Part::new(start, start + len, Some(index), what)];
    let copy = |to: u64, src, len| Op { kind: Op::COPY, dst: ram.hpa + (to - ram.gpa), src, len };
    let mut ops = vec![Op { kind: Op::ZERO, dst: ram.hpa, src: 0, len: ram.len }];
    ops.extend(pristine.iter().map(|piece| copy(piece.gpa, piece.pa, piece.len)));
    ops.push(copy(ram.gpa + u64::from(T::Kernels::INFO), info, PAGE));
    Ok((Made { sandbox, parts, ..Made::default() }, ops))
}
