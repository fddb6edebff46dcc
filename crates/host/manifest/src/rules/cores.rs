//! Cores: each has at most one owner.

use super::{Context, Item};
use crate::diagnostic::Diagnostic;
use crate::raw::Sandbox;
use crate::source::{Location, k, n};
use bulkhead_layout::MAX_CORES;

/// A sandbox has a core.
pub fn core_none(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for sandbox in cx.sandboxes.iter().filter(|sandbox| sandbox.cores.is_empty()) {
        let message = format!("sandbox `{}` has no core", sandbox.name);
        found.push(
            Diagnostic::new("core-none", cx.at(sandbox, &[k("cores")]), message)
                .help("name at least one core, such as `cores = [1]`"),
        );
    }
}

/// Cores are the machine's.
pub fn core_unknown(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Some(machine) = &cx.machine else {
        return;
    };
    let count = machine.core_ids.len();
    for sandbox in &cx.sandboxes {
        for (index, core) in sandbox.cores.iter().enumerate() {
            if *core as usize >= count {
                let at = cx.at(sandbox, &[k("cores"), n(index)]);
                let message = format!("machine `{}` has no core {core}", machine.name);
                let help = format!("its cores are 0 to {}", count - 1);
                found.push(Diagnostic::new("core-unknown", at, message).help(help));
            }
        }
    }
}

/// No core has two owners.
pub fn core_twice(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let mut owners: Vec<(u32, &Item<Sandbox>, Location)> = Vec::new();
    for sandbox in &cx.sandboxes {
        for (index, core) in sandbox.cores.iter().enumerate() {
            let at = cx.at(sandbox, &[k("cores"), n(index)]);
            match owners.iter().find(|(owned, ..)| owned == core) {
                None => owners.push((*core, sandbox, at)),
                Some((_, owner, first)) => found.push(
                    Diagnostic::new(
                        "core-twice",
                        at,
                        if owner.index == sandbox.index {
                            format!("core {core} stands twice in `{}`", owner.name)
                        } else {
                            format!(
                                "core {core} belongs to `{}` and to `{}`",
                                owner.name, sandbox.name
                            )
                        },
                    )
                    .label("given again")
                    .related(first.clone(), "given here first")
                    .help(free_core(cx)),
                ),
            }
        }
    }
}

/// Names a core without an owner.
fn free_core(cx: &Context<'_, '_>) -> String {
    let count = cx.machine.as_ref().map_or(0, |machine| machine.core_ids.len());
    let taken = |core: &u32| cx.sandboxes.iter().any(|sandbox| sandbox.cores.contains(core));
    match (0..count as u32).find(|core| !taken(core)) {
        Some(core) => format!("a core has one owner; core {core} is free"),
        None => "a core has one owner".into(),
    }
}

/// A monitor has room for so many cores.
pub fn cores_too_many(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for sandbox in cx.sandboxes.iter().filter(|sandbox| sandbox.cores.len() > MAX_CORES) {
        let message = format!("sandbox `{}` has {} cores", sandbox.name, sandbox.cores.len());
        found.push(
            Diagnostic::new("cores-too-many", cx.at(sandbox, &[k("cores")]), message)
                .help(format!("a sandbox has at most {MAX_CORES} cores")),
        );
    }
}
