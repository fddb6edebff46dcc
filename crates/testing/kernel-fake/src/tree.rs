//! Statements about capabilities: their tree, and the use of each.

use crate::{Machine, World};
use bulkhead_kernel::abi::{Kind, Rights};
use bulkhead_kernel::{Cap, Machine as _, Place, Ref, SLOT_BITS, Slot, Thread};
use std::collections::{HashMap, HashSet};

/// A slot in use.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Where it lies.
    pub slot: Ref<Slot>,
    /// Its content.
    pub content: Slot,
    /// Depth of the original of the node that it lies in; `None`: in another object.
    pub node: Option<u64>,
}

type Checked<T = ()> = Result<T, String>;

/// A rule, and the message where it is broken.
macro_rules! must {
    ($rule:expr, $($said:tt)*) => {
        if !$rule {
            return Err(format!($($said)*));
        }
    };
}
pub(crate) use must;

/// All slots in use.
pub fn held(world: &World) -> Checked<Vec<Held>> {
    let m = &world.machine;
    // The depth of each node's original; the first node has none in the tree.
    let mut nodes: HashMap<u32, u64> = HashMap::from([(world.root().first.at(), 0)]);
    let mut slots = Vec::new();
    let objects: Vec<_> = m.objects().collect();
    for (at, kind) in &objects {
        let count = match kind {
            Kind::Node => node_slots(m, *at),
            Kind::Thread => 5,
            Kind::Interrupt | Kind::Link => 1,
            _ => 0,
        };
        let first = match kind {
            Kind::Thread => at + core::mem::offset_of!(Thread, slots) as u32,
            _ => *at,
        };
        for n in 0..count {
            let slot = Ref::<Slot>::new(first).nth(n);
            let content = *m.get(slot);
            let node = (*kind == Kind::Node).then_some(u64::from(*at));
            let place = match kind {
                Kind::Node => 0,
                Kind::Thread => n as u16 + 1,
                Kind::Link => Place::Link as u16,
                _ => Place::Interrupt as u16,
            };
            if content.cap.is(Kind::Null) {
                let linked = !content.next.is_none() || !content.previous.is_none();
                must!(!linked && content.cap == Cap::NULL, "an empty slot {slot:?}: {content:?}");
                continue;
            }
            must!(node.is_none() || n > 0, "slot 0 of the node at {at:#x} holds {content:?}");
            must!(content.place == place, "place {} of {slot:?} in {kind:?}", content.place);
            if content.cap.is(Kind::Node) {
                nodes.insert(content.cap.object, content.cap.data);
            }
            slots.push(Held { slot, content, node });
        }
    }
    for held in &mut slots {
        if let Some(at) = held.node {
            let node = nodes.get(&(at as u32));
            held.node = Some(*node.ok_or(format!("no capability of the node at {at:#x}"))?);
        }
    }
    Ok(slots)
}

/// How many slots a node has, by how long it is.
fn node_slots(m: &Machine, at: u32) -> u32 {
    let mut slots = 1;
    let inside = |n: u32| {
        let at = at + (n << SLOT_BITS);
        m.kind_at(at) == Some(Kind::Node) && !m.begins(at, Kind::Node)
    };
    while inside(slots) {
        slots += 1;
    }
    slots
}

/// The parents of all slots, by the order of the lists.
fn parents(m: &Machine, held: &[Held]) -> Checked<HashMap<Ref<Slot>, Ref<Slot>>> {
    let (mut parents, mut seen) = (HashMap::new(), HashSet::new());
    for first in held.iter().filter(|held| held.content.previous.is_none()) {
        must!(first.content.depth == 0, "{first:?} has no parent");
        let mut path = vec![first.slot];
        let mut at = first.slot;
        must!(seen.insert(at), "{at:?} is in two lists");
        while let Some(next) = m.get(at).next.some() {
            let Slot { previous, depth, .. } = *m.get(next);
            must!(previous == at, "{next:?} follows {at:?}, but comes after {previous:?}");
            must!(seen.insert(next), "{next:?} is in the list twice");
            let depth = usize::from(depth);
            must!(depth > 0 && depth <= path.len(), "{next:?} has depth {depth} after {path:?}");
            path.truncate(depth);
            parents.insert(next, path[depth - 1]);
            path.push(next);
            at = next;
        }
    }
    let lost = held.iter().find(|held| !seen.contains(&held.slot));
    must!(lost.is_none(), "{lost:?} is in no list");
    must!(seen.len() == held.len(), "the lists have slots that nothing holds");
    Ok(parents)
}

/// First byte and one past the last of an object in memory.
fn extent(cap: &Cap) -> Option<(u64, u64)> {
    let at = u64::from(cap.object);
    match cap.kind() {
        Kind::Null | Kind::Control | Kind::Ports | Kind::Sandbox => None,
        Kind::Frame if cap.flags & Cap::DEVICE != 0 => None,
        Kind::Frame => Some((at << 12, (at << 12) + (1 << cap.bits))),
        Kind::Node => Some((at, at + (1 << (cap.bits + SLOT_BITS)))),
        _ => Some((at, at + (1 << cap.bits))),
    }
}

/// Checks that a child has nothing that its parent doesn't give.
fn derived(parent: &Cap, child: &Held) -> Checked {
    let Held { content: Slot { cap, depth, .. }, .. } = child;
    if cap.is_original() {
        must!(parent.is(Kind::Untyped), "{cap:?} is made of {parent:?}");
        let ((at, end), from) = (extent(cap).ok_or("made of memory")?, u64::from(parent.object));
        let used = from + (parent.data & 0xFFFF_FFFF);
        must!(at >= from && end <= used, "{cap:?} lies outside what {parent:?} gave");
        let node = !cap.is(Kind::Node) || cap.data == u64::from(*depth);
        return if node { Ok(()) } else { Err(format!("{cap:?} at depth {depth}")) };
    }
    let same = (cap.kind, cap.bits, cap.object) == (parent.kind, parent.bits, parent.object);
    must!(same && !cap.is(Kind::Untyped), "{cap:?} comes from {parent:?}");
    must!(parent.rights().has(cap.rights()), "{cap:?} may more than {parent:?}");
    match cap.kind() {
        Kind::Endpoint | Kind::Notification => {
            must!(parent.data == 0 || parent.data == cap.data, "{cap:?} from {parent:?}");
        }
        Kind::Frame => {
            let device = |cap: &Cap| cap.flags & Cap::DEVICE;
            must!(device(cap) == device(parent), "{cap:?} from {parent:?}");
        }
        // Which use of it began by which is each one's own.
        Kind::Link => (),
        _ => must!(cap.data == parent.data, "{cap:?} from {parent:?}"),
    }
    Ok(())
}

/// Memory is only given downwards, and watermarks lie inside.
fn lies_well(held: &Held) -> Checked {
    let Held { content: Slot { cap, depth, .. }, node, .. } = held;
    let depth = u64::from(*depth);
    let well = match (cap.kind(), node) {
        (Kind::Untyped, Some(node)) => *node <= depth,
        (Kind::Node, Some(node)) if cap.is_original() => *node < depth,
        _ => true,
    };
    must!(well, "{held:?} lies too deep");
    if cap.is(Kind::Untyped) {
        let (used, cleared) = (cap.data & 0xFFFF_FFFF, cap.data >> 32);
        must!(used + cleared <= 1 << cap.bits, "{cap:?} gave more than it has");
    }
    must!(Rights::ALL.has(cap.rights()), "{cap:?}");
    Ok(())
}

/// Checks all of it.
pub fn check(world: &World, held: &[Held]) -> Checked {
    let m = &world.machine;
    let parents = parents(m, held)?;
    let caps: HashMap<_, _> = held.iter().map(|held| (held.slot, held.content.cap)).collect();
    let (mut originals, mut siblings) = (HashSet::new(), HashMap::<_, Vec<_>>::new());
    for one in held {
        let cap = one.content.cap;
        lies_well(one)?;
        let parent = parents.get(&one.slot);
        if let Some(parent) = parent {
            derived(&caps[parent], one)?;
        }
        let Some((at, end)) = extent(&cap).filter(|_| !cap.is(Kind::Untyped)) else {
            if let Some(parent) = parent.filter(|_| cap.is_original()) {
                siblings.entry(*parent).or_default().extend(extent(&cap));
            }
            continue;
        };
        must!(m.begins(at as u32, cap.kind()), "{cap:?}: no object begins at {at:#x}");
        if cap.is_original() {
            must!(originals.insert(at), "two originals of {cap:?}");
            siblings.entry(parent.copied().unwrap_or_default()).or_default().push((at, end));
        }
    }
    for family in siblings.values_mut() {
        family.sort_unstable();
        let apart = family.windows(2).all(|two| two[0].1 <= two[1].0);
        must!(apart, "objects overlap: {family:x?}");
    }
    let planted = u64::from(world.root().first.at());
    let orphan = m.objects().find(|(at, kind)| {
        let at = u64::from(*at);
        let stays = match kind {
            Kind::Interrupt | Kind::Link => true,
            // A link's table has no capability.
            Kind::Table => at < planted,
            _ => false,
        };
        !originals.contains(&at) && at != planted && !stays
    });
    must!(orphan.is_none(), "nobody has the object {orphan:x?}");
    Ok(())
}
