//! Threads, and whether somebody serves, calls, signals and waits where it is expected.

use super::programs::elf;
use super::{Parts, all, complete};
use crate::diagnostic::{Diagnostic, nearest};
use crate::raw;
use crate::raw_kernel::Call;
use crate::rules::{Context, Item};
use crate::shape::brief;
use crate::source::k;

/// A thread begins somewhere: the first of a program at the file's entry, others at symbols.
pub fn thread_entry(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for parts in all(cx) {
        for (index, thread) in parts.threads.iter().enumerate() {
            let program = parts.programs.iter().find(|program| program.name == thread.program);
            let Some(program) = program else { continue };
            let finding = match &thread.entry {
                None => {
                    let own = |other: &&&Item<raw::Thread>| other.program == thread.program;
                    let Some(first) = parts.threads[..index].iter().find(own) else { continue };
                    let message = format!("thread `{}` does not say where it begins", thread.name);
                    Diagnostic::new("thread-entry", cx.at(thread, &[]), message)
                        .related(cx.at(first, &[]), "the first thread begins at the file's entry")
                        .help("give it an `entry`: the name of a function in the program")
                }
                Some(entry) => {
                    let Some(elf) = elf(cx, program) else { continue };
                    if elf.symbols.contains_key(entry) {
                        continue;
                    }
                    let message =
                        format!("program `{}` has no symbol `{}`", program.name, brief(entry));
                    let names = elf.symbols.keys().map(String::as_str);
                    let help = match (elf.symbols.is_empty(), nearest(entry, names)) {
                        (true, _) => "its file has no symbols: do not strip it".to_owned(),
                        (_, Some(near)) => format!("did you mean `{near}`?"),
                        _ => {
                            "name a function that is not mangled: `#[unsafe(no_mangle)]`".to_owned()
                        }
                    };
                    let at = cx.at(thread, &[k("entry")]);
                    Diagnostic::new("thread-entry", at, message).help(help)
                }
            };
            found.push(finding);
        }
    }
}

/// Symbol of a file of which all threads use vector registers (`program/libc/start.c`).
const NEEDS_FPU: &str = "bulkhead_needs_fpu";

/// A file in which the compiler uses vector registers has them in each thread. The first use would be an exception.
pub fn thread_fpu(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for parts in all(cx) {
        for thread in parts.threads.iter().filter(|thread| !thread.fpu) {
            let program = parts.programs.iter().find(|program| program.name == thread.program);
            let Some(program) = program else { continue };
            let needs = elf(cx, program).is_some_and(|elf| elf.symbols.contains_key(NEEDS_FPU));
            if needs {
                let (name, program) = (&thread.name, &program.name);
                let message =
                    format!("thread `{name}` has no vector registers, and `{program}` uses them");
                let at = cx.at(thread, &[k("name")]);
                let help = "add `fpu = true`: `bulkhead-cc app` compiles with them";
                found.push(Diagnostic::new("thread-fpu", at, message).help(help));
            }
        }
    }
}

fn calls(call: &Call) -> &str {
    match call {
        Call::Name(name) => name,
        Call::Detailed(detailed) => &detailed.endpoint,
    }
}

/// True if a thread of another program sends something to an endpoint on a context of its own.
fn is_called(parts: &Parts<'_>, program: &str, endpoint: &str) -> bool {
    let others = parts.programs.iter().filter(|other| other.name != program);
    let called = others.flat_map(|other| &other.calls).any(|call| calls(call) == endpoint);
    let faults = parts.threads.iter().filter(|thread| thread.program != program);
    let faults = faults.filter_map(|thread| thread.fault.as_ref());
    // Another thread of the program itself may call, too.
    let several = parts.threads.iter().filter(|thread| thread.program == program).count() > 1;
    let own = parts.programs.iter().filter(|own| several && own.name == program);
    let own = own.flat_map(|own| &own.calls).any(|call| calls(call) == endpoint);
    called || own || faults.into_iter().any(|route| route.parts().0 == endpoint)
}

/// A passive thread gets time from somebody.
pub fn thread_passive(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    if !complete(cx) {
        return;
    }
    for parts in all(cx) {
        for thread in parts.threads.iter().filter(|thread| thread.context.is_none()) {
            let program = parts.programs.iter().find(|program| program.name == thread.program);
            let Some(program) = program else { continue };
            // It begins with another one's context.
            if program.alternative_to.is_some() {
                continue;
            }
            let lends = |name: &String| {
                let mut all = parts.notifications.iter();
                all.any(|one| one.name == *name && one.context.is_some())
            };
            let called = |endpoint: &String| is_called(&parts, &program.name, endpoint);
            if program.serves.iter().any(called) || program.waits.iter().any(lends) {
                continue;
            }
            let why = match program.serves.as_slice() {
                [] => format!("its program `{}` serves no endpoint", program.name),
                [one] => format!("nobody calls its endpoint `{one}`"),
                _ => "nobody calls its endpoints".to_owned(),
            };
            let message = format!("thread `{}` has no context, and {why}", thread.name);
            let help = "give it a `context`; or let others call it (`serves` here, `calls` there), or a \
                        notification with a context signal it";
            let at = cx.at(thread, &[k("name")]);
            found.push(
                Diagnostic::new("thread-passive", at, message).label("never runs").help(help),
            );
        }
    }
}

/// The threads that may receive from an endpoint.
fn servers<'a>(
    parts: &'a Parts<'_>,
    endpoint: &'a str,
) -> impl Iterator<Item = &'a Item<raw::Thread>> {
    let serves = move |thread: &&Item<raw::Thread>| {
        let mut programs = parts.programs.iter();
        programs.any(|program| {
            program.name == thread.program && program.serves.iter().any(|name| name == endpoint)
        })
    };
    parts.threads.iter().copied().filter(serves)
}

/// The end of a budget goes to a thread that has one of its own.
pub fn thread_timeout(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    if !complete(cx) {
        return;
    }
    for parts in all(cx) {
        for thread in &parts.threads {
            let Some(route) = &thread.timeout else { continue };
            let (endpoint, _) = route.parts();
            let mut servers = servers(&parts, endpoint).peekable();
            // Without any, that is another rule's.
            if servers.peek().is_none() || servers.any(|server| server.context.is_some()) {
                continue;
            }
            let message = format!(
                "the ends of `{}`'s budget go to `{endpoint}`, which only passive threads serve",
                thread.name
            );
            let help = "a thread whose budget has ended can lend none: give a thread that serves it a \
                        context";
            let at = cx.at(thread, &[k("timeout")]);
            found.push(Diagnostic::new("thread-timeout", at, message).help(help));
        }
    }
}

/// Somebody serves an endpoint.
pub fn endpoint_server(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    if !complete(cx) {
        return;
    }
    for parts in all(cx) {
        for endpoint in &parts.endpoints {
            let serves = |program: &&Item<raw::Program>| program.serves.contains(&endpoint.name);
            if !parts.programs.iter().any(serves) {
                let message = format!("nobody serves endpoint `{}`", endpoint.name);
                let help = "name it in `serves` of a program, or remove it";
                let at = cx.at(endpoint, &[k("name")]);
                found.push(
                    Diagnostic::new("endpoint-server", at, message)
                        .label("who calls it waits for ever")
                        .help(help),
                );
            }
        }
    }
}

/// Somebody waits for a notification, and something signals it.
pub fn notification_idle(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    if !complete(cx) {
        return;
    }
    for parts in all(cx) {
        for item in &parts.notifications {
            let name = item.name.as_str();
            let waits = parts.programs.iter().any(|one| one.waits.iter().any(|n| n == name));
            let signals = parts.programs.iter().any(|program| {
                let interrupts = program.devices.iter().flat_map(|device| device.parts().1);
                let mut bells = program.channels.iter().filter_map(|channel| channel.signal());
                program.signals.iter().any(|signal| signal.parts().0 == name)
                    || { interrupts }.any(|interrupt| interrupt.notification == name)
                    || bells.any(|bell| bell.notification == name)
            });
            let (why, help) = match (waits, signals) {
                (true, true) => continue,
                (false, _) => ("nobody waits for", "name it in `waits` of a program, or remove it"),
                (true, false) => (
                    "nothing signals",
                    "name it in `signals` of a program, in `interrupts` of a device or in `channels`, or remove it",
                ),
            };
            let message = format!("{why} notification `{name}`");
            let at = cx.at(item, &[k("name")]);
            found.push(Diagnostic::new("notification-idle", at, message).help(help));
        }
    }
}
