//! The emulated machine that a description describes.

use bulkhead_plan::Machine as Description;
use bulkhead_qemu::Machine;
use std::path::{Path, PathBuf};

/// Size of a drive without a file.
const EMPTY: u64 = 64 << 20;

/// Returns the machine of a description with its devices; `drives` are files behind its
/// drives, by name, and `dir` is its folder.
#[must_use]
pub fn machine(
    description: &Description,
    drives: &[(String, PathBuf)],
    dir: impl Into<PathBuf>,
) -> Machine {
    let mut machine = Machine::new(dir);
    let mut described = description.qemu.iter();
    while let Some(argument) = described.next() {
        match (argument.as_str(), described.as_slice().first()) {
            ("-machine", Some(value)) => machine.machine.clone_from(value),
            ("-cpu", Some(value)) => machine.cpu.clone_from(value),
            // Every machine has these.
            ("-nodefaults" | "-no-user-config" | "-no-reboot", _) => continue,
            ("-display", Some(_)) => {}
            _ => {
                machine.args.push(argument.clone());
                continue;
            }
        }
        described.next();
    }
    for name in &description.drives {
        let file = drives.iter().find(|(drive, _)| drive == name);
        machine.args.extend(["-drive".to_owned(), drive(name, file.map(|(_, file)| &**file))]);
    }
    for name in &description.networks {
        machine.args.extend(["-netdev".to_owned(), format!("user,id={name}")]);
    }
    machine.memory = description.ram_size();
    machine
}

/// Writes to a drive with a file go to a temporary overlay without a name, which ends with the emulator.
fn drive(name: &str, file: Option<&Path>) -> String {
    match file {
        Some(file) => {
            // A comma in an option's value is written twice.
            let file = file.display().to_string().replace(',', ",,");
            format!("if=none,id={name},file={file},format=raw,snapshot=on")
        }
        None => format!(
            "if=none,id={name},file.driver=null-co,file.size={EMPTY},file.read-zeroes=on,format=raw"
        ),
    }
}
