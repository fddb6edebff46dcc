//! The contract of an architecture. A module below has one each, and all other modules are portable. On the host there
//! is no kernel to call, so that a program only says so.

#[cfg(not(target_os = "none"))]
mod host;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
mod x86;

#[cfg(not(target_os = "none"))]
pub(crate) use host::Host as This;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
pub(crate) use x86::X86 as This;

/// Words of a call that registers carry ([`bulkhead_kernel_abi`]); the answer has them in these places, too.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// Operation, and the reply object; then the status.
    pub(crate) operation: u64,
    /// Capabilities that it names; then the sender's badge.
    pub(crate) names: u64,
    /// Description of the message.
    pub(crate) description: u64,
    /// First words of the message.
    pub(crate) words: [u64; 4],
}

/// A number that is read from and written to a device's registers by one plain move. A monitor that answers for
/// registers carries out no other instruction. The compiler may make a comparison with memory of a volatile read.
pub(crate) trait Moved: Sized {
    /// Reads it.
    ///
    /// # Safety
    /// Registers of a device, of this size, lie at the address.
    unsafe fn load(at: u64) -> Self;
    /// Writes it.
    ///
    /// # Safety
    /// As for reading, and they may be written.
    unsafe fn store(self, at: u64);
}

/// Instructions that Rust has no words for. A second part of the contract are two macros, for [`crate::local!`]:
/// `local_symbol!` reserves a thread's own variable, and `local_address!` finds it.
pub(crate) trait Architecture {
    /// Calls the kernel.
    fn call(call: Call) -> Call;
    /// Reads the counter that [`bulkhead_kernel_abi::Clock`] describes.
    fn counter() -> u64;
    /// Raises an exception that ends the thread.
    fn stop() -> !;
}
