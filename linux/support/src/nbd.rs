//! The kernel's driver `nbd`: requests of a block device come over a socket (Linux, `uapi/linux/nbd.h`). Numbers on the
//! socket are in the network's order of bytes.

use nix::libc;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Devices that are looked at.
const DEVICES: usize = 16;
/// Bytes of a request, and of an answer.
const REQUEST: usize = 28;
const ANSWER: usize = 16;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const ANSWER_MAGIC: u32 = 0x6744_6698;

/// Flags of a device.
pub mod flag {
    /// It has flags.
    pub const ANY: u64 = 1;
    /// It cannot be written.
    pub const READ_ONLY: u64 = 1 << 1;
    /// It has a cache, and a request that empties it.
    pub const FLUSH: u64 = 1 << 2;
    /// It can be told what is not needed any more.
    pub const TRIM: u64 = 1 << 5;
    /// It can write zeros by itself. Linux 6.1 ignores it.
    pub const ZERO: u64 = 1 << 6;
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data from the device.
    Read,
    /// Data to the device: they follow on the socket.
    Write,
    /// The last request.
    End,
    /// Writes become durable.
    Flush,
    /// The content of a range is not needed any more.
    Trim,
    /// A range becomes zeros.
    Zero {
        /// It may be discarded.
        unmap: bool,
    },
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Kind of it.
    pub kind: Kind,
    /// Number by which the answer names it.
    pub cookie: u64,
    /// First byte.
    pub from: u64,
    /// Bytes.
    pub len: u32,
}

impl Request {
    fn of(bytes: &[u8; REQUEST]) -> Option<Self> {
        const NO_HOLE: u32 = 1 << 17;
        let half = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|n| bytes[at + n]));
        let word = |at: usize| u64::from(half(at)) << 32 | u64::from(half(at + 4));
        let kind = match half(4) & 0xFFFF {
            0 => Kind::Read,
            1 => Kind::Write,
            2 => Kind::End,
            3 => Kind::Flush,
            4 => Kind::Trim,
            6 => Kind::Zero { unmap: half(4) & NO_HOLE == 0 },
            _ => return None,
        };
        let request = Self { kind, cookie: word(8), from: word(16), len: half(24) };
        (half(0) == REQUEST_MAGIC).then_some(request)
    }
}

/// Head of an answer. A read's data follows, if the error is 0.
#[must_use]
pub fn answer(cookie: u64, error: i32) -> [u8; ANSWER] {
    let mut bytes = [0; ANSWER];
    bytes[..4].copy_from_slice(&ANSWER_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// A description of a device.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Bytes of a block.
    pub block: u32,
    /// Its size in blocks.
    pub blocks: u64,
    /// Flags.
    pub flags: u64,
    /// Bytes of a request, at most: the kernel cuts larger ones.
    pub most: usize,
}

/// Calls of the driver: each takes a number, or nothing.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Call {
    SetSock = 0,
    SetBlock = 1,
    DoIt = 3,
    ClearSock = 4,
    SetBlocks = 7,
    Disconnect = 8,
    SetFlags = 10,
}

fn call(file: &File, call: Call, number: u64) -> io::Result<()> {
    let request = 0xAB00 | libc::c_ulong::from(call as u8);
    // SAFETY: each of these calls takes a number, and no address.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), request as _, number as libc::c_ulong) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A device that this program has.
#[derive(Debug)]
pub struct Device {
    file: File,
    path: PathBuf,
}

impl Device {
    /// Takes the first free device, and one end of its socket.
    ///
    /// # Errors
    /// The driver is not there (`modprobe nbd`), no device is free, or the kernel refuses the terms.
    pub fn open(terms: &Terms) -> io::Result<(Self, Socket)> {
        // Built in, or loaded: then this fails, and nothing is wrong.
        let _ = Command::new("modprobe").args(["-q", "nbd"]).status();
        let mut last = io::Error::new(ErrorKind::NotFound, "no nbd: has this kernel that module?");
        for n in 0..DEVICES {
            let name = format!("nbd{n}");
            if Path::new("/sys/block").join(&name).join("pid").exists() {
                last = io::Error::new(ErrorKind::ResourceBusy, "all devices of nbd are in use");
                continue;
            }
            match Self::take(&name, terms) {
                Err(why) if busy(&why) => last = why,
                Err(why) if why.kind() == ErrorKind::NotFound => break,
                done => return done,
            }
        }
        Err(last)
    }

    fn take(name: &str, terms: &Terms) -> io::Result<(Self, Socket)> {
        let path = Path::new("/dev").join(name);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let (own, theirs) = UnixStream::pair()?;
        // The kernel takes a reference of its own.
        call(&file, Call::SetSock, theirs.as_raw_fd() as u64)?;
        call(&file, Call::SetBlock, terms.block.into())?;
        call(&file, Call::SetBlocks, terms.blocks)?;
        call(&file, Call::SetFlags, terms.flags)?;
        let most = Path::new("/sys/block").join(name).join("queue/max_sectors_kb");
        std::fs::write(most, (terms.most >> 10).to_string())?;
        Ok((Self { file, path }, Socket(own)))
    }

    /// Its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Carries requests, until the socket is closed or the device is disconnected.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run(&self) -> io::Result<()> {
        call(&self.file, Call::DoIt, 0)
    }

    /// Asks the kernel for the last request.
    ///
    /// # Errors
    /// The kernel's.
    pub fn disconnect(&self) -> io::Result<()> {
        call(&self.file, Call::Disconnect, 0)
    }

    /// Ends requests without an answer with errors. The kernel does not do so when the socket is closed: they would
    /// wait for ever.
    pub fn clear(&self) {
        let _ = call(&self.file, Call::ClearSock, 0);
    }
}

fn busy(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EBUSY))
}

/// This program's end of a device's socket.
#[derive(Debug)]
pub struct Socket(UnixStream);

impl Socket {
    /// Takes a request, if there is one.
    ///
    /// # Errors
    /// The socket's; the kernel has closed its end; what came is no request.
    pub fn take(&mut self) -> io::Result<Option<Request>> {
        let mut bytes = [0; REQUEST];
        let (fd, to) = (self.0.as_raw_fd(), bytes.as_mut_ptr().cast());
        // SAFETY: the kernel writes at most `REQUEST` bytes to an array of as many.
        let got = unsafe { libc::recv(fd, to, REQUEST, libc::MSG_DONTWAIT) };
        let got = match usize::try_from(got) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(got) => got,
            Err(_) => {
                let why = io::Error::last_os_error();
                let none = matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
                return if none { Ok(None) } else { Err(why) };
            }
        };
        // The kernel writes a request at once; the rest is on its way.
        self.0.read_exact(&mut bytes[got..])?;
        let request = Request::of(&bytes);
        request.map(Some).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "no request of nbd"))
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// The socket's.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Reads some bytes, and forgets them.
    ///
    /// # Errors
    /// The socket's.
    pub fn skip(&mut self, len: usize) -> io::Result<()> {
        let skipped = io::copy(&mut (&mut self.0).take(len as u64), &mut io::sink())?;
        if skipped == len as u64 { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: u32) -> [u8; REQUEST] {
        let mut bytes = [0; REQUEST];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&0x0102_0304_0506_0708u64.to_be_bytes());
        bytes[16..24].copy_from_slice(&(1u64 << 40).to_be_bytes());
        bytes[24..].copy_from_slice(&4096u32.to_be_bytes());
        bytes
    }

    #[test]
    fn a_request_is_read_from_its_bytes() {
        let like = |kind| Request { kind, cookie: 0x0102_0304_0506_0708, from: 1 << 40, len: 4096 };
        assert_eq!(Request::of(&request(1)), Some(like(Kind::Write)));
        assert_eq!(Request::of(&request(6)), Some(like(Kind::Zero { unmap: true })));
        assert_eq!(Request::of(&request(6 | 1 << 17)), Some(like(Kind::Zero { unmap: false })));
        assert_eq!(Request::of(&request(5)), None);
        let mut other = request(0);
        other[0] ^= 1;
        assert_eq!(Request::of(&other), None);
    }

    #[test]
    fn requests_come_over_the_socket_and_answers_go_back() {
        let (own, mut kernel) = UnixStream::pair().unwrap();
        let mut socket = Socket(own);
        assert_eq!(socket.take().unwrap(), None);
        kernel.write_all(&request(1)).unwrap();
        kernel.write_all(&[7; 600]).unwrap();
        kernel.write_all(&request(0)).unwrap();
        assert_eq!(socket.take().unwrap().map(|r| r.kind), Some(Kind::Write));
        socket.skip(600).unwrap();
        assert_eq!(socket.take().unwrap().map(|r| r.kind), Some(Kind::Read));
        socket.send(&answer(5, 22)).unwrap();
        let mut bytes = [0; ANSWER];
        kernel.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 22, 0, 0, 0, 0, 0, 0, 0, 5]);
        drop(kernel);
        assert!(socket.take().is_err());
    }
}
