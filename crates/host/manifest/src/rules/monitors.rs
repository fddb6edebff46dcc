//! Systems without monitors: features that they cannot have, because a monitor would do them.

use super::{Context, Item};
use crate::diagnostic::{Diagnostic, list};
use crate::raw::{self, Guest};
use crate::source::{Location, k};

/// Returns the place of `monitors = false`.
fn said(cx: &Context<'_, '_>) -> Location {
    cx.document.at(&[k("system"), k("monitors")])
}

/// Every guest is a kernel.
pub fn monitors_guest(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let kernel = |item: &&Item<raw::Sandbox>| matches!(item.guest, Guest::Kernel { .. });
    for sandbox in cx.sandboxes.iter().filter(|item| cx.multikernel() && !kernel(item)) {
        let message = format!("`{}` needs a monitor: its guest is not a kernel", sandbox.name);
        let at = cx.at(sandbox, &[k("guest")]);
        found.push(
            Diagnostic::new("monitors-guest", at, message)
                .related(said(cx), "there are no monitors")
                .help("leave out `monitors = false`, or make it `guest = { kind = \"kernel\" }`"),
        );
    }
}

/// No sandbox stops, starts or watches another, and no access is denied.
pub fn monitors_right(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    if !cx.multikernel() {
        return;
    }
    let mut refuse = |at: Location, message: String| {
        let help = "leave it out, or leave out `monitors = false`";
        let finding = Diagnostic::new("monitors-right", at, message);
        found.push(finding.related(said(cx), "there are no monitors").help(help));
    };
    for sandbox in &cx.sandboxes {
        let keys = [
            ("stop", !sandbox.stop.is_empty()),
            ("start", !sandbox.start.is_empty()),
            ("restart", !sandbox.restart.is_empty()),
            ("observe", !sandbox.observe.is_empty()),
            ("links", sandbox.links.is_some()),
            ("watchdog", sandbox.watchdog.is_some()),
            ("monitor", sandbox.monitor != raw::Build::Usual),
            ("lockable", sandbox.lockable),
            ("debug", sandbox.debug),
            ("learn", sandbox.learn),
            ("autostart", !sandbox.autostart),
        ];
        for (key, _) in keys.into_iter().filter(|(_, used)| *used) {
            let message = format!("`{key}` of `{}` is a monitor's work", sandbox.name);
            refuse(cx.at(sandbox, &[k(key)]), message);
        }
    }
    for shared in &cx.mmios {
        let message = format!("nobody divides the registers of `{}`", shared.name);
        refuse(cx.at(shared, &[]), message);
    }
    for health in &cx.healths {
        refuse(cx.at(health, &[]), "nothing is denied without a monitor".to_owned());
    }
}

/// One kernel at most uses the interrupt controller for lines: its registers are reached in two steps.
pub fn monitors_line(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    if !cx.multikernel() {
        return;
    }
    let mut users = super::kernel::programs::lines(cx);
    users.dedup_by_key(|line| line.sandbox);
    if users.len() > 1 {
        let names: Vec<_> = users.iter().map(|line| line.sandbox).collect();
        let message = format!("kernels {} take interrupts from lines", list(&names));
        let at = users.swap_remove(1).at;
        found.push(
            Diagnostic::new("monitors-line", at, message)
                .related(said(cx), "there are no monitors")
                .help("give devices with interrupt lines to one kernel: nobody divides the IOAPIC"),
        );
    }
}
