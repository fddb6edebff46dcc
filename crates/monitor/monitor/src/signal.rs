//! Signals between the cores of one sandbox, each with a doorbell.

use crate::contract::Monitor;
use crate::outcome::{End, Outcome};
use bulkhead_monitor_abi::bell::Word;
use bulkhead_monitor_abi::cores::To;
use bulkhead_monitor_abi::report::{Cause, State};
use bulkhead_monitor_abi::{MAX_SANDBOXES, need};
use core::sync::atomic::Ordering;

/// Signal, in [`crate::contract::Shared::signals`]: wait for a start-up.
pub const PARK: u32 = 1 << 8;
/// Start as bits 7:0 name it ([`crate::contract::Vcpu::startup`]).
pub const START: u32 = 1 << 9;
/// [`START`] and its name.
const START_BITS: u32 = START | 0xFF;
/// An interrupt for the guest that it cannot mask.
pub const UNMASKABLE: u32 = 1 << 10;
/// To the first core: end the sandbox, [`END_HOW`] says how.
pub const END: u32 = 1 << 11;
/// Position of the bits of [`End`], for [`END`].
pub const END_HOW: u32 = 12;

/// Calls `f` with number and identity of each of these cores of the sandbox.
pub fn each<M: Monitor>(m: &M, to: To, f: impl Fn(u32, u32)) {
    let ids = m.config().core_ids.iter().take(m.cores() as usize);
    for (index, &id) in (0..).zip(ids) {
        if to.includes(id, index == m.index()) {
            f(index, id);
        }
    }
}

/// Leaves signals for each of these cores.
#[inline(never)]
pub fn send_each<M: Monitor>(m: &M, to: To, signals: u32) {
    each(m, to, |index, _| send(m, index, signals));
}

/// Leaves signals for a core of this sandbox and rings it. A signal to oneself
/// is handled before the guest goes on, because its doorbell is pending then.
pub fn send<M: Monitor>(m: &M, index: u32, signals: u32) {
    let to = m.shared(index);
    let accept = |old: u32| {
        // A start-up is for a core that waits or will; of several start-ups
        // and of several ends the first one counts.
        let waits = to.parked.load(Ordering::Acquire) != 0 || old & PARK != 0;
        if signals & START != 0 && !waits || signals & old & (START | END) != 0 {
            return None;
        }
        // `PARK` cancels a start-up that was not begun: both at once mean `PARK`, then start-up.
        let kept = if signals & PARK != 0 { old & !START_BITS } else { old };
        Some(kept | signals)
    };
    let accepted = to.signals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, accept);
    if let (Ok(_), Some(&id)) = (accepted, m.config().core_ids.get(index as usize)) {
        ring(m, m.config().sandbox, id);
    }
}

/// Rings a core's monitor. The mailbox counts it, so that the rung sandbox's monitor sees the sender.
#[inline(never)]
pub fn ring<M: Monitor>(m: &M, sandbox: u32, id: u32) {
    m.mailbox(m.config().sandbox).rings[sandbox as usize % MAX_SANDBOXES].count();
    m.ring(id);
}

/// Takes this core's signals, at a doorbell that counts for `cause`. True: another core has sent the guest an
/// interrupt that it cannot mask.
///
/// # Errors
/// Outcome, where other cores of the sandbox have decided it.
pub fn receive<M: Monitor>(m: &M, cause: Cause) -> Result<bool, Outcome> {
    // `PARK` stays until the core has parked, or a start-up meanwhile would be dropped.
    let signals = &m.own().signals;
    // Most doorbells leave none. One that comes behind this look rings again.
    if signals.load(Ordering::Acquire) == 0 {
        return Ok(false);
    }
    let signals = signals.fetch_and(PARK | START_BITS, Ordering::AcqRel);
    if M::has(need::CORES) && signals & END != 0 && m.is_first() {
        return Err(Outcome::answer(cause, End::from_bits((signals >> END_HOW) as u16)));
    }
    if signals & PARK == 0 {
        return Ok(signals & UNMASKABLE != 0);
    }
    // The processor that boots does not wait for a start-up: a reset.
    Err(match m.is_first() {
        true => Outcome::end(cause, State::Launching),
        false => Outcome::park(cause),
    })
}
