//! Kernels: the contents of their sandboxes, and the rights of each program.

pub mod admission;
pub mod alternative;
pub mod build;
pub mod contexts;
pub mod links;
pub mod names;
pub mod programs;
pub mod threads;

use super::{Context, Item};
use crate::raw::{self, Guest};
use crate::source::k;
use std::collections::BTreeSet;

/// Slots of a capability space, if the manifest does not say.
pub const SLOTS: u32 = 64;
/// Length of a refill list, if the manifest does not say.
pub const REFILLS: u32 = 8;
/// Longest refill list.
pub const MOST_REFILLS: u32 = 64;
/// Size of a stack, if the manifest does not say.
pub const STACK: &str = "16 KiB";
/// The kernel, if the manifest does not say.
const KERNEL: &str = "artifact:kernel";
/// Default kernel that records its actions.
const TRACED: &str = "artifact:kernel-trace";

/// Returns the file of a sandbox's kernel: the manifest's, or the default.
#[must_use]
pub fn file<'a>(kernel: Option<&'a str>, trace: Option<&str>) -> &'a str {
    kernel.unwrap_or(if trace.is_some() { TRACED } else { KERNEL })
}

/// The size of a kernel's trace, as the manifest says it.
#[must_use]
pub fn trace(sandbox: &raw::Sandbox) -> Option<&str> {
    match &sandbox.guest {
        Guest::Kernel { trace, .. } => trace.as_deref(),
        _ => None,
    }
}

/// Everything that belongs to one kernel's sandbox.
pub struct Parts<'a> {
    /// The sandbox.
    pub sandbox: &'a Item<raw::Sandbox>,
    /// Its programs.
    pub programs: Vec<&'a Item<raw::Program>>,
    /// Their threads.
    pub threads: Vec<&'a Item<raw::Thread>>,
    /// Its contexts.
    pub contexts: Vec<&'a Item<raw::Context>>,
    /// Its endpoints.
    pub endpoints: Vec<&'a Item<raw::Endpoint>>,
    /// Its notifications.
    pub notifications: Vec<&'a Item<raw::Notification>>,
    /// Its shared memory.
    pub shared: Vec<&'a Item<raw::Shared>>,
}

impl<'a> Parts<'a> {
    /// The names in a table of this sandbox.
    #[must_use]
    pub fn names(&self, table: &str) -> Vec<&'a str> {
        fn all<'a, T: Named>(parts: &[&'a Item<T>]) -> Vec<&'a str> {
            parts.iter().map(|part| part.raw.name()).collect()
        }
        match table {
            "program" => all(&self.programs),
            "thread" => all(&self.threads),
            "context" => all(&self.contexts),
            "endpoint" => all(&self.endpoints),
            "notification" => all(&self.notifications),
            "shared" => all(&self.shared),
            _ => Vec::new(),
        }
    }
}

/// True if everything about kernels could be decoded: only then can a part be reported as missing.
#[must_use]
pub fn complete(cx: &Context<'_, '_>) -> bool {
    let decoded = [
        ("sandbox", cx.sandboxes.len()),
        ("program", cx.programs.len()),
        ("thread", cx.threads.len()),
        ("context", cx.contexts.len()),
        ("endpoint", cx.endpoints.len()),
        ("notification", cx.notifications.len()),
        ("shared", cx.shared.len()),
    ];
    decoded.into_iter().all(|(table, count)| {
        let array = cx.document.get(&[k(table)]).and_then(|node| node.get_ref().as_array());
        array.map_or(0, |array| array.len()) == count
    })
}

/// A part that has a name.
pub trait Named {
    /// Its name.
    fn name(&self) -> &str;
}

macro_rules! named {
    ($($part:ty),*) => {
        $(impl Named for $part {
            fn name(&self) -> &str {
                &self.name
            }
        })*
    };
}
named!(raw::Program, raw::Thread, raw::Context, raw::Endpoint, raw::Notification, raw::Shared);

/// Index of the part of that name.
#[must_use]
pub fn find<T: Named>(parts: &[&Item<T>], name: &str) -> Option<usize> {
    parts.iter().position(|part| part.raw.name() == name)
}

/// All kernels' sandboxes.
pub fn all<'a>(cx: &'a Context<'_, '_>) -> impl Iterator<Item = Parts<'a>> {
    let kernel = |item: &&Item<raw::Sandbox>| matches!(item.guest, Guest::Kernel { .. });
    cx.sandboxes.iter().filter(kernel).map(|sandbox| parts(cx, sandbox))
}

/// Collects the parts of a sandbox.
#[must_use]
pub fn parts<'a>(cx: &'a Context<'_, '_>, sandbox: &'a Item<raw::Sandbox>) -> Parts<'a> {
    let own = |name: &str| name == sandbox.name;
    let programs: Vec<_> = cx.programs.iter().filter(|part| own(&part.sandbox)).collect();
    // Asked for each program: by a set, not by a look at each pair.
    let names: BTreeSet<&str> = programs.iter().map(|part| part.name.as_str()).collect();
    let threads = cx.threads.iter().filter(|part| names.contains(part.program.as_str()));
    Parts {
        sandbox,
        threads: threads.collect(),
        contexts: cx.contexts.iter().filter(|part| own(&part.sandbox)).collect(),
        endpoints: cx.endpoints.iter().filter(|part| own(&part.sandbox)).collect(),
        notifications: cx.notifications.iter().filter(|part| own(&part.sandbox)).collect(),
        shared: cx.shared.iter().filter(|part| own(&part.sandbox)).collect(),
        programs,
    }
}

/// Object that `manages` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Managed<'a> {
    /// `program:NAME`.
    Program(&'a str),
    /// `thread:NAME`.
    Thread(&'a str),
    /// `context:NAME`.
    Context(&'a str),
}

/// Takes an entry of `manages` apart.
#[must_use]
pub fn managed(text: &str) -> Option<Managed<'_>> {
    match text.split_once(':')? {
        ("program", name) => Some(Managed::Program(name)),
        ("thread", name) => Some(Managed::Thread(name)),
        ("context", name) => Some(Managed::Context(name)),
        _ => None,
    }
}
