//! Static 64-bit ELF programs: boot code, monitors, bare guests.

use crate::Error;
use bulkhead_arch::Rights;
use object::elf::{self, FileHeader64, PF_W, PF_X, PT_LOAD, PT_TLS};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{
    Endianness, File, Object, ObjectSection, ObjectSymbol, Relocation, RelocationFlags,
    RelocationTarget, SectionFlags,
};

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

    /// Moves the whole program to another address. Returns its bytes in memory, and the addresses there of all fields
    /// that hold an address in it. A field has four or eight bytes. The linker has to keep relocations
    /// (`--emit-relocs`), and `kind` tells their meaning by their numbers.
    ///
    /// # Errors
    /// There are none, or there is one that is not known here.
    pub fn moved(
        &self,
        name: &str,
        to: u64,
        kind: &dyn Fn(u32) -> Relocated,
    ) -> Result<(Vec<u8>, Vec<u64>), Error> {
        let wrong = |what: String| Error::Program(format!("{name}: {what}"));
        let file = File::parse(&*self.data).map_err(|e| wrong(e.to_string()))?;
        let (start, mut bytes) = self.flat();
        let end = start + bytes.len() as u64;
        let loaded = |section: &object::Section| match section.flags() {
            SectionFlags::Elf { sh_flags, .. } => sh_flags.0 & elf::SHF_ALLOC.0 != 0,
            _ => false,
        };
        let (mut fields, mut any) = (Vec::new(), false);
        for section in file.sections().filter(loaded) {
            for (at, relocation) in section.relocations() {
                any = true;
                let offset = at.checked_sub(start).filter(|_| at < end).unwrap_or(u64::MAX);
                let held = bytes.get(offset as usize..).and_then(|bytes| bytes.first_chunk());
                let held = u64::from(held.map_or(0, |field| u32::from_le_bytes(*field)));
                let len =
                    field(&file, (at, held), &relocation, kind, start..=end).map_err(&wrong)?;
                fields.extend(len.map(|len| (offset, len)));
            }
            if section.name() == Ok(".got") {
                let words = (0..section.size() / 8).map(|n| (section.address() + 8 * n - start, 8));
                fields.extend(words.filter(|word| (start..=end).contains(&read(&bytes, *word))));
            }
        }
        if !any {
            return Err(wrong("it has no relocations: link it with `--emit-relocs`".into()));
        }
        fields.sort_unstable();
        fields.dedup();
        for &(offset, len) in &fields {
            let beyond =
                || wrong(format!("a relocation at {:#x} is outside of it", start + offset));
            let moved = read(&bytes, (offset, len)).wrapping_add(to.wrapping_sub(start));
            let field = bytes.get_mut(offset as usize..).and_then(|bytes| bytes.get_mut(..len));
            field.ok_or_else(beyond)?.copy_from_slice(&moved.to_le_bytes()[..len]);
        }
        Ok((bytes, fields.into_iter().map(|(offset, _)| to + offset).collect()))
    }
}

/// Reads a field of up to eight bytes; 0 if it is not there.
fn read(bytes: &[u8], (offset, len): (u64, usize)) -> u64 {
    let field = bytes.get(offset as usize..).and_then(|bytes| bytes.get(..len)).unwrap_or(&[]);
    field.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// Kind of a relocation, for a program that is moved as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocated {
    /// It is about no field.
    Nothing,
    /// The field of so many bytes holds an address.
    Address(usize),
    /// The field of four bytes holds a distance, or the address itself if the linker has changed the instruction.
    Either,
    /// The field holds the distance of two places.
    Distance,
    /// No kind that is known.
    Unknown,
}

/// Bytes of the field that a relocation is about, if it has to be moved with its program. `held` is its first half,
/// `inside` the program's addresses.
fn field(
    file: &File,
    (at, held): (u64, u64),
    relocation: &Relocation,
    kind: &dyn Fn(u32) -> Relocated,
    inside: std::ops::RangeInclusive<u64>,
) -> Result<Option<usize>, String> {
    let RelocationFlags::Elf { r_type } = relocation.flags() else { return Ok(None) };
    let target = match relocation.target() {
        RelocationTarget::Symbol(index) => file.symbol_by_index(index).map(|s| s.address()).ok(),
        RelocationTarget::Section(index) => file.section_by_index(index).map(|s| s.address()).ok(),
        _ => None,
    };
    let target = target.ok_or_else(|| format!("the relocation at {at:#x} has no target"))?;
    let moves = inside.contains(&target);
    match kind(r_type.0) {
        Relocated::Nothing => Ok(None),
        Relocated::Address(len) => Ok(moves.then_some(len)),
        Relocated::Either => Ok((moves && held == target).then_some(4)),
        // Both ends move together.
        Relocated::Distance if moves => Ok(None),
        Relocated::Distance => {
            Err(format!("the relocation at {at:#x} leads out of it, to {target:#x}"))
        }
        Relocated::Unknown => {
            Err(format!("the relocation at {at:#x} is of a kind that is not known: {}", r_type.0))
        }
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
