//! The disk by the kernel's driver `nbd`. Its requests come over a socket, with the bytes of writes behind them. So a
//! request's bytes are copied twice: to or from the socket, and to or from the kernel's buffer.

use super::far::{Area, Asked, Far, Front, Next};
use super::{Ends, Shown, accompany, ends_at_signals};
use bulkhead_linux::nbd::{Device, Kind, Socket, Terms, answer, flag};
use bulkhead_virtio::block::SECTOR;
use bulkhead_virtio::disk::{Info, Operation};
use nix::libc::{EINVAL, EIO};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;

impl Shown for Device {
    fn path(&self) -> &Path {
        self.path()
    }

    fn end(&self) -> io::Result<()> {
        self.disconnect()
    }
}

/// Serves a disk until the kernel wants no more of it, or the program ends.
pub fn serve(mut far: Far, info: &Info, program: &[&str]) -> io::Result<()> {
    let [most, _] = far.bounds(info);
    let terms = terms(info, most)?;
    let (device, socket) = Device::open(&terms)?;
    let device = Arc::new(device);
    ends_at_signals(Arc::clone(&device))?;
    let carrier = Arc::clone(&device);
    let carried = thread::Builder::new().spawn(move || carrier.run())?;
    far.says_where(device.path());
    let ran = accompany(Arc::clone(&device), program);
    let mut front = Nbd { socket, most };
    let served = far.serve_to_the_end(&mut front, &device);
    drop(front);
    device.clear();
    Ends { served, carried, ran }.all()
}

/// Describes the disk to the kernel.
fn terms(info: &Info, most: usize) -> io::Result<Terms> {
    /// Linux's bound.
    const BLOCK: u32 = 4096;
    let bytes = info.sectors.checked_mul(SECTOR).filter(|bytes| i64::try_from(*bytes).is_ok());
    let block = u64::from(info.block);
    let whole = bytes.filter(|bytes| *bytes > 0 && bytes.is_multiple_of(block));
    let whole = whole.filter(|_| info.block <= BLOCK && most >= BLOCK as usize);
    let Some(bytes) = whole else {
        let (sectors, block) = (info.sectors, info.block);
        let why = format!(
            "no disk of this kernel has {sectors} sectors in blocks of {block}, {most} bytes at a time"
        );
        return Err(io::Error::other(why));
    };
    let mut flags = flag::ANY;
    let mut add = |when: bool, flag: u64| flags |= if when { flag } else { 0 };
    add(info.read_only, flag::READ_ONLY);
    add(info.cache, flag::FLUSH);
    add(range(info.discard, info), flag::TRIM);
    add(range(info.zero, info), flag::ZERO);
    Ok(Terms { block: info.block, blocks: bytes / block, flags, most })
}

/// Tells if the disk takes ranges of all lengths that this driver asks for: it does not tell the kernel a bound.
fn range(most: u32, info: &Info) -> bool {
    !info.read_only && most >= bulkhead_virtio::block::RANGE_SECTORS
}

struct Nbd {
    socket: Socket,
    /// Bytes of a request, at most.
    most: usize,
}

impl Front for Nbd {
    fn take(&mut self) -> io::Result<Next> {
        let Some(request) = self.socket.take()? else { return Ok(Next::Nothing) };
        let len = request.len as usize;
        let operation = match request.kind {
            Kind::End => return Ok(Next::End),
            Kind::Read => Operation::Read,
            Kind::Write => Operation::Write,
            Kind::Flush => Operation::Flush,
            Kind::Trim => Operation::Discard,
            Kind::Zero { unmap } => Operation::Zero { unmap },
        };
        let moves = matches!(operation, Operation::Read | Operation::Write);
        // A larger one than the kernel was told, after a change of `max_sectors_kb`.
        if request.from % SECTOR != 0 || moves && len > self.most {
            if operation == Operation::Write {
                self.socket.skip(len)?;
            }
            self.socket.send(&answer(request.cookie, EINVAL))?;
            return Ok(Next::Done);
        }
        let (sector, len) = match operation {
            // Linux sends the place of no byte.
            Operation::Flush => (0, 0),
            _ => (request.from / SECTOR, len),
        };
        Ok(Next::Asked(Asked { tag: request.cookie, operation, sector, len }))
    }

    fn fill(&mut self, asked: &Asked, to: &Area, at: usize) -> io::Result<()> {
        to.section.receive(&self.socket, at, asked.len)
    }

    fn answer(&mut self, asked: &Asked, error: i32, from: &Area, at: usize) -> io::Result<()> {
        let head = answer(asked.tag, error);
        if error != 0 || asked.operation != Operation::Read {
            return self.socket.send(&head);
        }
        let done = from.section.write_behind(&head, &self.socket, at, asked.len)?;
        // A signal may have cut it.
        self.socket.send(head.get(done..).unwrap_or_default())?;
        let done = done.saturating_sub(head.len());
        from.section.send(&self.socket, at + done, asked.len - done)
    }

    fn refuse(&mut self, asked: &Asked) -> io::Result<()> {
        if asked.operation == Operation::Write {
            self.socket.skip(asked.len)?;
        }
        self.socket.send(&answer(asked.tag, EIO))
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_virtio::block::RANGE_SECTORS;

    const INFO: Info = Info {
        sectors: 1024,
        read_only: false,
        cache: true,
        block: 512,
        most: u32::MAX,
        discard: RANGE_SECTORS,
        zero: 8,
        name: [0; 20],
    };

    #[test]
    fn the_kernel_is_told_of_what_the_disk_has() {
        let flags = |info: &Info| terms(info, 8192).map(|terms| terms.flags).ok();
        assert_eq!(flags(&INFO), Some(flag::ANY | flag::FLUSH | flag::TRIM));
        let read_only = Info { read_only: true, ..INFO };
        assert_eq!(flags(&read_only), Some(flag::ANY | flag::FLUSH | flag::READ_ONLY));
        let large = terms(&Info { block: 4096, ..INFO }, 8192).unwrap();
        assert_eq!((large.block, large.blocks), (4096, 128));
    }

    #[test]
    fn a_disk_that_no_kernel_has_is_refused() {
        for info in [
            Info { sectors: 0, ..INFO },
            Info { sectors: 1 << 54, ..INFO },
            Info { sectors: u64::MAX, ..INFO },
            Info { block: 8192, ..INFO },
            Info { sectors: 1025, block: 4096, ..INFO },
        ] {
            assert!(terms(&info, 8192).is_err(), "{info:?}");
        }
        assert!(terms(&INFO, 2048).is_err());
    }
}
