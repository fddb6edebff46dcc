//! Small budgets, all histories. At each tick the thread may want to run or not, or stop wanting for no time at all.
//! A higher priority may keep it from the processor or not. The theorems (crate documentation) must hold in every
//! state that can be reached.

use std::collections::{HashSet, VecDeque};

use bulkhead_sched::admission::interference;
use bulkhead_sched::{Account, Context, Id, Refill, Requester, Scheduler, Time, Utilization};

/// Events of a tick.
#[derive(Clone, Copy, Debug)]
struct Choice {
    wants: bool,
    /// Stops wanting and wants again, at once.
    blinks: bool,
    /// A higher priority runs.
    higher: bool,
}

fn choices(higher: &[bool]) -> Vec<Choice> {
    let wanting = [(false, false), (true, false), (true, true)];
    let all = wanting.into_iter().flat_map(|wanting| higher.iter().map(move |h| (wanting, *h)));
    all.map(|((wants, blinks), higher)| Choice { wants, blinks, higher }).collect()
}

/// Observations beside the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Watch {
    /// An interval: its begin, and the time run in it.
    begin: Time,
    ran: Time,
    /// The last ticks in which it ran, as many as matter: the last one in the lowest bit.
    window: u64,
}

impl Watch {
    fn new() -> Self {
        Self { begin: 0, ran: 0, window: 0 }
    }

    /// A tick has passed; of the window so many ticks matter.
    fn pass(&mut self, runs: bool, length: Time) {
        self.ran += Time::from(runs);
        self.window = (self.window << 1 | u64::from(runs)) & ((1 << length) - 1);
    }

    /// Another interval to watch, if nothing of the priority or above ran in this tick, or wanted
    /// to.
    fn anew(self, now: Time, idle: bool) -> Option<Self> {
        idle.then_some(Self { begin: now + 1, ran: 0, ..self })
    }

    /// Ticks that it ran in of the last ones.
    fn within(&self) -> Time {
        self.window.count_ones().into()
    }
}

/// Returns the time from which each of the C ticks of a budget may be used, in the order of use. That is its release,
/// in the words of [`server`]'s documentation. `ahead` ticks are charged that the kernel has yet to use.
fn releases(server: &Account, refills: &[Refill], ahead: Time) -> VecDeque<Time> {
    let mut used = server.head().amount - server.left() - ahead;
    let mut releases = VecDeque::new();
    let mut later = vec![];
    for refill in server.list(refills) {
        let times = (0..refill.amount).map(|n| refill.time + n);
        for time in times {
            match used > 0 {
                true => later.push(time + server.period()),
                false => releases.push_back(time),
            }
            used = used.saturating_sub(1);
        }
    }
    releases.extend(later);
    releases
}

/// With a list of up to N + 1.
#[derive(Clone)]
struct State<const N: usize> {
    server: Account,
    refills: [Refill; N],
    strict: bool,
    cost: Time,
    /// Ticks that the kernel is charged for and has yet to use.
    ahead: Time,
    wants: bool,
    runs: bool,
    releases: VecDeque<Time>,
    watch: Watch,
}

type Key = (Vec<(Time, Time)>, VecDeque<Time>, Time, Time, bool, bool, Watch);

impl<const N: usize> State<N> {
    fn new(budget: Time, period: Time, cost: Time, strict: bool) -> Self {
        let refills = [Refill::default(); N];
        let server = match strict {
            true => Account::strict(budget, period, 0),
            false => Account::sporadic(budget, period, 0),
        };
        let server = server.unwrap().with_cost(cost).unwrap();
        let releases = releases(&server, &refills, 0);
        let watch = Watch::new();
        Self { server, refills, strict, cost, ahead: 0, wants: false, runs: false, releases, watch }
    }

    fn key(&self) -> Key {
        let list = self.server.list(&self.refills).map(|r| (r.amount, r.time)).collect();
        let releases = self.releases.clone();
        (list, releases, self.server.left(), self.ahead, self.wants, self.runs, self.watch)
    }

    /// The list is a list.
    fn looks_right(&self) {
        let list: Vec<_> = self.server.list(&self.refills).collect();
        assert_eq!(list.iter().map(|r| r.amount).sum::<Time>(), self.server.budget(), "the sum");
        assert!(list.len() <= N + 1 && list.iter().all(|r| r.amount > 0), "{list:?}");
        assert!(list.is_sorted_by_key(|r| r.time), "{list:?}");
    }

    /// No tick's release comes earlier than it was. Asked when the rest of a split refill has been
    /// moved to where it is used from: while the thread wants to run, or runs.
    fn no_release_is_earlier(&mut self) {
        let releases = releases(&self.server, &self.refills, self.ahead);
        let earlier = releases.iter().zip(&self.releases).any(|(new, old)| new < old);
        assert!(!earlier, "earlier: {:?} became {releases:?}", self.releases);
        self.releases = releases;
    }

    fn stop_wanting(&mut self, now: Time) {
        if std::mem::take(&mut self.wants) {
            self.server.block(&mut self.refills, now);
            (self.runs, self.ahead) = (false, 0);
        }
    }

    fn want(&mut self, now: Time) {
        if !std::mem::replace(&mut self.wants, true) {
            self.server.wake(&mut self.refills, now);
            // Releases never come earlier: it will have wanted to run from each release on.
            assert!(
                releases(&self.server, &self.refills, self.ahead)[0] >= now,
                "asleep at a release: {self:?}"
            );
        }
    }

    /// Runs a tick as the scheduler does. True if no context of its priority or above wants to run.
    fn tick(&mut self, now: Time, choice: Choice) -> bool {
        if !choice.wants || choice.blinks {
            self.stop_wanting(now);
        }
        if choice.wants {
            self.want(now);
        }
        self.looks_right();
        let used_up = self.runs && self.server.settle(&mut self.refills, now);
        if self.runs && (used_up || choice.higher) {
            self.server.preempt(&mut self.refills, now);
            self.runs = false;
            self.ahead = if self.strict { 0 } else { self.ahead };
        }
        self.looks_right();
        let ready = choice.wants && self.server.eligible() <= now;
        let runs = ready && !choice.higher;
        if runs && !self.runs {
            let left = self.server.left();
            self.server.dispatch(&mut self.refills, now);
            // A strict server may have got more as well: it has nothing used then.
            let used = self.server.head().amount - self.server.left();
            self.ahead += if self.strict { used } else { left - self.server.left() };
        }
        self.runs = runs;
        self.looks_right();
        if runs || choice.wants && !self.strict {
            self.no_release_is_earlier();
        }
        if runs {
            self.use_one(now);
        }
        self.watch.pass(runs, if self.strict { self.server.period() } else { 0 });
        !ready && !choice.higher
    }

    fn use_one(&mut self, now: Time) {
        let release = self.releases.pop_front().unwrap();
        assert!(release <= now, "used at {now}, before {release}");
        if self.strict {
            let late = now - release;
            assert!(late <= self.cost, "a strict server uses a tick {late} after its release");
        }
        self.releases.push_back(release + self.server.period());
        match self.ahead {
            0 => self.server.charge(1),
            _ => self.ahead -= 1,
        }
    }

    fn holds(&self, now: Time) {
        let (budget, period) = (self.server.budget(), self.server.period());
        let periods = (now + 1).saturating_sub(self.watch.begin).div_ceil(period);
        assert!(self.watch.ran <= budget * periods, "more than a periodic task: {self:?}");
        let most = self.watch.within();
        // A beginning that is late by its cost at most counts as in time.
        let late = if self.strict { self.cost } else { 0 };
        assert!(most <= budget + late, "{most} within a period: {self:?}");
    }
}

impl<const N: usize> std::fmt::Debug for State<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.key())
    }
}

/// How much was seen.
#[derive(Default)]
struct Seen {
    states: usize,
    /// Most in a window of T.
    within: Time,
    /// Most in the first T of an interval.
    first: Time,
}

/// Explores all histories of that many ticks. Those that led to one state go on as one.
fn explore<const N: usize>(size: (Time, Time, Time), strict: bool, ticks: Time) -> Seen {
    let (budget, period, cost) = size;
    let choices = choices(&[false, true]);
    let mut states = vec![State::<N>::new(budget, period, cost, strict)];
    let mut seen = Seen::default();
    for now in 0..ticks {
        let mut known = HashSet::new();
        let mut next = vec![];
        for (state, choice) in states.iter().flat_map(|s| choices.iter().map(move |c| (s, c))) {
            let mut state = state.clone();
            let idle = state.tick(now, *choice);
            state.holds(now);
            seen.within = seen.within.max(state.watch.within());
            if now + 1 == state.watch.begin + period {
                seen.first = seen.first.max(state.watch.ran);
            }
            let anew = state.watch.anew(now, idle).map(|watch| State { watch, ..state.clone() });
            next.extend(
                [Some(state), anew].into_iter().flatten().filter(|s| known.insert(s.key())),
            );
        }
        seen.states += next.len();
        states = next;
    }
    seen
}

fn explore_all<const N: usize>(strict: bool) -> usize {
    // Budget, period, cost.
    let sizes = [(1, 2, 0), (1, 3, 0), (2, 3, 0), (2, 4, 1), (3, 4, 0), (3, 4, 1), (3, 5, 0)];
    let mut states = 0;
    for (budget, period, cost) in sizes {
        let seen = explore::<N>((budget, period, cost), strict, 4 * period);
        states += seen.states;
        // The bounds are reached: they are not too high.
        assert_eq!(seen.first, budget, "{budget} of {period}");
        assert_eq!(seen.within, if strict { budget + cost } else { 0 }, "{budget} of {period}");
    }
    println!("{states} states, lists of {}, strict: {strict}", N + 1);
    states
}

#[test]
fn a_sporadic_server_in_all_histories() {
    let states = [explore_all::<0>(false), explore_all::<1>(false), explore_all::<2>(false)];
    assert!(states.iter().all(|states| *states > 1_000), "{states:?}");
}

#[test]
fn a_strict_server_in_all_histories() {
    let states = [explore_all::<0>(true), explore_all::<1>(true), explore_all::<2>(true)];
    assert!(states.iter().all(|states| *states > 1_000), "{states:?}");
}

/// A PIBS server: (begin, left, wanted).
fn explore_pibs(u: Utilization, period: Time, higher: &[bool], ticks: Time) -> Time {
    let choices = choices(higher);
    let pibs = Account::pibs(u, 0, period, 0).unwrap();
    let mut states = vec![(pibs, false, Watch::new())];
    let mut most = 0;
    for now in 0..ticks {
        let mut known = HashSet::new();
        let mut next = vec![];
        for (state, choice) in states.iter().flat_map(|s| choices.iter().map(move |c| (s, c))) {
            let (mut pibs, wanted, mut watch) = *state;
            if wanted && (!choice.wants || choice.blinks) {
                pibs.block(&mut [], now);
            }
            if choice.wants {
                pibs.wake(&mut [], now);
            }
            pibs.settle(&mut [], now);
            let ready = choice.wants && pibs.eligible() <= now;
            let runs = ready && !choice.higher;
            pibs.charge(Time::from(runs));
            watch.pass(runs, period);
            let length = (now + 1).saturating_sub(watch.begin);
            let bound = interference(u, period, length);
            assert!(watch.ran <= bound, "{} > {bound} in {length}: {pibs:?}", watch.ran);
            most = most.max(watch.within());
            let anew = watch.anew(now, !ready && !choice.higher);
            for watch in [Some(watch), anew].into_iter().flatten() {
                if known.insert((pibs.eligible(), pibs.left(), choice.wants, watch)) {
                    next.push((pibs, choice.wants, watch));
                }
            }
        }
        states = next;
    }
    most
}

#[test]
fn a_pibs_server_in_all_histories() {
    for (numerator, denominator, period) in [(1, 2, 4), (1, 3, 6), (2, 5, 5), (1, 4, 8)] {
        let u = Utilization::new(numerator, denominator).unwrap();
        let ticks = 15;
        // At the highest priority: (2-U)·U·T in every window of T, reached to the tick.
        let most = explore_pibs(u, period, &[false], ticks);
        let (n, d) = (Time::from(numerator), Time::from(denominator));
        assert_eq!(most, (2 * d - n) * n * period / (d * d), "{u:?} {period}");
        explore_pibs(u, period, &[false, true], ticks);
    }
}

const HIGH: u8 = 20;
const LOW: u8 = 10;

/// Request to a PIBS server in a tick.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Nothing,
    /// It is named, and may have to wait.
    Request(Requester),
    /// Its work is taken up.
    TakeUp(Requester),
}

/// A PIBS server that works for two, and something above it, under the scheduler.
#[derive(Clone)]
struct Asked {
    all: [(Context, [Refill; 0]); 2],
    core: Scheduler,
    /// Only work at this level or above counts.
    level: u8,
    watch: Watch,
}

impl Asked {
    const PIBS: Id = Id::of(0);
    const HIGHER: Id = Id::of(1);

    fn new(u: Utilization, period: Time, level: u8) -> Self {
        let pibs = Context::new(Account::pibs(u, 0, period, 0).unwrap(), LOW);
        let higher = Context::new(Account::full(1_000).unwrap(), 30);
        let all = [(pibs, []), (higher, [])];
        Self { all, core: Scheduler::new(0), level, watch: Watch::new() }
    }

    fn wants(&mut self, id: Id, wants: bool, blinks: bool, now: Time) {
        if self.all[id.index()].0.is_wanted() && (!wants || blinks) {
            self.core.block(&mut self.all[..], id, now);
        }
        if wants {
            let _ = self.core.wake(&mut self.all[..], id, now);
        }
    }

    /// One tick; whether nothing at the level or above wants to run in it.
    fn tick(&mut self, now: Time, choice: Choice, ask: Ask, length: Time) -> bool {
        let refused = match ask {
            Ask::Nothing => Ok(()),
            Ask::Request(of) => self.core.request(&mut self.all[..], Self::PIBS, of, now),
            Ask::TakeUp(of) => self.core.take_up(&mut self.all[..], Self::PIBS, of, now),
        };
        assert_eq!(refused, Ok(()));
        self.wants(Self::PIBS, choice.wants, choice.blinks, now);
        self.wants(Self::HIGHER, choice.higher, false, now);
        let decision = self.core.schedule(&mut self.all[..], now);
        let pibs = &self.all[0].0;
        if let Ask::TakeUp(of) = ask {
            assert_eq!(pibs.requester(), of);
        }
        let counts = pibs.priority() >= self.level;
        self.watch.pass(counts && decision.run == Some(Self::PIBS), length);
        let ready = choice.wants && pibs.account().eligible() <= now;
        !(choice.higher || ready && counts)
    }

    fn key(&self, now: Time) -> (Time, Account, u8, bool, Watch) {
        let pibs = &self.all[0].0;
        (now, *pibs.account(), pibs.priority(), pibs.is_wanted(), self.watch)
    }
}

/// Explores all histories with two requesters with the given periods, the more important one first, and watches the
/// work at a level or above. Returns the number of states.
fn explore_requests(u: Utilization, periods: [Time; 2], level: u8, ticks: Time) -> usize {
    let [high, low] = [HIGH, LOW];
    let requesters = [(high, periods[0]), (low, periods[1])];
    let requesters = requesters.map(|(priority, period)| Requester { priority, period });
    let asks: Vec<Ask> = [Ask::Nothing]
        .into_iter()
        .chain(requesters.iter().flat_map(|of| [Ask::Request(*of), Ask::TakeUp(*of)]))
        .collect();
    let longest = if level == HIGH { periods[0] } else { periods[0].max(periods[1]) };
    let choices = choices(&[false, true]);
    let mut known = HashSet::new();
    let mut next = vec![(Asked::new(u, periods[1], level), 0)];
    while let Some((state, now)) = next.pop() {
        for (choice, ask) in choices.iter().flat_map(|c| asks.iter().map(move |ask| (c, ask))) {
            let mut state = state.clone();
            let idle = state.tick(now, *choice, *ask, longest);
            let watch = state.watch;
            let length = (now + 1).saturating_sub(watch.begin);
            let bound = interference(u, longest, length);
            assert!(watch.ran <= bound, "{} > {bound} in {length}: {:?}", watch.ran, state.all);
            let anew = watch.anew(now, idle).map(|watch| Asked { watch, ..state.clone() });
            if now + 1 < ticks {
                let new = [Some(state), anew].into_iter().flatten().map(|state| (state, now + 1));
                next.extend(new.filter(|(state, now)| known.insert(state.key(*now))));
            }
        }
    }
    known.len()
}

#[test]
fn a_pibs_server_of_two_requesters_in_all_histories() {
    for (denominator, periods) in [(2, [4, 6]), (3, [3, 6]), (2, [6, 4])] {
        let u = Utilization::new(1, denominator).unwrap();
        for level in [HIGH, LOW] {
            let seen = explore_requests(u, periods, level, 10);
            assert!(seen > 1_000, "{seen:?}");
        }
    }
}
