//! Chains of calls on time that ends. Whatever kind of context the client has, the servers' work is charged to it. The
//! tests also look at the handler that is told of the end, where it is told, and its possible answers.

use bulkhead_kernel_fake::kernel::abi::{Address, Code, Kind, Policy, label};
use bulkhead_kernel_fake::kernel::{State, Time};
use bulkhead_kernel_fake::{Chain, Thread, World, both};

const NEVER: Time = Time::MAX;
const WORDS: [u64; 4] = [1, 2, 3, 4];
const MS: Time = 1_000_000;

/// How long a context ran since this was asked last.
fn consumed(world: &mut World, context: Address) -> Time {
    world.does(context, label::CONSUMED, [0; 4])[0]
}

#[test]
fn all_work_in_a_chain_is_the_clients() {
    let kinds = [
        (Policy::Sporadic, MS, 10 * MS),
        (Policy::Strict, MS, 10 * MS),
        (Policy::Pibs, 100_000, 10 * MS),
        (Policy::Full, 0, 10 * MS),
    ];
    for (policy, budget, period) in kinds {
        both(|world| {
            let chain = Chain::of(world, policy, budget, period);
            let start = world.machine.time;
            world.pass(start + 100_000);
            world.reply_recv(chain.last, chain.endpoints[1], chain.replies[1], 1, WORDS);
            world.pass(start + 300_000);
            assert!(world.runs(chain.middle));
            world.reply_recv(chain.middle, chain.endpoints[0], chain.replies[0], 2, WORDS);
            world.pass(start + 600_000);
            assert!(world.runs(chain.client), "{policy:?}");
            world.audit();
            let left = world.machine.timer - world.machine.time;
            let whole = if policy == Policy::Full { period } else { MS };
            assert_eq!(left, whole - 600_000, "{policy:?}");
            assert_eq!(consumed(world, chain.client.context), 0, "until it is decided anew");
            world.yields(chain.client);
            assert_eq!(consumed(world, chain.client.context), 600_000, "{policy:?}");
        });
    }
}

/// In the middle of a chain the budget ends, and it goes on with the next one.
#[test]
fn a_chain_waits_for_the_clients_refill() {
    for (policy, budget) in [(Policy::Sporadic, MS), (Policy::Strict, MS), (Policy::Pibs, 100_000)]
    {
        both(|world| {
            let start = world.machine.time;
            let chain = Chain::of(world, policy, budget, 10 * MS);
            assert_eq!(world.machine.time, start, "{policy:?}");
            world.pass(start + MS);
            world.audit();
            assert!(world.core.current.is_none(), "{policy:?}");
            assert_eq!(chain.holder(world), Some(chain.last), "who has it waits with it");
            world.pass(start + 10 * MS - 1);
            assert!(world.core.current.is_none(), "{policy:?}");
            world.pass(start + 10 * MS);
            assert!(world.runs(chain.last), "{policy:?}");
            chain.answer(world);
            assert!(world.runs(chain.client), "{policy:?}");
        });
    }
}

/// A background context's chain goes on below all others.
#[test]
fn a_chain_in_the_background_is_below_all() {
    both(|world| {
        let start = world.machine.time;
        let chain = Chain::of(world, Policy::Sporadic, MS, 10 * MS);
        let what = u64::from(chain.client.context) | (Policy::Sporadic as u64) << 32 | 1 << 40;
        world.does(World::CONTROL, label::SET_CONTEXT, [what, MS, 10 * MS, 0]);
        let idle = world.thread(1);
        assert!(world.runs(chain.last));
        world.pass(start + MS);
        assert!(world.runs(idle), "whatever the server's priority is");
        world.does(idle.cap, label::SUSPEND, [0; 4]);
        assert!(world.runs(chain.last), "nobody else wants to run");
        chain.answer(world);
        assert!(world.runs(chain.client));
        world.resume(idle);
        assert!(world.runs(idle));
        world.pass(start + 10 * MS);
        assert!(world.runs(chain.client), "with its refill it is above again");
    });
}

/// A PIBS client has its servers' priorities while they work for it, and its requester's again afterwards.
#[test]
fn a_drivers_servers_do_not_change_for_whom_it_works() {
    both(|world| {
        let chain = Chain::of(world, Policy::Pibs, 100_000, 10 * MS);
        let between = world.thread(20);
        assert!(world.runs(chain.last), "its own priority is 60");
        let asks = world.context(Policy::Sporadic, MS, 10 * MS);
        world.does(chain.client.context, label::SERVE, [asks.into(), 0, 0, 0]);
        world.audit();
        assert!(world.runs(chain.last), "the ceiling is the server's, whoever the work is for");
        world.reply_recv(chain.last, chain.endpoints[1], chain.replies[1], 1, WORDS);
        assert!(world.runs(chain.middle));
        world.reply_recv(chain.middle, chain.endpoints[0], chain.replies[0], 1, WORDS);
        world.audit();
        assert!(world.runs(between), "for somebody at no priority");
        world.does(between.cap, label::SUSPEND, [0; 4]);
        assert!(world.runs(chain.client));
    });
}

/// A chain of servers with a handler that hears of the end of budgets.
struct Handled {
    chain: Chain,
    handler: Thread,
    endpoint: Address,
    reply: Address,
}

impl Handled {
    /// The chain's budget has ended, and the handler was told for the running server.
    fn new(world: &mut World) -> Self {
        let (endpoint, reply) = (world.make(Kind::Endpoint, 0), world.make(Kind::Reply, 0));
        let handler = world.thread(100);
        world.recv(handler, endpoint, reply, NEVER);
        let chain = Chain::of(world, Policy::Sporadic, MS, 10 * MS);
        for thread in [chain.middle, chain.last] {
            world.does(thread.cap, label::SET_TIMEOUT, [endpoint.into(), 0, 0, 0]);
        }
        world.pass(world.machine.time + MS);
        world.audit();
        assert!(world.runs(handler));
        let came = world.came(handler);
        let badge = u64::from(chain.client.context);
        let words = [badge, MS, 0, chain.last.cap.into()];
        assert_eq!((came.info.label(), came.words), (label::TIMEOUT, words));
        assert_eq!(chain.holder(world), Some(chain.last));
        Self { chain, handler, endpoint, reply }
    }

    fn answer(&self, world: &mut World, label: u64) {
        world.reply_recv(self.handler, self.endpoint, self.reply, label, [0; 4]);
        world.audit();
    }
}

#[test]
fn who_is_let_wait_deep_in_a_chain_goes_on_with_the_refill() {
    both(|world| {
        let handled = Handled::new(world);
        let chain = handled.chain;
        handled.answer(world, 0);
        assert!(world.core.current.is_none());
        world.pass(world.machine.time + 9 * MS);
        assert!(world.runs(chain.last));
        chain.answer(world);
        assert!(world.runs(chain.client));
    });
}

#[test]
fn who_gets_more_deep_in_a_chain_goes_on_at_once() {
    both(|world| {
        let handled = Handled::new(world);
        let words = [handled.chain.client.context.into(), 2 * MS, 10 * MS, 9];
        world.method(handled.handler, World::CONTROL, label::SET_CONTEXT, words).unwrap();
        handled.answer(world, 0);
        assert!(world.runs(handled.chain.last));
        handled.chain.answer(world);
        assert!(world.runs(handled.chain.client));
    });
}

/// A stopped server has no time any more: its caller has it again, and waits on.
#[test]
fn who_is_stopped_deep_in_a_chain_gives_the_time_back() {
    both(|world| {
        let handled = Handled::new(world);
        let chain = handled.chain;
        handled.answer(world, 1);
        assert_eq!(world.state(chain.last), State::Stopped);
        assert_eq!(chain.holder(world), Some(chain.middle));
        world.delete(chain.replies[1]);
        world.audit();
        assert!(world.core.current.is_none(), "there is no budget");
        world.pass(world.machine.time + 9 * MS);
        assert!(world.runs(chain.middle));
        assert_eq!(world.came(chain.middle).status.code(), Some(Code::Cancelled));
        world.reply_recv(chain.middle, chain.endpoints[0], chain.replies[0], 3, WORDS);
        assert!(world.runs(chain.client));
    });
}

/// The last server is taken back to its beginning, and the one in the middle answered in its place, with nothing. That
/// one goes on when the client has budget.
#[test]
fn who_is_rolled_back_deep_in_a_chain_lets_the_others_go_on() {
    both(|world| {
        let handled = Handled::new(world);
        let (chain, handler) = (handled.chain, handled.handler);
        let words = [0x5000, 0x6000, 0, 0];
        world.method(handler, chain.last.cap, label::WRITE_REGISTERS, words).unwrap();
        world.audit();
        world.reply(handler, chain.replies[1], 99, [0; 4]);
        world.audit();
        assert_eq!(world.came(chain.middle).info.label(), 99);
        assert_eq!(chain.holder(world), Some(chain.middle));
        let spare = world.context(Policy::Full, 0, MS);
        world.method(handler, spare, label::BIND, [chain.last.cap.into(), 1, 0, 0]).unwrap();
        world.method(handler, chain.last.cap, label::RESUME, [0; 4]).unwrap();
        world.recv(handler, handled.endpoint, handled.reply, NEVER);
        assert!(world.runs(chain.last));
        world.recv(chain.last, chain.endpoints[1], chain.replies[1], NEVER);
        world.audit();
        assert!(world.core.current.is_none());
        world.pass(world.machine.time + 9 * MS);
        assert!(world.runs(chain.middle));
        // It asks again, and there is budget for it now.
        world.call(chain.middle, chain.endpoints[1], 8, WORDS);
        assert!(world.runs(chain.last));
        chain.answer(world);
        assert!(world.runs(chain.client));
    });
}

/// The running server's handler is asked, not the waiting client's: a client's own handler hears nothing of its
/// servers.
#[test]
fn the_end_of_a_budget_is_told_to_the_handler_of_who_runs() {
    both(|world| {
        let (endpoint, reply) = (world.make(Kind::Endpoint, 0), world.make(Kind::Reply, 0));
        let handler = world.thread(100);
        world.recv(handler, endpoint, reply, NEVER);
        let start = world.machine.time;
        let chain = Chain::of(world, Policy::Sporadic, MS, 10 * MS);
        world.does(chain.client.cap, label::SET_TIMEOUT, [endpoint.into(), 0, 0, 0]);
        world.does(chain.middle.cap, label::SET_TIMEOUT, [endpoint.into(), 0, 0, 0]);
        world.pass(start + MS);
        assert!(world.core.current.is_none());
        world.pass(start + 10 * MS);
        assert!(world.runs(chain.last));
        world.reply_recv(chain.last, chain.endpoints[1], chain.replies[1], 1, WORDS);
        world.pass(start + 11 * MS);
        assert!(world.runs(handler), "the one in the middle runs now");
        assert_eq!(world.came(handler).words[3], chain.middle.cap.into());
    });
}

/// A handler without time of its own would need that which has ended: it hears of it with the next refill.
#[test]
fn a_passive_handler_deep_in_a_chain_waits_for_the_refill() {
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let (handler, reply) = world.server(100, endpoint);
        let start = world.machine.time;
        let chain = Chain::of(world, Policy::Sporadic, MS, 10 * MS);
        world.does(chain.last.cap, label::SET_TIMEOUT, [endpoint.into(), 0, 0, 0]);
        world.pass(start + MS);
        world.audit();
        assert!(world.core.current.is_none());
        world.pass(start + 10 * MS);
        assert!(world.runs(handler));
        assert_eq!(world.came(handler).words[3], chain.last.cap.into());
        world.reply_recv(handler, endpoint, reply, 0, [0; 4]);
        world.audit();
        assert!(world.runs(chain.last));
        chain.answer(world);
        assert!(world.runs(chain.client));
    });
}
