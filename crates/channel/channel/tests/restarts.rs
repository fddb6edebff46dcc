//! Join, close, restart: every interleaving of the steps of a queue's two ends, with the real code, explored by
//! stateright. An end may vanish at any step and begin anew, with its region unchanged or with a cleared header. Or
//! the owner of the tables buries it.
//!
//! A message is the life of its sender and its number in the sender's session, so that an
//! old one would be seen.

use bulkhead_channel::layout::{DATA, HELLO};
use bulkhead_channel::{Bytes, Memory, Offsets, Stop, Word, page, queue};
use stateright::{Checker, Model, Property};
use std::cell::RefCell;
use std::hash::{Hash, Hasher};

const SLOTS: u32 = 2;
/// Words that the regions use: the header's, and two messages of a word.
const WORDS: usize = DATA / 8 + 2;
/// Bounds that keep it finite: lives of each end, messages of a session, and times that an end leaves.
const LIVES: u8 = 3;
const MESSAGES: u8 = 3;
const ABSENCES: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Send,
    Receive,
    Attend(Side),
    Close(Side),
    Reset(Side),
    /// It ends and begins anew, with its header cleared before, if true. The messages are not cleared: a receiver
    /// that reads them would get zeros. So a region is only cleared whole while it is not read.
    Restart(Side, bool),
    /// It ends for good, and is buried.
    Die(Side),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Side {
    Sender,
    Receiver,
}

thread_local! {
    /// The memory of the state that is being looked at. The ends know places in it only by
    /// number, so that a state can be copied.
    static MEMORY: RefCell<Memories> = const { RefCell::new([[0; WORDS]; 2]) };
}

type Memories = [[u64; WORDS]; 2];

/// `tx` is 0, `rx` is 1; a place in it, in words, and how many.
#[derive(Clone, Debug)]
struct Place(usize, usize, usize);

impl Place {
    fn get(&self, at: usize) -> u64 {
        MEMORY.with_borrow(|memory| memory[self.0][self.1 + at])
    }
    fn put(&self, at: usize, value: u64) {
        MEMORY.with_borrow_mut(|memory| memory[self.0][self.1 + at] = value);
    }
}

impl Word for Place {
    fn relaxed(&self) -> u64 {
        self.get(0)
    }
    fn acquire(&self) -> u64 {
        self.get(0)
    }
    fn set(&self, value: u64) {
        self.put(0, value);
    }
    fn release(&self, value: u64) {
        self.put(0, value);
    }
    fn fenced(&self, value: u64) {
        self.put(0, value);
    }
}

impl Bytes for Place {
    fn len(&self) -> usize {
        8 * self.2
    }
    fn read(&self, at: usize, to: &mut [u8]) -> bool {
        to.copy_from_slice(&self.get(at / 8).to_le_bytes());
        true
    }
    fn write(&self, at: usize, from: &[u8]) -> bool {
        self.set_word(at, u64::from_le_bytes(from.try_into().expect("a word")));
        true
    }
    fn word(&self, at: usize) -> u64 {
        self.get(at / 8)
    }
    fn set_word(&self, at: usize, value: u64) {
        self.put(at / 8, value);
    }
}

impl Memory for Place {
    type Word = Self;
    type Bytes = Self;
    type Lane = Offsets;

    fn word(&self, at: usize) -> Option<Self> {
        self.bytes(at, 8)
    }
    fn bytes(&self, at: usize, len: usize) -> Option<Self> {
        (at + len <= 8 * self.2).then_some(Self(self.0, at / 8, len / 8))
    }
    fn lane(&self, at: usize, stride: usize, slots: u32) -> Option<Offsets> {
        let lane = Offsets::new(stride, slots)?;
        self.bytes(at, stride * slots as usize).map(|_| lane)
    }
    fn fence(&self) {}
}

const TX: Place = Place(0, 0, WORDS);
const RX: Place = Place(1, 0, WORDS);

/// Both regions, the state of both ends, and the events so far.
#[derive(Clone, Debug)]
struct State {
    memory: Memories,
    sender: Option<queue::Sender<Place>>,
    receiver: Option<queue::Receiver<Place>>,
    /// Lives so far, of both.
    lives: [u8; 2],
    absences: u8,
    /// Number of the next message in the sender's session, and that session's epoch and
    /// the sender's life.
    next: (u8, u32, u8),
    /// The receiver's session and life, the message that it expects, and of which session
    /// and life of the sender's the last one was.
    expected: ((u32, u8), u8, u64),
    wrong: Option<&'static str>,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

/// The ends' state is the text that they give in `Debug`.
impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        format!("{self:?}").hash(hasher);
    }
}

impl State {
    fn new() -> Self {
        Self {
            memory: [[0; WORDS]; 2],
            sender: None,
            receiver: None,
            lives: [0; 2],
            absences: 0,
            next: (0, 0, 0),
            expected: ((0, 0), 0, 0),
            wrong: None,
        }
    }

    fn open(&mut self, side: Side) {
        match side {
            Side::Sender => {
                self.sender = Some(queue::Sender::open(&TX, &RX, SLOTS, 8).expect("fits"));
                self.lives[0] += 1;
            }
            Side::Receiver => {
                self.receiver = Some(queue::Receiver::open(&RX, &TX, SLOTS, 8).expect("fits"));
                self.lives[1] += 1;
            }
        }
    }

    fn send(&mut self) -> Result<(), Stop> {
        let Some(sender) = &mut self.sender else { return Err(Stop::Apart) };
        let session = (sender.epoch(), self.lives[0]);
        let number = if (self.next.1, self.next.2) == session { self.next.0 } else { 0 };
        let message =
            u64::from(self.lives[0]) << 48 | u64::from(sender.epoch()) << 8 | u64::from(number);
        let sent = sender.send(&message.to_le_bytes());
        if sent.is_ok() {
            self.next = (number + 1, session.0, session.1);
        }
        sent
    }

    fn receive(&mut self) -> Result<(), Stop> {
        let Some(receiver) = &mut self.receiver else { return Err(Stop::Apart) };
        let mut got = [0; 8];
        receiver.receive(&mut got)?;
        let got = u64::from_le_bytes(got);
        let (epoch, number) = (got >> 8, got as u8);
        let now = (receiver.epoch(), self.lives[1]);
        let (session, expected, of) = self.expected;
        let fresh = session != now;
        self.wrong = self.wrong.or(match () {
            () if fresh && number != 0 => Some("a session begins in the middle"),
            () if !fresh && epoch != of => Some("a message of another session"),
            () if !fresh && number != expected => Some("a message out of turn"),
            // Each session of the receiver's hears one of the sender's, and each only once.
            () if fresh && epoch == of && of != 0 => Some("a session twice"),
            () => None,
        });
        self.expected = (now, number + 1, epoch);
        Ok(())
    }

    fn attend(&mut self, side: Side) -> Result<(), Stop> {
        match side {
            Side::Sender => self.sender.as_mut().map_or(Err(Stop::Apart), |s| s.attend()),
            Side::Receiver => self.receiver.as_mut().map_or(Err(Stop::Apart), |r| r.attend()),
        }
    }

    fn done(&mut self, step: Step) {
        let stop = match step {
            Step::Send => self.send(),
            Step::Receive => self.receive(),
            Step::Attend(side) => self.attend(side),
            Step::Close(side) => {
                match side {
                    Side::Sender => self.sender.iter_mut().for_each(|s| s.close()),
                    Side::Receiver => self.receiver.iter_mut().for_each(|r| r.close()),
                }
                Ok(())
            }
            Step::Reset(side) => {
                match side {
                    Side::Sender => self.sender.iter_mut().for_each(|s| s.reset()),
                    Side::Receiver => self.receiver.iter_mut().for_each(|r| r.reset()),
                }
                Ok(())
            }
            Step::Restart(side, cleared) => {
                if cleared {
                    MEMORY.with_borrow_mut(|memory| memory[side as usize][..DATA / 8].fill(0));
                }
                self.open(side);
                Ok(())
            }
            Step::Die(side) => {
                match side {
                    Side::Sender => self.sender = None,
                    Side::Receiver => self.receiver = None,
                }
                page::bury(&[TX, RX][side as usize]);
                Ok(())
            }
        };
        if stop == Err(Stop::Corrupted) || stop == Err(Stop::Foreign) {
            self.wrong = Some("an honest end is blamed");
        }
    }

    fn alive(&self, side: Side) -> bool {
        match side {
            Side::Sender => self.sender.is_some(),
            Side::Receiver => self.receiver.is_some(),
        }
    }

    /// Checks that messages arrive at a receiver that goes on. The sender may have left at once, and the receiver may
    /// not have looked since the answer.
    fn arrives(&self) -> bool {
        let hello = page::Hello::of(self.memory[0][HELLO / 8]);
        let (sent, epoch, life) = self.next;
        let Some(receiver) = &self.receiver else { return true };
        let theirs = hello.phase == page::Phase::Closed
            && (hello.epoch, hello.seen) == (epoch, receiver.epoch());
        if !theirs || sent == 0 || life != self.lives[0] {
            return true;
        }
        let mut state = self.clone();
        MEMORY.set(state.memory);
        let mut stop = Ok(());
        for _ in 0..=MESSAGES {
            stop = stop.and_then(|()| state.receive());
        }
        let of = u64::from(life) << 40 | u64::from(epoch);
        stop == Err(Stop::Closed) || (state.expected.1, state.expected.2) == (sent, of)
    }

    /// From here on nothing happens but that both go on: a message arrives, in a bounded
    /// number of calls. Closed ends open again first, dead ones are replaced.
    fn recovers(&self) -> bool {
        let mut state = self.clone();
        MEMORY.set(state.memory);
        for side in [Side::Sender, Side::Receiver] {
            if !state.alive(side) {
                state.open(side);
            }
        }
        for _ in 0..2 {
            for side in [Side::Sender, Side::Receiver] {
                if state.attend(side) == Err(Stop::Closed) {
                    state.done(Step::Reset(side));
                }
            }
        }
        for _ in 0..6 {
            let _ = state.send();
            if state.receive().is_ok() {
                return state.wrong.is_none();
            }
        }
        false
    }
}

struct Channel;

impl Model for Channel {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        if state.sender.is_some() && state.next.0 < MESSAGES {
            actions.push(Step::Send);
        }
        if state.receiver.is_some() {
            actions.push(Step::Receive);
        }
        for side in [Side::Sender, Side::Receiver] {
            if state.lives[side as usize] < LIVES {
                actions.extend([Step::Restart(side, false), Step::Restart(side, true)]);
            }
            if !state.alive(side) {
                continue;
            }
            actions.push(Step::Attend(side));
            if state.absences < ABSENCES {
                actions.extend([Step::Close(side), Step::Reset(side), Step::Die(side)]);
            }
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        next.absences += u8::from(matches!(step, Step::Reset(_) | Step::Close(_) | Step::Die(_)));
        MEMORY.set(next.memory);
        next.done(step);
        next.memory = MEMORY.with_borrow(|memory| *memory);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing is wrong", |_, state: &State| state.wrong.is_none()),
            Property::always("what was sent arrives", |_, state: &State| state.arrives()),
            Property::always("it works again", |_, state: &State| state.recovers()),
            Property::sometimes("a third life is heard", |_, state: &State| {
                state.lives == [LIVES; 2] && state.expected.1 == 2
            }),
        ]
    }
}

#[test]
fn whatever_ends_do_no_message_is_of_another_session_and_it_works_again() {
    let checked = Channel.checker().threads(2).target_max_depth(DEPTH).spawn_bfs().join();
    println!("{} states", checked.unique_state_count());
    checked.assert_no_discovery("nothing is wrong");
    checked.assert_no_discovery("what was sent arrives");
    checked.assert_no_discovery("it works again");
    checked.assert_any_discovery("a third life is heard");
    assert!(checked.unique_state_count() > 10_000);
}

/// Steps from the beginning.
const DEPTH: usize = 13;
