//! Rights over other sandboxes' lives, and their cost for these sandboxes: the rate at which other monitors may ring.

use crate::{Link, Plan, Role, Sandbox};
use bulkhead_layout::PAGE as PAGE_SIZE;
use bulkhead_layout::hypercall::{CONTROL_RESTART, CONTROL_START, CONTROL_STOP, REQUESTS, index};

/// The manifest's keys of these rights, by [`index`] of their request.
pub const RIGHTS: [&str; REQUESTS] = ["stop", "start", "restart"];
const _: () =
    assert!(index(CONTROL_STOP) == 0 && index(CONTROL_START) == 1 && index(CONTROL_RESTART) == 2);

/// A right over another sandbox's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// Sandbox that the right is over, by index.
    pub sandbox: usize,
    /// Nanoseconds between two requests, at least; whole microseconds.
    pub every: u64,
}

impl Right {
    /// As often as a manifest lets it if it does not say, ns.
    pub const EVERY: u64 = 10_000_000;

    /// Most requests in so many nanoseconds, wherever they begin.
    #[must_use]
    pub const fn most(self, window: u64) -> u64 {
        window / if self.every == 0 { 1 } else { self.every } + 1
    }
}

impl Sandbox {
    /// Its right to make a request of another one.
    #[must_use]
    pub fn right(&self, request: u64, over: usize) -> Option<Right> {
        self.control.get(index(request))?.iter().find(|right| right.sandbox == over).copied()
    }

    /// All that it may ask of another one.
    pub fn rights(&self, over: usize) -> impl Iterator<Item = (&'static str, Right)> {
        let of = move |(name, rights): (&&'static str, &Vec<Right>)| {
            rights.iter().find(|right| right.sandbox == over).map(|right| (*name, *right))
        };
        RIGHTS.iter().zip(&self.control).filter_map(of)
    }
}

/// Computes [`Plan::doorbell`] for a system with that many sandboxes and these links. Admission counts an instruction
/// as a nanosecond, as it does for the kernel's own time.
#[must_use]
pub fn doorbell(sandbox: usize, sandboxes: usize, links: &[Link]) -> u64 {
    /// Cost of any exit; the next ones come for each sandbox of the system, each link, and each page of a link.
    const EXIT: u64 = 600;
    const SANDBOX: u64 = 100;
    const LINK: u64 = 100;
    const PAGE: u64 = 20;
    let own = || links.iter().filter(|link| link.concerns(sandbox));
    let pages = own().map(|link| link.len / PAGE_SIZE).max().unwrap_or(0);
    EXIT + SANDBOX * sandboxes as u64 + LINK * own().count() as u64 + PAGE * pages
}

/// How often one sandbox's monitor may ring for another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rings {
    /// Sandbox that rings, by index.
    pub sender: usize,
    /// In a window of time, by rights over the other's life.
    pub timed: u64,
    /// Besides, once for each offer that the other has made or accepted of a channel made at run time.
    pub consented: bool,
    /// Besides, once for each time that a role comes to the other.
    pub roles: bool,
}

impl Plan {
    /// Lists the sandboxes that may ring for a sandbox, and how often in that many nanoseconds. A ring is an exit of
    /// its first core at most. A ring that closes a channel, or ends its life, is an exit of each of its cores.
    pub fn rings(&self, sandbox: usize, window: u64) -> impl Iterator<Item = Rings> {
        let of = move |(sender, other): (usize, &Sandbox)| {
            let timed = other.rights(sandbox).map(|(_, right)| right.most(window)).sum();
            // An owner meets its partner only, and two partners of one link never meet.
            let meet = |link: &Link| {
                let owned = link.owner == sandbox || link.owner == sender;
                owned && link.concerns(sandbox) && link.concerns(sender)
            };
            let consented = self.links.iter().any(meet);
            let both = |role: &Role| [sandbox, sender].iter().all(|one| role.holders.contains(one));
            let roles = self.roles.iter().any(both);
            let any = sender != sandbox && (timed > 0 || consented || roles);
            any.then_some(Rings { sender, timed, consented, roles })
        };
        self.sandboxes.iter().enumerate().filter_map(of)
    }

    /// Most instructions that a doorbell takes a core of a sandbox which ends no life: its monitor's, from the guest's
    /// last one to its next. The dearest takes a link away, so this counts the pages of its largest. `make bench`
    /// measures it (`monitor.doorbell`); a processor's own time for exit, entry and emptied TLB comes on top.
    #[must_use]
    pub fn doorbell(&self, sandbox: usize) -> u64 {
        doorbell(sandbox, self.sandboxes.len(), &self.links)
    }

    /// Counts the interruptions of a sandbox *while it lives*, by others' rights over its life. A stop and a restart
    /// end that life. A start that comes second does not: each sandbox that may start it can send one.
    #[must_use]
    pub fn rings_of_a_life(&self, sandbox: usize) -> usize {
        let starters = |other: &&Sandbox| other.right(CONTROL_START, sandbox).is_some();
        self.sandboxes.iter().filter(starters).count().saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_one_more_than_fit() {
        let right = Right { sandbox: 0, every: 100 };
        assert_eq!([0, 99, 100, 1_000].map(|window| right.most(window)), [1, 1, 2, 11]);
        // The checker refuses it; nothing here divides by it.
        assert_eq!(Right { every: 0, ..right }.most(5), 6);
    }
}
