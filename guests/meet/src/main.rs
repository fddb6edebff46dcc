//! A party of channels made at run time: `do=STEP,STEP...` (`crates/talk`, `meet`).
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::channel::layout::Kind;
use bulkhead_sdk::link::{self, Refused, Slot, State};
use bulkhead_sdk::typed::Pair;
use bulkhead_sdk::{Context, cores, hypercall, println, time};
use bulkhead_talk::meet::{MESSAGE, Meets, last, meet, watch};
use bulkhead_talk::{Host, Nobody};
use core::fmt::Arguments;
use core::sync::atomic::{AtomicU64, Ordering};

bulkhead_sdk::entry!(guest);

/// One more than the number of the slot that the other core watches.
static WATCHED: AtomicU64 = AtomicU64::new(0);

struct Here(Context);

impl Host for Here {
    type Ring = Nobody;
    type Bed = Nobody;

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

impl Meets for Here {
    type Slot = Slot;

    fn slots(&self) -> impl Iterator<Item = Slot> {
        link::slots(self.0)
    }

    fn offers(&self) -> impl Iterator<Item = Slot> {
        link::offers(self.0)
    }

    fn which(&self, slot: Slot) -> (u32, bool) {
        (slot.number, slot.mine)
    }

    fn state(&self, slot: Slot) -> State {
        slot.state()
    }

    fn offer(&self, to: u32, tag: u16) -> Result<Slot, Refused> {
        link::offer(self.0, to, tag)
    }

    fn accept(&self, slot: Slot, epoch: u32) -> bool {
        slot.accept(epoch).is_ok()
    }

    fn close(&self, slot: Slot) -> bool {
        slot.close().is_ok()
    }

    fn pair(&self, slot: Slot) -> Option<Pair<'static>> {
        slot.pair(Kind::Queue, MESSAGE)
    }

    fn words(&self, slot: Slot) -> Option<&'static [AtomicU64]> {
        Some(slot.words())
    }

    fn sandboxes(&self) -> [u32; 2] {
        let info = self.0.info();
        [info.sandbox, info.sandboxes]
    }

    fn call(&self, number: u64, first: u64, second: u64) -> u64 {
        hypercall::raw(number, first, second, 0, 0)
    }

    fn aside(&self, slot: Slot) -> bool {
        WATCHED.store(u64::from(slot.number) + 1, Ordering::Release);
        cores::start(self.0, 1, other)
    }

    fn restart(&self) {
        hypercall::restart();
    }
}

/// The other core's part.
fn other(context: Context, _: usize) {
    let watched = WATCHED.load(Ordering::Acquire);
    let slot = link::slots(context).find(|slot| u64::from(slot.number) + 1 == watched);
    if let Some(words) = slot.and_then(|slot| last(&Here(context), slot)) {
        watch(words);
    }
}

fn guest(context: Context) -> u32 {
    meet(&Here(context), context.arg("do").unwrap_or_default())
}
