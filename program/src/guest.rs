//! A program as the environment of scenarios. It sleeps at the notification `pause`, and a doorbell wakes it at `news`.

use crate::link::Links;
use crate::{Program, bell, now, println, ready, sleep_until, stop};
use bulkhead_channel::adaptive::Sleeper;
use bulkhead_channel::bell::Caller;
use bulkhead_channel_memory::Mapping;
pub use bulkhead_channel_memory::guest::Guest;
use bulkhead_channel_memory::typed::Pair;
use bulkhead_layout::hypercall::LOOK;
use core::fmt::Arguments;

impl Guest for Program {
    type Ring = bell::Port;
    type Bed = bell::Bed;

    fn caller(&self, pair: &Pair<'static>) -> Option<Caller<Mapping<'static>, bell::Port>> {
        bell::caller(pair)
    }

    fn sleeper(&self, pair: &Pair<'static>) -> Option<Sleeper<Mapping<'static>, bell::Bed>> {
        pair.doorbell().filter(|_| !pair.sends())?;
        bell::sleeper(pair, self.waits("news"))
    }

    fn interrupts(&self, bed: &bell::Bed) -> u64 {
        bed.woken()
    }

    fn now(&self) -> u64 {
        now()
    }

    fn sleep_until(&self, nanos: u64) {
        // It has time of its own.
        let _ = sleep_until(self.waits("pause"), nanos);
    }

    fn say(&self, line: Arguments<'_>) {
        println!("{}: {line}", self.name());
    }

    fn arg(&self, key: &str) -> Option<&'static str> {
        Program::arg(*self, key)
    }

    /// A fault handler lets the first thread begin anew, in the memory that it left. Monitors' words of links outlive
    /// the sandbox: a guest that finds one has lived before.
    fn life(&self) -> u64 {
        let had = self.links().any(|link| self.call(LOOK, link.number.into(), 0) != 0);
        self.begun() - 1 + u64::from(had)
    }

    fn ready(&self) {
        ready();
    }

    fn restart(&self) {
        stop();
    }
}
