//! A machine's memory, as the auditor reads it.

use crate::claim::Range;
use nix::unistd::{Whence, lseek};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Physical memory.
pub trait Memory {
    /// Reads from a physical address; `false` where there is no RAM.
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool;

    /// Where there may be something but zeros, ascending.
    fn data(&self) -> Vec<Range>;
}

/// Bytes that are read at once.
const PAGE: u64 = 4096;

type Frame = Box<[u8; PAGE as usize]>;

/// Words of a memory, each page read once.
pub struct Words<'a> {
    memory: &'a dyn Memory,
    pages: RefCell<HashMap<u64, Option<Frame>>>,
}

impl<'a> Words<'a> {
    /// Reads nothing yet.
    pub fn new(memory: &'a dyn Memory) -> Self {
        Self { memory, pages: RefCell::default() }
    }

    /// The 64-bit word at an address, which is a multiple of eight.
    pub fn word(&self, address: u64) -> Option<u64> {
        let mut pages = self.pages.borrow_mut();
        let page = pages.entry(address / PAGE).or_insert_with(|| {
            let mut page = Box::new([0; PAGE as usize]);
            self.memory.read(address / PAGE * PAGE, &mut page[..]).then_some(page)
        });
        let at = (address % PAGE) as usize & !7;
        page.as_ref().map(|p| little(&p[at..at + 8]))
    }

    /// The memory behind it, read without being kept.
    pub fn memory(&self) -> &'a dyn Memory {
        self.memory
    }
}

/// A little-endian number.
pub fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))
}

/// Tells if memory holds these bytes.
pub fn reads(memory: &dyn Memory, address: u64, bytes: &[u8]) -> bool {
    let mut there = vec![0; bytes.len()];
    memory.read(address, &mut there) && there == bytes
}

/// Memory in a file: a machine's shared RAM, a copy of it, or an ELF core.
pub struct RamFile {
    file: File,
    /// Physical range and where in the file it begins.
    pieces: Vec<(Range, u64)>,
}

impl RamFile {
    /// Opens a file that holds pieces of RAM, right behind each other.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn flat(path: &Path, banks: &[Range]) -> io::Result<Self> {
        Self::of(File::open(path)?, banks)
    }

    /// Takes a file that is open already.
    ///
    /// # Errors
    /// Its length cannot be asked.
    pub fn of(file: File, banks: &[Range]) -> io::Result<Self> {
        let (len, mut at) = (file.metadata()?.len(), 0);
        let piece = |bank: &Range| {
            let piece = (Range { len: bank.len.min(len - at), ..*bank }, at);
            at += piece.0.len;
            piece
        };
        let pieces = banks.iter().map(piece).collect();
        Ok(Self { file, pieces })
    }

    /// Opens an ELF core, as QEMU's `dump-guest-memory` writes it. Its program headers say which physical memory is
    /// where.
    ///
    /// # Errors
    /// The file cannot be read, or is no such core.
    pub fn core(path: &Path) -> io::Result<Self> {
        const CORE: u64 = 4;
        let file = File::open(path)?;
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0)?;
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        if !header.starts_with(b"\x7fELF\x02\x01") || little(&header[16..18]) != CORE {
            return Err(wrong("no 64-bit little-endian ELF core"));
        }
        let (table, size) = (little(&header[32..40]), little(&header[54..56]));
        let mut pieces = Vec::new();
        for n in 0..little(&header[56..58]) {
            let mut entry = [0; 56];
            file.read_exact_at(&mut entry, table + n * size)?;
            let field = |at: usize| little(&entry[at..at + 8]);
            // PT_LOAD: p_offset, p_paddr, p_filesz.
            if little(&entry[..4]) == 1 && field(32) > 0 {
                pieces.push((Range { start: field(24), len: field(32) }, field(8)));
            }
        }
        if pieces.is_empty() {
            return Err(wrong("an ELF core without memory"));
        }
        pieces.sort_unstable();
        Ok(Self { file, pieces })
    }

    /// All of its memory.
    #[must_use]
    pub fn ranges(&self) -> Vec<Range> {
        self.pieces.iter().map(|p| p.0).collect()
    }
}

impl Memory for RamFile {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let end = address.saturating_add(bytes.len() as u64);
        let piece = self.pieces.iter().find(|p| p.0.contains(address) && end <= p.0.end());
        let Some((range, offset)) = piece else {
            return false;
        };
        self.file.read_exact_at(bytes, offset + (address - range.start)).is_ok()
    }

    /// Holes of the file are left out: nobody ever wrote there.
    fn data(&self) -> Vec<Range> {
        let mut out = Vec::new();
        for (range, offset) in &self.pieces {
            let end = offset + range.len;
            let mut at = *offset;
            while at < end {
                let seek = |whence| lseek(&self.file, at.cast_signed(), whence);
                let Ok(data) = seek(Whence::SeekData).map(|d| d.cast_unsigned().min(end)) else {
                    break;
                };
                at = data;
                let hole = lseek(&self.file, at.cast_signed(), Whence::SeekHole);
                let stop = hole.map_or(end, |h| h.cast_unsigned().min(end));
                if stop <= data {
                    break;
                }
                // Whole frames, also where a core's pieces begin anywhere.
                let first = (range.start + (data - offset)) / PAGE * PAGE;
                let last = (range.start + (stop - offset)).next_multiple_of(PAGE);
                out.push(Range { start: first, len: last - first });
                at = stop;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, len: u64, parts: &[(u64, &[u8])]) -> std::path::PathBuf {
        let path =
            std::env::temp_dir().join(format!("bulkhead-audit-{}-{name}", std::process::id()));
        let file = File::create(&path).expect("a file");
        file.set_len(len).expect("a sparse file");
        parts.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).expect("room"));
        path
    }

    #[test]
    fn holes_are_passed_over_and_high_memory_is_found() {
        let banks = [0, 1 << 32].map(|start| Range { start, len: 32 << 20 });
        let path = file("flat", 64 << 20, &[(0x10_0000, &[7; 8]), (40 << 20, &[9; 8])]);
        let ram = RamFile::flat(&path, &banks).expect("a file");
        std::fs::remove_file(&path).expect("it was there");
        let words = Words::new(&ram);
        assert_eq!(words.word(0x10_0000), Some(0x0707_0707_0707_0707));
        assert_eq!(words.word((1 << 32) + (8 << 20)), Some(0x0909_0909_0909_0909));
        assert_eq!(words.word(33 << 20), None);
        let data = ram.data();
        assert!(data.iter().any(|r| r.contains(0x10_0000)), "{data:x?}");
        assert!(data.iter().any(|r| r.contains((1 << 32) + (8 << 20))), "{data:x?}");
        assert!(data.iter().map(|r| r.len).sum::<u64>() < 16 << 20, "{data:x?}");
    }

    #[test]
    fn a_core_says_where_its_memory_is() {
        let mut header = b"\x7fELF\x02\x01".to_vec();
        header.resize(64 + 56, 0);
        header[16] = 4;
        header[32] = 64;
        header[54] = 56;
        header[56] = 1;
        for (at, value) in [(64, 1u64), (72, 0x1000), (88, 0x10_0000), (96, 0x2000)] {
            header[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let path = file("core", 0x3000, &[(0, &header), (0x2FF8, &[5; 8])]);
        let core = RamFile::core(&path).expect("a core");
        assert_eq!(Words::new(&core).word(0x10_1FF8), Some(0x0505_0505_0505_0505));
        assert_eq!(Words::new(&core).word(0x10_2000), None);
        let flat = file("none", 0x3000, &[]);
        assert!(RamFile::core(&flat).is_err());
        [path, flat].iter().for_each(|p| std::fs::remove_file(p).expect("it was there"));
    }
}
