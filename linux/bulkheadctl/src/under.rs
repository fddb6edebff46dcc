//! Starts an image under this Linux, and ends it.

use crate::Wrong;
use bulkhead_linux::late;
use std::io;

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

/// Starts the image in a file.
pub fn enable(file: &str) -> Result<String, Wrong> {
    let image = std::fs::read(file).map_err(|why| format!("{file}: {why}"))?;
    late::enable(&image).map_err(|why| wrong(&why))?;
    status()
}

/// Ends the image that runs.
pub fn disable() -> Result<String, Wrong> {
    late::disable().map_err(|why| wrong(&why))?;
    status()
}

/// Tells if an image runs, and where.
pub fn status() -> Result<String, Wrong> {
    let state = late::state().map_err(|why| wrong(&why))?;
    Ok(match state.on {
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
