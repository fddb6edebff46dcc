//! Time that is lent without a call: by a notification, to begin with, and a thread that goes on with another context.

use bulkhead_kernel_fake::kernel::abi::{Address, Code, Kind, Policy, label};
use bulkhead_kernel_fake::kernel::{Context, Machine as _, State};
use bulkhead_kernel_fake::{Thread, World, both};

const NEVER: u64 = u64::MAX;
const WORDS: [u64; 4] = [1, 2, 3, 4];

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
        world.signal(notification);
        assert!(world.core.current.is_none(), "on whose time?");
        // A context for the notification: an earlier signal is heard now.
        let context = world.context(Policy::Sporadic, 100_000, 1_000_000);
        world.does(context, label::BIND, [notification.into(), 0, 0, 0]);
        assert!(world.runs(worker));
        assert_eq!(world.came(worker).badge, 1, "a signal without a badge is one, too");
        world.wait(worker, notification, NEVER);
        assert!(world.core.current.is_none());
        let of = world.cap(context).at::<Context>();
        assert!(world.machine.get(of).thread.is_none());
        world.signal(notification);
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
        world.signal(notification);
        assert!(world.runs(workers[1]));
        world.signal(notification);
        assert!(world.runs(workers[1]), "there is one context");
        world.recv(workers[1], endpoint, 0, NEVER);
        assert_eq!(world.came(workers[1]).status.code(), Some(Code::NoCapability));
        let reply = world.make(Kind::Reply, 0);
        world.recv(workers[1], endpoint, reply, NEVER);
        assert!(world.runs(workers[0]), "it is told when the context is free");
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

/// A worker without time of its own that was woken on a notification's, and called a server without.
struct Lent {
    notification: Address,
    context: Address,
    worker: Thread,
    /// It waits at that notification, too, and is woken if there is time.
    second: Thread,
    server: Thread,
    endpoint: Address,
    reply: Address,
}

impl Lent {
    fn new(world: &mut World) -> Self {
        let notification = world.make(Kind::Notification, 0);
        let context = world.context(Policy::Sporadic, 100_000, 1_000_000);
        world.does(context, label::BIND, [notification.into(), 0, 0, 0]);
        let [worker, second] = [40, 30].map(|priority| {
            let worker = world.thread(priority);
            world.wait(worker, notification, NEVER);
            world.does(worker.context, label::UNBIND, [0; 4]);
            worker
        });
        let endpoint = world.make(Kind::Endpoint, 0);
        let (server, reply) = world.server(50, endpoint);
        world.signal(notification);
        assert!(world.runs(worker));
        world.call(worker, endpoint, 7, WORDS);
        assert!(world.runs(server));
        world.audit();
        Self { notification, context, worker, second, server, endpoint, reply }
    }

    fn answer(&self, world: &mut World) {
        world.reply_recv(self.server, self.endpoint, self.reply, 9, WORDS);
        world.audit();
    }

    /// The thread that has the notification's context.
    fn holder(&self, world: &World) -> Option<Thread> {
        let context: &Context = world.machine.get(world.cap(self.context).at());
        [self.worker, self.second, self.server].into_iter().find(|t| t.at == context.thread)
    }
}

#[test]
fn what_a_notification_lent_comes_back_through_calls() {
    both(|world| {
        let lent = Lent::new(world);
        // It has lent its context: the second one waits.
        world.signal(lent.notification);
        assert!(world.runs(lent.server));
        lent.answer(world);
        assert!(world.runs(lent.worker));
        // The signal that came meanwhile was for the first thread that waits there, as soon as there is time.
        world.wait(lent.worker, lent.notification, NEVER);
        assert!(world.runs(lent.worker), "it is first");
        assert_eq!(world.came(lent.worker).badge, 1);
        world.wait(lent.worker, lent.notification, NEVER);
        assert_eq!(lent.holder(world), None);
        world.signal(lent.notification);
        assert!(world.runs(lent.worker));
    });
}

#[test]
fn the_end_of_each_object_brings_a_notifications_time_back() {
    type End = fn(&Lent) -> Address;
    // The object that ends; the thread that has the time then (the worker, the second one, the server, or none); true
    // if that one runs.
    let cases: [(&str, End, Option<usize>, bool); 6] = [
        ("the notification", |lent| lent.notification, Some(2), true),
        ("the context", |lent| lent.context, None, false),
        ("the worker, for whom the second one goes on", |lent| lent.worker.cap, Some(1), true),
        ("the server", |lent| lent.server.cap, Some(0), false),
        ("the reply object", |lent| lent.reply, Some(0), true),
        ("the endpoint", |lent| lent.endpoint, Some(2), true),
    ];
    for (what, end, holder, runs) in cases {
        both(|world| {
            let lent = Lent::new(world);
            // For the second one.
            world.signal(lent.notification);
            world.delete(end(&lent));
            world.audit();
            if what == "the context" {
                assert!(world.core.current.is_none());
                return;
            }
            let holder = holder.map(|n| [lent.worker, lent.second, lent.server][n]);
            assert_eq!(lent.holder(world), holder, "{what}");
            assert_eq!(world.core.current.some(), holder.filter(|_| runs).map(|t| t.at), "{what}");
        });
    }
}

#[test]
fn a_notification_that_is_gone_has_no_time_back() {
    both(|world| {
        let lent = Lent::new(world);
        let other = world.make(Kind::Notification, 0);
        world.delete(lent.notification);
        assert_eq!(world.came(lent.second).status.code(), Some(Code::Cancelled));
        lent.answer(world);
        assert!(world.runs(lent.worker));
        world.wait(lent.worker, other, NEVER);
        world.audit();
        assert!(world.core.current.is_none());
        assert_eq!(lent.holder(world), None);
        // It can be given to another thread.
        world.does(lent.context, label::BIND, [lent.second.cap.into(), 0, 0, 0]);
        assert!(world.runs(lent.second));
    });
}

#[test]
fn what_a_notification_lent_can_be_taken_back_in_a_call() {
    both(|world| {
        let lent = Lent::new(world);
        world.does(lent.context, label::UNBIND, [0; 4]);
        world.audit();
        assert!(world.core.current.is_none(), "on whose time?");
        world.does(lent.context, label::BIND, [lent.notification.into(), 0, 0, 0]);
        world.signal(lent.notification);
        assert!(world.runs(lent.second), "the first one still waits for its answer");
        // A thread that gives the server time lets it answer; the worker has none to hear it in.
        let context = world.context(Policy::Full, 0, 1_000_000);
        world.does(context, label::BIND, [lent.server.cap.into(), 0, 0, 0]);
        lent.answer(world);
        assert_eq!(world.state(lent.worker), State::Running);
        assert!(world.runs(lent.second));
    });
}
