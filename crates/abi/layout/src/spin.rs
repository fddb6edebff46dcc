//! How long the two Linuxes of a virtio disk look for the other's work before they sleep. The module
//! (`linux/module/layout.h`) and `bhvirtio` have these numbers.

/// Longest look of an end by `adaptive`, nanoseconds: that of `poll`.
pub const LINUX_SLEEP: u64 = LINUX_POLL;
/// Nanoseconds that the two sleeps of a request add to a wait that is slept through. They are taken off before the
/// wait is learnt from. With all of [`LINUX_SLEEP`] taken off, no wait that was slept through would look short enough.
pub const LINUX_WAKE: u64 = 100_000;
/// Look of an end by `poll`, after its last work, nanoseconds: IDDR's fixed threshold.
pub const LINUX_POLL: u64 = 200_000;
