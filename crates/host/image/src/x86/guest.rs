//! Guests of x86-64: what both kinds start on, and how an unmodified Linux is started (zero page, e820, ACPI, SMBIOS,
//! reset vector).

use super::linux::{Image, setup};
use super::{acpi, smbios};
use crate::Error;
use crate::elf::Program;
use crate::guest::{Entry, Guest, Piece, Start, bare};
use bulkhead_arch::Rights;
use bulkhead_arch_x86::start::GDT;
use bulkhead_kernel_x86::X86;
use bulkhead_layout::PAGE;
use bulkhead_layout::map::{
    CHANNELS_GPA, ECAM_GPA, FUNCTIONS_GPA, GUEST_HIGH, GUEST_LOW_END, INFO_GPA, LINKS_END,
    LINKS_GPA, REPORTS_GPA,
};
use bulkhead_layout::x86::late::{restart, zero};
use bulkhead_layout::x86::port::{POWER_PORT, POWER_RESTART};
use bulkhead_plan::{End, Guest as Wanted, Machine, Plan, Sandbox};
use std::path::Path;

/// Where a guest's descriptor table lies.
pub const GDT_GPA: u64 = 0x1000;
const TABLES_GPA: u64 = 0x2000;
const TABLES_END: u64 = 0x8000;
const ZERO_PAGE_GPA: u64 = 0x8000;
const CMDLINE_GPA: u64 = 0x9000;
const ACPI_GPA: u64 = 0xE_0000;
const SMBIOS_GPA: u64 = 0xF_0000;
/// Where firmware starts: FFFF:0000 in real mode.
const RESET_VECTOR_GPA: u64 = 0xF_FFF0;
const LOW_RAM_END: u64 = 0x9_F000;
const HIGH_RAM: u64 = 0x10_0000;

/// Loads a sandbox's guest from its files. A Linux sees its channels by its `ends`.
///
/// # Errors
/// Files that cannot be read or are not what they should be.
pub fn load(plan: &Plan, index: usize, ends: &[End]) -> Result<Guest, Error> {
    let sandbox = &plan.sandboxes[index];
    let read = |path: &Path| std::fs::read(path).map_err(|e| Error::File(path.to_path_buf(), e));
    match &sandbox.guest {
        Wanted::Linux { kernel, initrd, cmdline } => {
            let initrd = initrd.as_deref().map(read).transpose()?;
            linux(sandbox, (&plan.machine, ends), &read(kernel)?, initrd, cmdline)
        }
        Wanted::Bare { program, args, enforce_segments } => {
            let name = program.display().to_string();
            let start = Start {
                pieces: long_mode_start(),
                below: TABLES_END,
                entry: entry(0, TABLES_END),
                argument: INFO_GPA,
                page: PAGE,
            };
            bare(sandbox, start, &Program::parse(&name, &read(program)?)?, args, *enforce_segments)
        }
        Wanted::Kernel(kernel) => crate::kernel::load::<X86>(plan, index, kernel),
        // All that it is at its monitor's first instruction is known on the target alone.
        Wanted::Running => match sandbox.again.as_deref() {
            Some(Wanted::Linux { kernel, initrd, cmdline }) => {
                let initrd = initrd.as_deref().map(read).transpose()?.unwrap_or_default();
                again(sandbox, &read(kernel)?, initrd, cmdline)
            }
            _ => Ok(whole(Vec::new(), Entry { pc: 0, sp: 0, tables: 0 }, 0)),
        },
    }
}

/// Descriptor table and page tables for the first 4 GiB, mapped to themselves
/// with 2 MiB pages: what both kinds of guest start with.
fn long_mode_start() -> Vec<Piece> {
    let words = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
    const TABLE: u64 = 0b11;
    const LARGE: u64 = 1 << 7;
    let mut tables = vec![0u64; 6 * 512];
    tables[0] = (TABLES_GPA + PAGE) | TABLE;
    for i in 0..4 {
        tables[512 + i] = (TABLES_GPA + (2 + i as u64) * PAGE) | TABLE;
    }
    for i in 0..2048 {
        tables[1024 + i] = (i as u64) << 21 | LARGE | TABLE;
    }
    vec![
        Piece { gpa: GDT_GPA, bytes: words(&GDT) },
        Piece { gpa: TABLES_GPA, bytes: words(&tables) },
    ]
}

fn entry(pc: u64, sp: u64) -> Entry {
    Entry { pc, sp, tables: TABLES_GPA }
}

fn linux(
    sandbox: &Sandbox,
    (machine, ends): (&Machine, &[End]),
    kernel: &[u8],
    initrd: Option<Vec<u8>>,
    cmdline: &str,
) -> Result<Guest, Error> {
    let wrong = |what: String| Error::Program(format!("sandbox {}: {what}", sandbox.name));
    let image = Image::read(kernel).map_err(wrong)?;
    let low = sandbox.ram.first().map_or(0, |r| r.gpa + r.len).min(GUEST_LOW_END);
    let needed = image.end;
    if needed > low {
        return Err(wrong(format!("its kernel needs memory up to {needed:#x}; it has {low:#x}")));
    }
    let initrd = initrd.unwrap_or_default();
    let initrd_at = low.saturating_sub(initrd.len() as u64) / PAGE * PAGE;
    if initrd_at < needed {
        return Err(wrong(format!(
            "its initrd of {} bytes does not fit above its kernel: more memory",
            initrd.len()
        )));
    }

    let mut zero_page = zero_page(&image, &initrd, initrd_at, CMDLINE_GPA);
    let mut put = |at: usize, bytes: &[u8]| zero_page[at..at + bytes.len()].copy_from_slice(bytes);
    put(zero::ACPI_RSDP, &ACPI_GPA.to_le_bytes());
    let map = e820(sandbox, low, !ends.is_empty());
    put(zero::E820_ENTRIES, &[map.len() as u8]);
    for (i, (start, len, kind)) in map.iter().enumerate() {
        let at = zero::E820_TABLE + i * zero::E820_ENTRY;
        put(at, &start.to_le_bytes());
        put(at + 8, &len.to_le_bytes());
        put(at + 16, &kind.to_le_bytes());
    }

    let mut pieces = long_mode_start();
    pieces.push(Piece { gpa: ZERO_PAGE_GPA, bytes: zero_page });
    pieces.push(Piece { gpa: CMDLINE_GPA, bytes: [cmdline.as_bytes(), &[0]].concat() });
    pieces.push(Piece { gpa: ACPI_GPA, bytes: acpi::tables(sandbox, machine, ends, ACPI_GPA) });
    pieces.push(Piece { gpa: SMBIOS_GPA, bytes: smbios::tables(SMBIOS_GPA) });
    pieces.push(Piece { gpa: RESET_VECTOR_GPA, bytes: reset_vector() });
    pieces.extend(image.pieces);
    if !initrd.is_empty() {
        pieces.push(Piece { gpa: initrd_at, bytes: initrd });
    }
    Ok(whole(pieces, entry(image.entry, TABLES_END), ZERO_PAGE_GPA))
}

/// A Linux: it patches its own text.
fn whole(pieces: Vec<Piece>, entry: Entry, argument: u64) -> Guest {
    Guest {
        pieces,
        entry,
        argument,
        segments: Vec::new(),
        fixed: Vec::new(),
        default_rights: Rights::RWX,
        args: String::new(),
        trace: None,
    }
}

/// Returns a zero page without the memory map and ACPI's tables.
fn zero_page(image: &Image, initrd: &[u8], initrd_at: u64, cmdline: u64) -> Vec<u8> {
    let mut page = vec![0u8; PAGE as usize];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    for (at, bytes) in &image.header {
        put(*at, bytes);
    }
    put(setup::TYPE_OF_LOADER, &[0xFF]);
    let at = if initrd.is_empty() { 0 } else { initrd_at as u32 };
    put(setup::RAMDISK_IMAGE, &at.to_le_bytes());
    put(setup::RAMDISK_SIZE, &(initrd.len() as u32).to_le_bytes());
    put(setup::CMD_LINE_PTR, &(cmdline as u32).to_le_bytes());
    page
}

/// A Linux that begins in the place of one that ran first. It has the machine's memory, the map of which the late boot
/// code fills in, and ACPI's tables, of which that code makes a copy. So everything lies at a fixed address, wherever
/// the block is.
fn again(sandbox: &Sandbox, kernel: &[u8], initrd: Vec<u8>, cmdline: &str) -> Result<Guest, Error> {
    // KASLR needs no place of its own here: the kernel leaves all of this alone.
    const INITRD_ALIGN: u64 = 2 << 20;
    let wrong = |what: String| Error::Program(format!("sandbox {}: {what}", sandbox.name));
    let image = Image::read(kernel).map_err(wrong)?;
    let ends = image.pieces.iter().map(|piece| piece.gpa + piece.bytes.len() as u64);
    let initrd_at = ends.fold(image.end, u64::max).next_multiple_of(INITRD_ALIGN);
    let zero_page = zero_page(&image, &initrd, initrd_at, restart::CMDLINE_GPA);
    let cmdline = [cmdline.as_bytes(), &[0]].concat();
    if cmdline.len() as u64 > restart::ACPI_GPA - restart::CMDLINE_GPA {
        return Err(wrong(format!("its command line of {} bytes is too long", cmdline.len())));
    }
    let mut pieces = long_mode_start();
    pieces.push(Piece { gpa: restart::ZERO_PAGE_GPA, bytes: zero_page });
    pieces.push(Piece { gpa: restart::CMDLINE_GPA, bytes: cmdline });
    let acpi = vec![0; (restart::ACPI_END - restart::ACPI_GPA) as usize];
    pieces.push(Piece { gpa: restart::ACPI_GPA, bytes: acpi });
    pieces.extend(image.pieces);
    if !initrd.is_empty() {
        pieces.push(Piece { gpa: initrd_at, bytes: initrd });
    }
    Ok(whole(pieces, entry(image.entry, TABLES_END), restart::ZERO_PAGE_GPA))
}

/// Returns the code that a kernel comes to if it reboots through its firmware. On hardware-reduced ACPI without UEFI,
/// Linux goes to real mode and jumps there.
fn reset_vector() -> Vec<u8> {
    let [low, high] = POWER_PORT.to_le_bytes();
    // mov dx, POWER_PORT; mov al, POWER_RESTART; out dx, al; hlt
    vec![0xBA, low, high, 0xB0, POWER_RESTART, 0xEE, 0xF4]
}

/// The guest's memory map: start, length, 1 = RAM, 2 = reserved. The window with info page, reports, channels and links
/// is reserved, so that the kernel leaves it alone and user space may map it. Channels that are base addresses of
/// functions are not: a kernel would take no reserved ones.
fn e820(sandbox: &Sandbox, low: u64, ends: bool) -> Vec<(u64, u64, u32)> {
    let mut map = vec![
        (0, LOW_RAM_END, 1),
        (ACPI_GPA, HIGH_RAM - ACPI_GPA, 2),
        (HIGH_RAM, low - HIGH_RAM, 1),
    ];
    // With the PCI configuration space before it.
    if ends {
        map.push((ECAM_GPA, FUNCTIONS_GPA - ECAM_GPA, 2));
        map.push((REPORTS_GPA, CHANNELS_GPA - REPORTS_GPA, 2));
        map.push((LINKS_GPA, LINKS_END - LINKS_GPA, 2));
    } else {
        map.push((ECAM_GPA, LINKS_END - ECAM_GPA, 2));
    }
    let high = sandbox.ram.iter().filter(|r| r.gpa >= GUEST_HIGH);
    map.extend(high.map(|r| (r.gpa, r.len, 1)));
    map
}

#[cfg(test)]
mod tests {
    use super::super::linux::tests::bz_image;
    use super::*;
    use bulkhead_arch_fake::elf;
    use bulkhead_layout::x86::TRAMPOLINE_PA;

    #[test]
    fn a_linux_that_begins_anew_has_all_at_fixed_places_that_do_not_overlap() {
        let guest =
            again(&Sandbox::default(), &bz_image(4), vec![7; 0x1000], "quiet panic=1").unwrap();
        let mut all: Vec<_> = { guest.pieces.iter() }
            .map(|piece| (piece.gpa, piece.gpa + piece.bytes.len() as u64))
            .collect();
        all.push((TRAMPOLINE_PA, TRAMPOLINE_PA + PAGE));
        all.sort_unstable();
        assert!(all.is_sorted_by(|a, b| a.1 <= b.0), "{all:x?}");
        let piece = |gpa| &guest.pieces.iter().find(|piece| piece.gpa == gpa).unwrap().bytes;
        assert_eq!(piece(restart::CMDLINE_GPA), b"quiet panic=1\0");
        // No map and no tables yet; the kernel's own header.
        let zero_page = piece(guest.argument);
        assert_eq!(zero_page.len(), PAGE as usize);
        assert_eq!(
            (zero_page[zero::E820_ENTRIES], &zero_page[setup::MAGIC..][..4]),
            (0, &b"HdrS"[..])
        );
        assert_eq!(zero_page[zero::ACPI_RSDP..][..8], [0; 8]);
        let int = |at: usize| u32::from_le_bytes(zero_page[at..at + 4].try_into().unwrap());
        assert_eq!(piece(int(setup::RAMDISK_IMAGE).into()).len() as u32, int(setup::RAMDISK_SIZE));
        assert!(piece(restart::ACPI_GPA).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn it_says_how_much_room_its_kernel_takes_also_without_an_initrd() {
        const ROOM: u32 = 0x12_3000;
        let mut packed = bz_image(4);
        packed[zero::INIT_SIZE..][..4].copy_from_slice(&ROOM.to_le_bytes());
        let segments =
            [(0x10_0000, Rights::RX, &[7; 0x1000][..]), (0x30_0000, Rights::RW, &[7; 0x234])];
        let unpacked = elf::file(0x10_0000, &segments, &[]);
        for (kernel, start, len) in
            [(packed, 16 << 20, u64::from(ROOM)), (unpacked, 0x10_0000, 0x20_0234)]
        {
            for initrd in [Vec::new(), vec![7; 0x1000]] {
                let guest = again(&Sandbox::default(), &kernel, initrd, "").unwrap();
                let page = guest.pieces.iter().find(|piece| piece.gpa == guest.argument).unwrap();
                let room = zero::room(&page.bytes);
                assert_eq!((room.start, room.len), (start, len));
                // Its pieces are within; the initrd is behind.
                let above = guest.pieces.iter().filter(|piece| piece.gpa >= 1 << 20);
                let [inside, behind] = [true, false].map(|is| {
                    above.clone().filter(|p| (p.gpa < start + len) == is).collect::<Vec<_>>()
                });
                assert!(!inside.is_empty() && behind.len() <= 1);
                let ends = |piece: &&Piece| piece.gpa + piece.bytes.len() as u64 <= start + len;
                assert!(inside.iter().all(ends));
            }
        }
    }

    #[test]
    fn a_command_line_that_is_too_long_is_refused() {
        let long = "x".repeat((restart::ACPI_GPA - restart::CMDLINE_GPA) as usize);
        let why = again(&Sandbox::default(), &bz_image(4), Vec::new(), &long).unwrap_err();
        assert!(why.to_string().contains("too long"));
        assert!(again(&Sandbox::default(), &bz_image(4), Vec::new(), &long[1..]).is_ok());
    }
}
