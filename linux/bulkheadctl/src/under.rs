//! Starts an image under this Linux, and ends it.

use crate::Wrong;
use crate::ask::{Other, lives};
use crate::machine::Machine;
use bulkhead_linux::late;
use std::io;
use std::time::Duration;

/// Says what failed, and where the reason is.
fn wrong(error: &io::Error) -> Wrong {
    match error.raw_os_error() {
        Some(nix::libc::ENOENT) => "nothing to ask: modprobe bulkhead, or no image runs".into(),
        Some(nix::libc::EALREADY) => "an image runs already: bulkheadctl machine disable".into(),
        Some(nix::libc::EBUSY) => {
            "a sandbox runs that has not ended: bulkheadctl list, bulkheadctl stop".into()
        }
        _ => format!("{error}: the kernel's log has the reason (dmesg)"),
    }
}

/// A file of the kernel's, a part of it, and why nothing can begin then.
const REFUSED: [(&str, &str, &str); 3] = [
    (
        "/sys/kernel/kexec_crash_loaded",
        "1",
        "a crash kernel is loaded, and would dump memory that goes: kdump-config unload, and kdump-config load afterwards",
    ),
    ("/sys/kernel/security/lockdown", "[integrity]", LOCKED),
    ("/sys/kernel/security/lockdown", "[confidentiality]", LOCKED),
];

const LOCKED: &str = "this kernel is locked down, and closes /dev/mem and the monitors' port: Secure Boot off, or no lockdown=";

/// Starts the image in a file.
pub fn enable(file: &str) -> Result<String, Wrong> {
    let says =
        |path: &str, part| std::fs::read_to_string(path).is_ok_and(|text| text.contains(part));
    if let Some((_, _, why)) = REFUSED.iter().find(|(path, part, _)| says(path, part)) {
        return Err((*why).into());
    }
    let image = std::fs::read(file).map_err(|why| format!("{file}: {why}"))?;
    late::enable(&image).map_err(|why| wrong(&why))?;
    status()
}

/// Ends the image that runs, and before it the sandboxes that the manifest lets this end.
pub fn disable(wait: Duration) -> Result<String, Wrong> {
    let state = late::state().map_err(|why| wrong(&why))?;
    if state.on == 0 && state.at != 0 {
        return Err(status()?.trim_end().into());
    }
    if state.on != 0 {
        end_others(wait)?;
    }
    late::disable().map_err(|why| wrong(&why))?;
    status()
}

/// Stops all others that live, or none: if one of them is not to be ended.
fn end_others(wait: Duration) -> Result<(), Wrong> {
    let machine = Machine::open()?;
    let names = &machine.info.sandboxes;
    let lives = |n: &usize| machine.known(*n).status.is_some_and(|now| lives(now.state));
    let others = (0..names.len()).filter(|n| *n != machine.info.index).filter(lives);
    let (asked, stay): (Vec<_>, Vec<_>) = others.partition(|n| machine.releases(*n));
    if !stay.is_empty() {
        let stay: Vec<_> = stay.iter().map(|n| format!("`{}`", names[*n])).collect();
        return Err(format!(
            "{} would have to end first, and there is no `release = \"ask\"` in the manifest: bulkheadctl stop",
            stay.join(", ")
        ));
    }
    let locked = |n: &&usize| machine.known(**n).status.is_some_and(|now| now.locked);
    if let Some(index) = asked.iter().find(locked) {
        return Err(format!("`{}` is locked: nobody but itself ends it", names[*index]));
    }
    for index in asked {
        Other { machine: &machine, index, name: &names[index], wait }.stop()?;
    }
    Ok(())
}

/// Tells if an image runs, and where.
pub fn status() -> Result<String, Wrong> {
    let state = late::state().map_err(|why| wrong(&why))?;
    let kept = format!(
        "off; {} MiB at {:#x} are lost, because devices were not given back: reboot this machine\n",
        state.len >> 20,
        state.at
    );
    Ok(match state.on {
        0 if state.at != 0 => kept,
        0 => "off: this Linux has the machine\n".into(),
        _ => format!(
            "on: {} MiB at {:#x} are other sandboxes'; {} us in all, {} us the longest pause of a core\n",
            state.len >> 20,
            state.at,
            state.whole / 1000,
            state.longest.div_ceil(1000)
        ),
    })
}
