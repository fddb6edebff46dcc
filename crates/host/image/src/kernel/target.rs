//! The part of a target that is baked for a kernel and its programs. All else about them is portable.

use super::Ground;
use crate::elf::{Local, Program};
use crate::guest::Piece;
use crate::space::Space;
use bulkhead_arch::Stage1;
use bulkhead_kernel::host::Host;
use bulkhead_kernel::{Cap, Core, Layout};
use bulkhead_plan::kernel::Driven;
use bulkhead_plan::{Facts, Plan, Ram};

/// Memory of a kernel on the host.
pub type KernelMemory<K> = Host<<K as Kernels>::Layout, <K as Kernels>::Pages>;

/// How a kernel starts on an architecture, how it sees its memory, and how interrupts come to it.
pub trait Kernels: Sized {
    /// Places of a thread's registers, and the limits of programs.
    type Layout: Layout;
    /// Format of programs' tables. A table fills a page of the kernel's ABI.
    type Pages: Stage1;
    /// Address at which the kernel sees the first byte of its memory.
    const WINDOW: u64;
    /// Pages of the kernel's own tables. The first one is its root; the last one has the entries of
    /// [`Self::device_page`].
    const TABLES: usize;
    /// Address at which the kernel sees pages of devices' registers, and the most of these pages.
    const DEVICES: (u64, usize);
    /// Offset of the information page in the memory of a kernel without a monitor.
    const INFO: u32;
    /// Offset of the report in the memory of a kernel without a monitor.
    const REPORT: u32;
    /// Bytes between the end of a stack and the stack pointer of a thread that starts.
    const ABOVE_STACK: u64;
    /// Step of a script that ends the service of an interrupt.
    const END_OF_INTERRUPT: (u64, u32);

    /// Makes the pieces on which a kernel in a sandbox starts.
    fn start() -> Vec<Piece>;
    /// Root of the tables among these pieces; 0: the kernel starts without tables.
    fn start_tables() -> u64;
    /// Lists all that a kernel without a monitor sees at its first instruction.
    fn first_space(ram: Ram, facts: &Facts) -> Space;
    /// Builds the kernel's own tables in pages of its memory, at `tables`. Returns the entry of a program's root table
    /// that leads to the kernel, and its index. `None`: the kernel has a root table beside the program's.
    ///
    /// # Errors
    /// The kernel's file does not fit in the window.
    fn window(
        memory: &mut KernelMemory<Self>,
        tables: &[u32],
        image: &Program,
        len: u32,
    ) -> Result<Option<(u64, usize)>, String>;
    /// Makes the entry by which the kernel sees a page of devices' registers.
    fn device_page(physical: u64) -> u64;
    /// Places a thread's own data in the last bytes of its stack's memory, by the ABI of programs.
    fn local(local: &Local) -> Placed;
    /// Makes the capability of a range of ports; `None`: there are no ports.
    fn ports(first: u16, last: u16) -> Option<Cap>;
    /// Makes the right to ring a doorbell by its number.
    fn bell(ring: u16) -> Cap;
    /// Chooses an interrupt for a device's, and the way to it.
    ///
    /// # Errors
    /// The device has none of that number, or all interrupts are taken.
    fn route(asked: &Asked) -> Result<Route, String>;
    /// Encodes a script: registers by the kernel's addresses, and their values.
    fn script(writes: &[(u64, u32)]) -> Vec<u8>;
    /// Encodes the state that the kernel's entry reads, at the symbol `BAKED`.
    ///
    /// # Errors
    /// The kernel has no entry for an interrupt.
    fn state(state: State) -> Result<Vec<u8>, String>;
}

/// Places of a thread's own data, counted down from the end of its stack's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Bytes of all of it, without whole pages.
    pub len: u64,
    /// Place that the thread pointer names.
    pub pointer: u64,
    /// Copy of the file's thread-local data.
    pub data: u64,
    /// True if the pointer's own value lies where it points to.
    pub holds_itself: bool,
}

/// A device's interrupt that a program takes.
pub struct Asked<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The kernel's sandbox.
    pub index: usize,
    /// Where the kernel finds the registers of interrupt controllers.
    pub ground: Ground,
    /// The device.
    pub device: Driven,
    /// Number of the message; 0 for a line.
    pub number: u16,
    /// Interrupts in use.
    pub taken: &'a [u32],
}

/// An interrupt, and the writes to registers that let it come.
pub struct Route {
    /// Its number on the core.
    pub interrupt: u32,
    /// Writes that route it, by physical addresses.
    pub set: Vec<(u64, u32)>,
    /// How it is kept back, and let come again.
    pub hold: Hold,
}

/// How an interrupt is kept back, and let come again.
pub enum Hold {
    /// By writes to its source.
    Writes {
        /// Writes that keep it back.
        mask: Vec<(u64, u32)>,
        /// Writes that let it come again.
        unmask: Vec<(u64, u32)>,
    },
    /// From its delivery on it is in service, until it is acknowledged.
    Service,
}

/// State of a kernel at its first instruction.
pub struct State {
    /// The core, with everything that its first threads need.
    pub core: Core,
    /// Physical address of its memory.
    pub base: u64,
    /// Offset of the clock's page.
    pub clock: u32,
    /// Result of [`Kernels::window`].
    pub window: Option<(u64, usize)>,
    /// Script that is played at the start; 0: none.
    pub script: u32,
    /// Numbers of interrupts, and offsets of their objects.
    pub interrupts: Vec<(u32, u32)>,
    /// There is no monitor.
    pub alone: bool,
    /// Offset of the ring into which it traces, and the number of records; zeros: it traces nothing.
    pub trace: (u32, u32),
}
