//! A copy of a flight controller with faults planted in it, at drawn instants.
//!
//! Time is divided into windows of `gap=N` releases (default 20), from release `from=N` on. In each `of=N`th of them,
//! beginning with window `turn=N`, a fault strikes this copy, in whatever the copy does then. Its instant is drawn
//! from `seed=N` and the window's number; with `at=N` it is the beginning of that release of the window. `kinds=N` is
//! the set of faults to draw from, by their bits ([`plan::Kind`]). A flipped bit that has had no effect by the middle
//! of the window is cleaned by a restart, so that faults do not meet.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod plan;
mod strike;

use bulkhead_flight::copies::{Made, PERIOD_NS, State};
use bulkhead_sdk::{Context, hypercall, interrupt, println, time};
use bulkhead_voter::Releases;
use core::sync::atomic::Ordering::Relaxed;
use plan::{Fault, Kind, Plan};
use strike::{AT, LIE, VECTOR, strike};

bulkhead_sdk::entry!(guest);

/// A copy, and the fault that awaits it.
struct Planted {
    plan: Plan,
    releases: Releases,
    fault: Option<Fault>,
}

impl Planted {
    fn new(context: Context, plan: Plan) -> Self {
        let releases = Releases::new(time::ticks(PERIOD_NS));
        interrupt::set(VECTOR, strike);
        time::use_interrupt(VECTOR);
        let fault = plan.next(releases.at(time::counter()));
        if let Some(fault) = fault {
            let instant = releases.begins(fault.release) + time::ticks(fault.nanos);
            strike::prepare(context, fault, instant);
            println!("copy-rogue: {:?} is due in release {}", fault.kind, fault.release);
        }
        Self { plan, releases, fault }
    }

    /// Begins anew in the middle of the window if a flipped bit has had no effect.
    fn clean(&mut self, release: u64) {
        if self.fault.is_some_and(|fault| fault.kind.flips() && release >= self.plan.middle(fault))
        {
            println!("copy-rogue: no effect by release {release}");
            hypercall::restart();
        }
    }
}

impl copy::Hooks for Planted {
    fn sleep_until(&mut self, due: u64) {
        interrupt::disable();
        while time::counter() < due {
            time::arm(due.min(AT.load(Relaxed)));
            interrupt::wait();
        }
        // During the work of the release the instant may come, or has come already.
        time::arm(AT.load(Relaxed));
        interrupt::enable();
        self.clean(self.releases.at(due));
    }

    fn state(&mut self, state: &mut State) {
        strike::at_state(state);
    }

    fn made(&mut self, made: &mut Made) {
        let lie = LIE.load(Relaxed);
        let struck = AT.load(Relaxed) == strike::NEVER;
        match self.fault.map(|fault| fault.kind) {
            Some(Kind::Lies) if struck => made.value.motors[0] ^= lie,
            Some(Kind::Early) if struck => made.release += lie,
            Some(Kind::Late) if struck => made.release -= 1,
            _ => {}
        }
    }
}

fn guest(context: Context) -> u32 {
    let plan = Plan::new(|key| context.arg_u64(key));
    copy::fly(context, &mut Planted::new(context, plan))
}
