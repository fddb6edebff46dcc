//! The disk by the kernel's driver `ublk`. It copies a request's bytes between its own buffer and memory of this
//! program's, and this program copies them between that and the section. The kernel cannot do both at once: it pins the
//! program's pages, and it has no description of a channel's pages.

use super::far::{Area, Asked, Far, Front, Next};
use super::{Ends, Shown, accompany, ends_at_signals};
use bulkhead_linux::ublk::{Device, Kind, Queue, Terms};
use bulkhead_virtio::block::{SECTOR, read, write};
use bulkhead_virtio::disk::{Info, Operation};
use nix::libc::{EIO, EOPNOTSUPP};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;

impl Shown for Device {
    fn path(&self) -> &Path {
        self.path()
    }

    fn end(&self) -> io::Result<()> {
        self.stop()
    }
}

/// Serves a disk until the kernel wants no more of it, or the program ends.
pub fn serve(mut far: Far, info: &Info, program: &[&str]) -> io::Result<()> {
    let [most, depth] = far.bounds(info);
    let terms = Terms {
        block: info.block,
        sectors: info.sectors,
        read_only: info.read_only,
        cache: info.cache,
        most,
        depth: depth as u16,
        ranges: if info.read_only { [0; 2] } else { [info.discard, info.zero] },
    };
    let device = Arc::new(Device::make(&terms)?);
    // A device that was made is forgotten, whatever happens.
    let served = show(&mut far, &device, &terms, program);
    let deleted = device.delete();
    served.and(deleted)
}

fn show(far: &mut Far, device: &Arc<Device>, terms: &Terms, program: &[&str]) -> io::Result<()> {
    ends_at_signals(Arc::clone(device))?;
    let mut front = Ublk(Queue::open(device, terms)?);
    let starter = Arc::clone(device);
    // The kernel reads from the disk before this ends.
    let started = thread::Builder::new().spawn(move || {
        let started = starter.start();
        if started.is_err() {
            // Else the queue would wait for requests.
            let _ = starter.stop();
        }
        started
    })?;
    far.says_where(device.path());
    let ran = accompany(Arc::clone(device), program);
    let served = far.serve_to_the_end(&mut front, device);
    drop(front);
    Ends { served, carried: started, ran }.all()
}

struct Ublk(Queue);

impl Front for Ublk {
    fn take(&mut self) -> io::Result<Next> {
        let request = match self.0.take() {
            Ok(None) => return Ok(Next::Nothing),
            Ok(Some(request)) => request,
            Err(why) if why.kind() == ErrorKind::NotConnected => return Ok(Next::End),
            Err(why) => return Err(why),
        };
        let operation = match request.kind {
            Kind::Read => Operation::Read,
            Kind::Write => Operation::Write,
            Kind::Flush => Operation::Flush,
            Kind::Discard => Operation::Discard,
            Kind::Zero { unmap } => Operation::Zero { unmap },
            Kind::Other => {
                self.0.answer(request.tag, -EOPNOTSUPP)?;
                return Ok(Next::Done);
            }
        };
        let (sector, len) = match operation {
            Operation::Flush => (0, 0),
            _ => (request.sector, request.sectors as usize * SECTOR as usize),
        };
        Ok(Next::Asked(Asked { tag: request.tag.into(), operation, sector, len }))
    }

    fn fill(&mut self, asked: &Asked, to: &Area, at: usize) -> io::Result<()> {
        let bytes = self.0.data(asked.tag as u16).get(..asked.len);
        let written = bytes.is_some_and(|bytes| write(&to.region, at, bytes));
        if written { Ok(()) } else { Err(ErrorKind::InvalidInput.into()) }
    }

    fn answer(&mut self, asked: &Asked, error: i32, from: &Area, at: usize) -> io::Result<()> {
        let tag = asked.tag as u16;
        let done = match (asked.operation, error) {
            (Operation::Read, 0) => {
                let bytes = self.0.data(tag).get_mut(..asked.len);
                let done = bytes.is_some_and(|bytes| read(&from.region, at, bytes));
                if done { asked.len as i32 } else { -EIO }
            }
            (Operation::Write, 0) => asked.len as i32,
            (_, error) => -error,
        };
        self.0.answer(tag, done)
    }

    fn refuse(&mut self, asked: &Asked) -> io::Result<()> {
        self.0.answer(asked.tag as u16, -EIO)
    }

    fn tell(&mut self) -> io::Result<()> {
        self.0.tell()
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
