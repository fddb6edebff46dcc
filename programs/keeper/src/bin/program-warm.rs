//! Counts, takes a snapshot of its state at each step, fails, and goes on from the last one.
//!
//! Arguments:
//!
//! * `state=NAME`: memory of its state, and `rounds=N`: steps of a life (default: 20);
//! * `way=stop|hang|write|middle|each` (`each`: the first four in turn), `fails=N` (default: for ever). `write` writes
//!   to its snapshots, and `middle` fails in the middle of one. In place of the last failure it ends;
//! * `still=N`: each second life takes none, and fails when N have changed;
//! * `attack=1`: it makes requests that its keeper has to refuse or to bear, says what came of them, and counts on;
//! * `every=MS`: a step that often (default: one behind the other);
//! * `measures=N`: it measures so many snapshots of which a page has changed, another one each time, and ends.
//!
//! Memory `alive-NAME`, if it has that: a word for its guard.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::marker::{BEGIN, END, id};
use bulkhead_program::snapshot::{Kept, Last, Snapshots, WORDS, answer, kept};
use bulkhead_program::{Message, Program, Sign, mark, now, println, sleep_until, stop};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

bulkhead_program::entry!(warm);

/// Exit code of a state that is wrong.
const WRONG: u32 = 9;
/// In word 1 of its state while it waits for flips.
const WAITS: u64 = 0x5354_4941_5700_0001;
const MILLI: u64 = 1_000_000;

/// Its state: word 0 counts the steps, and each other word of a page has the last step that changed that page.
struct State {
    words: &'static [AtomicU64],
    pages: usize,
}

impl State {
    fn count(&self) -> u64 {
        self.words[0].load(Relaxed)
    }

    fn page(&self, page: usize) -> impl Iterator<Item = &'static AtomicU64> + use<> {
        self.words[page * WORDS..][..WORDS].iter().skip(usize::from(page == 0))
    }

    /// The last step that changed a page; 0: none did.
    fn changed_at(&self, page: usize) -> u64 {
        let (count, pages) = (self.count(), self.pages as u64);
        let since = (count + pages - page as u64) % pages;
        count.saturating_sub(since)
    }

    /// Tells if it is that of its count.
    fn right(&self) -> bool {
        (0..self.pages).all(|page| {
            let step = self.changed_at(page);
            self.page(page).all(|word| word.load(Relaxed) == step)
        })
    }

    /// Takes it from a snapshot, or begins with nothing.
    fn restore(&self, last: Option<&Last>) -> bool {
        (0..self.pages).all(|page| {
            let mut words = [0; WORDS];
            let read = last.is_none_or(|last| last.read(page, &mut words));
            let own = &self.words[page * WORDS..][..WORDS];
            own.iter().zip(words).for_each(|(to, from)| to.store(from, Relaxed));
            read
        })
    }

    /// Makes a step, and returns the pages that it changed.
    fn step(&self) -> u64 {
        let count = self.count() + 1;
        self.words[0].store(count, Relaxed);
        let page = count as usize % self.pages;
        self.page(page).for_each(|word| word.store(count, Relaxed));
        1 | 1 << page
    }
}

/// A life of the ward.
struct Life {
    program: Program,
    state: State,
    snapshots: Snapshots,
    kept: Kept,
    sign: Option<Sign>,
    number: u64,
}

fn warm(program: Program) -> u32 {
    let name = program.arg("state").unwrap_or_default();
    let words = program.memory(name).words();
    let state = State { words, pages: words.len() / WORDS };
    let (Some(snapshots), Some(kept)) =
        (Snapshots::find(program, "keeper", name), kept(program, name))
    else {
        println!("{}: no snapshots", program.name());
        return WRONG;
    };
    let sign = Sign::find(program, program.name());
    Life { program, state, snapshots, kept, sign, number: program.begun() - 1 }.live()
}

impl Life {
    fn number(&self, key: &str, otherwise: u64) -> u64 {
        self.program.number(key).unwrap_or(otherwise)
    }

    fn kick(&self) {
        let _ = self.sign.map(Sign::kick);
    }

    fn live(&self) -> u32 {
        let (name, life) = (self.program.name(), self.number);
        let last = match self.snapshots.last() {
            Ok(last) => last,
            Err(why) => {
                println!("{name}: {why:?}");
                return WRONG;
            }
        };
        let read = self.state.restore(last.as_ref());
        let generation = last.map_or(0, |last| last.generation());
        println!("{name}: life {life} from snapshot {generation} at step {}", self.state.count());
        if !read || !self.state.right() {
            println!("{name}: its state is torn");
            return WRONG;
        }
        if life >= self.number("fails", u64::MAX) {
            println!("{name}: life {life} is well at step {}", self.state.count());
            return 0;
        }
        if let Some(rounds) = self.program.number("measures") {
            return self.measure(rounds);
        }
        if self.program.arg("attack").is_some() {
            self.attack();
        }
        let still = self.number("still", 0);
        if still != 0 && life % 2 == 1 {
            self.wait(still);
            stop();
        }
        if !self.count() {
            println!("{name}: no snapshot");
            return WRONG;
        }
        self.fail()
    }

    /// Makes the steps of a life.
    fn count(&self) -> bool {
        let every = self.number("every", 0) * MILLI;
        let mut due = now();
        for _ in 0..self.number("rounds", 20) {
            let changed = self.state.step();
            if self.snapshots.take(changed).is_err() {
                return false;
            }
            self.kick();
            if every > 0 {
                due += every;
                // It has time of its own.
                let _ = sleep_until(self.program.waits("pause"), due);
            }
        }
        true
    }

    fn fail(&self) -> ! {
        const WAYS: [&str; 4] = ["stop", "hang", "write", "middle"];
        let way = match self.program.arg("way").unwrap_or("stop") {
            "each" => WAYS[self.number as usize % WAYS.len()],
            way => way,
        };
        let name = self.program.name();
        println!("{name}: life {} fails at step {}, {way}", self.number, self.state.count());
        match way {
            // No program may write there: an exception.
            "write" => self.kept.page(0, 0)[0].store(1, Relaxed),
            "middle" => {
                // More pages than one call copies: the snapshot stays unfinished.
                let changed = (0..self.state.pages).fold(0, |all, _| all | self.state.step());
                println!("{name}: a snapshot of {changed:#x}");
                println!("{name}: {:?} in the middle", self.snapshots.step(changed));
            }
            "hang" => loop {
                core::hint::spin_loop();
            },
            _ => {}
        }
        stop()
    }

    /// Waits until the last words of so many snapshots have changed, for some seconds at most.
    fn wait(&self, flips: u64) {
        let last = self.state.pages - 1;
        // In both: the last page was changed before the older one was taken.
        let before = self.state.words[last * WORDS + WORDS - 1].load(Relaxed);
        let changed = |n: &usize| self.kept.page(*n, last)[WORDS - 1].load(Relaxed) != before;
        self.state.words[1].store(WAITS, Relaxed);
        let due = now() + 60_000 * MILLI;
        while ((0..2).filter(changed).count() as u64) < flips && now() < due {
            core::hint::spin_loop();
        }
    }

    fn measure(&self, rounds: u64) -> u32 {
        // The first one of each buffer has all pages.
        let taken = (0..2 + rounds).all(|n| {
            let changed = 1 << (n % self.state.pages as u64);
            if n < 2 {
                return self.snapshots.take(changed).is_ok();
            }
            mark!(BEGIN | id::KERNEL_SNAPSHOT);
            let taken = self.snapshots.take(changed);
            mark!(END | id::KERNEL_SNAPSHOT);
            taken.is_ok()
        });
        if taken { 0 } else { WRONG }
    }

    /// Makes requests with wrong numbers, and many.
    fn attack(&self) {
        let (name, keeper) = (self.program.name(), self.program.endpoint("keeper"));
        let other = self.program.find_memory("count").or(self.program.find_memory("count-kept"));
        println!("{name}: the other one's memory: {}", other.is_some());
        for label in [0, 3, u64::MAX >> 16, 1 << 32] {
            let got = keeper.call(Message::new(label, &[u64::MAX; 4]));
            println!("{name}: request {label:#x} got {:?}", got.map(|answer| answer.label()));
        }
        println!("{name}: a message without time got {:?}", keeper.send(Message::new(2, &[1])));
        // Pages that it has not are no part of the claim.
        let wrong = |n: &u32| {
            let begins = n.is_multiple_of(100) && self.snapshots.last().is_err();
            begins || self.snapshots.take(u64::MAX).is_err()
        };
        println!("{name}: of a flood {} were refused", (0..300).filter(wrong).count());
        let late = (0..300).filter(|_| self.snapshots.step(u64::MAX) != Ok(answer::AGAIN)).count();
        println!("{name}: of snapshots without an end {late} came to one");
    }
}
