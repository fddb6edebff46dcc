//! A scheduling context: a policy, a priority, and the links with which a
//! [`crate::Scheduler`] queues it.

use crate::{Invalid, Pibs, Refill, Requester, Server, Time};

/// A context of a core: an index into what the owner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u16);

/// Where the contexts of a core are. An index that the scheduler was never given is never
/// asked for.
pub trait Contexts {
    /// Storage of the contexts' refill lists.
    type Refills: AsRef<[Refill]> + AsMut<[Refill]>;

    /// A context.
    fn context(&mut self, id: Id) -> &mut Context<Self::Refills>;
}

impl<R: AsRef<[Refill]> + AsMut<[Refill]>> Contexts for [Context<R>] {
    type Refills = R;

    fn context(&mut self, id: Id) -> &mut Context<R> {
        &mut self[usize::from(id.0)]
    }
}

/// C = T: no limit but that others of the same priority have their turn after a slice.
#[derive(Clone, Debug)]
pub struct Full {
    slice: Time,
    used: Time,
}

impl Full {
    /// A turn lasts `slice` ticks.
    ///
    /// # Errors
    /// [`Invalid::Budget`]: 0.
    pub fn new(slice: Time) -> Result<Self, Invalid> {
        match slice {
            0 => Err(Invalid::Budget { budget: slice, period: slice }),
            _ => Ok(Self { slice, used: 0 }),
        }
    }
}

/// How a context gets its time.
#[derive(Clone, Debug)]
pub enum Policy<R> {
    /// Sporadic or strict.
    Server(Server<R>),
    /// For interrupt work.
    Pibs(Pibs),
    /// As much as there is.
    Full(Full),
}

/// Where a context stands, for the queues only.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links {
    pub previous: Option<Id>,
    pub next: Option<Id>,
    /// The level at which it is queued as ready.
    pub level: Option<u16>,
    /// Its place in the release queue.
    pub place: Option<u16>,
}

/// A scheduling context.
#[derive(Clone, Debug)]
pub struct Context<R> {
    policy: Policy<R>,
    pub(crate) priority: u8,
    /// Runs below all others when it has no budget.
    pub(crate) background: bool,
    /// A thread wants to run on it.
    pub(crate) wanted: bool,
    /// Used of a turn in the background.
    pub(crate) turn: Time,
    pub(crate) consumed: Time,
    pub(crate) links: Links,
}

impl<R: AsRef<[Refill]> + AsMut<[Refill]>> Context<R> {
    /// A context on which nothing wants to run. The higher `priority`, the earlier.
    pub fn new(policy: Policy<R>, priority: u8) -> Self {
        let links = Links::default();
        Self { policy, priority, background: false, wanted: false, turn: 0, consumed: 0, links }
    }

    /// The same, but when it has no budget it runs below all priorities, where what it uses is not
    /// charged, in turns of its budget.
    pub fn in_background(self) -> Self {
        Self { background: true, ..self }
    }

    /// Its policy.
    pub fn policy(&self) -> &Policy<R> {
        &self.policy
    }

    /// The server, if it is one.
    pub fn server(&self) -> Option<&Server<R>> {
        match &self.policy {
            Policy::Server(server) => Some(server),
            _ => None,
        }
    }

    /// Its priority: of a PIBS context the requester's.
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// Whether a thread wants to run on it.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// How long it ran since this was asked last, background included, up to the scheduler's last
    /// call; ticks.
    pub fn take_consumed(&mut self) -> Time {
        core::mem::take(&mut self.consumed)
    }

    /// As what it asks for interrupt work.
    pub fn requester(&self) -> Requester {
        Requester { priority: self.priority, period: self.period() }
    }

    /// T, ticks; of [`Full`] the slice.
    pub fn period(&self) -> Time {
        match &self.policy {
            Policy::Server(server) => server.period(),
            Policy::Pibs(pibs) => pibs.period(),
            Policy::Full(full) => full.slice,
        }
    }

    /// C, ticks; of [`Full`] the slice.
    pub fn budget(&self) -> Time {
        match &self.policy {
            Policy::Server(server) => server.budget(),
            Policy::Pibs(pibs) => pibs.budget(),
            Policy::Full(full) => full.slice,
        }
    }

    /// When it has budget, or had.
    pub fn eligible(&self) -> Time {
        match &self.policy {
            Policy::Server(server) => server.eligible(),
            Policy::Pibs(pibs) => pibs.eligible(),
            Policy::Full(_) => 0,
        }
    }

    pub(crate) fn left(&self) -> Time {
        match &self.policy {
            Policy::Server(server) => server.left(),
            Policy::Pibs(pibs) => pibs.left(),
            Policy::Full(full) => full.slice.saturating_sub(full.used),
        }
    }

    pub(crate) fn charge(&mut self, ticks: Time) {
        match &mut self.policy {
            Policy::Server(server) => server.charge(ticks),
            Policy::Pibs(pibs) => pibs.charge(ticks),
            Policy::Full(full) => full.used = full.used.saturating_add(ticks),
        }
    }

    /// Whether its turn is over.
    pub(crate) fn settle(&mut self, now: Time) -> bool {
        match &mut self.policy {
            Policy::Server(server) => server.settle(now),
            Policy::Pibs(pibs) => pibs.settle(),
            Policy::Full(full) => {
                let over = full.used >= full.slice;
                full.used = if over { 0 } else { full.used };
                over
            }
        }
    }

    pub(crate) fn wake(&mut self, now: Time) {
        match &mut self.policy {
            Policy::Server(server) => server.wake(now),
            Policy::Pibs(pibs) => pibs.wake(now),
            Policy::Full(_) => (),
        }
    }

    pub(crate) fn block(&mut self, now: Time) {
        match &mut self.policy {
            Policy::Server(server) => server.block(now),
            Policy::Pibs(pibs) => pibs.block(),
            Policy::Full(_) => (),
        }
    }

    pub(crate) fn dispatch(&mut self, now: Time) {
        if let Policy::Server(server) = &mut self.policy {
            server.dispatch(now);
        }
    }

    pub(crate) fn preempt(&mut self, now: Time) {
        if let Policy::Server(server) = &mut self.policy {
            server.preempt(now);
        }
    }

    pub(crate) fn set_budget(
        &mut self,
        budget: Time,
        period: Time,
        now: Time,
    ) -> Result<(), Invalid> {
        let Policy::Server(server) = &mut self.policy else { return Ok(()) };
        server.set(budget, period, now)?;
        // It may have ceased to want to run for a moment.
        if self.wanted {
            server.wake(now);
        }
        Ok(())
    }

    pub(crate) fn pibs(&mut self) -> Option<&mut Pibs> {
        match &mut self.policy {
            Policy::Pibs(pibs) => Some(pibs),
            _ => None,
        }
    }
}
