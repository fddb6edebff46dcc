//! The contract between a monitor and its architecture, for one core of the sandbox.

use crate::outcome::Outcome;
use crate::peer::Watching;
use bulkhead_monitor_abi::bell::{Bell, End};
use bulkhead_monitor_abi::debug;
use bulkhead_monitor_abi::ladder::{Climb, LADDERS, Ladder};
use bulkhead_monitor_abi::link::Link;
use bulkhead_monitor_abi::load::Head;
use bulkhead_monitor_abi::lock::{Lock, Pace};
use bulkhead_monitor_abi::monitor::{Clock, Config, Mailbox, Slice, Start};
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::peer::{BusMaster, Peer};
use bulkhead_monitor_abi::record::{Op, RecordMemory};
use bulkhead_monitor_abi::report::{Cause, CoreReportCells, ReportCells};
use bulkhead_monitor_abi::role::{Piece, ROLES, Role};
use bulkhead_monitor_abi::snapshot;
use bulkhead_monitor_abi::watch::{FixedPage, PART, Progress};
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// State of a core that no other core touches.
#[repr(C)]
pub struct Local {
    /// 1 once a doorbell has come. It is the first byte, where the shell's handler of doorbells finds it.
    pub doorbell: Cell<u8>,
    /// Restarts of the sandbox when this core last began.
    pub incarnation: Cell<u32>,
    /// Clock from which on a doorbell is a tick of the watchdog.
    pub due: Cell<u64>,
    /// The guest's progress word at the last tick.
    pub progress: Cell<u64>,
    /// Ticks since it moved.
    pub still: Cell<u32>,
    /// Ticks after which the core hangs.
    pub patience: Cell<u32>,
    /// First core's: the next part of the pages that the watchdog looks at.
    pub part: Cell<u32>,
    /// First core's: the sum of its page so far.
    pub sum: Cell<u64>,
    /// First core's: where it stands on each ladder.
    pub climbs: [Climb; LADDERS],
    /// First core's: what it has seen of other sandboxes' monitors.
    pub watching: Watching,
    /// First core's: the next life is a warm one.
    pub warm: Cell<bool>,
    /// By role, the sandbox that it goes to when the guest has ended, or [`bulkhead_monitor_abi::role::STAYS`].
    pub going: [Cell<u32>; ROLES],
}

/// State of a core that the sandbox's other cores touch, too.
#[repr(C, align(64))]
pub struct Shared {
    /// Requests, by the bits of [`crate::signal`].
    pub signals: AtomicU32,
    /// While this core waits for a start-up: 1 + the `life` that it has seen; else 0.
    pub parked: AtomicU32,
    /// First core's: odd while the guest lives, even while it does not.
    pub life: AtomicU32,
    /// First core's: number of the guest that has the place; 0 is the sandbox's own.
    pub guest: AtomicU32,
    /// First core's: values of the guest's index registers, by the architecture's numbers.
    pub latches: [AtomicU32; 2],
    /// First core's: lock of the registers that the sandbox's cores share.
    pub own: Lock,
    /// First core's: number of times that cores were to empty their TLBs.
    pub flushes: AtomicU64,
    /// That number when this core last did so.
    pub flushed: AtomicU64,
    /// Names by which a message to several cores reaches this one, as the architecture has them; 0 where it has none.
    /// Only with [`need::RUNNING`].
    pub names: AtomicU32,
    /// First core's: 1 once a core has been left to its guest for good. Only with [`need::RUNNING`].
    pub left: AtomicU32,
}

/// Memory that the host has laid out for the monitor. Lists and words come from the host's configuration, so an
/// implementation trusts their places.
pub trait Layout {
    /// Needs that this monitor has code for ([`bulkhead_monitor_abi::need`]).
    const NEEDS: u32;
    /// Returns the configuration; read-only.
    fn config(&self) -> &Config;
    /// Returns the mailbox of a sandbox below [`Config::sandboxes`]; the own one is writable.
    fn mailbox(&self, sandbox: u32) -> &Mailbox;
    /// Returns the report of the sandbox; the first core writes it.
    fn report(&self) -> &ReportCells;
    /// Counters and records of this core; this core alone writes them.
    fn counters(&self) -> &CoreReportCells;
    /// Returns the state of this core.
    fn local(&self) -> &Local;
    /// Returns the shared state of this core.
    fn own(&self) -> &Shared;
    /// Returns the shared state of a core below [`Config::cores`].
    fn shared(&self, core: u32) -> &Shared;
    /// Frequencies that the boot code has measured.
    fn clock(&self) -> &Clock;
    /// Returns the page of a debugger. Only with [`Config::debug`].
    fn debugger(&self) -> &debug::Page;
    /// Returns a word of a channel or of the guest's RAM, by its monitor-virtual address.
    fn word(&self, at: u64) -> &AtomicU64;
    /// Returns the guest's progress words. Only where the watchdog looks at them.
    fn progress(&self) -> &Progress;
    /// Returns the steps of a launch record.
    fn ops(&self, part: Slice) -> &[Op];
    /// Entries of a link or a role in the guest's tables.
    fn entries(&self, part: Slice) -> &[u64];
    /// Links that the sandbox is a party of.
    fn links(&self) -> &[Link];
    /// Roles that the sandbox can hold.
    fn roles(&self) -> &[Role];
    /// Parts of a role's memory.
    fn role_pieces(&self, pieces: Slice) -> &[Piece];
    /// Own ends of a role's channels.
    fn role_ends(&self, ends: Slice) -> &[End];
    /// Words that show the guest its roles. Only with [`Config::roles`].
    fn roles_shown(&self) -> &[AtomicU64; ROLES];
    /// Pages that the watchdog looks at.
    fn fixed_pages(&self, pages: Slice) -> &[FixedPage];
    /// Returns a part of such a page, its number below [`bulkhead_monitor_abi::watch::PARTS`].
    fn part(&self, page: &FixedPage, number: u32) -> &[u64; PART];
    /// Ladders, by number.
    fn ladders(&self) -> &[Ladder];
    /// How guests begin that can take the place of the sandbox's own.
    fn alternatives(&self) -> &[Start];
    /// The monitors that it looks at.
    fn peers(&self) -> &[Peer];
    /// For each core of a peer the messages that stop and that start it.
    fn messages(&self, cores: Slice) -> &[[u64; 2]];
    /// Registers that keep a peer's functions from memory.
    fn masters(&self, functions: Slice) -> &[BusMaster];
    /// Returns the first page of the guest's snapshots. Only with [`Config::snapshot`].
    fn snapshots(&self) -> &snapshot::Head;
    /// Copies a page of the guest's RAM to a byte of the snapshots.
    fn keep(&self, to: u64, from: u64);
    /// Sums up a page at a byte of the snapshots.
    fn kept(&self, at: u64) -> u64;
    /// Doorbells of channels, by number.
    fn bells(&self) -> &[Bell];
    /// Ends of channels that are the sandbox's own.
    fn ends(&self) -> &[End];
    /// Returns the memory that launch records write.
    fn memory(&self) -> impl RecordMemory;
    /// Returns the head of the program that another sandbox may be writing: one copy. Only with [`Config::loads`].
    fn head(&self) -> Head;
    /// Returns the program of so many bytes, as it was copied to the guest's memory. No guest runs.
    fn program(&self, len: u64) -> &[u64];
    /// Tells if a rule is enforced: always, but in a monitor for the mutation gate, which leaves one out.
    fn enforced(rule: &str) -> bool;
}

/// The virtual processor that the guest has of this core.
pub trait Vcpu {
    /// Most ticks of [`Vcpu::now`] in a microsecond.
    const MICROSECOND: u64;
    /// Number by which [`Vcpu::inject`] gives the guest an interrupt that it cannot mask.
    const UNMASKABLE: u8;
    /// Number of the core in its sandbox.
    fn index(&self) -> u32;
    /// Returns the time stamp, in ticks.
    fn now(&self) -> u64;
    /// Returns the guest's instruction pointer.
    fn instruction(&self) -> u64;
    /// Returns the guest's privilege level; 0 is its kernel's.
    fn privilege(&self) -> u8;
    /// Returns the number of the hypercall that the guest makes.
    fn call(&self) -> u64;
    /// Returns the argument of it, the first one is 0.
    fn argument(&self, n: usize) -> u64;
    /// Sets its result.
    fn answer(&self, result: u64);
    /// Moves the guest behind an instruction of `length` bytes.
    fn skip(&self, length: u8);
    /// Gives the guest an exception at its instruction pointer.
    fn inject(&self, exception: u8);
    /// Has the guest's translations forgotten before it goes on.
    fn flush(&self);
    /// Sets all of the guest's state on this core as `ops` say, and as after a reset where they say nothing.
    fn reset(&self, ops: &[Op]);
    /// Compares the control block of this core with its steady part. Returns a field that differs, and its value.
    fn altered(&self, steady: &[Op]) -> Option<[u64; 2]>;
    /// Sets the first two arguments of a fresh guest, and its first instruction if that is not the record's.
    fn begin(&self, arguments: [u64; 2], entry: Option<u64>);
    /// Sets the first instruction of a core that another one starts. `named` came with [`crate::signal::START`]. The
    /// architecture defines it: as a page, or as a row of a table of its own, which has wider words.
    fn startup(&self, named: u8);
    /// Shows a debugger the guest's registers.
    fn show(&self, _page: &debug::Page) {}
    /// Takes those that a debugger may change.
    fn adopt(&self, _page: &debug::Page) {}
    /// Has the guest stop after its next instruction, without an interrupt before that, or no longer.
    fn step(&self, _on: bool) {}
    /// Gives the guest the exception of its own breakpoint instruction.
    fn reflect(&self, cause: Cause) -> Outcome {
        Outcome::resume(cause)
    }
    /// Lets this core be woken from outside of the machine for a debugger.
    fn listen(&self) {}
    /// Leaves this core to its guest, which has the machine from then on. It returns where the architecture has no way.
    fn give_back(&self) {}
}

/// Interrupts of this core, and those that it sends.
pub trait Interrupts {
    /// Rings the monitor of a core, by the core's identity. Stores before it are seen before it.
    fn ring(&self, id: u32);
    /// Sends a message to a guest. Stores before it are seen before it.
    fn send(&self, message: u64);
    /// Tells if a message goes to cores of this set and to no monitor.
    fn is_aim(cores: &[u64; 4], message: u64) -> bool;
    /// Takes a core out of its monitor, by the core's identity. Only with [`need::RUNNING`].
    fn dismiss(&self, _id: u32) {}
    /// Takes a doorbell that is pending.
    fn hear(&self);
    /// Sleeps until [`Local::doorbell`] is set.
    fn sleep(&self);
    /// Has the watchdog's next tick come at a time, where the core itself brings it.
    fn tick_at(&self, due: u64);
    /// Puts this core's interrupt controller in its state after a reset: no timer, nothing pending, nothing in service.
    fn silence(&self);
}

/// Devices of the sandbox.
pub trait Devices {
    /// Masks the sandbox's interrupt lines; no guest runs.
    fn silence_lines(&self);
    /// Stops the sandbox's functions: no DMA, no interrupt. No guest runs.
    ///
    /// # Errors
    /// A register of a function that goes on.
    fn quiet(&self) -> Result<(), u64>;
    /// Lets the functions of a role, by its number, reach memory. Its memory and their registers are the guest's now.
    fn hand_over(&self, role: u32);
    /// Keeps a function of another sandbox from memory. That sandbox' cores are stopped.
    fn keep_off(&self, function: &BusMaster);
    /// Gives back locks between sandboxes that cores of this one have held, none of which runs any more.
    fn release(&self);
}

/// All that a monitor is built on.
pub trait Monitor: Layout + Vcpu + Interrupts + Devices {
    /// Tells if this monitor has code for a need; the compiler drops the code of others.
    #[inline(always)]
    fn has(need: u32) -> bool {
        need::has(Self::NEEDS, need)
    }

    /// Tells if this is the sandbox's first core.
    #[inline(always)]
    fn is_first(&self) -> bool {
        !Self::has(need::CORES) || self.index() == 0
    }

    /// Returns the number of the sandbox's cores.
    #[inline(always)]
    fn cores(&self) -> u32 {
        if Self::has(need::CORES) { self.config().cores } else { 1 }
    }
}

impl<M: Layout + Vcpu + Interrupts + Devices> Monitor for M {}

/// Does work with registers that the sandbox's cores share. `None`: this core's turn has not come; its guest executes
/// the instruction again, and doorbells are heard in between.
pub fn alone<M: Monitor, T>(m: &M, work: impl FnOnce() -> T) -> Option<T> {
    m.shared(0).own.with(m.index(), pace::<M>(), || m.now(), work)
}

/// Turns with a lock: a millisecond of patience in all, ten microseconds for a core that is late for its own turn.
/// Holders need a microsecond, and one that empties a remapping table a millisecond at most.
#[must_use]
pub fn pace<M: Vcpu>() -> Pace {
    Pace { patience: 1000 * M::MICROSECOND, turn: 10 * M::MICROSECOND }
}
