//! Monitors that look whether other sandboxes' monitors go on, and take their cores if they do not.
//!
//! Each core of a monitor with a watchdog has a *heartbeat*: a word in its mailbox, which it moves at each tick. Its
//! guest cannot hold that off. A monitor that has stopped does not move it. A peer that the manifest names looks at it
//! at its own ticks. It takes the sandbox in two of them:
//!
//! 1. it stops all cores of the sandbox, then keeps its functions from memory;
//! 2. it starts the cores by the start-up code, which leads them into the sandbox' spare monitor.
//!
//! The peer reaches neither the monitor nor its tables. The boot code has left in the start-up code's table where a
//! core goes.

use crate::monitor::Slice;
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most sandboxes that a monitor looks at.
pub const PEERS: usize = 4;

/// A sandbox that a monitor looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Peer {
    /// Its number.
    pub sandbox: u32,
    /// Its cores.
    pub cores: u32,
    /// Ticks of the one who looks without a move of a heartbeat after which that core's monitor has stopped.
    pub alive: u32,
    /// Ticks likewise while a guest is launched, and before the first heartbeat; 0: without a limit.
    pub first: u32,
    /// For each core the messages that stop and that start it; none: its cores are not taken.
    pub cores_by: Slice,
    /// Registers by which its functions are kept from memory ([`BusMaster`]).
    pub functions: Slice,
}

/// A register of a function, and the bits of it that let the function reach memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct BusMaster {
    /// Monitor-virtual address; the register has 16 bits.
    pub at: u64,
    /// Bits to clear.
    pub bits: u64,
}
