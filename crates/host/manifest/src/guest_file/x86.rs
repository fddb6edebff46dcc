//! Guests' files of x86-64: a Linux bzImage's header (Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header").

use super::{Kernel, word};

/// Name of a Linux kernel's file that can be booted.
pub const IMAGE: &str = "bzImage that can be booted";
/// Help for a file that is none.
pub const IMAGE_HELP: &str =
    "give a distribution's /boot/vmlinuz-… or the kernel's arch/x86/boot/bzImage";

/// Reads a bzImage's header.
///
/// # Errors
/// Why the file cannot be booted.
pub fn kernel(bytes: &[u8]) -> Result<Kernel, String> {
    if bytes.starts_with(b"\x7fELF") {
        return Err("it is an ELF file, such as vmlinux".into());
    }
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
