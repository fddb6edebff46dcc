//! A flight controller as a role, in a program of a kernel: [`bulkhead_scenarios::pilot`]. It sleeps at the
//! notification `pause`, and looks for its role in each release.
//!
//! Ways to fail: an exit code, a denied access to the pages `fence` of another role, an exception, a loop; `each` of
//! them in turn.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::time::{nanos, ticks};
use bulkhead_program::{Here, Instructions, Program, sleep_until, stop};
use bulkhead_scenarios::pilot::{Seat, pilot};
use core::sync::atomic::{AtomicU64, Ordering};

bulkhead_program::entry!(begin);

/// Exit code of a failure.
const CODE: u32 = 7;
const WAYS: [&str; 4] = ["exit", "memory", "exception", "hang"];

fn begin(program: Program) -> u32 {
    pilot(&Thread(program))
}

/// A thread at the controls.
struct Thread(Program);

impl Seat for Thread {
    type Guest = Program;

    fn guest(&self) -> &Program {
        &self.0
    }

    fn counter(&self) -> u64 {
        Here::ordered_counter()
    }

    fn ticks(&self, nanos: u64) -> u64 {
        ticks(nanos)
    }

    fn sleep_until_tick(&self, tick: u64) {
        // The conversion rounds down.
        let _ = sleep_until(self.0.waits("pause"), nanos(tick) + 1);
    }

    fn kick(&self) {
        self.0.kick();
    }

    fn pages(&self, name: &str) -> Option<&'static [AtomicU64]> {
        Some(self.0.find_memory(name)?.words())
    }

    fn fail(&self, of: &'static str, turn: u64) -> u32 {
        let way = if of == "each" { WAYS[turn as usize % WAYS.len()] } else { of };
        match way {
            "exception" => stop(),
            "hang" => loop {
                core::hint::spin_loop();
            },
            "memory" => {
                let fence = self.pages("fence").and_then(|words| words.first());
                let _ = fence.map(|word| word.load(Ordering::Relaxed));
            }
            _ => {}
        }
        CODE
    }
}
