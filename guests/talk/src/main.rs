//! An end of the channel `channel=NAME`; its part there is `role=` (`crates/talk`). With `lives=N` it restarts itself
//! that often but once.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::channel::adaptive::Sleeper;
use bulkhead_sdk::channel::bell::Caller;
use bulkhead_sdk::typed::{Mapping, Pair};
use bulkhead_sdk::{Context, bell, hypercall, println, time, window};
use bulkhead_talk::Host;
use core::fmt::Arguments;

bulkhead_sdk::entry!(guest);

struct Here(Context);

impl Host for Here {
    type Ring = bell::Port;
    type Bed = bell::Bed;

    fn caller(&self, pair: &Pair<'static>) -> Option<Caller<Mapping<'static>, bell::Port>> {
        bell::caller(pair)
    }

    fn sleeper(&self, pair: &Pair<'static>) -> Option<Sleeper<Mapping<'static>, bell::Bed>> {
        bell::sleeper(pair)
    }

    fn interrupts(&self, bed: &bell::Bed) -> u64 {
        bed.interrupts()
    }

    fn ready(&self) {
        hypercall::ready();
    }

    fn now(&self) -> u64 {
        time::nanos(time::tsc())
    }

    fn sleep_until(&self, nanos: u64) {
        time::sleep_until(time::ticks(nanos));
    }

    fn say(&self, line: Arguments<'_>) {
        println!("{}: {line}", self.0.name());
    }

    fn life(&self) -> u64 {
        self.0.incarnation()
    }

    fn arg(&self, key: &str) -> Option<&'static str> {
        self.0.arg(key)
    }
}

fn guest(context: Context) -> u32 {
    let channel = context.arg("channel").unwrap_or_default();
    let here = Here(context);
    let code = bulkhead_talk::run(&here, window::pairs(context, channel));
    if code == 0 && here.life() + 1 < here.number("lives").unwrap_or(1) {
        hypercall::restart();
    }
    code
}
