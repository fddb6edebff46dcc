//! Roles: stateright explores every order of what the holders' monitors do, with the real code. A monitor can stop
//! between any two stores of a step, and its spare one goes on from the words. Then each of the steps that the protocol
//! needs is left out, and the model finds what goes wrong.

use bulkhead_monitor_abi::bell::Word;
use bulkhead_monitor_abi::role::{self, GIVEN, HELD, Side, epoch, phase, to};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::cell::Cell;

/// Holders.
const HOLDERS: u32 = 3;
/// Epochs: it keeps the model finite.
const EPOCHS: u64 = 5;
/// Stores without an end.
const ALL: u32 = u32::MAX;

type Each<T> = [T; HOLDERS as usize];

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    words: Each<u64>,
    /// The memory is mapped for this guest.
    mapped: Each<bool>,
    /// The guest runs: while it does, its monitor takes roles only.
    runs: Each<bool>,
    /// A step of this monitor's has ended in its midst. A spare one begins a life.
    stopped: Each<bool>,
    /// A monitor was rung, and has not looked.
    rung: Each<bool>,
    /// The role's function is switched on, by this holder's monitor.
    on: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// A monitor hears its doorbell, and stops after so many stores.
    Look(u32, u32),
    /// A guest ends, and its monitor gives the role to another holder.
    Give(u32, u32, u32),
    /// A guest ends, and the role stays.
    End(u32),
    /// A guest begins.
    Begin(u32, u32),
    /// A spare monitor takes the place of one that has stopped.
    Enter(u32, u32),
}

thread_local! {
    /// Stores until all ends.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    /// A store had no effect.
    static CUT: Cell<bool> = const { Cell::new(false) };
}

fn store(effect: impl FnOnce()) {
    if LEFT.get() == 0 {
        return CUT.set(true);
    }
    LEFT.set(LEFT.get() - 1);
    effect();
}

/// A word. Stores to it have an effect while some are left.
struct Counted(Cell<u64>);

impl Word for Counted {
    fn load(&self) -> u64 {
        self.0.get()
    }

    fn replace(&self, _: u64, _: u64) -> bool {
        unreachable!("roles need none")
    }

    fn claim(&self, _: u64, _: u64) -> bool {
        unreachable!("roles need none")
    }

    fn count(&self) {
        unreachable!("roles need none")
    }

    fn exchange(&self, to: u64) -> u64 {
        let was = self.0.get();
        store(|| self.0.set(to));
        was
    }
}

/// A monitor at work.
struct At<'a> {
    me: u32,
    omitted: &'a str,
    words: Each<Counted>,
    mapped: Cell<bool>,
    rung: Each<Cell<bool>>,
    on: Cell<Option<u32>>,
}

impl At<'_> {
    /// Stops the sandbox's functions, as at the end of each life: those of a role that it has.
    fn quiet(&self) {
        let own = role::holds(self) != 0 || !self.enforced("role-function");
        if own && self.enforced("device-quiet") {
            store(|| self.on.set(None));
        }
    }
}

impl Side for At<'_> {
    type Word = Counted;

    fn me(&self) -> u32 {
        self.me
    }

    fn word(&self, of: u32) -> &Counted {
        &self.words[of as usize]
    }

    fn map(&self, epoch: u64) {
        store(|| self.mapped.set(epoch != 0));
        if epoch != 0 {
            store(|| self.on.set(Some(self.me)));
        }
    }

    fn ring(&self, sandbox: u32) {
        store(|| self.rung[sandbox as usize].set(true));
    }

    fn enforced(&self, rule: &str) -> bool {
        rule != self.omitted
    }
}

struct Roles(&'static str);

impl Roles {
    /// Lets a monitor do something, with so many stores.
    fn act(&self, world: &mut World, me: u32, stores: u32, act: impl FnOnce(&At)) {
        LEFT.set(stores);
        CUT.set(false);
        let n = me as usize;
        let at = At {
            me,
            omitted: self.0,
            words: world.words.map(|word| Counted(Cell::new(word))),
            mapped: Cell::new(world.mapped[n]),
            rung: world.rung.map(Cell::new),
            on: Cell::new(world.on),
        };
        act(&at);
        world.words = at.words.map(|word| word.0.get());
        world.mapped[n] = at.mapped.get();
        world.rung = at.rung.map(|rung| rung.get());
        world.on = at.on.get();
        if CUT.get() {
            (world.stopped[n], world.runs[n]) = (true, false);
        }
    }
}

fn others(me: u32) -> impl Iterator<Item = u32> {
    (0..HOLDERS).filter(move |other| *other != me)
}

/// Looks at the words of all others, one after the other.
fn look(at: &At, me: u32) {
    for other in others(me) {
        role::take(at, other);
    }
}

impl Model for Roles {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let mut world = World::default();
        for me in 0..HOLDERS {
            self.act(&mut world, me, ALL, |at| {
                role::begin(at, me == 0);
                role::settle(at);
            });
            world.runs[me as usize] = true;
        }
        vec![world]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        for me in 0..HOLDERS {
            let n = me as usize;
            let cuts = || (0..6).chain([ALL]);
            if world.rung[n] && world.runs[n] {
                steps.extend(cuts().map(|cut| Step::Look(me, cut)));
            }
            if world.stopped[n] {
                steps.extend(cuts().map(|cut| Step::Enter(me, cut)));
                continue;
            }
            if world.runs[n] {
                let give = |cut| others(me).map(move |to| Step::Give(me, to, cut));
                steps.extend(cuts().flat_map(give));
                steps.push(Step::End(me));
            }
            if !world.runs[n] {
                steps.extend(cuts().map(|cut| Step::Begin(me, cut)));
                // As a spare one ends the life of a monitor that has stopped.
                steps.extend(others(me).map(|to| Step::Give(me, to, ALL)));
            }
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::Look(me, cut) => {
                next.rung[me as usize] = false;
                self.act(&mut next, me, cut, |at| look(at, me));
            }
            Step::Give(me, to, cut) => {
                next.runs[me as usize] = false;
                self.act(&mut next, me, cut, |at| {
                    at.quiet();
                    role::give(at, to);
                });
            }
            Step::End(me) => {
                next.runs[me as usize] = false;
                self.act(&mut next, me, ALL, |at| at.quiet());
            }
            Step::Enter(me, cut) => {
                next.stopped[me as usize] = false;
                self.act(&mut next, me, cut, |at| role::begin(at, me == 0));
            }
            Step::Begin(me, cut) => {
                let n = me as usize;
                next.rung[n] = false;
                next.runs[n] = true;
                self.act(&mut next, me, cut, |at| {
                    // A spare monitor ends a life before it begins the next one.
                    at.quiet();
                    look(at, me);
                    role::settle(at);
                });
            }
        }
        Some(next)
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.words.iter().all(|word| epoch(*word) <= EPOCHS)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        /// Holders with the newest epoch: one has the role, or was given it.
        fn newest(world: &World) -> Vec<usize> {
            let top = world.words.iter().map(|word| epoch(*word)).max().unwrap_or(0);
            (0..world.words.len()).filter(|n| epoch(world.words[*n]) == top).collect()
        }
        vec![
            Property::always("one guest reaches the memory", |_, world: &World| {
                world.mapped.iter().filter(|mapped| **mapped).count() <= 1
            }),
            Property::always("one holder has the role by the words", |_, world: &World| {
                let held = |word: &&u64| phase(**word) == HELD;
                world.words.iter().filter(held).count() <= 1
            }),
            Property::always("the newest word is one", |_, world: &World| newest(world).len() == 1),
            Property::always("who runs has what its word says", |_, world: &World| {
                (0..world.words.len())
                    .filter(|n| world.runs[*n])
                    .all(|n| (phase(world.words[n]) == HELD) == world.mapped[n])
            }),
            Property::always("a function works for who has the role", |_, world: &World| {
                world.on.is_none_or(|of| phase(world.words[of as usize]) == HELD)
            }),
            Property::always("who runs with the role has its function", |_, world: &World| {
                (0..world.words.len())
                    .filter(|n| world.runs[*n] && phase(world.words[*n]) == HELD)
                    .all(|n| world.on == Some(n as u32))
            }),
            Property::always("a role is with somebody, or on its way", |_, world: &World| {
                let [newest] = newest(world)[..] else { return false };
                let word = world.words[newest];
                match phase(word) {
                    HELD => true,
                    // The next holder looks, now or when its guest begins.
                    GIVEN => {
                        let to = to(word) as usize;
                        world.rung[to] || !world.runs[to] || world.stopped[newest]
                    }
                    _ => false,
                }
            }),
            Property::sometimes("it comes back", |_, world: &World| {
                phase(world.words[0]) == HELD && epoch(world.words[0]) > 1 && world.mapped[0]
            }),
        ]
    }
}

#[test]
fn one_holder_has_a_role_whenever_a_monitor_stops() {
    let checker = Roles("").checker().threads(1).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

/// Each rule of the protocol is needed.
#[test]
fn each_step_that_is_left_out_is_found() {
    let rules = ["role-given", "role-taken", "role-to", "role-newer", "role-again"];
    for omitted in rules.into_iter().chain(["role-function", "device-quiet"]) {
        let checker = Roles(omitted)
            .checker()
            .threads(1)
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let found = checker.discoveries();
        let failed = found.keys().any(|name| *name != "it comes back");
        assert!(failed, "nothing goes wrong without {omitted}");
    }
}
