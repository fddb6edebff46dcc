//! Files for programs of the kernel: one program serves a FAT file system on a disk, and others call it.
//!
//! The server knows its clients by their badges. Each has memory of its own in common with it, for what is written and
//! read. Names are of the form `FLIGHT.LOG`: at most eight letters, a dot, at most three. All files are in the root
//! folder of the disk's first partition.
//!
//! FAT has no journal. [`Call::Flush`] makes a file's bytes and length durable. A loss of power in the middle of
//! another call can lose that call, and leave clusters that no file has.
#![cfg_attr(target_os = "none", no_std)]

pub mod client;
mod server;

pub use server::{Backing, Server, Storage};

/// Bytes of a name in a message: two words.
pub const NAME: usize = 16;
/// Files that are open at a time, of all clients together.
pub const OPEN: usize = 8;
/// Offset that means the end of the file.
pub const END: u64 = u64::MAX;

/// Calls of the server, by a message's label. Words are in this order; the answer's first word is a [`Status`], the
/// second one what the call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Opens a file: mode ([`Mode`]), two words of the name. Returns a handle.
    Open = 1,
    /// Closes it: handle.
    Close = 2,
    /// Reads: handle, offset in the file, offset in the client's memory, bytes. Returns how many bytes there were.
    Read = 3,
    /// Writes: handle, offset in the file or [`END`], offset in the client's memory, bytes. Returns how many were
    /// written.
    Write = 4,
    /// Makes all that was written durable: handle.
    Flush = 5,
    /// Returns a file's length: handle.
    Length = 6,
    /// Removes a file that is not open: 0, two words of the name.
    Remove = 7,
}

impl Call {
    /// The call of a label.
    #[must_use]
    pub const fn of(label: u64) -> Option<Self> {
        Some(match label {
            1 => Self::Open,
            2 => Self::Close,
            3 => Self::Read,
            4 => Self::Write,
            5 => Self::Flush,
            6 => Self::Length,
            7 => Self::Remove,
            _ => return None,
        })
    }
}

/// Purpose of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// To read a file that is there.
    Read = 0,
    /// To read and write; the file is made if it is not there.
    Write = 1,
    /// To read and write; it is empty then.
    Create = 2,
}

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is done.
    Done = 0,
    /// No such call, mode, handle or name, or a range outside of the client's memory or behind the file's end.
    Invalid = 1,
    /// There is no such file.
    Absent = 2,
    /// The file is open already, or [`OPEN`] files are.
    Busy = 3,
    /// The disk or the folder is full, or the disk failed while a file grew.
    Full = 4,
    /// The file, or the disk, can only be read.
    ReadOnly = 5,
    /// The disk failed or did not answer in time, or its file system makes no sense.
    Disk = 6,
}

impl Status {
    /// The status of an answer's word.
    #[must_use]
    pub const fn of(word: u64) -> Self {
        match word {
            0 => Self::Done,
            2 => Self::Absent,
            3 => Self::Busy,
            4 => Self::Full,
            5 => Self::ReadOnly,
            6 => Self::Disk,
            _ => Self::Invalid,
        }
    }
}

/// Packs a name into words; `None` if it is too long.
#[must_use]
pub fn packed(name: &str) -> Option<[u64; 2]> {
    let mut bytes = [0; NAME];
    bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    let (words, _) = bytes.as_chunks::<8>();
    Some([words[0], words[1]].map(u64::from_le_bytes))
}

/// Bytes of a name in words, up to the first zero.
fn unpacked(words: [u64; 2]) -> ([u8; NAME], usize) {
    let mut bytes = [0; NAME];
    let (parts, _) = bytes.as_chunks_mut::<8>();
    for (part, word) in parts.iter_mut().zip(words) {
        *part = word.to_le_bytes();
    }
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(NAME);
    (bytes, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_two_words() {
        for name in ["", "A", "FLIGHT.LOG", "12345678.123"] {
            let (bytes, len) = unpacked(packed(name).expect("short"));
            assert_eq!(&bytes[..len], name.as_bytes());
        }
        assert_eq!(packed("12345678901234567"), None);
    }
}
