//! A guest at its first instruction: pieces of bytes in its RAM, at guest-physical addresses, and the processor's
//! state.

use crate::Error;
use crate::elf::Program;
use bulkhead_arch::Rights;
use bulkhead_plan::Sandbox;

/// Bytes at a guest-physical address, a multiple of 8.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Where.
    pub gpa: u64,
    /// Content.
    pub bytes: Vec<u8>,
}

/// State of a guest's first core at its first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// First instruction.
    pub pc: u64,
    /// Stack.
    pub sp: u64,
    /// Root of its page tables; 0: it starts without.
    pub tables: u64,
}

/// A guest, ready to be placed.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Contents of its RAM; the rest is zero.
    pub pieces: Vec<Piece>,
    /// First core's state.
    pub entry: Entry,
    /// Second argument of the first instruction.
    pub argument: u64,
    /// Rights to its RAM that differ from `default_rights`: first page, end, rights.
    pub segments: Vec<(u64, u64, Rights)>,
    /// Rights to all other RAM.
    pub default_rights: Rights,
    /// Whole pages that nothing changes while it runs: first address, end.
    pub fixed: Vec<(u64, u64)>,
    /// Bytes for [`bulkhead_layout::info::Info::args`].
    pub args: String,
    /// Where a kernel tells what it does, if it does.
    pub trace: Option<Trace>,
}

/// The ring into which a kernel writes what it does ([`bulkhead_trace::ring`]), and the objects that it tells of, by
/// the order of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Offset in the kernel's memory.
    pub at: u32,
    /// How many records it has.
    pub records: u64,
    /// Offsets of its threads.
    pub threads: Vec<u32>,
    /// Offsets of its contexts.
    pub contexts: Vec<u32>,
    /// Offsets of its notifications.
    pub notifications: Vec<u32>,
    /// Offsets, by thread, of contexts that passive threads begin on, until they wait for messages for the first time.
    pub starts: Vec<(u32, usize)>,
}

impl Trace {
    /// A ring of so many bytes of records, of no objects yet.
    pub fn new(at: u32, bytes: u64) -> Self {
        Self {
            at,
            records: bytes / bulkhead_trace::ring::RECORD,
            threads: Vec::new(),
            contexts: Vec::new(),
            notifications: Vec::new(),
            starts: Vec::new(),
        }
    }
}

/// Ground on which every bare guest of an architecture starts.
pub struct Start {
    /// Its tables, in low memory.
    pub pieces: Vec<Piece>,
    /// End of that memory: programs lie above.
    pub below: u64,
    /// First core's state, but for the first instruction.
    pub entry: Entry,
    /// Second argument of the first instruction.
    pub argument: u64,
    /// Bytes of a page.
    pub page: u64,
}

/// Makes a bare guest of a program, with rights by its segments if they are enforced.
///
/// # Errors
/// The program does not fit in the sandbox' memory.
pub fn bare(
    sandbox: &Sandbox,
    start: Start,
    program: &Program,
    args: &str,
    enforce: bool,
) -> Result<Guest, Error> {
    let Start { mut pieces, below, entry, argument, page } = start;
    let wrong = |what: String| Error::Program(format!("sandbox {}: {what}", sandbox.name));
    let ram = |start: u64, size: u64| {
        sandbox.ram.iter().any(|r| {
            start >= r.gpa && start.checked_add(size).is_some_and(|end| end <= r.gpa + r.len)
        })
    };
    let mut segments: Vec<(u64, u64, Rights)> = Vec::new();
    for s in &program.segments {
        if !ram(s.address, s.size) {
            return Err(wrong(format!(
                "its program needs {:#x} bytes at {:#x}, beyond its memory: more memory, or link it lower",
                s.size, s.address
            )));
        }
        let (first, end) = (s.address / page * page, (s.address + s.size).next_multiple_of(page));
        if first < below {
            return Err(wrong(format!(
                "its program uses {:#x}: addresses below {below:#x} hold its first page tables",
                s.address
            )));
        }
        match segments.last_mut() {
            Some(last) if last.1 > first => {
                // Two segments on one page: the page has the rights of both.
                last.2.write |= s.rights.write;
                last.2.execute |= s.rights.execute;
                last.1 = end;
            }
            _ => segments.push((first, end, s.rights)),
        }
        if !s.bytes.is_empty() {
            let lead = (s.address % 8) as usize;
            let bytes = [vec![0; lead], s.bytes.clone()].concat();
            pieces.push(Piece { gpa: s.address - lead as u64, bytes });
        }
    }
    let fixed = segments.iter().filter(|(.., rights)| enforce && !rights.write);
    Ok(Guest {
        fixed: fixed.map(|&(first, end, _)| (first, end)).collect(),
        pieces,
        entry: Entry { pc: program.entry, ..entry },
        argument,
        segments: if enforce { segments } else { Vec::new() },
        default_rights: if enforce { Rights::RW } else { Rights::RWX },
        args: args.to_string(),
        trace: None,
    })
}
