//! Channels against the crates that do their work within one process: two threads, with equal messages, capacity and
//! way of waiting. A second figure is the cost of a mailbox beyond copying.
//!
//! Not with criterion: it measures one thing after the other, and other users of the machine then decide. Here every
//! candidate gets a short turn, round by round, and is compared within its round. One line a figure: `name unit value
//! baseline judged what`. Value and baseline are medians over all rounds. `judged` is the lower quartile of the
//! rounds' ratios, or of their differences. If it exceeds a bound, three quarters of the rounds do, which a host that
//! was busy now and then does not explain.
//!
//! A turn in which one of the two threads had to wait for a core measures the host's other work, so it does not count.
//! If hardly a round is left, `judged` is `-`.

mod mail;
mod peers;

use peers::{Duplex, Step};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Turns of each candidate, at most, and the time after which there is no further one.
const ROUNDS: usize = 200;
const LIMIT: Duration = Duration::from_secs(20);
/// Looks in vain after which the other thread is taken for one that does not run: the
/// turn is lost, but not the time.
const PATIENCE: u32 = 2_000;
/// Rounds without such a wait that suffice to judge.
const ENOUGH: usize = 20;

fn main() {
    // `cargo test --benches` runs this too: then it only shows that it runs.
    let short = !std::env::args().any(|argument| argument == "--bench");
    let rounds = if short { 1 } else { ROUNDS };
    both::<8>("64", if short { 500 } else { 4_000 }, 256, rounds);
    both::<512>("4k", if short { 200 } else { 400 }, 16, rounds);
    mail::measure(if short { 10 } else { 400 });
}

/// Nanoseconds for each of a turn's messages.
#[derive(Clone, Copy)]
struct Turn {
    each: f64,
    /// No side waited for a core.
    counts: bool,
}

/// Returns the median of the turns that count; of all of them if they are too few.
fn median(turns: &[Turn]) -> f64 {
    let times = |counts: bool| {
        let chosen = turns.iter().filter(|turn| turn.counts || !counts);
        chosen.map(|turn| turn.each).collect::<Vec<_>>()
    };
    let counted = times(true);
    quantile(&if counted.len() < ENOUGH { times(false) } else { counted }, 0.5)
}

/// A candidate for comparison.
struct Candidate {
    name: &'static str,
    ours: bool,
    /// Copied in and out, or written and read where they lie.
    in_place: bool,
    /// Several messages by one store.
    batched: bool,
    make: fn(usize) -> Duplex,
}

fn candidates<const W: usize>() -> Vec<Candidate> {
    let of = |name: &'static str, make| Candidate {
        name,
        ours: name.starts_with("channel"),
        in_place: name.contains("place"),
        batched: name.contains("batch"),
        make,
    };
    vec![
        of("channel copy", peers::channel_copy::<W>),
        of("channel copy batch", peers::channel_copy_batch::<W>),
        of("channel place", peers::channel_place::<W>),
        of("channel place batch", peers::channel_place_batch::<W>),
        of("rtrb copy", peers::rtrb_copy::<W>),
        of("rtrb copy batch", peers::rtrb_copy_batch::<W>),
        of("rtrb place", peers::rtrb_place::<W>),
        of("rtrb place batch", peers::rtrb_place_batch::<W>),
        of("ringbuf copy", peers::ringbuf_copy::<W>),
        of("ringbuf copy batch", peers::ringbuf_copy_batch::<W>),
        of("crossbeam copy", peers::crossbeam_copy::<W>),
    ]
}

fn both<const W: usize>(size: &str, messages: u64, capacity: usize, rounds: usize) {
    let candidates = candidates::<W>();
    // A list for each candidate: its times, by round.
    let mut through = vec![Vec::<Turn>::new(); candidates.len()];
    let mut trip = through.clone();
    // One memory for all rounds: new memory costs page faults.
    let twice = |c: &Candidate| [(c.make)(capacity), (c.make)(capacity)];
    let mut duplexes: Vec<_> = candidates.iter().map(twice).collect();
    let begun = Instant::now();
    for _ in (0..rounds).take_while(|_| begun.elapsed() < LIMIT) {
        for (n, candidate) in candidates.iter().enumerate() {
            let duplexes = &mut duplexes[n];
            through[n].push(throughput(&mut duplexes[0], messages));
            if !candidate.batched {
                trip[n].push(round_trip(duplexes, messages / 20));
            }
        }
    }
    let of_kind = |ours: bool, in_place: bool, batched: bool| {
        let kind = (ours, in_place, batched);
        let is = move |c: &Candidate| (c.ours, c.in_place, c.batched) == kind;
        candidates.iter().enumerate().filter(move |(_, c)| is(c)).map(|(n, _)| n)
    };
    // The best of the others has the best median; ours is one.
    let best = |of: &[Vec<Turn>], ours: bool, in_place: bool, batched: bool| {
        let all = of_kind(ours, in_place, batched).map(|n| (n, median(&of[n])));
        all.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(n, _)| n).expect("one of each")
    };
    let print = |what: &str, of: &[Vec<Turn>], ours: usize, peer: usize| {
        let rounds = of[ours].iter().zip(&of[peer]);
        let counted = rounds.filter(|(ours, peer)| ours.counts && peer.counts);
        let ratios: Vec<_> = counted.map(|(ours, peer)| ours.each / peer.each).collect();
        let judged = match ratios.len() {
            0..ENOUGH => "-".to_owned(),
            _ => format!("{:.3}", quantile(&ratios, 0.25)),
        };
        println!(
            "channel.native_rtrb_{size}_{what} ns {:.2} {:.2} {judged} {}",
            median(&of[ours]),
            median(&of[peer]),
            candidates[peer].name
        );
    };
    for (way, in_place) in [("copy", false), ("place", true)] {
        let single = best(&through, false, in_place, false);
        print(way, &through, best(&through, true, in_place, false), single);
        let batched = best(&through, true, in_place, true);
        print(&format!("{way}_batch"), &through, batched, single);
        let batches = best(&through, false, in_place, true);
        print(&format!("{way}_batches"), &through, batched, batches);
        let ours = best(&trip, true, in_place, false);
        print(&format!("{way}_trip"), &trip, ours, best(&trip, false, in_place, false));
    }
    for (n, candidate) in candidates.iter().enumerate() {
        let trip = Some(&trip[n]).filter(|all| !all.is_empty());
        let trip = trip.map(|all| format!("{:9.2} ns a round trip", median(all)));
        eprintln!(
            "{size:>4} {:20} {:9.2} ns a message {}",
            candidate.name,
            median(&through[n]),
            trip.unwrap_or_default()
        );
    }
}

/// Returns the value below which this part of all lies.
fn quantile(all: &[f64], part: f64) -> f64 {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    let at = (all.len() as f64 * part) as usize;
    all.get(at.min(all.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Does steps until so many messages went through.
fn all(step: &mut Step, messages: u64) -> u64 {
    let (mut done, mut sum, mut idle) = (0, 0u64, 0);
    while done < messages {
        let (n, value) = step.0(done, messages - done);
        idle = if n == 0 { idle + 1 } else { 0 };
        if idle > PATIENCE {
            std::thread::yield_now();
        } else if n == 0 {
            std::hint::spin_loop();
        }
        done += n;
        sum = sum.wrapping_add(value);
    }
    sum
}

/// Returns how long this thread has waited for a core since it began, in nanoseconds (Linux, `sched-stats.rst`); 0 if
/// the kernel does not count that.
fn waited() -> u64 {
    let all = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    all.split_whitespace().nth(1).and_then(|nanoseconds| nanoseconds.parse().ok()).unwrap_or(0)
}

/// Runs two sides of a turn, each on a thread of its own. Returns the nanoseconds of the second side for each of
/// `count`, and the results. The turn does not count if a side waited for a core for longer than a twentieth of it.
fn turn<A: Send, B>(
    count: u64,
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B,
) -> (Turn, A, B) {
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            start.wait();
            let before = waited();
            let done = first();
            (done, waited() - before)
        });
        start.wait();
        let before = waited();
        let begun = Instant::now();
        let done = second();
        let took = begun.elapsed();
        let own = waited() - before;
        let (first, others) = other.join().expect("no panic");
        let counts = u128::from(own.max(others)) * 20 <= took.as_nanos();
        let each = took.as_secs_f64() * 1e9 / count as f64;
        (Turn { each, counts }, first, done)
    })
}

/// Measures messages one way.
fn throughput((send, receive): &mut Duplex, messages: u64) -> Turn {
    let (each, sent, got) = turn(messages, || all(send, messages), || all(receive, messages));
    assert_eq!(got, sent, "what was sent arrived");
    each
}

/// Measures messages and their answers.
fn round_trip(duplexes: &mut [Duplex; 2], messages: u64) -> Turn {
    let [(ask, asked), (answer, answered)] = duplexes;
    let echo = || {
        for _ in 0..messages {
            all(asked, 1);
            all(answer, 1);
        }
    };
    let call = || {
        for _ in 0..messages {
            all(ask, 1);
            all(answered, 1);
        }
    };
    turn(messages, echo, call).0
}
