//! Bytes of a channel's sections, read and written by the kernel where they lie. A program that passes bytes between
//! them and a file does not copy them.

use crate::channel::Channel;
use bulkhead_layout::PAGE;
use nix::libc::{self, iovec};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Parts of a read or a write, at most.
pub const PARTS: usize = 64;
/// `RWF_NOWAIT` of `preadv2(2)`.
const NOWAIT: libc::c_int = 8;

/// A section, as long as the program runs: it stays mapped.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    base: *mut u8,
    len: usize,
}

// SAFETY: it stands for memory that others use at any time anyhow; nothing of it belongs to a thread.
unsafe impl Send for Section {}
// SAFETY: as of `Send`; it has no state of its own.
unsafe impl Sync for Section {}

impl Section {
    /// The section of a peer, of a channel that will not be unmapped ([`Channel::pair`]).
    ///
    /// # Panics
    /// There is no such peer, or its section is not mapped.
    #[must_use]
    pub fn of(channel: &Channel, peer: u32) -> Self {
        let len = channel.end().section as usize;
        let at = PAGE as usize + peer as usize * len;
        assert!(peer < channel.peers() && at + len <= channel.memory().len(), "peer {peer}");
        Self { base: (channel.memory().address() + at) as *mut u8, len }
    }

    /// Where so many bytes begin.
    fn part(&self, at: usize, len: usize) -> io::Result<iovec> {
        let fits = at.checked_add(len).is_some_and(|end| end <= self.len);
        let base = self.base.wrapping_add(at).cast();
        fits.then_some(iovec { iov_base: base, iov_len: len })
            .ok_or(io::ErrorKind::InvalidInput.into())
    }

    /// Writes bytes of it to a file.
    ///
    /// # Errors
    /// They don't lie in it, or the file's.
    pub fn write_to(&self, file: &impl AsFd, at: usize, len: usize) -> io::Result<usize> {
        let part = self.part(at, len)?;
        // SAFETY: the kernel reads bytes that are mapped; that a peer changes them meanwhile is its matter.
        result(unsafe { libc::write(raw(file.as_fd()), part.iov_base, len) })
    }

    /// Writes bytes of it to a file behind others, in one write.
    ///
    /// # Errors
    /// They don't lie in it, or the file's.
    pub fn write_behind(
        &self,
        head: &[u8],
        file: &impl AsFd,
        at: usize,
        len: usize,
    ) -> io::Result<usize> {
        let head = iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() };
        let parts = [head, self.part(at, len)?];
        // SAFETY: the kernel reads bytes of a slice, and bytes that are mapped; that a peer changes these meanwhile is
        // its matter.
        result(unsafe { libc::writev(raw(file.as_fd()), parts.as_ptr(), 2) })
    }

    /// Reads from a file into parts of it, one after the other.
    ///
    /// # Errors
    /// They don't lie in it, they are more than [`PARTS`], or the file's.
    pub fn read_from(
        &self,
        file: &impl AsFd,
        parts: impl Iterator<Item = (usize, usize)>,
    ) -> io::Result<usize> {
        let mut all = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS];
        let mut count = 0;
        for (at, len) in parts {
            *all.get_mut(count).ok_or(io::ErrorKind::InvalidInput)? = self.part(at, len)?;
            count += 1;
        }
        // SAFETY: the kernel writes to bytes that are mapped and that this program refers to by pointers alone. For a
        // section that this side only reads the kernel answers EFAULT.
        result(unsafe { libc::readv(raw(file.as_fd()), all.as_ptr(), count as libc::c_int) })
    }

    /// Writes bytes of it to a place of a file, all of them.
    ///
    /// # Errors
    /// They don't lie in it, or the file's.
    pub fn write_to_at(
        &self,
        file: &impl AsFd,
        at: usize,
        len: usize,
        place: u64,
    ) -> io::Result<()> {
        all(len, |done| {
            let part = self.part(at + done, len - done)?;
            let place = offset(place, done)?;
            // SAFETY: the kernel reads bytes that are mapped; that a peer changes them meanwhile is its matter.
            result(unsafe { libc::pwrite(raw(file.as_fd()), part.iov_base, part.iov_len, place) })
        })
    }

    /// Reads into bytes of it from a place of a file, all of them.
    ///
    /// # Errors
    /// They don't lie in it, or the file's; it ends before.
    pub fn read_from_at(
        &self,
        file: &impl AsFd,
        at: usize,
        len: usize,
        place: u64,
    ) -> io::Result<()> {
        all(len, |done| {
            let part = self.part(at + done, len - done)?;
            let place = offset(place, done)?;
            // SAFETY: as in `read_from`.
            result(unsafe { libc::pread(raw(file.as_fd()), part.iov_base, part.iov_len, place) })
        })
    }

    /// As [`Section::read_from_at`], but only if the kernel need not wait for a device; `false`: it would have to, and
    /// some bytes may have been read.
    ///
    /// # Errors
    /// As there; [`io::ErrorKind::Unsupported`]: such a file cannot tell.
    pub fn read_now_at(
        &self,
        file: &impl AsFd,
        at: usize,
        len: usize,
        place: u64,
    ) -> io::Result<bool> {
        let part = self.part(at, len)?;
        let place = offset(place, 0)?;
        let (call, file) = (libc::SYS_preadv2, raw(file.as_fd()));
        // SAFETY: as in `read_from`. On 64 bits the offset's upper half is not looked at.
        let done = unsafe { libc::syscall(call, file, &raw const part, 1, place, 0, NOWAIT) };
        match result(done as libc::ssize_t) {
            Ok(done) => Ok(done == len),
            Err(why) if why.raw_os_error() == Some(libc::EAGAIN) => Ok(false),
            Err(why) if why.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            Err(why) => Err(why),
        }
    }

    /// Reads so many bytes of a stream into it, all of them.
    ///
    /// # Errors
    /// They don't lie in it, or the stream's; it ends before.
    pub fn receive(&self, stream: &impl AsFd, at: usize, len: usize) -> io::Result<()> {
        all(len, |done| self.read_from(stream, [(at + done, len - done)].into_iter()))
    }

    /// Writes so many bytes of it to a stream, all of them.
    ///
    /// # Errors
    /// They don't lie in it, or the stream's.
    pub fn send(&self, stream: &impl AsFd, at: usize, len: usize) -> io::Result<()> {
        all(len, |done| self.write_to(stream, at + done, len - done))
    }

    /// Writes 16 bits.
    ///
    /// # Panics
    /// They don't lie in it.
    pub fn set16(&self, at: usize, value: u16) {
        assert!(at.is_multiple_of(2) && at + 2 <= self.len, "outside");
        // SAFETY: within the mapping, aligned; volatile, as others look.
        unsafe { self.base.add(at).cast::<u16>().write_volatile(value) }
    }
}

/// Goes on until all is done.
fn all(len: usize, mut some: impl FnMut(usize) -> io::Result<usize>) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        match some(done) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => done += more,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

fn offset(place: u64, done: usize) -> io::Result<libc::off_t> {
    let place = place.checked_add(done as u64).and_then(|place| place.try_into().ok());
    place.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn raw(file: BorrowedFd<'_>) -> libc::c_int {
    file.as_raw_fd()
}

fn result(done: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}
