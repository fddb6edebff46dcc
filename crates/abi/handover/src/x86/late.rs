//! Words between a Linux that runs and the code that starts the image under it. `linux/enable` has the C side.

use crate::image::HEADER_WORD;

/// Offset in the image of a word with the address of that code.
pub const CODE_WORD: u64 = HEADER_WORD + 8;

/// Cores that it can have, at most.
pub const CORES: usize = 64;
/// Bytes of a refusal's text.
pub const SAYS: usize = 256;

/// Words between them, in memory of that Linux.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Late {
    /// Ticks of the time stamp counter in a second.
    pub hz: u64,
    /// Ticks of a core's timer in a second, divided by 1.
    pub timer_hz: u64,
    /// x2APIC IDs of the machine's cores.
    pub cores: [u32; CORES],
    /// How many there are.
    pub count: u32,
    /// Bytes of `says`.
    pub len: u32,
    /// x2APIC ID of a core that is not to be started, for a test; `u32::MAX`: none.
    pub mute: u32,
    /// Padding.
    pub reserved: u32,
    /// Why it cannot be, as text.
    pub says: [u8; SAYS],
}

/// First argument of the code: the image is looked at, and the cores of all other sandboxes start. Then comes the
/// address of a [`Late`]. The result is 0, or the number of the refusal.
pub const PREPARE: u64 = 0;
/// First argument of the code: this core enters its monitor. Then come its number in its sandbox, and the stack pointer
/// and the instruction with which the Linux goes on. It has returned from there if there is no result.
pub const ENTER: u64 = 1;

const _: () = assert!(size_of::<Late>() == 16 + 4 * CORES + 16 + SAYS);
