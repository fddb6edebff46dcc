//! A keeper of snapshots ([`bulkhead_program::snapshot`]): a passive server, which works on the time of its wards.
//!
//! Arguments: `states=NAME:NAME`. The first ward has the badge 1 and the state in memory `NAME`, which the keeper
//! reads. Its snapshots go into memory `NAME-kept`, which the keeper alone writes. A badge is the manifest's, and says
//! all that a request is about. A request carries no address and no length.
//!
//! A fault, or the end of a call's `longest`, may stop it for ever between any two stores. The next life begins with
//! what was whole before. The rules for that are [`bulkhead_program::layout::snapshot`]'s, as in a monitor.
#![no_std]

use bulkhead_program::layout::PAGE;
use bulkhead_program::layout::snapshot::{self, Head, SLICE, Store, Taken};
use bulkhead_program::snapshot::{Kept, WORDS, answer, kept, request};
use bulkhead_program::{Message, Program, Received, println};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Most wards of a keeper.
const MOST: usize = 8;

/// Tells if a rule holds ([`Store::enforced`]).
pub trait Rules: Copy {
    /// See there.
    fn enforced(self, rule: &str) -> bool;
}

/// A ward's state, and the store of its snapshots.
struct Ward<R> {
    name: &'static str,
    state: &'static [AtomicU64],
    kept: Kept,
    rules: R,
}

impl<R: Rules> Ward<R> {
    fn find(program: Program, name: &'static str, rules: R) -> Self {
        let state = program.memory(name).words();
        let Some(kept) = kept(program, name) else { panic!("no room for snapshots of {name}") };
        let ward = Self { name, state, kept, rules };
        assert!(ward.pages() <= kept.room(), "{name} has more pages than there is room for");
        ward
    }

    fn pages(&self) -> u64 {
        (self.state.len() / WORDS) as u64
    }

    /// Begins a life, and tells with which snapshot.
    fn begin(&self) -> u64 {
        let found = snapshot::begin(self, true);
        let named = snapshot::name(self, 0, self.pages(), self.kept.room());
        let (name, generation) = (self.name, found.generation);
        match found.broken {
            0 => println!("keeper: {name} begins with snapshot {generation}"),
            n => println!("keeper: {name} begins with snapshot {generation}, {n} not whole"),
        }
        if named { answer::DONE } else { answer::REFUSED }
    }

    /// Answers a request. Its numbers are claims.
    fn answer(&self, message: Message) -> u64 {
        match message.label() {
            request::LAST => self.begin(),
            request::TAKE => match snapshot::take(self, message.words[0], SLICE) {
                Taken::Whole => answer::DONE,
                Taken::Again => answer::AGAIN,
                Taken::Nothing => answer::REFUSED,
            },
            _ => answer::REFUSED,
        }
    }
}

impl<R: Rules> Store for Ward<R> {
    type Word = AtomicU64;

    #[inline(always)]
    fn head(&self) -> &Head {
        self.kept.head()
    }

    fn copy(&self, buffer: usize, page: usize, from: u64) -> u64 {
        let from = (from % (self.pages() * PAGE)) as usize / 8;
        let (from, to) = (&self.state[from..], self.kept.page(buffer, page));
        // The words are the other program's, so each is read once: what is written is what is summed up.
        from.iter().zip(to).fold(0, |sum, (from, to)| {
            let word = from.load(Relaxed);
            to.store(word, Relaxed);
            sum.wrapping_add(word)
        })
    }

    fn sum(&self, buffer: usize, page: usize) -> u64 {
        let words = self.kept.page(buffer, page).iter();
        words.fold(0, |sum, word| sum.wrapping_add(word.load(Relaxed)))
    }

    #[inline(always)]
    fn enforced(&self, rule: &str) -> bool {
        self.rules.enforced(rule)
    }
}

/// Serves for ever.
pub fn serve<R: Rules>(program: Program, rules: R) -> ! {
    let mut names = program.arg("states").unwrap_or_default().split(':').filter(|n| !n.is_empty());
    let wards: [_; MOST] =
        core::array::from_fn(|_| names.next().map(|name| Ward::find(program, name, rules)));
    assert!(names.next().is_none(), "more than {MOST} states");
    let (asked, reply) = (program.serves("keeper"), program.own_reply());
    let mut heard = asked.receive(reply);
    loop {
        heard = match heard {
            Ok(Received { badge, message }) => {
                let ward = (badge as usize).checked_sub(1).and_then(|n| wards.get(n)?.as_ref());
                let answer = ward.map_or(answer::REFUSED, |ward| ward.answer(message));
                asked.reply_receive(reply, Message::new(answer, &[]))
            }
            // The caller was stopped meanwhile.
            Err(_) => asked.receive(reply),
        };
    }
}
