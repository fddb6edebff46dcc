//! Contexts laid over memory, as a kernel has them: an id is an address.

use bulkhead_sched::{Account, Context, Contexts, Id, Refill};
use core::num::NonZeroU32;

/// Refills behind a context; a kernel's object of 256 bytes has as many.
const ROOM: usize = 9;

/// A context, and a kernel's data beside it.
#[repr(C)]
pub struct Object {
    context: Context,
    room: u64,
    reserved: u64,
    refills: [Refill; ROOM],
}

impl Object {
    /// Memory for a context.
    pub const fn new() -> Self {
        let context = match Account::full(1) {
            Ok(account) => Context::new(account, 0),
            Err(_) => panic!("a slice of 1"),
        };
        Self { context, room: 0, reserved: 0, refills: [Refill { amount: 0, time: 0 }; ROOM] }
    }

    /// Becomes a context with up to `refills` entries in its list. Its id is good as long as it lies where it is.
    pub fn set(&mut self, context: Context, refills: usize) -> Id {
        self.context = context;
        self.room = (refills - 1).min(ROOM) as u64;
        let address = core::ptr::from_mut(self).expose_provenance() as u32;
        Id::new(NonZeroU32::new(address).unwrap_or(NonZeroU32::MAX))
    }
}

/// The memory that all objects lie in. There is one at a time.
pub struct Memory(());

impl Memory {
    /// # Safety
    /// Ids given to it are of objects that lie below 4 GiB, live as long as it, and are reached
    /// by it alone.
    pub unsafe fn new() -> Self {
        Self(())
    }

    fn object(&mut self, id: Id) -> &mut Object {
        // SAFETY: by the promise at `new`; the reference ends before the next one.
        unsafe { &mut *core::ptr::with_exposed_provenance_mut(id.get().get() as usize) }
    }
}

impl Contexts for Memory {
    #[inline(always)]
    fn context(&mut self, id: Id) -> &mut Context {
        &mut self.object(id).context
    }

    #[inline(always)]
    fn refills(&mut self, id: Id) -> (&mut Context, &mut [Refill]) {
        let object = self.object(id);
        let refills = object.refills.as_mut_ptr();
        // SAFETY: `room` is at most the length (`Object::set`), and nothing else writes it.
        let refills = unsafe { core::slice::from_raw_parts_mut(refills, object.room as usize) };
        (&mut object.context, refills)
    }
}
