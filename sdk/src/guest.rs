//! A bare guest as the environment of code for all guests.

use crate::{Context, bell, hypercall, println, time, window};
pub use bulkhead_channel_memory::guest::Guest;
use bulkhead_channel_memory::typed::{Doorbell, Pair};
use core::fmt::Arguments;

impl Guest for Context {
    type Ring = bell::Bell;
    type Bed = bell::Bed;

    fn name(&self) -> &str {
        Context::name(self)
    }

    fn args(&self) -> &'static str {
        Context::args(self)
    }

    fn pairs(&self, name: &str) -> impl Iterator<Item = Pair<'static>> {
        window::all(*self).filter(move |w| w.name == name).filter_map(|w| w.pair())
    }

    fn ring(&self, doorbell: Doorbell) -> Option<bell::Bell> {
        Some(bell::Bell(doorbell.at))
    }

    fn bed(&self, doorbell: Doorbell) -> Option<bell::Bed> {
        bell::Bed::new(doorbell)
    }

    fn cost(&self) -> u64 {
        time::ticks(bell::SLEEP)
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
