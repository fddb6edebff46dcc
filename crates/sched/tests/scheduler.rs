//! The scheduler against a look at all contexts: whatever is called in whatever order, the right
//! one runs and the timer is right.

use bulkhead_sched::{
    Context, Decision, Full, Id, Pibs, Policy, Refill, Requester, Scheduler, Server, Time,
    Utilization,
};
use proptest::prelude::*;

type Contexts = Vec<Context<[Refill; 3]>>;

#[derive(Clone, Debug)]
enum Call {
    Wake(usize),
    Block(usize),
    Priority(usize, u8),
    Request(usize, u8, Time),
    Budget(usize, Time, Time),
    /// Only time passes, at most up to the timer.
    Pass(Time),
    /// Time passes, up to the timer.
    Timer,
}

/// Few priorities, so that they are shared; at both ends of the words of a bitmap.
fn priority() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![0, 1, 63, 64, 65, 127, 128, 200, 255])
}

fn call() -> impl Strategy<Value = Call> {
    let id = 0usize..64;
    prop_oneof![
        6 => id.clone().prop_map(Call::Wake),
        2 => id.clone().prop_map(Call::Block),
        1 => (id.clone(), priority()).prop_map(|(id, to)| Call::Priority(id, to)),
        1 => (id.clone(), priority(), 1u64..50).prop_map(|(id, to, t)| Call::Request(id, to, t)),
        1 => (id, 0u64..20, 1u64..40).prop_map(|(id, c, t)| Call::Budget(id, c, t)),
        3 => (0u64..9).prop_map(Call::Pass),
        6 => Just(Call::Timer),
    ]
}

fn context() -> impl Strategy<Value = Context<[Refill; 3]>> {
    let policy = (0u8..6, 1u64..12, 0u64..40).prop_map(|(kind, budget, more)| {
        let (period, items) = (budget + more, [Refill::default(); 3]);
        let utilization = Utilization::new(budget as u32, 13).unwrap();
        match kind {
            0 => Policy::Full(Full::new(period).unwrap()),
            1 => Policy::Pibs(Pibs::new(utilization, 0, 13 + more, 0).unwrap()),
            2 => Policy::Server(Server::strict(budget, period, 0, items).unwrap()),
            _ => Policy::Server(Server::sporadic(budget, period, 0, items).unwrap()),
        }
    });
    (policy, priority()).prop_map(|(policy, priority)| Context::new(policy, priority))
}

/// Where a context stands: with budget at its priority, in the background, or nowhere.
fn level(context: &Context<[Refill; 3]>, in_background: bool, now: Time) -> Option<u16> {
    let priority = u16::from(context.priority());
    match context.eligible() <= now {
        true => Some(256 + priority),
        false => in_background.then_some(priority),
    }
    .filter(|_| context.is_wanted())
}

/// What a decision has to be.
fn check(
    contexts: &Contexts,
    in_background: &[bool],
    core: &Scheduler<Vec<Id>>,
    decision: Decision,
    now: Time,
) -> Result<(), TestCaseError> {
    let levels: Vec<_> =
        contexts.iter().zip(in_background).map(|(c, b)| level(c, *b, now)).collect();
    let running = decision.run.map(|id| usize::from(id.0));
    let own = running.and_then(|n| levels[n]);
    prop_assert_eq!(own, levels.iter().copied().flatten().max());
    prop_assert_eq!(core.is_in_background(), own.is_some_and(|level| level < 256));
    for server in contexts.iter().filter_map(Context::server) {
        let sum: Time = server.refills().iter().map(|refill| refill.amount).sum();
        prop_assert_eq!(sum, server.budget());
        prop_assert!(server.refills().iter().is_sorted_by_key(|refill| refill.time));
    }
    let waiting: Vec<_> = contexts.iter().filter(|c| c.is_wanted() && c.eligible() > now).collect();
    let matters = waiting.iter().filter(|c| Some(256 + u16::from(c.priority())) > own);
    let release = matters.map(|c| c.eligible()).min();
    let timer = decision.timer.unwrap_or(Time::MAX);
    prop_assert!(timer > now || own.is_some());
    prop_assert!(timer <= release.unwrap_or(Time::MAX), "{} after {:?}", timer, release);
    let left = running.map(|n| match contexts[n].policy() {
        Policy::Server(server) => server.left(),
        Policy::Pibs(pibs) => pibs.left(),
        Policy::Full(_) => Time::MAX,
    });
    if let Some(left) = left.filter(|left| *left < Time::MAX && own >= Some(256)) {
        prop_assert!(timer <= now + left, "{} after the budget's end", timer);
        // Due ones that do not matter may still be queued behind.
        let queued = contexts.iter().filter(|c| c.is_wanted()).count();
        if queued <= 15 {
            let exact = release.map_or(now + left, |release| release.min(now + left));
            prop_assert_eq!(timer, exact);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn the_right_one_runs_until_the_right_time(
        contexts in prop::collection::vec((context(), any::<bool>()), 1..64),
        calls in prop::collection::vec(call(), 1..200),
    ) {
        let in_background: Vec<bool> = contexts.iter().map(|(_, background)| *background).collect();
        let context = |(context, background): (Context<_>, bool)| {
            if background { context.in_background() } else { context }
        };
        let mut contexts: Contexts = contexts.into_iter().map(context).collect();
        let mut core = Scheduler::new(vec![Id(0); contexts.len()], 0);
        let (mut now, mut timer) = (0, None);
        for call in calls {
            let count = contexts.len();
            let (id, all) = (|n: usize| Id((n % count) as u16), &mut contexts[..]);
            match call {
                Call::Wake(n) => core.wake(all, id(n), now),
                Call::Block(n) => core.block(all, id(n), now),
                Call::Priority(n, priority) => core.set_priority(all, id(n), priority, now),
                Call::Request(n, priority, period) => {
                    // Refused where the period is too short: then nothing may have changed.
                    let _ = core.request(all, id(n), Requester { priority, period }, now);
                }
                Call::Budget(n, budget, period) => {
                    let before = all[n % count].budget();
                    let set = core.set_budget(all, id(n), (budget, period), now);
                    let server = all[n % count].server().is_some();
                    let expected = if set.is_ok() && server { budget } else { before };
                    prop_assert_eq!(all[n % count].budget(), expected);
                }
                Call::Pass(ticks) => now = timer.unwrap_or(Time::MAX).min(now + ticks),
                Call::Timer => now = timer.unwrap_or(now),
            }
            let decision = core.schedule(&mut contexts[..], now);
            timer = decision.timer;
            check(&contexts, &in_background, &core, decision, now)?;
        }
    }
}
