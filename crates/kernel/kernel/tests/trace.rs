//! The events that a machine is told agree with the kernel's acts, and they add up.

use bulkhead_kernel_fake::kernel::abi::{Kind, Policy, label};
use bulkhead_kernel_fake::kernel::{Event, Machine as _, Ref, Time};
use bulkhead_kernel_fake::random::Chaos;
use bulkhead_kernel_fake::{Thread, World};
use bulkhead_random::SplitMix64;
use bulkhead_trace::{Budget, EVENTS, Item, Record, Timeline, Writer, check};
use std::collections::{BTreeMap, BTreeSet};

const MS: Time = 1_000_000;
const WORDS: [u64; 4] = [1, 2, 3, 4];

fn listen(world: &mut World) {
    world.machine.told = Some((Writer::new(), Vec::new()));
}

fn told(world: &World) -> &[Record] {
    world.machine.told.as_ref().map_or(&[], |(_, records)| records)
}

/// The running thread and its context, as the kernel has them.
fn runs(world: &World) -> Option<(u32, u32)> {
    let current = world.core.current.some()?;
    Some((current.at(), world.machine.get(current).context.at()))
}

#[test]
fn whatever_happens_it_is_told_who_runs() {
    let mut kinds = BTreeSet::new();
    for seed in 0..300 {
        let mut chaos = Chaos::new(SplitMix64(seed), seed % 2 == 0);
        chaos.world.settle();
        listen(&mut chaos.world);
        chaos.world.settle();
        for _ in 0..300 {
            chaos.step(false).expect("nothing is checked");
            if chaos.world.core.undecided != 0 {
                // A method of the host's own, not a call.
                chaos.world.settle();
            }
            let (writer, _) = chaos.world.machine.told.as_ref().expect("it listens");
            assert_eq!(writer.runs(), runs(&chaos.world), "{:#?}", chaos.log().last());
        }
        let records = told(&chaos.world);
        assert!(records.is_sorted_by_key(|record| record.ticks));
        kinds.extend(records.iter().map(|record| u64::from(record.event.encode().0)));
    }
    let missing = EVENTS.iter().filter(|event| !kinds.contains(&event.number));
    assert_eq!(missing.map(|event| event.name).collect::<Vec<_>>(), [""; 0], "never told");
}

#[test]
fn a_notification_lends_its_context_and_has_it_back() {
    let mut world = World::new();
    let notification = world.make(Kind::Notification, 0);
    let works = world.thread(50);
    world.wait(works, notification, Time::MAX);
    world.does(works.context, label::UNBIND, [0; 4]);
    world.does(works.context, label::BIND, [notification.into(), 0, 0, 0]);
    world.does(World::INTERRUPT, label::SET_NOTIFICATION, [notification.into(), 0, 0, 0]);
    world.settle();
    listen(&mut world);
    world.interrupt();
    assert!(world.runs(works));
    world.wait(works, notification, Time::MAX);
    let at = |address: u32| world.cap(address).object;
    let (signal, to, context) = (at(notification), at(works.cap), at(works.context));
    let kept = |event: &Event| !matches!(event, Event::Run { .. } | Event::Leave { .. });
    let told: Vec<_> = told(&world).iter().map(|record| record.event).filter(kept).collect();
    assert_eq!(
        told,
        [
            Event::Interrupt {
                number: bulkhead_kernel_fake::NUMBER,
                notification: signal,
                again: 0
            },
            Event::Lend { notification: signal, to, context: context.into() },
            Event::Return { from: to, to: 0, context: context.into() },
        ]
    );
}

/// Clients of a passive server, which calls another one, and a thread that runs whenever it can.
struct Load {
    world: World,
    clients: Vec<Thread>,
    endpoints: [u32; 2],
    replies: [u32; 2],
    /// A notification that is never signalled.
    sleep: u32,
    servers: [Thread; 2],
    budgets: BTreeMap<u32, Budget>,
}

impl Load {
    fn new(fast: bool) -> Self {
        let mut world = World::new();
        world.fast = fast;
        let endpoints = [world.make(Kind::Endpoint, 0), world.make(Kind::Endpoint, 0)];
        let (first, reply) = world.server(60, endpoints[0]);
        let (second, other) = world.server(70, endpoints[1]);
        let sleep = world.make(Kind::Notification, 0);
        let mut budgets = BTreeMap::new();
        let mut clients = Vec::new();
        for (priority, policy, budget, period) in [
            (30, Policy::Strict, MS / 5, MS),
            (20, Policy::Sporadic, MS / 2, 3 * MS),
            (10, Policy::Sporadic, 2 * MS, 7 * MS),
        ] {
            let client = world.thread_of(priority, policy, budget, period);
            let context: Ref<bulkhead_kernel_fake::kernel::Context> =
                world.cap(client.context).at();
            budgets
                .insert(context.at(), Budget { budget, period, strict: policy == Policy::Strict });
            clients.push(client);
        }
        clients.push(world.thread(5));
        listen(&mut world);
        world.settle();
        let (replies, servers) = ([reply, other], [first, second]);
        Self { world, clients, endpoints, replies, sleep, servers, budgets }
    }

    /// The running thread makes a call that is allowed, or time passes.
    fn step(&mut self, source: &mut SplitMix64) {
        let Self { world, endpoints: [first, second], replies, sleep, .. } = self;
        let Some(current) = world.core.current.some() else { return world.next() };
        let who = |thread: &&Thread| thread.at == current;
        let busy = world.machine.time + 1 + source.below(MS / 10);
        let server = self.servers.iter().position(|thread| thread.at == current);
        match (server, source.below(3)) {
            (_, 0) => world.pass(busy),
            (Some(0), 1) => world.call(self.servers[0], *second, 0, WORDS),
            (Some(n), _) => {
                world.reply_recv(self.servers[n], [*first, *second][n], replies[n], 0, WORDS);
            }
            (None, choice) => {
                let client = *self.clients.iter().find(who).expect("nobody else is there");
                match choice {
                    1 if source.below(2) == 0 => {
                        let until = world.machine.time + MS / 4;
                        world.wait(client, *sleep, until);
                    }
                    1 => world.yields(client),
                    _ => world.call(client, *first, 0, WORDS),
                }
            }
        }
    }

    fn timeline(&self) -> Timeline {
        let items = told(&self.world).iter().copied().map(Item::Record).collect();
        Timeline { items, hz: 1_000_000_000 }
    }
}

fn load(seed: u64, fast: bool) -> Load {
    let (mut load, mut source) = (Load::new(fast), SplitMix64(seed));
    (0..2_000).for_each(|_| load.step(&mut source));
    load
}

/// Without charges that the short ways make later.
fn without_rest(record: &Record) -> Record {
    let event = match record.event {
        Event::Run { thread, context, .. } => Event::Run { thread, context, rest: 0 },
        event => event,
    };
    Record { event, ..*record }
}

#[test]
fn what_is_told_adds_up() {
    for seed in 0..20 {
        let load = load(seed, true);
        let timeline = load.timeline();
        // The world's kernel takes no time.
        let figures =
            check(&timeline, &load.budgets, 0).unwrap_or_else(|why| panic!("{seed}: {why}"));
        assert!(figures.donations > 100, "{figures:?}");
        // Two servers can be in a call at most.
        assert!(figures.open.len() <= 2, "{figures:?}");
        for client in &load.clients {
            let context: Ref<bulkhead_kernel_fake::kernel::Context> =
                load.world.cap(client.context).at();
            assert!(figures.contexts.contains_key(&context.at()), "{client:?} never ran");
        }
        let ran: Time = figures.threads.values().sum();
        assert_eq!(ran, figures.contexts.values().sum::<Time>());
        assert!(ran <= timeline.length() && ran > 0, "{ran} {}", timeline.length());
    }
}

#[test]
fn the_short_ways_tell_the_same() {
    for seed in 0..20 {
        let [short, long] = [true, false].map(|fast| {
            let load = load(seed, fast);
            told(&load.world).iter().map(without_rest).collect::<Vec<_>>()
        });
        let differ = short.iter().zip(&long).position(|(a, b)| a != b);
        assert_eq!(differ.map(|n| (&short[n], &long[n])), None, "of seed {seed}");
        assert_eq!(short.len(), long.len());
    }
}

#[test]
fn what_does_not_add_up_is_seen() {
    let load = load(1, true);
    let timeline = load.timeline();
    let less = load
        .budgets
        .iter()
        .map(|(at, budget)| (*at, Budget { budget: budget.budget / 2, ..*budget }));
    check(&timeline, &less.collect(), 0).expect_err("half of each budget");
    let without = |kind: u8| {
        let keep = |item: &&Item| !matches!(item, Item::Record(r) if r.event.encode().0 == kind);
        let items = timeline.items.iter().filter(keep).copied().collect();
        check(&Timeline { items, ..timeline.clone() }, &load.budgets, 0)
    };
    let (returns, donations) = (7, 6);
    without(returns).expect_err("contexts that do not come back");
    without(donations).expect_err("contexts that nobody gave");
    let mut late = timeline.clone();
    late.items.swap(10, 400);
    check(&late, &load.budgets, 0).expect_err("time that goes back");
}
