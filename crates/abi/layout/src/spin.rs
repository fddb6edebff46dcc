//! How long the two Linuxes of a virtio disk look for the other's work before they sleep. The module
//! (`linux/module/layout.h`) and `bhvirtio` have these numbers.

/// Longest look of an end by `adaptive`, nanoseconds: twice that of `poll`. A wait of this length that was slept
/// through counts half: the two sleeps of a request add as much to it. So a look begins again when waits are short.
pub const LINUX_SLEEP: u64 = 2 * LINUX_POLL;
/// Look of an end by `poll`, after its last work, nanoseconds: IDDR's fixed threshold.
pub const LINUX_POLL: u64 = 200_000;
