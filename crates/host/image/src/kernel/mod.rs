//! A kernel's sandbox, as it is at its first instruction. The kernel's own code runs here, on the bytes that become the
//! sandbox's memory. It makes every object that the manifest names, by the calls that a program would make. Where
//! things lie:
//!
//! | offset | what |
//! |---|---|
//! | 0x1000 | descriptor and page tables for the first instructions; without a monitor they lie elsewhere |
//! | 0xA000 | without a monitor: information page, report |
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
mod start;

use crate::Error;
use crate::elf::Program;
use crate::guest::{Entry, Guest, Piece};
use bulkhead_arch::Rights;
use bulkhead_kernel_x86::{Baked, WINDOW};
use bulkhead_layout::map::INFO_GPA;
use bulkhead_plan::{Kernel, Plan};
use core::mem::offset_of;
pub use ground::Ground;
use std::path::Path;

/// The symbol of a kernel that traces.
const TRACES: &str = "TRACES";

/// The kernel's sandbox, on its ground.
pub fn load(ground: Ground, plan: &Plan, index: usize, kernel: &Kernel) -> Result<Guest, Error> {
    let sandbox = &plan.sandboxes[index];
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
    let mut build = build::Build::new(ground, memory, &image, kernel).map_err(wrong)?;
    build.everything(plan, index, kernel, &programs).map_err(wrong)?;
    let mut pieces = match ground.alone {
        true => Vec::new(),
        false => start::pieces(),
    };
    let trace = build.trace().map(|trace| trace.clone());
    pieces.extend(build.finish(&image).map_err(wrong)?);
    Ok(Guest {
        pieces,
        entry: Entry { pc: image.entry, sp: 0, tables: start::TABLES },
        argument: INFO_GPA,
        segments: Vec::new(),
        default_rights: Rights::RWX,
        args: String::new(),
        trace,
    })
}

/// Tells the kernel of a guest to print to a serial port instead of its monitor's console, of which there is none.
///
/// # Errors
/// [`Error::Program`]: the guest was not made from this kernel.
pub fn set_console(guest: &mut Guest, kernel: &Kernel, port: u16) -> Result<(), Error> {
    let bytes = std::fs::read(&kernel.file).map_err(|e| Error::File(kernel.file.clone(), e))?;
    let image = Program::parse(&kernel.file.display().to_string(), &bytes)?;
    let wrong = || Error::Program("its kernel's BAKED is not in the guest".into());
    let baked = u64::from(offset(image.symbol("BAKED")?).ok_or_else(wrong)?);
    let at = baked + offset_of!(Baked, console) as u64;
    let holds =
        |piece: &&mut Piece| (piece.gpa..piece.gpa + piece.bytes.len() as u64).contains(&at);
    let piece = guest.pieces.iter_mut().find(holds).ok_or_else(wrong)?;
    let at = (at - piece.gpa) as usize;
    piece.bytes[at..at + 8].copy_from_slice(&u64::from(port).to_le_bytes());
    Ok(())
}

/// The offset of an address in the kernel's window.
fn offset(address: u64) -> Option<u32> {
    u32::try_from(address.checked_sub(WINDOW)?).ok()
}
