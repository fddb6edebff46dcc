//! A flight controller as a role, in a bare guest: [`bulkhead_scenarios::pilot`].
//!
//! Ways to fail: those of [`fail`], `each` of them in turn, and `give`, which gives the role away.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_scenarios::pilot::{Seat, pilot};
use bulkhead_sdk::{Context, println, role, time, watchdog, window};
use core::sync::atomic::AtomicU64;
use fail::{fail, way};

bulkhead_sdk::entry!(guest);

fn guest(context: Context) -> u32 {
    pilot(&Bare(context))
}

/// A bare guest at the controls.
struct Bare(Context);

impl Seat for Bare {
    type Guest = Context;

    fn guest(&self) -> &Context {
        &self.0
    }

    fn counter(&self) -> u64 {
        time::counter()
    }

    fn ticks(&self, nanos: u64) -> u64 {
        time::ticks(nanos)
    }

    fn sleep_until_tick(&self, tick: u64) {
        time::sleep_until(tick);
    }

    fn kick(&self) {
        watchdog::kick(self.0);
    }

    fn pages(&self, name: &str) -> Option<&'static [AtomicU64]> {
        Some(window::channel(self.0, name)?.words())
    }

    fn fail(&self, of: &'static str, turn: u64) -> u32 {
        match way(Some(of), turn) {
            "give" => {
                println!("pilot: gives the role away: {:#x}", role::give());
                fail("exit")
            }
            way => fail(way),
        }
    }
}
