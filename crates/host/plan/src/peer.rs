//! Monitors that look whether other sandboxes' monitors go on.

use crate::{Place, Plan, Watch};

/// A look of one sandbox' monitor at another one's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its `[[peer]]`.
    pub place: Place,
    /// The sandbox that is looked at.
    pub sandbox: usize,
    /// Nanoseconds from a heartbeat to the next, at most.
    pub every: u64,
    /// Nanoseconds likewise while a guest is launched; `None`: without a limit.
    pub first: Option<u64>,
    /// Its cores are stopped, and started in its spare monitor.
    pub takes: bool,
    /// Its functions are kept from memory.
    pub quiets: bool,
}

impl Watch {
    /// Nanoseconds after which a monitor that has stopped is found by this watchdog, at most. It may stop right behind
    /// a tick.
    #[must_use]
    pub const fn stopped_within(&self, every: u64) -> u64 {
        (self.patience(every) + 1) * self.period
    }
}

impl Plan {
    /// Tells if a peer takes the cores of a sandbox when its monitor has stopped: it has a spare one.
    #[must_use]
    pub fn is_taken(&self, index: usize) -> bool {
        let mut peers = self.sandboxes.iter().flat_map(|sandbox| &sandbox.peers);
        peers.any(|peer| peer.takes && peer.sandbox == index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sandbox;

    #[test]
    fn one_who_only_looks_takes_nobody() {
        let peer = |sandbox, takes| Peer {
            place: Place::default(),
            sandbox,
            every: 10,
            first: None,
            takes,
            quiets: false,
        };
        let peers = vec![peer(1, false), peer(2, true)];
        let sandboxes =
            vec![Sandbox { peers, ..Sandbox::default() }, Sandbox::default(), Sandbox::default()];
        let plan = Plan { sandboxes, ..Plan::default() };
        assert_eq!([0, 1, 2].map(|n| plan.is_taken(n)), [false, false, true]);
    }
}
