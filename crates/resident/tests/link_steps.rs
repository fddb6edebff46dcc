//! Channels made at run time, access by access: three sandboxes of two cores each, with the real code, explored by
//! stateright. Any two calls may be under way at once, on any cores, each stopped between any two accesses to what
//! others see; a sandbox may restart in every state in which no call of its own is under way, which is what its monitor
//! waits for, and its end is a call like the others. Memory is sequentially consistent here; weaker orders are
//! `link_order.rs`'s.
//!
//! A call is stopped by unwinding out of it. It goes on by being made again, with the same answers as before.

use bulkhead_resident::bell::Word;
use bulkhead_resident::link::{self, IDLE, OPEN, Side};
use stateright::{Checker, Model, Property};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

/// Sandboxes: the owner and two others.
const SANDBOXES: usize = 3;
const CORES: usize = 2;
/// What keeps it finite: offers, times that TLBs are emptied while a call is under way, and calls under way at once.
const OFFERS: u64 = 2;
const EMPTIED: u64 = 4;
const AT_ONCE: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Call {
    Offer(u32),
    /// Of an epoch.
    Accept(u64),
    Close,
    /// The NMI's handler.
    Look,
    /// The end of the sandbox, by its first core; the others wait.
    End,
}

/// A call that is under way, and the answers that it had so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Under {
    call: Call,
    answers: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Core {
    reaches: bool,
    nmi: bool,
    /// What was wanted when it emptied its TLB last.
    done: u64,
    under: Option<Under>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Sandbox {
    word: u64,
    entries: u64,
    /// How often its cores were to empty their TLBs; counted anew where no call of its is under way.
    wanted: u64,
    core: [Core; CORES],
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    sandbox: [Sandbox; SANDBOXES],
    torn: bool,
}

impl World {
    fn under_way(&self) -> usize {
        self.sandbox.iter().flat_map(|s| &s.core).filter(|c| c.under.is_some()).count()
    }
}

/// What unwinds out of a call that is to be stopped.
struct Pause;

/// The world while a call goes on by one access, or to its end.
struct Run {
    world: RefCell<World>,
    answers: RefCell<Vec<u64>>,
    at: Cell<usize>,
    more: Cell<usize>,
}

impl Run {
    fn access(&self, access: impl FnOnce(&mut World) -> u64) -> u64 {
        let at = self.at.replace(self.at.get() + 1);
        if let Some(answer) = self.answers.borrow().get(at) {
            return *answer;
        }
        match self.more.get().checked_sub(1) {
            Some(left) => self.more.set(left),
            None => resume_unwind(Box::new(Pause)),
        }
        let answer = access(&mut self.world.borrow_mut());
        self.answers.borrow_mut().push(answer);
        answer
    }
}

/// Which word.
#[derive(Clone, Copy)]
enum Which {
    Mail(usize),
    Wanted(usize),
    Done(usize, usize),
}

struct Shared(Rc<Run>, Which);

impl Shared {
    fn change(&self, f: impl FnOnce(u64) -> (u64, u64)) -> u64 {
        self.0.access(|world| match self.1 {
            Which::Mail(i) => {
                let (value, answer) = f(world.sandbox[i].word);
                world.sandbox[i].word = value;
                answer
            }
            Which::Wanted(i) => {
                let (value, answer) = f(world.sandbox[i].wanted);
                world.sandbox[i].wanted = value;
                answer
            }
            Which::Done(i, n) => {
                let (value, answer) = f(world.sandbox[i].core[n].done);
                world.sandbox[i].core[n].done = value;
                answer
            }
        })
    }
}

impl Word for Shared {
    fn load(&self) -> u64 {
        self.change(|value| (value, value))
    }
    fn replace(&self, from: u64, to: u64) -> bool {
        self.change(|value| if value == from { (to, 1) } else { (value, 0) }) != 0
    }
    fn claim(&self, from: u64, to: u64) -> bool {
        self.replace(from, to)
    }
    fn count(&self) {
        self.change(|value| (value + 1, 0));
    }
    fn exchange(&self, to: u64) -> u64 {
        self.change(|value| (to, value))
    }
}

/// A core of a sandbox.
struct Party {
    run: Rc<Run>,
    me: usize,
    core: usize,
    mail: [Shared; SANDBOXES],
    wanted: Shared,
    done: [Shared; CORES],
}

impl Party {
    fn new(run: &Rc<Run>, me: usize, core: usize) -> Self {
        let shared = |which| Shared(run.clone(), which);
        Self {
            run: run.clone(),
            me,
            core,
            mail: [0, 1, 2].map(|i| shared(Which::Mail(i))),
            wanted: shared(Which::Wanted(me)),
            done: [0, 1].map(|n| shared(Which::Done(me, n))),
        }
    }

    fn set(&self, f: impl FnOnce(&mut World)) {
        self.run.access(|world| {
            f(world);
            0
        });
    }

    fn empty(&self) {
        let flush = || self.set(|world| world.sandbox[self.me].core[self.core].reaches = false);
        link::empty(self, self.core as u32, flush);
    }

    /// What a core's monitor does at an NMI, and before it enters a guest anew.
    fn look(&self) {
        self.empty();
        link::settle(self);
        if self.core == 0 {
            link::look(self);
        }
    }

    fn make(&self, call: Call) {
        match call {
            Call::Offer(to) => drop(link::offer(self, to, 0)),
            Call::Accept(epoch) => drop(link::accept(self, epoch)),
            Call::Close => drop(link::close(self)),
            Call::Look => {
                self.set(|world| world.sandbox[self.me].core[self.core].nmi = false);
                self.look();
            }
            Call::End => {
                // No core runs the guest, and each empties its TLB before it does.
                self.set(|world| {
                    world.sandbox[self.me].core.iter_mut().for_each(|core| core.reaches = false)
                });
                link::end(self);
                // What they were rung for goes with what was pending, so each looks.
                self.set(|world| {
                    world.sandbox[self.me].core.iter_mut().for_each(|core| core.nmi = false)
                });
                (0..CORES).for_each(|core| Self::new(&self.run, self.me, core).look());
            }
        }
    }
}

impl Side for Party {
    type Word = Shared;
    fn me(&self) -> u32 {
        self.me as u32
    }
    fn owner(&self) -> u32 {
        0
    }
    fn word(&self, of: u32) -> &Shared {
        &self.mail[of as usize]
    }
    fn clear(&self) {
        self.set(|world| {
            let others = &world.sandbox[1..];
            let has = |s: &Sandbox| s.entries == OPEN || s.core.iter().any(|core| core.reaches);
            world.torn |= others.iter().any(has);
        });
    }
    fn map(&self, phase: u64) {
        self.set(|world| world.sandbox[self.me].entries = phase);
    }
    fn wanted(&self) -> &Shared {
        &self.wanted
    }
    fn done(&self, core: u32) -> Option<&Shared> {
        self.done.get(core as usize)
    }
    fn flush(&self) {
        self.empty();
        self.set(|world| world.sandbox[self.me].core[1 - self.core].nmi = true);
    }
    fn ring(&self, sandbox: u32) {
        self.set(|world| world.sandbox[sandbox as usize].core[0].nmi = true);
    }
    fn bury(&self, _: usize) {}
}

/// The model; or one whose calls aren't stopped, for comparison.
struct Slot;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// A core begins a call, or goes on with it, by one access.
    Go(usize, usize, Call),
    /// A core's guest touches the slot.
    Touch(usize, usize),
}

/// Goes on with a call by so many accesses; whether it is through.
fn go(world: &World, (me, core): (usize, usize), call: Call, accesses: usize) -> World {
    let mut world = world.clone();
    let under = world.sandbox[me].core[core].under.take();
    let answers = under.map_or(Vec::new(), |under| under.answers);
    let (at, more) = (Cell::new(0), Cell::new(accesses));
    let run = Rc::new(Run { world: RefCell::new(world), answers: RefCell::new(answers), at, more });
    let through = catch_unwind(AssertUnwindSafe(|| Party::new(&run, me, core).make(call))).is_ok();
    let mut world = run.world.borrow().clone();
    if !through {
        let answers = run.answers.borrow().clone();
        world.sandbox[me].core[core].under = Some(Under { call, answers });
    }
    for sandbox in
        world.sandbox.iter_mut().filter(|s| s.core.iter().all(|core| core.under.is_none()))
    {
        let wanted = std::mem::replace(&mut sandbox.wanted, 1);
        sandbox.core.iter_mut().for_each(|core| core.done = u64::from(core.done == wanted));
    }
    world
}

impl Model for Slot {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::default()]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let epoch = link::epoch(world.sandbox[0].word);
        let full = world.under_way() >= AT_ONCE;
        for (i, sandbox) in world.sandbox.iter().enumerate() {
            let ends = sandbox.core[0].under.as_ref().is_some_and(|under| under.call == Call::End);
            for (n, core) in sandbox.core.iter().enumerate() {
                if let Some(under) = &core.under {
                    steps.push(Step::Go(i, n, under.call));
                    continue;
                }
                if ends {
                    continue;
                }
                if sandbox.entries == OPEN && !core.reaches {
                    steps.push(Step::Touch(i, n));
                }
                if full || sandbox.wanted > EMPTIED {
                    continue;
                }
                if i == 0 && epoch < OFFERS {
                    steps.extend([1, 2].map(|to| Step::Go(i, n, Call::Offer(to))));
                }
                if i != 0 && epoch > 0 {
                    steps.push(Step::Go(i, n, Call::Accept(epoch)));
                }
                steps.push(Step::Go(i, n, Call::Close));
                if core.nmi {
                    steps.push(Step::Go(i, n, Call::Look));
                }
            }
            if !full
                && sandbox.wanted <= EMPTIED
                && sandbox.core.iter().all(|core| core.under.is_none())
            {
                steps.push(Step::Go(i, 0, Call::End));
            }
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let next = match step {
            Step::Go(i, n, call) => go(world, (i, n), call, 1),
            Step::Touch(i, n) => {
                let mut world = world.clone();
                world.sandbox[i].core[n].reaches = true;
                world
            }
        };
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("cleared while nobody else reaches it", |_, world: &World| {
                !world.torn
            }),
            Property::always("one at most has it besides its owner", |_, world: &World| {
                let has = |s: &&Sandbox| s.entries == OPEN || s.core.iter().any(|c| c.reaches);
                world.sandbox[1..].iter().filter(has).count() <= 1
            }),
            Property::always("it can be offered again", |_, world: &World| recovers(world)),
            Property::sometimes("both others have it, one after the other", |_, world: &World| {
                link::epoch(world.sandbox[0].word) == OFFERS && world.sandbox[2].entries == OPEN
            }),
        ]
    }
}

/// Whether all that is under way ends, and nothing is left when all have closed. Looked at where nothing is.
fn recovers(world: &World) -> bool {
    if world.under_way() != 0 {
        return true;
    }
    let mut world = world.clone();
    let settle = |world: &mut World| {
        for (i, n) in (0..4).flat_map(|_| [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]) {
            if world.sandbox[i].core[n].nmi {
                *world = go(world, (i, n), Call::Look, usize::MAX);
            }
        }
    };
    for i in 0..SANDBOXES {
        settle(&mut world);
        world = go(&world, (i, 0), Call::Close, usize::MAX);
    }
    settle(&mut world);
    let empty = |s: &Sandbox| {
        link::phase(s.word) == IDLE && s.entries == IDLE && !s.core.iter().any(|c| c.reaches)
    };
    let offered = go(&world, (0, 0), Call::Offer(1), usize::MAX);
    world.sandbox.iter().all(empty) && offered.sandbox[0].entries == OPEN
}

#[test]
fn a_slot_has_one_guest_at_a_time_whenever_a_sandbox_restarts() {
    let checker = Slot.checker().threads(2).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
    assert!(checker.unique_state_count() > 50_000, "{}", checker.unique_state_count());
}
