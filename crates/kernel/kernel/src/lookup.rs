//! From the names in a thread's call to the capabilities there.

use crate::{Cap, Machine, Ref, Slot, Thread};
use bulkhead_kernel_abi::{Code, Kind, Rights, Status};

/// A capability space: a root node.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    /// Its first slot.
    pub first: Ref<Slot>,
    /// How many slots.
    pub slots: u32,
}

impl Root {
    /// Returns a thread's capability space.
    #[inline(always)]
    pub fn of<M: Machine>(m: &M, thread: Ref<Thread>) -> Self {
        let thread = m.get(thread);
        Self { first: thread.root, slots: thread.root_slots }
    }

    /// Returns the slot at an [`bulkhead_kernel_abi::Address`], which may be empty.
    ///
    /// # Errors
    /// [`Code::NoCapability`], with the argument's number: no such slot.
    #[inline(always)]
    pub fn slot<M: Machine>(self, m: &M, address: u64, argument: u8) -> Result<Ref<Slot>, Status> {
        // Most lie in the root node.
        let slot = match address != 0 && address < u64::from(self.slots) {
            true => self.first.nth(address as u32),
            false => self.far(m, address),
        };
        slot.some().ok_or(Status::new(Code::NoCapability, argument, address))
    }

    /// Returns a slot of a node that a capability in the root node reaches; none: no such slot.
    #[inline(never)]
    fn far<M: Machine>(self, m: &M, address: u64) -> Ref<Slot> {
        let (node, index) = (address >> 16, (address & 0xFFFF) as u32);
        // One level of nodes: a lookup takes two steps at most.
        if node == 0 || node >= u64::from(self.slots) {
            return Ref::NONE;
        }
        let node = Self::node(&m.get(self.first.nth(node as u32)).cap);
        node.and_then(|node| node.at(index)).unwrap_or(Ref::NONE)
    }

    /// Returns one of its slots; slot 0 is reserved.
    pub fn at(self, index: u32) -> Option<Ref<Slot>> {
        (index != 0 && index < self.slots).then(|| self.first.nth(index))
    }

    /// Returns the node that a capability reaches.
    pub fn node(cap: &Cap) -> Option<Self> {
        // A node that is being emptied takes nothing in, or its deletion might not end.
        let usable = cap.is(Kind::Node) && cap.flags & Cap::DYING == 0;
        usable.then(|| Self { first: cap.at(), slots: 1 << cap.bits })
    }

    /// Returns a slot with a capability of a kind.
    ///
    /// # Errors
    /// [`Code::NoCapability`], [`Code::WrongKind`] with the kind that lies there.
    #[inline(never)]
    pub fn find<M: Machine>(
        self,
        m: &M,
        address: u64,
        kind: Kind,
        argument: u8,
    ) -> Result<Ref<Slot>, Status> {
        let slot = self.slot(m, address, argument)?;
        let cap = &m.get(slot).cap;
        match cap.kind() {
            found if found == kind => Ok(slot),
            Kind::Null => Err(Status::new(Code::NoCapability, argument, address)),
            found => Err(Status::new(Code::WrongKind, argument, found as u64)),
        }
    }
}

impl Root {
    /// Returns the object of a capability of a kind.
    ///
    /// # Errors
    /// As [`Root::find`].
    #[inline(always)]
    pub fn object<M: Machine, T>(
        self,
        m: &M,
        address: u64,
        kind: Kind,
        argument: u8,
    ) -> Result<Ref<T>, Status> {
        self.find(m, address, kind, argument).map(|slot| m.get(slot).cap.at())
    }
}

/// Checks if a capability has rights.
///
/// # Errors
/// [`Code::NoRight`].
pub fn check(cap: &Cap, rights: Rights, argument: u8) -> Result<(), Status> {
    match cap.rights().has(rights) {
        true => Ok(()),
        false => Err(Status::new(Code::NoRight, argument, u64::from(rights.0))),
    }
}
