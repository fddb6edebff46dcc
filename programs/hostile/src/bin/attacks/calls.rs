//! Calls for objects and rights that were not given to the program: each is to be refused with the reason.

use super::Attack;
use bulkhead_program::abi::{Kind, Label, Op, Rights, label, slot};
use bulkhead_program::{Error, Program, Words, invoke};

pub const ALL: [Attack; 12] = [
    |_| raw(99, 0, 0),
    |program| raw(Op::Call as u64, free(program), 0),
    |_| status(invoke(slot::SANDBOX, label::EXIT, [0; 4])),
    |_| status(invoke(slot::SANDBOX, label::READY, [0; 4])),
    |program| {
        let own = program.manages("attacker");
        status(own.set_priority(255, 255, own))
    },
    |program| {
        let first = u64::from(program.context("attacker").0);
        status(invoke(slot::CONTROL, label::SET_CONTEXT, [first, 1_000_000, 1_000_000, 0]))
    },
    more_rights,
    |program| raw(Op::Wait as u64, program.endpoint("there").0.into(), 0),
    |program| status(program.manages("attacker").set_registers([0x40_0000, 0x40_0000, 0, 0])),
    |program| {
        status(with_frame(program, label::MAP, [slot::SPACE.into(), 0xFFFF_FFFF_8000_0000, 3, 0]))
    },
    |_| status(invoke(slot::NODE, label::MAP, [slot::SPACE.into(), 0x5000_0000, 3, 0])),
    |program| status(retype(program, Kind::Frame, 21, 256)),
];

/// A call with these registers; its status.
pub fn raw(op: u64, named: u64, info: u64) -> u64 {
    let mut status = op;
    // SAFETY: a call changes no memory of this program's but the thread's buffer, which it doesn't use.
    unsafe {
        core::arch::asm!(
            "syscall", inlateout("rax") status, inlateout("rdi") named => _, inlateout("rsi") info => _,
            lateout("rdx") _, lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    status
}

fn free(program: Program) -> u64 {
    u64::from(program.free()[0])
}

/// The result of a call as a number: 0, or its status.
pub fn status<T>(result: Result<T, Error>) -> u64 {
    result.err().map_or(0, |error| error.0.0)
}

/// Makes objects of its own memory, from its first empty slot on.
pub fn retype(program: Program, kind: Kind, bits: u64, count: u64) -> Result<Words, Error> {
    let what = kind as u64 | bits << 8 | count << 16;
    invoke(slot::MEMORY, label::RETYPE, [what, slot::NODE.into(), free(program), 0])
}

/// Calls a method of a frame of its own, and deletes that.
fn with_frame(program: Program, method: Label, words: Words) -> Result<Words, Error> {
    retype(program, Kind::Frame, 12, 1)?;
    let result = invoke(program.free()[0], method, words);
    invoke(slot::NODE, label::DELETE, [free(program), 0, 0, 0])?;
    result
}

/// Derives a capability with all rights from one that can only be called, and receives by it.
fn more_rights(program: Program) -> u64 {
    let there = u64::from(program.endpoint("there").0);
    let all = u64::from(Rights::ALL.0);
    let copied = invoke(slot::NODE, label::COPY, [free(program), there, all, 0]);
    let received = raw(Op::Wait as u64, free(program), 0);
    let deleted = invoke(slot::NODE, label::DELETE, [free(program), 0, 0, 0]);
    if copied.is_err() { status(copied) } else { received.max(status(deleted)) }
}
