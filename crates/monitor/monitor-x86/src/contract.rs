//! The contract between the mediation of x86 and a shell, for one core of the sandbox.

use bulkhead_decoder::State;
use bulkhead_ioapic::{Lines, Remapping, Shadow};
use bulkhead_monitor::Monitor;
use bulkhead_monitor_abi::lock::Lock;
use bulkhead_monitor_abi::mmio::Range;
use bulkhead_monitor_abi::monitor::{Ram, Slice};
use bulkhead_monitor_abi::pci::{Function, Register, Reset};
use bulkhead_monitor_abi_x86::config::{Config, Leaf, Quiet};
use core::sync::atomic::AtomicU32;

/// Number of RAX in encodings.
pub const RAX: u8 = 0;
/// Number of RCX.
pub const RCX: u8 = 1;
/// Number of RDX.
pub const RDX: u8 = 2;
/// Number of RBX.
pub const RBX: u8 = 3;

/// An x86 processor under its monitor.
pub trait X86: Monitor {
    /// Returns the guest's general-purpose register, by its number in encodings.
    fn register(&self, number: u8) -> u64;
    /// Sets it.
    fn set_register(&self, number: u8, value: u64);
    /// Returns the guest's control registers, and the state that its instruction pointer depends on.
    fn state(&self) -> State;
    /// Moves the guest to an instruction.
    fn jump(&self, rip: u64);
    /// Returns the bytes that the processor has fetched, as a VMCB has them; zeros where it saves none.
    fn fetched(&self) -> [u64; 2];
    /// Sets the guest's EFER. The processor adds the bits that it needs itself.
    fn set_efer(&self, value: u64);
    /// Returns the processor's model-specific register.
    fn rdmsr(&self, register: u32) -> u64;
    /// Writes a model-specific register with a value that was decided on.
    fn wrmsr(&self, register: u32, value: u64);
    /// Returns the processor's answer to CPUID.
    fn cpuid(&self, leaf: u32, sub: u32) -> [u32; 4];
    /// Stops exits at CPUID on this core, until the guest's next start, if the processor can.
    fn stop_cpuid_exits(&self) -> bool;

    /// Configuration, with what only x86 has; read-only.
    fn x86(&self) -> &Config;
    /// Ranges that are answered without a record.
    fn quiets(&self, part: Slice) -> &[Quiet];
    /// Memory of a Linux that runs already, with the block that it has given away. Only with
    /// [`bulkhead_monitor_abi::need::RUNNING`].
    fn linux_memory(&self) -> &[Ram];
    /// Leaves of CPUID that the guest sees changed.
    fn leaves(&self) -> &[Leaf];
    /// Its registers among shared ones.
    fn ranges(&self) -> &[Range];
    /// PCI functions that the sandbox sees.
    fn functions(&self) -> &[Function];
    /// Registers of a function that are mediated.
    fn registers(&self, part: Slice) -> &[Register];
    /// Returns the steps that bring a function to rest.
    fn resets(&self, part: Slice) -> &[Reset];
    /// Returns the interrupt lines of the sandbox, if it has one.
    fn lines(&self) -> Option<&Lines>;
    /// Entries that the guest has written to its IOAPIC. Only with [`X86::lines`].
    fn line_shadow(&self) -> &Shadow;
    /// Returns the lock of the machine's IOAPIC. Only with a line of the machine's.
    fn line_lock(&self) -> &Lock;
    /// Returns the remapping table of the machine's IOAPIC, by its monitor-virtual address.
    fn remapping(&self, at: u64) -> &Remapping;

    /// Returns the word of a shadow or of a remapping table, by its monitor-virtual address.
    fn cell(&self, at: u64) -> &AtomicU32;
    /// Reads `size` bytes of a device's page, by its monitor-virtual address.
    fn load(&self, at: u64, size: u8) -> u64;
    /// Writes them.
    fn store(&self, at: u64, size: u8, value: u64);
    /// Reads a register in a function's configuration page, by its monitor-virtual address.
    fn load_config(&self, at: u64) -> u32;
    /// Writes it.
    fn store_config(&self, at: u64, value: u32);
    /// Reads the machine's address register of PCI configuration mechanism #1: for a Linux that has that by itself.
    fn load_address(&self) -> u32;
    /// Writes it.
    fn store_address(&self, value: u32);
    /// Reads the real-time clock.
    fn load_clock(&self, index: u8) -> u8;
    /// Writes it: in a monitor without that rule only.
    fn store_clock(&self, index: u8, value: u8);
    /// Returns the word of the guest's memory, at a multiple of 8 in its RAM: one load.
    fn guest_word(&self, at: u64) -> u64;
}
