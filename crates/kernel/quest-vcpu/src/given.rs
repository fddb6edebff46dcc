//! The manifest's grants to a program, as its page has them.

use crate::{Param, SCHED_PIBS, SCHED_SPORADIC};
use bulkhead_kernel_abi::name::Capability;
use bulkhead_kernel_abi::{Address, Grant, Kind, Load, MAX_NAMES, Name, Page, Policy};

/// Most threads of a program: each has a reply object under its name.
pub const THREADS: usize = MAX_NAMES;

/// The part of a program's page that is needed here.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// Load that the manifest has admitted on the core.
    pub load: Load,
    /// Empty slots: the first one, and one past the last. New contexts are put there from the end downwards.
    pub free: [Address; 2],
    /// The program's threads, by their numbers; 0: it does not manage that one.
    pub threads: [Address; THREADS],
}

impl Given {
    /// Reads a page.
    #[must_use]
    pub fn of(page: &Page) -> Self {
        let mut threads = [0; THREADS];
        // Its own threads' reply objects come first, in the order of their numbers.
        let own = page.names().iter().filter(|entry| address(entry, Kind::Reply).is_some());
        for (thread, reply) in threads.iter_mut().zip(own) {
            let mut named = page.names().iter().filter(|entry| entry.name == reply.name);
            *thread = named.find_map(|entry| address(entry, Kind::Thread)).unwrap_or(0);
        }
        Self { load: page.load, free: page.free, threads }
    }

    /// Lists the manifest's VCPUs of a page, with the number of the thread that each has. They are contexts that the
    /// program manages, with a policy that the article knows.
    pub fn vcpus(page: &Page) -> impl Iterator<Item = (Address, Param, Option<usize>)> + '_ {
        page.names().iter().filter_map(|entry| {
            let Grant::Context(it) = entry.grant()? else { return None };
            let t = i32::try_from(it.period).ok()?;
            let budget = i32::try_from(it.budget).ok()?;
            let (policy, c) = match it.policy {
                Policy::Sporadic => (SCHED_SPORADIC, budget),
                // The cap is U·T: the result has U again, but for the rounding of T.
                Policy::Pibs => {
                    (SCHED_PIBS, (i64::from(budget) * i64::from(t) / 1_000_000).max(1) as i32)
                }
                Policy::Strict | Policy::Full => return None,
            };
            let param = Param { vcpuid: 0, policy, mask: 1, c, t };
            Some((it.address, param, usize::from(it.thread).checked_sub(1)))
        })
    }
}

/// Returns the address of a capability of a kind.
fn address(entry: &Name, kind: Kind) -> Option<Address> {
    match entry.grant()? {
        Grant::Capability(Capability { kind: found, address, .. }) if found == kind => {
            Some(address)
        }
        _ => None,
    }
}
