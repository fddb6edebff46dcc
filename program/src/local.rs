//! Thread-local storage, found through the thread pointer. The image builder
//! puts a copy of the file's thread-local data beside each stack of the manifest.
//!
//! Rust's `#[thread_local]` is not stable, so a variable is a symbol of its own in `.tbss`, and begins as zeros.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize};

/// Types that may begin as zeros.
///
/// # Safety
/// A value of which all bytes are 0 is one.
pub unsafe trait Zero {}

macro_rules! zero {
    ($($type:ty)*) => {
        // SAFETY: numbers.
        $(unsafe impl Zero for $type {})*
    };
}

zero! { bool u8 u16 u32 u64 usize i8 i16 i32 i64 isize }
zero! { AtomicBool AtomicU32 AtomicU64 AtomicUsize AtomicI32 AtomicI64 }

// SAFETY: laid out as its content.
unsafe impl<T: Zero> Zero for Cell<T> {}
// SAFETY: one behind the other.
unsafe impl<T: Zero, const N: usize> Zero for [T; N] {}

/// A variable that each thread has of its own ([`crate::local!`]).
pub struct Local<T>(fn() -> *const T);

impl<T: Zero> Local<T> {
    /// For [`crate::local!`].
    ///
    /// # Safety
    /// The function says where the calling thread's own value lies, which begins as zeros.
    #[doc(hidden)]
    pub const unsafe fn new(at: fn() -> *const T) -> Self {
        Self(at)
    }

    /// Uses the calling thread's own value. A thread without a thread pointer raises an exception.
    pub fn with<R>(&self, work: impl FnOnce(&T) -> R) -> R {
        // SAFETY: by `new`; only this thread has a way to it, and for as long as it runs.
        work(unsafe { &*(self.0)() })
    }
}

impl<T: Zero + Copy> Local<Cell<T>> {
    /// The calling thread's own value.
    pub fn get(&self) -> T {
        self.with(Cell::get)
    }

    /// Sets it.
    pub fn set(&self, value: T) {
        self.with(|own| own.set(value));
    }
}

/// A variable that each thread of the manifest has of its own, and that begins as zeros: `local!(static COUNT:
/// Cell<u64>);`. A thread that a program makes itself has none until it is given a pointer
/// ([`crate::Thread::set_pointer`]).
#[macro_export]
macro_rules! local {
    ($(#[$meta:meta])* $visible:vis static $name:ident: $type:ty) => {
        $crate::local_symbol!($name: $type);
        $(#[$meta])*
        $visible static $name: $crate::Local<$type> = {
            fn at() -> *const $type {
                $crate::local_address!($name)
            }
            // SAFETY: the symbol above has room for it, and each thread's copy begins as zeros.
            unsafe { $crate::Local::new(at) }
        };
    };
}
