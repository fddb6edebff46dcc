//! The environment of a guest's code that uses channels: time, sleep, doorbells, a console and arguments. Scenarios are
//! written over it once, for a bare guest, a program of the kernel and a process of a Linux.

use crate::Mapping;
use crate::typed::Pair;
use bulkhead_channel::adaptive::{Platform, Sleeper};
use bulkhead_channel::bell::{Caller, Ring};
use core::fmt::Arguments;

/// The environment of a guest's code.
pub trait Guest {
    /// Rings for a receiver.
    type Ring: Ring;
    /// Place where a receiver sleeps.
    type Bed: Platform;
    /// Returns the sender's part of a channel's doorbell, if it has one.
    fn caller(&self, pair: &Pair<'static>) -> Option<Caller<Mapping<'static>, Self::Ring>>;
    /// Returns the receiver's part of a channel's doorbell, if it has one.
    fn sleeper(&self, pair: &Pair<'static>) -> Option<Sleeper<Mapping<'static>, Self::Bed>>;
    /// Returns the number of interrupts that ended its sleeps, or as many as it can know of.
    fn interrupts(&self, bed: &Self::Bed) -> u64;
    /// Returns the time in nanoseconds.
    fn now(&self) -> u64;
    /// Sleeps until a time in nanoseconds.
    fn sleep_until(&self, nanos: u64);
    /// Prints a line.
    fn say(&self, line: Arguments<'_>);
    /// Returns the value of an argument.
    fn arg(&self, key: &str) -> Option<&'static str>;
    /// Returns the number of lives before this one.
    fn life(&self) -> u64 {
        0
    }
    /// Says that exits count from here on.
    fn ready(&self) {}
    /// Begins anew; returns if it cannot.
    fn restart(&self) {}
    /// Returns the value of an argument as a number.
    fn number(&self, key: &str) -> Option<u64> {
        self.arg(key)?.parse().ok()
    }
}
