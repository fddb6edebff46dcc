//! An end of the channel `channel=NAME`, and of `and=NAME` if it needs two; its part there is `role=` (`crates/talk`).
//! Sleeping takes the notification `pause`, and to be woken `news`.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::channel::adaptive::Sleeper;
use bulkhead_program::channel::bell::Caller;
use bulkhead_program::typed::{Mapping, Pair};
use bulkhead_program::{Program, bell, now, println, ready, sleep_until};
use bulkhead_talk::Host;
use core::fmt::Arguments;
use core::sync::atomic::{AtomicU64, Ordering};

bulkhead_program::entry!(talk);

/// How often its thread began: one that its fault handler lets begin anew finds the program's memory as it left it.
static BEGUN: AtomicU64 = AtomicU64::new(0);

struct Here(Program, u64);

impl Host for Here {
    type Ring = bell::Port;
    type Bed = bell::Bed;

    fn caller(&self, pair: &Pair<'static>) -> Option<Caller<Mapping<'static>, bell::Port>> {
        bell::caller(pair)
    }

    fn sleeper(&self, pair: &Pair<'static>) -> Option<Sleeper<Mapping<'static>, bell::Bed>> {
        pair.doorbell().filter(|_| !pair.sends())?;
        bell::sleeper(pair, self.0.waits("news"))
    }

    fn interrupts(&self, bed: &bell::Bed) -> u64 {
        bed.woken()
    }

    fn ready(&self) {
        ready();
    }

    fn now(&self) -> u64 {
        now()
    }

    fn sleep_until(&self, nanos: u64) {
        // It has time of its own.
        let _ = sleep_until(self.0.waits("pause"), nanos);
    }

    fn say(&self, line: Arguments<'_>) {
        println!("{}: {line}", self.0.name());
    }

    fn life(&self) -> u64 {
        self.1
    }

    fn arg(&self, key: &str) -> Option<&'static str> {
        self.0.arg(key)
    }
}

fn talk(program: Program) -> u32 {
    ready();
    let pairs = |key| program.pairs(program.arg(key).unwrap_or_default());
    let here = Here(program, BEGUN.fetch_add(1, Ordering::Relaxed));
    bulkhead_talk::run(&here, pairs("channel").chain(pairs("and")))
}
