//! A kernel without a monitor: what it starts on, and how the boot code fills its memory.

use crate::Error;
use crate::build::report_head;
use crate::guest::{Guest, Piece};
use crate::info;
use crate::kernel::Ground;
use crate::monitor::{Made, Pristine, described};
use crate::pages::Pages;
use crate::parts::Part;
use crate::space::Space;
use crate::x86::{self, ioapic};
use bulkhead_arch::Rights;
use bulkhead_arch_x86::LongMode;
use bulkhead_kernel_x86::{INFO, REPORT, WINDOW};
use bulkhead_layout::PAGE;
use bulkhead_layout::image::Range;
use bulkhead_layout::record::Op;
use bulkhead_plan::{Facts, Guest as Wanted, Plan, Ram};
use zerocopy::IntoBytes;

/// Its memory at its first instruction.
pub fn load(plan: &Plan, index: usize) -> Result<Guest, Error> {
    let sandbox = &plan.sandboxes[index];
    match &sandbox.guest {
        Wanted::Kernel(kernel) => {
            let level = ioapic::level_vector(plan, index)?;
            let ground = Ground::alone(&plan.machine, sandbox, level);
            let mut guest = crate::kernel::load(ground, plan, index, kernel)?;
            let head = report_head(index, sandbox).as_bytes().to_vec();
            guest.pieces.push(Piece { gpa: REPORT.into(), bytes: head });
            Ok(guest)
        }
        _ => x86::load(plan, index, &[], None),
    }
}

/// Where its report lies.
pub fn report(plan: &Plan, index: usize) -> u64 {
    memory(plan, index).hpa + u64::from(REPORT)
}

fn memory(plan: &Plan, index: usize) -> Ram {
    plan.sandboxes[index].ram.first().copied().unwrap_or(Ram { gpa: 0, hpa: 0, len: 0 })
}

/// Bakes what it starts on, and the steps that fill its memory.
pub fn bake(
    pages: &mut Pages,
    plan: &Plan,
    index: usize,
    guest: &Guest,
    pristine: &[Pristine],
) -> Result<(Made, Vec<Op>), Error> {
    let start = pages.end();
    let ram = memory(plan, index);
    let info = pages.put(info::page(plan, index, &guest.args).as_bytes());
    let &Facts { large, boot_sees, .. } = plan.machine.arch.facts();
    let mut space = Space::default();
    // Not every processor has larger pages.
    for at in (0..boot_sees).step_by(large as usize) {
        space.add(at, at, large, Rights::RWX, "all memory that the boot code sees");
    }
    for at in (0..ram.len).step_by(large as usize) {
        space.add(WINDOW + at, ram.hpa + at, large.min(ram.len - at), Rights::RWX, "memory");
    }
    let root = space.bake::<LongMode>(pages, None)?.unwrap_or_default();
    let len = pages.end() - start;
    let mut sandbox = described(&plan.sandboxes[index]);
    sandbox.monitor = Range { start, len };
    (sandbox.monitor_root, sandbox.entry_va) = (root, guest.entry.pc);
    sandbox.info_pa = info;
    let what = "information page, first page tables";
    let parts = vec![Part::new(start, start + len, Some(index), what)];
    let copy = |to: u64, src, len| Op { kind: Op::COPY, dst: ram.hpa + to, src, len };
    let mut ops = vec![Op { kind: Op::ZERO, dst: ram.hpa, src: 0, len: ram.len }];
    ops.extend(pristine.iter().map(|piece| copy(piece.gpa, piece.pa, piece.len)));
    ops.push(copy(INFO.into(), info, PAGE));
    Ok((Made { sandbox, parts, ..Made::default() }, ops))
}
