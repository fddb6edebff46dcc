//! Snapshots of the guest ([`bulkhead_monitor_abi::snapshot`]). The sandbox's first core alone is here.

use crate::contract::Monitor;
use crate::ladder;
use crate::outcome::Outcome;
use crate::record::deny;
use bulkhead_monitor_abi::hypercall::{BAD_ARGUMENT, BUSY, DENIED, KEEP, NO_CALL, OK};
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::report::{Cause, Condition};
use bulkhead_monitor_abi::snapshot::{self, Head, SLICE, Store, Taken};
use core::sync::atomic::AtomicU64;

/// The sandbox's store.
struct Own<'a, M>(&'a M);

impl<M: Monitor> Own<'_, M> {
    #[inline(always)]
    fn place(&self, buffer: usize, page: usize) -> u64 {
        snapshot::place(self.0.config().snapshot, buffer, page)
    }
}

impl<M: Monitor> Store for Own<'_, M> {
    type Word = AtomicU64;

    #[inline(always)]
    fn head(&self) -> &Head {
        self.0.snapshots()
    }

    #[inline(always)]
    fn copy(&self, buffer: usize, page: usize, from: u64) -> u64 {
        let to = self.place(buffer, page);
        // The copy is summed up: the guest's other cores may change the page meanwhile.
        self.0.keep(to, from);
        self.0.kept(to)
    }

    #[inline(always)]
    fn sum(&self, buffer: usize, page: usize) -> u64 {
        self.0.kept(self.place(buffer, page))
    }

    #[inline(always)]
    fn enforced(&self, rule: &str) -> bool {
        M::enforced(rule)
    }
}

/// Makes a call by an instruction of `length` bytes.
#[inline(never)]
pub fn call<M: Monitor>(m: &M, call: u64, length: u8) -> Outcome {
    let [first, second] = [m.argument(0), m.argument(1)];
    let (config, done) = (m.config(), Outcome::skip(Cause::Hypercall, length));
    let room = config.snapshot;
    let result = match call {
        _ if room == 0 => NO_CALL,
        // One core works at a store, so no call waits for another one.
        _ if !m.is_first() => BAD_ARGUMENT,
        KEEP if !snapshot::inside(&config.ram, first, second) && M::enforced("snapshot-range") => {
            m.answer(DENIED);
            return deny(
                m,
                Condition::Snapshot,
                first,
                second,
                Outcome::skip(Cause::Denied, length),
            );
        }
        KEEP => match snapshot::name(&Own(m), first, second, room) {
            true => OK,
            false => BAD_ARGUMENT,
        },
        _ => match snapshot::take(&Own(m), first, SLICE) {
            Taken::Whole => OK,
            Taken::Again => BUSY,
            Taken::Nothing => BAD_ARGUMENT,
        },
    };
    m.answer(result);
    done
}

/// Begins a life: a warm one is offered the newest snapshot that is whole.
pub fn begin<M: Monitor>(m: &M) {
    if !M::has(need::SNAPSHOT) || m.config().snapshot == 0 {
        return;
    }
    let warm = m.local().warm.replace(false);
    let found = snapshot::begin(&Own(m), warm);
    if warm {
        ladder::found(m, found);
    }
}
