//! An end of the channel `channel=NAME`; what it does there is `role=` (`crates/talk`).
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::{Context, println, time, window};
use bulkhead_talk::Host;
use core::fmt::Arguments;

bulkhead_sdk::entry!(guest);

struct Here(Context);

impl Host for Here {
    fn now(&self) -> u64 {
        time::nanos(time::tsc())
    }

    fn sleep_until(&self, nanos: u64) {
        time::sleep_until(time::ticks(nanos));
    }

    fn say(&self, line: Arguments<'_>) {
        println!("{}: {line}", self.0.name());
    }

    fn arg(&self, key: &str) -> Option<&'static str> {
        self.0.arg(key)
    }
}

fn guest(context: Context) -> u32 {
    let channel = context.arg("channel").unwrap_or_default();
    bulkhead_talk::run(&Here(context), window::pairs(context, channel))
}
