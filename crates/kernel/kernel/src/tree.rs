//! The tree of derivations: the capabilities that are lost when another one is lost.
//!
//! A doubly linked list of all slots in use, in pre-order: those derived from a capability follow it with greater
//! depths. A capability lives no longer than its parent: deleting one deletes its children first. The parent of an
//! object's *original* capability is the memory that the object is made of. So the original is the object's last
//! capability, and its end is the object's. No counts of references, no search.

use crate::{Cap, Machine, Ref, Slot};
use bulkhead_kernel_abi::{Code, Kind, Status};

/// Deepest derivation: bounds every descent.
pub const MAX_DEPTH: u16 = 64;

/// Puts a capability into an empty slot, derived from the one in `parent`.
#[inline(never)]
pub fn insert<M: Machine>(m: &mut M, parent: Ref<Slot>, to: Ref<Slot>, cap: Cap) {
    let Slot { next, depth, .. } = *m.get(parent);
    m.get_mut(parent).next = to;
    if let Some(next) = next.some() {
        m.get_mut(next).previous = to;
    }
    let slot = m.get_mut(to);
    (slot.cap, slot.next, slot.previous, slot.depth) = (cap, next, parent, depth + 1);
}

/// Puts the first capability of all into a slot.
pub fn plant<M: Machine>(m: &mut M, to: Ref<Slot>, cap: Cap) {
    let slot = m.get_mut(to);
    (slot.cap, slot.depth) = (cap, 0);
}

/// Checks if a capability can be derived from this one.
///
/// # Errors
/// [`Code::TooDeep`].
pub fn derivable<M: Machine>(m: &M, parent: Ref<Slot>, argument: u8) -> Result<(), Status> {
    match m.get(parent).depth < MAX_DEPTH {
        true => Ok(()),
        false => Err(Status::new(Code::TooDeep, argument, u64::from(MAX_DEPTH))),
    }
}

/// Tells if a capability was derived from the slot's.
pub fn has_children<M: Machine>(m: &M, slot: Ref<Slot>) -> bool {
    let Slot { next, depth, .. } = *m.get(slot);
    next.some().is_some_and(|next| m.get(next).depth > depth)
}

/// Moves a slot's content to an empty one.
pub fn relocate<M: Machine>(m: &mut M, from: Ref<Slot>, to: Ref<Slot>) {
    let Slot { cap, next, previous, depth, .. } = *m.get(from);
    let slot = m.get_mut(to);
    (slot.cap, slot.next, slot.previous, slot.depth) = (cap, next, previous, depth);
    link(m, next, previous, to, to);
    empty(m, from);
}

/// Takes a capability without children out of the tree and empties its slot.
pub fn remove<M: Machine>(m: &mut M, slot: Ref<Slot>) {
    let Slot { next, previous, .. } = *m.get(slot);
    link(m, next, previous, previous, next);
    empty(m, slot);
}

fn link<M: Machine>(
    m: &mut M,
    next: Ref<Slot>,
    previous: Ref<Slot>,
    before_next: Ref<Slot>,
    after_previous: Ref<Slot>,
) {
    if let Some(next) = next.some() {
        m.get_mut(next).previous = before_next;
    }
    if let Some(previous) = previous.some() {
        m.get_mut(previous).next = after_previous;
    }
}

fn empty<M: Machine>(m: &mut M, slot: Ref<Slot>) {
    let slot = m.get_mut(slot);
    (slot.cap, slot.next, slot.previous, slot.depth) = (Cap::NULL, Ref::NONE, Ref::NONE, 0);
}

/// Tells if a capability may lie in a node, given the depths of its own slot and of the node's original.
///
/// Memory is only given downwards. Untyped memory may lie in nodes of its own depth or above, and a node's original
/// only in nodes above it. So a walk along "lies in" and "was derived from" comes to greater and greater depths, and
/// [`leaf`] to an end.
pub fn may_lie(cap: &Cap, depth: u16, node_depth: u64) -> bool {
    match cap.kind() {
        Kind::Untyped => node_depth <= u64::from(depth),
        Kind::Node if cap.is_original() => node_depth < u64::from(depth),
        _ => true,
    }
}

/// Returns the next slot to be deleted, if `slot` is to go with all that depends on it. It has no children, and its
/// node is empty. `None`: a node has so many slots that looking through them is not over yet, or somebody has to come
/// again.
pub fn leaf<M: Machine>(m: &mut M, slot: Ref<Slot>) -> Option<Ref<Slot>> {
    let mut at = slot;
    loop {
        while has_children(m, at) {
            at = m.get(at).next;
        }
        let cap = m.get(at).cap;
        if !(cap.is(Kind::Node) && cap.is_original()) {
            return Some(at);
        }
        // From here on no capability gets into the node.
        m.get_mut(at).cap.flags |= Cap::DYING;
        match content(m, &cap) {
            Content::Slot(inner) => at = inner,
            Content::Nothing => return Some(at),
            Content::Unknown => return None,
        }
    }
}

enum Content {
    Slot(Ref<Slot>),
    Nothing,
    Unknown,
}

/// How many slots are looked at in one step.
const LOOK: u32 = 64;

/// Finds something that lies in a node that no capability reaches any more. The node's slot 0, which holds no
/// capability, remembers how far it is known to be empty.
fn content<M: Machine>(m: &mut M, node: &Cap) -> Content {
    let first: Ref<Slot> = node.at();
    let slots = 1u32 << node.bits;
    let from = m.get(first).cursor;
    for n in from..slots.min(from + LOOK) {
        // The cursor stays at it: more may have to go before it is empty.
        if m.get(first.nth(n)).cap.kind != 0 {
            m.get_mut(first).cursor = n;
            return Content::Slot(first.nth(n));
        }
    }
    m.get_mut(first).cursor = slots.min(from + LOOK);
    if from + LOOK >= slots { Content::Nothing } else { Content::Unknown }
}
