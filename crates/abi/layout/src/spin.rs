//! How long the two Linuxes of a virtio disk look for the other's work before they sleep. The module
//! (`linux/module/layout.h`) and `bhvirtio` have these numbers.

/// Longest look of an end by `adaptive`, nanoseconds. A sleep costs each side some 10,000 instructions,
/// and its end the other side's ring. So a longer look would not pay, even if it found something.
pub const LINUX_SLEEP: u64 = 50_000;
/// Nanoseconds that a sleep adds to a wait at most, more or less: 70,000 in the emulator. A wait that was slept through,
/// and was no longer than this and [`LINUX_SLEEP`], could have been caught by the longest look, and is learnt from so.
pub const LINUX_WAKE: u64 = 60_000;
/// Look of an end by `poll`, after its last work, nanoseconds: IDDR's fixed threshold.
pub const LINUX_POLL: u64 = 200_000;
