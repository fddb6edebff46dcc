//! A bare guest as the environment of scenarios.

use crate::{Context, bell, hypercall, println, time};
use bulkhead_channel::adaptive::Sleeper;
use bulkhead_channel::bell::Caller;
use bulkhead_channel_memory::Mapping;
pub use bulkhead_channel_memory::guest::Guest;
use bulkhead_channel_memory::typed::Pair;
use core::fmt::Arguments;

impl Guest for Context {
    type Ring = bell::Bell;
    type Bed = bell::Bed;

    fn caller(&self, pair: &Pair<'static>) -> Option<Caller<Mapping<'static>, bell::Bell>> {
        bell::caller(pair)
    }

    fn sleeper(&self, pair: &Pair<'static>) -> Option<Sleeper<Mapping<'static>, bell::Bed>> {
        bell::sleeper(pair)
    }

    fn interrupts(&self, bed: &bell::Bed) -> u64 {
        bed.interrupts()
    }

    fn now(&self) -> u64 {
        time::nanos(time::counter())
    }

    fn sleep_until(&self, nanos: u64) {
        time::sleep_until(time::ticks(nanos));
    }

    fn say(&self, line: Arguments<'_>) {
        println!("{}: {line}", self.name());
    }

    fn arg(&self, key: &str) -> Option<&'static str> {
        Context::arg(self, key)
    }

    fn life(&self) -> u64 {
        self.incarnation()
    }

    fn ready(&self) {
        hypercall::ready();
    }

    fn restart(&self) {
        hypercall::restart();
    }
}
