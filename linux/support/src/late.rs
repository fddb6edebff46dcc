//! The module by which a running Linux starts an image under itself (`linux/enable`).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;

const DEVICE: &str = "/dev/bulkhead";

/// `struct bh_image`.
#[repr(C)]
struct Image {
    address: u64,
    len: u64,
}

/// State of the machine: `struct bh_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct State {
    /// 1 while an image runs.
    pub on: u64,
    /// Physical address of the memory that it has.
    pub at: u64,
    /// Bytes of it.
    pub len: u64,
    /// Nanoseconds of the longest call with interrupts off, when an image was enabled last.
    pub longest: u64,
    /// Nanoseconds in which all cores entered their monitors.
    pub entry: u64,
    /// Nanoseconds of all of it.
    pub whole: u64,
}

mod request {
    #![allow(missing_docs, reason = "what the macros make has no place for a comment")]
    nix::ioctl_write_ptr!(enable, b'B', 1, super::Image);
    nix::ioctl_none!(disable, b'B', 2);
    nix::ioctl_read!(state, b'B', 3, super::State);
}

fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(DEVICE)
}

/// Starts an image: the content of a file of `bulkhead build --under-linux`.
///
/// # Errors
/// No module, or a step that failed: the kernel's log has the reason. Everything is as before then.
pub fn enable(image: &[u8]) -> io::Result<()> {
    let image = Image { address: image.as_ptr() as u64, len: image.len() as u64 };
    let device = open()?;
    // SAFETY: the kernel reads a structure that lives, and the bytes that it names.
    unsafe { request::enable(device.as_raw_fd(), &raw const image) }?;
    Ok(())
}

/// Ends the image: this Linux has the machine again.
///
/// # Errors
/// No module, no image, or a sandbox that has not ended.
pub fn disable() -> io::Result<()> {
    let device = open()?;
    // SAFETY: the request has no argument.
    unsafe { request::disable(device.as_raw_fd()) }?;
    Ok(())
}

/// Asks for the state.
///
/// # Errors
/// No module.
pub fn state() -> io::Result<State> {
    let (device, mut state) = (open()?, State::default());
    // SAFETY: the kernel writes a structure that lives.
    unsafe { request::state(device.as_raw_fd(), &raw mut state) }?;
    Ok(state)
}
