//! Bays: sandboxes that are vacant until another one creates something there.

use super::{Context, Item};
use crate::diagnostic::Diagnostic;
use crate::raw::{ChannelKind, Guest, Sandbox};
use crate::source::k;

/// Gives each bay the image's program for bays; their indices in the file.
pub fn open(sandboxes: &mut [Item<Sandbox>]) -> Vec<usize> {
    let vacant = sandboxes.iter_mut().filter(|one| matches!(one.raw.guest, Guest::Vacant {}));
    vacant
        .map(|one| {
            one.raw.guest = Guest::of_bay();
            one.index
        })
        .collect()
}

/// Something can come into a bay.
pub fn bay_channel(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let leads = |name: &str| {
        let mut programs = cx.channels.iter().filter(|one| one.kind == ChannelKind::Program);
        programs.any(|one| one.to.iter().any(|to| to == name))
    };
    let bays = cx.sandboxes.iter().filter(|one| cx.bays.contains(&one.index));
    for bay in bays.filter(|bay| !leads(&bay.name)) {
        let message = format!("nobody can create anything in `{}`", bay.name);
        let help = format!(
            "add a [[channel]] with `kind = \"program\"` and `to = [\"{}\"]`, from the sandbox that may",
            bay.name
        );
        let at = cx.at(bay, &[k("guest")]);
        found.push(Diagnostic::new("bay-channel", at, message).help(help));
    }
}
