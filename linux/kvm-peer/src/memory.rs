//! The guest's memory.

use crate::Failure;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// RAM from guest-physical 0. It is shared with a running guest, so it is only
/// written before that, and never borrowed.
pub struct Memory {
    base: NonNull<c_void>,
    length: NonZeroUsize,
}

impl Memory {
    /// So many zero bytes.
    pub fn new(bytes: usize) -> Result<Self, Failure> {
        let length = NonZeroUsize::new(bytes).ok_or("no memory for the guest")?;
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap_anonymous(None, length, rights, flags) }?;
        Ok(Self { base, length })
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.length.get()
    }

    /// Where it lies in this process, for KVM.
    pub fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Copies bytes to a guest-physical address.
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<(), Failure> {
        let end = at.checked_add(bytes.len()).ok_or("an address overflows")?;
        if end > self.len() {
            return Err(format!("the guest needs memory up to {end:#x}").into());
        }
        // SAFETY: inside the mapping (just checked), which no slice can overlap,
        // as none is ever made of it.
        unsafe {
            let to = self.base.as_ptr().cast::<u8>().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        Ok(())
    }

    /// Copies a word to a guest-physical address.
    pub fn write_u64(&self, at: usize, value: u64) -> Result<(), Failure> {
        self.write(at, &value.to_le_bytes())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; the machine that used it is gone.
        let _ = unsafe { munmap(self.base, self.length.get()) };
    }
}
