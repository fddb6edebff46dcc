//! A bare program as another sandbox loads it: a head, then its memory from [`PROGRAM_GPA`] on.

use crate::Error;
use crate::elf::Program;
use bulkhead_layout::load::{Head, MAGIC, PROGRAM_GPA, sum};
use zerocopy::IntoBytes;

/// An ELF file as a packed program. What is zero at its end is left out: memory is zeroed before.
///
/// # Errors
/// [`Error::Program`]: it is no such file, or linked below [`PROGRAM_GPA`].
pub fn pack(name: &str, elf: &[u8]) -> Result<Vec<u8>, Error> {
    let program = Program::parse(name, elf)?;
    let (start, bytes) = program.flat();
    let Some(lead) = start.checked_sub(PROGRAM_GPA) else {
        let why =
            format!("{name}: it is linked at {start:#x}, and would lie from {PROGRAM_GPA:#x} on");
        return Err(Error::Program(why));
    };
    let mut all = vec![0; lead as usize];
    all.extend(bytes);
    all.truncate(all.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    all.resize(all.len().next_multiple_of(8), 0);
    let words: Vec<u64> = all.chunks_exact(8).map(word).collect();
    let (len, entry) = (all.len() as u64, program.entry);
    let head = Head { magic: MAGIC, len, entry, sum: sum(&words) };
    if !head.fits(u64::MAX) {
        return Err(Error::Program(format!("{name}: its entry {entry:#x} is outside of it")));
    }
    Ok([head.as_bytes(), &all].concat())
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}
