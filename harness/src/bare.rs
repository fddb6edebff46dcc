//! Baselines: a sandbox's guest on the bare machine. The image crate makes the guest, memory map and tables included;
//! harness/bare's loader starts it at equal addresses, with no SVM and no monitor.

use crate::{Failure, build};
use bulkhead_arch_x86::start::GDT;
use bulkhead_image::Guest;
use bulkhead_layout::PAGE;
use bulkhead_layout::image::Range;
use bulkhead_layout::info::{self, Info};
use bulkhead_layout::monitor::Clock;
use bulkhead_layout::x86::bareload::{Header, LOADER_PA, MAGIC, Piece};
use bulkhead_plan::Guest as Runs;
use bulkhead_plan::{
    Controller, Device, Drive, Ioapic, Machine as Description, Plan, Ports, Ram, Sandbox,
};
use bulkhead_qemu::{Machine, Plugin, Serial, Time};
use std::path::Path;
use zerocopy::{FromZeros, IntoBytes};

/// As sandboxes see it: no SVM, no machine checks, no MONITOR, and no hypervisor
/// bit, with which Linux asks the VMware port for its clocks.
const CPU: &str = "EPYC,-svm,-hypervisor,-mce,-mca,-monitor,+x2apic,+arat,tsc-frequency=1000000000";
/// TSC in kHz and local timer in Hz, as the boot code measures them under QEMU.
const CLOCKS: (u64, u64) = (1_000_000, 1_000_000_000);

/// First port of the serial line that a guest's console is.
const COM2: u16 = 0x2F8;

/// Ranges of a guest's RAM that firmware and loader may have used; QEMU's is zero otherwise.
const USED: [Range; 2] =
    [Range { start: 0, len: 0xA_0000 }, Range { start: 0x10_0000, len: 0x10_0000 }];

/// Packs a guest for the loader.
#[must_use]
pub fn pack(guest: &Guest) -> Vec<u8> {
    let header = Header {
        magic: MAGIC,
        pieces: guest.pieces.len() as u64,
        zero: USED,
        cr3: guest.entry.tables,
        gdt: bulkhead_image::GDT_GPA,
        gdt_limit: size_of_val(&GDT) as u64 - 1,
        rip: guest.entry.pc,
        rsp: guest.entry.sp,
        rdi: 0,
        rsi: guest.argument,
    };
    let mut out = header.as_bytes().to_vec();
    let mut offset = (size_of::<Header>() + guest.pieces.len() * size_of::<Piece>()) as u64;
    for piece in &guest.pieces {
        let (gpa, len) = (piece.gpa, piece.bytes.len() as u64);
        out.extend(Piece { gpa, len, offset }.as_bytes());
        offset += len;
    }
    guest.pieces.iter().for_each(|piece| out.extend(&piece.bytes));
    out
}

/// Returns a machine that runs a sandbox's guest alone, on as many cores as the sandbox has. It has the PCI functions
/// of `description` that the sandbox owns, at their addresses, and files behind drives by name. Its serial ports go to
/// files. Cores must have the x2APIC IDs from 0 on. Memory must start at 0 and end below the loader. Functions are
/// those on bus 0. Linux reaches them by 0xCF8 and 0xCFC: its tables name the sandbox's ECAM, which is not there.
pub fn machine(
    sandbox: &Sandbox,
    description: &Description,
    drives: &[Drive],
    dir: &Path,
) -> Result<Machine, Failure> {
    let end = sandbox.ram.iter().map(|ram| ram.gpa + ram.len).max().unwrap_or(0);
    if end + PAGE > LOADER_PA {
        return Err(
            format!("{}: a baseline has at most {} MiB", sandbox.name, LOADER_PA >> 20).into()
        );
    }
    if !sandbox.core_ids.iter().copied().eq(0..sandbox.cores.len() as u32) {
        return Err(format!("{}: a baseline has cores 0 to n", sandbox.name).into());
    }
    std::fs::create_dir_all(dir)?;
    // Lines as in a sandbox: there its guest drives the serial port by interrupts.
    let controller = Some(Controller::Ioapic(Ioapic { base: 0xFEC0_0000, lines: 24 }));
    let machine = Description { controller, ..description.clone() };
    let alone = Plan { machine, sandboxes: vec![sandbox.clone()], ..Plan::default() };
    let input = dir.join("guest.bare");
    let mut guest = bulkhead_image::load(&alone, 0, &[])?;
    match &sandbox.guest {
        Runs::Linux { .. } | Runs::Running => (),
        Runs::Bare { .. } => informed(&mut guest, end),
        Runs::Kernel(kernel) => {
            bulkhead_image::set_console(&mut guest, kernel, COM2)?;
            informed(&mut guest, end);
        }
    }
    std::fs::write(&input, pack(&guest))?;
    let mut machine = match sandbox.functions.is_empty() {
        true => Machine::new(dir),
        false => {
            let owned = sandbox.functions.iter().map(|granted| granted.function.bdf.to_string());
            let qemu = devices(&description.qemu, &owned.collect::<Vec<_>>());
            bulkhead_run::machine(&Description { qemu, ..description.clone() }, drives, &[], dir)
        }
    };
    machine.cores = sandbox.cores.len();
    machine.kernel = Some(build::bare("bareload")?);
    machine.initrd = Some(input.display().to_string());
    // Monitors answer this port in sandboxes; here QEMU does (crates/monitor/monitor-x86/src/vmware.rs).
    machine.machine = "q35,vmport=on".into();
    machine.cpu = CPU.into();
    machine.time = Time::virtual_time();
    machine.plugin =
        Some(Plugin { library: build::plugin()?, clocks: Some(CLOCKS), ..Plugin::default() });
    machine.serials = vec![Serial::File, Serial::File];
    Ok(machine)
}

/// Gives a bare guest or a kernel its information page, in RAM from its memory's end on: where
/// a sandbox has it there is none.
fn informed(guest: &mut Guest, end: u64) {
    let mut info = Info::new_zeroed();
    (info.magic, info.version) = (info::MAGIC, info::VERSION);
    info.clock = Clock { hz: CLOCKS.0 * 1000, timer_hz: CLOCKS.1 };
    (info.memory, info.cores) = (end, 1);
    let len = guest.args.len().min(info.args.len() - 1);
    info.args[..len].copy_from_slice(&guest.args.as_bytes()[..len]);
    guest.pieces.push(bulkhead_image::Piece { gpa: end, bytes: info.as_bytes().to_vec() });
    guest.argument = end;
}

/// QEMU's arguments without the devices that are not owned, the IOMMU among them.
fn devices(arguments: &[String], owned: &[String]) -> Vec<String> {
    let owned = |device: &str| {
        let address = device.split(',').find_map(|option| option.strip_prefix("addr="));
        address.is_some_and(|address| owned.contains(&format!("00:{address}")))
    };
    let mut kept = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.as_slice().first()) {
            ("-device", Some(device)) => {
                if owned(device) {
                    kept.extend([argument.clone(), device.clone()]);
                }
                arguments.next();
            }
            _ => kept.push(argument.clone()),
        }
    }
    kept
}

/// Returns a sandbox of this shape that no manifest describes: RAM from 0, COM2.
#[must_use]
pub fn sandbox(guest: bulkhead_plan::Guest, cores: usize, memory: u64) -> Sandbox {
    Sandbox {
        name: "bare".into(),
        guest,
        cores: (0..cores).collect(),
        core_ids: (0..cores as u32).collect(),
        ram: vec![Ram { gpa: 0, hpa: 0, len: memory }],
        devices: vec![Device {
            name: "uart1".into(),
            class: "uart16550".into(),
            ports: vec![Ports { first: 0x2F8, last: 0x2FF }],
            irq: Some(3),
            ..Device::default()
        }],
        ..Sandbox::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_arch::Rights;
    use bulkhead_image::Entry;

    #[test]
    fn a_baseline_has_the_devices_of_its_sandbox_alone() {
        let arguments = ["-device", "amd-iommu", "-m", "q35", "-device", "a,addr=03.0"];
        let arguments = arguments.map(str::to_owned);
        let kept = devices(&arguments, &["00:03.0".into()]);
        assert_eq!(kept, ["-m", "q35", "-device", "a,addr=03.0"]);
        assert_eq!(devices(&arguments, &["00:04.0".into()]), ["-m", "q35"]);
    }

    #[test]
    fn pieces_follow_their_table() {
        let piece = |gpa, bytes: &[u8]| bulkhead_image::Piece { gpa, bytes: bytes.to_vec() };
        let guest = Guest {
            pieces: vec![piece(0x1000, b"abc"), piece(0x2000, b"defg")],
            entry: Entry { pc: 1, sp: 2, tables: 3 },
            argument: 5,
            segments: Vec::new(),
            fixed: Vec::new(),
            default_rights: Rights::RWX,
            args: String::new(),
            trace: None,
        };
        let bytes = pack(&guest);
        assert_eq!(bytes.len(), 104 + 2 * 24 + 7);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        assert_eq!([word(104), word(112), word(120)], [0x1000, 3, 152]);
        assert_eq!([word(128), word(136), word(144)], [0x2000, 4, 155]);
        assert_eq!(&bytes[155..], b"defg");
    }
}
