//! A sandbox's console on the host: whole in a file, the last of it in memory, neither without a bound. The guest
//! decides how much it prints.

use bulkhead_explain::Untrusted;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

/// Bytes of a console that are kept in memory.
const KEPT: usize = 1 << 20;
/// Bytes of a console that are written to its file.
const FILE: u64 = 256 << 20;
/// Bytes after which a line is shown though it has not ended.
const LINE: usize = 4096;

/// A console.
pub struct Console {
    /// Made when the first byte comes.
    file: Option<File>,
    waiting: Untrusted,
    kept: Untrusted,
    log: Log,
}

/// Where all of a console, or of a serial port, is, as it came: what would control a terminal, too.
#[derive(Clone, Debug)]
pub struct Log {
    /// Title: `console of NAME`, `serial port N`.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// Bytes that came, as far as anybody has seen them.
    pub bytes: u64,
    /// Bytes among them that are not in the file, because it was full or could not be written.
    pub cut: u64,
    /// Bytes besides that a ring had lost before they were read.
    pub lost: u64,
}

impl Console {
    /// Returns a sandbox's console, with its file in a folder. Names have letters, digits and hyphens only.
    pub fn new(folder: &std::path::Path, name: &str) -> Self {
        let path = folder.join(format!("console-{name}.log"));
        // Another run's is not this one's.
        let _ = std::fs::remove_file(&path);
        let log = Log { name: format!("console of {name}"), path, bytes: 0, cut: 0, lost: 0 };
        Self { file: None, waiting: Untrusted::default(), kept: Untrusted::default(), log }
    }

    /// Takes what came; before it, so many bytes were lost.
    pub fn take(&mut self, text: &Untrusted, lost: u64) {
        self.log.lost += lost;
        let bytes = text.bytes();
        if bytes.is_empty() {
            return;
        }
        self.waiting.push(bytes);
        self.kept.push(bytes);
        // Twice as much, so that it is not moved for each byte.
        if self.kept.bytes().len() > 2 * KEPT {
            self.kept.keep_last(KEPT);
        }
        self.write(bytes);
    }

    fn write(&mut self, bytes: &[u8]) {
        let log = &mut self.log;
        if self.file.is_none() && log.bytes == 0 {
            self.file = File::create(&log.path).ok();
        }
        let room = FILE.saturating_sub(log.bytes);
        let fits = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let file = self.file.as_mut();
        let written = file.is_some_and(|file| file.write_all(&bytes[..fits]).is_ok());
        let written = if written { fits } else { 0 };
        log.bytes += bytes.len() as u64;
        log.cut += (bytes.len() - written) as u64;
    }

    /// Whole lines that were not shown yet.
    pub fn news(&mut self) -> Untrusted {
        self.waiting.take_lines(LINE)
    }

    /// Text not shown yet that no line end follows.
    pub fn rest(&mut self) -> Untrusted {
        self.waiting.take_lines(0)
    }

    /// Returns the last lines of what came.
    pub fn last(&self, lines: usize) -> Vec<String> {
        self.kept.last(lines)
    }

    /// Returns the end of it, and where all of it is.
    pub fn finish(mut self) -> (Untrusted, Log) {
        self.kept.keep_last(KEPT);
        (self.kept, self.log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_the_file_has_it_all() {
        let folder = std::env::temp_dir().join(format!("bulkhead-console-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut console = Console::new(&folder, "flood");
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        for n in 0..5 * 1024 {
            console.take(&Untrusted::new(line.clone()), u64::from(n == 7) * 10);
            assert!(console.kept.bytes().len() <= 2 * KEPT + line.len());
            assert_eq!(console.news().lines().count(), 1);
            assert!(console.waiting.is_empty());
        }
        let (kept, log) = console.finish();
        assert_eq!((kept.bytes().len(), log.bytes, log.cut, log.lost), (KEPT, 5 << 20, 0, 10));
        assert_eq!(std::fs::read(&log.path).unwrap(), line.repeat(5 * 1024));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_written_is_told() {
        let mut console = Console::new(std::path::Path::new("/nowhere/at/all"), "none");
        console.take(&Untrusted::new("text"), 0);
        let (kept, log) = console.finish();
        assert_eq!((kept.text().as_str(), log.bytes, log.cut), ("text", 4, 4));
    }
}
