//! Priorities, budgets and deadlines, and handlers' uses of the end of a budget.

use bulkhead_kernel_fake::kernel::abi::{Address, Code, Info, Kind, Policy, Rights, label};
use bulkhead_kernel_fake::kernel::{Exception, Machine as _, State, Time};
use bulkhead_kernel_fake::{Thread, World, both};

const NEVER: Time = Time::MAX;
const WORDS: [u64; 4] = [1, 2, 3, 4];
const MS: Time = 1_000_000;

fn code(world: &World, thread: Thread) -> Option<Code> {
    world.came(thread).status.code()
}

#[test]
fn a_wait_ends_with_a_message_or_its_deadline_whichever_is_first() {
    both(|world| {
        let (endpoint, notification) =
            (world.make(Kind::Endpoint, 0), world.make(Kind::Notification, 0));
        let (waits, idle) = (world.thread(20), world.thread(10));
        let now = world.machine.time;
        for (n, at) in [endpoint, notification].into_iter().enumerate() {
            let end = now + (n as u64 + 1) * MS / 10;
            world.wait(waits, at, end);
            assert!(world.runs(idle));
            world.audit();
            world.pass(end - 1);
            assert!(world.runs(idle));
            world.pass(end);
            assert!(world.runs(waits), "at its time");
            assert_eq!(code(world, waits), Some(Code::TimedOut));
        }
        // A message before it: the deadline is forgotten.
        let end = world.machine.time + MS / 10;
        world.wait(waits, endpoint, end);
        world.send(idle, endpoint, 3, WORDS);
        assert!(world.runs(waits));
        assert_eq!((code(world, waits), world.came(waits).words), (Some(Code::Ok), WORDS));
        world.wait(waits, notification, NEVER);
        world.pass(end + 1);
        assert_eq!(world.state(waits), State::Waiting);
        // One that is past polls.
        world.signal(notification);
        world.wait(waits, notification, 1);
        assert_eq!(code(world, waits), Some(Code::TimedOut));
    });
}

#[test]
fn an_interrupt_that_is_not_acknowledged_is_masked_at_its_source() {
    both(|world| {
        world.interrupt();
        assert_eq!(world.machine.played, [], "the first one costs nothing");
        world.interrupt();
        world.interrupt();
        assert_eq!(world.machine.played, [1], "masked, and once");
        world.does(World::INTERRUPT, label::ACKNOWLEDGE, [0; 4]);
        assert_eq!(world.machine.played, [1, 2], "let come again");
        world.interrupt();
        world.does(World::INTERRUPT, label::ACKNOWLEDGE, [0; 4]);
        assert_eq!(world.machine.played, [1, 2], "an acknowledged one costs nothing either");
    });
}

#[test]
fn a_level_triggered_line_is_kept_back_until_it_is_acknowledged() {
    both(|world| {
        world.hold_interrupt();
        // Script 0 is an empty one.
        let played = |world: &World| -> Vec<u32> {
            world.machine.played.iter().copied().filter(|script| *script != 0).collect()
        };
        world.does(World::INTERRUPT, label::ACKNOWLEDGE, [0; 4]);
        assert_eq!(played(world), [], "nothing is in service that could be ended");
        for round in 1..=3 {
            world.interrupt();
            assert_eq!(played(world), vec![2; round - 1], "in service");
            world.does(World::INTERRUPT, label::ACKNOWLEDGE, [0; 4]);
            world.does(World::INTERRUPT, label::ACKNOWLEDGE, [0; 4]);
            assert_eq!(played(world), vec![2; round], "ended, and once");
        }
    });
}

#[test]
fn an_alarm_interrupts_only_whom_it_may() {
    both(|world| {
        let notification = world.make(Kind::Notification, 0);
        let (waits, above) = (world.thread(20), world.thread_of(30, Policy::Full, 0, 10 * MS));
        let nothing = world.make(Kind::Notification, 0);
        world.wait(above, nothing, NEVER);
        let end = world.machine.time + MS;
        world.wait(waits, notification, end);
        world.signal(nothing);
        assert!(world.runs(above));
        assert!(world.machine.timer > end, "that doesn't matter to who runs");
        world.pass(end + MS);
        world.wait(above, nothing, NEVER);
        assert!(world.runs(waits));
        assert_eq!(code(world, waits), Some(Code::TimedOut));
    });
}

#[test]
fn a_sleeper_wakes_at_its_time_on_another_budget() {
    for policy in [Policy::Strict, Policy::Full] {
        both(|world| {
            let notification = world.make(Kind::Notification, 0);
            let (waits, idle) = (world.thread(20), world.thread(10));
            let end = world.machine.time + MS;
            world.wait(waits, notification, end);
            let what = u64::from(waits.context) | (policy as u64) << 32;
            world.does(World::CONTROL, label::SET_CONTEXT, [what, MS / 10, MS, 0]);
            world.audit();
            assert!(world.runs(idle));
            world.pass(end);
            assert!(world.runs(waits));
        });
    }
}

#[test]
fn signals_gather_until_somebody_waits() {
    both(|world| {
        let notification = world.make(Kind::Notification, 0);
        let badges = [2, 4].map(|badge| world.copy(notification, Rights::ALL, badge));
        let thread = world.thread(10);
        for badge in badges {
            world.try_send(thread, badge, 0, WORDS);
            assert_eq!(code(world, thread), Some(Code::Ok));
        }
        world.wait(thread, notification, NEVER);
        let came = world.came(thread);
        assert_eq!((came.badge, came.info), (6, Info::NOTIFIED));
        world.wait(thread, notification, 0);
        assert_eq!(code(world, thread), Some(Code::TimedOut));
    });
}

#[test]
fn a_bound_notification_comes_where_messages_come() {
    both(|world| {
        let (endpoint, notification) =
            (world.make(Kind::Endpoint, 0), world.make(Kind::Notification, 0));
        let (thread, reply) = (world.thread(10), world.make(Kind::Reply, 0));
        world.does(thread.cap, label::BIND_NOTIFICATION, [notification.into(), 0, 0, 0]);
        world.recv(thread, endpoint, reply, NEVER);
        world.signal(notification);
        assert_eq!((world.came(thread).badge, world.came(thread).info), (1, Info::NOTIFIED));
        world.signal(notification);
        world.recv(thread, endpoint, reply, NEVER);
        assert_eq!(world.came(thread).info, Info::NOTIFIED, "also what came before");
        // Binding tells earlier news, too.
        world.does(thread.cap, label::BIND_NOTIFICATION, [0; 4]);
        world.signal(notification);
        world.recv(thread, endpoint, reply, NEVER);
        assert_eq!(world.state(thread), State::Receiving);
        world.does(thread.cap, label::BIND_NOTIFICATION, [notification.into(), 0, 0, 0]);
        assert!(world.runs(thread));
    });
}

#[test]
fn queues_go_by_priority_also_by_one_that_changes() {
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let reply = world.make(Kind::Reply, 0);
        let callers = [30, 20, 40, 20].map(|priority| world.thread(priority));
        for n in [2, 0, 1, 3] {
            world.call(callers[n], endpoint, n as u64, WORDS);
        }
        let words = [35, 35, callers[3].cap.into(), 0];
        world.does(callers[3].cap, label::SET_PRIORITY, words);
        world.audit();
        let server = world.thread(50);
        let order = [(); 4].map(|()| {
            world.recv(server, endpoint, reply, NEVER);
            let label = world.came(server).info.label();
            world.reply(server, reply, 0, WORDS);
            label
        });
        assert_eq!(order, [2, 3, 0, 1]);
    });
}

#[test]
fn whose_priority_is_raised_runs_at_once() {
    both(|world| {
        let [first, second] = [10, 5].map(|priority| world.thread(priority));
        assert!(world.runs(first));
        world.does(second.cap, label::SET_PRIORITY, [20, 20, second.cap.into(), 0]);
        assert!(world.runs(second));
        world.does(second.cap, label::SET_PRIORITY, [1, 20, second.cap.into(), 0]);
        assert!(world.runs(first));
    });
}

#[test]
fn yields_and_turns_go_round() {
    both(|world| {
        let threads = [(); 3].map(|()| world.thread(10));
        for n in [0, 1, 2, 0] {
            assert!(world.runs(threads[n]));
            world.yields(threads[n]);
        }
        assert!(world.runs(threads[1]));
        let answer = world.method(threads[1], threads[0].context, label::YIELD_TO, [0; 4]);
        assert!(answer.is_ok() && world.runs(threads[0]), "the first of its priority now");
        world.next();
        assert!(!world.runs(threads[0]), "a slice is over");
    });
}

#[test]
fn a_budget_ends_and_comes_back() {
    both(|world| {
        let start = world.machine.time;
        let thread = world.thread_of(20, Policy::Sporadic, MS, 10 * MS);
        let idle = world.thread(10);
        assert!(world.runs(thread));
        assert_eq!(world.machine.timer, start + MS);
        world.pass(start + MS);
        assert!(world.runs(idle));
        world.pass(start + 10 * MS - 1);
        assert!(world.runs(idle));
        world.pass(start + 10 * MS);
        assert!(world.runs(thread));
        assert_eq!(world.does(thread.context, label::CONSUMED, [0; 4])[0], MS);
    });
}

/// A thread with a budget, and a handler of its end with time of its own.
struct Handled {
    thread: Thread,
    handler: Thread,
    endpoint: Address,
    reply: Address,
}

impl Handled {
    fn new(world: &mut World) -> Self {
        let (endpoint, reply) = (world.make(Kind::Endpoint, 0), world.make(Kind::Reply, 0));
        let handler = world.thread(100);
        world.recv(handler, endpoint, reply, NEVER);
        let thread = world.thread_of(20, Policy::Sporadic, MS, 10 * MS);
        world.does(thread.cap, label::SET_TIMEOUT, [endpoint.into(), 0, 0, 0]);
        let start = world.machine.time;
        assert!(world.runs(thread));
        world.pass(start + MS);
        assert!(world.runs(handler), "told at the end of the budget");
        let came = world.came(handler);
        let badge = u64::from(thread.context);
        assert_eq!(
            (came.info.label(), came.words),
            (label::TIMEOUT, [badge, MS, 0, thread.cap.into()])
        );
        world.audit();
        Self { thread, handler, endpoint, reply }
    }

    fn answer(&self, world: &mut World, label: u64) {
        world.reply_recv(self.handler, self.endpoint, self.reply, label, [0; 4]);
        world.audit();
    }
}

#[test]
fn policy_extend_the_budget_grows() {
    both(|world| {
        let handled = Handled::new(world);
        let words = [handled.thread.context.into(), 2 * MS, 10 * MS, 9];
        world.method(handled.handler, World::CONTROL, label::SET_CONTEXT, words).unwrap();
        handled.answer(world, 0);
        assert!(world.runs(handled.thread), "what it has more it has now");
    });
}

#[test]
fn policy_wait_for_the_refill() {
    both(|world| {
        let handled = Handled::new(world);
        let start = world.machine.time - MS;
        handled.answer(world, 0);
        assert!(world.core.current.is_none());
        world.pass(start + 10 * MS);
        assert!(world.runs(handled.thread));
    });
}

#[test]
fn policy_emergency_another_context_helps_out_once() {
    both(|world| {
        let handled = Handled::new(world);
        let spare = world.context(Policy::Sporadic, MS / 2, 10 * MS);
        let (handler, thread) = (handled.handler, handled.thread);
        world.method(handler, thread.context, label::UNBIND, [0; 4]).unwrap();
        world.method(handler, spare, label::BIND, [thread.cap.into(), 0, 0, 0]).unwrap();
        handled.answer(world, 0);
        assert!(world.runs(thread));
        world.pass(world.machine.time + MS / 2);
        assert!(world.runs(handler), "its end is told, too");
        assert_eq!(world.came(handler).words[0], u64::from(spare));
        // Back to its own.
        world.method(handler, spare, label::UNBIND, [0; 4]).unwrap();
        let bind = [thread.cap.into(), 0, 0, 0];
        world.method(handler, thread.context, label::BIND, bind).unwrap();
        handled.answer(world, 0);
        world.next();
        assert!(world.runs(thread));
    });
}

#[test]
fn policy_criticality_others_lose_their_priority() {
    both(|world| {
        let handled = Handled::new(world);
        let lesser = world.thread_of(50, Policy::Full, 0, MS);
        let (handler, thread) = (handled.handler, handled.thread);
        let down = [1, 1, lesser.cap.into(), 0];
        world.method(handler, lesser.cap, label::SET_PRIORITY, down).unwrap();
        let words = [thread.context.into(), 5 * MS, 10 * MS, 9];
        world.method(handler, World::CONTROL, label::SET_CONTEXT, words).unwrap();
        handled.answer(world, 0);
        assert!(world.runs(thread));
    });
}

#[test]
fn policy_kill_it_stops_and_its_time_is_free() {
    both(|world| {
        let handled = Handled::new(world);
        handled.answer(world, 1);
        assert_eq!(world.state(handled.thread), State::Stopped);
        world.pass(world.machine.time + 20 * MS);
        assert!(world.core.current.is_none());
    });
    both(|world| {
        let handled = Handled::new(world);
        let delete = [handled.thread.cap.into(), 0, 0, 0];
        world.method(handled.handler, World::NODE, label::DELETE, delete).unwrap();
        world.reply_recv(handled.handler, handled.endpoint, handled.reply, 0, [0; 4]);
        assert_eq!(code(world, handled.handler), Some(Code::BadState), "nobody waits");
    });
}

#[test]
fn what_is_given_up_is_no_timeout() {
    both(|world| {
        let handled = Handled::new(world);
        let start = world.machine.time - MS;
        handled.answer(world, 0);
        world.pass(start + 10 * MS);
        assert!(world.runs(handled.thread));
        world.yields(handled.thread);
        assert!(world.core.current.is_none(), "it waits for its refill, and nobody is told");
        assert_eq!(world.state(handled.handler), State::Receiving);
        world.pass(start + 20 * MS);
        assert!(world.runs(handled.thread));
        world.pass(start + 21 * MS);
        assert!(world.runs(handled.handler), "what is used up is");
    });
}

#[test]
fn policy_roll_back_a_server_gives_up_a_request() {
    both(|world| {
        let (endpoint, timeouts) = (world.make(Kind::Endpoint, 0), world.make(Kind::Endpoint, 0));
        let (server, reply) = world.server(50, endpoint);
        let (handler, handles) = (world.thread(100), world.make(Kind::Reply, 0));
        world.recv(handler, timeouts, handles, NEVER);
        world.does(server.cap, label::SET_TIMEOUT, [timeouts.into(), 0, 0, 0]);
        let client = world.thread_of(20, Policy::Sporadic, MS, 10 * MS);
        let other = world.thread(10);
        world.call(client, endpoint, 0, WORDS);
        assert!(world.runs(server));
        world.pass(world.machine.time + MS);
        assert!(world.runs(handler));
        assert_eq!(world.came(handler).words[0], u64::from(client.context), "whose budget it was");
        // The request is undone, the client told, and the server waits for the next one.
        let words = [0x5000, 0x6000, 0, 0];
        world.method(handler, server.cap, label::WRITE_REGISTERS, words).unwrap();
        world.audit();
        world.reply(handler, reply, 99, [0; 4]);
        assert_eq!(world.came(client).info.label(), 99);
        // It needs time until it waits: a context of the handler's.
        let spare = world.context(Policy::Full, 0, MS);
        world.method(handler, spare, label::BIND, [server.cap.into(), 0, 0, 0]).unwrap();
        world.method(handler, server.cap, label::START, words).unwrap();
        world.recv(handler, timeouts, handles, NEVER);
        assert!(world.runs(server));
        world.recv(server, endpoint, reply, NEVER);
        world.does(spare, label::UNBIND, [0; 4]);
        assert!(world.runs(other), "the client has no budget yet");
        world.call(other, endpoint, 0, WORDS);
        assert!(world.runs(server));
        world.reply_recv(server, endpoint, reply, 0, WORDS);
        assert!(world.runs(other));
    });
}

#[test]
fn a_passive_handler_works_on_the_time_of_who_faulted() {
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let (handler, reply) = world.server(50, endpoint);
        let thread = world.thread(10);
        world.does(thread.cap, label::SET_FAULT, [endpoint.into(), 0, 0, 0]);
        let ip = world.does(thread.cap, label::READ_REGISTERS, [0; 4])[0];
        let exception = Exception { number: 14, error: 6, address: 0xABC };
        world.kernel().exception(exception);
        assert!(world.runs(handler));
        world.audit();
        let came = world.came(handler);
        let words = [14 | 6 << 8, ip, 0xABC, thread.cap.into()];
        assert_eq!((came.info.label(), came.words), (label::FAULT, words));
        let registers = world.machine.get(thread.at).registers;
        world.reply_recv(handler, endpoint, reply, 0, [7; 4]);
        assert!(world.runs(thread));
        assert_eq!(
            world.machine.get(thread.at).registers.0,
            registers.0,
            "its registers are its own"
        );
        // Another answer stops it.
        world.kernel().exception(exception);
        world.reply_recv(handler, endpoint, reply, 1, [7; 4]);
        assert_eq!(world.state(thread), State::Stopped);
        assert!(world.core.current.is_none() && world.machine.console.is_empty());
    });
}

#[test]
fn a_fault_without_a_handler_stops_the_thread_and_says_so() {
    both(|world| {
        let (thread, other) = (world.thread(10), world.thread(5));
        world.kernel().exception(Exception { number: 6, error: 0, address: 0 });
        assert_eq!(world.state(thread), State::Stopped);
        assert!(world.runs(other));
        assert!(world.machine.console.contains("exception 6"), "{}", world.machine.console);
    });
}

#[test]
fn interrupt_work_has_the_priority_of_who_asked_for_it() {
    both(|world| {
        let (endpoint, reply) = (world.make(Kind::Endpoint, 0), world.make(Kind::Reply, 0));
        let irq = world.make(Kind::Notification, 0);
        let driver = world.thread_of(5, Policy::Pibs, 100_000, 10 * MS);
        world.recv(driver, endpoint, reply, NEVER);
        let between = world.thread_of(20, Policy::Full, 0, MS);
        let wakes = world.make(Kind::Notification, 0);
        world.wait(between, wakes, NEVER);
        let client = world.thread_of(30, Policy::Sporadic, MS, 10 * MS);
        world.call(client, endpoint, 0, WORDS);
        assert!(world.runs(driver));
        world.signal(wakes);
        assert!(world.runs(driver), "at its client's priority");
        world.wait(driver, irq, NEVER);
        assert!(world.runs(between));
        world.signal(irq);
        assert!(world.runs(driver), "also when it is woken by the interrupt");
        assert_eq!(world.machine.get(driver.at).priority, 30);
    });
}

/// Also if it had worked for a more important requester before, without a pause.
#[test]
fn the_next_requests_priority_counts_from_when_it_is_taken_up() {
    both(|world| {
        let (endpoint, reply) = (world.make(Kind::Endpoint, 0), world.make(Kind::Reply, 0));
        let irq = world.make(Kind::Notification, 0);
        let driver = world.thread_of(5, Policy::Pibs, 100_000, 10 * MS);
        world.recv(driver, endpoint, reply, NEVER);
        let between = world.thread_of(100, Policy::Full, 0, MS);
        let (idle, wakes) = (world.make(Kind::Notification, 0), world.make(Kind::Notification, 0));
        world.wait(between, idle, NEVER);
        let important = world.thread_of(200, Policy::Sporadic, MS, 10 * MS);
        world.wait(important, wakes, NEVER);
        // The driver is busy with a first request when the others come.
        let first = world.thread_of(10, Policy::Sporadic, MS, 10 * MS);
        world.call(first, endpoint, 0, WORDS);
        assert!(world.runs(driver));
        let last = world.thread_of(11, Policy::Sporadic, MS, 20 * MS);
        world.call(last, endpoint, 0, WORDS);
        world.signal(wakes);
        world.call(important, endpoint, 0, WORDS);
        assert!(world.runs(driver));
        for priority in [200, 11] {
            world.reply_recv(driver, endpoint, reply, 0, WORDS);
            if priority == 200 {
                assert!(world.runs(driver));
            } else {
                assert!(world.runs(important), "above what is done for the last one");
                world.wait(important, wakes, NEVER);
            }
            world.audit();
            assert_eq!(world.machine.get(driver.at).priority, priority);
        }
        let context = world.machine.get(driver.at).context;
        assert_eq!(world.machine.get(context).time.account().period(), 20 * MS);
        // Its interrupts are the last one's work, too.
        assert!(world.runs(driver));
        world.wait(driver, irq, NEVER);
        world.signal(idle);
        assert!(world.runs(between));
        world.signal(irq);
        assert!(world.runs(between), "it is not the important one's work any more");
    });
}

#[test]
fn a_context_without_time_runs_when_it_is_given_some() {
    both(|world| {
        let thread = world.passive(10);
        let context = world.make(Kind::Context, 9);
        world.does(context, label::BIND, [thread.cap.into(), 0, 0, 0]);
        world.resume(thread);
        world.audit();
        assert!(world.core.current.is_none());
        world.does(World::CONTROL, label::SET_CONTEXT, [context.into(), MS, 10 * MS, 0]);
        assert!(world.runs(thread));
        // Again, while it runs; then it goes, with its place.
        world.does(
            World::CONTROL,
            label::SET_CONTEXT,
            [u64::from(context) | 1 << 32, MS, 10 * MS, 0],
        );
        assert!(world.runs(thread));
        let reserved = world.core.scheduler.reserved();
        world.delete(context);
        assert_eq!(
            (world.core.scheduler.reserved(), world.core.current.is_none()),
            (reserved - 1, true)
        );
    });
}

#[test]
fn in_the_background_the_end_of_a_budget_is_not_told() {
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let (handler, _) = world.server(100, endpoint);
        let thread = world.thread_of(20, Policy::Sporadic, MS, 10 * MS);
        let what = u64::from(thread.context) | 1 << 40;
        world.does(World::CONTROL, label::SET_CONTEXT, [what, MS, 10 * MS, 0]);
        world.does(thread.cap, label::SET_TIMEOUT, [endpoint.into(), 0, 0, 0]);
        world.pass(world.machine.time + 2 * MS);
        assert!(world.runs(thread) && world.core.scheduler.is_in_background());
        let other = world.thread(1);
        assert!(world.runs(other));
        assert_eq!(world.state(handler), State::Receiving);
    });
}

#[test]
fn vector_registers_change_hands_with_those_that_use_them() {
    both(|world| {
        let [first, second] = [10, 10].map(|priority| world.thread(priority));
        assert_eq!(world.machine.vectors, None);
        world.does(first.cap, label::SET_FPU, [1, 0, 0, 0]);
        assert!(world.machine.vectors.is_some());
        world.yields(first);
        assert!(world.runs(second) && world.machine.vectors.is_none());
        world.yields(second);
        assert!(world.machine.vectors.is_some());
        world.delete(first.cap);
        assert!(world.machine.vectors.is_none());
    });
}

/// A processor has registers that no thread keeps, such as selectors: programs could make a channel of them.
#[test]
fn a_thread_has_its_pointer_and_nothing_that_another_left() {
    both(|world| {
        let [first, second] = [10, 10].map(|priority| world.thread(priority));
        world.does(second.cap, label::SET_POINTER, [0x2000, 0, 0, 0]);
        assert_eq!((world.runs(first), world.machine.pointer), (true, 0));
        // Its own is in use at once.
        world.method(first, first.cap, label::SET_POINTER, [0x1000, 0, 0, 0]).unwrap();
        assert_eq!(world.machine.pointer, 0x1000);
        let end = bulkhead_kernel_fake::USER_END;
        let beyond = world.method(first, first.cap, label::SET_POINTER, [end, 0, 0, 0]);
        assert_eq!(beyond, Err(Code::OutOfRange));
        world.machine.left = 7;
        world.yields(first);
        assert_eq!(
            (world.runs(second), world.machine.pointer, world.machine.left),
            (true, 0x2000, 0)
        );
        // By an interrupt, and after a thread has gone.
        world.machine.left = 7;
        world.delete(second.cap);
        assert_eq!(
            (world.runs(first), world.machine.pointer, world.machine.left),
            (true, 0x1000, 0)
        );
        world.does(first.cap, label::SUSPEND, [0; 4]);
        world.does(first.cap, label::START, [0x1000, 0x2000, 0, 0]);
        assert_eq!((world.runs(first), world.machine.pointer), (true, 0x1000));
    });
}

#[test]
fn registers_are_read_and_written_of_who_does_not_run() {
    both(|world| {
        let (thread, other) = (world.thread(20), world.thread(10));
        let words = [0x1234, 0x5678, 9, 10];
        let own = world.method(thread, thread.cap, label::WRITE_REGISTERS, words);
        assert_eq!(own, Err(Code::BadState));
        // A waiting thread ends to wait.
        let notification = world.make(Kind::Notification, 0);
        world.wait(thread, notification, NEVER);
        world.method(other, thread.cap, label::WRITE_REGISTERS, words).unwrap();
        assert_eq!(world.state(thread), State::Stopped);
        let read = world.method(other, thread.cap, label::READ_REGISTERS, [0; 4]).unwrap();
        assert_eq!(read[..2], words[..2]);
        world.resume(thread);
        assert!(world.runs(thread));
    });
}
