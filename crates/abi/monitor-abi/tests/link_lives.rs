//! Channels made at run time: stateright explores every interleaving of calls of three sandboxes with two cores each,
//! with the real code. The calls are offers, accepts and closes. NMIs come late or are swallowed, and in every state
//! any sandbox may restart, as often as it likes. The order within a call is the matter of `link_order.rs`.

use bulkhead_monitor_abi::bell::Word;
use bulkhead_monitor_abi::link::{self, IDLE, OPEN, Side};
use stateright::{Checker, Model, Property};
use std::cell::Cell;

/// Sandboxes: the owner and two others.
const SANDBOXES: usize = 3;
const CORES: usize = 2;
/// Offers: what keeps it finite.
const OFFERS: u64 = 6;

/// A core: does its TLB reach the link, and does an NMI wait for it?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Core {
    reaches: bool,
    nmi: bool,
    /// It has yet to empty its TLB. How often it did says no more: counts would make the model infinite.
    owes: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Sandbox {
    word: u64,
    /// Phase of its entries.
    entries: u64,
    core: [Core; CORES],
    /// Epoch that it accepted last.
    accepted: u64,
    /// True if the owner rang it for that epoch, and if it rang the owner.
    rang: [bool; 2],
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    sandbox: [Sandbox; SANDBOXES],
    /// It was cleared while another one reached it.
    torn: bool,
    /// A sandbox was rung that had not consented to that, or had been rung already.
    intruded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Offer(u32, usize),
    Accept(u32, usize),
    Close(u32, usize),
    /// A core's guest touches the link.
    Touch(u32, usize),
    /// A core takes its NMI.
    Nmi(u32, usize),
    /// A guest ends and begins anew; NMIs for its cores are taken by what drops the former guest's interrupts, or not.
    End(u32, bool),
}

struct Word64(Cell<u64>);

impl Word for Word64 {
    fn load(&self) -> u64 {
        self.0.get()
    }
    fn replace(&self, from: u64, to: u64) -> bool {
        self.claim(from, to)
    }
    fn claim(&self, from: u64, to: u64) -> bool {
        let same = self.0.get() == from;
        if same {
            self.0.set(to);
        }
        same
    }
    fn count(&self) {
        self.0.set(self.0.get() + 1);
    }
    fn exchange(&self, to: u64) -> u64 {
        self.0.replace(to)
    }
}

/// The world while a call is made.
struct Machine {
    words: [Word64; SANDBOXES],
    wanted: [Word64; SANDBOXES],
    done: [[Word64; CORES]; SANDBOXES],
    entries: [Cell<u64>; SANDBOXES],
    reaches: [[Cell<bool>; CORES]; SANDBOXES],
    nmi: [[Cell<bool>; CORES]; SANDBOXES],
    accepted: [Cell<u64>; SANDBOXES],
    rang: [[Cell<bool>; 2]; SANDBOXES],
    torn: Cell<bool>,
    intruded: Cell<bool>,
}

impl Machine {
    fn of(world: &World) -> Self {
        let word = |value| Word64(Cell::new(value));
        Self {
            words: world.sandbox.map(|s| word(s.word)),
            wanted: [1; SANDBOXES].map(word),
            done: world.sandbox.map(|s| s.core.map(|c| word(u64::from(!c.owes)))),
            entries: world.sandbox.map(|s| Cell::new(s.entries)),
            reaches: world.sandbox.map(|s| s.core.map(|c| Cell::new(c.reaches))),
            nmi: world.sandbox.map(|s| s.core.map(|c| Cell::new(c.nmi))),
            accepted: world.sandbox.map(|s| Cell::new(s.accepted)),
            rang: world.sandbox.map(|s| s.rang.map(Cell::new)),
            torn: Cell::new(world.torn),
            intruded: Cell::new(world.intruded),
        }
    }

    fn world(&self) -> World {
        let core = |i: usize, n: usize| Core {
            reaches: self.reaches[i][n].get(),
            nmi: self.nmi[i][n].get(),
            owes: self.done[i][n].load() != self.wanted[i].load(),
        };
        let sandbox = |i: usize| Sandbox {
            word: self.words[i].load(),
            entries: self.entries[i].get(),
            core: [core(i, 0), core(i, 1)],
            accepted: self.accepted[i].get(),
            rang: self.rang[i].each_ref().map(Cell::get),
        };
        World {
            sandbox: [0, 1, 2].map(sandbox),
            torn: self.torn.get(),
            intruded: self.intruded.get(),
        }
    }

    fn does(&self, step: Step, looks_again: bool) {
        match step {
            Step::Offer(to, core) => drop(link::offer(&Party(self, 0, core), to, 0)),
            Step::Accept(who, core) => {
                let epoch = link::epoch(self.words[0].load());
                if link::accept(&Party(self, who, core), epoch) == Some(true) {
                    self.accepted[who as usize].set(epoch);
                    self.rang[who as usize].iter().for_each(|rang| rang.set(false));
                }
            }
            Step::Close(who, core) => drop(link::close(&Party(self, who, core))),
            Step::Touch(who, core) => self.reaches[who as usize][core].set(true),
            Step::Nmi(who, core) => {
                self.nmi[who as usize][core].set(false);
                self.looks(who, core);
            }
            Step::End(who, swallowed) => {
                let i = who as usize;
                // No core runs the guest, and each flushes before it does.
                self.reaches[i].iter().for_each(|reaches| reaches.set(false));
                link::end(&Party(self, who, 0));
                if swallowed {
                    self.nmi[i].iter().for_each(|nmi| nmi.set(false));
                }
                if looks_again {
                    (0..CORES).for_each(|core| self.looks(who, core));
                }
            }
        }
    }

    /// Does the work of a core's monitor at an NMI, and before it enters a guest anew.
    fn looks(&self, who: u32, core: usize) {
        let party = Party(self, who, core);
        party.empty();
        link::settle(&party);
        if core == 0 {
            link::look(&party);
        }
    }
}

/// A core of a sandbox.
struct Party<'a>(&'a Machine, u32, usize);

impl Party<'_> {
    fn empty(&self) {
        let reaches = &self.0.reaches[self.1 as usize][self.2];
        link::empty(self, self.2 as u32, || reaches.set(false));
    }
}

impl Side for Party<'_> {
    type Word = Word64;
    fn me(&self) -> u32 {
        self.1
    }
    fn owner(&self) -> u32 {
        0
    }
    fn word(&self, of: u32) -> &Word64 {
        &self.0.words[of as usize]
    }
    fn clear(&self) {
        let others = self.0.reaches[1..].iter().flatten();
        let reached = others.clone().any(Cell::get);
        let mapped = self.0.entries[1..].iter().any(|entries| entries.get() == OPEN);
        self.0.torn.set(self.0.torn.get() || reached || mapped);
    }
    fn map(&self, phase: u64) {
        self.0.entries[self.1 as usize].set(phase);
    }
    fn wanted(&self) -> &Word64 {
        &self.0.wanted[self.1 as usize]
    }
    fn done(&self, core: u32) -> Option<&Word64> {
        let i = self.1 as usize;
        ((core as usize) < CORES).then(|| &self.0.done[i][core as usize])
    }
    fn flush(&self) {
        self.empty();
        let i = self.1 as usize;
        (0..CORES).filter(|n| *n != self.2).for_each(|n| self.0.nmi[i][n].set(true));
    }
    fn ring(&self, sandbox: u32) {
        let machine = self.0;
        machine.nmi[sandbox as usize][0].set(true);
        // The owner consents by its offer, which counts epochs, and another one by accepting that epoch.
        let epoch = link::epoch(machine.words[0].load());
        let (other, way) = if self.1 == 0 { (sandbox, 0) } else { (self.1, 1) };
        let offered = link::to(machine.words[0].load()) == other;
        let consented = offered && machine.accepted[other as usize].get() == epoch;
        let before = machine.rang[other as usize][way].replace(true);
        machine.intruded.set(machine.intruded.get() || !consented || before);
    }
    fn bury(&self, _: usize) {}
}

/// The model; or one with cores that do not look again before they enter a guest anew.
struct Link {
    looks_again: bool,
}

impl Link {
    fn step(&self, world: &World, step: Step) -> World {
        let machine = Machine::of(world);
        machine.does(step, self.looks_again);
        machine.world()
    }
}

impl Model for Link {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::default()]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        for core in 0..CORES {
            if link::epoch(world.sandbox[0].word) < OFFERS {
                steps.extend([1, 2].map(|to| Step::Offer(to, core)));
            }
            steps.extend([1, 2].map(|who| Step::Accept(who, core)));
        }
        for (who, sandbox) in (0..).zip(&world.sandbox) {
            for (n, core) in sandbox.core.iter().enumerate() {
                steps.push(Step::Close(who, n));
                if sandbox.entries == OPEN && !core.reaches {
                    steps.push(Step::Touch(who, n));
                }
                if core.nmi {
                    steps.push(Step::Nmi(who, n));
                }
            }
            steps.extend([true, false].map(|swallowed| Step::End(who, swallowed)));
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let next = self.step(world, step);
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
            Property::always("a ring has been consented to, once", |_, world: &World| {
                !world.intruded
            }),
            Property::always("it can be offered again", |link: &Self, world: &World| {
                link.recovers(world)
            }),
            Property::sometimes("the last offer is accepted, too", |_, world: &World| {
                link::epoch(world.sandbox[0].word) == OFFERS && world.sandbox[2].entries == OPEN
            }),
        ]
    }
}

impl Link {
    /// Tells if all that is under way ends, and nothing is left when all have closed.
    fn recovers(&self, world: &World) -> bool {
        let mut world = world.clone();
        let settle = |world: &mut World| {
            for _ in 0..8 {
                for (who, core) in (0..SANDBOXES).flat_map(|who| [(who, 0), (who, 1)]) {
                    if world.sandbox[who].core[core].nmi {
                        *world = self.step(world, Step::Nmi(who as u32, core));
                    }
                }
            }
        };
        for who in [0, 1, 2] {
            settle(&mut world);
            world = self.step(&world, Step::Close(who, 0));
        }
        settle(&mut world);
        let empty = |s: &Sandbox| {
            link::phase(s.word) == IDLE && s.entries == IDLE && !s.core.iter().any(|c| c.reaches)
        };
        let machine = Machine::of(&world);
        world.sandbox.iter().all(empty) && link::offer(&Party(&machine, 0, 0), 1, 0)
    }
}

fn explored(looks_again: bool) -> impl Checker<Link> {
    Link { looks_again }.checker().threads(2).spawn_bfs().join()
}

#[test]
fn a_link_has_one_guest_at_a_time_and_comes_back() {
    let checker = explored(true);
    checker.assert_properties();
    assert!(checker.unique_state_count() > 200_000, "{}", checker.unique_state_count());
    println!("{} states", checker.unique_state_count());
}

#[test]
fn an_nmi_that_is_swallowed_has_to_be_made_up_for() {
    let discovered = explored(false).discovery("it can be offered again");
    assert!(discovered.is_some());
}
