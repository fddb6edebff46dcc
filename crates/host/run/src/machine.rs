//! The emulated machine that a description describes.

use crate::arch;
use bulkhead_plan::{Drive, Machine as Description, Plan};
use bulkhead_qemu::{Machine, Time};
use std::path::{Path, PathBuf};

/// Size of a drive without a file.
const EMPTY: u64 = 64 << 20;

/// Returns the machine of a description with its devices. `drives` are files behind its
/// drives, `hub` are networks that are one, and `dir` is its folder.
#[must_use]
pub fn machine(
    description: &Description,
    drives: &[Drive],
    hub: &[String],
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
        let behind = drives.iter().find(|drive| drive.name == *name);
        machine.args.extend(["-drive".to_owned(), drive(name, behind)]);
    }
    for name in &description.networks {
        let network = match hub.contains(name) {
            true => format!("hubport,id={name},hubid=0"),
            false => format!("user,id={name}"),
        };
        machine.args.extend(["-netdev".to_owned(), network]);
    }
    if !hub.is_empty() {
        // A virtio card sends when the emulator's other thread comes to it, which is the host's time. So it sends by a
        // timer of the virtual clock, a microsecond later.
        for property in ["tx=timer", "x-txtimer=1000", "ioeventfd=off"] {
            machine.args.extend(["-global".to_owned(), format!("virtio-net-pci.{property}")]);
        }
    }
    machine.memory = description.ram_size();
    machine
}

/// Returns the machine for a system, with the cores that it uses and its serial ports; nothing boots there yet.
#[must_use]
pub fn emulated(plan: &Plan, time: Time, terminal: bool, dir: &Path) -> Machine {
    let mut machine = machine(&plan.machine, &plan.drives, &plan.hub, dir);
    machine.cores = plan.sandboxes.iter().flat_map(|s| &s.cores).max().map_or(1, |core| core + 1);
    machine.time = time;
    machine.serials = arch::of(plan.machine.arch).serials(plan, terminal);
    machine
}

/// Writes to a drive with a file go to a temporary overlay without a name, which ends with the emulator. A file that
/// keeps them gets them itself.
fn drive(name: &str, behind: Option<&Drive>) -> String {
    match behind {
        Some(Drive { file, keep, .. }) => {
            // A comma in an option's value is written twice.
            let file = file.display().to_string().replace(',', ",,");
            let snapshot = if *keep { "off" } else { "on" };
            format!("if=none,id={name},file={file},format=raw,snapshot={snapshot}")
        }
        None => format!(
            "if=none,id={name},file.driver=null-co,file.size={EMPTY},file.read-zeroes=on,format=raw"
        ),
    }
}
