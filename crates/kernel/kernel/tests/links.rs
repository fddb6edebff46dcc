//! Links: a program sees its sandbox's links, and no others.

use bulkhead_kernel_fake::USER_END;
use bulkhead_kernel_fake::kernel::abi::{Address, Code, Kind, Policy, Rights, at, label};
use bulkhead_kernel_fake::kernel::host::Odd;
use bulkhead_kernel_fake::kernel::{Exception, Machine as _, Ref, State, Time};
use bulkhead_kernel_fake::{Thread, World, both};
use bulkhead_layout::hypercall::{ACCEPT, BAD_ARGUMENT, BUSY, CLOSE, LOOK, OFFER, OK};
use bulkhead_layout::link;

/// Two links, and a thread that is in their space.
fn links(world: &mut World) -> ([Address; 2], Thread) {
    let links = world.links();
    let thread = world.thread_of(10, Policy::Full, 0, 1_000_000);
    (links, thread)
}

/// The pages of a link that the space in use shows.
fn seen(world: &World, number: u64) -> usize {
    let first = at::LINKS + number * at::LINK;
    world.mapped().keys().filter(|address| (first..first + at::LINK).contains(address)).count()
}

fn ask(world: &mut World, thread: Thread, link: Address, method: u64, words: [u64; 2]) -> u64 {
    let answer = world.method(thread, link, method, [words[0], words[1], 0, 0]);
    world.audit();
    answer.expect("a method that is done")[0]
}

#[test]
fn what_is_open_is_seen_and_what_is_closed_is_not() {
    both(|world| {
        let ([mine, other], thread) = links(world);
        assert_eq!(ask(world, thread, mine, label::OFFER, [1, 0xBEEF]), OK);
        assert_eq!((seen(world, 0), seen(world, 1)), (3, 0));
        assert_eq!(ask(world, thread, mine, label::OFFER, [3, 0]), BUSY);
        assert_eq!(ask(world, thread, other, label::ACCEPT, [7, 0]), OK);
        assert_eq!((seen(world, 0), seen(world, 1)), (3, 3));
        assert_eq!(ask(world, thread, mine, label::LOOK, [0, 0]), link::OPEN);
        let entered = world.machine.entered;
        assert_eq!(ask(world, thread, mine, label::CLOSE, [0, 0]), OK);
        assert!(world.machine.entered > entered, "the processor remembers it");
        assert_eq!((seen(world, 0), seen(world, 1)), (0, 3));
        assert_eq!(ask(world, thread, mine, label::LOOK, [1, 0]), link::IDLE);
        assert_eq!(ask(world, thread, mine, label::CLOSE, [0, 0]), BAD_ARGUMENT);
        let asked = &world.machine.asked;
        let offered = [OFFER, 1, 0xBEEF_0000];
        let [close, own, others] = [[CLOSE, 0, 0], [LOOK, 0, 0], [LOOK, 0, 1]];
        let again = [OFFER, 3, 0];
        assert_eq!(asked[..], [offered, again, [ACCEPT, 1, 7], own, close, others, close]);
    });
}

#[test]
fn a_monitor_that_refuses_shows_nothing_and_one_that_is_busy_leaves_nothing() {
    both(|world| {
        let ([mine, _], thread) = links(world);
        world.machine.busy = true;
        assert_eq!(ask(world, thread, mine, label::OFFER, [1, 0]), BUSY);
        assert_eq!(seen(world, 0), 0);
        world.machine.busy = false;
        assert_eq!(ask(world, thread, mine, label::OFFER, [1, 0]), OK);
        world.machine.busy = true;
        assert_eq!(ask(world, thread, mine, label::CLOSE, [0, 0]), BUSY);
        assert_eq!((seen(world, 0), world.machine.has), (0, 1));
        world.machine.busy = false;
        assert_eq!(ask(world, thread, mine, label::CLOSE, [0, 0]), OK);
        assert_eq!(world.machine.has, 0);
    });
}

#[test]
fn what_is_not_the_programs_is_refused_and_the_monitor_is_not_asked() {
    both(|world| {
        let ([mine, other], thread) = links(world);
        let looks = world.copy(mine, Rights::READ, 0);
        for (on, method, words, code) in [
            (mine, label::OFFER, [0, 0], Code::NoAuthority),
            (mine, label::OFFER, [32, 0], Code::NoAuthority),
            (other, label::OFFER, [1, 0], Code::NoAuthority),
            (mine, label::OFFER, [1, 1 << 16], Code::OutOfRange),
            (other, label::ACCEPT, [1 << 32, 0], Code::OutOfRange),
            (mine, label::LOOK, [2, 0], Code::OutOfRange),
            (looks, label::OFFER, [1, 0], Code::NoRight),
            (looks, label::CLOSE, [0, 0], Code::NoRight),
        ] {
            let came = world.method(thread, on, method, [words[0], words[1], 0, 0]);
            assert_eq!(came, Err(code), "{method} with {words:x?}");
        }
        assert!(world.machine.asked.is_empty());
        assert_eq!(ask(world, thread, looks, label::LOOK, [0, 0]), link::IDLE);
    });
}

const EXCEPTION: Exception = Exception { number: 14, error: 4, address: at::LINKS };

/// A thread's exception, with a handler that is told of it, or will be; `heard` if one waits.
fn faults(world: &mut World, thread: Thread, heard: bool) -> (Thread, [Address; 2]) {
    let endpoint = world.make(Kind::Endpoint, 0);
    let (handler, reply) = world.server(90, endpoint);
    let told = if heard { endpoint } else { world.make(Kind::Endpoint, 0) };
    world.does(thread.cap, label::SET_FAULT, [told.into(), 0, 0, 0]);
    assert!(world.runs(thread));
    world.kernel().exception(EXCEPTION);
    assert_eq!(world.machine.has, 0b11, "its handler may let it go on");
    (handler, [told, reply])
}

/// The processor of a thread that raises an exception. It comes back as long as the kernel sends it to an address
/// without an instruction.
fn crashes(world: &mut World, thread: Thread) {
    let ip = world.machine.get(thread.at).registers.ip::<Odd>();
    at_most_one(world, |world| world.kernel().exception(EXCEPTION));
    while world.runs(thread) {
        assert_eq!(world.machine.get(thread.at).registers.ip::<Odd>(), USER_END);
        world.audit();
        let there = Exception { number: 14, error: 0x14, address: USER_END };
        at_most_one(world, |world| world.kernel().exception(there));
    }
    let after = world.machine.get(thread.at).registers.ip::<Odd>();
    assert_eq!((after, world.machine.console.lines().count()), (ip, 1));
}

/// An entry in which the monitor is asked for one thing at most.
fn at_most_one(world: &mut World, entry: impl FnOnce(&mut World)) {
    let before = world.machine.asked.len();
    entry(world);
    assert!(world.machine.asked.len() <= before + 1, "{:?}", &world.machine.asked[before..]);
}

#[test]
fn a_link_is_closed_with_the_thread_that_opened_it() {
    // An exception without a handler, a handler that lets it not go on or cannot any more, a new beginning, the end.
    let ends: [fn(&mut World, Thread); 9] = [
        |world, thread| {
            assert!(world.runs(thread));
            crashes(world, thread);
        },
        |world, thread| {
            let (handler, [endpoint, reply]) = faults(world, thread, true);
            for _ in 0..3 {
                at_most_one(world, |world| world.reply_recv(handler, endpoint, reply, 1, [0; 4]));
            }
        },
        |world, thread| {
            // By a thread with time, which has none of the other thread's links.
            let (_, [_, reply]) = faults(world, thread, true);
            let other = world.thread(95);
            for _ in 0..3 {
                at_most_one(world, |world| world.reply(other, reply, 1, [0; 4]));
            }
        },
        |world, thread| {
            // It waits for another one, and that one will not be answered.
            let (handler, [endpoint, reply]) = faults(world, thread, true);
            for _ in 0..3 {
                at_most_one(world, |world| world.recv(handler, endpoint, reply, Time::MAX));
            }
        },
        |world, thread| {
            let (_, [_, reply]) = faults(world, thread, true);
            world.delete(reply);
        },
        |world, thread| {
            let (_, [endpoint, _]) = faults(world, thread, false);
            world.delete(endpoint);
        },
        |world, thread| {
            world.does(thread.cap, label::SUSPEND, [0; 4]);
            assert_eq!(world.machine.has, 0b11, "one that is only stopped keeps it");
            world.does(thread.cap, label::START, [0x1000, 0x2000, 0, 0]);
        },
        |world, thread| {
            let manager = world.thread(5);
            world.does(thread.cap, label::SUSPEND, [0; 4]);
            for left in [1, 0, 0] {
                let words = [0x1000, 0x2000, 0, 0];
                at_most_one(world, |world| world.call(manager, thread.cap, label::START, words));
                assert_eq!(world.machine.has.count_ones(), left);
            }
            let begun = (world.state(thread), world.came(manager).status.code());
            assert_eq!(begun, (State::Running, Some(Code::Ok)));
        },
        |world, thread| world.delete(thread.cap),
    ];
    for end in ends {
        both(|world| {
            let ([mine, other], thread) = links(world);
            assert_eq!(ask(world, thread, mine, label::OFFER, [1, 0]), OK);
            assert_eq!(ask(world, thread, other, label::ACCEPT, [1, 0]), OK);
            end(world, thread);
            world.audit();
            assert_eq!((world.machine.has, seen(world, 0), seen(world, 1)), (0, 0, 0));
        });
    }
}

/// A thread begins anew, and another ends, with as many links open as there can be. Each entry asks the monitor for one
/// thing, and looks at each link once. All other costs of an entry are as with one link.
#[test]
fn an_entry_with_all_links_open_is_as_long_as_a_search() {
    const ALL: u32 = link::MAX_LINKS as u32;
    /// Looks of a `START` that closes a link, or a deletion that does, but for those that search.
    const ENTRY: u64 = 60;
    both(|world| {
        let all = world.links_of(ALL);
        let thread = world.thread_of(10, Policy::Full, 0, 1_000_000);
        let manager = world.thread(5);
        let open = |world: &mut World| {
            for (n, link) in (0..).zip(&all) {
                let method = if n == 0 { label::OFFER } else { label::ACCEPT };
                assert_eq!(ask(world, thread, *link, method, [1, 0]), OK);
            }
            world.does(thread.cap, label::SUSPEND, [0; 4]);
        };
        for (on, method, words) in [
            (thread.cap, label::START, [0x1000, 0x2000, 0, 0]),
            (World::NODE, label::DELETE, [thread.cap.into(), 0, 0, 0]),
        ] {
            open(world);
            let mut longest = 0;
            for left in (0..ALL).rev() {
                let before = world.machine.looks.get();
                at_most_one(world, |world| world.call(manager, on, method, words));
                longest = longest.max(world.machine.looks.get() - before);
                assert_eq!(world.machine.has.count_ones(), left);
            }
            assert!(longest <= u64::from(ALL) + ENTRY, "{longest} looks");
            at_most_one(world, |world| world.call(manager, on, method, words));
            assert_eq!(world.came(manager).status.code(), Some(Code::Ok));
        }
    });
}

/// The monitor's time for it is not charged to the next thread.
#[test]
fn who_crashes_pays_for_the_closing() {
    const BUDGET: u64 = 1_000_000;
    both(|world| {
        let ([mine, other], thread) = links(world);
        let next = world.thread_of(5, Policy::Sporadic, BUDGET, 10 * BUDGET);
        assert_eq!(ask(world, thread, mine, label::OFFER, [1, 0]), OK);
        assert_eq!(ask(world, thread, other, label::ACCEPT, [1, 0]), OK);
        assert!(world.runs(thread));
        world.machine.answers_after = 10_000;
        let crashed = world.machine.time;
        crashes(world, thread);
        assert_eq!((world.machine.has, world.machine.time), (0, crashed + 20_000));
        assert!(world.runs(next));
        assert_eq!(world.machine.timer, crashed + 20_000 + BUDGET);
    });
}

#[test]
fn another_threads_link_stays_when_one_ends() {
    both(|world| {
        let ([mine, other], thread) = links(world);
        let second = world.thread_of(20, Policy::Full, 0, 1_000_000);
        world.settle();
        assert_eq!(ask(world, second, other, label::ACCEPT, [1, 0]), OK);
        assert_eq!(ask(world, second, mine, label::OFFER, [1, 0]), OK);
        assert_eq!(ask(world, second, mine, label::CLOSE, [0, 0]), OK);
        world.does(second.cap, label::SUSPEND, [0; 4]);
        // A link that one thread has closed belongs to the next one that opens it.
        assert_eq!(ask(world, thread, mine, label::OFFER, [1, 0]), OK);
        world.delete(second.cap);
        world.audit();
        assert_eq!(world.machine.has, 0b01);
    });
}

#[test]
fn a_link_is_closed_with_the_capability_that_opened_it_and_no_other() {
    both(|world| {
        let ([mine, _], thread) = links(world);
        let [first, second] = [0; 2].map(|_| world.copy(mine, Rights::ALL, 0));
        assert_eq!(ask(world, thread, first, label::OFFER, [1, 0]), OK);
        assert_eq!(ask(world, thread, second, label::CLOSE, [0, 0]), OK);
        assert_eq!(ask(world, thread, second, label::OFFER, [1, 0]), OK);
        world.delete(first);
        assert_eq!((world.machine.has, seen(world, 0)), (1, 3));
        let later = world.copy(second, Rights::ALL, 0);
        world.delete(later);
        assert_eq!((world.machine.has, seen(world, 0)), (1, 3));
        let (moved, node) = (world.free(), World::NODE);
        world.does(node, label::MOVE, [moved.into(), second.into(), 0, 0]);
        world.revoke(mine);
        world.audit();
        assert_eq!((world.machine.has, seen(world, 0)), (0, 0));
    });
}

#[test]
fn nothing_else_can_be_mapped_where_links_are_seen() {
    both(|world| {
        let ([mine, _], thread) = links(world);
        let (frame, table) = (world.make(Kind::Frame, 12), world.make(Kind::Table, 0));
        let space = u64::from(World::SPACE);
        let refused = |world: &mut World| {
            for address in [at::LINKS, at::LINKS + 0x10_0000, at::LINKS_END - 0x1000] {
                let came = world.invoke(frame, label::MAP, [space, address, 1, 0]);
                assert_eq!(
                    came.err().and_then(|status| status.code()),
                    Some(occupied(world, address))
                );
                let came = world.invoke(table, label::MAP_TABLE, [space, address, 0, 0]);
                assert_eq!(came.err().and_then(|status| status.code()), Some(Code::Occupied));
            }
        };
        refused(world);
        assert_eq!(ask(world, thread, mine, label::OFFER, [1, 0]), OK);
        refused(world);
    });
}

/// The error for a frame at a place of a link: it is taken, or lacks a table that no program can put there.
fn occupied(world: &World, address: u64) -> Code {
    match seen(world, (address - at::LINKS) / at::LINK) {
        0 => Code::NoTable,
        _ => Code::Occupied,
    }
}

#[test]
fn a_space_that_ends_shows_no_link_and_its_link_can_still_be_closed() {
    both(|world| {
        let ([mine, _], thread) = links(world);
        assert_eq!(ask(world, thread, mine, label::OFFER, [1, 0]), OK);
        world.revoke(World::SPACE);
        world.audit();
        assert_eq!(world.machine.has, 1, "its thread is stopped, and has not ended");
        let root =
            Ref::<bulkhead_kernel_fake::kernel::PageTable>::new(world.cap(World::SPACE).object);
        assert!(
            world
                .machine
                .walk(root.at())
                .iter()
                .all(|(address, level, _)| *level > 1 || *address < at::LINKS)
        );
        let answer = world.does(mine, label::CLOSE, [0; 4]);
        assert_eq!((answer[0], world.machine.has), (OK, 0));
    });
}
