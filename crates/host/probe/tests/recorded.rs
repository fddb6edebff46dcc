//! Descriptions of a recorded machine. `q35.txt` holds the files of `/proc` and `/sys` that a probe reads, after
//! SeaBIOS, and `q35-uefi.txt` after OVMF. The recorded system is Debian's Linux 6.12 on machines/qemu-q35.toml, with
//! interrupts as for `pci=routeirq`. `= FILE` begins a text, `# FILE` hexadecimal bytes, `> FILE` a link's target;
//! their lines are indented by two spaces.

use bulkhead_probe::{compare, describe};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const MACHINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../machines/qemu-q35.toml");

/// A recorded file.
#[derive(Clone)]
enum File {
    Bytes(Vec<u8>),
    Link(String),
}

type Files = BTreeMap<String, File>;

fn recorded() -> Files {
    read(include_str!("q35.txt"))
}

fn read(text: &str) -> Files {
    let mut files = Files::new();
    let mut name = ("", "");
    for line in text.lines() {
        let (mark, rest) = line.split_at(2);
        if mark != "  " {
            name = (mark, rest);
            let file = match mark {
                "> " => File::Link(String::new()),
                _ => File::Bytes(Vec::new()),
            };
            files.insert(rest.to_owned(), file);
            continue;
        }
        match files.get_mut(name.1).unwrap() {
            File::Link(target) => target.push_str(rest),
            File::Bytes(bytes) if name.0 == "# " => {
                let digits = |at| u8::from_str_radix(&rest[at..at + 2], 16).unwrap();
                bytes.extend((0..rest.len()).step_by(2).map(digits));
            }
            File::Bytes(bytes) => bytes.extend(rest.bytes().chain([b'\n'])),
        }
    }
    files
}

/// A folder with these files.
fn unpacked(name: &str, files: &Files) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&root);
    for (path, file) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        match file {
            File::Bytes(bytes) => std::fs::write(path, bytes).unwrap(),
            File::Link(target) => std::os::unix::fs::symlink(target, path).unwrap(),
        }
    }
    root
}

fn described(name: &str, files: &Files) -> String {
    let (text, broken) = describe(&unpacked(name, files), Some(Path::new(MACHINE))).unwrap();
    assert_eq!(broken, [""; 0]);
    text
}

/// Without comments and empty lines.
fn bare(text: &str) -> Vec<&str> {
    let plain = |line| str::split(line, " #").next().unwrap_or_default();
    text.lines().map(plain).filter(|l| !l.is_empty() && !l.trim().starts_with('#')).collect()
}

fn text<'a>(files: &'a mut Files, path: &str) -> &'a mut Vec<u8> {
    match files.get_mut(path) {
        Some(File::Bytes(bytes)) => bytes,
        _ => panic!("no file {path}"),
    }
}

fn replace(files: &mut Files, path: &str, from: &str, to: &str) {
    let bytes = text(files, path);
    let old = String::from_utf8(bytes.clone()).unwrap();
    assert!(old.contains(from), "{path} has no {from}");
    *bytes = old.replace(from, to).into_bytes();
}

const PCI: &str = "sys/bus/pci/devices/0000:";

#[test]
fn the_recorded_machine_is_the_described_one() {
    let found = described("same", &recorded());
    let machine = std::fs::read_to_string(MACHINE).unwrap();
    let (found, machine) = (bare(&found), bare(&machine));
    let differs = found.iter().zip(&machine).find(|(found, described)| found != described);
    assert_eq!(differs, None);
    assert_eq!(found.len(), machine.len());
    let root = unpacked("same-again", &recorded());
    assert_eq!(compare(&root, Path::new(MACHINE)).unwrap(), []);
}

/// Only facts that no Linux can know are kept.
#[test]
fn only_what_linux_cannot_know_is_kept() {
    let with = described("kept", &recorded());
    let (without, _) = describe(&unpacked("not-kept", &recorded()), None).unwrap();
    let (with, without) = (bare(&with), bare(&without));
    let more: Vec<_> = with.iter().filter(|line| !without.contains(line)).collect();
    let before_qemu: Vec<_> = more.iter().take_while(|line| ***line != "[qemu]").collect();
    let kept = [
        "name = \"qemu-q35\"",
        "debug_port = 0xe9",
        "name = \"debugcon\"",
        "class = \"debugcon\"",
        "ports = [[0xe9, 0xe9]]",
        "name = \"acpi-hotplug\"",
        "ports = [[0xcc0, 0xccf], [0xcd8, 0xce3]]",
        "nobody = \"it adds and removes cores and PCI devices\"",
        "name = \"chipset\"",
        "class = \"chipset\"",
        "mmio = [[0xfed1c000, 0xfed1d000], [0xfed1f000, 0xfed20000]]",
        "nobody = \"it routes interrupts of all PCI functions, and can reset the machine\"",
        "name = \"scratch\"",
        "class = \"scratch\"",
        "mmio = [[0xfed1d000, 0xfed1f000]]",
        "ecam_register = { at = 0x60 }",
        "[hpet]",
        "base = 0xfed00000",
        "comparators = 16",
        "period = 10000000",
        "requesters = [\"00:00.0\"]",
    ];
    assert_eq!(before_qemu.iter().map(|line| ***line).collect::<Vec<_>>(), kept);
}

/// A line that Linux has not routed, or routes to messages, is told, and taken from the older description alone.
#[test]
fn a_line_that_does_not_show_is_kept() {
    let mut files = recorded();
    // As the firmware left it: an input of the IOAPIC that is level-triggered, too.
    let note = text(&mut files, &format!("{PCI}00:03.0/config"))[0x3C];
    *text(&mut files, &format!("{PCI}00:03.0/irq")) = format!("{note}\n").into_bytes();
    *text(&mut files, "sys/kernel/irq/16/chip_name") = b"PCI-MSI\n".to_vec();
    without(&mut files, &format!("{PCI}01:00.0/irq"));
    assert_eq!(bare(&described("lines-kept", &files)), bare(&described("lines", &recorded())));
    let (alone, _) = describe(&unpacked("lines-alone", &files), None).unwrap();
    let (all, _) = describe(&unpacked("lines-all", &recorded()), None).unwrap();
    let count = |text: &str| text.matches("\ngsi = ").count();
    assert_eq!((count(&all), count(&alone)), (10, 7));
    for function in ["00:03.0", "00:1f.2", "01:00.0"] {
        let note = format!("# Linux has not routed the line of {function}");
        assert!(alone.contains(&note) && !all.contains(&note), "{alone}");
    }
}

/// Drivers, Linux's own windows, group numbers, the order of cores, a few pages
/// of firmware: the description stays.
#[test]
fn harmless_changes_change_nothing() {
    let mut files = recorded();
    files.retain(|path, _| !path.ends_with("/driver"));
    for file in files.values_mut() {
        if let File::Link(target) = file {
            *target = target.replace("iommu_groups/", "iommu_groups/1");
        }
    }
    let memmap = "sys/firmware/memmap";
    replace(&mut files, &format!("{memmap}/3/end"), "0x7ffd8fff", "0x7ffb3fff");
    replace(&mut files, &format!("{memmap}/4/start"), "0x7ffd9000", "0x7ffb4000");
    replace(&mut files, "proc/cpuinfo", "apicid\t\t: 0", "apicid\t\t: X");
    replace(&mut files, "proc/cpuinfo", "apicid\t\t: 5", "apicid\t\t: 0");
    replace(&mut files, "proc/cpuinfo", "apicid\t\t: X", "apicid\t\t: 5");
    // A window that nothing uses, elsewhere.
    let config = text(&mut files, &format!("{PCI}00:02.0/config"));
    (config[0x28], config[0x2C]) = (0xD0, 0xD0);
    assert_eq!(bare(&described("harmless", &files)), bare(&described("as-it-was", &recorded())));
}

/// The words for a change of the recorded machine.
fn difference(name: &str, change: impl Fn(&mut Files)) -> Vec<(bool, String)> {
    let mut files = recorded();
    change(&mut files);
    let all = compare(&unpacked(name, &files), Path::new(MACHINE)).unwrap();
    all.into_iter().map(|difference| (difference.matters, difference.text)).collect()
}

fn without(files: &mut Files, prefix: &str) {
    let before = files.len();
    files.retain(|path, _| !path.starts_with(prefix));
    assert!(files.len() < before, "nothing begins with {prefix}");
}

#[test]
fn what_differs_is_said_and_judged() {
    let matters = |text: &str| (true, text.to_owned());
    let gone = difference("gone", |files| without(files, &format!("{PCI}00:07.0/")));
    assert_eq!(gone, [matters("function 00:07.0 (1b36:0010) is missing")]);

    let core = difference("core", |files| {
        replace(files, "proc/cpuinfo", "apicid\t\t: 7", "apicid\t\t: 9");
    });
    let more = "there is one more core, with x2APIC ID 9";
    let less = matters("there is no core with x2APIC ID 7");
    assert_eq!(core, [less, (false, more.to_owned())]);

    let resource = format!("{PCI}00:08.0/resource");
    let moved = difference("moved", |files| {
        replace(files, &resource, "fea00000", "feb10000");
        replace(files, &resource, "feafffff", "fec0ffff");
    });
    let text = "BAR 0 of 00:08.0 is at 0xfeb10000 now, not at 0xfea00000";
    assert_eq!(moved, [(false, text.to_owned())]);

    let smaller = difference("smaller", |files| replace(files, &resource, "feafffff", "fea7ffff"));
    let text = "the BARs of 00:08.0 are 0: memory 0x80000, not 0: memory 0x100000";
    assert_eq!(smaller, [matters(text)]);

    let vectors = difference("vectors", |files| {
        text_at(files, &format!("{PCI}00:03.0/config"), 0x9A, 5);
    });
    let (was, is) = ("vectors = 3", "vectors = 6");
    let of = |n| format!("{{ at = 0x98, {n}, table = [1, 0x0], pba = [1, 0x800] }}");
    let text = format!("the msix capability of 00:03.0 is {}, not {}", of(is), of(was));
    assert_eq!(vectors, [(true, text)]);

    let blind = difference("no-iommu", |files| without(files, "sys/firmware/acpi/tables/IVRS"));
    assert_eq!(blind, [matters("the IOMMU is missing, not there")]);

    let apart = difference("group", |files| without(files, &format!("{PCI}00:09.1/iommu_group")));
    let text =
        |at, was| matters(&format!("what shares an IOMMU group with {at} is nothing, not {was}"));
    assert_eq!(apart, [text("00:09.0", "00:09.1"), text("00:09.1", "00:09.0")]);

    let ram = difference("ram", |files| {
        replace(files, "sys/firmware/memmap/8/end", "0x1ffffffff", "0x17fffffff");
    });
    let text = "the RAM from 0x100000000 to 0x200000000 is not all free";
    assert_eq!(ram, [matters("all RAM is 4 GiB, not 6 GiB"), matters(text)]);
}

fn text_at(files: &mut Files, path: &str, at: usize, value: u8) {
    text(files, path)[at] = value;
}

/// Another firmware puts BARs elsewhere; cores, RAM and functions stay.
#[test]
fn another_firmware_is_another_set_of_addresses() {
    let root = unpacked("uefi", &read(include_str!("q35-uefi.txt")));
    let all = compare(&root, Path::new(MACHINE)).unwrap();
    let (matters, harmless): (Vec<_>, Vec<_>) = all.iter().partition(|d| d.matters);
    assert!(harmless.len() > 10 && harmless.iter().all(|d| d.text.starts_with("BAR ")));
    // OVMF tells the system of another window above 4 GiB.
    let text = "the host bridge does not decode all of 0xc000000000 to 0xc800000000";
    assert_eq!(matters.iter().map(|d| d.text.as_str()).collect::<Vec<_>>(), [text]);
}

#[test]
fn what_only_root_may_see_is_missed() {
    let mut files = recorded();
    let iomem = text(&mut files, "proc/iomem");
    *iomem = b"00000000-00000000 : System RAM\n".to_vec();
    let why = describe(&unpacked("hidden", &files), None).unwrap_err();
    assert!(why.contains("only root"), "{why}");

    let mut files = recorded();
    text(&mut files, &format!("{PCI}01:00.0/config")).truncate(64);
    let (found, _) = describe(&unpacked("cut", &files), None).unwrap();
    assert!(found.contains("# the capabilities of 01:00.0 cannot be read: only root may."));
}

#[test]
fn a_machine_without_anything_is_an_error() {
    assert!(describe(&unpacked("empty", &Files::new()), None).is_err());
}

/// Every file damaged in turn, or missing: never a panic.
#[test]
fn damaged_files_do_no_harm() {
    let files = recorded();
    let root = unpacked("damaged", &files);
    let mut random = 1u32;
    for (path, file) in &files {
        let File::Bytes(bytes) = file else { continue };
        let damage = |byte: &u8| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if random >> 30 == 0 { byte ^ (random >> 16) as u8 } else { *byte }
        };
        let damaged: Vec<u8> = bytes.iter().map(damage).collect();
        let path = root.join(path);
        std::fs::write(&path, damaged).unwrap();
        let _ = describe(&root, None);
        std::fs::remove_file(&path).unwrap();
        let _ = describe(&root, None);
        std::fs::write(&path, bytes).unwrap();
    }
}

/// `/proc/cpuinfo` of a processor with VT-x, as Debian's Linux 6.12 writes it. Flags that no monitor needs are left
/// out.
const INTEL: &str = "\
processor	: 0
vendor_id	: GenuineIntel
model name	: Intel(R) Core(TM) i7-8700 CPU @ 3.20GHz
apicid		: 0
flags		: fpu vme de pse tsc msr pae vmx est x2apic tsc_deadline_timer xsave
vmx flags	: vnmi preemption_timer invvpid ept_x_only ept_ad ept_1gb flexpriority tsc_offset vtpr mtf vapic ept vpid \
unrestricted_guest ple pml ept_mode_based_exec

processor	: 1
vendor_id	: GenuineIntel
apicid		: 2
flags		: fpu vme
";

/// Makes a DMAR table as firmware of such a machine writes it: the graphics' unit, then one for all others. The IOAPIC
/// is in the scope of the second; the USB controller has reserved memory.
fn dmar() -> Vec<u8> {
    let scope = |kind, bus, device: u8| [kind, 8, 0, 2, 0, bus, device, 0];
    let mut table = b"DMAR".to_vec();
    table.resize(48, 0);
    // Width 39, interrupt remapping.
    (table[36], table[37]) = (38, 1);
    let mut block = |kind: u16, flags: u8, numbers: &[u64], scopes: &[[u8; 8]]| {
        let len = 8 + 8 * (numbers.len() + scopes.len()) as u16;
        table.extend(kind.to_le_bytes().into_iter().chain(len.to_le_bytes()));
        table.extend([flags, 0, 0, 0]);
        numbers.iter().for_each(|number| table.extend(number.to_le_bytes()));
        scopes.iter().for_each(|scope| table.extend(scope));
    };
    block(0, 0, &[0xFED9_0000], &[scope(1, 0, 2)]);
    block(0, 1, &[0xFED9_1000], &[scope(3, 0xF0, 0x1F), scope(4, 0, 0x1E)]);
    block(1, 0, &[0x7B80_0000, 0x7B81_FFFF], &[scope(1, 0, 0x14)]);
    let len = table.len() as u32;
    table[4..8].copy_from_slice(&len.to_le_bytes());
    table
}

/// The recorded machine with Intel's processor and IOMMU in place of AMD's.
fn intel() -> Files {
    let mut files = recorded();
    without(&mut files, "sys/firmware/acpi/tables/IVRS");
    files.insert("sys/firmware/acpi/tables/DMAR".into(), File::Bytes(dmar()));
    *text(&mut files, "proc/cpuinfo") = INTEL.into();
    files
}

#[test]
fn a_machine_with_vt_x_and_vt_d_is_described_as_one() {
    let (found, broken) = describe(&unpacked("intel", &intel()), None).unwrap();
    assert_eq!(broken, [""; 0]);
    let lines = bare(&found);
    for line in [
        "arch = \"x86-64-vmx\"",
        "emulator = \"none\"",
        "cores = [0, 2]",
        "kind = \"vt-d\"",
        "base = 0xfed91000",
        "remaps_interrupts = true",
        "ioapic_requester = \"f0:1f.0\"",
    ] {
        assert!(lines.contains(&line), "{line}: {found}");
    }
    assert!(found.contains("reserves 0x7b800000 to 0x7b820000 for 00:14.0"), "{found}");
    assert!(found.contains("This machine has 2 IOMMUs"), "{found}");
    assert!(!found.contains("so no monitor runs"), "{found}");
}

#[test]
fn what_an_intel_machine_lacks_is_said() {
    let said = |name, from, to| {
        let mut files = intel();
        replace(&mut files, "proc/cpuinfo", from, to);
        describe(&unpacked(name, &files), None).unwrap().0
    };
    assert!(
        said("no-ept", " ept vpid unrestricted_guest", " vpid")
            .contains("lacks ept, unrestricted_guest")
    );
    assert!(said("no-vmx", "pae vmx est", "pae est").contains("does the firmware switch it off?"));
    assert!(said("no-x2apic", " x2apic", "").contains("have no x2APIC"));
    let without_flags = said("old-kernel", "vmx flags", "old flags");
    assert!(without_flags.contains("x86-64-vmx") && !without_flags.contains("so no monitor runs"));
}
