//! Calls of passive servers that take so long at most: they begin with time for all of it, and end.

use bulkhead_kernel_fake::kernel::abi::{Address, Code, Info, Kind, Policy, label};
use bulkhead_kernel_fake::kernel::{Machine as _, State, Time};
use bulkhead_kernel_fake::{Thread, World, both};

const NEVER: Time = Time::MAX;
const WORDS: [u64; 4] = [1, 2, 3, 4];
const US: Time = 1_000;
const MS: Time = 1_000_000;

/// A server of this priority, and how long a call of it takes at most.
fn server(world: &mut World, priority: u8, longest: Time) -> (Thread, Address, Address) {
    let endpoint = world.make(Kind::Endpoint, 0);
    let (server, reply) = world.server(priority, endpoint);
    world.limit(endpoint, longest);
    (server, reply, endpoint)
}

/// The budget of a thread's context as it is listed.
fn list(world: &World, thread: Thread) -> Vec<(Time, Time)> {
    let at = world.cap(thread.context).at::<bulkhead_kernel_fake::kernel::Context>();
    let context = world.machine.get(at);
    let mut machine = world.machine.clone();
    let (_, refills) = machine.with_tail::<_, bulkhead_sched::Refill>(at, context.refills as usize);
    context.time.account().list(refills).map(|refill| (refill.amount, refill.time)).collect()
}

fn ip(world: &World, thread: Thread) -> u64 {
    world.machine.get(thread.at).registers.ip::<bulkhead_kernel_fake::kernel::host::Odd>()
}

/// 0.5 ms are left, and a call can take 0.6: it waits, with the rest, and is made again by itself.
#[test]
fn a_call_begins_only_with_time_for_all_of_it() {
    for policy in [Policy::Sporadic, Policy::Strict] {
        both(|world| {
            let (server, reply, endpoint) = server(world, 50, 600 * US);
            let start = world.machine.time;
            let client = world.thread_of(10, policy, MS, 10 * MS);
            let other = world.thread(5);
            world.pass(start + 500 * US);
            assert!(world.runs(client));
            let before = ip(world, client);
            world.call(client, endpoint, 0, WORDS);
            assert!(world.runs(other), "{policy:?}");
            assert_eq!((ip(world, client), world.state(server)), (before, State::Receiving));
            world.audit();
            world.pass(start + 10 * MS - 1);
            assert!(world.runs(other), "{policy:?}");
            world.pass(start + 10 * MS);
            assert!(world.runs(client), "{policy:?}");
            // All of it, and not in two parts.
            assert_eq!(list(world, client)[0], (MS, start + 10 * MS));
            world.call(client, endpoint, 0, WORDS);
            assert!(world.runs(server));
            world.pass(start + 10 * MS + 599 * US);
            world.reply_recv(server, endpoint, reply, 0, WORDS);
            assert!(world.runs(client));
            world.pass(start + 11 * MS - 1);
            assert!(world.runs(client), "the rest of its budget");
            world.pass(start + 11 * MS);
            assert!(world.runs(other));
            world.audit();
        });
    }
}

/// A server that goes on and on stops after its longest time. It does so also if it was preempted in between, and in a
/// call of its own.
#[test]
fn a_call_that_takes_longer_ends() {
    for nested in [false, true] {
        both(|world| {
            let start = world.machine.time;
            let (server, _, endpoint) = server(world, 50, 200 * US);
            let inner = world.make(Kind::Endpoint, 0);
            let (inside, _) = world.server(60, inner);
            let wakes = world.make(Kind::Notification, 0);
            let high = world.thread(100);
            world.wait(high, wakes, start + 50 * US);
            let middle = world.thread(30);
            world.wait(middle, wakes, start + 100 * US);
            let client = world.thread_of(10, Policy::Sporadic, MS, 10 * MS);
            world.call(client, endpoint, 0, WORDS);
            world.pass(start + 50 * US);
            assert!(world.runs(high));
            world.pass(start + 350 * US);
            world.wait(high, wakes, NEVER);
            if nested {
                world.call(server, inner, 0, WORDS);
            }
            let last = if nested { inside } else { server };
            assert!(world.runs(last));
            world.pass(start + 500 * US - 1);
            assert!(world.runs(last), "50 us, and 150 after the high one");
            world.pass(start + 500 * US);
            assert!(world.runs(middle));
            assert_eq!(world.state(last), State::Stopped);
            assert_eq!(world.state(client), State::Calling);
            world.audit();
            // The rest of its budget is its own.
            let sum: Time = list(world, client).iter().map(|(amount, _)| amount).sum();
            assert_eq!(sum, MS - if nested { 800 * US } else { 0 });
        });
    }
}

#[test]
fn a_handler_of_timeouts_is_told_of_a_call_that_takes_longer() {
    both(|world| {
        let start = world.machine.time;
        let (server, reply, endpoint) = server(world, 50, 200 * US);
        let (told, answers) = (world.make(Kind::Endpoint, 0), world.make(Kind::Reply, 0));
        let handler = world.thread(200);
        world.recv(handler, told, answers, NEVER);
        world.does(server.cap, label::SET_TIMEOUT, [told.into(), 0, 0, 0]);
        let client = world.thread_of(10, Policy::Sporadic, MS, 10 * MS);
        world.call(client, endpoint, 0, WORDS);
        world.pass(start + 200 * US);
        assert!(world.runs(handler));
        assert_eq!(world.came(handler).info.label(), label::TIMEOUT);
        // It lets it go on, with the next budget, and without a limit.
        world.reply_recv(handler, told, answers, Info::default().label(), [0; 4]);
        world.pass(start + 10 * MS);
        assert!(world.runs(server));
        world.reply_recv(server, endpoint, reply, 0, WORDS);
        assert!(world.runs(client));
        assert_eq!(list(world, client).iter().map(|(amount, _)| amount).sum::<Time>(), MS);
        world.audit();
    });
}

/// A full context has no budget that could end in a call; a call that takes longer ends nevertheless.
#[test]
fn a_full_context_has_a_limit_too() {
    both(|world| {
        let start = world.machine.time;
        let (server, reply, endpoint) = server(world, 50, 300 * US);
        let client = world.thread_of(10, Policy::Full, 0, MS);
        world.pass(start + 900 * US);
        world.call(client, endpoint, 0, WORDS);
        world.pass(start + 1_199 * US);
        assert!(world.runs(server));
        world.reply_recv(server, endpoint, reply, 0, WORDS);
        assert!(world.runs(client));
        world.call(client, endpoint, 0, WORDS);
        world.pass(start + 1_499 * US);
        assert_eq!(world.state(server), State::Stopped);
        assert_eq!(world.state(client), State::Calling);
        world.audit();
    });
}

#[test]
fn a_call_that_is_longer_than_a_budget_never_begins() {
    both(|world| {
        let (_, _, endpoint) = server(world, 50, MS + 1);
        let client = world.thread_of(10, Policy::Sporadic, MS, 10 * MS);
        world.call(client, endpoint, 0, WORDS);
        assert!(world.runs(client));
        assert_eq!(world.came(client).status.code(), Some(Code::OutOfRange));
        world.limit(endpoint, MS);
        world.pass(world.machine.time + 1);
        world.call(client, endpoint, 0, WORDS);
        assert!(world.core.current.is_none(), "not with 1 ns less, but with the next");
    });
}

/// A use that begins costs something, and so does the way to the call. A thread without budget for both is told so,
/// instead of waiting for ever.
#[test]
fn a_budget_without_room_for_the_way_to_a_call_is_refused() {
    for policy in [Policy::Sporadic, Policy::Strict] {
        both(|world| {
            world.core.cost = 500;
            let (server, _, endpoint) = server(world, 50, 600 * US);
            let least = 601 * US;
            let client = world.thread_of(10, policy, least - 1, 10 * MS);
            world.call(client, endpoint, 0, WORDS);
            assert!(world.runs(client));
            let status = world.came(client).status;
            assert_eq!((status.code(), status.detail()), (Some(Code::OutOfRange), least));
            world.audit();
            let start = world.machine.time;
            let client = world.thread_of(20, policy, least, 10 * MS);
            world.pass(start + 300 * US);
            world.call(client, endpoint, 0, WORDS);
            assert!(!world.runs(server) && !world.runs(client), "{policy:?}");
            world.pass(start + 10 * MS);
            assert!(world.runs(client), "{policy:?}");
            // So long it is on the way, each time.
            world.pass(start + 10 * MS + 500);
            world.call(client, endpoint, 0, WORDS);
            assert!(world.runs(server), "{policy:?}");
            world.audit();
        });
    }
}

/// A thread that waits for a server, and has not enough left when it is free, does not keep it.
#[test]
fn who_waits_for_a_server_asks_again_for_time() {
    both(|world| {
        let start = world.machine.time;
        let (server, reply, endpoint) = server(world, 50, 600 * US);
        let waits = world.make(Kind::Notification, 0);
        let rich = world.thread_of(10, Policy::Sporadic, MS, 10 * MS);
        world.call(rich, endpoint, 0, WORDS);
        // Above the server: they find it at work.
        let poor = world.thread_of(100, Policy::Sporadic, MS, 10 * MS);
        world.pass(start + 500 * US);
        world.call(poor, endpoint, 0, WORDS);
        let next = world.thread_of(90, Policy::Sporadic, MS, 10 * MS);
        world.call(next, endpoint, 0, WORDS);
        assert!(world.runs(server));
        world.reply_recv(server, endpoint, reply, 0, WORDS);
        assert!(world.runs(server), "for the next one");
        assert_eq!(world.state(next), State::Calling);
        assert_eq!(world.state(poor), State::Running, "and it asks again when it has time");
        world.audit();
        world.reply_recv(server, endpoint, reply, 0, WORDS);
        assert!(world.runs(next));
        world.wait(next, waits, NEVER);
        assert!(world.runs(rich));
        world.pass(start + 10 * MS);
        assert!(world.runs(poor));
        world.call(poor, endpoint, 0, WORDS);
        assert!(world.runs(server));
    });
}

/// 8 of 10 ms, in a call that would take 1 s, kept 30 of 60 ms waiting for 116 ms. Now it is for as long as a
/// call may take.
#[test]
fn a_long_call_from_below_keeps_nobody_waiting_for_longer_than_is_said() {
    both(|world| {
        let start = world.machine.time;
        let (server, _, endpoint) = server(world, 200, 5 * MS);
        let tick = world.make(Kind::Notification, 0);
        let high = world.thread_of(100, Policy::Sporadic, 30 * MS, 60 * MS);
        world.wait(high, tick, start + MS);
        let low = world.thread_of(10, Policy::Sporadic, 8 * MS, 10 * MS);
        world.call(low, endpoint, 0, WORDS);
        assert!(world.runs(server));
        world.pass(start + 5 * MS);
        assert!(world.runs(high), "released at 1 ms");
        world.pass(start + 35 * MS - 1);
        assert!(world.runs(high));
        world.wait(high, tick, NEVER);
    });
}

/// A driver that is asked from within a server at a ceiling works with the priority and the period of the server's
/// client.
#[test]
fn a_driver_works_for_who_is_in_a_server_not_at_its_ceiling() {
    both(|world| {
        let (requests, answers) = (world.make(Kind::Endpoint, 0), world.make(Kind::Reply, 0));
        let driver = world.thread_of(5, Policy::Pibs, 100_000, 10 * MS);
        world.recv(driver, requests, answers, NEVER);
        let (outer, _, of_outer) = server(world, 200, 0);
        let (inner, _, of_inner) = server(world, 210, 0);
        let tick = world.make(Kind::Notification, 0);
        let high = world.thread_of(100, Policy::Sporadic, MS, 10 * MS);
        world.wait(high, tick, NEVER);
        let low = world.thread_of(10, Policy::Sporadic, MS, 1_000 * MS);
        world.call(low, of_outer, 0, WORDS);
        world.call(outer, of_inner, 0, WORDS);
        world.call(inner, requests, 0, WORDS);
        assert!(world.runs(driver));
        assert_eq!(world.machine.get(driver.at).priority, 10);
        let context = world.machine.get(driver.at).context;
        assert_eq!(world.machine.get(context).time.account().period(), 1_000 * MS);
        world.signal(tick);
        assert!(world.runs(high), "a second at its priority would be 100 ms");
        world.audit();
    });
}

/// A call with a limit goes on where it was after a wait for a driver, whatever kind of context it is on.
#[test]
fn a_call_with_a_limit_may_wait_for_a_driver() {
    for policy in [Policy::Sporadic, Policy::Strict, Policy::Full] {
        both(|world| {
            let start = world.machine.time;
            let (requests, answers) = (world.make(Kind::Endpoint, 0), world.make(Kind::Reply, 0));
            let driver = world.thread_of(5, Policy::Pibs, 500_000, 10 * MS);
            world.recv(driver, requests, answers, NEVER);
            let (server, reply, endpoint) = server(world, 50, 300 * US);
            let client = world.thread_of(10, policy, MS, 10 * MS);
            world.pass(start + 400 * US);
            world.call(client, endpoint, 0, WORDS);
            world.pass(start + 500 * US);
            assert!(world.runs(server));
            world.call(server, requests, 0, WORDS);
            assert!(world.runs(driver));
            world.pass(start + 900 * US);
            world.reply_recv(driver, requests, answers, 0, WORDS);
            assert!(world.runs(server), "{policy:?}");
            world.pass(start + 1_099 * US);
            assert!(world.runs(server), "{policy:?}: 200 of 300 us are left");
            world.reply_recv(server, endpoint, reply, 0, WORDS);
            assert!(world.runs(client), "{policy:?}");
            world.audit();
        });
    }
}
