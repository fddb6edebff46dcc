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
        let wrong = |_: Invalid| Status::new(Code::OutOfRange, 2, period);
        let account = self.account(policy, budget, period).map_err(wrong)?;
        let Context { time, thread, is_set, .. } = *self.machine.get(at);
        if is_set == 0 {
            let full = Status::new(Code::TooManyContexts, 1, PLACES as u64);
            self.core.scheduler.reserve().map_err(|_| full)?;
        }
        let Some(id) = id(at) else { return Ok(()) };
        let now = self.now();
        let kept = (account.policy(), background) == (time.policy(), time.is_in_background());
        let same = is_set != 0 && kept && account.is_server();
        if same {
            let store = &mut Store(&mut *self.machine);
            let times = (account.budget(), account.period());
            self.core.scheduler.set_budget(store, id, times, now).map_err(wrong)?;
        } else {
            // Its thread waits until the same time as before.
            let alarm = self.core.scheduler.alarm_of(&time, now);
            self.core.scheduler.block(&mut Store(&mut *self.machine), id, now);
            let fresh = bulkhead_sched::Context::new(account, time.priority());
            self.machine.get_mut(at).time = if background { fresh.in_background() } else { fresh };
            if let Some(until) = alarm {
                let store = &mut Store(&mut *self.machine);
                self.core.scheduler.block_until(store, id, now, until);
            }
        }
        let context = self.machine.get_mut(at);
        (context.badge, context.is_set) = (badge, 1);
        self.core.undecided = 1;
        let runs = |t: Ref<crate::Thread>| self.machine.get(t).state == State::Running as u8;
        if let Some(thread) = thread.some().filter(|thread| runs(*thread)) {
            self.ready(thread);
        }
        Ok(())
    }

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
