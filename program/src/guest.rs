//! A program as the environment of code for all guests. It sleeps at the notification `pause`, and a doorbell wakes it
//! at `news`, to which `channels` of its manifest name it.

use crate::link::Links;
use crate::{Program, bell, now, println, ready, sleep_until, stop};
pub use bulkhead_channel_memory::guest::Guest;
use bulkhead_channel_memory::typed::{Doorbell, Pair};
use bulkhead_layout::hypercall::LOOK;
use core::fmt::Arguments;

impl Guest for Program {
    type Ring = bell::Port;
    type Bed = bell::Bed;

    fn name(&self) -> &str {
        Program::name(*self)
    }

    fn args(&self) -> &'static str {
        Program::args(*self)
    }

    fn pairs(&self, name: &str) -> impl Iterator<Item = Pair<'static>> {
        self.found_pairs(name).map(|(pair, _)| pair)
    }

    fn ring(&self, doorbell: Doorbell) -> Option<bell::Port> {
        Some(bell::Port::of(doorbell))
    }

    fn bed(&self, _: Doorbell) -> Option<bell::Bed> {
        Some(bell::Bed::new(self.waits("news")))
    }

    fn cost(&self) -> u64 {
        bell::SLEEP
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
