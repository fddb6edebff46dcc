//! Builds and walks translation tables of any [`PageFormat`], with the largest
//! pages that fit.

use crate::{Entry, Memory, PageFormat, Rights};

/// Where tables live while they are built: the host's copy of the image.
pub trait TableMemory {
    /// A new table of `bytes`, aligned to them, all entries zero; its physical
    /// address. `None` when the space set aside is used up.
    fn alloc(&mut self, bytes: u64) -> Option<u64>;
    /// Entry `index` of the table at `pa`.
    fn read(&self, pa: u64, index: usize) -> u64;
    /// Sets entry `index` of the table at `pa`.
    fn write(&mut self, pa: u64, index: usize, entry: u64);
}

/// A range of addresses to be mapped.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// First address of the range.
    pub va: u64,
    /// Physical address behind it.
    pub pa: u64,
    /// Bytes.
    pub len: u64,
    /// Rights to it.
    pub rights: Rights,
    /// Type of the memory.
    pub memory: Memory,
}

/// Translation of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Physical address.
    pub pa: u64,
    /// Rights of its page.
    pub rights: Rights,
    /// Memory type of its page.
    pub memory: Memory,
    /// Bytes of its page.
    pub size: u64,
}

/// Why a mapping could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// Address or length is no multiple of a page, or beyond the format's reach.
    Misaligned(u64),
    /// Something is mapped there already.
    Overlap(u64),
    /// No space for another table.
    NoTable,
}

/// Entries of a table.
#[must_use]
pub const fn entries<F: PageFormat>() -> usize {
    F::PAGE as usize / 8
}

const fn size<F: PageFormat>(level: u32) -> u64 {
    F::PAGE << (entries::<F>().ilog2() * level)
}

const fn index<F: PageFormat>(va: u64, level: u32) -> usize {
    (va / size::<F>(level)) as usize & (entries::<F>() - 1)
}

/// Returns a fresh root table.
///
/// # Errors
/// [`MapError::NoTable`].
fn fresh<F: PageFormat>(memory: &mut impl TableMemory) -> Result<u64, MapError> {
    let pa = memory.alloc(F::PAGE).ok_or(MapError::NoTable)?;
    for i in 0..entries::<F>() {
        memory.write(pa, i, F::empty());
    }
    Ok(pa)
}

/// Maps a range below `root` (a new root where it is `None`) and returns the root.
///
/// # Errors
/// See [`MapError`]; what was mapped before the error stays.
pub fn map<F: PageFormat>(
    memory: &mut impl TableMemory,
    root: Option<u64>,
    run: Run,
) -> Result<u64, MapError> {
    let Run { mut va, mut pa, len, rights, memory: kind } = run;
    let root = match root {
        Some(root) => root,
        None => fresh::<F>(memory)?,
    };
    if (va | pa | len) % F::PAGE != 0 {
        return Err(MapError::Misaligned(va | pa | len));
    }
    let mut left = len;
    while left > 0 {
        let mut level = F::LARGEST;
        while (va | pa) % size::<F>(level) != 0 || left < size::<F>(level) {
            level -= 1;
        }
        set::<F>(memory, root, va, level, F::page(pa, rights, kind, level))?;
        va = va.wrapping_add(size::<F>(level));
        pa += size::<F>(level);
        left -= size::<F>(level);
    }
    Ok(root)
}

/// Stores a page entry for `va` at `level`, making the tables above it.
fn set<F: PageFormat>(
    memory: &mut impl TableMemory,
    root: u64,
    va: u64,
    level: u32,
    entry: u64,
) -> Result<(), MapError> {
    let mut table = root;
    for above in (level + 1..F::LEVELS).rev() {
        let i = index::<F>(va, above);
        table = match F::decode(memory.read(table, i), above) {
            Entry::Table(next) => next,
            Entry::Page(..) => return Err(MapError::Overlap(va)),
            Entry::Empty => {
                let next = fresh::<F>(memory)?;
                memory.write(table, i, F::table(next, above - 1));
                next
            }
        };
    }
    let i = index::<F>(va, level);
    if F::decode(memory.read(table, i), level) != Entry::Empty {
        return Err(MapError::Overlap(va));
    }
    memory.write(table, i, entry);
    Ok(())
}

/// Finds the table with the smallest pages around `va`: its physical address.
pub fn lowest<F: PageFormat>(memory: &impl TableMemory, root: u64, va: u64) -> Option<u64> {
    let mut table = root;
    for level in (1..F::LEVELS).rev() {
        let Entry::Table(next) = F::decode(memory.read(table, index::<F>(va, level)), level) else {
            return None;
        };
        table = next;
    }
    Some(table)
}

/// Returns where `va` leads.
pub fn walk<F: PageFormat>(memory: &impl TableMemory, root: u64, va: u64) -> Option<Leaf> {
    let mut table = root;
    for level in (0..F::LEVELS).rev() {
        match F::decode(memory.read(table, index::<F>(va, level)), level) {
            Entry::Empty => return None,
            Entry::Table(next) => table = next,
            Entry::Page(pa, rights, memory) => {
                let size = size::<F>(level);
                let pa = pa + va % size;
                return Some(Leaf { pa, rights, memory, size });
            }
        }
    }
    None
}

/// Calls `each` with the first address of each page that is mapped below `root`, and with its translation.
pub fn leaves<F: PageFormat>(
    memory: &impl TableMemory,
    root: u64,
    each: &mut impl FnMut(u64, Leaf),
) {
    below::<F>(memory, root, F::LEVELS - 1, 0, each);
}

fn below<F: PageFormat>(
    memory: &impl TableMemory,
    table: u64,
    level: u32,
    start: u64,
    each: &mut impl FnMut(u64, Leaf),
) {
    let size = size::<F>(level);
    for i in 0..entries::<F>() {
        let va = start.wrapping_add(size.wrapping_mul(i as u64));
        match F::decode(memory.read(table, i), level) {
            Entry::Empty => {}
            Entry::Table(next) => below::<F>(memory, next, level - 1, va, each),
            Entry::Page(pa, rights, memory) => each(va, Leaf { pa, rights, memory, size }),
        }
    }
}
