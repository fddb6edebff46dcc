//! The monitors' doorbell, and requests in mailboxes that only their sender writes ([`bulkhead_monitor_abi::mail`]).
//! No core waits for an answer: it shows in the other sandbox's status.

use crate::contract::Monitor;
use crate::outcome::{Outcome, Then};
use crate::{debug, life, link, role, signal, watch};
use bulkhead_monitor_abi::bell::{self, End};
use bulkhead_monitor_abi::hypercall::{
    BAD_ARGUMENT, BUSY, CONTROL_START, CONTROL_STOP, OK, REQUESTS, STATUS_LOCKED, index,
};
use bulkhead_monitor_abi::mail::{self, Effect, Way};
use bulkhead_monitor_abi::report::{Cause, State};
use bulkhead_monitor_abi::{MAX_SANDBOXES, need};
use core::sync::atomic::Ordering;

/// Looks into signals and, on the first core, into the mailboxes: a doorbell came, or may have.
#[inline(never)]
pub fn doorbell<M: Monitor>(m: &M, cause: Cause) -> Outcome {
    // It is still pending: take it. One that comes later causes an exit again.
    m.hear();
    let tick = watch::due(m);
    let cause = if tick { Cause::Watchdog } else { cause };
    // Cleared before the look: a doorbell during it sets the flag again.
    m.local().doorbell.set(0);
    let unmaskable = match signal::receive(m, cause) {
        Ok(unmaskable) => unmaskable,
        Err(outcome) => return outcome,
    };
    link::look(m);
    if M::has(need::ROLE) {
        role::look(m);
    }
    let done = match asked(m) {
        Some(state) => return Outcome::end(cause, state),
        None if unmaskable => Outcome::inject(cause, M::UNMASKABLE),
        None => Outcome::resume(cause),
    };
    // A tick and a doorbell may have become one, so that the tick comes on top of the mail.
    let done = if tick { watch::look(m, done) } else { done };
    if M::has(need::DEBUG) && done.then() == Then::Resume {
        return debug::look(m, cause).unwrap_or(done);
    }
    done
}

/// Returns the state in which other sandboxes' requests end the guest's life, if one does; the first core looks.
pub fn asked<M: Monitor>(m: &M) -> Option<State> {
    if !m.is_first() {
        return None;
    }
    match requested(m, true) {
        0 => None,
        CONTROL_STOP => Some(State::Stopped),
        _ => Some(State::Launching),
    }
}

/// Returns the first request that the guest is to be subjected to, whether it runs or not; 0: none. Other requests of
/// sandboxes with a right are acknowledged and dropped, and all of them while the sandbox is locked.
fn requested<M: Monitor>(m: &M, runs: bool) -> u64 {
    if !M::has(need::CONTROL) {
        return 0;
    }
    let config = m.config();
    let from = |sender: u32| {
        // The sender's page is another monitor's, so the word in it is a claim.
        let request = m.mailbox(sender).request.get(config.sandbox as usize)?;
        let done = m.mailbox(config.sandbox).done.get(sender as usize)?;
        let request = mail::take(request, done)?;
        let may = |set: u32| set >> (sender & 31) & 1 != 0 || !M::enforced("control-right");
        Some(mail::wanted(request, config.controlled_by.map(may), runs))
    };
    // A sandbox without a right has nothing to say: its words are not looked at.
    let [stop, start, restart] = config.controlled_by;
    let mut senders = stop | start | restart;
    if !M::enforced("control-right") {
        senders = u32::MAX >> (config.sandboxes.wrapping_neg() & 31);
    }
    while senders != 0 {
        let what = from(senders.trailing_zeros()).unwrap_or(0);
        if what != 0 && !life::locked(m) {
            return what;
        }
        senders &= senders - 1;
    }
    0
}

/// Posts a request to another sandbox's monitor, if it is to have one. The call was decided on before
/// ([`bulkhead_monitor_abi::hypercall::decide`]), so `to` is a sandbox and `what` a request: bounds
/// stand in the way of nothing else.
pub fn post<M: Monitor>(m: &M, to: u32, what: u64) -> u64 {
    if !M::has(need::CONTROL) {
        return BAD_ARGUMENT;
    }
    let (config, own) = (m.config(), m.mailbox(m.config().sandbox));
    let (me, other) = (config.sandbox as usize % MAX_SANDBOXES, to as usize % MAX_SANDBOXES);
    let which = index(what).min(REQUESTS - 1);
    let (token, every) = (&own.due[other][which], config.every[other][which]);
    let (request, done) = (&own.request[other], &m.mailbox(to).done[me]);
    let starts = config.rights.over(CONTROL_START) >> (to & 31) & 1 != 0;
    // A request that changes nothing is answered here and costs the receiver nothing.
    let status = m.mailbox(to).status.load(Ordering::Acquire);
    let locked = M::has(need::LOCK) && status & STATUS_LOCKED != 0 && M::enforced("lock");
    match mail::effect(what, u32::from(status as u8), starts, locked) {
        Effect::Answer(answer) if M::enforced("control-change") => return answer,
        _ => {}
    }
    let pace = u64::from(every).wrapping_mul(m.clock().hz) / 1_000_000;
    let pace = if M::enforced("control-rate") { pace } else { 0 };
    // The ring comes behind the request, which the receiver then sees.
    if mail::post(&Way { request, done, token }, what, m.now(), pace) {
        signal::ring(m, to, config.first_core[other]);
        return OK;
    }
    BUSY
}

/// Tells if a sandbox that is about to launch shall not; that grants a start and a restart.
pub fn stop_requested<M: Monitor>(m: &M) -> bool {
    loop {
        match requested(m, true) {
            0 => return false,
            CONTROL_STOP => return true,
            _ => {}
        }
    }
}

/// Tells if a waiting sandbox shall start again.
pub fn start_requested<M: Monitor>(m: &M) -> bool {
    requested(m, false) != 0
}

/// Sends an interrupt to the receiver of a channel if it asks for one by its armed word ([`bell::Bell::armed`]). It
/// gets at most one each time that it asks, however many cores ring. True if there is a doorbell of this number.
pub fn ring_bell<M: Monitor>(m: &M, number: u32) -> bool {
    if !M::has(need::CHANNELS) {
        return false;
    }
    let rung = m.mailbox(m.config().sandbox).rung.get(number as usize);
    let (Some(bell), Some(rung)) = (m.bells().get(number as usize), rung) else { return false };
    // The receiver writes its armed word. It can only ask for the interrupts that the manifest gives it.
    if bell::admit(rung, m.word(bell.armed)) {
        let aimed = || m.word(bell.aim).load(Ordering::Acquire);
        // A Linux chooses core and interrupt by its own table, so its monitor leaves the message in a word. That word
        // is in another monitor's page and thus a claim.
        let message = if bell.aim == 0 { bell.message } else { aimed() };
        if M::is_aim(&bell.cores, message) {
            m.send(message);
        }
    }
    true
}

/// Says where the interrupts of a channel go that wakes the own guest ([`bell::aim`]).
pub fn aim<M: Monitor>(m: &M, number: usize, message: u64) {
    let Some(word) = m.mailbox(m.config().sandbox).aims.get(number) else { return };
    if bell::aim(word, message) {
        m.send(message);
    }
}

/// Says in the guest's channels that it has ended, and wakes their receivers.
pub fn bury<M: Monitor>(m: &M) {
    if !M::has(need::CHANNELS) {
        return;
    }
    // First the last words, then the rings: a woken receiver finds them.
    m.ends().iter().for_each(|end| bury_end(m, end));
    (0..m.config().bells.len).for_each(|number| {
        ring_bell(m, number);
    });
}

/// Says that an end of a channel has left.
#[inline(never)]
pub fn bury_end<M: Monitor>(m: &M, end: &End) {
    bell::bury(m.word(end.hello), m.word(end.armed));
}
