//! Calls of the server for its clients.

use crate::{Call, Mode, Status, packed};
use bulkhead_program::{Endpoint, Memory, Message, Program};
use core::sync::atomic::{AtomicU64, Ordering};

/// Files as a program sees them: the endpoint, and the memory that it has in common with the server.
#[derive(Clone, Copy, Debug)]
pub struct Files {
    endpoint: Endpoint,
    memory: Memory,
}

/// A file that is open.
#[derive(Clone, Copy, Debug)]
pub struct File {
    files: Files,
    handle: u64,
}

impl Files {
    /// By the names that the manifest has for the endpoint and the memory.
    ///
    /// # Panics
    /// The manifest gives the program no such endpoint or memory.
    #[must_use]
    pub fn new(program: Program, endpoint: &str, memory: &str) -> Self {
        Self { endpoint: program.endpoint(endpoint), memory: program.memory(memory) }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As [`Status`] has them.
    pub fn open(self, name: &str, mode: Mode) -> Result<File, Status> {
        let [first, second] = packed(name).ok_or(Status::Invalid)?;
        let handle = self.call(Call::Open, &[mode as u64, first, second])?;
        Ok(File { files: self, handle })
    }

    /// Removes a file that is not open.
    ///
    /// # Errors
    /// As [`Status`] has them.
    pub fn remove(self, name: &str) -> Result<(), Status> {
        let [first, second] = packed(name).ok_or(Status::Invalid)?;
        self.call(Call::Remove, &[0, first, second]).map(|_| ())
    }

    /// Words of the memory in common: what is written is put here, and what was read is found here.
    #[must_use]
    pub fn words(&self) -> &'static [AtomicU64] {
        self.memory.words()
    }

    fn call(self, call: Call, words: &[u64]) -> Result<u64, Status> {
        // The caller's bytes are in the memory before the server looks.
        core::sync::atomic::fence(Ordering::Release);
        let answer = self.endpoint.call(Message::new(call as u64, words));
        let [status, value, ..] = answer.map_err(|_| Status::Disk)?.words;
        match Status::of(status) {
            Status::Done => Ok(value),
            other => Err(other),
        }
    }
}

impl File {
    /// Reads into the memory in common: offset in the file, offset in the memory, bytes. Returns how many there were.
    ///
    /// # Errors
    /// As [`Status`] has them.
    pub fn read(self, offset: u64, at: usize, len: usize) -> Result<usize, Status> {
        let words = [self.handle, offset, at as u64, len as u64];
        self.files.call(Call::Read, &words).map(|read| read as usize)
    }

    /// Writes from the memory in common: offset in the file or [`crate::END`], offset in the memory, bytes.
    ///
    /// # Errors
    /// As [`Status`] has them.
    pub fn write(self, offset: u64, at: usize, len: usize) -> Result<usize, Status> {
        let words = [self.handle, offset, at as u64, len as u64];
        self.files.call(Call::Write, &words).map(|written| written as usize)
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// As [`Status`] has them.
    pub fn flush(self) -> Result<(), Status> {
        self.files.call(Call::Flush, &[self.handle]).map(|_| ())
    }

    /// Its length in bytes.
    ///
    /// # Errors
    /// As [`Status`] has them.
    pub fn length(self) -> Result<u64, Status> {
        self.files.call(Call::Length, &[self.handle])
    }

    /// Closes it; its bytes and its length are on the disk, or in the disk's cache.
    ///
    /// # Errors
    /// As [`Status`] has them. It is closed nevertheless.
    pub fn close(self) -> Result<(), Status> {
        self.files.call(Call::Close, &[self.handle]).map(|_| ())
    }
}
