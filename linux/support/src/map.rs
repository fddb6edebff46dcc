//! A file's bytes, mapped: writes reach the file by the page cache alone.

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Error};
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// A mapping of a file from its beginning on.
#[derive(Debug)]
pub struct Mapped {
    base: NonNull<c_void>,
    len: NonZeroUsize,
}

impl Mapped {
    /// Maps so many bytes of a file, which must have them for as long as this is there.
    ///
    /// # Errors
    /// There are none, or the kernel's reason.
    pub fn of(file: &File, len: usize) -> io::Result<Self> {
        let len = NonZeroUsize::new(len).ok_or_else(|| Error::other("no bytes to map"))?;
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe { mmap(None, len, rights, MapFlags::MAP_SHARED, file, 0)? };
        Ok(Self { base, len })
    }

    /// Where so many bytes begin.
    ///
    /// # Panics
    /// They do not lie in it.
    fn part(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len.get()), "{at} {len}");
        self.base.as_ptr().cast::<u8>().wrapping_add(at)
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// They do not lie in it.
    pub fn read(&self, at: usize, to: &mut [u8]) {
        let from = self.part(at, to.len());
        // SAFETY: these bytes are mapped, and `to` is a slice elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// They do not lie in it.
    pub fn write(&mut self, at: usize, from: &[u8]) {
        let to = self.part(at, from.len());
        // SAFETY: these bytes are mapped, and `from` is a slice elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: this mapping is its own, and no address of it is left.
        let _ = unsafe { munmap(self.base, self.len.get()) };
    }
}
