//! Exhaustive model of how a Linux that ran before its monitor has its cores back, in every interleaving. It has
//! `crates/monitor/monitor/src/running.rs` for two cores of the Linux, and the first cores of two other sandboxes. Each
//! guest may start the others whenever it runs: the Linux both of them, and each of them the other one. The Linux may
//! begin anew at any time, by its first core's lead. Either that core ends, or a sandbox that has ended meanwhile has
//! asked for it. An end that its other core finds is not in the model, and harms that Linux alone
//! (docs/decisions/0079-running-restart.md).
//!
//! | step | line of the monitor |
//! |---|---|
//! | `Asks` | `running::call`, `leaves`: the first core goes on, and others have `left.load` |
//! | `Look(n)` | `leaves`: `status.load` of a sandbox |
//! | `Dismiss(n)` | `leaves`: the INIT to that sandbox' first core goes out |
//! | `Wait` | `leaves`: 100 µs, in which each message arrives |
//! | `Note`, `Free` | `leaves`: `left.store`; `give_back` |
//! | `Assemble` | `life::end`: signals out; `assemble`: the first core waits until the other one has parked |
//! | `Parked` | `life::park` |
//! | `Anew` | its guest in the next life: `running::call` refuses it |
//! | `Sleep` | `life::wait_for_start`: a doorbell wakes it, `mail::take` |
//! | `Took` | `life::launch`: `status.store` of `Launching` |
//! | `Launch` | `life::launch`: `status.store` of `Running`, VMRUN |
//! | `Guest` | its guest runs, asks for a start of the other one, or ends |
//! | `End` | `life::wait_for_start`: `status.store` of `Stopped` |
//!
//! An INIT is on its way, then at the core. That core takes it in a window: while it sleeps, and at the exit that the
//! INIT causes in a guest. VMRUN with an INIT at the core exits before the first instruction. Cores that do not lead
//! their sandbox wait for its first one (`parking.rs`), and are left out. Memory is sequentially consistent, as in
//! `parking.rs`.

use std::collections::HashSet;

/// A part of the protocol that is left out, to see the model find it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// No INIT.
    Stays,
    /// No time for it to arrive.
    Hurries,
    /// The INIT goes out before the look.
    AsksLater,
    /// Each core decides by itself.
    Alone,
    /// The core that asks first decides.
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Own {
    Guest,
    Asks,
    Look(usize),
    Dismiss(usize),
    Wait,
    Note,
    Free,
    Assemble,
    Parked,
    Anew,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Other {
    Sleep,
    Took,
    Launch,
    Guest,
    End,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Init {
    None,
    Flies,
    Here,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    own: [Own; 2],
    other: [Other; 2],
    init: [Init; 2],
    /// Its status says that it lives.
    lives: [bool; 2],
    /// A request to start it is pending.
    asked: [bool; 2],
    left: bool,
    /// For each core of the Linux, the sandboxes that have lived ever since it asked.
    since: [[bool; 2]; 2],
    /// It asked when another core was free already.
    behind: [bool; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Violation {
    /// A guest runs beside a core that nothing confines.
    Beside,
    /// A core that asks ends a sandbox that has lived ever since.
    Ended,
    /// A core is refused when another one has left.
    Refused,
    /// The first core begins the Linux anew, and the other one has left.
    Halfway,
}

const BEGIN: State = State {
    own: [Own::Guest; 2],
    other: [Other::Sleep; 2],
    init: [Init::None; 2],
    lives: [false; 2],
    asked: [true, false],
    left: false,
    since: [[false; 2]; 2],
    behind: [false; 2],
};

impl State {
    fn with(self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self;
        change(&mut next);
        next
    }

    /// All that one step of a core of the Linux can lead to.
    fn own(self, core: usize, fault: Fault, to: &mut Vec<Self>) -> Option<Violation> {
        let at = |own: Own| move |s: &mut Self| s.own[core] = own;
        let (looks, dismisses) = match fault {
            Fault::AsksLater => (Own::Wait, Own::Look(0)),
            _ => (Own::Dismiss(0), Own::Wait),
        };
        match self.own[core] {
            Own::Guest => {
                to.extend([0, 1].map(|n| self.with(|s| s.asked[n] = true)));
                match core {
                    0 => to.push(self.with(at(Own::Assemble))),
                    _ if self.own[0] == Own::Assemble => to.push(self.with(at(Own::Parked))),
                    _ => {}
                }
                to.push(self.with(|s| {
                    s.own[core] = Own::Asks;
                    s.since[core] = s.lives;
                    s.behind[core] = s.own.contains(&Own::Free);
                }));
            }
            Own::Asks if fault == Fault::Any && self.left => to.push(self.with(at(Own::Free))),
            Own::Asks if core != 0 && !matches!(fault, Fault::Alone | Fault::Any) => {
                if !self.left && self.behind[core] {
                    return Some(Violation::Refused);
                }
                to.push(self.with(at(if self.left { Own::Free } else { Own::Guest })));
            }
            Own::Asks if fault == Fault::AsksLater => to.push(self.with(at(Own::Dismiss(0)))),
            Own::Asks => to.push(self.with(at(Own::Look(0)))),
            Own::Look(n) if self.lives[n] => {
                if self.behind[core] {
                    return Some(Violation::Refused);
                }
                to.push(self.with(at(Own::Guest)));
            }
            Own::Look(0) => to.push(self.with(at(Own::Look(1)))),
            Own::Look(_) => to.push(self.with(at(looks))),
            Own::Dismiss(n) if self.since[core][n] => return Some(Violation::Ended),
            Own::Dismiss(n) => to.push(self.with(|s| {
                s.own[core] = if n == 0 { Own::Dismiss(1) } else { dismisses };
                if fault != Fault::Stays && s.other[n] != Other::Gone && s.init[n] == Init::None {
                    s.init[n] = Init::Flies;
                }
            })),
            Own::Wait if fault == Fault::Hurries || !self.init.contains(&Init::Flies) => {
                to.push(self.with(at(Own::Note)));
            }
            Own::Wait => {}
            Own::Note => to.push(self.with(|s| {
                s.left = true;
                s.own[core] = Own::Free;
            })),
            Own::Assemble if self.own[1] == Own::Free => return Some(Violation::Halfway),
            Own::Assemble if self.own[1] == Own::Parked => {
                to.push(self.with(|s| s.own = [Own::Anew; 2]));
            }
            Own::Anew => to.extend([0, 1].map(|n| self.with(|s| s.asked[n] = true))),
            Own::Assemble | Own::Parked | Own::Free => {}
        }
        None
    }

    /// All that one step of a sandbox, or of an INIT to it, can lead to.
    fn other(self, n: usize, to: &mut Vec<Self>) -> Option<Violation> {
        let at = |other: Other| move |s: &mut Self| s.other[n] = other;
        if self.init[n] == Init::Flies {
            to.push(self.with(|s| s.init[n] = Init::Here));
        }
        let window = matches!(self.other[n], Other::Sleep | Other::Guest);
        if self.init[n] == Init::Here && window {
            to.push(self.with(|s| (s.other[n], s.init[n]) = (Other::Gone, Init::None)));
            return None;
        }
        match self.other[n] {
            Other::Sleep if self.asked[n] => to.push(self.with(|s| {
                s.asked[n] = false;
                s.other[n] = Other::Took;
            })),
            Other::Took => to.push(self.with(|s| {
                s.lives[n] = true;
                s.other[n] = Other::Launch;
            })),
            Other::Launch => to.push(self.with(at(Other::Guest))),
            Other::Guest => {
                if self.own.contains(&Own::Free) {
                    return Some(Violation::Beside);
                }
                to.push(self.with(|s| s.asked[1 - n] = true));
                to.push(self.with(at(Other::End)));
            }
            Other::End => to.push(self.with(|s| {
                s.lives[n] = false;
                s.since.iter_mut().for_each(|since| since[n] = false);
                s.other[n] = Other::Sleep;
            })),
            Other::Sleep | Other::Gone => {}
        }
        None
    }
}

/// Explores all states: their number, what is violated in one, and if the Linux has its machine back, or began anew.
fn explore(fault: Fault) -> (usize, HashSet<Violation>, [bool; 2]) {
    let (mut seen, mut open) = (HashSet::from([BEGIN]), vec![BEGIN]);
    let (mut found, mut ends) = (HashSet::new(), [false; 2]);
    while let Some(state) = open.pop() {
        let mut next = Vec::new();
        found.extend((0..2).filter_map(|core| state.own(core, fault, &mut next)));
        found.extend((0..2).filter_map(|n| state.other(n, &mut next)));
        for (end, own) in ends.iter_mut().zip([Own::Free, Own::Anew]) {
            *end |= state.own == [own; 2];
        }
        open.extend(next.into_iter().filter(|state| seen.insert(*state)));
    }
    (seen.len(), found, ends)
}

#[test]
fn no_guest_runs_beside_a_core_that_has_left_and_none_is_ended() {
    let (states, found, ends) = explore(Fault::None);
    assert!(found.is_empty(), "{found:?} in {states} states");
    // The model goes where it is to go.
    assert!(ends == [true; 2] && states > 1_000, "{states} states, {ends:?}");
}

#[test]
fn it_hangs_on_each_part() {
    for (fault, violation) in [
        (Fault::Stays, Violation::Beside),
        (Fault::Hurries, Violation::Beside),
        (Fault::AsksLater, Violation::Ended),
        (Fault::Alone, Violation::Refused),
        (Fault::Any, Violation::Halfway),
    ] {
        let (states, found, _) = explore(fault);
        assert!(found.contains(&violation), "{violation:?} in {states} states: {found:?}");
    }
}
