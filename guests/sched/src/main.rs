//! Counts the cost of `bulkhead-sched`'s operations, on contexts in memory as a kernel has them, of which 4 of 8 wait
//! for a refill. Each operation is measured with lists of several lengths, with the next refill before and after the
//! end of the budget.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod memory;

use bulkhead_sched::{Account, Context, Decision, Id, Scheduler, Time, Utilization};
use bulkhead_sdk::marker::id;
use bulkhead_sdk::{mark, marker, println};
use memory::{Memory, Object};

bulkhead_sdk::entry!(guest);

/// C and T of those measured, ticks.
const BUDGET: Time = 1_000_000;
const PERIOD: Time = 10_000_000;
/// Charge for a beginning, ticks.
const COST: Time = 20;
/// C of those that wait; they have used it up.
const SMALL: Time = 1_000;
/// Up to so many refills.
const REFILLS: usize = 8;
/// Priorities of the waiting contexts: the first refill decides about the running one, so that the timer is known at
/// once.
const FALLING: [u8; 4] = [30, 15, 8, 5];
/// The last one does.
const RISING: [u8; 4] = [5, 8, 15, 30];

/// How it is before an operation.
#[derive(Clone, Copy)]
struct Before {
    /// So many refills of the contexts measured have been posted.
    posted: u64,
    /// When the first of those that wait gets its refill. The others follow it.
    refill: Time,
    /// Their priorities in this order.
    priorities: [u8; 4],
}

/// A core with its contexts.
struct World {
    core: Scheduler,
    memory: Memory,
    now: Time,
    /// Contexts of the lower and the higher priority, and for interrupts.
    low: Id,
    high: Id,
    device: Id,
}

fn sporadic(budget: Time, period: Time) -> Account {
    let account = Account::sporadic(budget, period, 0).and_then(|a| a.with_cost(COST));
    account.expect("a budget within its period, above its cost")
}

impl World {
    fn new(objects: &mut [Object; 8], before: Before) -> Self {
        let [a, b, c, d, rest @ ..] = objects;
        let main = sporadic(BUDGET, PERIOD);
        let low = a.set(Context::new(main, 10), REFILLS);
        let high = b.set(Context::new(main, 20), REFILLS);
        let second = c.set(Context::new(main, 10), REFILLS);
        let u = Utilization::new(1, 10).expect("a share");
        let device = Account::pibs(u, COST, PERIOD, 0).expect("more than its cost");
        let device = d.set(Context::new(device, 40), 1);
        // SAFETY: the ids are of these objects, in memory below 4 GiB that `main` lends for good.
        let memory = unsafe { Memory::new() };
        let mut world = Self { core: Scheduler::new(0), memory, now: 0, low, high, device };
        for (n, (object, priority)) in rest.iter_mut().zip(before.priorities).enumerate() {
            let account = sporadic(SMALL, before.refill + 10_000 * n as u64);
            let id = object.set(Context::new(account, priority), 2);
            world.wake(id);
        }
        // All of them use up their budgets.
        while world.core.running().is_some() {
            world.now = world.schedule().timer;
            let _ = world.schedule();
        }
        for id in [low, high] {
            (0..before.posted).for_each(|_| world.post(id));
        }
        world.wake(second);
        world.wake(low);
        world.core.yield_to(&mut world.memory, low);
        let _ = world.schedule();
        world.now += 10_000;
        world
    }

    fn wake(&mut self, id: Id) {
        self.core.wake(&mut self.memory, id, self.now);
        let _ = self.schedule();
    }

    fn schedule(&mut self) -> Decision {
        self.core.schedule(&mut self.memory, self.now)
    }

    /// Runs for a moment, so that a part of the budget comes later.
    fn post(&mut self, id: Id) {
        self.wake(id);
        self.now += 5_000;
        self.core.block(&mut self.memory, id, self.now);
        let _ = self.schedule();
        self.now += 10_000;
    }
}

/// Puts an operation between two markers.
macro_rules! count {
    ($id:expr, $operation:expr) => {{
        mark!(marker::BEGIN | $id);
        let result = $operation;
        mark!(marker::END | $id);
        result
    }};
}

// Functions of their own, so that registers of the caller are not counted.

#[inline(never)]
fn wake(core: &mut Scheduler, memory: &mut Memory, id: Id, now: Time) -> Decision {
    count!(id::SCHED_WAKE, {
        core.wake(memory, id, now);
        core.schedule(memory, now)
    })
}

#[inline(never)]
fn search(core: &mut Scheduler, memory: &mut Memory, id: Id, now: Time) -> Decision {
    count!(id::SCHED_SEARCH, {
        core.wake(memory, id, now);
        core.schedule(memory, now)
    })
}

#[inline(never)]
fn alarm(core: &mut Scheduler, memory: &mut Memory, now: Time) -> Decision {
    count!(id::SCHED_ALARM, core.schedule(memory, now))
}

#[inline(never)]
fn wake_pibs(core: &mut Scheduler, memory: &mut Memory, id: Id, now: Time) -> Decision {
    count!(id::SCHED_PIBS, {
        core.wake(memory, id, now);
        core.schedule(memory, now)
    })
}

#[inline(never)]
fn block(core: &mut Scheduler, memory: &mut Memory, id: Id, now: Time) -> Decision {
    count!(id::SCHED_BLOCK, {
        core.block(memory, id, now);
        core.schedule(memory, now)
    })
}

#[inline(never)]
fn block_pibs(core: &mut Scheduler, memory: &mut Memory, id: Id, now: Time) -> Decision {
    count!(id::SCHED_PIBS_BLOCK, {
        core.block(memory, id, now);
        core.schedule(memory, now)
    })
}

#[inline(never)]
fn refill(core: &mut Scheduler, memory: &mut Memory, now: Time) -> Decision {
    count!(id::SCHED_REFILL, core.schedule(memory, now))
}

#[inline(never)]
fn expire(core: &mut Scheduler, memory: &mut Memory, now: Time) -> Decision {
    count!(id::SCHED_EXPIRE, core.schedule(memory, now))
}

#[inline(never)]
fn donate(core: &mut Scheduler, memory: &mut Memory, priority: u8) -> bool {
    count!(id::SCHED_DONATE, core.donate(memory, priority))
}

/// Operations of a thread; returns true if the right ones ran.
fn measure(objects: &mut [Object; 8], before: Before) -> bool {
    let mut world = World::new(objects, before);
    let World { core, memory, now, low, high, device } = &mut world;
    let up = donate(core, memory, 20);
    let down = donate(core, memory, 10);
    let woken = wake(core, memory, *high, *now + 1_000);
    let blocked = block(core, memory, *high, *now + 2_000);
    let pibs = wake_pibs(core, memory, *device, *now + 3_000);
    let done = block_pibs(core, memory, *device, *now + 4_000);
    let runs = [woken, blocked, pibs, done].map(|decision| decision.run);
    up && down && runs == [*high, *low, *device, *low].map(Some)
}

/// A thread of a higher priority wakes, of those that wait only the last one matters for it.
fn measure_search(objects: &mut [Object; 8], before: Before) -> bool {
    let mut world = World::new(objects, before);
    let World { core, memory, now, high, .. } = &mut world;
    let decision = search(core, memory, *high, *now + 1_000);
    // The first one, 5, comes 30,000 before.
    decision.run == Some(*high) && decision.timer > before.refill + 20_000
}

/// A thread of a higher priority has slept.
fn measure_alarm(objects: &mut [Object; 8], before: Before) -> bool {
    let mut world = World::new(objects, before);
    let World { core, memory, now, low, high, .. } = &mut world;
    core.block_until(memory, *high, *now, *now + 1_000);
    let before = core.schedule(memory, *now);
    let decision = alarm(core, memory, before.timer + 3);
    before.run == Some(*low) && decision.run == Some(*high) && decision.alarm
}

/// A refill of a higher priority is due, then its budget is used up. A timer is a little late.
fn measure_refill(objects: &mut [Object; 8], before: Before) -> bool {
    let mut world = World::new(objects, before);
    let timer = world.schedule().timer;
    let World { core, memory, low, .. } = &mut world;
    let refilled = refill(core, memory, timer + 3);
    let again = expire(core, memory, refilled.timer + 3);
    refilled.switched && refilled.timer > timer && again.run == Some(*low)
}

/// The end of a budget of a long list, another one of the priority runs.
fn measure_end(objects: &mut [Object; 8], before: Before) -> bool {
    let mut world = World::new(objects, before);
    let timer = world.schedule().timer;
    let World { core, memory, low, .. } = &mut world;
    let ended = expire(core, memory, timer + 3);
    ended.switched && ended.run.is_some_and(|id| id != *low)
}

fn guest(_: bulkhead_sdk::Context) -> u32 {
    static mut OBJECTS: [Object; 8] = [const { Object::new() }; 8];
    let objects = &raw mut OBJECTS;
    // SAFETY: the only core of the guest, and this function is entered once.
    let objects = unsafe { &mut *objects };
    bulkhead_sdk::hypercall::ready();
    let mut right = true;
    for posted in 0..5 {
        // Before and after the end of the running budget: about 1,000,000 from 200,000 on.
        for refill in [400_000, 1_500_000, 90_000_000] {
            let before = Before { posted, refill, priorities: FALLING };
            right &= measure(objects, before) && measure_alarm(objects, before);
            right &= match refill {
                400_000 => measure_refill(objects, before),
                _ => measure_end(objects, before),
            };
        }
        right &= measure_search(objects, Before { posted, refill: 400_000, priorities: RISING });
    }
    println!("sched: {}", if right { "all as expected" } else { "the wrong one ran" });
    u32::from(!right)
}
