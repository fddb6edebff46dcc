//! Threads without time of their own: the news that they hear when a caller brings some, and that none of them is
//! stranded without.

use bulkhead_kernel_fake::both;
use bulkhead_kernel_fake::kernel::abi::{Code, Kind, Policy, label};
use bulkhead_kernel_fake::kernel::host::Odd;
use bulkhead_kernel_fake::kernel::{Machine as _, State};

const NEVER: u64 = u64::MAX;
const WORDS: [u64; 4] = [1, 2, 3, 4];

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

/// A signal that came meanwhile is heard when there is time for it.
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
            world.signal(notification);
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
            // While it has its caller's time it hears the present signal, if it asks.
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
        world.signal(notification);
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
        world.signal(wakes);
        // While the server is busy, another one calls it on the time of its own client. The server answers that client.
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
            world.signal(wakes);
            world.send(*sender, endpoint, 0, WORDS);
        }
        // The server runs at 50, so that this one comes to its call only afterwards.
        world.signal(wakes);
        assert!(world.runs(server));
        let before = world.machine.get(server.at).registers.ip::<Odd>();
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
            let ip = world.machine.get(server.at).registers.ip::<Odd>();
            assert_eq!(ip, before, "it is to call again");
        }
        assert_eq!(world.came(client).info.label(), 6);
        assert_eq!(world.state(client), State::Running);
    });
}
