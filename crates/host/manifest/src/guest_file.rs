//! Guests' files. For a Linux kernel it reads the header that its architecture has. For an ELF64 file it reads the
//! program headers (System V gABI, chapter 5). Every read is bounded; a file is a claim.

mod x86;

pub use x86::{IMAGE, IMAGE_HELP, kernel};

use bulkhead_layout::PAGE;
use bulkhead_plan::Span;
use std::collections::BTreeMap;

/// Header of a Linux kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Address at which it is loaded.
    pub load: u64,
    /// Bytes that it uses from there on while it starts.
    pub init_size: u64,
    /// Longest command line.
    pub cmdline: u64,
}

/// A segment of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First guest-physical address.
    pub start: u64,
    /// Bytes in memory.
    pub len: u64,
    /// May be written.
    pub write: bool,
    /// May be executed.
    pub execute: bool,
}

impl Segment {
    /// The pages that it touches, all of which it gets.
    #[must_use]
    pub fn pages(&self) -> Span {
        Span { start: self.start, len: self.len }.pages()
    }
}

/// Headers of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// First instruction.
    pub entry: u64,
    /// Segments that are loaded.
    pub segments: Vec<Segment>,
    /// Names and addresses of its symbols, where they were asked for.
    pub symbols: BTreeMap<String, u64>,
}

fn word<const N: usize>(bytes: &[u8], offset: usize) -> Option<u64> {
    let field = bytes.get(offset..offset.checked_add(N)?)?;
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(field);
    Some(u64::from_le_bytes(wide))
}

const PT_LOAD: u64 = 1;
const PT_INTERP: u64 = 3;
const PT_NOTE: u64 = 4;

/// Reads a static ELF64 program's headers, for the processor with this name and number ([`bulkhead_plan::Facts::elf`]).
///
/// # Errors
/// Why the file cannot be loaded.
pub fn program(bytes: &[u8], (name, number): (&str, u16)) -> Result<Program, String> {
    if !bytes.starts_with(b"\x7fELF") {
        return Err("the mark `\\x7fELF` at its start is missing".into());
    }
    let short = || "it ends within its headers".to_owned();
    if word::<2>(bytes, 4).ok_or_else(short)? != 0x0102 {
        return Err("it is not a 64-bit little-endian ELF file".into());
    }
    let machine = word::<2>(bytes, 18).ok_or_else(short)?;
    if machine != u64::from(number) {
        return Err(format!("it is for machine {machine}, {name} is {number}"));
    }
    match word::<2>(bytes, 16).ok_or_else(short)? {
        2 => {}
        3 => {
            return Err(
                "it is position-independent (ET_DYN), so its addresses are not final".into()
            );
        }
        other => return Err(format!("its type is {other}, an executable's is 2")),
    }
    let entry = word::<8>(bytes, 24).ok_or_else(short)?;
    let table = word::<8>(bytes, 32).ok_or_else(short)?;
    let size = word::<2>(bytes, 54).ok_or_else(short)?;
    let count = word::<2>(bytes, 56).ok_or_else(short)?;
    if size != 56 {
        return Err(format!("its program headers have {size} bytes, not 56"));
    }
    let mut segments = Vec::new();
    for index in 0..count {
        let header = table
            .checked_add(index * size)
            .and_then(|start| usize::try_from(start).ok())
            .and_then(|start| bytes.get(start..start.checked_add(56)?))
            .ok_or_else(short)?;
        segments.extend(segment(header, bytes.len() as u64)?);
    }
    if segments.is_empty() {
        return Err("it has nothing to load".into());
    }
    Ok(Program { entry, segments, symbols: BTreeMap::new() })
}

/// Reads the headers of a static ELF64 program as [`program`], and the symbols that it defines. A file without a symbol
/// table has no symbols.
///
/// # Errors
/// Why the file cannot be loaded.
pub fn with_symbols(bytes: &[u8], elf: (&str, u16)) -> Result<Program, String> {
    let program = program(bytes, elf)?;
    let symbols = symbols(bytes).unwrap_or_default();
    Ok(Program { symbols, ..program })
}

/// Bytes of a section header, and of a symbol.
const SECTION: usize = 64;
const SYMBOL: usize = 24;
const SHT_SYMTAB: u64 = 2;

/// The symbols that a file defines; nothing if its tables are damaged.
fn symbols(bytes: &[u8]) -> Option<BTreeMap<String, u64>> {
    let table = usize::try_from(word::<8>(bytes, 40)?).ok()?;
    let count = usize::try_from(word::<2>(bytes, 60)?).ok()?;
    let section = |index: usize| {
        let start = table.checked_add(index.checked_mul(SECTION)?)?;
        bytes.get(start..start.checked_add(SECTION)?)
    };
    let content = |header: &[u8]| {
        let start = usize::try_from(word::<8>(header, 24)?).ok()?;
        bytes.get(start..start.checked_add(usize::try_from(word::<8>(header, 32)?).ok()?)?)
    };
    let is_table = |header: &&[u8]| word::<4>(header, 4) == Some(SHT_SYMTAB);
    let Some(header) = (0..count).map_while(section).find(is_table) else {
        return Some(BTreeMap::new());
    };
    let names = content(section(usize::try_from(word::<4>(header, 40)?).ok()?)?)?;
    let defined = |symbol: &[u8]| {
        let at = usize::try_from(word::<4>(symbol, 0)?).ok()?;
        let name = names.get(at..)?.split(|byte| *byte == 0).next()?;
        // Section 0 marks symbols that other files define.
        (word::<2>(symbol, 6)? != 0).then_some(())?;
        Some((String::from_utf8(name.to_vec()).ok()?, word::<8>(symbol, 8)?))
    };
    Some(content(header)?.chunks_exact(SYMBOL).filter_map(defined).collect())
}

fn segment(header: &[u8], file: u64) -> Result<Option<Segment>, String> {
    let short = || "it ends within its headers".to_owned();
    match word::<4>(header, 0).ok_or_else(short)? {
        PT_LOAD => {}
        PT_INTERP => return Err("it is linked dynamically".into()),
        _ => return Ok(None),
    }
    let flags = word::<4>(header, 4).ok_or_else(short)?;
    let offset = word::<8>(header, 8).ok_or_else(short)?;
    let start = word::<8>(header, 24).ok_or_else(short)?;
    let in_file = word::<8>(header, 32).ok_or_else(short)?;
    let len = word::<8>(header, 40).ok_or_else(short)?;
    if len == 0 {
        return Ok(None);
    }
    if offset.checked_add(in_file).is_none_or(|end| end > file) || in_file > len {
        return Err(format!("its segment at {start:#x} is cut off"));
    }
    if start.checked_add(len).is_none_or(|end| end > u64::MAX - PAGE) {
        return Err(format!("its segment at {start:#x} ends beyond all addresses"));
    }
    Ok(Some(Segment { start, len, write: flags & 2 != 0, execute: flags & 1 != 0 }))
}

/// Finds two segments with different rights on one page, or with bytes in common.
#[must_use]
pub fn clash(segments: &[Segment]) -> Option<(Segment, Segment)> {
    let pages = |s: &Segment| (s.start / PAGE, (s.start + s.len - 1) / PAGE);
    for (index, one) in segments.iter().enumerate() {
        for other in &segments[index + 1..] {
            let ((a, b), (c, d)) = (pages(one), pages(other));
            let rights = |s: &Segment| (s.write, s.execute);
            if a <= d && c <= b && rights(one) != rights(other) {
                return Some((*one, *other));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ELF: (&str, u16) = ("test", 62);

    #[test]
    fn a_program_for_another_processor_is_refused() {
        let mut bytes = b"\x7fELF\x02\x01".to_vec();
        bytes.resize(64, 0);
        bytes[18..20].copy_from_slice(&[0x7E, 0xFA]);
        let why = program(&bytes, ELF).unwrap_err();
        assert_eq!(why, "it is for machine 64126, test is 62");
        // The next thing is looked at.
        assert_eq!(
            program(&bytes, ("odd", 0xFA7E)).unwrap_err(),
            "its type is 0, an executable's is 2"
        );
    }

    /// A vmlinux with two segments, an entry, and a note of this owner.
    fn vmlinux(owner: &str, entry: u64, last: u64) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01".to_vec();
        bytes.resize(64 + 3 * 56, 0);
        let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        put(16, 2 | 62 << 16);
        put(24, entry);
        put(32, 64);
        put(54, 56 | 3 << 16);
        let notes = 64 + 3 * 56;
        for (index, kind, start, len) in
            [(0, PT_LOAD, 16 << 20, 4096), (1, PT_LOAD, last, 8192), (2, PT_NOTE, 0, 0)]
        {
            let at = 64 + index * 56;
            put(at, kind | 5 << 32);
            put(at + 24, start);
            put(at + 40, len);
        }
        put(64 + 2 * 56 + 8, notes as u64);
        put(64 + 2 * 56 + 32, 40);
        let note = |owner: &str| {
            let mut note = [owner.len() as u32 + 1, 4, 0x101].map(u32::to_le_bytes).concat();
            note.extend(owner.as_bytes());
            note.resize(20, 0);
            note
        };
        // One with content comes first.
        for note in [note("Xen"), note(owner)] {
            bytes.extend(note);
        }
        bytes[notes + 16..notes + 20].fill(7);
        bytes
    }

    #[test]
    fn a_vmlinux_is_known_by_its_note() {
        let found = Kernel { load: 16 << 20, init_size: 2 << 20 | 8192, cmdline: 2047 };
        assert_eq!(kernel(&vmlinux("Linux", 16 << 20, 18 << 20), ELF), Ok(found));
        let refused = |bytes: &[u8]| kernel(bytes, ELF).unwrap_err();
        assert!(
            refused(&vmlinux("Linus", 16 << 20, 18 << 20)).contains("without the note `Linux`")
        );
        assert_eq!(
            refused(&vmlinux("Linux", 17 << 20, 18 << 20)),
            "its entry 0x1100000 is in none of its segments"
        );
        for last in [0x8000, (4 << 30) - 4096] {
            assert!(refused(&vmlinux("Linux", 16 << 20, last)).contains("not within 0x100000 to"));
        }
    }

    /// One that begins in the middle of a page takes a page more than its length has.
    #[test]
    fn a_segment_takes_all_pages_that_it_touches() {
        let pages = |start, len| {
            let segment = Segment { start, len, write: false, execute: false };
            (segment.pages().start, segment.pages().len)
        };
        assert_eq!(pages(2 * PAGE, PAGE), (2 * PAGE, PAGE));
        assert_eq!(pages(2 * PAGE + 8, PAGE), (2 * PAGE, 2 * PAGE));
        assert_eq!(pages(3 * PAGE - 1, 2), (2 * PAGE, 2 * PAGE));
    }

    proptest! {
        #[test]
        fn no_file_panics(bytes: Vec<u8>) {
            let _ = (kernel(&bytes, ELF), program(&bytes, ELF), with_symbols(&bytes, ELF));
        }

        /// Whatever the section headers, the string table's index and its content say.
        #[test]
        fn no_symbol_table_panics(
            fields in prop::array::uniform4(0u64..300),
            words in prop::array::uniform4(any::<u64>()),
            link: u16,
            tail in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut bytes = vec![0; 64];
            bytes[40..48].copy_from_slice(&64u64.to_le_bytes());
            bytes[60] = 3;
            for (offset, word) in [(fields[0], fields[1]), (fields[2], fields[3]), (words[0], words[1])] {
                let mut header = [0; 64];
                header[4] = 2 + (word % 2) as u8;
                header[24..32].copy_from_slice(&offset.to_le_bytes());
                header[32..40].copy_from_slice(&word.to_le_bytes());
                header[40..42].copy_from_slice(&(link % 4).to_le_bytes());
                bytes.extend(header);
            }
            bytes.extend(tail);
            let _ = symbols(&bytes);
        }

        #[test]
        fn no_elf_panics(tail in prop::collection::vec(any::<u8>(), 0..400), count: u16, table in 0u64..300) {
            let mut bytes = b"\x7fELF\x02\x01".to_vec();
            bytes.resize(64, 0);
            bytes[16] = 2;
            bytes[18] = 62;
            bytes[32..40].copy_from_slice(&table.to_le_bytes());
            bytes[54] = 56;
            bytes[56..58].copy_from_slice(&count.to_le_bytes());
            bytes.extend(tail);
            let _ = program(&bytes, ELF).map(|program| clash(&program.segments));
        }

        /// A vmlinux' notes and program headers say anything.
        #[test]
        fn no_vmlinux_panics(at in 0usize..300, word: u64, len in 0usize..300) {
            let mut bytes = vmlinux("Linux", 16 << 20, 18 << 20);
            if let Some(field) = bytes.get_mut(at..at + 8) {
                field.copy_from_slice(&word.to_le_bytes());
            }
            let _ = kernel(&bytes, ELF);
            bytes.truncate(len);
            let _ = kernel(&bytes, ELF);
        }

        #[test]
        fn no_kernel_panics(head in prop::collection::vec(any::<u8>(), 0x200..0x270)) {
            let mut bytes = head;
            if bytes.len() >= 0x208 {
                bytes[0x202..0x206].copy_from_slice(b"HdrS");
                bytes[0x206..0x208].copy_from_slice(&0x20Fu16.to_le_bytes());
            }
            let _ = kernel(&bytes, ELF);
        }
    }
}
