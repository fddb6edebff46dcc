//! Registers of QEMU's educational device, for its drivers and those who attack with it (QEMU, docs/specs/edu.rst). It
//! carries bytes between memory and a buffer of its own.

/// The device's version, and [`KIND`].
pub const IDENTITY: u64 = 0x00;
/// The lowest byte of its identity.
pub const KIND: u32 = 0xED;
/// Gives the complement of what was written.
pub const LIVENESS: u64 = 0x04;
/// Causes of the interrupts that are pending, as bits.
pub const STATUS: u64 = 0x24;
/// Raises an interrupt for the causes that are written.
pub const RAISE: u64 = 0x60;
/// Takes the causes back that are written.
pub const ACKNOWLEDGE: u64 = 0x64;
/// Address of the bytes to carry.
pub const SOURCE: u64 = 0x80;
/// Address to which they go.
pub const DESTINATION: u64 = 0x88;
/// How many they are.
pub const COUNT: u64 = 0x90;
/// [`START`], [`TO_RAM`] and [`TELL`]; reads [`START`] while it carries.
pub const COMMAND: u64 = 0x98;
/// Command: go.
pub const START: u64 = 1 << 0;
/// Command: from the device's buffer to memory.
pub const TO_RAM: u64 = 1 << 1;
/// Command: with an interrupt at the end, of cause [`CARRIED`].
pub const TELL: u64 = 1 << 2;
/// Cause: bytes have been carried.
pub const CARRIED: u32 = 0x100;
/// Address of its buffer, as it counts.
pub const BUFFER: u64 = 0x4_0000;
