//! Programs that can begin in another one's place.

use super::{Parts, all, complete};
use crate::diagnostic::Diagnostic;
use crate::raw_kernel as raw;
use crate::rules::{Context, Item};
use crate::shape::brief;
use crate::source::k;

/// Returns the program that an alternative can take the place of.
#[must_use]
pub fn original<'a>(parts: &Parts<'a>, program: &raw::Program) -> Option<&'a Item<raw::Program>> {
    let name = program.alternative_to.as_deref()?;
    parts.programs.iter().copied().find(|one| one.name == name)
}

/// An alternative has the devices of one other program, all that these devices reach and signal, and no time.
pub fn program_alternative(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    if !complete(cx) {
        return;
    }
    for parts in all(cx) {
        for program in &parts.programs {
            let Some(name) = program.alternative_to.as_deref() else { continue };
            let wrong = match original(&parts, program) {
                None => Some((
                    format!("`{}` has no program `{}`", parts.sandbox.name, brief(name)),
                    "name a program of its sandbox".to_owned(),
                )),
                Some(other) => other_place(program, other)
                    .or_else(|| reached(program, other))
                    .or_else(|| time(&parts, program, other)),
            };
            let Some((message, help)) = wrong else { continue };
            let at = cx.at(program, &[k("alternative_to")]);
            found.push(Diagnostic::new("program-alternative", at, message).help(help));
        }
    }
}

type Wrong = (String, String);

/// It has one place, which is a program's own, and that one's devices.
fn other_place(program: &raw::Program, other: &raw::Program) -> Option<Wrong> {
    if program.name == other.name || other.alternative_to.is_some() {
        let message = format!("`{}` has no place of its own", other.name);
        return Some((message, "name a program that is no alternative".into()));
    }
    (!program.devices.is_empty()).then(|| {
        let message = format!("`{}` has devices of its own", program.name);
        (message, format!("leave out `devices`: it gets those of `{}`", other.name))
    })
}

/// It sees what the devices reach, and waits for what they signal.
fn reached(program: &raw::Program, other: &raw::Program) -> Option<Wrong> {
    for device in &other.devices {
        for name in device.dma() {
            let of = |one: &raw::Program| {
                let mut maps = one.maps.iter().map(raw::Map::parts);
                maps.find(|(map, _)| map == name).map(|(_, access)| access)
            };
            let known = of(other);
            if known.is_none() || of(program) != known {
                let message = format!(
                    "the devices of `{}` reach `{}`, which is not so in `maps` of `{}`",
                    other.name,
                    brief(name),
                    program.name
                );
                let help = "give both programs the shared memory, with one access; a channel is for one of them";
                return Some((message, help.into()));
            }
        }
        let mut signals = device.parts().1.iter().map(|one| &one.notification);
        if let Some(name) = signals.find(|name| !program.waits.contains(name)) {
            let message = format!(
                "a device of `{}` signals `{}`, for which `{}` does not wait",
                other.name,
                brief(name),
                program.name
            );
            return Some((message, "add it to `waits`".into()));
        }
    }
    None
}

/// Its threads get the time and the priority of the other program.
fn time(parts: &Parts<'_>, program: &raw::Program, other: &raw::Program) -> Option<Wrong> {
    let own = parts.threads.iter().filter(|thread| thread.program == program.name);
    let theirs = || parts.threads.iter().filter(|thread| thread.program == other.name);
    for thread in own {
        if thread.context.is_some() {
            let message = format!("thread `{}` has time of its own", thread.name);
            let help = format!("leave out `context`: it gets that of a thread of `{}`", other.name);
            return Some((message, help));
        }
        if !theirs().any(|one| one.priority == thread.priority) {
            let message =
                format!("no thread of `{}` has the priority of `{}`", other.name, thread.name);
            return Some((
                message,
                "admission counts with one priority for both: give it that".into(),
            ));
        }
    }
    None
}
