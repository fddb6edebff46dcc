//! Objects made at run time, of memory that the manifest gives a program (`memory`).

use crate::call::{Error, invoke};
use crate::names::{Memory, Program};
use crate::objects::{Context, Endpoint, Notification, Reply, Thread};
use bulkhead_kernel_abi::{Address, Code, Kind, Rights, Status, at, label, slot};
use bulkhead_layout::PAGE;

/// Makes objects in the program's empty slots, one behind the other. A program has one: a second one would find the
/// first one's slots taken.
#[derive(Debug)]
pub struct Maker {
    next: Address,
    end: Address,
    /// Where the next page is mapped.
    free: u64,
}

impl Program {
    /// Makes objects from its memory in its empty slots.
    #[must_use]
    pub fn maker(self) -> Maker {
        let [next, end] = self.page().free;
        Maker { next, end, free: at::OWN }
    }
}

impl Maker {
    /// Makes an object. `bits` is its size where the kind has several ([`label::RETYPE`]).
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::NoMemory`], [`bulkhead_kernel_abi::Code::NoCapability`]: the manifest gives no
    /// memory; [`bulkhead_kernel_abi::Code::OutOfRange`]: no slot is empty any more.
    pub fn make(&mut self, kind: Kind, bits: u8) -> Result<Address, Error> {
        let what = kind as u64 | u64::from(bits) << 8 | 1 << 16;
        let slot = self.slot();
        invoke(slot::MEMORY, label::RETYPE, [what, slot::NODE.into(), slot.into(), 0])?;
        self.next += 1;
        Ok(slot)
    }

    /// An empty slot, for a capability that is copied or comes with a message.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::OutOfRange`]: none is left.
    pub fn empty(&mut self) -> Result<Address, Error> {
        if self.next >= self.end {
            return Err(Error(Status::new(Code::OutOfRange, 0, self.end.into())));
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    /// The next one; beyond the last one, the kernel reports the error.
    fn slot(&self) -> Address {
        if self.next < self.end { self.next } else { Address::MAX }
    }

    /// A context without time so far, with room for the fewest refills.
    ///
    /// # Errors
    /// As [`Maker::make`]; so have those below.
    pub fn context(&mut self) -> Result<Context, Error> {
        const SMALLEST: u8 = 9;
        self.make(Kind::Context, SMALLEST).map(Context)
    }

    /// A reply object.
    ///
    /// # Errors
    /// See above.
    pub fn reply(&mut self) -> Result<Reply, Error> {
        self.make(Kind::Reply, 0).map(Reply)
    }

    /// An endpoint.
    ///
    /// # Errors
    /// See above.
    pub fn endpoint(&mut self) -> Result<Endpoint, Error> {
        self.make(Kind::Endpoint, 0).map(Endpoint)
    }

    /// A notification.
    ///
    /// # Errors
    /// See above.
    pub fn notification(&mut self) -> Result<Notification, Error> {
        self.make(Kind::Notification, 0).map(Notification)
    }

    /// An endpoint's capability by which its receiver knows the caller; to call only.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::WrongKind`]: it has a badge already; and see above.
    pub fn badged(&mut self, endpoint: Endpoint, badge: u64) -> Result<Endpoint, Error> {
        let rights = Rights::WRITE.and(Rights::CALL).0;
        let slot = self.slot();
        invoke(slot::NODE, label::COPY, [slot.into(), endpoint.0.into(), rights.into(), badge])?;
        self.next += 1;
        Ok(Endpoint(slot))
    }

    /// A thread of this program, stopped, without a buffer, priority or context.
    ///
    /// # Errors
    /// See above.
    pub fn thread(&mut self) -> Result<Thread, Error> {
        let thread = Thread(self.make(Kind::Thread, 0)?);
        let places = [slot::NODE.into(), slot::SPACE.into(), 0, 0];
        invoke(thread.0, label::CONFIGURE, places)?;
        Ok(thread)
    }

    /// A page of zeroed memory. The tables that it takes, three at most for the first one, come out of this memory,
    /// too. No device reaches it in a sandbox: memory for devices is [`Program::memory_for_device`].
    ///
    /// # Errors
    /// See above.
    pub fn page(&mut self) -> Result<Memory, Error> {
        const SMALL: u8 = 12;
        let (frame, address) = (self.make(Kind::Frame, SMALL)?, self.free);
        let rights = Rights::READ.and(Rights::WRITE);
        let place = [slot::SPACE.into(), address, rights.0.into(), 0];
        loop {
            match invoke(frame, label::MAP, place) {
                Err(error) if error.code() == Some(Code::NoTable) => {
                    let table = self.make(Kind::Table, 0)?;
                    invoke(table, label::MAP_TABLE, [slot::SPACE.into(), address, 0, 0])?;
                }
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        self.free += PAGE;
        Ok(Memory { start: address as *mut u8, len: PAGE as usize, writable: true })
    }
}
