//! Roles, as this sandbox has them ([`bulkhead_monitor_abi::role`]). The sandbox's only core is here.

use crate::contract::Monitor;
use crate::outcome::Outcome;
use crate::{ladder, mail, signal};
use bulkhead_monitor_abi::hypercall::{BUSY, NO_CALL};
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::record::RecordMemory;
use bulkhead_monitor_abi::report::{Cause, State};
use bulkhead_monitor_abi::role::{self, COLD, HELD, NOBODY, ROLES, Role, STAYS, Side};
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

/// This sandbox's part in a role.
struct Part<'a, M>(&'a M, &'a Role);

impl<M: Monitor> Side for Part<'_, M> {
    type Word = AtomicU64;

    fn me(&self) -> u32 {
        self.0.config().sandbox
    }

    #[inline(always)]
    fn word(&self, of: u32) -> &AtomicU64 {
        &self.0.mailbox(of).roles[self.1.number as usize % ROLES]
    }

    #[inline(never)]
    fn map(&self, epoch: u64) {
        let pieces = self.0.role_pieces(self.1.pieces);
        for piece in pieces {
            let mut at = piece.table;
            for &entry in self.0.entries(piece.entries) {
                // Entries are baked: the monitor decides whether, never where to. The page has no others.
                self.0.memory().store(at, if epoch == 0 { 0 } else { entry });
                at = at.wrapping_add(8);
            }
        }
        if !pieces.is_empty() {
            self.0.flush();
        }
        // While no guest runs, nobody would stop them: they wait for its launch.
        let state = self.0.report().state.load(Ordering::Relaxed);
        if epoch != 0 && state != State::Stopped as u32 {
            self.0.hand_over(self.1.number);
        }
        // The guest sees its right behind its memory.
        let shown = &self.0.roles_shown()[self.1.number as usize % ROLES];
        shown.store(epoch, Ordering::Release);
    }

    #[inline(never)]
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
    /// The other holders, some with [`COLD`].
    #[inline(always)]
    fn others(&self) -> impl Iterator<Item = (u32, bool)> {
        let all = self.1.others.iter().take_while(|other| **other != NOBODY);
        all.map(|other| (u32::from(other & !COLD), other & COLD != 0))
    }

    /// Finds the holder to give the role to: the named one, or the one that the role's policy chooses.
    #[inline(never)]
    fn next(&self, named: u32) -> u32 {
        let (mut best, mut least) = (STAYS, u32::MAX);
        for (sandbox, cold) in self.others() {
            let mailbox = self.0.mailbox(sandbox);
            let state = State::of(u32::from(mailbox.status.load(Ordering::Acquire) as u8));
            if named != STAYS && named != sandbox || !role::healthy(state, cold) {
                continue;
            }
            let mut load = 0;
            for word in &mailbox.roles {
                load += (word.load(Ordering::Acquire) & self.1.least_loaded) as u32 & HELD as u32;
            }
            // The first one of equals.
            if load < least {
                (best, least) = (sandbox, load);
            }
        }
        best
    }

    /// Where the role goes when the guest has ended: a sandbox, or [`STAYS`].
    #[inline(always)]
    fn going(&self) -> &Cell<u32> {
        &self.0.local().going[self.1.number as usize % ROLES]
    }

    /// Its bit in sets.
    #[inline(always)]
    fn bit(&self) -> u32 {
        1 << (self.1.number % 32)
    }
}

#[inline(always)]
fn parts<M: Monitor>(m: &M) -> impl Iterator<Item = Part<'_, M>> {
    let roles = if M::has(need::ROLE) { m.roles() } else { &[] };
    roles.iter().map(move |role| Part(m, role))
}

/// Tells if this sandbox has a role, by its number. Without roles it has all there is.
#[inline(always)]
pub fn has<M: Monitor>(m: &M, number: u32) -> bool {
    !M::has(need::ROLE) || held(m, number)
}

#[inline(never)]
fn held<M: Monitor>(m: &M, number: u32) -> bool {
    let own = m.mailbox(m.config().sandbox);
    role::phase(own.roles[number as usize % ROLES].load(Ordering::Acquire)) == HELD
}

/// Begins with the machine, or as a spare monitor.
#[inline(always)]
pub fn begin<M: Monitor>(m: &M) {
    if M::has(need::ROLE) {
        enter(m, true);
    }
}

/// A guest is about to begin: it has what this sandbox has.
#[inline(always)]
pub fn settle<M: Monitor>(m: &M) {
    if M::has(need::ROLE) {
        look(m);
        enter(m, false);
    }
}

/// Begins a monitor, or a life.
#[inline(never)]
fn enter<M: Monitor>(m: &M, monitor: bool) {
    for part in parts(m) {
        part.going().set(STAYS);
        if monitor {
            role::begin(&part, part.1.begins != 0);
        } else {
            role::settle(&part);
        }
    }
}

/// Takes the roles that others have given to this sandbox.
#[inline(never)]
pub fn look<M: Monitor>(m: &M) {
    for part in parts(m) {
        for (from, _) in part.others() {
            if role::take(&part, from) {
                ladder::took(m, part.bit(), from);
            }
        }
    }
}

/// Takes them while no guest runs: true if one came to a sandbox that begins for it.
pub fn calls<M: Monitor>(m: &M, in_state: State) -> bool {
    if !M::has(need::ROLE) || in_state != State::Stopped || !waits(m) {
        return false;
    }
    let took = || m.report().took.load(Ordering::Relaxed);
    let before = took();
    look(m);
    took() != before
}

/// Tells if a sandbox begins for a role.
fn waits<M: Monitor>(m: &M) -> bool {
    m.roles().first().is_some_and(|role| role.waits != 0)
}

/// Returns the state for a sandbox after its roles of a set have gone to others.
pub fn rest<M: Monitor>(m: &M, going: u32) -> State {
    let stays = |part: Part<'_, M>| role::holds(&part) != 0 && going & part.bit() == 0;
    if waits(m) && !parts(m).any(stays) { State::Stopped } else { State::Launching }
}

/// The state in which a spare monitor goes on, where no guest lived: it begins for a role that had just come.
pub fn resume<M: Monitor>(m: &M, at: State) -> State {
    let held = |part: Part<'_, M>| role::holds(&part) != 0;
    let begins = M::has(need::ROLE) && at == State::Stopped && waits(m) && parts(m).any(held);
    if begins { State::Launching } else { at }
}

/// Chooses who takes over each role of this sandbox's: `named`, or the one that the role chooses with [`STAYS`].
/// Returns those that will go, as a set, and where the last one of them goes.
#[inline(never)]
pub fn choose<M: Monitor>(m: &M, named: u32) -> (u32, u32) {
    let mut chosen = (0, 0);
    for part in parts(m) {
        let to = if role::holds(&part) == 0 { STAYS } else { part.next(named) };
        part.going().set(to);
        if to != STAYS {
            chosen = (chosen.0 | part.bit(), to);
        }
    }
    chosen
}

/// The guest has ended, and its devices are at rest: says so in the channels of roles, and gives roles to those that
/// were chosen.
#[inline(always)]
pub fn end<M: Monitor>(m: &M) {
    if M::has(need::ROLE) {
        ended(m);
    }
}

#[inline(never)]
fn ended<M: Monitor>(m: &M) {
    for part in parts(m) {
        let (held, to) = (role::holds(&part) != 0, part.going().get());
        if held {
            m.role_ends(part.1.ends).iter().for_each(|end| mail::bury_end(m, end));
        }
        if held && to != STAYS {
            role::give(&part, to);
        }
    }
}

/// The guest gives its roles away, by an instruction of `length` bytes.
#[inline(never)]
pub fn call<M: Monitor>(m: &M, length: u8) -> Outcome {
    let none = m.config().roles.len == 0;
    let (going, _) = choose(m, STAYS);
    if going == 0 {
        m.answer(if none { NO_CALL } else { BUSY });
        return Outcome::skip(Cause::Hypercall, length);
    }
    Outcome::end(Cause::Hypercall, rest(m, going))
}
