//! Order in which a client gives its unanswered requests again, to the next life of a driver that failed.
//!
//! A list of these requests lies in the driver's section, in pages that the protocol does not use. That memory outlives
//! the sandbox's restart.

use bulkhead_program::channel::{Bytes, Memory};
use bulkhead_program::typed::Mapping;
use bulkhead_store::disk::{Operation, Request};
use bulkhead_virtio::layout::{QUEUES, used};

/// Offset of the list in the driver's section, behind the used rings: its length, then a word for each request.
const LIST: usize = used(QUEUES);
/// Requests at the disk, at most.
const MOST: usize = 64;
/// Requests of the next life among which all of the list are.
const LATEST: usize = 128;

/// News of the order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Nothing new.
    Nothing,
    /// So many requests have come again in their order.
    Again(usize),
    /// One of them did not come in its turn.
    Wrong,
}

/// Requests at the disk, and those that the last life left there.
pub struct Order {
    flying: [Option<(u16, u64)>; MOST],
    expected: [u64; MOST],
    wanted: usize,
    met: usize,
    seen: usize,
}

/// A word for a request, by which it is known again.
fn word(request: &Request) -> u64 {
    let operation = match request.operation {
        Operation::Read => 0,
        Operation::Write => 1,
        Operation::Flush => 2,
        Operation::Discard => 3,
        Operation::Zero { unmap } => 4 + u64::from(unmap),
    };
    // Lengths are multiples of 512.
    request.sector << 32 | u64::from(request.len) | operation
}

impl Order {
    /// Begins a life: takes the list that the last one left.
    pub fn new(section: &Mapping<'static>) -> Self {
        let mut order =
            Self { flying: [None; MOST], expected: [0; MOST], wanted: 0, met: 0, seen: 0 };
        let Some(list) = section.bytes(LIST, 8 * (MOST + 1)) else { return order };
        order.wanted = (list.word(0) as usize).min(MOST);
        list.set_word(0, 0);
        let words = order.expected.iter_mut().enumerate();
        words.for_each(|(n, word)| *word = list.word(8 * (n + 1)));
        order
    }

    /// The disk gets a request.
    pub fn submitted(&mut self, request: &Request) -> Seen {
        if let Some(free) = self.flying.iter().position(Option::is_none) {
            // All places before are those of older ones.
            self.flying[free] = Some((request.tag, word(request)));
        }
        if self.met == self.wanted {
            return Seen::Nothing;
        }
        self.seen += 1;
        let (next, later) = self.expected[self.met..self.wanted].split_at(1);
        // A client that did not see an answer gives that request again, too. It may be a flush as others are.
        let early = request.operation != Operation::Flush && later.contains(&word(request));
        if next == [word(request)] {
            self.met += 1;
        } else if early || self.seen > LATEST {
            self.wanted = self.met;
            return Seen::Wrong;
        }
        if self.met == self.wanted { Seen::Again(self.wanted) } else { Seen::Nothing }
    }

    /// A request is answered.
    pub fn answered(&mut self, tag: u16) {
        let is = |place: &Option<(u16, u64)>| place.is_some_and(|(known, _)| known == tag);
        let Some(at) = self.flying.iter().position(is) else { return };
        self.flying[at..].rotate_left(1);
        self.flying[MOST - 1] = None;
    }

    /// Leaves the list to the next life.
    pub fn leave(&self, section: &Mapping<'static>) {
        let Some(list) = section.bytes(LIST, 8 * (MOST + 1)) else { return };
        let words = self.flying.iter().flatten();
        list.set_word(0, words.clone().count() as u64);
        (1..).zip(words).for_each(|(n, (_, word))| list.set_word(8 * n, *word));
    }
}
