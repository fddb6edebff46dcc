//! The oracle against the papers' figures, worked out by hand where a figure has no text.

use bulkhead_oracle::{Core, Op, Pattern, Policy, Promise, Server, Set, Thread, Time};

fn thread(budget: Time, period: Time, priority: u8, job: &[Op]) -> Thread {
    Thread {
        policy: Policy::Sporadic,
        budget,
        period,
        refills: 8,
        guaranteed: true,
        background: false,
        activations: 1,
        priority,
        job: job.to_vec(),
        serves: false,
        interrupt: 0,
        every: period,
    }
}

fn driver(share: u32, period: Time) -> Thread {
    Thread { policy: Policy::Pibs(share), serves: true, ..thread(0, period, 0, &[]) }
}

/// Returns the slices of time, with each thread's jobs beginning at its start.
fn slices(
    threads: Vec<Thread>,
    servers: &[Server],
    starts: &[Time],
    end: Time,
) -> Vec<(usize, Time, Time)> {
    let set = Set { threads, servers: servers.to_vec(), ..Set::default() };
    let mut core = Core::default();
    core.slices = Some(Vec::new());
    let patterns: Vec<_> =
        starts.iter().map(|offset| Pattern { offset: *offset, gap: 0 }).collect();
    core.play(&set, &vec![Promise::NONE; set.threads.len()], &patterns, end);
    core.slices.take().unwrap_or_default()
}

fn of(thread: usize, slices: &[(usize, Time, Time)]) -> Vec<(Time, Time)> {
    slices.iter().filter(|slice| slice.0 == thread).map(|slice| (slice.1, slice.2)).collect()
}

/// TOCS 2016, figure 7 (A): 20 in 50 below 10 in 40, a wait after each 18, over at 40 and 80.
#[test]
fn figure_7_a() {
    let job: Vec<Op> = (0..5).flat_map(|_| [Op::Run(18), Op::Sleep(12)]).collect();
    let vcpu0 = thread(10, 40, 2, &[Op::Run(10)]);
    let vcpu1 = thread(20, 50, 1, &job);
    let slices = slices(vec![vcpu0, vcpu1], &[], &[1, 0], 114);
    assert_eq!(
        of(1, &slices),
        [(0, 1), (11, 28), (40, 41), (51, 68), (80, 81), (91, 94), (100, 114)]
    );
    let first_hundred: Time = of(1, &slices).iter().filter(|s| s.1 <= 100).map(|s| s.1 - s.0).sum();
    assert_eq!(first_hundred, 40, "POSIX gives 46");
}

/// Quest-V: one item of a list that would overflow is merged with a later one.
#[test]
fn a_full_list_merges_at_the_later_time() {
    let job: Vec<Op> = (0..9).flat_map(|_| [Op::Run(1), Op::Sleep(2)]).collect();
    let one = Thread { refills: 2, ..thread(3, 20, 1, &job) };
    let slices = slices(vec![one], &[], &[0], 60);
    // At 1: (2, 0), (1, 20). At 4 a third would be needed: (1, 3) joins (1, 20), to which (1, 23) comes.
    assert_eq!(of(0, &slices)[..4], [(0, 1), (3, 4), (20, 21), (23, 24)]);
}

/// The I/O VCPU of figure 7: 4 % for a period of 50 is 2, and comes again 2 / 4 % = 50 after it began.
#[test]
fn an_io_vcpu_comes_again_when_its_share_allows() {
    let job = [Op::Run(18), Op::Ask(2, 2), Op::Run(18), Op::Ask(2, 2), Op::Run(4)];
    let vcpu0 = thread(10, 40, 2, &[Op::Run(10)]);
    let slices =
        slices(vec![vcpu0, thread(20, 50, 1, &job), driver(40_000, 1)], &[], &[1, 0, 0], 100);
    assert_eq!(of(2, &slices), [(28, 30), (78, 80)]);
}

/// It works at its client's priority: above the threads between that and its own.
#[test]
fn a_driver_has_the_priority_of_who_asked() {
    let asks = thread(10, 100, 3, &[Op::Run(1), Op::Ask(2, 2)]);
    let between = thread(50, 100, 2, &[Op::Run(50)]);
    let slices = slices(vec![asks, between, driver(40_000, 50)], &[], &[5, 0, 0], 60);
    assert_eq!(slices, [(1, 0, 5), (0, 5, 6), (2, 6, 8), (1, 8, 53)]);
}

/// EuroSys 2018, section 3.5: the server's work is its caller's, at the ceiling; a thread between them waits for the
/// answer.
#[test]
fn a_request_runs_at_its_servers_ceiling() {
    let server = Server { priority: 3, longest: None };
    let high = thread(4, 100, 3, &[Op::Run(1), Op::Call(0), Op::Run(1), Op::Answer]);
    let middle = thread(4, 100, 2, &[Op::Run(4)]);
    let low = thread(8, 100, 1, &[Op::Run(2), Op::Call(0), Op::Run(2), Op::Answer, Op::Run(1)]);
    let slices = slices(vec![high, middle, low], &[server], &[4, 4, 1], 40);
    assert_eq!(slices, [(2, 1, 5), (0, 5, 7), (1, 7, 11), (2, 11, 12)]);
}

/// Section 3.6: where the budget ends in a request, those that wait for the server wait for the refill.
#[test]
fn the_end_of_a_budget_in_a_request_holds_up_others() {
    let server = Server { priority: 3, longest: None };
    let high = thread(4, 100, 3, &[Op::Call(0), Op::Run(1), Op::Answer]);
    let low = thread(3, 10, 1, &[Op::Call(0), Op::Run(5), Op::Answer]);
    let slices = slices(vec![high, low], &[server], &[4, 0], 16);
    assert_eq!(slices, [(1, 0, 3), (1, 10, 12), (0, 12, 13), (1, 13, 14)]);
}

/// At most its budget in each window of a period, whatever others do.
#[test]
fn a_strict_budget_is_kept_in_every_window() {
    let strict = Thread { policy: Policy::Strict, ..thread(4, 10, 1, &[Op::Run(40)]) };
    let others = thread(3, 7, 2, &[Op::Run(3)]);
    let slices = of(0, &slices(vec![strict, others], &[], &[0, 2], 500));
    let used = |from: Time| -> Time {
        slices.iter().map(|(a, b)| (*b).min(from + 10).saturating_sub((*a).max(from))).sum()
    };
    assert!((0..490).all(|from| used(from) <= 4), "{slices:?}");
    assert!((0..490).any(|from| used(from) == 4));
}
