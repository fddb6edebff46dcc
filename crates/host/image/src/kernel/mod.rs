//! A kernel's sandbox, as it is at its first instruction. The kernel's own code runs here, on the bytes that become the
//! sandbox's memory. It makes every object that the manifest names, by the calls that a program would make. Where
//! things lie:
//!
//! | offset | what |
//! |---|---|
//! | below 2 MiB | tables for the first instructions; without a monitor the information page and the report |
//! | 2 MiB | the kernel |
//! | behind it | its own root table, the clock's page, the first node, the bitmap of spaces |
//! | 4 MiB | memory for objects |
//! | the end | a ring into which the kernel writes what it does, if the manifest wants a trace |

mod build;
mod devices;
mod ground;
mod links;
mod objects;
mod program;
mod space;
mod target;

use crate::Error;
use crate::elf::Program;
use crate::guest::{Entry, Guest};
use bulkhead_arch::{PageFormat, Rights};
use bulkhead_layout::PAGE;
use bulkhead_plan::{Kernel, Plan};
pub use ground::Ground;
use std::path::Path;
pub use target::{Asked, Hold, KernelMemory, Kernels, Placed, Route, State};

/// The symbol of a kernel that traces.
const TRACES: &str = "TRACES";

/// The kernel's sandbox.
pub fn load<K: Kernels>(plan: &Plan, index: usize, kernel: &Kernel) -> Result<Guest, Error> {
    let (sandbox, ground) = (&plan.sandboxes[index], Ground::new(plan, index));
    let read = |path: &Path| -> Result<Program, Error> {
        let bytes = std::fs::read(path).map_err(|e| Error::File(path.to_path_buf(), e))?;
        Program::parse(&path.display().to_string(), &bytes)
    };
    let image = read(&kernel.file)?;
    let programs =
        kernel.programs.iter().map(|program| read(&program.file)).collect::<Result<Vec<_>, _>>()?;
    let memory = sandbox.ram.first().map_or(0, |ram| ram.len);
    let wrong = |what: String| Error::Program(format!("sandbox {}: {what}", sandbox.name));
    let traces = image.symbol(TRACES).is_ok();
    if kernel.trace > 0 && !traces {
        return Err(wrong("its kernel was not built to trace: `kernel` names another one".into()));
    }
    if K::Pages::PAGE != PAGE {
        return Err(wrong(format!("programs' tables have no pages of {PAGE} bytes")));
    }
    let mut build = build::Build::<K>::new(ground, memory, &image, kernel).map_err(wrong)?;
    build.everything(plan, index, kernel, &programs).map_err(wrong)?;
    let mut pieces = match ground.alone {
        true => Vec::new(),
        false => K::start(),
    };
    let trace = build.trace().map(|trace| trace.clone());
    let fixed = build.fixed(&image);
    pieces.extend(build.finish(&image).map_err(wrong)?);
    Ok(Guest {
        pieces,
        entry: Entry { pc: image.entry, sp: 0, tables: K::start_tables() },
        argument: plan.machine.arch.facts().guest.info,
        segments: Vec::new(),
        fixed,
        default_rights: Rights::RWX,
        args: String::new(),
        trace,
    })
}

/// The offset of an address in the kernel's window.
pub fn offset<K: Kernels>(address: u64) -> Option<u32> {
    u32::try_from(address.checked_sub(K::WINDOW)?).ok()
}
