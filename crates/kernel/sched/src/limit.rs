//! A call that may take so long and no longer: its part of the budget is set apart.
//!
//! A call of a server with several callers must not stop in the middle for want of budget. All of them would wait for
//! this caller's refill. Nor may it take longer than the waiting callers expect, whatever the server does. So a call
//! with a limit L
//!
//! * begins only if the head of the list has L left. If not, the head waits for the refills after it, as in a list that
//!   is full: later, never earlier. (To ask before the lock is SIRAP's way: Behnam et al., *SIRAP*, EMSOFT 2007; BROE:
//!   Fisher, Bertogna, Baruah, RTSS 2007);
//! * has L of the head, and the rest of it is held back until the answer. A context that has used up L has used up
//!   the head, at which the timer fires, and is [marked](Context::has_overrun).
//!
//! A thread that makes such a call too early waits, and makes it again when the head can be used. By then the head has
//! paid for the beginning of its use and for the way back to the call. So it waits for more than L. A smaller budget is
//! refused: the call would wait for ever.
//!
//! Time that is held back returns to the end of the current head, at no earlier time. So no tick of it is used before
//! its release ([`crate::server`]).
//!
//! A full context's turn is set aside in this way, too. A PIBS context's budget depends on its requester, and no
//! limit fits into all of them: it has none.

use crate::account::{FULL, PIBS};
use crate::{Account, Context, Contexts, Id, Refill, Scheduler, Time};

/// A call with a limit goes on.
const LIMITED: u8 = 1;
/// It has used up its limit.
const OVERRUN: u8 = 2;

/// Answer to the question if a call begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At once; the value is for [`Scheduler::end_call`], if the call has a limit.
    Now(Option<Time>),
    /// The context has to wait until it has budget for it, and does: then it is to be asked again.
    Later,
    /// Its budget is too short for it, and always will be: it [needs](call_needs) so much.
    Never(Time),
}

/// Computes the budget that a server needs, in ticks, so that a call with a limit ever begins on it. It is the limit,
/// the cost of a use that begins, and as much again for the way from there to the call. The kernel asks this of an
/// account, and admission of a manifest.
#[must_use]
pub const fn call_needs(limit: Time, cost: Time) -> Time {
    limit.saturating_add(cost).saturating_add(cost)
}

impl Account {
    /// Sets that much of the head apart. Returns the part that is held back, or `None` if the head has not so much.
    fn limit(&mut self, limit: Time) -> Option<Time> {
        let used = self.used.max(if self.is_server() { self.cost } else { 0 });
        let held = match self.policy {
            FULL => core::mem::take(&mut self.used),
            _ => self.head.amount.checked_sub(used.checked_add(limit)?)?,
        };
        self.head.amount = match self.policy {
            FULL => limit.max(1),
            _ => self.head.amount - held,
        };
        self.active = LIMITED;
        Some(held)
    }

    /// The call has ended.
    fn unlimit(&mut self, held: Time) {
        match self.policy {
            FULL => {
                self.head.amount = self.budget;
                self.used = self.used.saturating_add(held);
            }
            PIBS => return,
            _ => self.head.amount = self.head.amount.saturating_add(held),
        }
        self.active = 0;
    }

    /// Makes the head at least that long, or as long as the whole list, by waiting for later refills.
    fn wait_for(&mut self, refills: &mut [Refill], least: Time, now: Time) {
        // Otherwise the used part is a debt, which stays.
        if self.head.time <= now {
            self.split(refills);
        }
        while self.head.amount < least && self.following(refills).is_some() {
            self.merge_later(refills);
        }
    }

    /// A full context's slice has ended.
    #[inline]
    pub(crate) fn end_slice(&mut self) {
        self.used = 0;
        self.overrun();
    }

    /// The head is used up.
    #[inline]
    pub(crate) fn overrun(&mut self) {
        if self.active == LIMITED {
            self.active = OVERRUN;
        }
    }

    /// Tells if a call with a limit goes on, so that the head takes nothing in.
    #[inline(always)]
    pub(crate) const fn is_limited(&self) -> bool {
        self.active != 0
    }
}

impl Context {
    /// Tells if a call on it has used up its limit.
    #[inline(always)]
    pub const fn has_overrun(&self) -> bool {
        self.account.active == OVERRUN
    }

    /// Forgets that a call has used up its limit.
    pub fn forget_overrun(&mut self) {
        self.account.active = 0;
    }
}

impl Scheduler {
    /// A call that may take `limit` ticks is to begin on a context, which runs, or wants to from now on. The time that
    /// [`Scheduler::schedule`] has said is not right afterwards.
    #[inline(never)]
    pub fn begin_call(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        limit: Time,
        now: Time,
    ) -> Begin {
        let account = &contexts.context(id).account;
        let least = call_needs(limit, account.cost);
        let unlimited = account.policy == PIBS || account.is_limited();
        // A refused context is left as it is.
        if !unlimited && account.policy != FULL && least > account.budget {
            return Begin::Never(least);
        }
        self.charge(contexts, now);
        if unlimited {
            return Begin::Now(None);
        }
        let (context, refills) = contexts.refills(id);
        if context.account.policy != FULL {
            if !context.is_wanted() {
                context.account.begin(refills, now);
            }
            let account = &mut context.account;
            if account.eligible() > now || account.is_over() || account.rest() < limit {
                self.put_off(contexts, id, least, now);
                return Begin::Later;
            }
        }
        match contexts.context(id).account.limit(limit) {
            Some(held) => Begin::Now(Some(held)),
            None => {
                self.put_off(contexts, id, least, now);
                Begin::Later
            }
        }
    }

    /// A call with a limit has ended.
    #[inline(never)]
    pub fn end_call(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, held: Time) {
        contexts.context(id).account.unlimit(held);
    }

    fn put_off(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, least: Time, now: Time) {
        let wanted = contexts.context(id).is_wanted();
        if wanted {
            self.withdraw(contexts, id, now);
        }
        let (context, refills) = contexts.refills(id);
        context.account.wait_for(refills, least, now);
        if wanted {
            self.replace(contexts, id, now);
        }
    }
}
