//! The one place where outcomes are carried out.

use crate::contract::Monitor;
use crate::outcome::{Outcome, Then};
use crate::{life, record};
use bulkhead_monitor_abi::need;

/// Next step of the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum Next {
    /// Lets the guest go on.
    Go = 0,
    /// Lets a fresh guest begin, which sees no register of the last one's.
    Afresh = 1,
    /// Saves all registers and calls its handler of memory accesses.
    Memory = -1,
}

/// Carries out what a handler has decided.
#[inline(always)]
pub fn carry_out<M: Monitor>(m: &M, outcome: Outcome) -> Next {
    record::count(m, outcome.cause());
    match outcome.then() {
        Then::Resume => Next::Go,
        Then::Skip(length) => {
            m.skip(length);
            Next::Go
        }
        _ => turn(m, outcome),
    }
}

/// Does the rest of [`carry_out`], out of the way of frequent exits.
#[inline(never)]
fn turn<M: Monitor>(m: &M, outcome: Outcome) -> Next {
    match outcome.then() {
        Then::Inject(exception) => {
            m.inject(exception);
            return Next::Go;
        }
        Then::End(end) => life::end(m, end),
        Then::Park if M::has(need::CORES) => life::park(m, 0),
        _ => {}
    }
    Next::Afresh
}
