//! Fixed-priority scheduling of one core's contexts, with budgets. Portable and without allocation; the kernel runs
//! it on its objects, the host tools in a simulation (`simulate`, with the feature `host`).
//!
//! A **scheduling context** ([`Context`]) is a budget C in a period T under a policy. A thread runs only on a context
//! with budget. Each policy keeps a theorem for any behaviour of its thread. The caller has to stop the thread when
//! its budget ends; use beyond the end is charged to later budgets.
//!
//! | [`Policy`] | theorem | where |
//! |---|---|---|
//! | sporadic server | in every interval of length d that begins at a moment when nothing of its priority or a higher one, with budget, wants to run, it runs at most C·⌈d/T⌉: a periodic task's share. What the kernel spends on it is in that | [`server`] |
//! | strict server | it runs at most C in **every** window of length T, and what a beginning costs | [`server`] |
//! | PIBS | at the highest priority, at most (2-U)·U·T in every window of length T, requests coming from contexts with periods of at most T | [`pibs`] |
//! | full | no bound; round robin with slices of T | [`account`] |
//!
//! Time is counted in ticks of the caller's choice, from any beginning, in a `u64`. There is no periodic tick:
//! [`Scheduler::schedule`] says when it wants to be called again. [`admission`] has the arithmetic that says beforehand
//! if budgets can be had in time.
//!
//! All state is plain data: [`Context`], the [`Refill`]s behind it, and the [`Scheduler`] itself can be laid over
//! bytes from anywhere. With any bytes, nothing here panics or fails to end; the order in which contexts run is then
//! undefined.
//!
//! ```
//! use bulkhead_sched::{Account, Context, Id, Refill, Scheduler};
//!
//! // 3 ticks in 10, with up to 4 refills, one in the account itself, at priority 7.
//! let account = Account::sporadic(3, 10, 0)?;
//! let mut contexts = [(Context::new(account, 7), [Refill::default(); 3])];
//! let mut core = Scheduler::new(0);
//!
//! core.reserve().expect("there is room for 512");
//! assert!(core.wake(&mut contexts[..], Id::of(0), 5));
//! let decision = core.schedule(&mut contexts[..], 5);
//! assert_eq!((decision.run, decision.timer), (Some(Id::of(0)), 8));
//! // The timer: its budget is used up, and comes again 10 after it began to use it.
//! let decision = core.schedule(&mut contexts[..], 8);
//! assert_eq!((decision.run, decision.timer), (None, 15));
//! # Ok::<(), bulkhead_sched::Invalid>(())
//! ```
#![no_std]

#[cfg(any(test, feature = "host"))]
extern crate std;

pub mod account;
pub mod admission;
pub mod context;
#[cfg(test)]
mod explored;
mod general;
mod limit;
pub mod pibs;
mod ready;
pub mod refills;
mod release;
pub mod scheduler;
pub mod server;
pub mod share;
#[cfg(feature = "host")]
pub mod simulate;

pub use account::{Account, Policy};
pub use context::{Context, Contexts, Id};
pub use limit::{Begin, call_needs};
pub use pibs::{Requester, Utilization};
pub use refills::Refill;
pub use release::PLACES;
pub use scheduler::{Decision, NoRoom, Overtake, Scheduler};

/// Ticks: a time since some beginning, or a duration. Sums saturate: an event after the end of time never comes.
pub type Time = u64;

/// A budget, period or share that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// Neither budget nor period may be 0, nor the budget above the period.
    Budget {
        /// Budget, ticks.
        budget: Time,
        /// Period, ticks.
        period: Time,
    },
    /// A utilization lies above 0 and below 1.
    Utilization {
        /// Numerator of the share.
        numerator: u32,
        /// Denominator of the share.
        denominator: u32,
    },
    /// A budget leaves nothing beyond the cost of an activation. It may be a utilization's share of a requester's
    /// period.
    TooShort {
        /// The period, ticks.
        period: Time,
        /// Cost of an activation, ticks.
        cost: Time,
    },
}
