//! Whose time is used, and how it comes back: by the answer, and by whatever else can end a call.

use bulkhead_kernel_fake::kernel::abi::{Address, Code, Kind, Policy, label};
use bulkhead_kernel_fake::kernel::{Exception, Machine as _, State};
use bulkhead_kernel_fake::{Thread, World, both};

const NEVER: u64 = u64::MAX;
const WORDS: [u64; 4] = [1, 2, 3, 4];

/// A client that called a passive server, which called another one.
struct Chain {
    client: Thread,
    middle: Thread,
    last: Thread,
    /// Through which the client and the one in the middle wait.
    replies: [Address; 2],
    endpoints: [Address; 2],
}

impl Chain {
    fn new(world: &mut World) -> Self {
        let endpoints = [world.make(Kind::Endpoint, 0), world.make(Kind::Endpoint, 0)];
        let (middle, first) = world.server(50, endpoints[0]);
        let (last, second) = world.server(60, endpoints[1]);
        let client = world.thread(10);
        world.call(client, endpoints[0], 7, WORDS);
        assert!(world.runs(middle));
        world.audit();
        world.call(middle, endpoints[1], 8, WORDS);
        assert!(world.runs(last));
        world.audit();
        Self { client, middle, last, replies: [first, second], endpoints }
    }

    /// With whom the client's context is.
    fn holder(&self, world: &World) -> Option<Thread> {
        let context = world.machine.get(self.client.at).home;
        let thread = world.machine.get(context).thread;
        [self.client, self.middle, self.last].into_iter().find(|t| t.at == thread)
    }
}

#[test]
fn a_message_and_its_answer_carry_words_and_label() {
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let badged = world.copy(endpoint, bulkhead_kernel_fake::kernel::abi::Rights::ALL, 0x77);
        let (server, reply) = world.server(50, endpoint);
        let client = world.thread(10);
        world.call(client, badged, 7, WORDS);
        assert!(world.runs(server));
        let came = world.came(server);
        assert_eq!((came.status.0, came.badge, came.info.label()), (0, 0x77, 7));
        assert_eq!(came.words, WORDS);
        world.reply_recv(server, endpoint, reply, 9, [4, 3, 2, 1]);
        assert!(world.runs(client));
        let came = world.came(client);
        assert_eq!((came.status.0, came.badge, came.info.label()), (0, 0, 9));
        assert_eq!(came.words, [4, 3, 2, 1]);
        assert_eq!(world.state(server), State::Receiving);
    });
}

#[test]
fn a_chain_of_calls_unwinds() {
    both(|world| {
        let chain = Chain::new(world);
        assert_eq!(chain.holder(world), Some(chain.last));
        world.reply_recv(chain.last, chain.endpoints[1], chain.replies[1], 1, WORDS);
        assert!(world.runs(chain.middle));
        assert_eq!(chain.holder(world), Some(chain.middle));
        world.reply_recv(chain.middle, chain.endpoints[0], chain.replies[0], 2, WORDS);
        assert!(world.runs(chain.client));
        assert_eq!(
            (chain.holder(world), world.came(chain.client).info.label()),
            (Some(chain.client), 2)
        );
    });
}

#[test]
fn a_call_to_a_server_of_a_lower_priority_lets_others_in_between() {
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let (server, reply) = world.server(5, endpoint);
        let hog = world.thread(8);
        let client = world.thread(10);
        assert!(world.runs(client));
        world.call(client, endpoint, 0, WORDS);
        assert!(world.runs(hog), "the server's priority counts, not the client's");
        world.audit();
        world.does(hog.cap, label::SUSPEND, [0; 4]);
        assert!(world.runs(server));
        world.resume(hog);
        world.does(hog.cap, label::SET_PRIORITY, [4, 4, hog.cap.into(), 0]);
        world.reply_recv(server, endpoint, reply, 0, WORDS);
        assert!(world.runs(client));
    });
}

/// The ceiling protocol, free with a passive server at the highest priority of its callers.
#[test]
fn a_servers_priority_is_a_ceiling() {
    both(|world| {
        let (endpoint, wakes) = (world.make(Kind::Endpoint, 0), world.make(Kind::Notification, 0));
        let (server, reply) = world.server(30, endpoint);
        let (middle, high, low) = (world.thread(20), world.thread(30), world.thread(10));
        world.wait(high, wakes, 500_000);
        world.wait(middle, wakes, 400_000);
        assert!(world.runs(low));
        world.call(low, endpoint, 0, WORDS);
        // Both become ready in the middle of what the server does for the lowest.
        world.pass(600_000);
        assert!(world.runs(server), "nobody comes between");
        assert_eq!(world.state(middle), State::Waiting, "it is not even looked at");
        world.reply_recv(server, endpoint, reply, 0, WORDS);
        assert!(world.runs(high), "it waited for one request, and for nobody in the middle");
        world.call(high, endpoint, 0, WORDS);
        world.reply_recv(server, endpoint, reply, 0, WORDS);
        assert!(world.runs(high));
        world.wait(high, wakes, NEVER);
        assert!(world.runs(middle), "the lowest one's answer is its own time again");
        world.wait(middle, wakes, NEVER);
        assert!(world.runs(low));
    });
}

#[test]
fn equals_have_no_turn_because_of_a_call() {
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let (server, reply) = world.server(10, endpoint);
        let client = world.thread(10);
        let other = world.thread(10);
        world.call(client, endpoint, 0, WORDS);
        assert!(world.runs(server), "{other:?} comes after");
        world.reply_recv(server, endpoint, reply, 0, WORDS);
        assert!(world.runs(client));
    });
}

#[test]
fn the_answer_by_somebody_else_brings_the_time_back() {
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let (server, reply) = world.server(50, endpoint);
        let client = world.thread(10);
        let other = world.thread(90);
        let wakes = world.make(Kind::Notification, 0);
        world.wait(other, wakes, 500_000);
        world.call(client, endpoint, 0, WORDS);
        assert!(world.runs(server));
        world.pass(600_000);
        assert!(world.runs(other));
        world.reply(other, reply, 5, WORDS);
        world.wait(other, wakes, NEVER);
        assert!(world.runs(client), "the server has no time any more");
        assert_eq!(world.came(client).info.label(), 5);
    });
}

#[test]
fn the_end_of_each_object_of_a_chain_brings_the_time_back() {
    type End = fn(&Chain) -> Address;
    // What ends, who has the time then, and in which state the client is.
    let cases: [(&str, End, u8, State); 6] = [
        ("last server", |chain| chain.last.cap, 1, State::Calling),
        ("middle server", |chain| chain.middle.cap, 0, State::Calling),
        ("first reply", |chain| chain.replies[0], 0, State::Running),
        ("second reply", |chain| chain.replies[1], 1, State::Calling),
        ("first endpoint", |chain| chain.endpoints[0], 2, State::Calling),
        ("second endpoint", |chain| chain.endpoints[1], 2, State::Calling),
    ];
    for (what, end, holder, state) in cases {
        both(|world| {
            let chain = Chain::new(world);
            world.delete(end(&chain));
            world.audit();
            let holders = [chain.client, chain.middle, chain.last];
            assert_eq!(chain.holder(world), Some(holders[usize::from(holder)]), "{what}");
            assert_eq!(world.state(chain.client), state, "{what}");
        });
    }
}

#[test]
fn the_end_of_a_called_object_is_told() {
    both(|world| {
        let chain = Chain::new(world);
        world.delete(chain.replies[0]);
        assert!(world.runs(chain.client));
        assert_eq!(world.came(chain.client).status.code(), Some(Code::Cancelled));
    });
    both(|world| {
        let chain = Chain::new(world);
        world.delete(chain.replies[1]);
        assert!(world.runs(chain.middle));
        assert_eq!(world.came(chain.middle).status.code(), Some(Code::Cancelled));
        world.reply_recv(chain.middle, chain.endpoints[0], chain.replies[0], 3, WORDS);
        assert!(world.runs(chain.client));
    });
}

#[test]
fn the_end_of_the_client_or_of_its_context_stops_the_servers_where_they_are() {
    for which in 0..3 {
        both(|world| {
            let chain = Chain::new(world);
            match which {
                0 => world.delete(chain.client.cap),
                1 => world.delete(chain.client.context),
                _ => _ = world.does(chain.client.context, label::UNBIND, [0; 4]),
            }
            world.audit();
            assert!(world.core.current.is_none());
            // A new context lets the last one go on, who answers whoever is left.
            let context = world.context(Policy::Full, 0, 1_000_000);
            world.does(context, label::BIND, [chain.last.cap.into(), 0, 0, 0]);
            assert!(world.runs(chain.last));
            world.reply_recv(chain.last, chain.endpoints[1], chain.replies[1], 1, WORDS);
            assert_eq!(world.state(chain.middle), State::Running);
            assert!(!world.runs(chain.middle), "on whose time?");
        });
    }
}

#[test]
fn a_suspended_client_has_its_time_back_and_its_server_none() {
    both(|world| {
        let chain = Chain::new(world);
        world.does(chain.client.cap, label::SUSPEND, [0; 4]);
        world.audit();
        assert_eq!(chain.holder(world), Some(chain.client));
        assert!(world.core.current.is_none());
        world.resume(chain.client);
        assert!(world.runs(chain.client));
    });
}

#[test]
fn a_suspended_server_keeps_the_time_until_it_goes_on() {
    both(|world| {
        let chain = Chain::new(world);
        world.does(chain.last.cap, label::SUSPEND, [0; 4]);
        world.audit();
        assert!(world.core.current.is_none());
        world.resume(chain.last);
        assert!(world.runs(chain.last));
        world.reply_recv(chain.last, chain.endpoints[1], chain.replies[1], 1, WORDS);
        assert!(world.runs(chain.middle));
    });
}

const EXCEPTION: Exception = Exception { number: 14, error: 6, address: 0xABC };

/// The last server of a chain faults, and somebody who answers for it gets to know.
fn faults(world: &mut World, chain: &Chain, passive: bool) -> (Thread, [Address; 2]) {
    let endpoint = world.make(Kind::Endpoint, 0);
    let (handler, reply) = match passive {
        true => world.server(90, endpoint),
        false => {
            let (handler, reply) = (world.thread(90), world.make(Kind::Reply, 0));
            world.recv(handler, endpoint, reply, NEVER);
            (handler, reply)
        }
    };
    world.does(chain.last.cap, label::SET_FAULT, [endpoint.into(), 0, 0, 0]);
    assert!(world.runs(chain.last));
    world.kernel().exception(EXCEPTION);
    assert!(world.runs(handler));
    world.audit();
    (handler, [endpoint, reply])
}

/// And does not let it go on.
fn refused(world: &mut World, chain: &Chain, passive: bool) {
    let (handler, [endpoint, reply]) = faults(world, chain, passive);
    world.reply_recv(handler, endpoint, reply, 1, WORDS);
}

/// And can't say anything any more.
fn forgotten(world: &mut World, chain: &Chain, passive: bool) {
    let (handler, [_, reply]) = faults(world, chain, passive);
    world.delete(reply);
    if world.runs(handler) {
        let nothing = world.make(Kind::Notification, 0);
        world.wait(handler, nothing, NEVER);
    }
}

#[test]
fn a_server_that_cannot_go_on_gives_the_time_back() {
    type Stop = fn(&mut World, &Chain);
    let cases: [(&str, Stop); 7] = [
        ("no handler", |world, _| world.kernel().exception(EXCEPTION)),
        ("a passive handler refuses", |world, chain| refused(world, chain, true)),
        ("a handler refuses", |world, chain| refused(world, chain, false)),
        ("a passive handler's reply object ends", |world, chain| forgotten(world, chain, true)),
        ("a handler's reply object ends", |world, chain| forgotten(world, chain, false)),
        ("nobody has heard its fault", |world, chain| {
            let endpoint = world.make(Kind::Endpoint, 0);
            world.does(chain.last.cap, label::SET_FAULT, [endpoint.into(), 0, 0, 0]);
            world.kernel().exception(EXCEPTION);
            assert_eq!(world.state(chain.last), State::Sending);
            world.delete(endpoint);
        }),
        ("its space ends", |world, chain| {
            let space = world.make(Kind::Space, 0);
            let words = [World::NODE, space, 0, 0].map(u64::from);
            world.does(chain.last.cap, label::CONFIGURE, words);
            assert!(world.runs(chain.last));
            world.delete(space);
        }),
    ];
    for (what, stop) in cases {
        both(|world| {
            let chain = Chain::new(world);
            stop(world, &chain);
            world.audit();
            assert_eq!(world.state(chain.last), State::Stopped, "{what}");
            assert_eq!(chain.holder(world), Some(chain.middle), "{what}");
            assert!(world.core.current.is_none(), "{what}: who called waits on");
            // Until somebody tells it that nobody will answer.
            world.delete(chain.replies[1]);
            assert!(world.runs(chain.middle), "{what}");
            assert_eq!(world.came(chain.middle).status.code(), Some(Code::Cancelled));
            world.reply_recv(chain.middle, chain.endpoints[0], chain.replies[0], 3, WORDS);
            assert!(world.runs(chain.client), "{what}");
        });
    }
}

#[test]
fn revocation_of_a_reply_object_reaches_nobody_but_the_copies() {
    both(|world| {
        let chain = Chain::new(world);
        let all = bulkhead_kernel_fake::kernel::abi::Rights::ALL;
        let copy = world.copy(chain.replies[1], all, 0);
        world.revoke(chain.replies[1]);
        assert!(world.cap(copy).is(Kind::Null));
        assert!(world.runs(chain.last));
    });
}

#[test]
fn the_end_of_all_memory_ends_all() {
    both(|world| {
        let chain = Chain::new(world);
        assert!(world.runs(chain.last));
        world.revoke(World::UNTYPED);
        assert!(world.core.current.is_none());
        assert_eq!(world.core.scheduler.reserved(), 0);
        let objects: Vec<_> = world.machine.objects().map(|(_, kind)| kind).collect();
        assert_eq!(objects.iter().filter(|kind| **kind != Kind::Null).count(), 2, "{objects:?}");
    });
}

#[test]
fn a_server_that_receives_without_answering_has_no_time_but_its_client_has() {
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let (server, reply) = world.server(50, endpoint);
        let (client, idle) = (world.thread(10), world.thread(1));
        world.call(client, endpoint, 0, WORDS);
        // With another reply object: the client waits on.
        let other = world.make(Kind::Reply, 0);
        world.recv(server, endpoint, other, NEVER);
        assert!(world.runs(idle));
        assert_eq!(world.state(client), State::Calling);
        assert_eq!(world.machine.get(client.at).context, world.machine.get(client.at).home);
        // It answers when it runs for somebody else.
        let second = world.thread(20);
        world.call(second, endpoint, 0, WORDS);
        assert!(world.runs(server));
        world.reply(server, reply, 4, WORDS);
        assert_eq!(world.state(client), State::Running);
        // With the same one: the client is told.
        world.recv(server, endpoint, other, NEVER);
        assert!(world.runs(second));
        assert_eq!(world.came(second).status.code(), Some(Code::Cancelled));
    });
}

#[test]
fn a_passive_server_is_never_left_without_time() {
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let (server, reply) = world.server(50, endpoint);
        let client = world.thread(10);
        // A message without time is refused to it.
        world.send(client, endpoint, 0, WORDS);
        assert_eq!(world.came(client).status.code(), Some(Code::NoContext));
        world.call(client, endpoint, 0, WORDS);
        // An answer that would leave it without is, too; and a poll leaves it its client's.
        world.reply(server, reply, 0, WORDS);
        assert_eq!(world.came(server).status.code(), Some(Code::NoContext));
        world.recv(server, endpoint, reply, 0);
        assert_eq!(world.came(server).status.code(), Some(Code::TimedOut));
        world.recv(server, endpoint, reply, 1 << 40);
        assert_eq!(world.came(server).status.code(), Some(Code::NoContext));
        assert!(world.runs(server));
        assert_eq!(world.state(client), State::Calling);
        world.reply_recv(server, endpoint, reply, 6, WORDS);
        assert!(world.runs(client));
    });
}

/// What came meanwhile is heard when there is time for it.
#[test]
fn an_answer_takes_the_time_away_in_which_a_signal_could_be_heard() {
    for lent in [false, true] {
        both(|world| {
            let (endpoint, notification) =
                (world.make(Kind::Endpoint, 0), world.make(Kind::Notification, 0));
            let (server, reply) = world.server(50, endpoint);
            world.does(server.cap, label::BIND_NOTIFICATION, [notification.into(), 0, 0, 0]);
            let client = world.thread(10);
            world.call(client, endpoint, 0, WORDS);
            signal(world, notification);
            if lent {
                let context = world.context(Policy::Sporadic, 100_000, 1_000_000);
                world.does(context, label::BIND, [notification.into(), 0, 0, 0]);
            }
            world.reply_recv(server, endpoint, reply, 6, WORDS);
            world.audit();
            if lent {
                assert!(world.runs(server) && world.came(server).badge == 1, "on that time");
                world.recv(server, endpoint, reply, NEVER);
            }
            assert!(world.runs(client));
            assert_eq!(world.state(server), State::Receiving);
            world.call(client, endpoint, 0, WORDS);
            assert!(world.runs(server), "it is not stranded");
            // While it has its caller's time it hears what there is, if it asks.
            if !lent {
                world.wait(server, notification, 0);
                assert_eq!(world.came(server).badge, 1);
            }
            world.reply_recv(server, endpoint, reply, 6, WORDS);
            assert!(world.runs(client));
        });
    }
}

#[test]
fn who_answers_and_waits_for_a_signal_that_came_waits_for_time() {
    both(|world| {
        let (endpoint, notification) =
            (world.make(Kind::Endpoint, 0), world.make(Kind::Notification, 0));
        let (server, reply) = world.server(50, endpoint);
        let client = world.thread(10);
        world.call(client, endpoint, 0, WORDS);
        signal(world, notification);
        world.reply_recv(server, notification, reply, 6, WORDS);
        assert!(world.runs(client));
        assert_eq!(world.state(server), State::Waiting);
        let context = world.context(Policy::Sporadic, 100_000, 1_000_000);
        world.does(context, label::BIND, [notification.into(), 0, 0, 0]);
        assert!(world.runs(server));
        assert_eq!(world.came(server).badge, 1);
    });
}

#[test]
fn a_message_whose_time_comes_back_with_the_same_answer_is_not_taken() {
    both(|world| {
        let [first, second] = [world.make(Kind::Endpoint, 0), world.make(Kind::Endpoint, 0)];
        let (server, _) = world.server(50, second);
        let (middle, foreign) = world.server(70, first);
        let (patient, client) = (world.thread(10), world.thread(60));
        let wakes = world.make(Kind::Notification, 0);
        world.wait(client, wakes, NEVER);
        world.call(patient, second, 0, WORDS);
        signal(world, wakes);
        // While the server is busy, another one calls it on the time of its own client, whom the
        // server answers.
        world.call(client, first, 0, WORDS);
        world.call(middle, second, 0, WORDS);
        assert!(world.runs(server));
        world.reply_recv(server, second, foreign, 4, WORDS);
        world.audit();
        assert!(world.runs(client) && world.came(client).info.label() == 4);
        assert_eq!(world.came(middle).status.code(), Some(Code::NoContext));
        assert_eq!(world.state(server), State::Receiving, "it is not stranded");
        assert_eq!(world.machine.get(patient.at).context, world.machine.get(patient.at).home);
        world.call(client, second, 0, WORDS);
        assert!(world.runs(server));
    });
}

#[test]
fn senders_that_a_passive_server_cannot_take_are_refused_and_the_next_one_is_served() {
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let (server, reply) = world.server(50, endpoint);
        let senders: Vec<_> = (0..12).map(|_| world.thread(60)).collect();
        let client = world.thread(10);
        let wakes = world.make(Kind::Notification, 0);
        for sender in &senders {
            world.wait(*sender, wakes, NEVER);
        }
        let next = world.thread(30);
        world.wait(next, wakes, NEVER);
        world.call(client, endpoint, 0, WORDS);
        for sender in &senders {
            signal(world, wakes);
            world.send(*sender, endpoint, 0, WORDS);
        }
        // The server runs at 50, so that this one comes to its call only afterwards.
        signal(world, wakes);
        assert!(world.runs(server));
        let before =
            world.machine.get(server.at).registers.ip::<bulkhead_kernel_fake::kernel::host::Odd>();
        loop {
            world.reply_recv(server, endpoint, reply, 6, WORDS);
            if world.state(server) == State::Receiving {
                break;
            }
            while !world.runs(server) {
                let refused = senders.iter().find(|sender| world.runs(**sender)).unwrap();
                assert_eq!(world.came(*refused).status.code(), Some(Code::NoContext));
                world.wait(*refused, wakes, NEVER);
            }
            let ip = world
                .machine
                .get(server.at)
                .registers
                .ip::<bulkhead_kernel_fake::kernel::host::Odd>();
            assert_eq!(ip, before, "it is to call again");
        }
        assert_eq!(world.came(client).info.label(), 6);
        assert_eq!(world.state(client), State::Running);
    });
}

/// From outside.
fn signal(world: &mut World, notification: Address) {
    world.does(World::INTERRUPT, label::SET_NOTIFICATION, [notification.into(), 0, 0, 0]);
    world.interrupt();
}

#[test]
fn calls_in_a_circle_wait_for_each_other_and_nobody_else() {
    both(|world| {
        let [first, second] = [world.make(Kind::Endpoint, 0), world.make(Kind::Endpoint, 0)];
        let (server, _) = world.server(50, second);
        let (client, idle) = (world.thread(10), world.thread(1));
        world.call(client, second, 0, WORDS);
        world.call(server, first, 0, WORDS);
        assert!(world.runs(idle));
        world.audit();
        // Either of them can be ended.
        world.delete(server.cap);
        assert_eq!(world.machine.get(client.at).context, world.machine.get(client.at).home);
        world.does(client.cap, label::SUSPEND, [0; 4]);
        world.resume(client);
        assert!(world.runs(client));
    });
}

#[test]
fn a_notification_lends_its_context_and_has_it_back() {
    both(|world| {
        let notification = world.make(Kind::Notification, 0);
        let endpoint = world.make(Kind::Endpoint, 0);
        let (worker, _) = world.server(50, endpoint);
        // Waiting at the notification from now on.
        let client = world.thread(10);
        world.call(client, endpoint, 0, WORDS);
        world.wait(worker, notification, NEVER);
        world.does(client.cap, label::SUSPEND, [0; 4]);
        signal(world, notification);
        assert!(world.core.current.is_none(), "on whose time?");
        // A context for the notification: what was signalled before is heard now.
        let context = world.context(Policy::Sporadic, 100_000, 1_000_000);
        world.does(context, label::BIND, [notification.into(), 0, 0, 0]);
        assert!(world.runs(worker));
        assert_eq!(world.came(worker).badge, 1, "a signal without a badge is one, too");
        world.wait(worker, notification, NEVER);
        assert!(world.core.current.is_none());
        let of = world.cap(context).at::<bulkhead_kernel_fake::kernel::Context>();
        assert!(world.machine.get(of).thread.is_none());
        signal(world, notification);
        assert!(world.runs(worker));
    });
}

#[test]
fn a_context_that_comes_free_is_for_who_waits_for_it() {
    both(|world| {
        let notification = world.make(Kind::Notification, 0);
        let endpoint = world.make(Kind::Endpoint, 0);
        let context = world.context(Policy::Sporadic, 100_000, 1_000_000);
        let workers = [0, 1].map(|n| {
            let worker = world.thread(50 + n);
            world.wait(worker, notification, NEVER);
            world.does(worker.context, label::UNBIND, [0; 4]);
            worker
        });
        world.does(context, label::BIND, [notification.into(), 0, 0, 0]);
        signal(world, notification);
        assert!(world.runs(workers[1]));
        signal(world, notification);
        assert!(world.runs(workers[1]), "there is one context");
        world.recv(workers[1], endpoint, 0, NEVER);
        assert_eq!(world.came(workers[1]).status.code(), Some(Code::NoCapability));
        let reply = world.make(Kind::Reply, 0);
        world.recv(workers[1], endpoint, reply, NEVER);
        assert!(world.runs(workers[0]), "it is told when the context is free");
    });
}

#[test]
fn who_has_lent_its_time_is_given_no_other() {
    both(|world| {
        let chain = Chain::new(world);
        let context = world.context(Policy::Full, 0, 1_000_000);
        let bind = world.invoke(context, label::BIND, [chain.middle.cap.into(), 0, 0, 0]);
        assert_eq!(bind.unwrap_err().code(), Some(Code::Occupied));
        world.reply_recv(chain.last, chain.endpoints[1], chain.replies[1], 1, WORDS);
        assert_eq!(chain.holder(world), Some(chain.middle));
    });
}

#[test]
fn a_thread_goes_on_with_another_context() {
    both(|world| {
        let thread = world.thread_of(10, Policy::Sporadic, 1_000_000, 10_000_000);
        let other = world.context(Policy::Sporadic, 500_000, 10_000_000);
        let (words, start) = ([thread.cap.into(), 2, 0, 0], world.machine.time);
        world.pass(start + 300_000);
        world.method(thread, other, label::BIND, words).unwrap();
        assert!(world.runs(thread), "nothing has stopped it");
        let again = world.method(thread, other, label::BIND, words);
        assert_eq!(again, Err(Code::Occupied), "it is bound");
        let used = |world: &mut World, context| world.does(context, label::CONSUMED, [0; 4])[0];
        assert_eq!((used(world, thread.context), used(world, other)), (300_000, 0));
        world.pass(start + 300_000 + 500_000);
        assert!(world.core.current.is_none(), "the other one's budget is used up");
        assert_eq!((used(world, thread.context), used(world, other)), (0, 500_000));
        let heir = world.passive(5);
        world.resume(heir);
        world.does(thread.context, label::BIND, [heir.cap.into(), 0, 0, 0]);
        assert!(world.runs(heir), "its own one is free");
        world.audit();
    });
}

#[test]
fn who_works_on_a_callers_time_keeps_to_it() {
    both(|world| {
        let chain = Chain::new(world);
        let context = world.context(Policy::Full, 0, 1_000_000);
        let bind = world.method(chain.last, context, label::BIND, [chain.last.cap.into(), 2, 0, 0]);
        assert_eq!(bind, Err(Code::Occupied));
        world.audit();
    });
}

#[test]
fn time_that_is_lent_to_begin_with_goes_with_the_first_wait() {
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let reply = world.make(Kind::Reply, 0);
        let client = world.thread(10);
        let server = world.passive(50);
        let context = world.context(Policy::Sporadic, 1_000_000, 10_000_000);
        world.does(context, label::BIND, [server.cap.into(), 1, 0, 0]);
        world.resume(server);
        assert!(world.runs(server), "it begins, though it has no time of its own");
        let again = world.invoke(context, label::BIND, [client.cap.into(), 0, 0, 0]);
        assert_eq!(again.unwrap_err().code(), Some(Code::Occupied), "it is lent already");
        world.recv(server, endpoint, reply, NEVER);
        world.audit();
        assert!(world.runs(client));
        assert!(world.machine.get(server.at).context.is_none(), "the server is passive");
        world.call(client, endpoint, 7, WORDS);
        assert!(world.runs(server));
        let used = world.machine.get(server.at).context;
        assert_eq!(used, world.machine.get(client.at).home, "the work is the caller's");
        world.reply_recv(server, endpoint, reply, 9, WORDS);
        assert!(world.runs(client));
        let other = world.passive(60);
        world.does(context, label::BIND, [other.cap.into(), 1, 0, 0]);
        world.resume(other);
        assert!(world.runs(other), "the same context starts another one");
        world.audit();
    });
}

#[test]
fn a_call_before_its_server_has_begun_waits_for_it() {
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let reply = world.make(Kind::Reply, 0);
        let client = world.thread(70);
        let server = world.passive(50);
        let context = world.context(Policy::Sporadic, 1_000_000, 10_000_000);
        world.does(context, label::BIND, [server.cap.into(), 1, 0, 0]);
        world.resume(server);
        assert!(world.runs(client));
        world.call(client, endpoint, 7, WORDS);
        assert!(world.runs(server));
        world.recv(server, endpoint, reply, NEVER);
        world.audit();
        assert!(world.runs(server));
        let used = world.machine.get(server.at).context;
        assert_eq!(
            used,
            world.machine.get(client.at).home,
            "from the message on it is the caller's time"
        );
        world.reply_recv(server, endpoint, reply, 9, WORDS);
        assert!(world.runs(client));
    });
}
