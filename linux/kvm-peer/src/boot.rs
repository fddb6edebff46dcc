//! Linux's 64-bit boot protocol (`Documentation/arch/x86/boot.rst`): kernel,
//! initrd, zero page, page tables and the registers of the first instruction.

use crate::Failure;
use crate::acpi;
use crate::memory::Memory;
use kvm_bindings::{kvm_regs, kvm_segment, kvm_sregs};

/// Where things lie, below the kernel.
const GDT: usize = 0x500;
const ZERO_PAGE: usize = 0x7000;
const STACK: usize = 0x8FF0;
const PML4: usize = 0x9000;
const PDPT: usize = 0xA000;
const PD: usize = 0xB000;
const CMDLINE: usize = 0x2_0000;
const KERNEL: usize = 0x100_0000;
/// End of usable low memory.
const LOW_END: u64 = acpi::BASE as u64;
const HIGH: u64 = 0x10_0000;

/// Fields of the setup header, as offsets in the file and in the zero page.
const SETUP_SECTS: usize = 0x1F1;
const HEADER_MAGIC: usize = 0x202;
const HEADER_LENGTH: usize = 0x201;
const TYPE_OF_LOADER: usize = 0x210;
const RAMDISK_IMAGE: usize = 0x218;
const RAMDISK_SIZE: usize = 0x21C;
const CMD_LINE_PTR: usize = 0x228;
const ACPI_RSDP: usize = 0x070;
const E820_ENTRIES: usize = 0x1E8;
const E820_TABLE: usize = 0x2D0;

/// The guest that is booted.
pub struct Guest<'a> {
    /// A bzImage.
    pub kernel: &'a [u8],
    /// Its initramfs.
    pub initrd: &'a [u8],
    /// Its command line.
    pub cmdline: &'a str,
}

/// Puts everything into memory; returns the address of the first instruction.
pub fn load(memory: &Memory, guest: &Guest) -> Result<u64, Failure> {
    let kernel = guest.kernel;
    if kernel.get(HEADER_MAGIC..HEADER_MAGIC + 4) != Some(b"HdrS") {
        return Err("the kernel is no bzImage".into());
    }
    // A count of 0 means 4; the boot sector comes on top.
    let sectors = match kernel[SETUP_SECTS] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let payload = kernel.get((sectors + 1) * 512..).ok_or("the kernel is cut off")?;
    memory.write(KERNEL, payload)?;

    // As high as it fits, below what the kernel may still find.
    let initrd = memory
        .len()
        .checked_sub(guest.initrd.len())
        .map(|at| at & !0xFFF)
        .ok_or("the initrd does not fit")?;
    memory.write(initrd, guest.initrd)?;
    memory.write(CMDLINE, guest.cmdline.as_bytes())?;

    let header = SETUP_SECTS..HEADER_MAGIC + usize::from(kernel[HEADER_LENGTH]);
    memory.write(ZERO_PAGE + SETUP_SECTS, kernel.get(header).ok_or("the kernel is cut off")?)?;
    memory.write(ZERO_PAGE + TYPE_OF_LOADER, &[0xFF])?;
    for (field, value) in
        [(RAMDISK_IMAGE, initrd), (RAMDISK_SIZE, guest.initrd.len()), (CMD_LINE_PTR, CMDLINE)]
    {
        memory.write(ZERO_PAGE + field, &u32::try_from(value)?.to_le_bytes())?;
    }
    memory.write(ZERO_PAGE + E820_ENTRIES, &[2])?;
    let ranges = [(0, LOW_END), (HIGH, memory.len() as u64 - HIGH)];
    for (n, (start, length)) in ranges.into_iter().enumerate() {
        let at = ZERO_PAGE + E820_TABLE + n * 20;
        memory.write_u64(at, start)?;
        memory.write_u64(at + 8, length)?;
        memory.write(at + 16, &1u32.to_le_bytes())?;
    }
    memory.write_u64(ZERO_PAGE + ACPI_RSDP, acpi::write(memory)?)?;
    tables(memory)?;
    Ok(KERNEL as u64 + 0x200)
}

/// Identity-maps the first GiB with 2 MiB pages, and writes the descriptors that
/// the protocol names: 0x10 for code, 0x18 for data.
fn tables(memory: &Memory) -> Result<(), Failure> {
    memory.write_u64(PML4, PDPT as u64 | 3)?;
    memory.write_u64(PDPT, PD as u64 | 3)?;
    for n in 0..512 {
        memory.write_u64(PD + n * 8, (n as u64) << 21 | 0x83)?;
    }
    memory.write_u64(GDT + 0x10, 0x00AF_9B00_0000_FFFF)?;
    memory.write_u64(GDT + 0x18, 0x00CF_9300_0000_FFFF)
}

/// Long mode with paging, flat segments, interrupts off.
pub fn special_registers(special: &mut kvm_sregs) {
    let code = kvm_segment {
        limit: 0xFFFF_FFFF,
        selector: 0x10,
        type_: 0xB,
        present: 1,
        s: 1,
        l: 1,
        g: 1,
        ..kvm_segment::default()
    };
    let data = kvm_segment { selector: 0x18, type_: 3, l: 0, db: 1, ..code };
    special.cs = code;
    for segment in
        [&mut special.ds, &mut special.es, &mut special.fs, &mut special.gs, &mut special.ss]
    {
        *segment = data;
    }
    special.gdt.base = GDT as u64;
    special.gdt.limit = 0x1F;
    special.cr0 = 0x8000_0011; // PG, ET, PE
    special.cr3 = PML4 as u64;
    special.cr4 = 0x20; // PAE
    special.efer = 0x500; // LME, LMA
}

/// RIP, and RSI = the zero page.
pub fn registers(entry: u64) -> kvm_regs {
    kvm_regs {
        rip: entry,
        rsi: ZERO_PAGE as u64,
        rsp: STACK as u64,
        rflags: 2,
        ..kvm_regs::default()
    }
}
