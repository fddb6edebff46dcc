//! ELF files for a processor that no toolchain knows: segments and absolute symbols.

use crate::target::FACTS;
use bulkhead_arch::Rights;

const HEADER: usize = 64;
const PROGRAM: usize = 56;
const SECTION: usize = 64;

/// Makes a file: its first instruction, segments by address, symbols by name.
#[must_use]
pub fn file(entry: u64, segments: &[(u64, Rights, &[u8])], symbols: &[(&str, u64)]) -> Vec<u8> {
    file_with(entry, segments, symbols, None)
}

/// Makes a file with thread-local data: bytes, and the alignment.
#[must_use]
pub fn file_with(
    entry: u64,
    segments: &[(u64, Rights, &[u8])],
    symbols: &[(&str, u64)],
    local: Option<(&[u8], u64)>,
) -> Vec<u8> {
    let mut names = vec![0u8];
    // The first symbol is none (System V ABI, 4.19).
    let mut table = vec![0u8; 24];
    for (name, value) in symbols {
        const GLOBAL_ABSOLUTE: [u8; 4] = [1 << 4, 0, 0xF1, 0xFF];
        table.extend((names.len() as u32).to_le_bytes());
        table.extend(GLOBAL_ABSOLUTE);
        table.extend([*value, 0].iter().flat_map(|word| word.to_le_bytes()));
        names.extend(name.bytes().chain([0]));
    }
    let headers = segments.len() + usize::from(local.is_some());
    let contents = HEADER + PROGRAM * headers;
    let own = local.map_or(&[][..], |(bytes, _)| bytes);
    let bytes = segments.iter().map(|(_, _, bytes)| bytes.len()).sum::<usize>() + own.len();
    let (table_at, names_at) = (contents + bytes, contents + bytes + table.len());
    let sections_at = (names_at + names.len()).next_multiple_of(8);

    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let half = |value: usize| (value as u16).to_le_bytes();
    let words =
        |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    // Executable, of a machine that does not exist, version 1.
    file.extend([2u16, FACTS.elf.1, 1, 0].iter().flat_map(|half| half.to_le_bytes()));
    file.extend(words(&[entry, HEADER as u64, sections_at as u64]));
    file.extend([0; 4]);
    for value in [HEADER, PROGRAM, headers, SECTION, 3, 2] {
        file.extend(half(value));
    }
    let mut at = contents as u64;
    for (address, rights, bytes) in segments {
        let (execute, write) = (u32::from(rights.execute), u32::from(rights.write));
        let flags = 4 | write << 1 | execute;
        file.extend([1u32, flags].iter().flat_map(|word| word.to_le_bytes()));
        let len = bytes.len() as u64;
        file.extend(words(&[at, *address, *address, len, len, 8]));
        at += len;
    }
    if let Some((bytes, align)) = local {
        const THREAD_LOCAL: [u32; 2] = [7, 4];
        file.extend(THREAD_LOCAL.iter().flat_map(|word| word.to_le_bytes()));
        let len = bytes.len() as u64;
        file.extend(words(&[at, 0, 0, len, len, align]));
    }
    segments.iter().for_each(|(_, _, bytes)| file.extend(*bytes));
    file.extend(own);
    file.extend(&table);
    file.extend(&names);
    file.resize(sections_at + SECTION, 0);
    // Kind, place, bytes, section of names and first global symbol, bytes of an entry.
    for (kind, at, len, links, each) in
        [(2u32, table_at, table.len(), 2u64 | 1 << 32, 24u64), (3, names_at, names.len(), 0, 0)]
    {
        file.extend([0, kind].iter().flat_map(|word| word.to_le_bytes()));
        file.extend(words(&[0, 0, at as u64, len as u64, links, 8, each]));
    }
    file
}
