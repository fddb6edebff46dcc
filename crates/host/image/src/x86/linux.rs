//! A Linux kernel's file: where its bytes go, and what the kernel is told of it (Documentation/arch/x86/boot.rst).

use crate::elf::Program;
use crate::guest::Piece;
use bulkhead_layout::x86::late::zero;

/// Offsets in the setup header, which are those in the zero page, too.
pub mod setup {
    pub const SECTS: usize = 0x1F1;
    pub const BOOT_FLAG: usize = 0x1FE;
    pub const JUMP: usize = 0x201;
    pub const MAGIC: usize = 0x202;
    pub const VERSION: usize = 0x206;
    pub const TYPE_OF_LOADER: usize = 0x210;
    pub const LOADFLAGS: usize = 0x211;
    pub const RAMDISK_IMAGE: usize = 0x218;
    pub const RAMDISK_SIZE: usize = 0x21C;
    pub const CMD_LINE_PTR: usize = 0x228;
    pub const KERNEL_ALIGNMENT: usize = 0x230;
    pub const XLOADFLAGS: usize = 0x236;
}

const MAGIC: [u8; 4] = *b"HdrS";
/// Parts of a segment that are left out if they are zero: memory is. A vmlinux has megabytes of them.
const CHUNK: usize = 64 << 10;

/// A kernel, ready to be placed.
pub struct Image {
    /// The zero page's header.
    pub header: Vec<(usize, Vec<u8>)>,
    /// Contents of memory.
    pub pieces: Vec<Piece>,
    /// First instruction, in 64-bit mode.
    pub entry: u64,
    /// End of the memory that it uses while it starts.
    pub end: u64,
}

impl Image {
    /// Reads a bzImage or a vmlinux.
    ///
    /// # Errors
    /// Why it is neither.
    pub fn read(kernel: &[u8]) -> Result<Self, String> {
        if kernel.starts_with(b"\x7fELF") { Self::vmlinux(kernel) } else { Self::bz_image(kernel) }
    }

    fn bz_image(kernel: &[u8]) -> Result<Self, String> {
        let int = |at: usize, len: usize| {
            let bytes = kernel.get(at..at + len).unwrap_or(&[]);
            bytes.iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b))
        };
        if int(setup::MAGIC, 4) != u64::from(u32::from_le_bytes(MAGIC))
            || int(setup::VERSION, 2) < 0x20C
            || int(setup::XLOADFLAGS, 2) & 1 == 0
        {
            return Err("its kernel is no 64-bit bzImage (boot protocol 2.12 or later)".into());
        }
        // 0 stands for 4, as the checker knows (`bulkhead_manifest::guest_file`).
        let sectors = match int(setup::SECTS, 1) {
            0 => 4,
            sectors => sectors as usize,
        };
        let length = (sectors + 1) * 512;
        let load = int(zero::PREF_ADDRESS, 8);
        let header_end = setup::MAGIC + int(setup::JUMP, 1) as usize;
        let header = kernel.get(setup::SECTS..header_end).zip(kernel.get(length..));
        let (header, bytes) = header.ok_or("its kernel ends within its setup part")?;
        const ENTRY64: u64 = 0x200;
        Ok(Self {
            header: vec![(setup::SECTS, header.to_vec())],
            pieces: vec![Piece { gpa: load, bytes: bytes.to_vec() }],
            entry: load + ENTRY64,
            end: load + int(zero::INIT_SIZE, 4),
        })
    }

    /// A vmlinux has no header, so this writes what the kernel reads of one: marks, and an alignment. Code that begins
    /// a Linux anew reads how much room it takes.
    fn vmlinux(kernel: &[u8]) -> Result<Self, String> {
        const LOADED_HIGH: u8 = 1;
        let program = Program::parse("its vmlinux", kernel).map_err(|why| why.to_string())?;
        let start = program.segments.iter().map(|s| s.physical).min().unwrap_or(0);
        let ends = program.segments.iter().map(|s| s.physical.checked_add(s.size));
        let end = ends.collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().max());
        let room = end.and_then(|end| u32::try_from(end.checked_sub(start)?).ok());
        let (Some(end), Some(room)) = (end, room) else {
            return Err("its vmlinux takes more than 4 GiB, or nothing".into());
        };
        let header = vec![
            (setup::BOOT_FLAG, 0xAA55u16.to_le_bytes().to_vec()),
            (setup::MAGIC, MAGIC.to_vec()),
            (setup::VERSION, 0x20Fu16.to_le_bytes().to_vec()),
            (setup::LOADFLAGS, vec![LOADED_HIGH]),
            (setup::KERNEL_ALIGNMENT, 0x0020_0000u32.to_le_bytes().to_vec()),
            (zero::PREF_ADDRESS, start.to_le_bytes().to_vec()),
            (zero::INIT_SIZE, room.to_le_bytes().to_vec()),
        ];
        let mut pieces = Vec::new();
        // By physical addresses: the kernel starts on tables that map memory to itself.
        for segment in &program.segments {
            for (gpa, chunk) in (segment.physical..).step_by(CHUNK).zip(segment.bytes.chunks(CHUNK))
            {
                if chunk.iter().any(|byte| *byte != 0) {
                    append(&mut pieces, gpa, chunk);
                }
            }
        }
        Ok(Self { header, pieces, entry: program.entry, end })
    }
}

/// Adds bytes to the last piece where they follow it, else as one of their own.
fn append(pieces: &mut Vec<Piece>, gpa: u64, bytes: &[u8]) {
    match pieces.last_mut() {
        Some(last) if last.gpa + last.bytes.len() as u64 == gpa => last.bytes.extend(bytes),
        _ => pieces.push(Piece { gpa, bytes: bytes.to_vec() }),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    #[test]
    fn chunks_of_zeros_are_left_out_and_others_stay_together() {
        let mut pieces = Vec::new();
        append(&mut pieces, 0x1000, &[1; 8]);
        append(&mut pieces, 0x1008, &[2; 8]);
        append(&mut pieces, 0x2000, &[3; 8]);
        let seen: Vec<_> = pieces.iter().map(|piece| (piece.gpa, piece.bytes.len())).collect();
        assert_eq!(seen, [(0x1000, 16), (0x2000, 8)]);
    }

    /// A bzImage with so many sectors of setup in its header, and 8 sectors in all.
    pub fn bz_image(sectors: u8) -> Vec<u8> {
        let mut bytes = vec![0; 8 * 512];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(setup::SECTS, &[sectors]);
        put(setup::JUMP, &[0x6A]);
        put(setup::MAGIC, &MAGIC);
        put(setup::VERSION, &0x20Fu16.to_le_bytes());
        put(setup::XLOADFLAGS, &[1]);
        put(zero::PREF_ADDRESS, &(16u64 << 20).to_le_bytes());
        bytes
    }

    #[test]
    fn no_sectors_of_setup_stand_for_four() {
        let bytes =
            |sectors| Image::read(&bz_image(sectors)).map(|image| image.pieces[0].bytes.len());
        assert_eq!(bytes(0), Ok(3 * 512));
        assert_eq!(bytes(4), bytes(0));
        assert_eq!(bytes(6), Ok(512));
    }

    #[test]
    fn a_file_that_is_no_kernel_is_refused() {
        for bytes in [&b"\x7fELF"[..], &[0; 0x300], &bz_image(9), &bz_image(4)[..0x240]] {
            assert!(Image::read(bytes).is_err());
        }
    }
}
