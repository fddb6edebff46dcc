//! Keeps a log of the flight for later readers, in the time that is left.
//!
//! Arguments:
//!
//! * `every=N` prints a line each N seconds; without it none;
//! * `file=NAME` keeps lines in a file on a disk, through the endpoint `files` and the memory `lines`
//!   (`files_programs`); without it none;
//! * `each=N` (default 80): releases that a line of the file is about;
//! * `lines=N` (default 40): says so when that many are on the disk. The file goes on.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::Program;
use core::fmt::{self, Write as _};
use core::sync::atomic::Ordering;
use files_programs::client::{File, Files};
use files_programs::{END, Mode, Status};
use flight_programs::recorder;

bulkhead_program::entry!(logger);

/// Bytes of a line in the file.
const LINE: usize = 64;

/// Worst values of some releases.
#[derive(Clone, Copy, Default)]
struct Worst {
    /// Microradians.
    error: u64,
    /// Nanoseconds.
    late: u64,
}

impl Worst {
    fn enter(&mut self, (error, late): (u64, u64)) {
        *self = Self { error: self.error.max(error), late: self.late.max(late) };
    }

    /// Ends a count, and begins the next one.
    fn take(&mut self) -> Self {
        core::mem::take(self)
    }
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error at most {}.{:03} mrad", self.error / 1_000, self.error % 1_000)
    }
}

/// The log's file.
struct Kept {
    files: Files,
    file: File,
    /// Lines so far.
    lines: u64,
    /// Number of lines to tell of.
    told: u64,
}

impl Kept {
    /// Opens the file of the arguments, if they have one. It waits until there is a disk.
    fn open(program: Program) -> Option<Self> {
        let name = program.arg("file")?;
        let files = Files::new(program, "files", "lines");
        match files.open(name, Mode::Write) {
            Ok(file) => {
                Some(Self { files, file, lines: 0, told: program.number("lines").unwrap_or(40) })
            }
            Err(status) => {
                log::warn!("no file {name}: {status:?}");
                None
            }
        }
    }

    /// Appends a line. It is on the disk when this returns.
    fn append(&mut self, number: u64, worst: Worst) -> Result<(), Status> {
        let mut line = Line { bytes: [b' '; LINE], len: 0 };
        // A line that is too long is cut off.
        let _ = write!(line, "{number} releases, {worst}, {} ns late", worst.late);
        line.bytes[LINE - 1] = b'\n';
        let (words, _) = line.bytes.as_chunks::<8>();
        for (place, word) in self.files.words().iter().zip(words) {
            place.store(u64::from_le_bytes(*word), Ordering::Relaxed);
        }
        self.file.write(END, 0, LINE)?;
        self.file.flush()?;
        self.lines += 1;
        if self.lines == self.told {
            log::info!("{} lines of the log are on the disk", self.lines);
        }
        Ok(())
    }
}

/// Text of one length.
struct Line {
    bytes: [u8; LINE],
    len: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.len..LINE - 1];
        let len = text.len().min(room.len());
        room[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}

fn logger(program: Program) -> u32 {
    program.log();
    let every = program.number("every").map_or(u64::MAX, |seconds| (seconds * 1_000).max(1));
    let each = program.number("each").unwrap_or(80).max(1);
    let (more, words) = (program.waits("recorded"), program.memory("recorder").words());
    let mut kept = Kept::open(program);
    let (mut seen, mut shown, mut line) = (0, Worst::default(), Worst::default());
    while more.wait().is_ok() {
        let count = recorder::count(words);
        // Those that have been overwritten are lost.
        seen = seen.max(count.saturating_sub(recorder::ENTRIES));
        for number in seen..count {
            let values = recorder::get(words, number);
            shown.enter(values);
            line.enter(values);
            if (number + 1) % each == 0
                && let Some(log) = &mut kept
                && let Err(status) = log.append(number + 1, line.take())
            {
                log::warn!("the log ends after {} lines: {status:?}", log.lines);
                kept = None;
            }
            if (number + 1) % every == 0 {
                let worst = shown.take();
                log::info!("{} releases, {worst}", number + 1);
                log::debug!("at most {} ns late", worst.late);
            }
        }
        seen = count;
    }
    0
}
