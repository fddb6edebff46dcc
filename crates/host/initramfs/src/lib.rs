//! A writer of cpio archives in the "newc" format, as the Linux kernel unpacks
//! them (`Documentation/driver-api/early-userspace/buffer-format.rst`).
//!
//! Equal entries give equal bytes: they are sorted by path, belong to root and carry no time stamp.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

/// The file at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Directory,
    /// A file with its permission bits and contents.
    File(u32, Vec<u8>),
    /// A symbolic link and where it points to.
    Link(String),
    /// A character device: permission bits, major, minor.
    Device(u32, u32, u32),
}

/// An archive in the making.
#[derive(Clone, Debug, Default)]
pub struct Archive {
    entries: BTreeMap<String, Entry>,
}

impl Archive {
    /// Puts `entry` at `path` (absolute), with the directories that lead to it.
    /// A later entry replaces an earlier one.
    pub fn add(&mut self, path: &str, entry: Entry) {
        let path = path.trim_matches('/');
        for (slash, _) in path.match_indices('/') {
            self.entries.entry(path[..slash].to_owned()).or_insert(Entry::Directory);
        }
        self.entries.insert(path.to_owned(), entry);
    }

    /// The archive's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (inode, (path, entry)) in (1u32..).zip(&self.entries) {
            write(&mut out, inode, path, entry);
        }
        write(&mut out, 0, "TRAILER!!!", &Entry::File(0, Vec::new()));
        pad(&mut out, 512);
        out
    }
}

/// File types of `st_mode`.
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const DEVICE: u32 = 0o020_000;

fn write(out: &mut Vec<u8>, inode: u32, path: &str, entry: &Entry) {
    let (mode, links, major, minor, data): (_, _, _, _, &[u8]) = match entry {
        Entry::Directory => (DIRECTORY | 0o755, 2, 0, 0, &[]),
        Entry::File(0, data) if inode == 0 => (0, 1, 0, 0, data),
        Entry::File(mode, data) => (FILE | mode, 1, 0, 0, data),
        Entry::Link(to) => (LINK | 0o777, 1, 0, 0, to.as_bytes()),
        Entry::Device(mode, major, minor) => (DEVICE | mode, 1, *major, *minor, &[]),
    };
    // inode, mode, uid, gid, links, mtime, size, device's major and minor (of
    // the file system, then of the node), length of the name, no checksum.
    let fields = [
        inode,
        mode,
        0,
        0,
        links,
        0,
        u32::try_from(data.len()).expect("newc has 32-bit sizes"),
        0,
        0,
        major,
        minor,
        u32::try_from(path.len() + 1).expect("a path is short"),
        0,
    ];
    out.extend_from_slice(b"070701");
    for field in fields {
        out.extend_from_slice(format!("{field:08X}").as_bytes());
    }
    out.extend_from_slice(path.as_bytes());
    out.push(0);
    pad(out, 4);
    out.extend_from_slice(data);
    pad(out, 4);
}

fn pad(out: &mut Vec<u8>, to: usize) {
    out.resize(out.len().next_multiple_of(to), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Archive {
        let mut archive = Archive::default();
        archive.add("/bin/sh", Entry::Link("busybox".into()));
        archive.add("/bin/busybox", Entry::File(0o755, b"12345".to_vec()));
        archive.add("/dev/console", Entry::Device(0o600, 5, 1));
        archive
    }

    #[test]
    fn directories_come_before_what_they_hold() {
        let bytes = sample().to_bytes();
        let find = |name: &[u8]| bytes.windows(name.len()).position(|w| w == name).unwrap();
        assert!(find(b"bin\0") < find(b"bin/busybox\0"));
        assert!(find(b"dev\0") < find(b"dev/console\0"));
        assert!(find(b"dev/console\0") < find(b"TRAILER!!!\0"));
    }

    #[test]
    fn order_of_adding_does_not_matter() {
        let mut other = Archive::default();
        other.add("/dev/console", Entry::Device(0o600, 5, 1));
        other.add("/bin/busybox", Entry::File(0o755, b"12345".to_vec()));
        other.add("/bin/sh", Entry::Link("busybox".into()));
        assert_eq!(other.to_bytes(), sample().to_bytes());
    }

    #[test]
    fn headers_and_data_are_aligned() {
        let bytes = sample().to_bytes();
        assert_eq!(bytes.len() % 512, 0);
        for at in 0..bytes.len() - 6 {
            if &bytes[at..at + 6] == b"070701" {
                assert_eq!(at % 4, 0, "header at {at}");
            }
        }
    }
}
