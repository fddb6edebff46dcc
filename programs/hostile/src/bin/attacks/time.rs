//! All the time that there is, in many ways: none comes back.

use super::Attack;
use super::calls::{raw, retype, status};
use bulkhead_program::abi::{Kind, Op, label, slot};
use bulkhead_program::{Program, invoke, now, wait_until};

pub const ALL: [Attack; 6] = [
    |_| for_ever(core::hint::spin_loop),
    |_| for_ever(|| raw(99, 0, 0)),
    |_| for_ever(|| raw(Op::Yield as u64, 0, 0)),
    |program| {
        let own = program.signals("never");
        for_ever(|| own.signal())
    },
    objects,
    |program| {
        let own = program.waits("never");
        for_ever(|| wait_until(own, now() + 1_000))
    },
];

fn for_ever<T>(mut what: impl FnMut() -> T) -> u64 {
    loop {
        let _ = what();
    }
}

/// Makes as many objects as it can, and takes them back.
fn objects(program: Program) -> u64 {
    loop {
        let made = retype(program, Kind::Notification, 0, 16);
        let revoked = invoke(slot::NODE, label::REVOKE, [slot::MEMORY.into(), 0, 0, 0]);
        if made.is_err() || revoked.is_err() {
            return status(made).max(status(revoked));
        }
    }
}
