//! Signs of life of a thread for its guard ([`bulkhead_layout::sign`]).

use crate::names::Program;
use crate::time::{FOREVER, now};
use bulkhead_guest::text;
use bulkhead_layout::sign::{Look, MEMORY};
use core::sync::atomic::{AtomicU64, Ordering};

const MILLI: u64 = 1_000_000;

/// A thread's progress word.
#[derive(Clone, Copy, Debug)]
pub struct Sign(&'static AtomicU64);

impl Sign {
    /// Finds a thread's word, if the manifest gives the program the memory `alive-THREAD`.
    #[must_use]
    pub fn find(program: Program, thread: &str) -> Option<Self> {
        let own = |name: &str| name.strip_prefix(MEMORY) == Some(thread);
        let name = program.names().map(|entry| text::of(&entry.name)).find(|name| own(name))?;
        program.find_memory(name)?.words().first().map(Self)
    }

    /// Moves it: the thread goes on. Call it where the work is done that others depend on.
    pub fn kick(self) {
        // 0 would say that the thread does not report.
        let next = self.0.load(Ordering::Relaxed).wrapping_add(1).max(1);
        self.0.store(next, Ordering::Relaxed);
    }

    /// Says that the thread does not report any more, until it does again.
    pub fn rest(self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn word(self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Looks of a guard at up to `N` threads.
#[derive(Debug)]
pub struct Signs<const N: usize> {
    all: [Option<(Sign, Look)>; N],
    period: u64,
    due: u64,
}

impl<const N: usize> Signs<N> {
    /// Finds the words of these threads, by `alive-THREAD=MS` or `alive-THREAD=MS:FIRST` in the guard's arguments; it
    /// looks each `look=MS` (2).
    ///
    /// # Panics
    /// The manifest gives it no memory of that name, or the argument is no number.
    #[must_use]
    #[track_caller]
    pub fn find(program: Program, threads: impl Iterator<Item = &'static str>) -> Self {
        let period = program.number("look").unwrap_or(2).max(1) * MILLI;
        let mut all = [const { None }; N];
        for (place, thread) in all.iter_mut().zip(threads) {
            let Some(times) = times(program, thread) else { continue };
            let Some(sign) = Sign::find(program, thread) else {
                panic!("{} has no memory {MEMORY}{thread}", program.name())
            };
            let (every, first) = times.split_once(':').unwrap_or((times, "0"));
            let [Some(every), Some(first)] = [every, first].map(text::number) else {
                panic!("{MEMORY}{thread}={times} is no time")
            };
            let mut look = Look::new(period, every * MILLI, first * MILLI);
            look.begin(sign.word());
            *place = Some((sign, look));
        }
        let looks = all.iter().any(Option::is_some);
        Self { all, period, due: if looks { now() + period } else { FOREVER } }
    }

    /// Returns when the next look is due; [`FOREVER`]: it looks at no thread.
    #[must_use]
    pub const fn due(&self) -> u64 {
        self.due
    }

    /// Looks at all words, if that is due. Returns the set of the threads that hang, by bit.
    pub fn look(&mut self) -> u64 {
        if now() < self.due {
            return 0;
        }
        // From now on: behind a pause of the whole core there is one look, and no more.
        self.due = now().saturating_add(self.period);
        let hang = |one: &mut Option<(Sign, Look)>| {
            one.as_mut().is_some_and(|(sign, look)| look.hangs(sign.word()))
        };
        self.all.iter_mut().enumerate().fold(0, |set, (n, one)| set | u64::from(hang(one)) << n)
    }

    /// A thread begins anew.
    pub fn begin(&mut self, thread: usize) {
        if let Some(Some((sign, look))) = self.all.get_mut(thread) {
            look.begin(sign.word());
        }
    }
}

/// Finds the times of a thread in the arguments.
fn times(program: Program, thread: &str) -> Option<&'static str> {
    let words = program.args().split_ascii_whitespace();
    let mut own = words.filter_map(|word| word.strip_prefix(MEMORY)?.strip_prefix(thread));
    own.find_map(|rest| rest.strip_prefix('='))
}
