//! Guests' files of x86-64: a Linux bzImage's header (Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header"),
//! and the program headers of what it is packed from, `vmlinux`.

use core::ops::Range;

use super::{Kernel, PT_NOTE, program, word};

/// Name of a Linux kernel's file that can be booted.
pub const IMAGE: &str = "bzImage or vmlinux that can be booted";
/// Help for a file that is none.
pub const IMAGE_HELP: &str =
    "give a distribution's /boot/vmlinuz-… or the kernel's arch/x86/boot/bzImage";

/// Longest command line that a vmlinux takes (Linux, arch/x86/include/asm/setup.h, `COMMAND_LINE_SIZE`), less its end.
const CMDLINE: u64 = 2047;
/// A kernel lies from 1 MiB on: its first tables, its command line and firmware tables are below. It ends below 4 GiB.
const PLACE: Range<u64> = 1 << 20..1 << 32;

/// Reads the header of a bzImage, or of a vmlinux for the processor with this name and number.
///
/// # Errors
/// Why the file cannot be booted.
pub fn kernel(bytes: &[u8], elf: (&str, u16)) -> Result<Kernel, String> {
    let elf = bytes.starts_with(b"\x7fELF").then_some(elf);
    let kernel = elf.map_or_else(|| bz_image(bytes), |elf| vmlinux(bytes, elf))?;
    let end = kernel.load.saturating_add(kernel.init_size);
    if kernel.load < PLACE.start || end > PLACE.end {
        let Range { start, end: most } = PLACE;
        return Err(format!(
            "it lies at {:#x} to {end:#x}, not within {start:#x} to {most:#x}",
            kernel.load
        ));
    }
    Ok(kernel)
}

/// Reads a bzImage's header.
fn bz_image(bytes: &[u8]) -> Result<Kernel, String> {
    if bytes.starts_with(b"\x1f\x8b") {
        return Err("it is compressed by gzip".into());
    }
    if bytes.get(0x202..0x206) != Some(b"HdrS") {
        return Err("the mark `HdrS` at 0x202 is missing".into());
    }
    let short = || "it ends within its header".to_owned();
    let version = word::<2>(bytes, 0x206).ok_or_else(short)?;
    if version < 0x20C {
        return Err(format!(
            "its boot protocol is {}.{:02}, 2.12 is the first with a 64-bit entry",
            version >> 8,
            version & 0xFF
        ));
    }
    if word::<2>(bytes, 0x236).ok_or_else(short)? & 1 == 0 {
        return Err("it has no 64-bit entry (XLF_KERNEL_64 is clear)".into());
    }
    let setup = word::<1>(bytes, 0x1F1).ok_or_else(short)?;
    // "For backwards compatibility, if the setup_sects field contains 0, the real value is 4."
    let setup = (if setup == 0 { 4 } else { setup } + 1) * 512;
    if setup >= bytes.len() as u64 {
        return Err(format!("it has {} bytes, and its setup part alone {setup}", bytes.len()));
    }
    Ok(Kernel {
        load: word::<8>(bytes, 0x258).ok_or_else(short)?,
        init_size: word::<4>(bytes, 0x260).ok_or_else(short)?,
        cmdline: word::<4>(bytes, 0x238).ok_or_else(short)?,
    })
}

/// Reads a vmlinux' program headers. Its entry is the 64-bit one, by a physical address.
fn vmlinux(bytes: &[u8], elf: (&str, u16)) -> Result<Kernel, String> {
    let program = program(bytes, elf)?;
    if !notes(bytes).is_some_and(has_linux) {
        return Err("it is an ELF file without the note `Linux` of a vmlinux".into());
    }
    let load = program.segments.iter().map(|s| s.start).min().unwrap_or(0);
    let end = program.segments.iter().map(|s| s.start + s.len).max().unwrap_or(0);
    let holds_entry =
        |s: &super::Segment| s.start <= program.entry && program.entry - s.start < s.len;
    if !program.segments.iter().any(holds_entry) {
        return Err(format!("its entry {:#x} is in none of its segments", program.entry));
    }
    Ok(Kernel { load, init_size: end - load, cmdline: CMDLINE })
}

/// The content of the first segment of notes.
fn notes(bytes: &[u8]) -> Option<&[u8]> {
    let place = |at: u64, len: u64| {
        let (at, len) = (usize::try_from(at).ok()?, usize::try_from(len).ok()?);
        bytes.get(at..at.checked_add(len)?)
    };
    let table = word::<8>(bytes, 32)?;
    let headers = (0..word::<2>(bytes, 56)?).map_while(|n| place(table.checked_add(n * 56)?, 56));
    let header = headers.into_iter().find(|header| word::<4>(header, 0) == Some(PT_NOTE))?;
    place(word::<8>(header, 8)?, word::<8>(header, 32)?)
}

/// Looks for a note that is Linux' own (System V gABI, chapter 5, "Note Section").
fn has_linux(mut notes: &[u8]) -> bool {
    const HEAD: usize = 12;
    const OWNER: &[u8] = b"Linux\0";
    loop {
        let Some((name, content)) = word::<4>(notes, 0).zip(word::<4>(notes, 4)) else {
            return false;
        };
        let padded = |len: u64| (len as usize).next_multiple_of(4);
        if notes.get(HEAD..HEAD + name as usize) == Some(OWNER) {
            return true;
        }
        match notes.get(HEAD + padded(name) + padded(content)..) {
            Some(rest) => notes = rest,
            None => return false,
        }
    }
}
