//! Snapshots: stateright explores every order of a guest's writes, its calls, deaths and new lives, with the real code.
//! A death can come between any two stores of a call and of a new life's beginning, and one bit may flip. Then each of
//! the steps that the protocol needs is left out, and the model finds what goes wrong.

use bulkhead_monitor_abi::PAGE;
use bulkhead_monitor_abi::snapshot::{
    Buffer, Found, Head, PAGES, Store, Taken, Word, begin, name, take,
};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::cell::Cell;

/// Pages that the guest names, and words of each.
const NAMED: usize = 2;
const WORDS: usize = 2;
/// Pages that a call copies.
const MOST: u32 = 1;
/// Generations: what keeps it finite.
const GENERATIONS: u64 = 4;
/// Values of a page.
const VALUES: u64 = 2;
/// Stores without an end.
const ALL: u32 = u32::MAX;

type Content = [u64; NAMED];

/// Words of a page with a value.
fn words(value: u64) -> [u64; WORDS] {
    [value + 1, 16 * (value + 1)]
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Kept {
    generation: u64,
    pages: u64,
    sum: u64,
    sums: [u64; NAMED],
    words: [[u64; WORDS]; NAMED],
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    /// The guest lives.
    alive: bool,
    guest: Content,
    /// Pages that it has changed and not told of.
    changed: u64,
    owed: [u64; 2],
    offered: u64,
    kept: [Kept; 2],
    /// The last snapshots that were whole, the newest one last.
    whole: Vec<(u64, Content)>,
    flips: u32,
    /// A beginning that was to drop all snapshots may have dropped some.
    dropping: bool,
    /// A life began with something that was no snapshot.
    torn: bool,
    /// A life did not begin with the last snapshot, and no bit has flipped.
    lost: bool,
    /// A life did not begin with the one before, which was there, and one bit has flipped.
    both_lost: bool,
    /// More snapshots were called broken than bits have flipped.
    blamed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// The guest changes a page.
    Write(usize),
    /// It makes a call, and all ends after so many stores.
    Take(u32),
    /// It dies.
    Die,
    /// The next life begins, warm or not, and all ends after so many stores.
    Begin(bool, u32),
    /// A bit flips in a page of a buffer, or in its header.
    Flip(usize, usize),
}

thread_local! {
    /// Stores until all ends.
    static LEFT: Cell<u32> = const { Cell::new(0) };
}

/// A word. Stores to it have an effect while some are left.
struct Counted(Cell<u64>);

impl Word for Counted {
    fn load(&self) -> u64 {
        self.0.get()
    }

    fn store(&self, value: u64) {
        if LEFT.get() > 0 {
            LEFT.set(LEFT.get() - 1);
            self.0.set(value);
        }
    }
}

/// The world while a call is made.
struct Machine<'a> {
    omitted: &'a str,
    guest: Content,
    head: Head<Counted>,
    words: [[[Counted; WORDS]; NAMED]; 2],
}

impl<'a> Machine<'a> {
    fn of(world: &World, omitted: &'a str, stores: u32) -> Self {
        LEFT.set(stores);
        let word = |value| Counted(Cell::new(value));
        let buffer = |n: usize| {
            let kept = &world.kept[n];
            Buffer {
                generation: word(kept.generation),
                pages: word(kept.pages),
                sum: word(kept.sum),
                sums: std::array::from_fn(|n| word(kept.sums.get(n).copied().unwrap_or(0))),
            }
        };
        let head = Head {
            offered: word(world.offered),
            buffer: word(0),
            named: word(NAMED as u64),
            owed: world.owed.map(word),
            buffers: [buffer(0), buffer(1)],
            pages: std::array::from_fn::<_, PAGES, _>(|n| word(n as u64 * PAGE)),
        };
        let words = [0, 1].map(|n: usize| world.kept[n].words.map(|page| page.map(word)));
        Self { omitted, guest: world.guest, head, words }
    }

    /// Writes back what has become of the store.
    fn into(self, world: &mut World) {
        for (n, kept) in world.kept.iter_mut().enumerate() {
            let buffer = &self.head.buffers[n];
            *kept = Kept {
                generation: buffer.generation.load(),
                pages: buffer.pages.load(),
                sum: buffer.sum.load(),
                sums: std::array::from_fn(|n| buffer.sums[n].load()),
                words: self.words[n].each_ref().map(|page| page.each_ref().map(Word::load)),
            };
        }
        world.owed = self.head.owed.each_ref().map(Word::load);
        world.offered = self.head.offered.load();
    }

    /// Content of a buffer; `None`: no page had it.
    fn content(&self, buffer: usize) -> Option<Content> {
        let value = |page: &[Counted; WORDS]| {
            let found = page.each_ref().map(Word::load);
            (0..VALUES).find(|value| words(*value) == found)
        };
        let [first, second] = self.words[buffer].each_ref().map(value);
        Some([first?, second?])
    }
}

impl Store for Machine<'_> {
    type Word = Counted;

    fn head(&self) -> &Head<Counted> {
        &self.head
    }

    fn copy(&self, buffer: usize, page: usize, from: u64) -> u64 {
        let source = words(self.guest[(from / PAGE) as usize]);
        let copy = &self.words[buffer][page];
        copy.iter().zip(source).for_each(|(to, from)| to.store(from));
        self.sum(buffer, page)
    }

    fn sum(&self, buffer: usize, page: usize) -> u64 {
        self.words[buffer][page].iter().fold(0, |sum, word| sum + word.load())
    }

    fn enforced(&self, rule: &str) -> bool {
        rule != self.omitted
    }
}

/// Counts the stores that something needs.
fn stores(does: impl FnOnce()) -> u32 {
    does();
    ALL - LEFT.get()
}

/// The model, with a step left out.
struct Snapshots(&'static str);

impl Snapshots {
    fn takes(&self, world: &mut World, stores: u32) {
        let machine = Machine::of(world, self.0, stores);
        let taken = take(&machine, world.changed, MOST);
        let ended = LEFT.get() == 0;
        // By the store that gives a generation it is whole, whatever comes behind.
        let generation = |m: &Machine<'_>| m.head.buffers.each_ref().map(|b| b.generation.load());
        let newest = generation(&machine).into_iter().max().unwrap_or(0);
        let last = world.whole.last().map_or(0, |whole| whole.0);
        machine.into(world);
        world.changed = 0;
        world.alive = !ended;
        // An order that is wrong gives the generation early: that is no snapshot yet.
        let whole = if self.0 == "snapshot-order" && ended { false } else { newest > last };
        if whole && (taken == Taken::Whole || ended) {
            world.whole.push((newest, world.guest));
            let old = world.whole.len().saturating_sub(2);
            world.whole.drain(..old);
        }
    }

    /// Begins a life, in which the guest names its pages.
    fn life(&self, machine: &Machine<'_>, warm: bool) -> (Found, bool) {
        (begin(machine, warm), name(machine, 0, NAMED as u64, NAMED as u64))
    }

    fn begins(&self, world: &mut World, warm: bool, stores: u32) {
        let machine = Machine::of(world, self.0, stores);
        let two = world.kept.iter().all(|kept| kept.generation != 0);
        let (found, named) = self.life(&machine, warm);
        if LEFT.get() == 0 {
            world.dropping |= !warm;
            return machine.into(world);
        }
        let content = machine.content(machine.head.buffer.load() as usize & 1);
        machine.into(world);
        world.alive = named;
        world.changed = 0;
        world.guest = [0; NAMED];
        if found.generation != 0 {
            world.guest = content.unwrap_or_default();
        }
        if warm {
            self.judge(world, found, content, two);
            world.whole.retain(|whole| whole.0 <= found.generation);
        } else {
            world.whole.clear();
            world.dropping = false;
        }
    }

    /// Compares what a life found with what was whole.
    fn judge(&self, world: &mut World, found: Found, content: Option<Content>, two: bool) {
        let at = |back: usize| world.whole.iter().rev().nth(back);
        let is = |whole: Option<&(u64, Content)>| match whole {
            None => found.generation == 0,
            Some((generation, kept)) => found.generation == *generation && content == Some(*kept),
        };
        let (last, before, none) = (is(at(0)), is(at(1)), found.generation == 0);
        world.torn |= !(last || before || none);
        if !world.dropping {
            world.lost |= world.flips == 0 && !last;
            // A death in the middle of a snapshot leaves one, which a flip may take.
            world.both_lost |= two && !last && !before;
        }
        world.blamed |= found.broken > world.flips;
    }
}

impl Model for Snapshots {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::default()]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.alive {
            steps.extend((0..NAMED).map(Step::Write));
            steps.push(Step::Die);
            if world.kept.iter().all(|kept| kept.generation < GENERATIONS) {
                let needed = stores(|| {
                    let _ = take(&Machine::of(world, self.0, ALL), world.changed, MOST);
                });
                steps.extend((0..needed).chain([ALL]).map(Step::Take));
            }
            return;
        }
        for warm in [true, false] {
            let needed = stores(|| {
                let _ = self.life(&Machine::of(world, self.0, ALL), warm);
            });
            steps.extend((0..needed).chain([ALL]).map(|stores| Step::Begin(warm, stores)));
        }
        if world.flips == 0 {
            let parts = [0, 1].map(|buffer| (0..5).map(move |part| Step::Flip(buffer, part)));
            steps.extend(parts.into_iter().flatten());
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::Write(page) => {
                next.guest[page] = (next.guest[page] + 1) % VALUES;
                next.changed |= 1 << page;
            }
            Step::Take(stores) => self.takes(&mut next, stores),
            Step::Die => next.alive = false,
            Step::Begin(warm, stores) => self.begins(&mut next, warm, stores),
            Step::Flip(buffer, part) => {
                let kept = &mut next.kept[buffer];
                next.flips = 1;
                match part {
                    0 => kept.words[0][0] ^= 1,
                    1 => kept.sums[1] ^= 2,
                    2 => kept.pages ^= 1,
                    3 => kept.generation ^= 8,
                    _ => kept.sum ^= 4,
                }
            }
        }
        if !next.alive {
            // The next life depends on nothing of it.
            (next.guest, next.changed, next.owed, next.offered) = Default::default();
            let in_flux = next.kept.iter_mut().filter(|kept| kept.generation == 0);
            in_flux.for_each(|kept| *kept = Kept::default());
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a life begins with a snapshot or with none", |_, world: &World| {
                !world.torn
            }),
            Property::always("a death loses no snapshot", |_, world: &World| !world.lost),
            Property::always("a flip leaves one of two", |_, world: &World| !world.both_lost),
            Property::always("no snapshot is called broken for a death", |_, world: &World| {
                !world.blamed
            }),
            Property::sometimes("a life begins with the last generation", |_, world: &World| {
                world.alive && world.offered == GENERATIONS
            }),
            Property::sometimes("a life begins with the one before", |_, world: &World| {
                world.alive && world.flips == 1 && world.offered == 2
            }),
        ]
    }
}

fn explored(omitted: &'static str, until: HasDiscoveries) -> impl Checker<Snapshots> {
    Snapshots(omitted).checker().threads(2).finish_when(until).spawn_bfs().join()
}

#[test]
fn a_life_begins_with_the_last_snapshot_that_was_whole() {
    let checker = explored("", HasDiscoveries::AnyFailures);
    checker.assert_properties();
    println!("{} states", checker.unique_state_count());
    assert!(checker.unique_state_count() > 10_000, "{}", checker.unique_state_count());
}

#[test]
fn each_step_that_is_left_out_is_found() {
    for (omitted, property) in [
        ("snapshot-whole", "a life begins with a snapshot or with none"),
        ("snapshot-order", "a life begins with a snapshot or with none"),
        ("snapshot-buffer", "a death loses no snapshot"),
        ("snapshot-union", "a life begins with a snapshot or with none"),
        ("snapshot-flux", "no snapshot is called broken for a death"),
    ] {
        let checker = explored(omitted, HasDiscoveries::AnyOf([property].into()));
        assert!(checker.discovery(property).is_some(), "{omitted}: {property}");
        println!("{omitted}: {} states", checker.unique_state_count());
    }
}
