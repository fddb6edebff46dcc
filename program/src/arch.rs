//! The contract of an architecture, beside a guest's [`bulkhead_guest::Instructions`]: calls of the kernel. A module
//! below has one each, and all other modules are portable. Only a program on the kernel has these instructions run.

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "x86_64")]
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

/// Instructions that Rust has no words for. A second part of the contract are two macros, for [`crate::local!`]:
/// `local_symbol!` reserves a thread's own variable, and `local_address!` finds it.
pub(crate) trait Architecture {
    /// Calls the kernel.
    fn call(call: Call) -> Call;
    /// Raises an exception that ends the thread.
    fn stop() -> !;
}
