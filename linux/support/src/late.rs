//! The module by which a running Linux starts an image under itself (`linux/enable`).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;

const DEVICE: &str = "/dev/bulkhead";

/// `struct bh_bytes`.
#[repr(C)]
struct Bytes {
    address: u64,
    len: u64,
}

impl Bytes {
    fn of(bytes: &[u8]) -> Self {
        Self { address: bytes.as_ptr() as u64, len: bytes.len() as u64 }
    }
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
    nix::ioctl_write_ptr!(enable, b'B', 1, super::Bytes);
    nix::ioctl_none!(disable, b'B', 2);
    nix::ioctl_read!(state, b'B', 3, super::State);
    nix::ioctl_write_ptr!(plug, b'B', 4, super::Bytes);
    nix::ioctl_write_ptr!(unplug, b'B', 5, super::Bytes);
}

fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(DEVICE)
}

/// Starts an image: the content of a file of `bulkhead build --under-linux`.
///
/// # Errors
/// No module, or a step that failed: the kernel's log has the reason. Everything is as before then.
pub fn enable(image: &[u8]) -> io::Result<()> {
    let (device, image) = (open()?, Bytes::of(image));
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

/// Has the PCI functions of a channel come, if they are not there. Where a channel has none, nothing happens.
///
/// # Errors
/// No module, or an address of a function is somebody else's: the kernel's log has the reason.
pub fn plug(channel: &str) -> io::Result<()> {
    let (device, name) = (open()?, Bytes::of(channel.as_bytes()));
    // SAFETY: the kernel reads a structure that lives, and the bytes that it names.
    unsafe { request::plug(device.as_raw_fd(), &raw const name) }?;
    Ok(())
}

/// Has the PCI functions of a channel go, with the devices behind them.
///
/// # Errors
/// No module, or a device of one is in use: the kernel's log says which, and all of them stay.
pub fn unplug(channel: &str) -> io::Result<()> {
    let (device, name) = (open()?, Bytes::of(channel.as_bytes()));
    // SAFETY: the kernel reads a structure that lives, and the bytes that it names.
    unsafe { request::unplug(device.as_raw_fd(), &raw const name) }?;
    Ok(())
}
