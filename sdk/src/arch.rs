//! The contract of an architecture. A module below has one each, and all other modules are portable.

use crate::Context;
use crate::cores::Entry;
use bulkhead_layout::info::Info;

#[cfg(target_arch = "x86_64")]
pub mod x86;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::X86 as This;
#[cfg(target_arch = "x86_64")]
pub use x86::idt::Frame;

/// Beside a guest's [`bulkhead_guest::Instructions`] the devices that belong to each core: interrupts and a timer.
pub(crate) trait Architecture {
    /// Prepares the timer, on the first core.
    fn setup(info: &Info);

    /// Number of the interrupt that a handler is called for.
    fn number(frame: &Frame) -> u8;
    /// Lets interrupts in. Each number has an entry.
    fn enable();
    /// Keeps interrupts out.
    fn disable();
    /// Tells if interrupts are let in.
    fn is_enabled() -> bool;
    /// Lets interrupts in and sleeps until one came, with no gap in which it could be missed. Returns with interrupts
    /// off.
    fn wait();
    /// Address, its upper half and data of a message that raises an interrupt on a core of this hardware ID.
    fn message(core: u32, interrupt: u8) -> [u32; 3];

    /// Lets this core's timer raise an interrupt.
    fn use_timer(interrupt: u8);
    /// Arms this core's timer, once, for a value of the counter. It may fire early.
    fn arm(due: u64);
    /// Stops this core's timer.
    fn disarm();

    /// Starts another core. False if it did not come up in time.
    fn start_core(context: Context, index: usize, entry: Entry) -> bool;
    /// Index of the calling core among the sandbox's cores.
    fn core() -> usize;
    /// Masks interrupts and sleeps for ever.
    fn stop() -> !;

    /// Finds a device for text by its name in the program's argument, and prepares it. `None`: there is no such one.
    fn console(name: &str) -> Option<u32>;
    /// Writes a byte to that device: as it is, or as a part of lines.
    fn put(device: u32, byte: u8, lines: bool);
}
