//! Time given to contexts: by whoever has a core's [`bulkhead_kernel_abi::Kind::Control`].

use crate::core::{Store, id};
use crate::{Context, Kernel, Machine, Ref, State};
use bulkhead_kernel_abi::{Code, Policy, Status};
use bulkhead_sched::{Account, Invalid, PLACES, Time, Utilization};

/// Shortest period, ns: what is shorter would be all overhead.
pub const MIN_PERIOD: Time = 10_000;
/// Longest period, ns: an hour.
pub const MAX_PERIOD: Time = 3_600_000_000_000;

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
        let account = self.account(policy, budget, period);
        let Ok(account) = &account else { return Err(wrong) };
        let is_set = self.machine.get(at).is_set;
        if is_set == 0 && self.core.scheduler.reserve().is_err() {
            return Err(Status::new(Code::TooManyContexts, 1, PLACES as u64));
        }
        let Some(id) = id(at) else { return Ok(()) };
        let now = self.now();
        let time = &self.machine.get(at).time;
        let kept = account.policy() == time.policy() && background == time.is_in_background();
        if is_set != 0 && kept && account.is_server() {
            let store = &mut Store(&mut *self.machine);
            let times = (account.budget(), account.period());
            if self.core.scheduler.set_budget(store, id, times, now).is_err() {
                return Err(wrong);
            }
        } else {
            // Its thread waits until the same time as before.
            let alarm = self.core.scheduler.alarm_of(time, now);
            self.rest(at, Time::MAX);
            let context = self.machine.get_mut(at);
            context.time.reset(account, background);
            context.is_set = 1;
            if let Some(until) = alarm {
                self.rest(at, until);
            }
        }
        self.machine.get_mut(at).badge = badge;
        self.renewed(at);
        Ok(())
    }

    /// A context is another one: who runs on it does so at its own priority.
    #[inline(never)]
    pub(crate) fn renewed(&mut self, at: Ref<Context>) {
        self.core.undecided = 1;
        let thread = self.machine.get(at).thread;
        let runs = |t: &Ref<crate::Thread>| self.machine.get(*t).state == State::Running as u8;
        if let Some(thread) = thread.some().filter(runs) {
            self.ready(thread);
        }
    }

    #[inline(never)]
    fn account(&self, policy: Policy, budget: u64, period: u64) -> Result<Account, Invalid> {
        let cost = Time::from(self.core.cost);
        match policy {
            Policy::Sporadic => Account::sporadic(budget, period, 0)?.with_cost(cost),
            Policy::Strict => Account::strict(budget, period, 0)?.with_cost(cost),
            Policy::Full => Account::full(period),
            Policy::Pibs => {
                const MILLION: u32 = 1_000_000;
                let millionths = u32::try_from(budget).unwrap_or(MILLION);
                Account::pibs(Utilization::new(millionths, MILLION)?, cost, period, 0)
            }
        }
    }
}
