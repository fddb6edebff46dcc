//! The environment of a guest's code that uses channels: their ends by name, doorbells, time, a console and arguments.
//! Code over it is written once, for a bare guest, a program of the kernel and a process of a Linux.

use crate::Mapping;
use crate::typed::{Doorbell, Pair};
use bulkhead_channel::adaptive::{Platform, Sleeper};
use bulkhead_channel::bell::{Caller, Ring};
use bulkhead_guest::text;
use core::fmt::Arguments;

/// The environment of a guest's code.
pub trait Guest {
    /// Rings for the other end of a channel.
    type Ring: Ring;
    /// Place where an end sleeps.
    type Bed: Platform;
    /// Returns the guest's name.
    fn name(&self) -> &str;
    /// Returns its arguments.
    fn args(&self) -> &'static str;
    /// Returns the ends of a channel of messages, by its name: one, or as its sender one for each receiver, in the
    /// manifest's order.
    fn pairs(&self, name: &str) -> impl Iterator<Item = Pair<'static>>;
    /// Returns the way to ring a doorbell.
    fn ring(&self, doorbell: Doorbell) -> Option<Self::Ring>;
    /// Returns the place at which the guest sleeps until a doorbell rings.
    fn bed(&self, doorbell: Doorbell) -> Option<Self::Bed>;
    /// Returns how long a sleep and its end take, more or less, in ticks of [`Self::Bed`].
    fn cost(&self) -> u64;
    /// Returns the number of interrupts that ended its sleeps, or as many as it can know of.
    fn interrupts(&self, bed: &Self::Bed) -> u64;
    /// Returns the time in nanoseconds.
    fn now(&self) -> u64;
    /// Sleeps until a time in nanoseconds.
    fn sleep_until(&self, nanos: u64);
    /// Prints a line.
    fn say(&self, line: Arguments<'_>);
    /// Returns the number of lives before this one.
    fn life(&self) -> u64 {
        0
    }
    /// Says that exits count from here on.
    fn ready(&self) {}
    /// Begins anew; returns if it cannot.
    fn restart(&self) {}

    /// Returns the end of a channel of messages that has one receiver, or is received here.
    ///
    /// # Panics
    /// The manifest gives the guest no such channel.
    #[track_caller]
    fn pair(&self, name: &str) -> Pair<'static> {
        let pair = self.pairs(name).next();
        pair.unwrap_or_else(|| panic!("the manifest gives {} no messages {name}", self.name()))
    }
    /// Returns the way to wake the other end of a channel; `None` if it never sleeps.
    fn caller(&self, pair: &Pair<'static>) -> Option<Caller<Mapping<'static>, Self::Ring>> {
        pair.caller(|doorbell| self.ring(doorbell))
    }
    /// Returns the place at which this end of a channel sleeps, once it has been opened; `None` if the other one never
    /// rings.
    fn sleeper(&self, pair: &Pair<'static>) -> Option<Sleeper<Mapping<'static>, Self::Bed>> {
        pair.sleeper(self.cost(), |doorbell| self.bed(doorbell))
    }
    /// Returns the value of an argument.
    fn arg(&self, key: &str) -> Option<&'static str> {
        text::value(self.args(), key)
    }
    /// Returns the value of an argument as a number.
    fn number(&self, key: &str) -> Option<u64> {
        text::number(self.arg(key)?)
    }
}
