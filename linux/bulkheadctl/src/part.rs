//! Parts that come and go in bays, which are sandboxes with a vacant guest. A part is checked against the system's
//! manifest, by the rules for that. Its monitor gets a program, as any that is loaded.

use crate::Wrong;
use crate::ask::lives;
use crate::load::{clear, label, run, set_label, target, wipe};
use crate::machine::Machine;
use crate::why::Reader;
use bulkhead_explain::state as name_of;
use bulkhead_image::pack_with;
use bulkhead_layout::map::GUEST_LOW_END;
use bulkhead_layout::report::State;
use bulkhead_linux::late;
use bulkhead_manifest::{Options, part, render};
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Creates what a file describes in a bay that fits, and starts it there.
pub fn create(
    machine: &Machine,
    file: &str,
    wait: Duration,
    why: &Result<Reader, Wrong>,
) -> Result<String, Wrong> {
    let reader = why.as_ref().map_err(Wrong::clone)?;
    let system = reader.path().ok_or(
        "the system's manifest says where there is room: put it at /etc/bulkhead/system.toml, or name it by --manifest",
    )?;
    let _held = hold(system, wait)?;
    let taken = |bay: &str| taken(machine, bay, wait);
    let fit = part::load(Path::new(file), system, &Options::default(), taken)
        .map_err(|found| render::human(&found, false))?;
    if let Some(bay) = named(machine, reader, &fit.name, wait) {
        return Err(format!("`{}` is in bay `{bay}` already: bulkheadctl destroy {0}", fit.name));
    }
    let (other, channel, room) = target(machine, &fit.bay, wait)?;
    let program = fit.program.display().to_string();
    let bytes = std::fs::read(&fit.program).map_err(|why| format!("{program}: {why}"))?;
    let end = reader.memory(other.index).unwrap_or(GUEST_LOW_END);
    let packed = pack_with(&program, &bytes, end, &fit.args).map_err(|why| why.to_string())?;
    set_label(&channel, room, &fit.name);
    match run(&other, &channel, room, (&program, &packed), why) {
        Ok(now) => {
            let mut says = format!("{} is created in bay {}", fit.name, fit.bay);
            if !lives(now.state) {
                says += &format!(
                    "; it is {1} already: bulkheadctl denials {0}, bulkheadctl console {0}",
                    fit.bay,
                    name_of(now.state)
                );
            }
            agree(machine, reader, wait).map_err(|why| format!("{says}; {why}"))?;
            Ok(says + "\n")
        }
        Err(wrong) => {
            // Nothing is left of it, whatever the monitors say to a restart.
            wipe(&channel, room);
            let _ = other.anew();
            Err(wrong)
        }
    }
}

/// Ends what was created, and leaves its bay vacant.
pub fn destroy(
    machine: &Machine,
    name: &str,
    wait: Duration,
    why: &Result<Reader, Wrong>,
) -> Result<String, Wrong> {
    let reader = why.as_ref().map_err(Wrong::clone)?;
    let _held = reader.path().map(|system| hold(system, wait)).transpose()?;
    let bay = named(machine, reader, name, wait).ok_or_else(|| {
        let all: Vec<_> = bays(machine, reader, wait).filter_map(|(_, part)| part).collect();
        let there = if all.is_empty() { "nothing".into() } else { all.join(", ") };
        format!("no bay has `{name}`; there is {there}")
    })?;
    let (other, channel, room) = target(machine, &bay, wait)?;
    // Their devices come to an end while the other side lives. One that is in use stays, and the part with it.
    plug(&leads_to(reader, &[other.index]), late::unplug)?;
    clear(&other, &channel, room, why).inspect_err(|_| {
        let _ = agree(machine, reader, wait);
    })?;
    let gone = other.until("that it is vacant", |now| !lives(now.state) && !now.loaded)?;
    match gone.state {
        State::Exited => Ok(format!("{name} is gone; bay {bay} is vacant\n")),
        _ => Err(other.is(gone).trim_end().to_owned()),
    }
}

/// This sandbox' channels that lead to these bays, and nowhere else.
fn leads_to<'a>(reader: &'a Reader, bays: &[usize]) -> Vec<&'a str> {
    let all = reader.channels().into_iter();
    let only = all.filter(|(_, ends)| !ends.is_empty() && ends.iter().all(|n| bays.contains(n)));
    only.map(|(name, _)| name).collect()
}

/// Has the PCI functions of these channels come or go. Without the module they are there for good.
fn plug(channels: &[&str], does: fn(&str) -> io::Result<()>) -> Result<(), Wrong> {
    for name in channels {
        match does(name) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => {
                return Err(format!(
                    "the PCI functions of channel `{name}`: {why}; the kernel's log has the reason (dmesg)"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Has those channels be there as PCI functions that lead to a sandbox that is there. Those to vacant bays go. No other
/// command creates or destroys meanwhile.
pub fn plug_all(machine: &Machine, reader: &Reader, wait: Duration) -> Result<(), Wrong> {
    let _held = reader.path().map(|system| hold(system, wait)).transpose()?;
    agree(machine, reader, wait)
}

fn agree(machine: &Machine, reader: &Reader, wait: Duration) -> Result<(), Wrong> {
    let all: Vec<_> = bays(machine, reader, wait).collect();
    let index = |(bay, _): &(&str, Option<String>)| machine.index(bay).ok();
    let own: Vec<_> = all.iter().filter_map(index).collect();
    let vacant: Vec<_> = all.iter().filter(|(_, part)| part.is_none()).filter_map(index).collect();
    let gone = leads_to(reader, &vacant);
    let mut there = leads_to(reader, &own);
    there.retain(|name| !gone.contains(name));
    plug(&there, late::plug)?;
    plug(&gone, late::unplug)
}

/// Keeps others of this command from creating and destroying meanwhile: a lock on the system's manifest.
fn hold(system: &Path, wait: Duration) -> Result<File, Wrong> {
    let says = |why: std::io::Error| format!("{}: {why}", system.display());
    let file = File::open(system).map_err(says)?;
    let begin = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(why)) => return Err(says(why)),
            Err(TryLockError::WouldBlock) if begin.elapsed() < wait => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(TryLockError::WouldBlock) => {
                let wait = wait.as_secs();
                return Err(format!(
                    "waited {wait} s for another bulkheadctl that creates or destroys"
                ));
            }
        }
    }
}

/// Why a bay cannot be had now.
fn taken(machine: &Machine, bay: &str, wait: Duration) -> Option<String> {
    let index = machine.index(bay).ok()?;
    if machine.loads(index).is_none() {
        return Some("is not this sandbox' to create in".into());
    }
    let (other, channel, room) = match target(machine, bay, wait) {
        Ok(found) => found,
        Err(why) => return Some(format!("cannot be reached: {why}")),
    };
    match machine.status(other.index) {
        Err(why) => Some(format!("does not tell its state: {why}")),
        Ok(now) if now.loaded || lives(now.state) => {
            Some(format!("has `{}`", label(&channel, room).as_deref().unwrap_or("something")))
        }
        Ok(now) if now.state == State::Failed => Some("has failed".into()),
        Ok(_) => None,
    }
}

/// The bays that this sandbox may create in, and the name of what is in each.
pub fn bays<'a>(
    machine: &'a Machine,
    reader: &'a Reader,
    wait: Duration,
) -> impl Iterator<Item = (&'a str, Option<String>)> {
    let all = machine.info.sandboxes.iter().enumerate().filter(|(n, _)| reader.bay(*n));
    all.filter_map(move |(index, bay)| {
        let (_, channel, room) = target(machine, bay, wait).ok()?;
        // Memory of before the machine's start can look like a name. One that begins anew is not loaded yet.
        let loaded = machine.status(index).is_ok_and(|now| now.loaded || lives(now.state));
        Some((bay.as_str(), label(&channel, room).filter(|_| loaded)))
    })
}

/// The sandbox of a name: a sandbox' own, or that of what is in a bay.
pub fn sandbox(
    machine: &Machine,
    why: &Result<Reader, Wrong>,
    name: &str,
    wait: Duration,
) -> String {
    let known = machine.info.sandboxes.iter().any(|own| own == name);
    let reader = why.as_ref().ok().filter(|_| !known);
    let bay = reader.and_then(|reader| named(machine, reader, name, wait));
    bay.unwrap_or_else(|| name.to_owned())
}

/// The bay that has a part of this name.
fn named(machine: &Machine, reader: &Reader, name: &str, wait: Duration) -> Option<String> {
    let mut all = bays(machine, reader, wait);
    let found = all.find(|(_, part)| part.as_deref() == Some(name));
    found.map(|(bay, _)| bay.to_owned())
}
