//! The monitors' doorbell: an NMI, and requests in mailboxes that only their
//! sender writes. Nobody waits for an answer: it shows in the other's status.

use crate::core::{Core, config, mailbox, slice};
use crate::record::count;
use crate::vmrun::nmi_window;
use crate::{enforced, ipi, life, link};
use ::core::sync::atomic::{AtomicU64, Ordering};
use bulkhead_resident::bell::{self, Bell, End};
use bulkhead_resident::hypercall::{
    BAD_ARGUMENT, BUSY, CONTROL_RESTART, CONTROL_START, CONTROL_STOP, OK,
};
use bulkhead_resident::report::{Cause, State};
use bulkhead_resident_x86::icr::is_aim;

/// An NMI came, or may have: looks into signals and, on the first core, into the
/// mailboxes. True: the guest starts afresh.
pub fn doorbell(core: Core, cause: Cause) -> bool {
    count(core, cause);
    // It is still pending: take it. One that comes later causes an exit again.
    nmi_window();
    core.local().doorbell.set(0);
    if ipi::receive(core) {
        return true;
    }
    link::look(core);
    if !core.is_first() {
        return false;
    }
    match requested(1 << CONTROL_STOP | 1 << CONTROL_RESTART) {
        0 => false,
        CONTROL_STOP => life::end(core, State::Stopped as u32, 0),
        _ => life::end(core, State::Launching as u32, 0),
    }
}

/// The first request of a sandbox that may make one, of those in a set; 0: none. Each is acknowledged here, before
/// it is carried out, so that a sender is never held up by the outcome; those that are not in the set are dropped.
#[inline(never)]
fn requested(set: u64) -> u64 {
    let config = config();
    let from = |sender: u32| {
        let granted = config.controlled_by >> sender & 1 != 0;
        let slot = mailbox(sender).request.get(config.sandbox as usize)?;
        let done = mailbox(config.sandbox).done.get(sender as usize)?;
        let value = slot.load(Ordering::Acquire);
        if value >> 8 == done.load(Ordering::Relaxed) {
            return None;
        }
        done.store(value >> 8, Ordering::Release);
        let may = granted || !enforced("control-right");
        let wanted = set.checked_shr(value as u8 as u32).unwrap_or(0) & 1 != 0;
        (may && wanted).then_some(value & 0xFF)
    };
    (0..config.sandboxes).find_map(from).unwrap_or(0)
}

/// Posts a request to another sandbox's monitor.
pub fn post(to: u32, what: u64) -> u64 {
    let config = config();
    let (Some(slot), Some(done), Some(&id)) = (
        mailbox(config.sandbox).request.get(to as usize),
        mailbox(to).done.get(config.sandbox as usize),
        config.first_core.get(to as usize),
    ) else {
        return BAD_ARGUMENT;
    };
    // One that has not come up cannot take an NMI yet: neither can boot code.
    if mailbox(to).status.load(Ordering::Acquire) as u8 == State::Absent as u8 {
        return BUSY;
    }
    let old = slot.load(Ordering::Relaxed);
    let new = ((old >> 8) + 1) << 8 | what;
    // The other cores of this sandbox may post, too: one wins. Who finds a
    // request pending rings again, so that none waits for ever.
    let free = done.load(Ordering::Acquire) == old >> 8;
    let posted =
        free && slot.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed).is_ok();
    ipi::ring(id);
    if posted { OK } else { BUSY }
}

/// Whether a sandbox that is about to launch shall not; a restart is granted by that.
pub fn stop_requested() -> bool {
    requested(1 << CONTROL_STOP) != 0
}

/// Whether a waiting sandbox shall start again.
pub fn start_requested() -> bool {
    requested(1 << CONTROL_START | 1 << CONTROL_RESTART) != 0
}

/// An interrupt to the receiver of a channel if it asks for one by [`Bell::armed`]: at most one
/// each time that it asks, however many cores ring. Whether there is a doorbell of this number.
pub fn ring_bell(number: u32) -> bool {
    let rung = mailbox(config().sandbox).rung.get(number as usize);
    let (Some(bell), Some(rung)) = (slice::<Bell>(config().bells).get(number as usize), rung)
    else {
        return false;
    };
    if bell::admit(rung, word(bell.armed)) {
        let icr = if bell.aim == 0 { bell.icr } else { word(bell.aim).load(Ordering::Acquire) };
        if is_aim(&bell.cores, icr) {
            ipi::interrupt(icr);
        }
    }
    true
}

/// Says where a channel's interrupts go that wakes the own guest ([`bell::aim`]).
pub fn aim(number: usize, icr: u64) {
    let Some(word) = mailbox(config().sandbox).aims.get(number) else { return };
    if bell::aim(word, icr) {
        ipi::interrupt(icr);
    }
}

/// Says in the guest's channels that it has ended, and wakes those who are to hear it.
pub fn bury() {
    slice::<End>(config().channel_ends).iter().for_each(bury_end);
    (0..config().bells.len).for_each(|number| {
        ring_bell(number);
    });
}

/// Says that an end of a channel has left.
#[inline(never)]
pub fn bury_end(end: &End) {
    bell::bury(word(end.hello), word(end.armed));
}

/// A word of a channel's.
fn word(at: u64) -> &'static AtomicU64 {
    // SAFETY: the host maps the page there as long as the machine runs, writable if this sandbox's guest writes
    // it or the slot is the sandbox's; all accesses are atomic.
    unsafe { &*(at as *const AtomicU64) }
}
