//! Counters, and records of denied accesses.

use crate::contract::Monitor;
use crate::outcome::{End, Outcome};
use bulkhead_monitor_abi::report::{CAUSES, CONDITIONS, Cause, Condition, DENIALS, Denial, FIRST};
use bulkhead_monitor_abi::{MAX_CORES, need};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Adds 1 to a word that this core alone writes; the value before.
#[inline(always)]
pub(crate) fn add(word: &AtomicU64) -> u64 {
    let before = word.load(Relaxed);
    // No locked instruction: one core writes, and a reader may see either value.
    word.store(before.wrapping_add(1), Relaxed);
    before
}

/// Counts an exit by the number of its cause.
#[inline(always)]
pub fn count<M: Monitor>(m: &M, cause: usize) {
    // The cores' own parts have no room for these.
    let [xapic, mmio, ..] = &m.report().xapic[m.index() as usize % MAX_CORES];
    if M::has(need::RUNNING) && cause == Cause::Xapic as usize {
        add(xapic);
        return;
    }
    if M::has(need::MMIO) && cause == Cause::Mmio as usize {
        add(mmio);
        return;
    }
    // Each outcome has a cause's number. A remainder would cost each exit a division, and a branch the hot ones their
    // own way.
    add(&m.counters().exits[cause.min(CAUSES - 1)]);
}

/// Records a denied access. The outcome is the one that the manifest demands; else `harmless`.
#[inline(never)]
pub fn deny<M: Monitor>(
    m: &M,
    condition: Condition,
    address: u64,
    info: u64,
    harmless: Outcome,
) -> Outcome {
    // Before the action: an end must not lose its reason.
    record(m, condition, address, info);
    match m.config().ends[condition.kind() as usize] {
        0 => harmless,
        answer => Outcome::answer(Cause::Denied, End::found(answer, condition)),
    }
}

/// Denies ([`deny`]) an access to a mediated device's register; `written` is the value, if it was a write.
pub fn deny_register<M: Monitor>(
    m: &M,
    register: u64,
    written: Option<u64>,
    harmless: Outcome,
) -> Outcome {
    let condition = if written.is_some() { Condition::DeviceWrite } else { Condition::DeviceRead };
    deny(m, condition, register, written.unwrap_or(0), harmless)
}

/// Records a denied access, or a failure: as the newest, among the first of its life, and as the first of its
/// condition. No number of later ones overwrites the last of these
/// (docs/decisions/0032-evidence.md).
pub fn record<M: Monitor>(m: &M, condition: Condition, address: u64, info: u64) {
    let life = m.local().incarnation.get();
    let counters = m.counters();
    let before = counters.denials.load(Relaxed);
    // The first denial of a new life: the list of its firsts begins anew.
    if counters.life.load(Relaxed) != life {
        counters.life.store(life, Relaxed);
        counters.life_denials.store(before, Relaxed);
    }
    let of_life = before.wrapping_sub(counters.life_denials.load(Relaxed));
    let denial = Denial {
        seq: before + 1,
        ticks: m.now(),
        instruction: m.instruction(),
        address,
        info,
        kind: condition.kind() as u16,
        condition: condition as u16,
        incarnation: life,
    };
    let tally = &counters.tallies[condition as usize % CONDITIONS];
    if add(&tally.count) == 0 {
        tally.first.keep(&denial);
    }
    if of_life < FIRST as u64 {
        counters.first[of_life as usize % FIRST].keep(&denial);
    }
    counters.ring[before as usize % DENIALS].keep(&denial);
    // The number at last: a reader that sees it finds the record.
    counters.denials.store(before + 1, Relaxed);
}
