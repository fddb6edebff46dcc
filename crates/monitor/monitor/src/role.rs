//! Roles, as this sandbox has them ([`bulkhead_monitor_abi::role`]). The sandbox's only core is here.

use crate::contract::Monitor;
use crate::outcome::Outcome;
use crate::{ladder, mail, signal};
use bulkhead_monitor_abi::hypercall::{BUSY, NO_CALL};
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::record::RecordMemory;
use bulkhead_monitor_abi::report::{Cause, State};
use bulkhead_monitor_abi::role::{self, COLD, HELD, ROLES, Role, Side};
use core::sync::atomic::{AtomicU64, Ordering};

/// This sandbox's part in a role.
struct Part<'a, M>(&'a M, &'a Role);

impl<M: Monitor> Side for Part<'_, M> {
    type Word = AtomicU64;

    fn me(&self) -> u32 {
        self.0.config().sandbox
    }

    #[inline(never)]
    fn word(&self, of: u32) -> &AtomicU64 {
        &self.0.mailbox(of).roles[self.1.number as usize % ROLES]
    }

    #[inline(never)]
    fn map(&self, epoch: u64) {
        let entries = self.0.entries(self.1.entries);
        for (n, &entry) in entries.iter().enumerate() {
            // Entries are baked: the monitor decides whether, never where to. The page has no others.
            let entry = if epoch == 0 { 0 } else { entry };
            self.0.memory().store(self.1.table + 8 * n as u64, entry);
        }
        self.0.flush();
        // The guest sees its right behind its memory.
        let shown = &self.0.roles_shown()[self.1.number as usize % ROLES];
        shown.store(epoch, Ordering::Release);
    }

    fn ring(&self, sandbox: u32) {
        if let Some(&id) = self.0.config().first_core.get(sandbox as usize) {
            signal::ring(self.0, sandbox, id);
        }
    }

    fn enforced(&self, rule: &str) -> bool {
        M::enforced(rule)
    }
}

impl<M: Monitor> Part<'_, M> {
    /// The other holders: each one's index, and whether it begins when the role comes to it.
    fn others(&self) -> impl Iterator<Item = (u32, bool)> {
        let others = self.1.others.iter().take(self.1.count as usize);
        others.map(|other| (u32::from(other & !COLD), other & COLD != 0))
    }

    fn is_healthy(&self, sandbox: u32, cold: bool) -> bool {
        let status = self.0.mailbox(sandbox).status.load(Ordering::Acquire);
        role::healthy(State::of(u32::from(status as u8)), cold)
    }

    /// Finds the holder to give the role to: the named one, or the one that the role's policy chooses.
    fn next(&self, named: Option<u32>) -> Option<u32> {
        let wanted = |(other, _): &(u32, bool)| named.is_none_or(|named| named == *other);
        let healthy = |(other, cold): &(u32, bool)| self.is_healthy(*other, *cold);
        let all = self.others().filter(wanted).filter(healthy).map(|(other, _)| other);
        let load = |other: &u32| {
            let words = self.0.mailbox(*other).roles.iter();
            let has = |word: &&AtomicU64| role::phase(word.load(Ordering::Acquire)) == HELD;
            if self.1.least_loaded != 0 { words.filter(has).count() } else { 0 }
        };
        // The first one of equals.
        all.min_by_key(load)
    }
}

fn parts<M: Monitor>(m: &M) -> impl Iterator<Item = Part<'_, M>> {
    let roles = if M::has(need::ROLE) { m.roles() } else { &[] };
    roles.iter().map(move |role| Part(m, role))
}

/// Begins with the machine.
pub fn begin<M: Monitor>(m: &M) {
    parts(m).for_each(|part| role::begin(&part, part.1.begins != 0));
}

/// Takes the roles that others have given to this sandbox. True if one came.
pub fn look<M: Monitor>(m: &M) -> bool {
    let take = |part: &Part<'_, M>| {
        let from = role::take(part, part.others().map(|(other, _)| other))?;
        Some((1 << (part.1.number % 32), from))
    };
    let mut came = false;
    for part in parts(m) {
        if let Some((roles, from)) = take(&part) {
            ladder::took(m, roles, from);
            came = true;
        }
    }
    came
}

/// Takes them while no guest runs: true if one came to a sandbox that begins for it.
pub fn calls<M: Monitor>(m: &M, in_state: State) -> bool {
    let cold = State::of(m.config().begin) == State::Stopped;
    M::has(need::ROLE) && cold && in_state == State::Stopped && look(m)
}

/// A guest is about to begin: it has what this sandbox has.
pub fn settle<M: Monitor>(m: &M) {
    look(m);
    parts(m).for_each(|part| role::settle(&part));
}

/// Chooses who takes over each role of this sandbox's. Returns those that will go, as a set, and where the first one
/// goes.
pub fn choose<M: Monitor>(m: &M, named: Option<u32>) -> (u32, u32) {
    let mut chosen = (0, 0);
    for (part, going) in parts(m).zip(&m.local().going) {
        let held = role::holds(&part) != 0;
        let to = part.next(named).filter(|_| held);
        going.set(to.map_or(0, |to| to as u8 + 1));
        if let Some(to) = to {
            let first = if chosen.0 == 0 { to } else { chosen.1 };
            chosen = (chosen.0 | 1 << (part.1.number % 32), first);
        }
    }
    chosen
}

/// The guest has ended, and its devices are at rest: says so in the channels of roles, and gives roles to those that
/// were chosen.
pub fn end<M: Monitor>(m: &M) {
    for (part, going) in parts(m).zip(&m.local().going) {
        if role::holds(&part) == 0 {
            continue;
        }
        m.role_ends(part.1.ends).iter().for_each(|end| mail::bury_end(m, end));
        if let Some(to) = going.replace(0).checked_sub(1) {
            role::give(&part, u32::from(to));
        }
    }
}

/// The guest gives its roles away, by an instruction of `length` bytes.
#[inline(never)]
pub fn call<M: Monitor>(m: &M, length: u8) -> Outcome {
    let none = m.config().roles.len == 0;
    if none || choose(m, None).0 == 0 {
        m.answer(if none { NO_CALL } else { BUSY });
        return Outcome::skip(Cause::Hypercall, length);
    }
    Outcome::end(Cause::Hypercall, State::of(m.config().begin))
}
