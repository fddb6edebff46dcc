//! Compares a program in the machine with its file. For a bare guest this is the memory that nobody may write, the
//! guest included; for a kernel, its own text and constants. The places of a kernel's programs are not known here.

use bulkhead_audit::segments;
use bulkhead_image::kernel_window;
use bulkhead_plan::{Arch, Guest, Sandbox};

/// Findings on a sandbox's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Bytes that were compared.
    pub bytes: u64,
    /// The first that differs, as an address of the machine.
    pub changed: Option<u64>,
}

/// Compares; `read` fills a buffer from an address of the machine. `None` where every
/// part of a program can be written, or its file is none.
pub fn program(
    read: impl Fn(u64, &mut [u8]) -> bool,
    arch: Arch,
    sandbox: &Sandbox,
) -> Option<Program> {
    // A kernel is linked for its window, which begins with the sandbox's memory.
    let (file, base) = match &sandbox.guest {
        Guest::Bare { program, enforce_segments: true, .. } => (program, 0),
        Guest::Kernel(kernel) => {
            (&kernel.file, kernel_window(arch)?.wrapping_sub(sandbox.ram.first()?.gpa))
        }
        _ => return None,
    };
    let file = std::fs::read(file).ok()?;
    let mut found = Program { bytes: 0, changed: None };
    for segment in segments(&file)?.iter().filter(|s| !s.write) {
        let address = segment.address.checked_sub(base)?;
        let inside = |r: &&bulkhead_plan::Ram| address.wrapping_sub(r.gpa) < r.len;
        let ram = sandbox.ram.iter().find(inside)?;
        let at = address - ram.gpa + ram.hpa;
        let mut bytes = vec![0; segment.bytes.len()];
        if !read(at, &mut bytes) {
            return None;
        }
        let differs = bytes.iter().zip(&segment.bytes).position(|(is, was)| is != was);
        found.bytes += bytes.len() as u64;
        found.changed = found.changed.or(differs.map(|n| at + n as u64));
    }
    Some(found)
}
