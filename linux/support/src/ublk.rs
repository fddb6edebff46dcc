//! The kernel's driver `ublk`: a program carries the requests of a block device out (Linux 6.12,
//! `uapi/linux/ublk_cmd.h` and `block/ublk.rst`). Commands go to it by `io_uring`. The kernel copies the bytes of a
//! request to or from memory of this program, which it pins for that. A channel's pages cannot be pinned, so this
//! memory is the program's own.

use io_uring::{IoUring, cqueue, opcode, squeue, types::Fd};
use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const CONTROL: &str = "/dev/ublk-control";
/// Longest time until a device's file is there.
const SHOWN: Duration = Duration::from_secs(5);
const PAGE: usize = 4096;

/// Bytes of a control command, of a device's description, of its parameters, and of a request's description.
const COMMAND: usize = 32;
const INFO: usize = 64;
const PARAMS: usize = 112;
const DESCRIPTION: usize = 24;

/// Number of a command, as of an `ioctl` that reads and writes so many bytes.
const fn number(command: u32, bytes: u32) -> u32 {
    3 << 30 | bytes << 16 | (b'u' as u32) << 8 | command
}

const ADD: u32 = number(0x04, COMMAND as u32);
const DELETE: u32 = number(0x05, COMMAND as u32);
const START: u32 = number(0x06, COMMAND as u32);
const STOP: u32 = number(0x07, COMMAND as u32);
const SET_PARAMS: u32 = number(0x08, COMMAND as u32);
const FETCH: u32 = number(0x20, 16);
const COMMIT_AND_FETCH: u32 = number(0x21, 16);

/// Flags of a device: commands have numbers of `ioctl`.
const FLAGS: u64 = 1 << 6;

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data from the device.
    Read,
    /// Data to the device.
    Write,
    /// Writes become durable.
    Flush,
    /// The content of a range is not needed any more.
    Discard,
    /// A range becomes zeros.
    Zero {
        /// It may be discarded.
        unmap: bool,
    },
    /// Any other.
    Other,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Kind of it.
    pub kind: Kind,
    /// Number by which the answer names it.
    pub tag: u16,
    /// First sector of 512 bytes.
    pub sector: u64,
    /// Sectors.
    pub sectors: u32,
}

impl Request {
    fn of(tag: u16, [first, sector]: [u64; 2]) -> Self {
        const NO_UNMAP: u64 = 1 << 15;
        let kind = match first & 0xFF {
            0 => Kind::Read,
            1 => Kind::Write,
            2 => Kind::Flush,
            3 => Kind::Discard,
            // Flags stand above the kind.
            5 => Kind::Zero { unmap: first >> 8 & NO_UNMAP == 0 },
            _ => Kind::Other,
        };
        Self { kind, tag, sector, sectors: (first >> 32) as u32 }
    }
}

/// A description of a device.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Bytes of a block, a power of two from 512 to 4096.
    pub block: u32,
    /// Its size in sectors of 512 bytes.
    pub sectors: u64,
    /// It cannot be written.
    pub read_only: bool,
    /// It has a cache.
    pub cache: bool,
    /// Bytes of a request, at most.
    pub most: usize,
    /// Requests at a time, at most.
    pub depth: u16,
    /// Sectors of a range that is discarded, at most, and of one that becomes zeros; 0: it has no such request.
    pub ranges: [u32; 2],
}

impl Terms {
    fn info(&self) -> [u8; INFO] {
        let mut info = [0; INFO];
        let mut put = |at: usize, bytes: &[u8]| info[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &1u16.to_le_bytes());
        put(2, &self.depth.to_le_bytes());
        put(8, &(self.most.next_multiple_of(PAGE) as u32).to_le_bytes());
        put(12, &u32::MAX.to_le_bytes());
        put(24, &FLAGS.to_le_bytes());
        info
    }

    fn params(&self) -> [u8; PARAMS] {
        const READ_ONLY: u32 = 1;
        const CACHE: u32 = 1 << 2;
        const BASIC: u32 = 1;
        const DISCARD: u32 = 1 << 1;
        let mut params = [0; PARAMS];
        let mut put = |at: usize, bytes: &[u8]| params[at..at + bytes.len()].copy_from_slice(bytes);
        let ranges = self.ranges != [0; 2];
        let mut attributes = 0;
        attributes |= if self.read_only { READ_ONLY } else { 0 };
        attributes |= if self.cache { CACHE } else { 0 };
        put(0, &(PARAMS as u32).to_le_bytes());
        put(4, &(BASIC | if ranges { DISCARD } else { 0 }).to_le_bytes());
        put(8, &attributes.to_le_bytes());
        // Blocks, as they are and as they should be: of the disk, of the medium, of requests.
        put(12, &[self.block.trailing_zeros() as u8; 4]);
        put(16, &(self.most as u32 / 512).to_le_bytes());
        put(24, &self.sectors.to_le_bytes());
        if ranges {
            let [discard, zero] = self.ranges;
            put(44, &self.block.to_le_bytes());
            put(48, &discard.to_le_bytes());
            put(52, &zero.to_le_bytes());
            put(56, &1u16.to_le_bytes());
        }
        params
    }
}

/// A device that this program has.
pub struct Device {
    control: File,
    ring: Mutex<IoUring<squeue::Entry128, cqueue::Entry>>,
    id: u32,
    path: PathBuf,
}

impl Device {
    /// Tells if this kernel has the driver.
    #[must_use]
    pub fn is_there() -> bool {
        // Built in, or loaded: then this fails, and nothing is wrong.
        let _ = Command::new("modprobe").args(["-q", "ublk_drv"]).status();
        Path::new(CONTROL).exists()
    }

    /// Makes a device, which the kernel does not show yet.
    ///
    /// # Errors
    /// The driver is not there, it is too old, or the kernel refuses the terms.
    pub fn make(terms: &Terms) -> io::Result<Self> {
        let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
        let ring = Mutex::new(IoUring::builder().build(4)?);
        let mut device = Self { control, ring, id: u32::MAX, path: PathBuf::new() };
        let mut info = terms.info();
        device.command(ADD, &mut info, 0)?;
        device.id = u32::from_le_bytes([12, 13, 14, 15].map(|at| info[at]));
        device.path = PathBuf::from(format!("/dev/ublkb{}", device.id));
        // An older driver leaves out flags that it does not know.
        let flags = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|at| info[24 + at]));
        if flags & FLAGS != FLAGS {
            return Err(io::Error::new(ErrorKind::Unsupported, "this kernel's ublk is too old"));
        }
        device.command(SET_PARAMS, &mut terms.params(), 0)?;
        Ok(device)
    }

    /// File of the block device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Shows the device. The kernel reads its partitions meanwhile, so another thread carries requests out.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(&self) -> io::Result<()> {
        self.command(START, &mut [], std::process::id().into())
    }

    /// Ends the device, after its requests under way.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stop(&self) -> io::Result<()> {
        self.command(STOP, &mut [], 0)
    }

    /// Forgets the device. Its queue is closed before.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete(&self) -> io::Result<()> {
        self.command(DELETE, &mut [], 0)
    }

    /// Gives a command, and waits for its end.
    fn command(&self, command: u32, buffer: &mut [u8], data: u64) -> io::Result<()> {
        let mut bytes = [0; 80];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &self.id.to_le_bytes());
        put(4, &u16::MAX.to_le_bytes());
        put(6, &(buffer.len() as u16).to_le_bytes());
        put(8, &(buffer.as_mut_ptr() as u64).to_le_bytes());
        put(16, &data.to_le_bytes());
        let entry = opcode::UringCmd80::new(Fd(self.control.as_raw_fd()), command);
        let entry = entry.cmd(bytes).build();
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the kernel reads and writes the buffer up to the command's completion, for which this waits.
        unsafe { ring.submission().push(&entry) }.map_err(|_| ErrorKind::OutOfMemory)?;
        loop {
            match ring.submit_and_wait(1) {
                Err(why) if why.raw_os_error() == Some(libc::EINTR) => {}
                done => drop(done?),
            }
            if let Some(done) = ring.completion().next() {
                let result = done.result();
                return if result < 0 {
                    Err(io::Error::from_raw_os_error(-result))
                } else {
                    Ok(())
                };
            }
        }
    }
}

/// The only queue of a device. One thread has it.
pub struct Queue {
    /// The kernel's descriptions of requests, by tag.
    descriptions: NonNull<c_void>,
    bytes: usize,
    /// Memory for the bytes of requests, for each tag as many as a request has at most.
    memory: NonNull<c_void>,
    each: usize,
    ring: IoUring,
    file: File,
    depth: u16,
}

impl Queue {
    /// Opens the queue, and is ready for as many requests as it has.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(device: &Device, terms: &Terms) -> io::Result<Self> {
        let depth = terms.depth;
        let path = format!("/dev/ublkc{}", device.id);
        let begun = Instant::now();
        // The kernel's own thread makes the file.
        while !Path::new(&path).exists() && begun.elapsed() < SHOWN {
            std::thread::sleep(Duration::from_millis(1));
        }
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = (DESCRIPTION * usize::from(depth)).next_multiple_of(PAGE);
        let size = NonZeroUsize::new(bytes).ok_or(ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address of the kernel's choice, read by `word` alone.
        let descriptions =
            unsafe { mmap(None, size, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, &file, 0) }?;
        let each = terms.most.next_multiple_of(PAGE);
        let size = NonZeroUsize::new(each * usize::from(depth)).ok_or(ErrorKind::InvalidInput)?;
        let (rights, flags) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE);
        // SAFETY: a new mapping of nothing.
        let memory = unsafe { mmap_anonymous(None, size, rights, flags) }?;
        let ring = IoUring::new(u32::from(depth).next_power_of_two())?;
        let mut queue = Self { descriptions, bytes, memory, each, ring, file, depth };
        for tag in 0..depth {
            queue.push(FETCH, tag, 0)?;
        }
        queue.tell()?;
        Ok(queue)
    }

    /// Takes a request, if there is one.
    ///
    /// # Errors
    /// [`ErrorKind::NotConnected`]: the device has ended. Else the kernel's.
    pub fn take(&mut self) -> io::Result<Option<Request>> {
        let Some(done) = self.ring.completion().next() else { return Ok(None) };
        let tag = done.user_data() as u16;
        match done.result() {
            0 if tag < self.depth => {}
            result if result == -libc::ENODEV => return Err(ErrorKind::NotConnected.into()),
            result if result < 0 => return Err(io::Error::from_raw_os_error(-result)),
            _ => return Err(ErrorKind::InvalidData.into()),
        }
        let at = DESCRIPTION / 8 * usize::from(tag);
        Ok(Some(Request::of(tag, [self.word(at), self.word(at + 1)])))
    }

    /// Answers a request by bytes done, or an error's negative number. The kernel sees it after [`Queue::tell`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn answer(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.push(COMMIT_AND_FETCH, tag, result)
    }

    /// Tells the kernel of all answers.
    ///
    /// # Errors
    /// The kernel's.
    pub fn tell(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        match self.ring.submit() {
            Err(why) if why.raw_os_error() == Some(libc::EINTR) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Returns memory with the bytes of a write, or for those of a read. The request was taken, and has no answer.
    ///
    /// # Panics
    /// There is no such request.
    #[must_use]
    pub fn data(&mut self, tag: u16) -> &mut [u8] {
        let at = self.place(tag);
        // SAFETY: within the mapping. The kernel writes there before a request is taken, and reads there in `tell`,
        // which needs `self`, too. No other reference to it exists.
        unsafe { std::slice::from_raw_parts_mut(at.as_ptr().cast(), self.each) }
    }

    /// Address of a request's memory.
    fn place(&self, tag: u16) -> NonNull<c_void> {
        assert!(tag < self.depth, "tag {tag}");
        // SAFETY: the mapping has as many places as there are tags.
        unsafe { self.memory.add(self.each * usize::from(tag)) }
    }

    fn push(&mut self, command: u32, tag: u16, result: i32) -> io::Result<()> {
        let mut bytes = [0; 16];
        bytes[2..4].copy_from_slice(&tag.to_le_bytes());
        bytes[4..8].copy_from_slice(&result.to_le_bytes());
        bytes[8..].copy_from_slice(&(self.place(tag).as_ptr() as u64).to_le_bytes());
        let entry = opcode::UringCmd16::new(Fd(self.file.as_raw_fd()), command);
        let entry = entry.cmd(bytes).build().user_data(tag.into());
        // SAFETY: the memory is as long as a request, and stays mapped up to the end of `self`, with the ring.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| ErrorKind::OutOfMemory.into())
    }

    /// A word of the descriptions.
    fn word(&self, at: usize) -> u64 {
        assert!(8 * at < self.bytes, "outside");
        // SAFETY: within the mapping, aligned; volatile, as the kernel writes it.
        unsafe { self.descriptions.as_ptr().cast::<u64>().add(at).read_volatile() }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the mappings made in `open`, not used afterwards. A request of the kernel's that is still under way
        // finds no pages there, and fails.
        unsafe {
            let _ = munmap(self.descriptions, self.bytes);
            let _ = munmap(self.memory, self.each * usize::from(self.depth));
        }
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring has the descriptor for as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_kernels_numbers() {
        // A C compiler's numbers of `UBLK_U_CMD_ADD_DEV` and `UBLK_U_IO_COMMIT_AND_FETCH_REQ`.
        assert_eq!((ADD, COMMIT_AND_FETCH), (0xC020_7504, 0xC010_7521));
    }

    #[test]
    fn a_request_is_read_from_its_description() {
        let like = |kind| Request { kind, tag: 3, sector: 9, sectors: 8 };
        for (word, kind) in [
            (0, Kind::Read),
            (1, Kind::Write),
            (3, Kind::Discard),
            (5, Kind::Zero { unmap: true }),
            (5 | 1 << 23, Kind::Zero { unmap: false }),
            (15, Kind::Other),
        ] {
            assert_eq!(Request::of(3, [word | 8 << 32, 9]), like(kind), "{word:#x}");
        }
    }

    #[test]
    fn parameters_lie_where_the_kernel_reads_them() {
        let terms = Terms {
            block: 4096,
            sectors: 1 << 40,
            read_only: true,
            cache: true,
            most: 57_344,
            depth: 16,
            ranges: [7, 0],
        };
        let params = terms.params();
        assert_eq!(params[4..17], [3, 0, 0, 0, 5, 0, 0, 0, 12, 12, 12, 12, 112]);
        assert_eq!(params[24..32], (1u64 << 40).to_le_bytes());
        assert_eq!(params[44..58], [0, 16, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        let plain = Terms { ranges: [0; 2], ..terms }.params();
        assert_eq!((plain[4], &plain[40..]), (1, &[0; 72][..]));
    }
}
