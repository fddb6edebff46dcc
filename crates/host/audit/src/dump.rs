//! A dump of a machine in a folder: `registers.json` ([`crate::Registers`]) and its memory. The memory is `memory.elf`
//! (an ELF core, as QEMU's `dump-guest-memory` writes it) or `memory.raw`. In `memory.raw`, all pieces of RAM lie right
//! behind each other.

use crate::claim::Range;
use crate::{Memory, RamFile, Registers};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const REGISTERS: &str = "registers.json";
const CORE: &str = "memory.elf";
const RAW: &str = "memory.raw";

/// Reads a dump. `banks`: RAM in the order of a raw file.
///
/// # Errors
/// Which file cannot be read, and why.
pub fn load(folder: &Path, banks: &[Range]) -> Result<(Registers, RamFile), String> {
    let path = folder.join(REGISTERS);
    let wrong = |path: &Path, why: String| format!("{}: {why}", path.display());
    let text = std::fs::read_to_string(&path).map_err(|e| wrong(&path, e.to_string()))?;
    let registers = serde_json::from_str(&text).map_err(|e| wrong(&path, e.to_string()))?;
    let (core, raw) = (folder.join(CORE), folder.join(RAW));
    let memory = if core.exists() {
        RamFile::core(&core).map_err(|e| wrong(&core, e.to_string()))?
    } else {
        RamFile::flat(&raw, banks).map_err(|e| wrong(&raw, e.to_string()))?
    };
    Ok((registers, memory))
}

/// Writes a dump with raw memory; what was never written stays a hole.
///
/// # Errors
/// Which file cannot be written, and why.
pub fn save(folder: &Path, registers: &Registers, memory: &RamFile) -> Result<(), String> {
    let wrong = |path: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    std::fs::create_dir_all(folder).map_err(|e| wrong(folder, &e))?;
    let path = folder.join(REGISTERS);
    let text = serde_json::to_string_pretty(registers).map_err(|e| wrong(&path, &e))?;
    std::fs::write(&path, text + "\n").map_err(|e| wrong(&path, &e))?;
    // An older dump's core would be taken for this one's memory.
    let _ = std::fs::remove_file(folder.join(CORE));
    let path = folder.join(RAW);
    let file = File::create(&path).map_err(|e| wrong(&path, &e))?;
    let pieces = memory.ranges();
    let len = pieces.iter().map(|p| p.len).sum();
    file.set_len(len).map_err(|e| wrong(&path, &e))?;
    let mut frame = vec![0; 4096];
    for range in memory.data() {
        for at in (range.start..range.end()).step_by(frame.len()) {
            let before = pieces.iter().take_while(|p| p.end() <= at).map(|p| p.len).sum::<u64>();
            let piece = pieces.iter().find(|p| p.contains(at));
            let offset = piece.map_or(0, |p| before + (at - p.start));
            if memory.read(at, &mut frame) {
                file.write_all_at(&frame, offset).map_err(|e| wrong(&path, &e))?;
            }
        }
    }
    Ok(())
}
