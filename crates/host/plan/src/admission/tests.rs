//! Analyses of small kernels, worked out by hand.

use super::*;
use crate::Place;
use crate::kernel::{
    Budget, Call, ChannelUse, Context, DeviceUse, Driven, Endpoint, Interrupt, Notification,
    Policy, Program, Signal, Test, Thread, User, Utilization,
};

/// Nothing yet; the kernel's own work is for nothing.
fn kernel() -> Kernel {
    Kernel { file: "k".into(), ..Kernel::default() }
}

impl Kernel {
    /// A program that calls and serves endpoints, with one thread.
    fn program(&mut self, priority: u8, calls: &[usize], serves: &[usize]) -> &mut Thread {
        let program = self.programs.len();
        let call = |endpoint: &usize| Call { endpoint: *endpoint, badge: 0, grant: false };
        self.programs.push(Program {
            name: format!("p{program}"),
            calls: calls.iter().map(call).collect(),
            serves: serves.to_vec(),
            ..Program::default()
        });
        self.threads.push(Thread {
            name: format!("t{program}"),
            program,
            priority,
            ..Thread::default()
        });
        self.threads.last_mut().unwrap()
    }

    /// Adds a program with a context.
    fn active(&mut self, policy: Policy, priority: u8, calls: &[usize]) -> usize {
        let context = self.contexts.len();
        self.program(priority, calls, &[]).context = Some(context);
        self.contexts.push(Context {
            name: format!("c{context}"),
            place: Place::default(),
            policy,
            background: false,
            guaranteed: true,
            activations: 1,
            user: User::Thread(self.threads.len() - 1),
        });
        context
    }

    fn calls(&mut self, program: usize, endpoint: usize) {
        self.programs[program].calls.push(Call { endpoint, badge: 0, grant: false });
    }

    fn endpoint(&mut self, longest: Option<u64>) -> usize {
        let name = "e".into();
        self.endpoints.push(Endpoint { name, place: Place::default(), longest });
        self.endpoints.len() - 1
    }
}

fn look(kernel: &Kernel) -> Analysis<'_> {
    Analysis::new(kernel)
}

const fn server(budget: u64, period: u64) -> Policy {
    Policy::Sporadic(Budget { budget, period, refills: 8 })
}

/// The VCPUs of figure 7 of the Quest-V article.
fn figure_7() -> Kernel {
    let mut kernel = kernel();
    kernel.active(server(10, 40), 2, &[]);
    kernel.active(server(20, 50), 1, &[]);
    let utilization = Utilization::new(1, 25).unwrap();
    kernel.active(Policy::Pibs { utilization, period: 50 }, 0, &[]);
    // The second one asks.
    let endpoint = kernel.endpoint(None);
    kernel.calls(1, endpoint);
    kernel.programs[2].serves.push(endpoint);
    kernel
}

#[test]
fn figure_7_is_admitted() {
    let kernel = figure_7();
    assert_eq!(kernel.sum().to_string(), "72.84000 %");
    assert_eq!([0, 1].map(|n| look(&kernel).response(n)), [Ok(10), Ok(33)]);
    assert_eq!(look(&kernel).unanalysed(0), []);
    assert_eq!(look(&kernel).unanalysed(1), [Unanalysed::Answer { endpoint: 0 }]);
    let sum = look(&kernel).utilization(1).unwrap();
    assert_eq!((sum.sum, sum.limit, sum.contexts), (kernel.sum(), Share::bound(2), 2));
    for test in [Test::Bound, Test::Response, Test::None] {
        assert_eq!(look(&kernel).refusals(test), []);
    }
    // Above the first one it can work for its own period, in a budget that is counted once.
    let mut kernel = kernel;
    kernel.threads[2].priority = 3;
    assert_eq!([0, 1].map(|n| look(&kernel).response(n)), [Ok(12), Ok(33)]);
}

#[test]
fn the_kernels_work_counts() {
    let mut kernel = figure_7();
    kernel.overhead = 2;
    kernel.contexts[0].activations = 2;
    // 22 + 14 + 2 + floor((39 - 2) / 25).
    assert_eq!([0, 1].map(|n| look(&kernel).response(n)), [Ok(14), Ok(39)]);
    assert_eq!(kernel.sum().to_string(), "86.84000 %");
    let Refusal::Above { context: 1, sum } = look(&kernel).refusals(Test::Bound)[0] else {
        panic!()
    };
    assert_eq!(sum.sum.above(sum.limit).to_string(), "3.99729 %");
}

/// The time that entries take of a budget: timers of contexts above, a driver's activations, its interrupts and
/// others' doorbells.
#[test]
fn entries_are_charged_to_whoever_runs() {
    let mut kernel = figure_7();
    assert_eq!([0, 1].map(|n| look(&kernel).entered(n)), [Ok(0), Ok(0)]);
    kernel.overhead = 2;
    kernel.contexts[0].activations = 2;
    // Within 39: two activations of the first, 2 each, and those of a job before; the driver's 2 and
    // floor((39 - 2) / 25).
    assert_eq!([0, 1].map(|n| look(&kernel).entered(n)), [Ok(0), Ok(2 * 4 + 3)]);
    kernel.contexts[0].activations = 1;
    let response = look(&kernel).response(1).unwrap();
    assert_eq!(look(&kernel).entered(1), Ok(2 + 2 + (response - 2) / 25));
    kernel.contexts[0].activations = 2;
    // Two entries of interrupts before the driver runs, and twice as much again while it does.
    let interrupts = vec![Interrupt { number: 0, notification: 0, bits: 1 }];
    let device = Driven::Device(0);
    kernel.programs[2].devices.push(DeviceUse { device, interrupts, dma: Vec::new() });
    (kernel.overhead, kernel.contexts[0].activations, kernel.contexts[1].activations) = (1, 1, 0);
    kernel.entry = 1;
    kernel.contexts[1].policy = server(18, 50);
    let response = look(&kernel).response(1).unwrap();
    assert!(response < 50, "{response}");
    let driver = 2 + (response - 2) / 25;
    assert_eq!([0, 1].map(|n| look(&kernel).entered(n)), [Ok(2), Ok(2 + 1 + 3 * driver)]);
    (kernel.doorbells, kernel.doorbell) = (vec![1_000], 1);
    assert_eq!(look(&kernel).entered(0), Ok(2 + 1));
    // Entries take their time where activations take none.
    (kernel.overhead, kernel.doorbell) = (0, 0);
    assert_eq!(look(&kernel).entered(0), Ok(2));
}

/// A context below goes on in the middle of a call at the server's priority: its beginnings are entries, too.
#[test]
fn beginnings_in_a_call_from_below_are_charged() {
    let mut kernel = kernel();
    let [endpoint, asked] = [Some(6), None].map(|longest| kernel.endpoint(longest));
    kernel.active(server(10, 40), 5, &[]);
    kernel.active(server(8, 100), 1, &[endpoint]);
    kernel.program(9, &[], &[endpoint]);
    (kernel.overhead, kernel.contexts[1].activations) = (1, 3);
    assert_eq!([look(&kernel).response(0), look(&kernel).entered(0)], [Ok(17), Ok(0)]);
    // It waits for an answer there, and goes on up to three times.
    kernel.calls(2, asked);
    kernel.active(server(1, 100), 0, &[]);
    kernel.programs[3].serves.push(asked);
    assert_eq!([look(&kernel).response(0), look(&kernel).entered(0)], [Ok(20), Ok(3)]);
    // A PIBS context has 2 for each activation, 1 of it the kernel's: the 6 take 6 activations.
    let utilization = Utilization::new(1, 50).unwrap();
    kernel.contexts[1].policy = Policy::Pibs { utilization, period: 100 };
    assert_eq!([look(&kernel).response(0), look(&kernel).entered(0)], [Ok(26), Ok(9)]);
}

#[test]
fn who_has_no_guarantee_is_not_refused() {
    let mut kernel = figure_7();
    kernel.active(server(90, 100), 0, &[]);
    let [Refusal::Late { context: 3, response }] = look(&kernel).refusals(Test::Response)[..]
    else {
        panic!()
    };
    assert!(response > 100);
    kernel.contexts[3].guaranteed = false;
    assert_eq!(look(&kernel).refusals(Test::Response), []);
    // Above them it still disturbs them.
    kernel.threads[3].priority = 3;
    assert_eq!(look(&kernel).refusals(Test::Response).len(), 2);
}

#[test]
fn a_strict_one_is_guaranteed_only_if_nobody_keeps_it_waiting() {
    let mut kernel = kernel();
    let strict = Policy::Strict(Budget { budget: 1, period: 10, refills: 8 });
    kernel.active(strict, 2, &[]);
    kernel.active(server(3, 7), 1, &[]);
    kernel.threads[0].priority = 3;
    kernel.contexts[1].guaranteed = false;
    assert_eq!(look(&kernel).refusals(Test::Response), []);
    // At an equal priority, or above: its own response time is still below its period.
    let refused = vec![Refusal::Delayed { context: 0, by: 1 }];
    for priority in [3, 4] {
        kernel.threads[1].priority = priority;
        assert_eq!(look(&kernel).response(0), Ok(4));
        assert_eq!(look(&kernel).refusals(Test::Response), refused);
    }
    assert_eq!(look(&kernel).refusals(Test::Bound), refused);
    assert_eq!(look(&kernel).refusals(Test::None), []);
    kernel.contexts[0].guaranteed = false;
    assert_eq!(look(&kernel).refusals(Test::Response), []);
    assert_eq!(look(&kernel).refusals(Test::Bound), []);
    // Below, but in a server above.
    kernel.contexts[0].guaranteed = true;
    kernel.threads[1].priority = 1;
    let endpoint = kernel.endpoint(Some(1));
    kernel.program(5, &[], &[endpoint]);
    kernel.calls(1, endpoint);
    // A changed kernel needs a new analysis, with the new calls.
    assert_eq!(look(&kernel).refusals(Test::Response), refused);
}

#[test]
fn a_passive_server_above_blocks() {
    let mut kernel = kernel();
    let endpoint = kernel.endpoint(Some(3));
    kernel.active(server(10, 40), 5, &[]);
    kernel.active(server(8, 100), 1, &[endpoint]);
    kernel.program(4, &[], &[endpoint]);
    assert_eq!(look(&kernel).blocking(0), None, "the server is below");
    assert_eq!(look(&kernel).response(0), Ok(10));
    kernel.threads[2].priority = 5;
    kernel.threads[1].priority = 5;
    assert_eq!(look(&kernel).blocking(0), None, "equal ones disturb as such");
    kernel.threads[1].priority = 1;
    let blocking = |time| Some(Blocking { by: 1, endpoint, others: 0, time });
    assert_eq!(look(&kernel).blocking(0), blocking(Some(3)));
    assert_eq!(look(&kernel).response(0), Ok(13));
    let sum = look(&kernel).utilization(0).unwrap();
    assert_eq!(sum.sum, Share::of(10, 40).plus(Share::of(3, 40)));
    kernel.contexts[1].policy = Policy::Full { slice: 8 };
    assert_eq!(look(&kernel).blocking(0), blocking(Some(3)));
    kernel.endpoints[endpoint].longest = None;
    let refused = Refusal::Blocked { context: 0, blocking: blocking(None).unwrap() };
    assert_eq!(look(&kernel).response(0), Err(refused));
    assert_eq!(look(&kernel).refusals(Test::Bound), [refused]);
}

/// An earlier analysis called 8 of 10 ms enough in a call with 1 s of work. The call was to keep 30 of 60 ms waiting
/// for 8 ms, and kept it for 116.
#[test]
fn a_call_through_many_refills_is_no_call_of_one_budget() {
    let mut kernel = kernel();
    let endpoint = kernel.endpoint(Some(1_000));
    kernel.active(server(30, 60), 5, &[]);
    kernel.active(server(8, 10), 1, &[endpoint]);
    kernel.contexts[1].guaranteed = false;
    kernel.program(9, &[], &[endpoint]);
    // The kernel never begins it.
    let refused = look(&kernel).refusals(Test::Response);
    assert_eq!(refused[0], Refusal::Short { context: 1, endpoint, needed: 1_000 });
    assert!(matches!(refused[1], Refusal::Late { context: 0, .. }));
    assert_eq!(look(&kernel).refusals(Test::None), refused[..1]);
    // A call without a limit.
    kernel.endpoints[endpoint].longest = None;
    let refused = look(&kernel).refusals(Test::Response);
    assert!(matches!(refused[..], [Refusal::Blocked { context: 0, .. }]), "{refused:?}");
    // It begins with budget for all of it, and ends.
    kernel.endpoints[endpoint].longest = Some(8);
    assert_eq!(look(&kernel).refusals(Test::Response), []);
    assert_eq!(look(&kernel).response(0), Ok(38));
}

/// The kernel charges a use that begins, and the way to the call: a budget that is all the call's never begins it.
#[test]
fn a_call_needs_more_than_its_own_time() {
    let mut kernel = kernel();
    let endpoint = kernel.endpoint(Some(30));
    kernel.active(server(30, 60), 5, &[endpoint]);
    kernel.program(9, &[], &[endpoint]);
    assert_eq!(look(&kernel).refusals(Test::Response), []);
    kernel.overhead = 2;
    let short = vec![Refusal::Short { context: 0, endpoint, needed: 32 }];
    for budget in [30, 31] {
        for policy in [Policy::Sporadic, Policy::Strict] {
            kernel.contexts[0].policy = policy(Budget { budget, period: 60, refills: 8 });
            for test in [Test::Response, Test::Bound, Test::None] {
                assert_eq!(look(&kernel).refusals(test), short);
            }
        }
    }
    kernel.contexts[0].policy = server(32, 60);
    assert_eq!(look(&kernel).refusals(Test::Response), []);
    // An activation more is as much, where the use begins once.
    kernel.contexts[0] =
        Context { policy: server(30, 60), activations: 2, ..kernel.contexts[0].clone() };
    assert_eq!(look(&kernel).refusals(Test::Response), []);
    // Neither of these has a budget of a known length.
    kernel.endpoints[endpoint].longest = Some(1_000);
    let utilization = Utilization::new(1, 10).unwrap();
    for policy in [Policy::Full { slice: 5 }, Policy::Pibs { utilization, period: 60 }] {
        kernel.contexts[0].policy = policy;
        assert_eq!(look(&kernel).refusals(Test::None), []);
    }
}

/// One call at a time runs to its end; of those that wait in the middle all can.
#[test]
fn calls_that_wait_in_the_middle_add_up() {
    let mut kernel = kernel();
    let [one, two, disk] = [Some(3), Some(2), None].map(|longest| kernel.endpoint(longest));
    kernel.active(server(10, 40), 5, &[]);
    kernel.active(server(8, 100), 1, &[one]);
    kernel.active(server(8, 100), 2, &[two]);
    kernel.program(9, &[], &[one]);
    kernel.program(9, &[], &[two]);
    let blocking = |others, time| Some(Blocking { by: 1, endpoint: one, others, time });
    assert_eq!(look(&kernel).blocking(0), blocking(0, Some(3)));
    kernel.calls(4, disk);
    let utilization = Utilization::new(1, 25).unwrap();
    kernel.active(Policy::Pibs { utilization, period: 100 }, 0, &[]);
    kernel.programs[5].serves.push(disk);
    assert_eq!(look(&kernel).blocking(0), blocking(1, Some(5)));
    kernel.calls(3, disk);
    assert_eq!(look(&kernel).blocking(0), blocking(1, Some(5)));
    assert_eq!(look(&kernel).response(0), Ok(15), "the driver is below");
    assert_eq!(look(&kernel).unanalysed(0), []);
    assert_eq!(look(&kernel).unanalysed(1), [Unanalysed::Answer { endpoint: disk }]);
    // A caller of such a server waits for whoever is in it.
    kernel.calls(0, one);
    let expected = [Unanalysed::Answer { endpoint: disk }, Unanalysed::Occupied { endpoint: one }];
    assert_eq!(look(&kernel).unanalysed(0), expected);
}

/// A driver that is asked from within a server works at the priority of the thread in there, not of the server.
#[test]
fn a_driver_works_with_priorities_and_periods_of_those_who_ask() {
    let mut kernel = kernel();
    let [files, disk] = [Some(3), None].map(|longest| kernel.endpoint(longest));
    kernel.active(server(5, 20), 5, &[files]);
    kernel.active(server(8, 1_000), 1, &[files]);
    kernel.program(9, &[disk], &[files]);
    let utilization = Utilization::new(1, 10).unwrap();
    kernel.active(Policy::Pibs { utilization, period: 50 }, 0, &[]);
    kernel.programs[3].serves.push(disk);
    let work = look(&kernel).works(2).to_vec();
    assert_eq!(work, [(0, 50), (1, 1_000), (5, 20)]);
    // 5, blocked for 3, and 2 of 20.
    assert_eq!(look(&kernel).response(0), Ok(10));
    kernel.programs[0].calls.clear();
    assert_eq!(look(&kernel).works(2), [(0, 50), (1, 1_000)]);
    assert_eq!(look(&kernel).response(0), Ok(8));
    // A signal from a server has no asker.
    kernel.programs[2].calls.clear();
    assert_eq!(look(&kernel).works(2), [(0, 50)]);
    // Interrupts enter the kernel in the time of others.
    kernel.threads[3].priority = 7;
    assert_eq!(look(&kernel).response(0), Ok(5 + 3 + 5));
    let interrupts = vec![Interrupt { number: 0, notification: 0, bits: 1 }];
    let device = Driven::Device(0);
    kernel.programs[3].devices.push(DeviceUse { device, interrupts, dma: Vec::new() });
    assert_eq!(
        look(&kernel).response(0),
        Err(Refusal::Late { context: 0, response: 5 + 3 + 3 * 5 })
    );
    kernel.contexts[0].policy = server(5, 40);
    // 5 for a period of 50, and a tenth of the rest.
    assert_eq!(look(&kernel).response(0), Ok(5 + 3 + 3 * 7));
}

#[test]
fn servers_call_servers() {
    let mut kernel = kernel();
    let [near, far] = [kernel.endpoint(Some(8)), kernel.endpoint(None)];
    kernel.active(server(10, 40), 5, &[]);
    kernel.active(server(8, 100), 1, &[near]);
    kernel.program(2, &[far], &[near]);
    kernel.program(9, &[], &[far]);
    assert_eq!(look(&kernel).reach(near), Some((2, 9)));
    assert_eq!(
        look(&kernel).blocking(0),
        Some(Blocking { by: 1, endpoint: near, others: 0, time: Some(8) })
    );
    // A thread with a context of its own does not run on its callers'.
    kernel.threads[2].context = Some(0);
    assert_eq!(look(&kernel).reach(near), None);
}

#[test]
fn calls_in_a_circle_are_refused() {
    let mut kernel = kernel();
    let [there, back] = [kernel.endpoint(None), kernel.endpoint(None)];
    kernel.active(server(10, 40), 5, &[there]);
    kernel.programs[0].serves.push(there);
    let circle = |endpoint| vec![Refusal::Circle { context: 0, endpoint }];
    assert_eq!(look(&kernel).refusals(Test::Response), circle(there), "it alone serves it");
    kernel.programs[0].serves.clear();
    kernel.program(6, &[], &[there]);
    assert_eq!(look(&kernel).refusals(Test::Response), []);
    kernel.calls(1, back);
    kernel.programs[1].serves.push(back);
    assert_eq!(look(&kernel).refusals(Test::None), circle(back), "of the server's");
    kernel.programs[1].serves.pop();
    kernel.program(7, &[there], &[back]);
    assert_eq!(look(&kernel).refusals(Test::Bound), circle(back), "of two servers");
    // Another one may answer.
    kernel.threads.push(kernel.threads[2].clone());
    assert_eq!(look(&kernel).refusals(Test::Response), []);
}

#[test]
fn a_server_below_its_caller_is_disturbed_by_those_between() {
    let mut kernel = kernel();
    let endpoint = kernel.endpoint(None);
    kernel.active(server(10, 100), 9, &[endpoint]);
    kernel.active(server(20, 100), 5, &[]);
    assert_eq!(look(&kernel).response(0), Ok(10));
    kernel.program(3, &[], &[endpoint]);
    assert_eq!(look(&kernel).floor(0), 3);
    assert_eq!(look(&kernel).response(0), Ok(30));
    assert_eq!(look(&kernel).response(1), Ok(30));
    // Where others call that server, too, it waits for them, again and again.
    assert_eq!(look(&kernel).unanalysed(0), []);
    kernel.calls(1, endpoint);
    assert_eq!(look(&kernel).unanalysed(0)[1..], [Unanalysed::Below { endpoint }]);
    kernel.endpoints[endpoint].longest = Some(10);
    assert_eq!(look(&kernel).unanalysed(0), [Unanalysed::Below { endpoint }]);
    assert_eq!(look(&kernel).unanalysed(1), [Unanalysed::Below { endpoint }]);
    kernel.threads[2].priority = 9;
    assert_eq!(look(&kernel).unanalysed(0), []);
    // At the server's own priority it waits for others that have waited there.
    kernel.threads[2].priority = 5;
    assert_eq!(look(&kernel).unanalysed(1), [Unanalysed::Below { endpoint }]);
    // From a server above, it comes to one that is above itself, and below that one.
    kernel.threads[2].priority = 9;
    let above = kernel.endpoint(Some(20));
    kernel.program(12, &[endpoint], &[above]);
    kernel.calls(1, above);
    assert_eq!(look(&kernel).unanalysed(1), [Unanalysed::Below { endpoint }; 2]);
    assert_eq!(look(&kernel).unanalysed(0), [Unanalysed::Below { endpoint }]);
    kernel.programs[1].calls.pop();
    kernel.threads[2].priority = 3;
    kernel.programs[1].calls.clear();
    kernel.endpoints[endpoint].longest = None;
    kernel.contexts[1].policy = server(20, 200);
    kernel.contexts[0].policy = server(40, 60);
    // The other one waits while it is below, for one budget of it, before or after its own wait.
    assert_eq!([0, 1].map(|n| look(&kernel).response(n)), [Ok(60), Ok(60)]);
    // If it is late itself, it comes back with more.
    kernel.contexts[0].policy = server(40, 59);
    let late = Err(Refusal::Late { context: 0, response: 60 });
    assert_eq!([0, 1].map(|n| look(&kernel).response(n)), [late, late]);
    kernel.contexts[0].guaranteed = false;
    let arrears = Refusal::Arrears { context: 1, by: 0 };
    assert_eq!(look(&kernel).refusals(Test::Response), [arrears]);
    assert_eq!(look(&kernel).refusals(Test::Bound), [arrears]);
}

#[test]
fn a_notifications_context_is_whoever_waits() {
    let mut kernel = kernel();
    kernel.notifications.push(Notification {
        name: "n".into(),
        place: Place::default(),
        context: Some(0),
    });
    kernel.active(server(10, 100), 9, &[]);
    kernel.contexts[0].user = User::Notification(0);
    kernel.threads[0].context = None;
    assert_eq!(kernel.users(0).count(), 0);
    kernel.programs[0].waits.push(0);
    kernel.program(2, &[], &[]);
    kernel.programs[1].waits.push(0);
    assert_eq!(look(&kernel).priorities(0), (2, 9));
    // A thread with a context of its own does not need another one's.
    kernel.active(server(1, 1000), 1, &[]);
    kernel.programs[2].waits.push(0);
    assert_eq!(look(&kernel).priorities(0), (2, 9));
    kernel.active(server(20, 100), 5, &[]);
    assert_eq!([0, 2].map(|n| look(&kernel).response(n)), [Ok(30), Ok(30)]);
}

#[test]
fn priorities_that_are_not_rate_monotonic_are_named_once() {
    let mut kernel = kernel();
    kernel.active(server(1, 40), 1, &[]);
    kernel.active(server(1, 50), 2, &[]);
    kernel.active(server(1, 60), 0, &[]);
    let refused = Refusal::NotRateMonotonic { shorter: 0, longer: 1 };
    assert_eq!(look(&kernel).refusals(Test::Bound), [refused]);
    assert_eq!(look(&kernel).refusals(Test::Response), []);
    // The lower one of two equal periods counts.
    kernel.contexts[1].policy = server(1, 40);
    kernel.threads[2].priority = 1;
    let refused = Refusal::NotRateMonotonic { shorter: 0, longer: 2 };
    assert_eq!(look(&kernel).refusals(Test::Bound), [refused]);
}

/// A search tick by tick would take 2^60 steps.
#[test]
fn a_busy_core_is_refused_at_once() {
    let mut kernel = kernel();
    kernel.active(server(1, 1), 2, &[]);
    kernel.active(server(1, 1 << 60), 1, &[]);
    assert!(matches!(
        look(&kernel).refusals(Test::Response)[..],
        [Refusal::Late { context: 1, .. }]
    ));
    let mut kernel = self::kernel();
    kernel.active(server(u64::MAX, u64::MAX), 2, &[]);
    kernel.active(server(u64::MAX, u64::MAX), 1, &[]);
    kernel.overhead = 1;
    assert_eq!(look(&kernel).refusals(Test::Response).len(), 1);
}

/// Others' doorbells are exits in the time of whoever runs: one more than fit in.
#[test]
fn doorbells_of_rights_count() {
    let mut kernel = kernel();
    kernel.active(server(10_000, 40_000), 2, &[]);
    kernel.active(server(10_000, 40_000), 1, &[]);
    kernel.doorbells = vec![15_000, 1_000_000];
    kernel.doorbell = 1_000;
    // Two of the first right, and one of the second.
    assert_eq!(look(&kernel).response(0), Ok(10_000 + 1_000 + 1_000));
    assert_eq!(look(&kernel).response(1), Ok(20_000 + 2_000 + 1_000));
    let sum = look(&kernel).utilization(1).unwrap().sum;
    assert_eq!(sum, Share::of(20_000 + 3_000 + 1_000, 40_000));
    // With one each microsecond nothing else runs.
    kernel.doorbells = vec![1_000];
    assert_eq!(look(&kernel).refusals(Test::Response).len(), 2);
    assert_eq!(look(&kernel).refusals(Test::Bound).len(), 2);
}

/// A driver below does not run, but two interrupts of each source can come before it has to acknowledge one.
#[test]
fn interrupts_for_a_driver_below_count_twice() {
    let mut kernel = kernel();
    (kernel.overhead, kernel.entry) = (2, 3);
    kernel.active(server(10, 100), 5, &[]);
    kernel.active(server(10, 1_000), 1, &[]);
    assert_eq!(look(&kernel).response(0), Ok(12));
    let interrupts = vec![Interrupt { number: 0, notification: 0, bits: 1 }];
    let device = Driven::Device(0);
    kernel.programs[1].devices.push(DeviceUse { device, interrupts, dma: Vec::new() });
    assert_eq!(look(&kernel).response(0), Ok(12 + 2 * 3));
    // Its own are in its own account, two for each that it acknowledges.
    assert_eq!(look(&kernel).response(1), Ok(3 * 12 + 12));
    // A second source has entries of its own.
    let second = Interrupt { number: 1, notification: 0, bits: 2 };
    kernel.programs[1].devices[0].interrupts.push(second);
    assert_eq!(look(&kernel).response(0), Ok(12 + 2 * 2 * 3));
    // A channel's doorbell is such an interrupt, too.
    kernel.programs[1].devices.clear();
    assert_eq!(look(&kernel).response(0), Ok(12));
    let signal = Some(Signal { notification: 0, bits: 1 });
    kernel.programs[1].channels.push(ChannelUse { channel: 0, write: false, signal });
    assert_eq!(look(&kernel).response(0), Ok(12 + 2 * 3));
    // The entry for it comes in its own budget, or while it waits.
    assert_eq!(look(&kernel).response(1), Ok(12 + 12));
    assert!(!kernel.has_links());
    kernel.programs[0].links.push(0);
    assert!(kernel.has_links());
}
