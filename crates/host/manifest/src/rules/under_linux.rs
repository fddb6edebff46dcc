//! The start under a Linux that runs already. Only the table itself is checked here. Parts that such a system cannot
//! have are refused when it is built so ([`bulkhead_plan::System::under_linux`]).

use super::Context;
use crate::diagnostic::Diagnostic;
use crate::raw::{Dma, Guest, Release};
use crate::shape::brief;
use crate::size;
use crate::source::k;
use bulkhead_plan::{BLOCK, BLOCK_MOST, UnderLinux};

/// The running Linux becomes a sandbox that is a Linux.
pub fn under_linux_known(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    const RULE: &str = "under-linux-known";
    let Some(under) = &cx.under_linux else { return };
    let name = &under.sandbox;
    let at = cx.document.at(&[k("under_linux"), k("sandbox")]);
    if !cx.knows(name) {
        found.push(cx.unknown_sandbox(RULE, at, name));
        return;
    }
    let sandbox = cx.sandbox_index(name).and_then(|index| cx.sandboxes.get(index));
    if sandbox.is_some_and(|sandbox| !matches!(sandbox.guest, Guest::Linux { .. })) {
        let message = format!("a running Linux cannot become `{name}`, whose guest is another one");
        let help = "name a sandbox with `kind = \"linux\"`";
        found.push(Diagnostic::new(RULE, at, message).help(help));
    }
}

/// Its memory is taken in blocks.
pub fn under_linux_memory(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Some(under) = &cx.under_linux else { return };
    let why = match size::parse(&under.memory) {
        Err(why) => format!(": {why}"),
        Ok(size) if size == 0 || !size.is_multiple_of(BLOCK) || size > BLOCK_MOST => String::new(),
        Ok(_) => return,
    };
    let message = format!("`{}` cannot be taken from a Linux{why}", brief(&under.memory));
    let help = format!(
        "write a multiple of `\"{} MiB\"`, up to `\"{} MiB\"`",
        BLOCK >> 20,
        BLOCK_MOST >> 20
    );
    let at = cx.document.at(&[k("under_linux"), k("memory")]);
    found.push(Diagnostic::new("under-linux-memory", at, message).help(help));
}

/// A Linux begins anew only where its devices can be stopped.
pub fn under_linux_restart(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Some(under) = &cx.under_linux else { return };
    if !under.restart || under.dma != Dma::Unconfined {
        return;
    }
    let message = "a Linux begins anew, and nothing stops its devices before it";
    let at = cx.document.at(&[k("under_linux"), k("restart")]);
    let help = "leave `restart` out, or `dma = \"unconfined\"`";
    found.push(Diagnostic::new("under-linux-restart", at, message).help(help));
}

/// A sandbox that is ended when a Linux takes the machine back has such a Linux, and is another one.
pub fn under_linux_release(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for sandbox in cx.sandboxes.iter().filter(|sandbox| sandbox.release == Release::Ask) {
        let name = &sandbox.name;
        let (message, help) = match &cx.under_linux {
            None => (
                format!("`{name}` starts under no Linux that could ask"),
                "add `[under_linux]`, or leave `release` out",
            ),
            Some(under) if under.sandbox == *name => {
                (format!("`{name}` is the Linux that asks"), "leave `release` out")
            }
            Some(_) => continue,
        };
        let at = cx.at(sandbox, &[k("release")]);
        found.push(Diagnostic::new("under-linux-release", at, message).help(help));
    }
}

/// How the system starts so, if its manifest says it right.
pub fn under_linux(cx: &Context<'_, '_>) -> Option<UnderLinux> {
    let under = cx.under_linux.as_ref()?;
    Some(UnderLinux {
        sandbox: cx.sandbox_index(&under.sandbox)?,
        memory: size::parse(&under.memory).ok()?,
        unconfined: under.dma == Dma::Unconfined,
        restart: under.restart,
        place: cx.document.at(&[k("under_linux")]).place(),
    })
}
