//! Heartbeats, and looks at those of other sandboxes' monitors ([`bulkhead_monitor_abi::peer`]).

use crate::contract::Monitor;
use crate::outcome::End;
use crate::record::record;
use crate::role;
use bulkhead_monitor_abi::MAX_CORES;
use bulkhead_monitor_abi::monitor::Mailbox;
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::peer::{PEERS, Peer};
use bulkhead_monitor_abi::report::{Condition, Kind, State};
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

/// A look at a core's heartbeat.
#[derive(Default)]
#[repr(C)]
pub struct Seen {
    /// Heartbeat at the last look.
    beat: Cell<u64>,
    /// Looks since it moved.
    still: Cell<u32>,
}

/// State of a monitor that looks at others; the sandbox's first core has it.
#[derive(Default)]
#[repr(C)]
pub struct Watching {
    /// By peer and core.
    seen: [[Seen; MAX_CORES]; PEERS],
    /// By peer: its cores are stopped, and are to be started.
    stopped: [Cell<bool>; PEERS],
}

/// Moves this core's heartbeat.
pub fn beat<M: Monitor>(m: &M) {
    // Time goes on, and is not 0.
    set(m, m.now() | 1);
}

/// Says that no guest lives: its next launch takes a time of its own.
pub fn pause<M: Monitor>(m: &M) {
    set(m, 0);
}

fn set<M: Monitor>(m: &M, to: u64) {
    if !M::has(need::WATCHDOG) {
        return;
    }
    if let Some(word) = own(m) {
        word.store(to, Ordering::Release);
    }
}

fn own<M: Monitor>(m: &M) -> Option<&AtomicU64> {
    m.mailbox(m.config().sandbox).beats.get(m.index() as usize)
}

/// Looks at the peers, on the first core.
pub fn look<M: Monitor>(m: &M) {
    let watching = &m.local().watching;
    let state = watching.seen.iter().zip(&watching.stopped);
    for (peer, (seen, stopped)) in m.peers().iter().zip(state) {
        if stopped.replace(false) {
            start(m, peer, seen);
            continue;
        }
        let mailbox = m.mailbox(peer.sandbox);
        let hung = cores(peer, mailbox, seen).find(|(beat, seen)| hangs(peer, *beat, seen));
        if let Some((beat, _)) = hung.filter(|_| M::enforced("peer")) {
            record(m, Condition::MonitorHang, peer.sandbox.into(), beat);
            stop(m, peer);
            stopped.set(peer.cores_by.len != 0);
        }
    }
}

/// Heartbeats of a peer's cores, and what was seen of them.
fn cores<'a>(
    peer: &Peer,
    mailbox: &'a Mailbox,
    seen: &'a [Seen],
) -> impl Iterator<Item = (u64, &'a Seen)> {
    let beats = mailbox.beats.iter().map(|beat| beat.load(Ordering::Acquire));
    beats.zip(seen).take(peer.cores as usize)
}

/// Looks at a core; true once, when its monitor has stopped.
fn hangs(peer: &Peer, beat: u64, seen: &Seen) -> bool {
    // A claim of another monitor. By a wrong one it can only have itself taken, or not.
    if beat != seen.beat.get() {
        seen.beat.set(beat);
        seen.still.set(0);
        return false;
    }
    let still = seen.still.get().saturating_add(1);
    seen.still.set(still);
    still == if beat == 0 { peer.first } else { peer.alive }
}

/// Stops its cores, and keeps its functions from memory.
fn stop<M: Monitor>(m: &M, peer: &Peer) {
    m.messages(peer.cores_by).iter().for_each(|[stop, _]| m.send(*stop));
    keep_off(m, peer);
}

fn keep_off<M: Monitor>(m: &M, peer: &Peer) {
    m.masters(peer.functions).iter().for_each(|function| m.keep_off(function));
}

/// Starts its cores, at the tick after they were stopped: an INIT takes its time.
fn start<M: Monitor>(m: &M, peer: &Peer, seen: &[Seen]) {
    // Again: a core may have let a function reach memory before the INIT came to it. Now none is left.
    keep_off(m, peer);
    m.messages(peer.cores_by).iter().for_each(|[_, start]| m.send(*start));
    // The spare monitor has its time, too.
    seen.iter().for_each(|seen| seen.still.set(0));
}

/// On a core that enters its monitor: returns how the life ends that was begun, if a peer has started the core. The
/// first core ends it.
pub fn taken<M: Monitor>(m: &M) -> Option<End> {
    if !M::has(need::WATCHDOG) {
        return None;
    }
    // They were left for a core that has stopped in its midst. At the first entry of all there are none.
    m.own().signals.store(0, Ordering::SeqCst);
    let own = m.mailbox(m.config().sandbox);
    if !m.is_first() || own.entries.fetch_add(1, Ordering::Relaxed) == 0 {
        return None;
    }
    m.release();
    for core in 0..m.cores() {
        m.shared(0).own.leave(core);
        // It parks anew.
        m.shared(core).parked.store(0, Ordering::SeqCst);
    }
    // The mailbox has it as one word, published whole. The own memory may be anything.
    let status = own.status.load(Ordering::Acquire);
    let lives = (status >> 8) as u32;
    m.shared(0).life.store(lives.wrapping_mul(2).wrapping_add(1), Ordering::SeqCst);
    record(m, Condition::MonitorHang, m.config().sandbox.into(), status);
    Some(match State::of(status as u8 as u32) {
        // No guest lived.
        at @ (State::Stopped | State::Exited) => End::state(role::resume(m, at)),
        _ => End::found(m.config().ends[Kind::Monitor as usize], Condition::MonitorHang),
    })
}
