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
use plan::{Kind, Plan};
use strike::{AT, LIE, MIDDLE, VECTOR, strike};

bulkhead_sdk::entry!(guest);

/// A copy that a fault awaits. All that it knows of it is in statics, where no flipped bit of the stack harms it.
struct Planted;

fn releases() -> Releases {
    Releases::new(time::ticks(PERIOD_NS))
}

/// Lets the next fault strike when its time comes.
fn plant(context: Context) {
    interrupt::set(VECTOR, strike);
    time::use_interrupt(VECTOR);
    let plan = Plan::new(|key| context.arg_u64(key));
    let Some(fault) = plan.next(releases().at(time::counter())) else { return };
    let instant = releases().begins(fault.release) + time::ticks(fault.nanos);
    strike::prepare(context, fault, instant);
    if fault.kind.flips() {
        MIDDLE.store(plan.middle(fault), Relaxed);
    }
    println!("copy-rogue: {:?} is due in release {}", fault.kind, fault.release);
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
        let release = releases().at(due);
        // The flipped bit has had no effect.
        if release >= MIDDLE.load(Relaxed) {
            println!("copy-rogue: no effect by release {release}");
            hypercall::restart();
        }
    }

    fn state(&mut self, state: &mut State) {
        strike::at_state(state);
    }

    fn made(&mut self, made: &mut Made) {
        let lie = LIE.load(Relaxed);
        match strike::struck() {
            Some(Kind::Lies) => made.value.motors[0] ^= lie,
            Some(Kind::Early) => made.release += lie,
            Some(Kind::Late) => made.release -= 1,
            _ => {}
        }
    }
}

fn guest(context: Context) -> u32 {
    plant(context);
    copy::fly(context, &mut Planted)
}
