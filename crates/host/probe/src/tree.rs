//! The files in which Linux tells what it knows, of this machine or from a copy
//! of its `/proc` and `/sys`.

use std::path::{Path, PathBuf};

/// `/`, or the folder that a copy lies in.
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// Returns the tree below a folder.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Returns a file's bytes; `None` if it cannot be read.
    #[must_use]
    pub fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        std::fs::read(self.root.join(path)).ok()
    }

    /// Returns a file's text, without white space at its ends.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = self.bytes(path)?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Returns the names in a folder, sorted.
    #[must_use]
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Returns the last part of what a symbolic link leads to.
    #[must_use]
    pub fn link(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.root.join(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// Tells if there is something of that name.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.root.join(path).symlink_metadata().is_ok()
    }
}

impl Tree {
    /// Returns the kernel's messages, as far as it still has them: of the running kernel
    /// from `/dev/kmsg`, of a copy from the file `dmesg`.
    #[must_use]
    pub fn messages(&self) -> Option<String> {
        use std::io::Read;
        use std::os::unix::fs::OpenOptionsExt;
        if let Some(text) = self.text("dmesg") {
            return Some(text);
        }
        // Without blocking, a read at the end is an error instead of a wait.
        const NONBLOCK: i32 = 0o4000;
        let mut options = std::fs::OpenOptions::new();
        let mut file =
            options.read(true).custom_flags(NONBLOCK).open(self.root.join("dev/kmsg")).ok()?;
        // A message a read, of at most 8 KiB.
        let (mut text, mut buffer) = (String::new(), [0; 8192]);
        while let Ok(len @ 1..) = file.read(&mut buffer) {
            text.push_str(&String::from_utf8_lossy(&buffer[..len]));
        }
        Some(text)
    }
}
