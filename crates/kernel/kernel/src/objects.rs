//! The kernel's objects, as they lie in memory. All plain data.

use crate::{Object, PageTable, Ref, Registers, Slot, Vectors};
use bulkhead_kernel_abi::{Buffer, Kind};
use bulkhead_sched::Refill;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const fn kinds<const N: usize>(kinds: [Kind; N]) -> u32 {
    let (mut set, mut n) = (0, 0);
    while n < N {
        set |= 1 << kinds[n] as u32;
        n += 1;
    }
    set
}

macro_rules! lies_in {
    ($($object:ty: $whole:literal $($kind:ident)*;)*) => {$(
        impl Object for $object {
            const IN: u32 = kinds([$(Kind::$kind),*]);
            const WHOLE: bool = $whole;
        }
    )*};
}

lies_in! {
    Slot: false Node Thread Interrupt Link;
    Thread: true Thread;
    Vectors: false Thread;
    Buffer: false Frame;
    PageTable: true Space Table;
    Endpoint: true Endpoint;
    Notification: true Notification;
    Reply: true Reply;
    Context: true Context;
    Refill: false Context;
    Interrupt: true Interrupt;
    Link: true Link;
    u64: false;
}

/// A thread's activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Nothing: it was not started, or was stopped.
    #[default]
    Stopped = 0,
    /// It runs when it has a context with budget and the highest priority.
    Running = 1,
    /// It waits at an endpoint for a receiver.
    Sending = 2,
    /// It waits at an endpoint for a sender.
    Receiving = 3,
    /// It waits for an answer.
    Calling = 4,
    /// It waits at a notification.
    Waiting = 5,
}

/// A thread. The hottest part lies in front.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Thread {
    /// Its registers while it doesn't run.
    pub registers: Registers,
    /// Its root node's first slot.
    pub root: Ref<Slot>,
    /// How many slots that has.
    pub root_slots: u32,
    /// Root table of its space, a physical address.
    pub space: u64,
    /// Its thread pointer: compilers find a thread's own data there. Below [`crate::Layout::USER_END`].
    pub pointer: u64,
    /// The context on which it runs; none: it is passive, and waits or has no caller to work for.
    pub context: Ref<Context>,
    /// [`State::Calling`]: the reply object through which its answer comes. [`State::Receiving`]: the one for its next
    /// caller.
    pub reply: Ref<Reply>,
    /// Thread after it in its queue.
    pub next: Ref<Thread>,
    /// Thread before it.
    pub previous: Ref<Thread>,
    /// The endpoint or notification where it waits.
    pub waits_at: u32,
    /// 0 to 255; the higher, the earlier.
    pub priority: u8,
    /// The greatest priority that it may give.
    pub max_priority: u8,
    /// A [`State`].
    pub state: u8,
    /// [`Thread::VECTORS`] and others.
    pub flags: u8,
    /// [`State::Sending`]: the badge that the receiver gets.
    pub badge: u64,
    /// Its buffer.
    pub buffer: Ref<Buffer>,
    /// Also received where it receives messages.
    pub notification: Ref<Notification>,
    /// The context that it was given, wherever that is now.
    pub home: Ref<Context>,
    /// Its number in the manifest, for messages to people.
    pub number: u32,
    /// The capabilities that it was given to use: [`crate::Place`] 1 to 5.
    pub slots: [Slot; 5],
    /// The kernel's message about it while [`Thread::FAULTS`]: info and words.
    pub fault: [u64; 5],
    /// In the last thread of its priority in a queue: the last one of the next higher priority.
    pub higher: Ref<Thread>,
    /// And of the next lower one.
    pub lower: Ref<Thread>,
    /// [`Thread::ENDS`]: the instruction that raised the exception.
    pub raised_at: u64,
}

impl Thread {
    /// It uses vector registers; they lie behind it.
    pub const VECTORS: u8 = 1 << 0;
    /// Its message wants an answer.
    pub const CALLS: u8 = 1 << 1;
    /// It may send a capability along.
    pub const GRANTS: u8 = 1 << 2;
    /// Its message is a fault that the kernel tells of.
    pub const FAULTS: u8 = 1 << 3;
    /// It may run on a context that goes through as many calls as it may: its calls take the general way.
    pub const DEEP: u8 = 1 << 4;
    /// It has offered or accepted a link.
    pub const LINKS: u8 = 1 << 5;
    /// It raised an unhandled exception, and closes its links, one in each entry, before it stops.
    pub const ENDS: u8 = 1 << 6;
}

/// Size of a thread, as a power of two: the second half keeps vector registers.
pub const THREAD_BITS: u8 = 11;

/// Finds where a thread's vector registers are kept.
#[must_use]
pub const fn vectors(thread: Ref<Thread>) -> Ref<Vectors> {
    Ref::new(thread.at() + (1 << (THREAD_BITS - 1)))
}

/// Threads that wait, by priority; within a priority in the order in which they came.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Queue {
    /// The first one.
    pub first: Ref<Thread>,
    /// The last one.
    pub last: Ref<Thread>,
}

/// Where threads meet.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Endpoint {
    /// The waiting threads.
    pub queue: Queue,
    /// The [`State`] of all of them.
    pub state: u32,
    /// Reserved for the next version.
    pub reserved: u32,
    /// Longest time of a call on its caller's budget, ns; 0: any time.
    pub longest: u64,
    /// See above.
    pub more: [u32; 2],
}

/// Bits to be set and waited for.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Notification {
    /// The badges that were signalled and not yet received.
    pub bits: u64,
    /// The waiting threads.
    pub queue: Queue,
    /// The thread that also receives it with its messages.
    pub bound: Ref<Thread>,
    /// The context on which a thread without one works for it.
    pub context: Ref<Context>,
    /// Reserved for the next version.
    pub reserved: [u32; 2],
}

/// The caller that waits for an answer, and the context that is used meanwhile. Those that one context has come through
/// form a stack.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Reply {
    /// The thread that waits.
    pub caller: Ref<Thread>,
    /// The object below it in the stack: its caller called this one's caller.
    pub below: Ref<Reply>,
    /// The object above it.
    pub above: Ref<Reply>,
    /// In the topmost one: the context.
    pub context: Ref<Context>,
    /// The thread that waits for a caller with it.
    pub receiver: Ref<Thread>,
    /// How many were below it when it came into the stack.
    pub depth: u32,
    /// In a call that has a limit: [`Reply::LIMITED`], and the part of its context's budget that is held back
    /// meanwhile, ns.
    pub held: u64,
}

impl Reply {
    /// The call has a limit.
    pub const LIMITED: u64 = 1 << 63;
    /// Most calls that one context goes through: a search for the topmost object takes so many steps.
    pub const MOST_NESTED: u32 = 32;
}

/// A scheduling context, in front of its refills.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Context {
    /// The scheduler's part.
    pub time: bulkhead_sched::Context,
    /// The thread that runs on it.
    pub thread: Ref<Thread>,
    /// The thread that it was given to.
    pub home: Ref<Thread>,
    /// Or the notification.
    pub notification: Ref<Notification>,
    /// The topmost reply object that it came through.
    pub reply: Ref<Reply>,
    /// Word for timeout messages.
    pub badge: u64,
    /// How many refills there is room for.
    pub refills: u32,
    /// True if it has a place among the scheduler's contexts.
    pub is_set: u32,
}

/// An interrupt.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Interrupt {
    /// Notification that it signals: [`crate::Place::Interrupt`].
    pub slot: Slot,
    /// Its number on this core.
    pub number: u32,
    /// 0: it can come; [`Interrupt::CAME`]; [`Interrupt::MASKED`].
    pub state: u32,
    /// The script that masks it at its source ([`crate::Machine::play`]); 0: there is none.
    pub mask: u32,
    /// The script that lets it come again.
    pub unmask: u32,
    /// Its state as long as it can come: 0, or, of a level-triggered line, [`Interrupt::CAME`]. Such a line's request
    /// stays until its driver has dealt with it, so it is kept back from the first time on.
    pub rests: u32,
    /// Reserved for the next version.
    pub reserved: [u32; 3],
}

impl Interrupt {
    /// It came, and was not acknowledged.
    pub const CAME: u32 = 1;
    /// It came again before that, and is kept back: at its source, or by an end that the interrupt controller is not
    /// told of.
    pub const MASKED: u32 = 2;
}

/// A link, in the hands of a program.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Link {
    /// The space in which it is seen: [`crate::Place::Link`].
    pub slot: Slot,
    /// Its number.
    pub number: u32,
    /// Sandboxes that it may be offered to, as a set; none if another sandbox offers it.
    pub to: u32,
    /// The table with its entries, which only the kernel finds.
    pub table: Ref<PageTable>,
    /// The thread that offered or accepted it: it is closed with that. Without one it is closed, or was opened by a
    /// thread that does not end.
    pub thread: Ref<Thread>,
    /// How often it was offered or accepted.
    pub uses: u64,
    /// True if the sandbox has it, as far as the kernel knows.
    pub open: u32,
    /// Reserved for the next version.
    pub reserved: u32,
}

/// Smallest and greatest size of a context, as a power of two.
pub const CONTEXT_BITS: [u8; 2] = [9, 12];

/// Returns how many refills a context of a size has room for.
#[must_use]
pub const fn refills(bits: u8) -> u32 {
    (((1usize << bits) - size_of::<Context>()) / size_of::<Refill>()) as u32
}

/// Returns the size of an object, as a power of two; `bits` is the caller's choice for kinds that have one.
///
/// # Errors
/// The least and the greatest value that would be right, where `bits` is not.
pub fn size(kind: Kind, bits: u8) -> Result<u8, [u8; 2]> {
    const {
        assert!(size_of::<Thread>() <= 1 << (THREAD_BITS - 1));
        assert!(size_of::<Vectors>() <= 1 << (THREAD_BITS - 1));
        assert!(size_of::<Endpoint>() == 32);
        assert!(size_of::<Notification>() == 32);
        assert!(size_of::<Reply>() == 32);
        assert!(size_of::<Interrupt>() == 64);
        assert!(size_of::<Link>() == 64);
        assert!(size_of::<Context>() + 2 * size_of::<Refill>() <= 1 << CONTEXT_BITS[0]);
    }
    let (least, most, size) = match kind {
        Kind::Untyped => (5, 30, bits),
        Kind::Node => (1, 16, bits.saturating_add(crate::SLOT_BITS)),
        Kind::Context => (CONTEXT_BITS[0], CONTEXT_BITS[1], bits),
        Kind::Frame => (12, 21, bits),
        Kind::Thread => (0, 0, THREAD_BITS),
        Kind::Space | Kind::Table => (0, 0, 12),
        Kind::Endpoint | Kind::Notification | Kind::Reply => (0, 0, 5),
        _ => return Err([0, 0]),
    };
    let between = kind == Kind::Frame && bits != least && bits != most;
    match bits < least || bits > most || between {
        true => Err([least, most]),
        false => Ok(size),
    }
}
