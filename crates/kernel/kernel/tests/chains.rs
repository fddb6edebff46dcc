//! The context that is used in a chain of calls, and its ways back: by the answers, and by all other ends of a call.

use bulkhead_kernel_fake::kernel::abi::{Address, Code, Info, Kind, Op, Policy, label};
use bulkhead_kernel_fake::kernel::{Exception, Reply, State};
use bulkhead_kernel_fake::{Chain, Thread, World, both};

const NEVER: u64 = u64::MAX;
const WORDS: [u64; 4] = [1, 2, 3, 4];

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
fn the_end_of_each_object_of_a_chain_brings_the_time_back() {
    type End = fn(&Chain) -> Address;
    // The object that ends, the thread that has the time then, and the client's state.
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
            // A new context lets the last one go on, which answers the remaining caller.
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

/// The last server of a chain faults, and a handler that answers for it is told.
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
            // Until another thread tells it that no answer will come.
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

/// The memory of a server goes, and all of it: its caller is told, and has its time.
#[test]
fn the_end_of_one_servers_memory_ends_its_part_of_the_chain() {
    both(|world| {
        let chain = Chain::new(world);
        world.revoke(chain.memory[0]);
        world.audit();
        assert!(world.cap(chain.middle.cap).is(Kind::Null));
        assert!(world.runs(chain.client), "whoever is called beyond");
        assert_eq!(world.came(chain.client).status.code(), Some(Code::Cancelled));
        // The last one has no caller to answer.
        let context = world.context(Policy::Full, 0, 1_000_000);
        world.does(context, label::BIND, [chain.last.cap.into(), 0, 0, 0]);
        assert!(world.runs(chain.last));
        world.reply_recv(chain.last, chain.endpoints[1], chain.replies[1], 1, WORDS);
        assert_eq!(world.came(chain.last).status.code(), Some(Code::BadState));
    });
    both(|world| {
        let chain = Chain::new(world);
        world.revoke(chain.memory[1]);
        world.audit();
        assert!(world.runs(chain.middle));
        assert_eq!(world.came(chain.middle).status.code(), Some(Code::Cancelled));
        world.reply_recv(chain.middle, chain.endpoints[0], chain.replies[0], 3, WORDS);
        assert!(world.runs(chain.client));
    });
}

/// A thread that can name nothing any more can't answer. It has its caller's time until another thread takes that away.
#[test]
fn a_server_without_its_root_node_answers_nobody() {
    for server in 0..2 {
        both(|world| {
            let chain = Chain::new(world);
            let node = world.make(Kind::Node, 4);
            let which = [chain.middle, chain.last][server];
            let words = [node, World::SPACE, 0, 0].map(u64::from);
            world.does(which.cap, label::CONFIGURE, words);
            world.delete(node);
            world.audit();
            assert_eq!(chain.holder(world), Some(chain.last), "it runs, and has the time");
            if server == 0 {
                world.reply_recv(chain.last, chain.endpoints[1], chain.replies[1], 1, WORDS);
            }
            assert!(world.runs(which));
            world.reply_recv(which, chain.endpoints[server], chain.replies[server], 1, WORDS);
            assert!(world.runs(which));
            let code = world.came(which).status.code();
            assert!(matches!(code, Some(Code::OutOfRange | Code::NoCapability)), "{code:?}");
            world.delete(chain.replies[server]);
            world.audit();
            let caller = [chain.client, chain.middle][server];
            assert!(world.runs(caller));
            assert_eq!(world.came(caller).status.code(), Some(Code::Cancelled));
        });
    }
}

/// Words that do not fit into registers are lost with the buffer, nothing else.
#[test]
fn a_server_without_its_buffer_answers_what_fits_into_registers() {
    both(|world| {
        let chain = Chain::new(world);
        let frames = [chain.client, chain.middle, chain.last].map(|thread| {
            let frame = world.make(Kind::Frame, 12);
            let words = [World::NODE, World::SPACE, frame, 0].map(u64::from);
            world.does(thread.cap, label::CONFIGURE, words);
            frame
        });
        let answer = |world: &mut World, n: usize| {
            let (who, reply) = ([chain.middle, chain.last][n], chain.replies[n]);
            let op = Op::ReplyRecv as u64 | u64::from(reply) << 32;
            let info = Info::new(1, 10).0;
            world.syscall(who, op, chain.endpoints[n].into(), info, WORDS);
            world.audit();
        };
        world.delete(frames[2]);
        world.audit();
        assert_eq!(chain.holder(world), Some(chain.last));
        answer(world, 1);
        let came = world.came(chain.middle);
        assert_eq!((came.info.words(), came.words), (4, WORDS));
        // In the middle as well, where the buffers of both others are there.
        world.delete(frames[1]);
        answer(world, 0);
        assert!(world.runs(chain.client));
        assert_eq!(world.came(chain.client).info.words(), 4);
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
fn who_works_on_a_callers_time_keeps_to_it() {
    both(|world| {
        let chain = Chain::new(world);
        let context = world.context(Policy::Full, 0, 1_000_000);
        let bind = world.method(chain.last, context, label::BIND, [chain.last.cap.into(), 2, 0, 0]);
        assert_eq!(bind, Err(Code::Occupied));
        world.audit();
    });
}

/// A client and servers, each of which calls the next one, until one is refused. Returns that one, and the servers.
fn call_on(world: &mut World) -> (Thread, Vec<(Thread, Address, Address)>) {
    let most = Reply::MOST_NESTED as usize;
    let servers: Vec<_> = (0..most + 2)
        .map(|_| {
            let endpoint = world.make(Kind::Endpoint, 0);
            let (server, reply) = world.server(50, endpoint);
            (server, endpoint, reply)
        })
        .collect();
    let mut caller = world.thread(20);
    for (server, endpoint, _) in &servers {
        world.call(caller, *endpoint, 0, WORDS);
        if !world.runs(*server) {
            break;
        }
        caller = *server;
    }
    (caller, servers)
}

#[test]
fn calls_nest_so_deep_and_no_deeper() {
    both(|world| {
        let (refused, servers) = call_on(world);
        let most = Reply::MOST_NESTED as usize;
        assert!(refused == servers[most - 1].0 && world.runs(refused), "so many have run");
        let status = world.came(refused).status;
        assert_eq!((status.code(), status.detail()), (Some(Code::TooDeep), most as u64));
        assert_eq!(world.state(servers[most].0), State::Receiving);
        world.audit();
        // Back by one, and there is room for one again: also for the server that has just answered.
        let (last, endpoint, reply) = servers[most - 1];
        world.reply_recv(last, endpoint, reply, 0, WORDS);
        world.call(servers[most - 2].0, endpoint, 0, WORDS);
        assert!(world.runs(last));
        world.audit();
        // All the way back.
        for (server, endpoint, reply) in servers[..most].iter().rev() {
            assert!(world.runs(*server));
            world.reply_recv(*server, *endpoint, *reply, 0, WORDS);
        }
        assert!(!servers.iter().any(|(server, ..)| world.runs(*server)));
        world.audit();
    });
}

#[test]
fn who_queued_is_refused_if_its_call_would_nest_too_deep() {
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let (server, reply) = world.server(10, endpoint);
        let client = world.thread(15);
        world.call(client, endpoint, 0, WORDS);
        assert!(world.runs(server));
        let (deep, _) = call_on(world);
        world.call(deep, endpoint, 0, WORDS);
        assert_eq!((world.state(deep), world.runs(server)), (State::Sending, true));
        world.reply_recv(server, endpoint, reply, 0, WORDS);
        assert!(world.runs(deep));
        assert_eq!(world.came(deep).status.code(), Some(Code::TooDeep));
        assert_eq!(world.state(server), State::Receiving);
        world.audit();
    });
}
