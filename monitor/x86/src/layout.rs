//! Memory that the host has laid out for this monitor. A core's part of it is found from the address of its frame, so
//! it costs no lookup.

use crate::{Frame, Shell};
use bulkhead_monitor::Layout;
use bulkhead_monitor::contract::{Local, Shared};
use bulkhead_monitor_abi::bell::{Bell, End};
use bulkhead_monitor_abi::debug;
use bulkhead_monitor_abi::ladder::Ladder;
use bulkhead_monitor_abi::link::Link;
use bulkhead_monitor_abi::load::{Head, PROGRAM_GPA};
use bulkhead_monitor_abi::map::{
    CONFIG_VA, CORE_REPORT, CORE_STACK, CORE_STRIDE, CORES_VA, DEBUG_VA, GUEST_VA, MAILBOX_VA,
    PROGRESS_VA, REPORT_VA, ROLES_VA, SNAPSHOTS_VA,
};
use bulkhead_monitor_abi::monitor::{self, Clock, Mailbox, Slice, Start};
use bulkhead_monitor_abi::peer::{BusMaster, Peer};
use bulkhead_monitor_abi::record::{Op, RecordMemory};
use bulkhead_monitor_abi::report::{CoreReportCells, ReportCells};
use bulkhead_monitor_abi::role::{Piece, ROLES, Role};
use bulkhead_monitor_abi::snapshot::Head as Snapshots;
use bulkhead_monitor_abi::watch::{FixedPage, PART, PARTS, Progress};
use bulkhead_monitor_abi::{MAX_CORES, MAX_SANDBOXES, PAGE, mutant};
use bulkhead_monitor_abi_x86::config::Config;
use core::arch::asm;
use core::ptr::read_volatile;
use core::sync::atomic::AtomicU64;

/// Words of a page that are summed up without a jump.
const EACH: u64 = 32;

/// A core's state, at the base of its stack. The handler of doorbells knows its first byte.
#[repr(C)]
struct State {
    local: Local,
    shared: Shared,
}

/// Returns the configuration.
#[inline(always)]
pub fn config() -> &'static Config {
    // SAFETY: the host maps it there, read-only for every program.
    unsafe { &*(CONFIG_VA as *const Config) }
}

/// Returns a part of the configuration.
pub fn slice<T>(part: Slice) -> &'static [T] {
    // SAFETY: the host placed `len` elements of the type that the field's
    // documentation names at that offset, in the read-only configuration.
    unsafe {
        core::slice::from_raw_parts(
            (CONFIG_VA + u64::from(part.offset)) as *const T,
            part.len as usize,
        )
    }
}

impl<S: Shell> Layout for Frame<S> {
    const NEEDS: u32 = S::NEEDS;

    #[inline(always)]
    fn config(&self) -> &monitor::Config {
        config()
    }

    fn mailbox(&self, sandbox: u32) -> &Mailbox {
        // The remainder bounds the address by itself, so that no index of a caller can lead elsewhere.
        let sandbox = u64::from(sandbox) % MAX_SANDBOXES as u64;
        // SAFETY: each caller's index is below `config().sandboxes`, and the host
        // maps that many mailboxes. Its fields are atomics.
        unsafe { &*((MAILBOX_VA + sandbox * size_of::<Mailbox>() as u64) as *const Mailbox) }
    }

    fn report(&self) -> &ReportCells {
        // SAFETY: the host maps it there, writable; its fields are atomics.
        unsafe { &*(REPORT_VA as *const ReportCells) }
    }

    #[inline(always)]
    fn counters(&self) -> &CoreReportCells {
        // SAFETY: the host maps it in this core's block, writable; its fields are atomics.
        unsafe { &*((self.block() + CORE_REPORT) as *const CoreReportCells) }
    }

    #[inline(always)]
    fn local(&self) -> &Local {
        // SAFETY: the host maps this core's stack there, and its base is the state; this core alone uses it.
        unsafe { &(*((self.block() + CORE_STACK) as *const State)).local }
    }

    #[inline(always)]
    fn own(&self) -> &Shared {
        // SAFETY: the host maps this core's stack there, and its base is the state; the fields are atomics.
        unsafe { &(*((self.block() + CORE_STACK) as *const State)).shared }
    }

    #[inline(always)]
    fn shared(&self, core: u32) -> &Shared {
        // As for `mailbox`.
        let core = u64::from(core) % MAX_CORES as u64;
        let state = CORES_VA + core * CORE_STRIDE + CORE_STACK;
        // SAFETY: the host maps a block for each core below `config().cores`, and
        // each caller's index is below that; the fields are atomics.
        unsafe { &(*(state as *const State)).shared }
    }

    fn clock(&self) -> &Clock {
        // SAFETY: the host maps the page; the boot code was done with it before any
        // guest started.
        unsafe { &*(config().clock_va as *const Clock) }
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: the host maps the page there as long as the machine runs. It is writable if this sandbox's guest
        // writes it or the link is the sandbox's. All accesses are atomic.
        unsafe { &*(at as *const AtomicU64) }
    }

    fn progress(&self) -> &Progress {
        // SAFETY: the host maps it there if the watchdog looks at it; its fields are atomics.
        unsafe { &*(PROGRESS_VA as *const Progress) }
    }

    fn ops(&self, part: Slice) -> &[Op] {
        slice(part)
    }

    fn entries(&self, part: Slice) -> &[u64] {
        slice(part)
    }

    fn links(&self) -> &[Link] {
        slice(config().links)
    }

    fn roles(&self) -> &[Role] {
        slice(config().roles)
    }

    fn role_pieces(&self, pieces: Slice) -> &[Piece] {
        slice(pieces)
    }

    fn role_ends(&self, ends: Slice) -> &[End] {
        slice(ends)
    }

    fn roles_shown(&self) -> &[AtomicU64; ROLES] {
        // SAFETY: the host maps it there, writable, where the sandbox can have roles.
        unsafe { &*(ROLES_VA as *const [AtomicU64; ROLES]) }
    }

    fn fixed_pages(&self, pages: Slice) -> &[FixedPage] {
        slice(pages)
    }

    fn part(&self, page: &FixedPage, number: u32) -> &[u64; PART] {
        let at = page.at + u64::from(number % PARTS) * (PART as u64 * 8);
        // SAFETY: the host lists pages that it maps: of the monitor's own text, or of RAM that the guest cannot write.
        unsafe { &*(at as *const [u64; PART]) }
    }

    fn ladders(&self) -> &[Ladder] {
        slice(config().ladders)
    }

    fn alternatives(&self) -> &[Start] {
        slice(config().alternatives)
    }

    fn peers(&self) -> &[Peer] {
        slice(config().peers)
    }

    fn messages(&self, cores: Slice) -> &[[u64; 2]] {
        slice(cores)
    }

    fn masters(&self, functions: Slice) -> &[BusMaster] {
        slice(functions)
    }

    fn debugger(&self) -> &debug::Page {
        // SAFETY: the host maps it there, writable, where a debugger is let in; its fields are atomics.
        unsafe { &*(DEBUG_VA as *const debug::Page) }
    }

    fn snapshots(&self) -> &Snapshots {
        // SAFETY: the host maps it there, writable, where the guest takes snapshots; its fields are atomics.
        unsafe { &*(SNAPSHOTS_VA as *const Snapshots) }
    }

    fn keep(&self, to: u64, from: u64) {
        Memory.copy(SNAPSHOTS_VA + to, GUEST_VA + from, PAGE);
    }

    #[inline(never)]
    fn kept(&self, at: u64) -> u64 {
        let page = SNAPSHOTS_VA + at + EACH * 4;
        let sum: u64;
        // SAFETY: the host maps the page, and this core alone writes it. One instruction for a word: this is most of a
        // snapshot. From the middle of a round: offsets are short.
        unsafe {
            asm!(
                "xor {sum:e}, {sum:e}",
                "2:",
                ".set word, -4 * {each}",
                ".rept {each}",
                "add {sum}, [{page} + word]",
                ".set word, word + 8",
                ".endr",
                "add {page}, 8 * {each}",
                "cmp {page}, {end}",
                "jnz 2b",
                each = const EACH,
                sum = out(reg) sum,
                page = inout(reg) page => _,
                end = in(reg) page + PAGE,
                options(nostack, readonly)
            );
        }
        sum
    }

    fn bells(&self) -> &[Bell] {
        slice(config().bells)
    }

    fn ends(&self) -> &[End] {
        slice(config().channel_ends)
    }

    fn memory(&self) -> impl RecordMemory {
        Memory
    }

    fn head(&self) -> Head {
        // SAFETY: the host maps `room` bytes there, read-only; another sandbox may be writing them.
        // Copied once: its writer could change it between the checks and the use.
        unsafe { read_volatile(config().loads as *const Head) }
    }

    fn program(&self, len: u64) -> &[u64] {
        // SAFETY: RAM of the sandbox; the manifest's checker saw that it holds `room` bytes from there on. No guest
        // runs, and none of its devices has work.
        unsafe {
            core::slice::from_raw_parts((GUEST_VA + PROGRAM_GPA) as *const u64, len as usize / 8)
        }
    }

    /// Tells if a rule is enforced. A build for the mutation gate has `BULKHEAD_MUTANTS` set. It leaves out the rule
    /// that its word names, so that the attack named after the rule succeeds.
    #[inline(always)]
    fn enforced(rule: &str) -> bool {
        #[unsafe(link_section = ".rodata.mutant")]
        static MUTANT: u64 = mutant::NONE;
        if option_env!("BULKHEAD_MUTANTS").is_none() {
            return true;
        }
        // SAFETY: a reference to a word of this binary. It is volatile because the gate writes it after the build.
        let word = unsafe { read_volatile(&raw const MUTANT) };
        word != mutant::number(rule)
    }
}

/// This sandbox's memory, as its launch record sees it.
pub struct Memory;

impl RecordMemory for Memory {
    fn zero(&mut self, dst: u64, len: u64) {
        // SAFETY: the record was baked for exactly the pages that the monitor's tables map writable: the sandbox's
        // RAM and this core's control block. Or it is the guest's part of this core's frame, or a link of the
        // sandbox's.
        unsafe {
            // One instruction for any length: most of a restart is spent here.
            asm!("rep stosq", inout("rdi") dst => _, inout("rcx") len / 8 => _, in("rax") 0u64, options(nostack, preserves_flags))
        };
    }

    fn copy(&mut self, dst: u64, src: u64, len: u64) {
        // SAFETY: the destination as for `zero`; the source is the pristine guest, or a program that another sandbox
        // has left, mapped read-only.
        unsafe {
            asm!("rep movsq", inout("rdi") dst => _, inout("rsi") src => _, inout("rcx") len / 8 => _, options(nostack, preserves_flags))
        };
    }

    fn store(&mut self, dst: u64, value: u64) {
        // SAFETY: the destination as for `zero`, or a page of the guest's nested tables that has entries of links and
        // nothing else.
        unsafe { (dst as *mut u64).write_volatile(value) };
    }
}
