//! RAM in the memory of a Bochs. It has no file with it; its debugger writes linear addresses only. Bochs allocates
//! RAM in blocks of 128 KiB when a guest first touches them, one after the other. It keeps their addresses in a
//! table by physical address (`BX_MEM_C::blocks` in its `memory/misc_mem.cc`). That table is found by its contents:
//! no other array has the addresses of consecutive blocks, each once, and nothing else.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

const BLOCK: u64 = 128 << 10;
const WORD: u64 = 8;
/// Blocks that a firmware has touched before it boots anything, at least: below 1 MiB.
const FEWEST: usize = 6;

/// See the module.
#[derive(Debug)]
pub struct Blocks {
    process: u32,
    size: u64,
    /// Address of the table, once it was found.
    table: OnceLock<u64>,
}

impl Blocks {
    /// Makes the reader of a process with so many bytes of RAM.
    pub fn new(process: u32, size: u64) -> Self {
        Self { process, size, table: OnceLock::new() }
    }

    /// Reads RAM; zeros where no block was touched yet.
    pub fn read(&self, memory: &File, mut pa: u64, mut buffer: &mut [u8]) -> io::Result<()> {
        let table = match self.table.get() {
            Some(table) => *table,
            None => {
                let missing =
                    || io::Error::new(io::ErrorKind::NotFound, "its table of RAM is not there yet");
                let found = self.find(memory)?.ok_or_else(missing)?;
                *self.table.get_or_init(|| found)
            }
        };
        while !buffer.is_empty() {
            let within = pa % BLOCK;
            let len = buffer.len().min((BLOCK - within) as usize);
            let (now, rest) = buffer.split_at_mut(len);
            let mut block = [0; WORD as usize];
            memory.read_exact_at(&mut block, table + pa / BLOCK * WORD)?;
            match u64::from_le_bytes(block) {
                0 => now.fill(0),
                block => memory.read_exact_at(now, block + within)?,
            }
            (pa, buffer) = (pa + len as u64, rest);
        }
        Ok(())
    }

    /// Looks for the table in all memory but the RAM itself.
    fn find(&self, memory: &File) -> io::Result<Option<u64>> {
        let entries = (self.size / BLOCK) as usize;
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.process))?;
        let all = maps.lines().filter_map(writable);
        for (start, end) in all.flat_map(|range| beside(range, self.size)) {
            if end - start < entries as u64 * WORD {
                continue;
            }
            let mut bytes = vec![0; (end - start) as usize];
            // A part of it may be gone meanwhile.
            if memory.read_exact_at(&mut bytes, start).is_err() {
                continue;
            }
            let words = bytes.chunks_exact(WORD as usize);
            let words: Vec<u64> = words
                .map(|word| word.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
                .collect();
            if let Some(at) = table(&words, entries) {
                return Ok(Some(start + at as u64 * WORD));
            }
        }
        Ok(None)
    }
}

/// Returns the parts of a range of addresses that may lie beside the RAM: all of a small one, both ends of a large one.
fn beside((start, end): (u64, u64), ram: u64) -> impl Iterator<Item = (u64, u64)> {
    let more = (end - start).checked_sub(ram);
    let parts = match more {
        None => [(start, end), (end, end)],
        Some(more) => [(start, start + more), (end - more, end)],
    };
    parts.into_iter()
}

/// Start and end of private memory that may be written, by a line of `maps`.
fn writable(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    fields.next().filter(|rights| rights.starts_with("rw"))?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// Finds where a table of so many entries begins. Its first block is always in use: vectors of the firmware.
fn table(words: &[u64], entries: usize) -> Option<usize> {
    (1..(words.len() + 1).saturating_sub(entries)).find(|&at| {
        let first = words[at];
        // Before it stands the allocator's word.
        first != 0 && first.is_multiple_of(4096) && is_table(&words[at..at + entries])
    })
}

fn is_table(words: &[u64]) -> bool {
    let used = words.iter().filter(|word| **word != 0);
    let alike = |word: &u64| *word % BLOCK == words[0] % BLOCK;
    if !used.clone().all(alike) {
        return false;
    }
    let mut used: Vec<u64> = used.copied().collect();
    used.sort_unstable();
    used.len() >= FEWEST && used.windows(2).all(|two| two[1] - two[0] == BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAM: u64 = 0x7F00_0000_3000;

    /// Returns the words of a process: a table of 64 entries at 100, the blocks in the order of their first use.
    fn memory() -> Vec<u64> {
        let mut words = vec![0; 400];
        (0..90).for_each(|n| words[n] = RAM + n as u64 * 64);
        words[99] = 64 * 8 + 17;
        for (n, at) in [0, 7, 6, 5, 1, 2, 3, 4, 33].into_iter().enumerate() {
            words[100 + at] = RAM + n as u64 * BLOCK;
        }
        words[170] = 42;
        words
    }

    #[test]
    fn the_table_of_blocks_is_found_by_its_contents() {
        assert_eq!(table(&memory(), 64), Some(100));
        for (at, planted) in [(103, RAM), (104, RAM + 100 * BLOCK), (105, 1), (106, RAM + 64)] {
            let mut words = memory();
            words[at] = planted;
            assert_eq!(table(&words, 64), None, "{at}");
        }
        assert_eq!(table(&[0; 300], 64), None);
    }

    #[test]
    fn the_ram_itself_is_not_searched() {
        let parts = |range| beside(range, 0x1000).collect::<Vec<_>>();
        assert_eq!(parts((0x100, 0x900)), [(0x100, 0x900), (0x900, 0x900)]);
        assert_eq!(parts((0x1000, 0x2300)), [(0x1000, 0x1300), (0x2000, 0x2300)]);
    }

    #[test]
    fn only_memory_that_may_be_written_is_looked_at() {
        let line = "55ff00000000-55ff00021000 rw-p 00000000 00:00 0   [heap]";
        assert_eq!(writable(line), Some((0x55FF_0000_0000, 0x55FF_0002_1000)));
        assert_eq!(writable("7f00-7f10 r-xp 00000000 fe:00 1 /usr/bin/bochs-bin"), None);
        assert_eq!(writable(""), None);
    }
}
