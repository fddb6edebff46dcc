//! A party of channels made at run time: `do=STEP,STEP...` (`crates/talk`, `meet`). It sleeps at the notification
//! `pause`. To begin anew is its fault handler's to do, or its sandbox's; its thread `other` watches for `watch`.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::channel::layout::Kind;
use bulkhead_program::layout::hypercall::SLOT;
use bulkhead_program::link::{self, Refused, Slot, State};
use bulkhead_program::typed::Pair;
use bulkhead_program::{Program, now, println, ready, sleep_until, stop};
use bulkhead_talk::meet::{MESSAGE, Meets, last, meet, watch};
use bulkhead_talk::{Host, Nobody};
use core::fmt::Arguments;
use core::sync::atomic::{AtomicU64, Ordering};

bulkhead_program::entry!(party);
bulkhead_program::thread!(other, looks);

/// How often its thread began: one that its fault handler lets begin anew finds the program's memory as it left it.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// One more than the number of the slot that the other thread watches.
static WATCHED: AtomicU64 = AtomicU64::new(0);

struct Here(Program, u64);

impl Host for Here {
    type Ring = Nobody;
    type Bed = Nobody;

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
        self.0.page().sandbox
    }

    fn call(&self, number: u64, first: u64, second: u64) -> u64 {
        link::call(self.0, number, first, second)
    }

    fn aside(&self, slot: Slot) -> bool {
        WATCHED.store(u64::from(slot.number) + 1, Ordering::Release);
        true
    }

    fn restart(&self) {
        stop();
    }
}

/// Monitors' words of slots outlive a sandbox: one that has had a slot has lived before.
fn had(program: Program) -> bool {
    link::slots(program).any(|slot| link::call(program, SLOT, slot.number.into(), 0) != 0)
}

fn party(program: Program) -> u32 {
    let lives = BEGUN.fetch_add(1, Ordering::Relaxed) + u64::from(had(program));
    ready();
    meet(&Here(program, lives), program.arg("do").unwrap_or_default())
}

/// The other thread's work.
fn looks(program: Program) -> u32 {
    let here = Here(program, 0);
    loop {
        let watched = WATCHED.load(Ordering::Acquire);
        let slot = link::slots(program).find(|slot| u64::from(slot.number) + 1 == watched);
        if let Some(words) = slot.and_then(|slot| last(&here, slot)) {
            watch(words);
        }
        here.sleep_until(now() + 1_000_000);
    }
}
