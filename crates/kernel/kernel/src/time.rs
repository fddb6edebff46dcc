//! Time given to contexts, by the holder of a core's [`bulkhead_kernel_abi::Kind::Control`].

use crate::core::{Store, id};
use crate::{Context, Kernel, Machine, Ref, State};
use bulkhead_kernel_abi::{Code, Policy, Status};
use bulkhead_sched::{Account, PLACES, Time};

/// Shortest period, ns: a shorter one would be all overhead.
pub const MIN_PERIOD: Time = 10_000;
/// Longest period, ns: an hour.
pub const MAX_PERIOD: Time = 3_600_000_000_000;

/// Returns the account that a policy has.
const fn of_account(policy: Policy) -> bulkhead_sched::Policy {
    match policy {
        Policy::Sporadic => bulkhead_sched::Policy::Sporadic,
        Policy::Strict => bulkhead_sched::Policy::Strict,
        Policy::Pibs => bulkhead_sched::Policy::Pibs,
        Policy::Full => bulkhead_sched::Policy::Full,
    }
}

impl<M: Machine> Kernel<'_, M> {
    /// Gives a context its time ([`bulkhead_kernel_abi::label::SET_CONTEXT`]): `budget`, ns, and `period`, ns; of a
    /// PIBS context the first is its utilization in millionths.
    ///
    /// # Errors
    /// [`Code::OutOfRange`] and [`Code::TooManyContexts`]: nothing changed.
    #[inline(never)]
    pub fn give_time(
        &mut self,
        at: Ref<Context>,
        policy: Policy,
        background: bool,
        [budget, period]: [u64; 2],
        badge: u64,
    ) -> Result<(), Status> {
        if !(MIN_PERIOD..=MAX_PERIOD).contains(&period) {
            return Err(Status::new(Code::OutOfRange, 3, MAX_PERIOD));
        }
        let wrong = Status::new(Code::OutOfRange, 2, period);
        let Some(id) = id(at) else { return Ok(()) };
        let Context { is_set, time, .. } = *self.machine.get(at);
        self.end_limits(at);
        let kept = is_set != 0 && time.is_in_background() == background;
        if kept && time.account().is_server() && time.policy() == of_account(policy) {
            let now = self.now();
            let store = &mut Store(&mut *self.machine);
            let set = self.core.scheduler.set_budget(store, id, (budget, period), now);
            let Ok(decide) = set else { return Err(wrong) };
            self.core.undecided |= u32::from(decide);
        } else {
            let cost = Time::from(self.core.cost);
            let account = Account::of(of_account(policy), budget, period, cost);
            let Ok(account) = &account else { return Err(wrong) };
            if is_set == 0 && self.core.scheduler.reserve().is_err() {
                return Err(Status::new(Code::TooManyContexts, 1, PLACES as u64));
            }
            self.reset(at, account, background);
        }
        self.machine.get_mut(at).badge = badge;
        Ok(())
    }

    /// Ends limits of calls on a context: it gets another budget.
    fn end_limits(&mut self, at: Ref<Context>) {
        let mut next = self.machine.get(at).reply;
        while let Some(reply) = next.some() {
            self.end_limit(reply, at);
            next = self.machine.get(reply).below;
        }
    }

    /// Gives a context another account. Its thread waits until the time that it waited for before.
    fn reset(&mut self, at: Ref<Context>, account: &Account, background: bool) {
        let now = self.now();
        let time = self.machine.get(at).time;
        let alarm = self.core.scheduler.alarm_of(&time, now);
        self.rest(at, Time::MAX);
        let context = self.machine.get_mut(at);
        context.time.reset(account, background);
        context.is_set = 1;
        if let Some(until) = alarm {
            self.rest(at, until);
        }
        self.renewed(at);
    }

    /// Settles a changed context: its thread runs on it at the thread's own priority.
    #[inline(never)]
    pub(crate) fn renewed(&mut self, at: Ref<Context>) {
        self.core.undecided = 1;
        let thread = self.machine.get(at).thread;
        let runs = |t: &Ref<crate::Thread>| self.machine.get(*t).state == State::Running as u8;
        if let Some(thread) = thread.some().filter(runs) {
            self.ready(thread);
        }
    }
}
