//! Data of each core: descriptor table, task state, stacks, and the state of fault capture. GS points to it.

use super::{cpu, fault};
use bulkhead_layout::MAX_CORES;
use core::arch::asm;
use core::cell::UnsafeCell;

/// Selectors of [`Core::gdt`].
pub(crate) const CODE: u16 = 0x08;
pub(crate) const DATA: u16 = 0x10;
pub(crate) const USER_DATA: u16 = 0x18 | 3;
pub(crate) const USER_CODE: u16 = 0x20 | 3;
const TASK: u16 = 0x28;

/// Bytes of a secondary core's stack; the first core has one of its own.
pub(crate) const STACK: usize = 32 * 1024;
/// Bytes of the stack for interrupts out of CPL 3.
const TRAP_STACK: usize = 8 * 1024;
const GS_BASE: u32 = 0xC000_0101;

/// Operand of LGDT and LIDT.
#[repr(C, packed)]
pub(crate) struct Pointer {
    limit: u16,
    base: u64,
}

impl Pointer {
    pub(crate) fn new(base: u64, size: usize) -> Self {
        Self { limit: (size - 1) as u16, base }
    }
}

/// 64-bit task state segment (APM volume 2, 12.2.5): only RSP0 is used.
#[repr(C, packed)]
struct Task {
    reserved: u32,
    rsp0: u64,
    rest: [u8; 90],
    io_map: u16,
}

/// One core's block.
#[repr(C, align(64))]
pub(crate) struct Core {
    /// Address of this block, for `gs:[0]`.
    this: u64,
    /// Index among the sandbox's cores.
    pub(crate) index: u64,
    /// See [`fault`].
    pub(crate) capture: fault::Capture,
    gdt: [u64; 7],
    task: Task,
    trap_stack: [u128; TRAP_STACK / 16],
    pub(crate) stack: [u128; STACK / 16],
}

struct Cores(UnsafeCell<[Core; MAX_CORES]>);

// SAFETY: each core touches its own block only, from `enter` on; before that
// only the core that starts it does.
unsafe impl Sync for Cores {}

static CORES: Cores = Cores(UnsafeCell::new(
    [const {
        Core {
            this: 0,
            index: 0,
            capture: fault::Capture::NONE,
            gdt: [0; 7],
            task: Task { reserved: 0, rsp0: 0, rest: [0; 90], io_map: 0 },
            trap_stack: [0; TRAP_STACK / 16],
            stack: [0; STACK / 16],
        }
    }; MAX_CORES],
));

/// Block of the core with this index, which must be below [`MAX_CORES`].
pub(crate) fn block(index: usize) -> *mut Core {
    assert!(index < MAX_CORES);
    // SAFETY: within the array; no reference is made.
    unsafe { CORES.0.get().cast::<Core>().add(index) }
}

/// This core's block.
pub(crate) fn this() -> *mut Core {
    let pointer;
    // SAFETY: `enter` has set GS on every core that runs Rust code.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    pointer
}

/// Makes the calling core the owner of its block: descriptor tables, GS.
///
/// # Safety
/// Once on each core, before anything else that needs its block.
pub(crate) unsafe fn enter(index: usize) {
    let core = block(index);
    // SAFETY: no other code uses this block (the caller's promise); the values are those of APM volume 2, 4.8
    // (segments) and 12.2.5 (task state).
    unsafe {
        let task = &raw const (*core).task as u64;
        let limit = size_of::<Task>() as u64 - 1;
        (*core).this = core as u64;
        (*core).index = index as u64;
        // A core that an INIT took out of a capture starts without one.
        (*core).capture = fault::Capture::NONE;
        (*core).task.rsp0 = (&raw const (*core).stack) as u64;
        (*core).task.io_map = size_of::<Task>() as u16;
        (*core).gdt = [
            0,
            0x00AF_9B00_0000_FFFF,
            0x00CF_9300_0000_FFFF,
            0x00CF_F300_0000_FFFF,
            0x00AF_FB00_0000_FFFF,
            limit | (task & 0xFF_FFFF) << 16 | 0x89 << 40 | (task >> 24 & 0xFF) << 56,
            task >> 32,
        ];
        let pointer = Pointer::new(&raw const (*core).gdt as u64, size_of::<[u64; 7]>());
        asm!(
            "lgdt [{pointer}]",
            "push {code}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            "mov ss, {data:x}",
            "mov ds, {data:x}",
            "mov es, {data:x}",
            "ltr {task:x}",
            pointer = in(reg) &pointer,
            code = const CODE,
            data = in(reg) DATA,
            task = in(reg) TASK,
            scratch = out(reg) _,
            options(preserves_flags),
        );
        cpu::wrmsr(GS_BASE, core as u64);
    }
}

/// Index of the calling core among the sandbox's cores.
#[must_use]
pub fn index() -> usize {
    // SAFETY: the own block.
    unsafe { (*this()).index as usize }
}
