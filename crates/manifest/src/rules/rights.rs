//! Rights over other sandboxes.

use super::{Context, Item};
use crate::diagnostic::Diagnostic;
use crate::raw::Sandbox;
use crate::source::{Step, k, n};

/// `control` names other sandboxes, each once.
pub fn control_known(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let help = "a sandbox restarts and ends itself by hypercalls, without a right to it";
    for sandbox in &cx.sandboxes {
        let named = (&[k("control")][..], &sandbox.control[..]);
        others(cx, sandbox, named, "control-known", help, found);
    }
}

/// `observe` names other sandboxes, each once.
pub fn observe_known(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let help = "name sandboxes whose reports it should see, other than its own";
    for sandbox in &cx.sandboxes {
        let named = (&[k("observe")][..], &sandbox.observe[..]);
        others(cx, sandbox, named, "observe-known", help, found);
    }
}

/// A list at `path` names other sandboxes, each once.
pub fn others(
    cx: &Context<'_, '_>,
    sandbox: &Item<Sandbox>,
    (path, names): (&[Step<'_>], &[String]),
    rule: &'static str,
    self_help: &str,
    found: &mut Vec<Diagnostic>,
) {
    for (index, name) in names.iter().enumerate() {
        let at = cx.at(sandbox, &[path, &[n(index)]].concat());
        if !cx.knows(name) {
            found.push(cx.unknown_sandbox(rule, at, name));
        } else if *name == sandbox.name {
            let key = path.iter().find_map(|step| match step {
                Step::Key(key) => Some(*key),
                Step::Index(_) => None,
            });
            let message = format!("`{}` of `{name}` names itself", key.unwrap_or_default());
            found.push(Diagnostic::new(rule, at, message).help(self_help));
        } else if names[..index].contains(name) {
            let message = format!("`{name}` stands here twice");
            found.push(Diagnostic::new(rule, at, message).help("name it once"));
        }
    }
}
