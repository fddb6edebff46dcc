//! Whether a program is still what was put into the machine: what of a bare guest's
//! memory nobody may write, the guest included, compared with its file.

use bulkhead_audit::segments;
use bulkhead_plan::{Guest, Sandbox};

/// What was found of a sandbox's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Bytes that were compared.
    pub bytes: u64,
    /// The first that differs, as an address of the machine.
    pub changed: Option<u64>,
}

/// Compares; `read` fills a buffer from an address of the machine. `None` where every
/// part of a program can be written, or its file is none.
pub fn program(read: impl Fn(u64, &mut [u8]) -> bool, sandbox: &Sandbox) -> Option<Program> {
    let Guest::Bare { program, enforce_segments: true, .. } = &sandbox.guest else {
        return None;
    };
    let file = std::fs::read(program).ok()?;
    let mut found = Program { bytes: 0, changed: None };
    for segment in segments(&file)?.iter().filter(|s| !s.write) {
        let inside = |r: &&bulkhead_plan::Ram| segment.address.wrapping_sub(r.gpa) < r.len;
        let ram = sandbox.ram.iter().find(inside)?;
        let at = segment.address - ram.gpa + ram.hpa;
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
