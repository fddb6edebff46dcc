//! Sandboxes that a debugger may look into.

use super::Context;
use crate::diagnostic::Diagnostic;
use crate::source::k;

/// Its monitor stops one core, and not on each architecture.
pub fn debug_sandbox(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let facts = cx.arch().facts();
    for sandbox in cx.sandboxes.iter().filter(|sandbox| sandbox.debug) {
        let name = &sandbox.name;
        let (message, help) = if !facts.debugger {
            let message =
                format!("no debugger is let into `{name}` on a machine of {}", facts.name);
            (message, "leave `debug` away, or take another machine description")
        } else if sandbox.cores.len() > 1 {
            let message = format!("no debugger is let into `{name}`, which has several cores");
            (message, "give it one core while it is debugged")
        } else {
            continue;
        };
        let at = cx.at(sandbox, &[k("debug")]);
        found.push(Diagnostic::new("debug-sandbox", at, message).help(help));
    }
}
