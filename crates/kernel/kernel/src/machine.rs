//! The services that the kernel needs of a machine. On the target `kernel/` has them, on the host a vector of bytes
//! ([`crate::host`]).

use crate::Cap;
use bulkhead_arch::Stage1;
use bulkhead_kernel_abi::{Label, Status};
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use bulkhead_kernel_abi::REGISTER_WORDS;
pub use bulkhead_sched::Time;
pub use bulkhead_trace::Event;

/// Data that lies in the kernel's memory: whatever bits are there, it is a value.
pub trait Object: FromBytes + IntoBytes + KnownLayout + Immutable {
    /// In objects of which kinds it lies, as a set of bits: for machines that check. 0: in memory of the
    /// kernel's own.
    const IN: u32;
    /// True if an object begins with it; else it is a piece of one.
    const WHOLE: bool;
}

/// Where an object lies: its offset in the sandbox's memory, in bytes; 0 is none. Only the kernel
/// makes one, from an object that it made.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Ref<T> {
    at: u32,
    object: PhantomData<fn() -> T>,
}

impl<T> Ref<T> {
    /// No object.
    pub const NONE: Self = Self::new(0);

    /// Returns the object at an offset.
    #[inline(always)]
    #[must_use]
    pub const fn new(at: u32) -> Self {
        Self { at, object: PhantomData }
    }

    /// Returns its offset.
    #[inline(always)]
    #[must_use]
    pub const fn at(self) -> u32 {
        self.at
    }

    /// Tells if it is none.
    #[inline(always)]
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.at == 0
    }

    /// Itself, unless it is none.
    #[inline(always)]
    #[must_use]
    pub const fn some(self) -> Option<Self> {
        if self.at == 0 { None } else { Some(self) }
    }

    /// Returns the `n`th of several that lie side by side, this one being the first.
    #[inline(always)]
    #[must_use]
    pub const fn nth(self, n: u32) -> Self {
        Self::new(self.at + n * size_of::<T>() as u32)
    }
}

impl<T> Clone for Ref<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ref<T> {}

impl<T> PartialEq for Ref<T> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<T> Eq for Ref<T> {}

impl<T> Hash for Ref<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.at.hash(state);
    }
}

impl<T> Default for Ref<T> {
    fn default() -> Self {
        Self::NONE
    }
}

impl<T> core::fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#x}", self.at)
    }
}

/// Most words of a thread's registers, on any architecture. The array's size cannot be the architecture's own: then all
/// objects that lead to a thread would have its type.
pub const REGISTERS: usize = 36;

/// A thread's registers while it doesn't run. Which word is which is the architecture's
/// ([`Layout`]).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(16))]
pub struct Registers(pub [u64; REGISTERS]);

/// An architecture, as the portable kernel sees it: the places of registers, and its limits. All places are indices of
/// [`Registers`].
pub trait Layout {
    /// Which call, and the reply object; its status.
    const OP: usize;
    /// The capabilities that it names; the badge that it comes back with.
    const NAMED: usize;
    /// The message's description.
    const INFO: usize;
    /// The first of the message's first words, which lie side by side.
    const WORDS: usize;
    /// Next instruction.
    const IP: usize;
    /// Stack pointer.
    const SP: usize;
    /// Flags as the architecture has them.
    const FLAGS: usize;
    /// The first two arguments of a function.
    const ARGUMENTS: [usize; 2];
    /// Not 0: all registers matter, not only those that a call preserves.
    const ALL: usize;
    /// Bytes of the instruction that calls.
    const CALL_LEN: u64;
    /// Flags of a thread that starts.
    const START_FLAGS: u64;
    /// The only word that is not 0 in the vector registers of a thread that has not used them.
    const START_VECTORS: (usize, u64);
    /// First address that is not a program's; no instruction of a program lies there.
    const USER_END: u64;
    /// An access to registers of a device that only instructions of this architecture reach, checked
    /// ([`bulkhead_kernel_abi::Kind::Ports`]).
    type Access: Clone;
    /// Checks a method of the capability to such registers. Nothing happens yet.
    ///
    /// # Errors
    /// As the method's description in [`bulkhead_kernel_abi::label`] has it.
    fn access(cap: &Cap, method: Label, words: &[u64; 4]) -> Result<Self::Access, Status>;
}

impl Registers {
    /// Tells which call, and the reply object.
    #[inline(always)]
    pub const fn op<L: Layout>(&self) -> u64 {
        self.0[L::OP]
    }

    /// Returns the capabilities that it names.
    #[inline(always)]
    pub const fn named<L: Layout>(&self) -> u64 {
        self.0[L::NAMED]
    }

    /// Returns the message's description.
    #[inline(always)]
    pub const fn info<L: Layout>(&self) -> u64 {
        self.0[L::INFO]
    }

    /// One of the message's first words, `n` below [`REGISTER_WORDS`].
    #[inline(always)]
    pub const fn word<L: Layout>(&self, n: usize) -> u64 {
        self.0[L::WORDS + n % REGISTER_WORDS]
    }

    /// Returns the message's first words.
    #[inline(always)]
    pub const fn words<L: Layout>(&self) -> [u64; REGISTER_WORDS] {
        [self.word::<L>(0), self.word::<L>(1), self.word::<L>(2), self.word::<L>(3)]
    }

    /// Sets the first `count` of them.
    #[inline(always)]
    pub const fn set_words<L: Layout>(&mut self, words: &[u64; REGISTER_WORDS], count: usize) {
        let mut n = 0;
        while n < REGISTER_WORDS && n < count {
            self.set_word::<L>(n, words[n]);
            n += 1;
        }
    }

    /// Sets one of them.
    #[inline(always)]
    pub const fn set_word<L: Layout>(&mut self, n: usize, word: u64) {
        self.0[L::WORDS + n % REGISTER_WORDS] = word;
    }

    /// Writes a call's result, beside the words.
    #[inline(always)]
    pub const fn answer<L: Layout>(&mut self, status: u64, badge: u64, info: u64) {
        self.0[L::OP] = status;
        self.0[L::NAMED] = badge;
        self.0[L::INFO] = info;
    }

    /// Lets the thread make its call once more when it goes on.
    pub const fn repeat<L: Layout>(&mut self) {
        self.0[L::IP] = self.0[L::IP].wrapping_sub(L::CALL_LEN);
    }

    /// Returns the next instruction.
    pub const fn ip<L: Layout>(&self) -> u64 {
        self.0[L::IP]
    }

    /// Returns the stack pointer.
    pub const fn sp<L: Layout>(&self) -> u64 {
        self.0[L::SP]
    }

    /// Where it runs when it goes on, and the first two arguments of the function there.
    pub const fn start<L: Layout>(&mut self, ip: u64, sp: u64, arguments: [u64; 2]) {
        self.0[L::IP] = ip;
        self.0[L::SP] = sp;
        self.0[L::FLAGS] = L::START_FLAGS;
        self.0[L::ARGUMENTS[0]] = arguments[0];
        self.0[L::ARGUMENTS[1]] = arguments[1];
        self.0[L::ALL] = 1;
    }
}

/// A core and the memory of its sandbox.
pub trait Machine: Sized {
    /// Places of a thread's saved registers.
    type Layout: Layout;
    /// How page tables of user space are encoded.
    type Pages: Stage1;

    /// Returns an object. The kernel vouches that one of this type lies there.
    fn get<T: Object>(&self, at: Ref<T>) -> &T;
    /// Returns an object, to be changed.
    fn get_mut<T: Object>(&mut self, at: Ref<T>) -> &mut T;
    /// Objects side by side behind another one: `count` of type `U` at `at + size_of::<T>()`.
    fn with_tail<T: Object, U: Object>(&mut self, at: Ref<T>, count: usize) -> (&mut T, &mut [U]);
    /// Zeroes memory in which no object lies.
    fn clear(&mut self, at: u32, len: u32);
    /// Notes that the kernel made an object of a type, or (`None`) that nothing lies there any more.
    /// For machines that check.
    fn note(&mut self, _at: u32, _len: u32, _kind: Option<bulkhead_kernel_abi::Kind>) {}

    /// Tells if it wants to be told of events. A machine that never does has no code for them.
    #[inline(always)]
    fn is_traced(&self) -> bool {
        false
    }
    /// Records an event.
    fn trace(&mut self, _event: Event) {}

    /// The physical address of an offset, as page tables have it.
    fn physical(&self, at: u32) -> u64;
    /// The entry of a root table through which the kernel itself is reached, and its index. `None`: the architecture
    /// has a root table of the kernel's own beside the one of the program.
    fn kernel_entry(&self) -> Option<(u64, usize)>;
    /// Lets user addresses have this root table's meaning.
    fn enter_space(&mut self, root: u64);
    /// Forgets the processor's translation of a user address of the present root.
    fn forget(&mut self, address: u64);

    /// Gives the processor to another thread, with this thread pointer. Nothing is left of the thread before in
    /// registers that are in no thread's [`Registers`] and that programs can write.
    fn enter_thread(&mut self, pointer: u64);

    /// Nanoseconds since the processor's start. Never 0.
    fn now(&mut self) -> Time;
    /// Interrupts at this time, once, instead of any time said before; [`Time::MAX`]: never.
    fn set_timer(&mut self, at: Time);

    /// From now on vector registers are those of the thread that keeps them there, or belong to none.
    fn use_vectors(&mut self, area: Option<Ref<Vectors>>);
    /// Carries out an access to registers of a device. Returns the register's value; of a write 0.
    fn access(&mut self, access: <Self::Layout as Layout>::Access) -> u64;
    /// Plays a script that the host made: writes to devices' registers. 0: an empty one.
    fn play(&mut self, script: u32);
    /// Writes text to the sandbox's console.
    fn print(&mut self, text: &[u8]);
    /// Asks the sandbox's monitor for something: a hypercall with two arguments. Returns its answer.
    fn ask(&mut self, call: u64, first: u64, second: u64) -> u64;
    /// Says that the sandbox has started.
    fn ready(&mut self);
    /// The sandbox ends; on the host it does not.
    fn exit(&mut self, code: u32);
}

/// Where a thread's vector registers are kept. The architecture says how, and that they fit.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct Vectors(pub [u64; 104]);
