//! Static 64-bit ELF programs: boot code, monitors, bare guests.

use crate::Error;
use bulkhead_arch::Rights;
use object::elf::{FileHeader64, PF_W, PF_X, PT_LOAD, PT_TLS};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol};

/// A loadable segment.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Address.
    pub address: u64,
    /// Physical address: another one in a kernel that maps itself elsewhere.
    pub physical: u64,
    /// Contents from the file.
    pub bytes: Vec<u8>,
    /// Size in memory; zeros after `bytes`.
    pub size: u64,
    /// Rights.
    pub rights: Rights,
}

/// Thread-local storage: its initial contents.
#[derive(Clone, Debug, Default)]
pub struct Local {
    /// Contents from the file.
    pub bytes: Vec<u8>,
    /// Size in memory; zeros after `bytes`.
    pub size: u64,
    /// Alignment of its address: a power of two.
    pub align: u64,
}

impl Local {
    /// Greatest alignment: a page.
    const MOST: u64 = 4096;
}

/// A program.
#[derive(Clone, Debug)]
pub struct Program {
    /// First instruction.
    pub entry: u64,
    /// Its segments, ascending, none empty.
    pub segments: Vec<Segment>,
    /// Thread-local storage; empty without such a segment.
    pub local: Option<Local>,
    data: Vec<u8>,
}

impl Program {
    /// Reads one.
    pub fn parse(name: &str, data: &[u8]) -> Result<Self, Error> {
        let wrong = |what: &str| Error::Program(format!("{name}: {what}"));
        let header = FileHeader64::<Endianness>::parse(data)
            .map_err(|e| wrong(&format!("no 64-bit ELF: {e}")))?;
        let endian = header.endian().map_err(|e| wrong(&e.to_string()))?;
        let headers = header.program_headers(endian, data).map_err(|e| wrong(&e.to_string()))?;
        let mut segments = Vec::new();
        for h in headers.iter().filter(|h| h.p_type(endian) == PT_LOAD && h.p_memsz(endian) > 0) {
            let bytes =
                h.data(endian, data).map_err(|()| wrong("a segment reaches beyond the file"))?;
            let (start, size) = (h.p_vaddr(endian), h.p_memsz(endian));
            let physical = h.p_paddr(endian);
            let ends = start.checked_add(size).and(physical.checked_add(size)).is_some();
            if bytes.len() as u64 > size || !ends {
                return Err(wrong("a segment is smaller than its bytes, or has no end"));
            }
            let flags = h.p_flags(endian);
            segments.push(Segment {
                address: start,
                physical,
                bytes: bytes.to_vec(),
                size,
                rights: Rights { write: flags.0 & PF_W.0 != 0, execute: flags.0 & PF_X.0 != 0 },
            });
        }
        segments.sort_by_key(|s| s.address);
        if segments.is_empty() {
            return Err(wrong("no loadable segment"));
        }
        let mut local = None;
        for h in headers.iter().filter(|h| h.p_type(endian) == PT_TLS && h.p_memsz(endian) > 0) {
            let bytes =
                h.data(endian, data).map_err(|()| wrong("thread-local data beyond the file"))?;
            let (size, align) = (h.p_memsz(endian), h.p_align(endian).max(1));
            if bytes.len() as u64 > size || !align.is_power_of_two() || align > Local::MOST {
                return Err(wrong(
                    "thread-local data that are smaller than their bytes, or aligned beyond a page",
                ));
            }
            local = Some(Local { bytes: bytes.to_vec(), size, align });
        }
        Ok(Self { entry: header.e_entry(endian), segments, local, data: data.to_vec() })
    }

    /// Address of a symbol.
    pub fn symbol(&self, name: &str) -> Result<u64, Error> {
        let file = object::File::parse(&*self.data).map_err(|e| Error::Program(e.to_string()))?;
        file.symbols()
            .find(|s| s.name() == Ok(name))
            .map(|s| s.address())
            .ok_or_else(|| Error::Program(format!("the program has no symbol {name}")))
    }

    /// First address and bytes in memory, gaps zeroed.
    pub fn flat(&self) -> (u64, Vec<u8>) {
        let start = self.segments[0].address;
        let end = self.segments.iter().map(|s| s.address + s.size).max().unwrap_or(start);
        let mut bytes = vec![0; (end - start) as usize];
        for s in &self.segments {
            let at = (s.address - start) as usize;
            bytes[at..at + s.bytes.len()].copy_from_slice(&s.bytes);
        }
        (start, bytes)
    }
}

/// Bytes of a section of an ELF file.
///
/// # Errors
/// [`Error::Program`]: it is no such file, or has no such section.
pub fn section_len(name: &str, data: &[u8], section: &str) -> Result<u64, Error> {
    let wrong = |what: String| Error::Program(format!("{name}: {what}"));
    let file = object::File::parse(data).map_err(|e| wrong(e.to_string()))?;
    let found = file.section_by_name(section).map(|section| section.size());
    found.ok_or_else(|| wrong(format!("no section {section}")))
}
