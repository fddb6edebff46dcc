//! How long the two Linuxes of a virtio disk look for the other's work before they sleep. The module
//! (`linux/module/layout.h`) and `bhvirtio` have these numbers.

/// Longest look of an end by `adaptive`, nanoseconds. A sleep costs each side some 10,000 instructions,
/// and its end the other side's ring. So a longer look would not pay, even if it found something.
pub const LINUX_SLEEP: u64 = 50_000;
/// Nanoseconds that a wait grows by at least when it is slept through. They are taken off before the wait is learnt
/// from. All of [`LINUX_SLEEP`] would be too much: then no wait that was slept through would ever look short enough.
pub const LINUX_WAKE: u64 = 10_000;
/// Look of an end by `poll`, after its last work, nanoseconds: IDDR's fixed threshold.
pub const LINUX_POLL: u64 = 200_000;
