//! The context that is used for a call, and its way back with the answer.

use bulkhead_kernel_fake::both;
use bulkhead_kernel_fake::kernel::abi::{Code, Kind, label};
use bulkhead_kernel_fake::kernel::{Machine as _, State};

const NEVER: u64 = u64::MAX;
const WORDS: [u64; 4] = [1, 2, 3, 4];

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
        // Both become ready in the middle of the server's work for the lowest.
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
        // It answers when it runs for another client.
        let second = world.thread(20);
        world.call(second, endpoint, 0, WORDS);
        assert!(world.runs(server));
        world.reply(server, reply, 4, WORDS);
        assert_eq!(world.state(client), State::Running);
        // With that reply object again: the client is told.
        world.recv(server, endpoint, other, NEVER);
        assert!(world.runs(second));
        assert_eq!(world.came(second).status.code(), Some(Code::Cancelled));
    });
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
