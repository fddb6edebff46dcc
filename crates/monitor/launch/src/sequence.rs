//! The order in which cores enter their monitors: all others first, the core
//! that boots last, because it takes the boot code with it.

use bulkhead_arch::{BootMachine, CoreStart};
use bulkhead_handover::image::Sandbox;
use bulkhead_handover::map::{CORE_STACK, CORE_STACK_SIZE, CORE_STRIDE, CORES_VA};

/// Finds where core number `core` of a sandbox enters its monitor.
#[must_use]
pub fn start_of(sandbox: &Sandbox, core: usize) -> CoreStart {
    CoreStart {
        root: sandbox.monitor_root,
        entry: sandbox.entry_va,
        // Stacks grow downwards, so a core begins at the end of its own.
        stack: CORES_VA + core as u64 * CORE_STRIDE + CORE_STACK + CORE_STACK_SIZE,
    }
}

/// Finds where it enters the spare monitor, if there is one.
#[must_use]
pub fn spare_of(sandbox: &Sandbox, core: usize) -> Option<CoreStart> {
    let spare = CoreStart {
        root: sandbox.spare_root,
        entry: sandbox.spare_entry_va,
        ..start_of(sandbox, core)
    };
    (spare.root != 0).then_some(spare)
}

/// Starts every core but this one, a sandbox's first core last, so that the
/// others wait when it launches. Returns where this core goes: `None` if no
/// sandbox has it.
///
/// # Errors
/// The ID of a core that did not arrive.
pub fn start_cores(
    sandboxes: &[Sandbox],
    machine: &mut impl BootMachine,
) -> Result<Option<CoreStart>, u32> {
    let mut own = None;
    for sandbox in sandboxes {
        let cores = (0..sandbox.cores as usize).rev();
        for (core, &id) in cores.filter_map(|c| Some((c, sandbox.core_ids.get(c)?))) {
            if id == machine.this_core() {
                own = Some(start_of(sandbox, core));
                continue;
            }
            machine.start_core(id, start_of(sandbox, core), spare_of(sandbox, core));
            // Without it the guest would run on fewer cores than it was promised. The launch ends here, where the boot
            // code can still say so.
            if !machine.wait_for(id) {
                return Err(id);
            }
        }
    }
    Ok(own)
}
