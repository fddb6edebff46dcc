//! The disk by the kernel's driver `ublk`. The kernel copies a request's bytes between the section and its own buffer:
//! once, as our module does.

use super::far::{Asked, Far, Front, Next};
use super::{Ends, Shown, accompany, ends_at_signals};
use bulkhead_linux::section::Section;
use bulkhead_linux::ublk::{Device, Kind, Queue, Terms};
use bulkhead_virtio::block::SECTOR;
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
    let mut front = Ublk(Queue::open(device, terms.depth)?);
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

    fn fill(&mut self, asked: &Asked, to: &Section, at: usize) -> io::Result<()> {
        let (file, place) = self.0.data(asked.tag as u16);
        to.read_from_at(file, at, asked.len, place)
    }

    fn answer(&mut self, asked: &Asked, error: i32, from: &Section, at: usize) -> io::Result<()> {
        let tag = asked.tag as u16;
        let moved = match (asked.operation, error) {
            (Operation::Read, 0) => {
                let (file, place) = self.0.data(tag);
                from.write_to_at(file, at, asked.len, place).map(|()| asked.len)
            }
            (Operation::Write, 0) => Ok(asked.len),
            _ => Ok(0),
        };
        let result = match moved {
            Ok(bytes) if error == 0 => bytes as i32,
            Ok(_) => -error,
            Err(why) => -why.raw_os_error().unwrap_or(EIO),
        };
        self.0.answer(tag, result)
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
