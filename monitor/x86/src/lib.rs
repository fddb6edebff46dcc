//! The part of a monitor's shell that SVM and VT-x share: the frame of a core, places in memory, devices, interrupts.
//! A shell implements [`Shell`] for its way to run a guest, and gets the traits of [`bulkhead_monitor`] and
//! [`bulkhead_monitor_x86`] for its [`Frame`]s.
#![no_std]

mod apic;
mod core_state;
mod entry;
mod frame;
mod layout;
mod machine;

pub use core_state::{check_failed, failed, fresh_registers};
pub use frame::{FRAME_FROM_TOP, Frame};
pub use layout::{Memory, config};

/// Address of the register that ends an interrupt in xAPIC mode.
pub const EOI_AT: u64 = bulkhead_monitor_x86::xapic::AT + bulkhead_monitor_abi_x86::xapic::EOI;

use bulkhead_decoder::State;
use bulkhead_monitor_abi::debug::Page;
use bulkhead_monitor_abi::record::Op;

/// A processor's way to run a guest, for one core: its control block, and what goes with it.
pub trait Shell: Sized + 'static {
    /// Needs that this monitor has code for ([`needs`]).
    const NEEDS: u32;
    /// Returns the guest's RAX.
    fn rax(frame: &Frame<Self>) -> u64;
    /// Sets it.
    fn set_rax(frame: &Frame<Self>, value: u64);
    /// Returns the guest's RSP.
    fn rsp(frame: &Frame<Self>) -> u64;
    /// Sets it.
    fn set_rsp(frame: &Frame<Self>, value: u64);
    /// Returns the guest's RIP.
    fn rip(frame: &Frame<Self>) -> u64;
    /// Sets it.
    fn set_rip(frame: &Frame<Self>, value: u64);
    /// Returns the guest's privilege level.
    fn privilege(frame: &Frame<Self>) -> u8;
    /// Moves the guest behind the instruction of the exit; `length` bytes where the processor does not tell.
    fn skip(frame: &Frame<Self>, length: u8);
    /// Ends the shadow of the instruction before (STI, MOV SS).
    fn unshadow(frame: &Frame<Self>);
    /// Gives the guest an exception at its RIP.
    fn inject(frame: &Frame<Self>, vector: u8);
    /// Has the guest's translations forgotten before it goes on.
    fn flush(frame: &Frame<Self>);
    /// Sets the control block as `ops` say, and the registers that go with it. It calls [`fresh_registers`].
    fn reset(frame: &Frame<Self>, ops: &[Op]);
    /// Returns a field of the control block, as its records name fields.
    fn field(frame: &Frame<Self>, field: u16) -> u64;
    /// Sets CS and its base for a start-up at a vector; RIP is 0.
    fn startup(frame: &Frame<Self>, vector: u8);
    /// Returns the guest's control registers, and the state that its RIP depends on.
    fn state(frame: &Frame<Self>) -> State;
    /// Returns the bytes that the processor has fetched, as a VMCB has them; zeros where it saves none.
    fn fetched(frame: &Frame<Self>) -> [u64; 2];
    /// Sets the guest's EFER.
    fn set_efer(frame: &Frame<Self>, value: u64);
    /// Stops exits at CPUID on this core, if the processor can.
    fn stop_cpuid_exits(frame: &Frame<Self>) -> bool;
    /// Takes a doorbell that is pending.
    fn hear();
    /// Returns the guest's flags. Only where debuggers are let in, as the next three.
    fn flags(_: &Frame<Self>) -> u64 {
        0
    }
    /// Sets them.
    fn set_flags(_: &Frame<Self>, _: u64) {}
    /// Keeps interrupts from the guest, or no longer.
    fn hold_interrupts(_: &Frame<Self>, _: bool) {}
    /// Shows a debugger the registers that the control block has.
    fn show(_: &Frame<Self>, _: &Page) {}
    /// Leaves the core to its guest, if there is a way.
    fn give_back(_: &Frame<Self>) {}
    /// Has the watchdog's next tick come at a time of the TSC, where the core itself brings it.
    fn tick_at(frame: &Frame<Self>, due: u64);
}

/// Needs that a monitor is built for, by features of the crate that calls this.
#[macro_export]
macro_rules! needs {
    () => {{
        use ::bulkhead_monitor_abi::need;
        const fn when(feature: bool, need: u32) -> u32 {
            if feature { need } else { 0 }
        }
        when(cfg!(feature = "devices"), need::DEVICES)
            | when(cfg!(feature = "cores"), need::CORES)
            | when(cfg!(feature = "links"), need::LINKS)
            | when(cfg!(feature = "loads"), need::LOADS)
            | when(cfg!(feature = "control"), need::CONTROL)
            | when(cfg!(feature = "channels"), need::CHANNELS)
            | when(cfg!(feature = "linux"), need::LINUX)
            | when(cfg!(feature = "watchdog"), need::WATCHDOG)
            | when(cfg!(feature = "ladder"), need::LADDER)
            | when(cfg!(feature = "snapshot"), need::SNAPSHOT)
            | when(cfg!(feature = "role"), need::ROLE)
            | when(cfg!(feature = "mmio"), need::MMIO)
            | when(cfg!(feature = "locks"), need::LOCK)
            | when(cfg!(feature = "running"), need::RUNNING)
            | when(cfg!(feature = "debug"), need::DEBUG)
    }};
}
