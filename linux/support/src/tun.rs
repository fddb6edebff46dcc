//! A network device whose packets a program reads and writes (Linux, networking/tuntap).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;

/// `IFNAMSIZ`.
const NAME: usize = 16;
/// Packets, not Ethernet frames.
const TUN: u16 = 1;
/// Without four bytes before each.
const NO_PI: u16 = 0x1000;

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
}

/// Makes a device of this name that carries IP packets.
///
/// # Errors
/// No driver (`modprobe tun`), no right, or a name of more than 15 bytes.
pub fn open(name: &str) -> io::Result<File> {
    let tun = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    let mut request = Request { name: [0; NAME], flags: TUN | NO_PI, rest: [0; 22] };
    let bytes = name.as_bytes();
    let to = request.name[..NAME - 1].get_mut(..bytes.len());
    to.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(bytes);
    // SAFETY: the request has the size and the fields that this call takes, and it keeps no pointer.
    unsafe { call::set_device(tun.as_raw_fd(), &raw const request) }?;
    Ok(tun)
}
