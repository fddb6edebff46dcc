//! Numbers below 0 that ends in C return: one meaning for each, in a bare guest and in a Linux.
//! `sdk/include/bulkhead-number.h` is written from here: `BLESS=1 cargo test -p bulkhead-channel-memory`.
#![forbid(unsafe_code)]

use bulkhead_channel::Stop;

macro_rules! numbers {
    ($(#[doc = $meaning:literal] $name:ident = $number:literal;)*) => {
        $(#[doc = $meaning] pub const $name: i32 = $number;)*

        /// Each one's name, number and meaning.
        pub const ALL: [(&str, i32, &str); numbers!(@ $($name)*)] = [$((stringify!($name), $number, $meaning)),*];
    };
    (@) => { 0 };
    (@ $first:ident $($rest:ident)*) => { 1 + numbers!(@ $($rest)*) };
}

numbers! {
    /// Nothing to be received, or no room, within the time.
    WAIT = -1;
    /// No peer at the other end yet, within the time.
    APART = -2;
    /// Told once: the peer began anew; messages under way are lost.
    LOST = -3;
    /// Told once: the peer has left, and all its earlier messages were read.
    LEFT = -4;
    /// Told once: the peer spoilt the channel. A receiver has begun a new session; a sender is closed until reset.
    CORRUPTED = -5;
    /// The peer's memory is another kind of channel.
    FOREIGN = -6;
    /// The message is too long, or of a bare guest's queue or mailbox too short, or the buffer is.
    SIZE = -7;
    /// This end is closed, or was spoilt and not reset.
    CLOSED = -8;
    /// A null pointer; in a Linux a name that is no UTF-8, in a bare guest no end that was opened here.
    ARGUMENT = -9;
    /// The sandbox has no such channel; in a Linux bulkhead_channel_error() says why it could not be opened.
    OPEN = -10;
    /// In a Linux: a fault of the library's.
    FAULT = -11;
    /// In a bare guest: it has the channel's other end, or that carries no messages.
    MISFIT = -12;
}

/// Returns the number of a stop.
#[must_use]
pub const fn of(stop: Stop) -> i32 {
    match stop {
        Stop::Wait => WAIT,
        Stop::Apart => APART,
        Stop::Lost => LOST,
        Stop::Left => LEFT,
        Stop::Corrupted => CORRUPTED,
        Stop::Foreign => FOREIGN,
        Stop::Size => SIZE,
        Stop::Closed => CLOSED,
    }
}
