//! `bhattack` makes root's attacks in a Linux guest on others: by `/dev/mem`, by `/sys`' files of PCI functions, and by
//! ports. The guest owns `edu` (00:08.0) and 00:09.1, as in the tests of bare guests. Arguments: `victim=ADDRESS`
//! (memory of another sandbox), `core=ID` (x2APIC ID of another's core).
//!
//! For each attack it prints `bhattack: NAME: expected KIND ADDRESS` (a denial) or `expected harmless VALUE`, and
//! `bhattack: NAME: got VALUE`. The last one ends the guest.
#![forbid(unsafe_code)]

use bulkhead_layout::map::ECAM_GPA;
use bulkhead_linux::devmem::Registers;
use bulkhead_linux::port;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

const PAGE: usize = 4096;
const FUNCTIONS: &str = "/sys/bus/pci/devices/0000:";
const EDU: (&str, u64) = ("00:08.0", ECAM_GPA + 0x4_0000);
const RNG: (&str, u64) = ("00:09.1", ECAM_GPA + 0x4_9000);
/// The victim's disk, the IOMMU and the host bridge.
const FOREIGN: u64 = ECAM_GPA + 0x1_8000;
const IOMMU: u64 = ECAM_GPA + 0x8000;
const HOST: u64 = ECAM_GPA;
/// Its MSI capability.
const MSI: u64 = 0x40;
const VECTOR: u32 = 0x70;

/// Result of an attack, with a denial's text.
type Got = io::Result<u64>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| {
        let value = args.iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='))?;
        u64::from_str_radix(value.trim_start_matches("0x"), 16).ok()
    };
    let (Some(victim), Some(core)) = (number("victim"), number("core")) else {
        println!("bhattack: victim=ADDRESS and core=ID, both in hexadecimal");
        return ExitCode::FAILURE;
    };
    match all(victim, core as u32) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("bhattack: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Makes one.
fn attack(name: &str, expected: &str, act: impl FnOnce() -> Got) -> io::Result<()> {
    println!("bhattack: {name}: expected {expected}");
    match act() {
        Ok(value) => println!("bhattack: {name}: got harmless {value:#x}"),
        Err(why) => println!("bhattack: {name}: got {why}"),
    }
    Ok(())
}

/// One that is denied at a device's register.
fn device(name: &str, at: u64, act: impl FnOnce() -> Got) -> io::Result<()> {
    attack(name, &format!("device-violation {at:#x}"), act)
}

fn all(victim: u64, core: u32) -> io::Result<()> {
    foreign_functions()?;
    own_functions(core)?;
    ports()?;
    dma(victim)?;
    // The last one: nothing comes after it.
    attack("write-victim", &format!("memory-violation {victim:#x}"), || {
        Registers::map("/dev/mem", victim, PAGE)?.set32(0, 0xBAD);
        Ok(0)
    })
}

/// Configuration space of functions that are not its own.
fn foreign_functions() -> io::Result<()> {
    let page = |at: u64| Registers::map("/dev/mem", at & !0xFFF, PAGE);
    let write = |at: u64, value: u32| {
        page(at)?.set32((at & 0xFFF) as usize, value);
        Ok(0)
    };
    for (name, at) in [("foreign", FOREIGN), ("iommu", IOMMU), ("host-bridge", HOST)] {
        attack(&format!("config-read-{name}"), "harmless 0xffffffff", || {
            Ok(page(at)?.get32(0).into())
        })?;
    }
    device("config-write-foreign", FOREIGN + 4, || write(FOREIGN + 4, 0))?;
    device("config-bar-foreign", FOREIGN + 0x20, || write(FOREIGN + 0x20, 0))?;
    device("config-write-iommu", IOMMU + 0x44, || write(IOMMU + 0x44, 0))?;
    device("config-write-host-bridge", HOST + 0x60, || write(HOST + 0x60, 0))?;
    device("config-byte-foreign", FOREIGN + 4, || {
        page(FOREIGN)?.set8(4, 0);
        Ok(0)
    })
}

fn file(function: &str, name: &str) -> String {
    format!("{FUNCTIONS}{function}/{name}")
}

fn configuration(function: &str) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(file(function, "config"))
}

/// A base address or a message of its own, beyond its right.
fn own_functions(core: u32) -> io::Result<()> {
    // The other one has a driver.
    std::fs::write(file(EDU.0, "enable"), "1")?;
    let write = |function: &str, offset: u64, value: u32| {
        configuration(function)?.write_all_at(&value.to_le_bytes(), offset)?;
        Ok(0)
    };
    device("bar-onto-victim", EDU.1 + 0x10, || write(EDU.0, 0x10, 0x4000_0000))?;
    device("bar-onto-lapic", EDU.1 + 0x10, || write(EDU.0, 0x10, 0xFEE0_0000))?;
    device("bar-upper-half", RNG.1 + 0x24, || write(RNG.0, 0x24, 1))?;
    let own = 0xFEE0_0000;
    for (name, address, data) in [
        ("msi-foreign-core", own | core << 12, VECTOR),
        ("msi-smi", own, 0x200 | VECTOR),
        ("msi-nmi", own, 0x400 | VECTOR),
        ("msi-init", own, 0x500 | VECTOR),
        ("msi-to-memory", 0x4060_0000, VECTOR),
    ] {
        device(name, EDU.1 + MSI, || {
            write(EDU.0, MSI + 4, address)?;
            write(EDU.0, MSI + 8, 0)?;
            write(EDU.0, MSI + 12, data)?;
            write(EDU.0, MSI, 1 << 16)
        })?;
    }
    // By the machine description its second base address register has the table.
    let table = Registers::map(&file(RNG.0, "resource1"), 0, PAGE)?;
    const TABLE: u64 = 0xFEB0_6000;
    for (name, address, data) in [
        ("msix-foreign-core", own | core << 12, VECTOR),
        ("msix-nmi", own, 0x400 | VECTOR),
        ("msix-low-vector", own, 15),
    ] {
        device(name, TABLE + 12, || {
            // Masked until it is whole.
            for (offset, value) in [(12, 1), (0, address), (4, 0), (8, data), (12, 0)] {
                table.set32(offset, value);
            }
            Ok(0)
        })?;
    }
    Ok(())
}

/// Ports that would reset the machine, or are another's.
fn ports() -> io::Result<()> {
    port::allow_all()?;
    for (name, number, value) in [
        ("port-reset", 0xCF9, 6),
        ("port-fast-reset", 0x92, 1),
        ("port-smi", 0xB2, 0),
        ("port-foreign-uart", 0x3F8, b'!'),
    ] {
        attack(name, &format!("port-violation {number:#x}"), || {
            port::write8(number, value);
            Ok(0)
        })?;
    }
    Ok(())
}

/// Where a page of this program's is in the guest's memory.
fn physical(page: &Registers) -> io::Result<u64> {
    let mut entry = [0; 8];
    let at = page.address() as u64 / PAGE as u64 * 8;
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, at)?;
    // Bits 54:0 are the frame's number (Linux, admin-guide/mm/pagemap).
    Ok((u64::from_le_bytes(entry) & ((1 << 55) - 1)) * PAGE as u64)
}

/// DMA by `edu`: to the own memory, which shows that it works, and to another's.
fn dma(victim: u64) -> io::Result<()> {
    const WANTED: u32 = 0xBAD0_BAD0;
    let edu = Registers::map(&file(EDU.0, "resource0"), 0, PAGE)?;
    let page = Registers::own_page()?;
    page.set32(0, WANTED);
    let own = physical(&page)?;
    // Bus mastering: the driver that would switch it on is not there.
    configuration(EDU.0)?.write_all_at(&[6, 4], 4)?;
    let transfer = |from: u64, to: u64, how: u32| {
        // Source, destination, count, command (QEMU, docs/specs/edu).
        for (offset, value) in [(0x80, from), (0x88, to), (0x90, 4)] {
            edu.set64(offset, value);
        }
        edu.set64(0x98, (how | 1).into());
        // Its engine takes 100 ms; ten times that is enough of waiting.
        for _ in 0..10 {
            sleep(Duration::from_millis(101));
            if edu.get32(0x98) & 1 == 0 {
                return;
            }
        }
    };
    const BUFFER: u64 = 0x4_0000;
    let there_and_back = |target: u64| {
        page.set32(0, WANTED);
        transfer(own, BUFFER, 0);
        transfer(BUFFER, target, 2);
        page.set32(0, 0);
        transfer(own, BUFFER, 0);
        transfer(target, BUFFER, 0);
        transfer(BUFFER, own, 2);
        Ok(u64::from(page.get32(0) == WANTED))
    };
    let other = Registers::own_page()?;
    other.set32(0, 0);
    let second = physical(&other)?;
    attack("dma-own", "harmless 0x1", || there_and_back(second))?;
    attack("dma-victim", "harmless 0x0", || there_and_back(victim))
}
