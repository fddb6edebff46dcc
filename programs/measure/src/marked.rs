//! Calls between markers.

use bulkhead_program::abi::{Address, Info, Op};
use bulkhead_program::marker::{BEGIN, END, LAP, encode};

/// Result of a call: status, badge, info.
pub type Answer = (u64, u64, Info);

/// The two markers of a call, as codes.
pub trait Marks {
    /// Right before the instruction.
    const BEFORE: u16;
    /// Right behind it.
    const BEHIND: u16;
}

/// `BEGIN` of one id before, `END` of another one behind.
pub struct Span<const BEFORE: u16, const BEHIND: u16>;

impl<const BEFORE: u16, const BEHIND: u16> Marks for Span<BEFORE, BEHIND> {
    const BEFORE: u16 = BEGIN | BEFORE;
    const BEHIND: u16 = END | BEHIND;
}

/// Only the `END` behind; before is a marker that begins no span.
pub struct Behind<const ID: u16>;

impl<const ID: u16> Marks for Behind<ID> {
    const BEFORE: u16 = LAP | ID;
    const BEHIND: u16 = END | ID;
}

/// The bytes of a marker as an assembler's operand.
pub const fn quad(code: u16) -> u64 {
    u64::from_le_bytes(encode(code))
}

/// A call without words in registers.
#[inline(always)]
pub fn call<M: Marks>(op: Op, reply: Address, named: Address, info: u64) -> Answer {
    let (mut status, mut badge, mut info) =
        (op as u64 | u64::from(reply) << 32, u64::from(named), info);
    // SAFETY: a call changes the registers named here, and of this thread's memory its buffer, to which
    // there are no references.
    #[cfg(target_os = "none")]
    unsafe {
        core::arch::asm!(
            ".quad {before}",
            "syscall",
            ".quad {behind}",
            before = const quad(M::BEFORE), behind = const quad(M::BEHIND),
            inlateout("rax") status, inlateout("rdi") badge, inlateout("rsi") info,
            lateout("rdx") _, lateout("r8") _, lateout("r9") _, lateout("r10") _,
            lateout("rcx") _, lateout("r11") _, options(nostack)
        );
    }
    #[cfg(not(target_os = "none"))]
    unreachable_on_host(&mut (&mut status, &mut badge, &mut info, quad(M::BEFORE | M::BEHIND)));
    (status, badge, Info(info))
}

#[cfg(not(target_os = "none"))]
fn unreachable_on_host<T>(_: &mut T) {
    unreachable!("a program runs on the kernel, not here");
}
