//! Health: actions after denied accesses.

use super::Context;
use crate::diagnostic::Diagnostic;
use crate::raw::{Action, Event};
use crate::source::k;

/// Entries are for sandboxes that exist.
pub fn health_known(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for health in cx.healths.iter().filter(|health| !cx.knows(&health.sandbox)) {
        let at = cx.at(health, &[k("sandbox")]);
        found.push(cx.unknown_sandbox("health-known", at, &health.sandbox));
    }
}

/// One action for each kind.
pub fn health_twice(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for (index, health) in cx.healths.iter().enumerate() {
        let same = |other: &&super::Item<crate::raw::Health>| {
            other.sandbox == health.sandbox && other.on == health.on
        };
        if let Some(first) = cx.healths[..index].iter().find(same) {
            let message =
                format!("`{}` of `{}` has an action already", health.on.name(), health.sandbox);
            found.push(
                Diagnostic::new("health-twice", cx.at(health, &[k("on")]), message)
                    .label("given again")
                    .related(cx.at(first, &[k("on")]), "given here first")
                    .help("keep one of them"),
            );
        }
    }
}

/// An instruction that cannot be completed cannot be passed over either.
pub fn health_ignore(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for health in &cx.healths {
        let fatal = matches!(health.on, Event::MemoryViolation | Event::TripleFault);
        if fatal && health.action == Action::Ignore {
            let message = format!(
                "`{}` cannot be ignored: the instruction cannot be completed",
                health.on.name()
            );
            let help = "write `action = \"stop\"` or `action = \"restart\"`";
            let at = cx.at(health, &[k("action")]);
            found.push(Diagnostic::new("health-ignore", at, message).help(help));
        }
    }
}
