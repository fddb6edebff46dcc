//! A network device for a program that reads and writes its packets (Linux, networking/tuntap).

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;

/// `IFNAMSIZ`.
const NAME: usize = 16;
/// Packets, not Ethernet frames.
const TUN: u16 = 1;
/// Ethernet frames.
const TAP: u16 = 2;
/// Without four bytes before each.
const NO_PI: u16 = 0x1000;
/// With virtio's header before each.
const VNET_HDR: u16 = 0x4000;
/// Work that this side's kernel may leave to others: checksums, cutting large packets of TCP up (IPv4, IPv6).
const OFFLOADS: u64 = 1 | 2 | 4;

/// `struct ifreq`, as far as this request has it.
#[repr(C)]
struct Request {
    name: [u8; NAME],
    flags: u16,
    rest: [u8; 22],
}

mod call {
    #![allow(missing_docs, reason = "what the macro makes has no place for a comment")]
    nix::ioctl_write_ptr_bad!(set_device, nix::libc::TUNSETIFF, super::Request);
    nix::ioctl_write_ptr_bad!(set_header, nix::libc::TUNSETVNETHDRSZ, nix::libc::c_int);
    nix::ioctl_write_int_bad!(set_offloads, nix::libc::TUNSETOFFLOAD);
}

/// Makes a device of this name that carries IP packets, each behind a header of virtio's of so many bytes. Reads don't
/// wait, and the kernel hands out no packet that it has not finished until it may ([`offload`]).
///
/// # Errors
/// No driver (`modprobe tun`), no right, or a name of more than 15 bytes.
pub fn open(name: &str, header: usize) -> io::Result<File> {
    let tun = device(name, TUN | NO_PI | VNET_HDR)?;
    prepare(&tun, header)?;
    Ok(tun)
}

/// Makes a device of this name that carries Ethernet frames, each behind a header of virtio's of so many bytes
/// (virtio 1.2, 5.1.6). Reads don't wait.
///
/// # Errors
/// As [`open`].
pub fn open_tap(name: &str, header: usize) -> io::Result<File> {
    let tap = device(name, TAP | NO_PI | VNET_HDR)?;
    prepare(&tap, header)?;
    offload(&tap, true)?;
    Ok(tap)
}

fn prepare(device: &File, header: usize) -> io::Result<()> {
    let bytes = header as nix::libc::c_int;
    // SAFETY: the call reads one int.
    unsafe { call::set_header(device.as_raw_fd(), &raw const bytes) }?;
    fcntl(device, FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Tells the kernel if it may hand out packets that are too large, or lack their checksum.
///
/// # Errors
/// It is no such device.
pub fn offload(tap: &File, on: bool) -> io::Result<()> {
    let what = if on { OFFLOADS } else { 0 };
    // SAFETY: the argument is a number.
    unsafe { call::set_offloads(tap.as_raw_fd(), what as _) }?;
    Ok(())
}

fn device(name: &str, flags: u16) -> io::Result<File> {
    let tun = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    let mut request = Request { name: [0; NAME], flags, rest: [0; 22] };
    let bytes = name.as_bytes();
    let to = request.name[..NAME - 1].get_mut(..bytes.len());
    to.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(bytes);
    // SAFETY: the request has the size and the fields that this call takes, and it keeps no pointer.
    unsafe { call::set_device(tun.as_raw_fd(), &raw const request) }?;
    Ok(tun)
}
