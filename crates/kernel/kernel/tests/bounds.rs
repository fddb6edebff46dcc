//! The length of a call doesn't grow with the number of other threads.

use bulkhead_kernel_fake::kernel::abi::{Address, Kind, label};
use bulkhead_kernel_fake::{Thread, World};

/// Threads of a few low priorities that wait to send, in turn.
fn crowd(world: &mut World, endpoint: Address, count: u8) {
    for n in 0..count {
        let thread = world.thread(100);
        let words = [(10 + n % 4).into(), 100, thread.cap.into(), 0];
        world.call(thread, thread.cap, label::SET_PRIORITY, words);
        if world.runs(thread) {
            world.send(thread, endpoint, 0, [0; 4]);
        }
    }
}

/// Accesses to memory that a thread's call takes.
fn cost(world: &mut World, call: impl FnOnce(&mut World)) -> u64 {
    let before = world.machine.accesses();
    call(world);
    world.machine.accesses() - before
}

fn high(world: &mut World) -> Thread {
    world.thread(200)
}

#[test]
fn a_queue_takes_as_long_with_a_hundred_as_with_eight() {
    let costs = [8, 100].map(|count| {
        let mut world = World::of(20);
        let endpoint = world.make(Kind::Endpoint, 0);
        crowd(&mut world, endpoint, count);
        world.audit();
        let thread = high(&mut world);
        let enters = cost(&mut world, |world| world.send(thread, endpoint, 0, [0; 4]));
        world.audit();
        let words = [1, 1, thread.cap.into(), 0];
        let moves = cost(&mut world, |world| {
            world.does(thread.cap, label::SET_PRIORITY, words);
        });
        let leaves = cost(&mut world, |world| {
            world.does(thread.cap, label::SUSPEND, [0; 4]);
        });
        world.audit();
        [enters, moves, leaves]
    });
    assert_eq!(costs[0], costs[1]);
    assert!(costs[0].iter().all(|cost| *cost > 0 && *cost < 100), "{costs:?}");
}

#[test]
fn an_endpoint_that_ends_lets_all_go_a_few_in_each_entry() {
    let mut world = World::of(20);
    let endpoint = world.make(Kind::Endpoint, 0);
    crowd(&mut world, endpoint, 100);
    let thread = high(&mut world);
    let mut most = 0;
    while world.cap(endpoint).is(Kind::Endpoint) {
        let words = [endpoint.into(), 0, 0, 0];
        most = most.max(cost(&mut world, |world| {
            world.call(thread, World::NODE, label::DELETE, words);
        }));
    }
    world.audit();
    assert!((100..1_000).contains(&most), "{most}");
}
