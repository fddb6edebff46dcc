//! The monitors' doorbell: an NMI, and requests in mailboxes that only their
//! sender writes ([`bulkhead_resident::mail`]). Nobody waits for an answer: it shows in the other's status.

use crate::core::{Core, config, mailbox, report, slice};
use crate::outcome::Outcome;
use crate::vmrun::nmi_window;
use crate::{enforced, ipi, link};
use ::core::ptr::{addr_of_mut, write_volatile};
use ::core::sync::atomic::{AtomicU64, Ordering};
use bulkhead_cpu_x86::rdtsc;
use bulkhead_resident::bell::{self, Bell, End};
use bulkhead_resident::hypercall::{BAD_ARGUMENT, BUSY, CONTROL_START, CONTROL_STOP, OK, index};
use bulkhead_resident::mail::{self, Effect, Way};
use bulkhead_resident::monitor::Clock;
use bulkhead_resident::report::{Cause, State};
use bulkhead_resident_x86::icr::is_aim;
use bulkhead_resident_x86::vmcb;

/// Looks into signals and, on the first core, into the mailboxes: an NMI came, or may have.
pub fn doorbell(core: Core, cause: Cause) -> Outcome {
    // It is still pending: take it. One that comes later causes an exit again.
    nmi_window();
    core.local().doorbell.set(0);
    let nmi = match ipi::receive(core, cause) {
        Ok(nmi) => nmi,
        Err(outcome) => return outcome,
    };
    link::look(core);
    match asked(core) {
        Some(state) => Outcome::end(cause, state),
        None if nmi => Outcome::inject(cause, vmcb::NMI),
        None => Outcome::resume(cause),
    }
}

/// State in which other sandboxes' requests end the guest's life, if one does; the first core looks.
fn asked(core: Core) -> Option<State> {
    if !core.is_first() {
        return None;
    }
    tally();
    match requested(true) {
        0 => None,
        CONTROL_STOP => Some(State::Stopped),
        _ => Some(State::Launching),
    }
}

/// Copies to the report how often each sandbox's monitor has rung for this one; on the first core.
pub fn tally() {
    let config = config();
    for sender in 0..config.sandboxes {
        let rings = mailbox(sender).rings.get(config.sandbox as usize);
        let rings = rings.map_or(0, |rings| rings.load(Ordering::Relaxed));
        // SAFETY: the first core alone writes the sandbox's report; readers take any value. The host has
        // [`bulkhead_resident::MAX_SANDBOXES`] sandboxes at most.
        unsafe {
            let rung = addr_of_mut!((*report()).rung).cast::<u64>();
            write_volatile(rung.add(sender as usize), rings);
        }
    }
}

/// The first request that a guest which runs, or does not, is to be subjected to; 0: none. Others are acknowledged and
/// dropped.
#[inline(never)]
fn requested(runs: bool) -> u64 {
    let config = config();
    let from = |sender: u32| {
        let request = mailbox(sender).request.get(config.sandbox as usize)?;
        let done = mailbox(config.sandbox).done.get(sender as usize)?;
        let request = mail::take(request, done)?;
        let may = |set: u32| set >> sender & 1 != 0 || !enforced("control-right");
        let what = mail::wanted(request, config.controlled_by.map(may), runs);
        (what != 0).then_some(what)
    };
    (0..config.sandboxes).find_map(from).unwrap_or(0)
}

/// Posts a request to another sandbox's monitor, if it is to have one.
pub fn post(to: u32, what: u64) -> u64 {
    let (config, own) = (config(), mailbox(config().sandbox));
    let tokens = own.due.get(to as usize).and_then(|all| all.get(index(what)));
    let every = config.every.get(to as usize).and_then(|all| all.get(index(what)));
    let (Some(request), Some(done), Some(&id), Some(token), Some(&every)) = (
        own.request.get(to as usize),
        mailbox(to).done.get(config.sandbox as usize),
        config.first_core.get(to as usize),
        tokens,
        every,
    ) else {
        return BAD_ARGUMENT;
    };
    let starts = config.rights.over(CONTROL_START) >> to & 1 != 0;
    let state = mailbox(to).status.load(Ordering::Acquire) as u8;
    match mail::effect(what, u32::from(state), starts) {
        Effect::Answer(answer) if enforced("control-change") => return answer,
        _ => {}
    }
    // SAFETY: the host maps the clock there; the boot code has measured it before any guest runs.
    let hz = unsafe { (*(config.clock_va as *const Clock)).tsc_hz };
    let pace = u64::from(every).wrapping_mul(hz) / 1_000_000;
    let pace = if enforced("control-rate") { pace } else { 0 };
    if mail::post(&Way { request, done, token }, what, rdtsc(), pace) {
        ipi::ring(to, id);
        return OK;
    }
    BUSY
}

/// Whether a sandbox that is about to launch shall not; a start and a restart are granted by that.
pub fn stop_requested() -> bool {
    loop {
        match requested(true) {
            0 => return false,
            CONTROL_STOP => return true,
            _ => {}
        }
    }
}

/// Whether a waiting sandbox shall start again.
pub fn start_requested() -> bool {
    requested(false) != 0
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
