//! Exhaustive model of how a sandbox's cores end, park and start. It has `crates/monitor/monitor/src/life.rs`,
//! `signal.rs` and `mail.rs` as step machines, in every interleaving of 2 cores over 3 lives and of 3 cores over 2.
//!
//! A core is a `Pc` and what others can see of it; a `State` is all cores.
//! One step is at most one access to memory that cores share, with the work on
//! the core itself before or after it:
//!
//! | step | line of the monitor |
//! |---|---|
//! | `Guest` with an NMI pending | #VMEXIT, `mail::doorbell`: `nmi_window` |
//! | `Guest` without | the guest does nothing, or an exit and the first access of its handler |
//! | `Receive`, `Mail` | `ipi::receive`: `signals.fetch_and`; `mail::doorbell`: `requests` |
//! | `State::send` | `ipi::signal` for INIT and END: `fetch_update` (what it keeps depends on the word alone) |
//! | `SipiLoad`, `SipiParked`, `SipiSwap` | `ipi::signal` for STARTUP, `fetch_update`: load; `to.parked.load`; `compare_exchange` |
//! | `SipiAgain` | the exchange failed: all of it at once (a loop that fails and then succeeds does what one begun later does) |
//! | `Ring…` | `ipi::ring` |
//! | `End`, `EndSignal`, `EndRing` | `life::end_first`: `life.fetch_add`; for each other core signal INIT, ring |
//! | `Assemble`, `Clear`, `Drain` | `life::assemble`: `parked.load` of each other core; `signals.store(0)` of each core; `quiet` |
//! | `StopCheck`, `Ask`, `AskAgain`, `Doze` | `life::settle`, `wait_for_start`: `stop_requested`, `start_requested` twice, `nmi_sleep` |
//! | `Launch`, `Play` | `life::launch`: `life.fetch_add`; play the record, VMRUN |
//! | `Quiet`, `Look`, `Publish`, `Swap` | `life::park`: `quiet`; `life.load`; `parked.store`; `signals.swap` |
//! | `QuietAgain`, `LookInit`, `LookLife`, `Leave` | `park` with a STARTUP: `quiet`; `signals.load`; `life.load`; `parked.store(0)`, `fresh_vmcb`, VMRUN |
//! | `Sleep` | `nmi_sleep` |
//! | `Taken`, `Forget`, `SetLife` | `peer::taken`: `signals.store(0)` of the own core; on the first core `parked.store(0)` of each other one, `life.store` |
//!
//! A peer takes all cores in any state: they are stopped together, and enter one by one. Memory stays as it was.
//!
//! NMIs: one bit per core on its way (`flying`: the ICR write has been made) and
//! one at the core (`nmi`); several become one. The monitor takes one only in a
//! window: `State::window`. The guest takes one whenever it runs.
//!
//! Memory is sequentially consistent here. x86 reorders only a load before an older store. The stores that must not be
//! overtaken (`life`, `parked` while waiting, `signals`) are locked instructions. The plain stores are harmless.
//! `parked.store(0)` on the way out only tells a sender late, and a STARTUP too many is modelled. The locked add to
//! `life` follows `signals.store(0)` of `assemble`, and no core looks before it. That a signal is visible before its
//! NMI is assumed; `Fault::RingFirst` is what happens otherwise.
//!
//! `Violation` has the properties. The first ones hold in every state. The last ones, that an event comes about, hold
//! by the absence of a fair cycle without it (`Graph::stuck`).
//!
//! The model leaves out guests' NMIs (a ring without meaning), vectors, several senders of mail, and the limit of time
//! in `assemble`. It also has no compare-and-exchange that others make fail for ever.

use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{BuildHasherDefault, Hasher};

const MAX_CORES: usize = 3;
/// Bits of a core's signals; an end has one bit for each state that it asks for.
const INIT: u8 = 1;
const STARTUP: u8 = 2;
const END_EXITED: u8 = 4;
const END_LAUNCHING: u8 = 8;
const END: u8 = END_EXITED | END_LAUNCHING;

/// End of a life, as seen by the first core.
const EXITED: u8 = END_EXITED;
const LAUNCHING: u8 = END_LAUNCHING;
const STOPPED: u8 = 0;

/// Requests in the mailbox.
const NONE: u8 = 0;
const STOP: u8 = 1;
const RESTART: u8 = 2;

/// Where a core is; the step it takes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum Pc {
    #[default]
    Guest,
    Receive,
    Mail,
    RingGuest,
    SipiLoad,
    SipiParked,
    SipiSwap,
    SipiAgain,
    RingEnd,
    End,
    EndSignal,
    EndRing,
    Assemble,
    Clear,
    Drain,
    StopCheck,
    Ask,
    AskAgain,
    Doze,
    Launch,
    Play,
    Quiet,
    Look,
    Publish,
    Swap,
    QuietAgain,
    LookInit,
    LookLife,
    LateWindow,
    Leave,
    Sleep,
    /// [`Fault::RingFirst`]: INIT is signalled after its NMI.
    LateInit,
    Taken,
    Forget,
    SetLife,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Core {
    pc: Pc,
    // The monitor's state: in `Local`, in registers, at the local APIC.
    doorbell: bool,
    parked: u8,
    signals: u8,
    seen: u8,
    /// The core that is signalled, or an index over cores.
    to: u8,
    /// The word that a sender of a STARTUP loaded.
    old: u8,
    nmi: bool,
    flying: bool,
    // State of the model alone.
    /// The life in which the STARTUP in `signals` was signalled.
    signalled_in: u8,
    /// The life of the STARTUP that was taken; while in the guest, the core's life.
    started_in: u8,
    /// A STARTUP was signalled while the core waited: it has to start.
    owed: bool,
    /// The life that the guest on this core has asked to end.
    ended: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    core: [Core; MAX_CORES],
    life: u8,
    /// State after the end, on the first core.
    then: u8,
    mail: u8,
    /// Another sandbox has posted and not rung yet.
    posting: bool,
    /// Requests that other sandboxes may still make.
    requests: u8,
    /// Exits that the guest may still make for something, if they are counted.
    exits: u8,
    /// Times that a peer may still take the cores.
    takes: u8,
    /// The life of which the mailbox has told; 0: of none.
    told: u8,
}

/// An error to be planted in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// `park` leaves without the last look at INIT.
    NoLookAtInit,
    /// `park` leaves without the last look at `life`.
    NoLookAtLife,
    /// `parked` is 1 and not the life that was seen; `assemble` takes any.
    ParkedAsFlag,
    /// `assemble` does not clear the signals.
    SignalsKept,
    /// `park` lets NMIs in after the last look.
    WindowAfterLook,
    /// A second END is added to the first.
    EndsOred,
    /// A STARTUP is refused unless the core has already parked.
    StartupNeedsParked,
    /// A STARTUP is signalled without an NMI.
    StartupUnrung,
    /// The NMI of an INIT overtakes its signal.
    RingFirst,
    /// `settle` does not look for requests.
    NoStopCheck,
    /// A core that was taken does not clear its signals.
    TakenWithSignals,
    /// The first core does not forget who had parked.
    TakenAsParked,
    /// It does not set `life`.
    TakenInLife,
}

/// Events that must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Violation {
    /// A core runs the guest although the first one takes all for parked.
    GuestWithoutLife,
    /// A core runs the guest by a STARTUP of a former life.
    OldStartup,
    /// An end in a state that nobody asked for.
    StrangeEnd,
    /// A STARTUP to a core that waits was refused.
    StartupRefused,
    /// An end never assembles.
    EndStuck,
    /// A core that waits never takes its STARTUP.
    StartupLost,
    /// INIT or END never handled.
    SignalLost,
    /// A request never seen.
    RequestLost,
    /// A core runs the guest after it asked for its end, within one life.
    RunsAfterEnd,
}

#[derive(Clone, Copy)]
struct Model {
    cores: usize,
    /// The last life: it ends, and nothing comes after it.
    lives: u8,
    requests: u8,
    takes: u8,
    /// The guest's greatest number of exits in all, or no limit.
    exits: Option<u8>,
    /// NMIs take time.
    slow_nmis: bool,
    fault: Fault,
    /// Also look for [`Violation::RunsAfterEnd`].
    strict_ends: bool,
    /// A core that asked for an end takes no STARTUP of that life.
    refuses_after_end: bool,
}

/// The maker of a step: a core, the wire to a core, or another sandbox. They go on for ever if they can; a guest's
/// choices are nobody's duty.
type Actor = u8;
const WIRE: Actor = MAX_CORES as u8;
const OTHERS: Actor = 2 * MAX_CORES as u8;
const ACTORS: Actor = OTHERS + 1;
const CHOICE: Actor = ACTORS;

/// A state that must not last for ever.
type Duty = (Violation, fn(&State) -> bool);

struct Step {
    actor: Actor,
    to: State,
    violation: Option<Violation>,
}

impl State {
    fn ring(&mut self, model: &Model, core: usize) {
        if model.slow_nmis {
            self.core[core].flying = true;
        } else {
            self.core[core].nmi = true;
        }
    }

    /// A pending NMI is taken by the monitor's handler.
    fn window(&mut self, core: usize) {
        let c = &mut self.core[core];
        c.doorbell |= c.nmi;
        c.nmi = false;
    }

    /// INIT or END. Returns true if it was accepted.
    fn send(&mut self, model: &Model, to: usize, signals: u8) -> bool {
        let t = &mut self.core[to];
        if signals & END != 0 && t.signals & END != 0 && model.fault != Fault::EndsOred {
            return false;
        }
        if signals & INIT != 0 {
            t.signals &= !STARTUP;
            t.signalled_in = 0;
        }
        t.owed &= signals & INIT == 0;
        t.signals |= signals;
        true
    }

    /// The first core's `life.fetch_add` at an end.
    fn end(&mut self, then: u8) {
        self.life += 1;
        self.then = then;
        for c in &mut self.core {
            c.owed = false;
        }
        let first = &mut self.core[0];
        (first.pc, first.to) = (Pc::EndSignal, 1);
    }

    /// A core waits for a STARTUP: it was told to, or it has parked.
    fn waits(&self, core: usize) -> bool {
        let c = &self.core[core];
        // At `Leave` it has made up its mind, though it still says that it waits.
        c.signals & INIT != 0 || c.parked != 0 && !matches!(c.pc, Pc::LateWindow | Pc::Leave)
    }

    fn runs_guest(&self, core: usize) -> bool {
        self.core[core].pc == Pc::Guest && !self.core[core].nmi
    }

    /// From `assemble`'s end to the guest's first instruction. No other core runs either while the first one comes from
    /// a take.
    fn first_takes_all_for_parked(&self) -> bool {
        use Pc::*;
        matches!(
            self.core[0].pc,
            Taken
                | Forget
                | SetLife
                | Clear
                | Drain
                | StopCheck
                | Ask
                | AskAgain
                | Doze
                | Launch
                | Play
        )
    }

    fn violation(&self, model: &Model) -> Option<Violation> {
        let guest = |i: usize| {
            if !self.runs_guest(i) {
                return None;
            }
            let c = &self.core[i];
            // While an end is under way the old life's guests still run.
            if c.started_in != self.life && c.started_in + 1 != self.life {
                return Some(Violation::OldStartup);
            }
            if self.first_takes_all_for_parked() {
                return Some(Violation::GuestWithoutLife);
            }
            (model.strict_ends && c.ended == self.life).then_some(Violation::RunsAfterEnd)
        };
        let both = self.core[0].signals & END == END || self.then == END;
        (1..model.cores).find_map(guest).or(both.then_some(Violation::StrangeEnd))
    }

    /// All of it in a number.
    fn key(&self) -> u128 {
        let mut key = 0u128;
        let mut put = |value: u8, bits: u32| {
            debug_assert!(u32::from(value) < 1 << bits);
            key = key << bits | u128::from(value);
        };
        for c in &self.core {
            put(c.pc as u8, 6);
            let flags = [c.doorbell, c.nmi, c.flying, c.owed];
            flags.into_iter().for_each(|f| put(u8::from(f), 1));
            put(c.ended, 3);
            put(c.parked, 3);
            put(c.signals, 4);
            put(c.seen, 3);
            put(c.to, 2);
            put(c.old, 4);
            put(c.signalled_in, 3);
            put(c.started_in, 3);
        }
        put(self.life, 3);
        put(self.then, 4);
        put(self.mail, 2);
        put(u8::from(self.posting), 1);
        put(self.requests, 2);
        put(self.exits, 4);
        put(self.takes, 1);
        put(self.told, 3);
        key
    }
}

impl Model {
    fn start(&self, then: u8) -> State {
        let mut state = State {
            then,
            requests: self.requests,
            exits: self.exits.unwrap_or(0),
            takes: self.takes,
            ..State::default()
        };
        (state.core[0].pc, state.core[0].to) = (Pc::Assemble, 1);
        for c in &mut state.core[1..self.cores] {
            c.pc = Pc::Quiet;
        }
        state
    }

    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        steps.clear();
        for core in 0..self.cores {
            if state.core[core].flying {
                let mut to = *state;
                (to.core[core].flying, to.core[core].nmi) = (false, true);
                let actor = WIRE + core as Actor;
                steps.push(self.step(actor, to));
            }
            if state.runs_guest(core) {
                self.guest(state, core, steps);
            } else if let Some(step) = self.monitor(state, core) {
                steps.push(step);
            }
        }
        self.others(state, steps);
        self.take(state, steps);
    }

    /// A peer stops all cores, and starts them.
    fn take(&self, state: &State, steps: &mut Vec<Step>) {
        // Nothing comes after the last life.
        let over = state.core[0].pc == Pc::Launch && state.life >= self.lives;
        if state.takes == 0 || over {
            return;
        }
        for then in [LAUNCHING, STOPPED] {
            let mut to = State { takes: state.takes - 1, then, ..*state };
            for c in &mut to.core[..self.cores] {
                let Core { doorbell, parked, signals, nmi, flying, signalled_in, .. } = *c;
                let pc = Pc::Taken;
                *c = Core {
                    pc,
                    doorbell,
                    parked,
                    signals,
                    nmi,
                    flying,
                    signalled_in,
                    ..Core::default()
                };
            }
            steps.push(self.step(CHOICE, to));
        }
    }

    fn step(&self, actor: Actor, to: State) -> Step {
        let violation = to.violation(self);
        Step { actor, to, violation }
    }

    /// `mail::post` by another sandbox.
    fn others(&self, state: &State, steps: &mut Vec<Step>) {
        use Pc::{Assemble, Clear, Drain, Quiet};
        if state.posting {
            let mut to = *state;
            to.posting = false;
            to.ring(self, 0);
            steps.push(self.step(OTHERS, to));
        }
        // One that has not come up is `absent`: nobody posts.
        let absent =
            state.life == 0 && matches!(state.core[0].pc, Assemble | Clear | Drain | Quiet);
        if state.mail == NONE && !state.posting && state.requests > 0 && !absent {
            for what in [STOP, RESTART] {
                let mut to = *state;
                (to.mail, to.posting, to.requests) = (what, true, state.requests - 1);
                steps.push(self.step(CHOICE, to));
            }
        }
    }

    /// Adds the steps of the guest on a core.
    fn guest(&self, state: &State, core: usize, steps: &mut Vec<Step>) {
        let exits = match (self.exits, state.exits) {
            (None, _) => 0,
            (_, 0) => return,
            (_, exits) => exits - 1,
        };
        let mut push = |to: State| steps.push(self.step(CHOICE, State { exits, ..to }));
        for target in 0..self.cores {
            let mut to = *state;
            to.core[core].to = target as u8;
            if self.fault == Fault::RingFirst {
                to.ring(self, target);
                to.core[core].pc = Pc::LateInit;
            } else {
                to.send(self, target, INIT);
                to.core[core].pc = Pc::RingGuest;
            }
            push(to);
            if target != core {
                let mut to = *state;
                let c = &mut to.core[core];
                (c.to, c.pc) = (target as u8, Pc::SipiLoad);
                push(to);
            }
        }
        for then in [EXITED, LAUNCHING] {
            let mut to = *state;
            if core == 0 {
                to.end(then);
            } else {
                let sent = to.send(self, 0, then);
                let c = &mut to.core[core];
                c.pc = if sent { Pc::RingEnd } else { Pc::Quiet };
                if self.strict_ends || self.refuses_after_end {
                    c.ended = c.started_in;
                }
                c.started_in = 0;
            }
            push(to);
        }
    }

    /// The one step that a core's monitor takes, if it does not wait.
    fn monitor(&self, state: &State, core: usize) -> Option<Step> {
        let mut to = *state;
        let life = state.life;
        let me = state.core[core];
        let target = usize::from(me.to);
        let next = me.to + 1;
        let at_end = usize::from(next) == self.cores;
        let mut violation = None;
        let goto = |state: &mut State, pc: Pc| state.core[core].pc = pc;
        match me.pc {
            Pc::Guest => {
                to.window(core);
                goto(&mut to, Pc::Receive);
            }
            Pc::Receive => {
                // `mail::doorbell` sets the flag back first.
                to.core[core].doorbell = false;
                to.core[core].signals &= INIT | STARTUP;
                if core == 0 {
                    match me.signals {
                        s if s & END != 0 => {
                            to.then = s & END;
                            goto(&mut to, Pc::End);
                        }
                        s if s & INIT != 0 => {
                            to.then = LAUNCHING;
                            goto(&mut to, Pc::End);
                        }
                        _ => goto(&mut to, Pc::Mail),
                    }
                } else if me.signals & INIT != 0 {
                    to.core[core].started_in = 0;
                    goto(&mut to, Pc::Quiet);
                } else {
                    goto(&mut to, Pc::Guest);
                }
            }
            Pc::Mail if state.mail == NONE => goto(&mut to, Pc::Guest),
            Pc::Mail => {
                to.mail = NONE;
                to.then = if state.mail == STOP { STOPPED } else { LAUNCHING };
                goto(&mut to, Pc::End);
            }
            Pc::LateInit => {
                to.send(self, target, INIT);
                to.core[core].to = 0;
                goto(&mut to, Pc::Guest);
            }
            Pc::RingGuest => {
                to.ring(self, target);
                to.core[core].to = 0;
                goto(&mut to, Pc::Guest);
            }
            Pc::SipiLoad => {
                to.core[core].old = state.core[target].signals;
                goto(&mut to, Pc::SipiParked);
            }
            Pc::SipiParked | Pc::SipiAgain => {
                let t = &state.core[target];
                let old = if me.pc == Pc::SipiAgain { t.signals } else { me.old };
                let told = old & INIT != 0 && self.fault != Fault::StartupNeedsParked;
                let duplicate = old & STARTUP != 0;
                if duplicate || !(t.parked != 0 || told) {
                    if !duplicate && old == t.signals && state.waits(target) {
                        violation = Some(Violation::StartupRefused);
                    }
                    (to.core[core].to, to.core[core].old) = (0, 0);
                    goto(&mut to, Pc::Guest);
                } else if me.pc == Pc::SipiAgain {
                    self.startup(&mut to, core);
                } else {
                    goto(&mut to, Pc::SipiSwap);
                }
            }
            Pc::SipiSwap if state.core[target].signals == me.old => self.startup(&mut to, core),
            Pc::SipiSwap => {
                to.core[core].old = 0;
                goto(&mut to, Pc::SipiAgain);
            }
            Pc::RingEnd => {
                to.ring(self, 0);
                goto(&mut to, Pc::Quiet);
            }
            Pc::End => to.end(state.then),
            Pc::EndSignal => {
                to.send(self, target, INIT);
                goto(&mut to, Pc::EndRing);
            }
            Pc::EndRing => {
                to.ring(self, target);
                to.core[core].to = if at_end { 1 } else { next };
                goto(&mut to, if at_end { Pc::Assemble } else { Pc::EndSignal });
            }
            Pc::Assemble => {
                // A core that was seen parked is not looked at again: less than
                // what the monitor does.
                let parked = state.core[target].parked;
                let there = match self.fault {
                    Fault::ParkedAsFlag => parked != 0,
                    _ => parked == life + 1,
                };
                if !there {
                    return None;
                }
                to.core[core].to = if at_end { 0 } else { next };
                goto(&mut to, if at_end { Pc::Clear } else { Pc::Assemble });
            }
            Pc::Clear => {
                if self.fault != Fault::SignalsKept {
                    let t = &mut to.core[target];
                    (t.signals, t.signalled_in) = (0, 0);
                }
                to.core[core].to = if at_end { 0 } else { next };
                goto(&mut to, if at_end { Pc::Drain } else { Pc::Clear });
            }
            Pc::Drain => {
                to.window(core);
                let launch = state.then == LAUNCHING;
                goto(&mut to, if launch { Pc::StopCheck } else { Pc::Ask });
            }
            Pc::StopCheck if self.fault == Fault::NoStopCheck => goto(&mut to, Pc::Launch),
            Pc::StopCheck => {
                to.mail = NONE;
                match state.mail {
                    NONE => goto(&mut to, Pc::Launch),
                    STOP => {
                        to.then = STOPPED;
                        goto(&mut to, Pc::Ask);
                    }
                    _ => {}
                }
            }
            Pc::Ask | Pc::AskAgain => {
                to.mail = NONE;
                match state.mail {
                    NONE if me.pc == Pc::AskAgain => goto(&mut to, Pc::Doze),
                    NONE => {
                        to.core[core].doorbell = false;
                        goto(&mut to, Pc::AskAgain);
                    }
                    RESTART => goto(&mut to, Pc::StopCheck),
                    _ => {}
                }
            }
            Pc::Doze | Pc::Sleep => {
                if !me.doorbell && !me.nmi {
                    return None;
                }
                to.window(core);
                goto(&mut to, if core == 0 { Pc::Ask } else { Pc::Look });
            }
            Pc::Launch => {
                if life >= self.lives {
                    return None;
                }
                to.life += 1;
                // No code looks at them until they are set again.
                (to.core[core].doorbell, to.then) = (false, 0);
                goto(&mut to, Pc::Play);
            }
            Pc::Play => {
                to.told = life;
                goto(&mut to, Pc::Guest);
            }
            Pc::Taken => {
                let c = &mut to.core[core];
                if self.fault != Fault::TakenWithSignals || core == 0 {
                    (c.signals, c.signalled_in) = (0, 0);
                }
                c.to = u8::from(core == 0);
                goto(&mut to, if core == 0 { Pc::Forget } else { Pc::Quiet });
            }
            Pc::Forget => {
                if self.fault != Fault::TakenAsParked {
                    to.core[target].parked = 0;
                }
                to.core[core].to = if at_end { 0 } else { next };
                goto(&mut to, if at_end { Pc::SetLife } else { Pc::Forget });
            }
            Pc::SetLife => {
                if self.fault != Fault::TakenInLife {
                    to.life = state.told.max(1);
                }
                goto(&mut to, Pc::End);
            }
            Pc::Quiet => {
                to.window(core);
                goto(&mut to, Pc::Look);
            }
            Pc::Look => {
                to.core[core].doorbell = false;
                to.core[core].seen = life;
                goto(&mut to, Pc::Publish);
            }
            Pc::Publish => {
                to.core[core].parked = match self.fault {
                    Fault::ParkedAsFlag => 1,
                    _ => me.seen + 1,
                };
                let own = self.refuses_after_end && me.seen == me.ended;
                if me.seen % 2 == 0 || own {
                    to.core[core].seen = 0;
                    goto(&mut to, Pc::Sleep);
                } else {
                    goto(&mut to, Pc::Swap);
                }
            }
            Pc::Swap => {
                let c = &mut to.core[core];
                (c.signals, c.signalled_in) = (0, 0);
                if me.signals & STARTUP != 0 {
                    c.started_in = me.signalled_in;
                    goto(&mut to, Pc::QuietAgain);
                } else {
                    c.seen = 0;
                    goto(&mut to, Pc::Sleep);
                }
            }
            Pc::QuietAgain => {
                to.window(core);
                goto(&mut to, Pc::LookInit);
            }
            Pc::LookInit => {
                if me.signals & INIT != 0 && self.fault != Fault::NoLookAtInit {
                    (to.core[core].seen, to.core[core].started_in) = (0, 0);
                    goto(&mut to, Pc::Look);
                } else {
                    goto(&mut to, Pc::LookLife);
                }
            }
            Pc::LookLife => {
                let c = &mut to.core[core];
                c.seen = 0;
                if life == me.seen || self.fault == Fault::NoLookAtLife {
                    // One for an INIT that came after the look stays owed.
                    c.owed &= me.signals & INIT != 0;
                    let late = self.fault == Fault::WindowAfterLook;
                    goto(&mut to, if late { Pc::LateWindow } else { Pc::Leave });
                } else {
                    c.started_in = 0;
                    goto(&mut to, Pc::Look);
                }
            }
            Pc::LateWindow => {
                to.window(core);
                goto(&mut to, Pc::Leave);
            }
            Pc::Leave => {
                if me.ended != life {
                    to.core[core].ended = 0;
                }
                (to.core[core].parked, to.core[core].doorbell) = (0, false);
                goto(&mut to, Pc::Guest);
            }
        }
        let mut step = self.step(core as Actor, to);
        step.violation = violation.or(step.violation);
        Some(step)
    }

    /// A STARTUP is accepted.
    fn startup(&self, state: &mut State, from: usize) {
        let me = &mut state.core[from];
        me.old = 0;
        let target = usize::from(me.to);
        if self.fault == Fault::StartupUnrung {
            (me.pc, me.to) = (Pc::Guest, 0);
        } else {
            me.pc = Pc::RingGuest;
        }
        let now = if from == 0 { state.life } else { me.started_in };
        let waits = state.waits(target);
        let t = &mut state.core[target];
        t.signals |= STARTUP;
        t.signalled_in = now;
        t.owed |= target != 0 && waits && now == state.life;
    }

    /// States that must not last for ever.
    fn duties(&self) -> Vec<Duty> {
        fn ending(s: &State) -> bool {
            matches!(s.core[0].pc, Pc::End | Pc::EndSignal | Pc::EndRing | Pc::Assemble)
        }
        fn request(s: &State) -> bool {
            s.mail != NONE
        }
        // One for each core: another's may begin before the first one's is done.
        let mut duties: Vec<Duty> = vec![
            (Violation::EndStuck, ending),
            (Violation::RequestLost, request),
            (Violation::StartupLost, |s| s.core[1].owed),
            (Violation::SignalLost, |s| s.core[0].signals & (INIT | END) != 0),
            (Violation::SignalLost, |s| s.core[1].signals & INIT != 0),
        ];
        if self.cores > 2 {
            duties.push((Violation::StartupLost, |s| s.core[2].owed));
            duties.push((Violation::SignalLost, |s| s.core[2].signals & INIT != 0));
        }
        duties
    }
}

/// Multiplies and folds: the keys are no attacker's.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u128");
    }
    fn write_u128(&mut self, key: u128) {
        let mixed = (key as u64 ^ (key >> 64) as u64 ^ (key >> 29) as u64)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// All that can be reached, and how.
struct Graph {
    states: Vec<State>,
    /// Where each state was first come from.
    parents: Vec<u32>,
    /// Edges of state `i`: `edges[begin[i]..begin[i + 1]]`.
    begin: Vec<u32>,
    edges: Vec<(u32, Actor)>,
}

#[derive(Debug)]
struct Failure {
    violation: Violation,
    trace: String,
}

impl Graph {
    /// Every state, breadth first, or the first one that must not be.
    fn explore(model: &Model) -> Result<Graph, Failure> {
        let mut graph = Graph {
            states: vec![model.start(LAUNCHING), model.start(STOPPED)],
            parents: vec![0, 1],
            begin: vec![0],
            edges: Vec::new(),
        };
        let mut numbers: HashMap<u128, u32, BuildHasherDefault<Mix>> = HashMap::default();
        for (i, s) in graph.states.iter().enumerate() {
            numbers.insert(s.key(), i as u32);
        }
        let mut steps = Vec::new();
        let mut at = 0;
        while at < graph.states.len() {
            model.steps(&graph.states[at], &mut steps);
            for step in &steps {
                let fresh = graph.states.len() as u32;
                let number = *numbers.entry(step.to.key()).or_insert(fresh);
                if number == fresh {
                    graph.states.push(step.to);
                    graph.parents.push(at as u32);
                }
                if let Some(violation) = step.violation {
                    return Err(graph.failure(violation, at as u32, Some(&step.to)));
                }
                graph.edges.push((number, step.actor));
            }
            graph.begin.push(graph.edges.len() as u32);
            at += 1;
        }
        Ok(graph)
    }

    fn edges(&self, state: u32) -> &[(u32, Actor)] {
        let i = state as usize;
        &self.edges[self.begin[i] as usize..self.begin[i + 1] as usize]
    }

    /// Tells if `pending` may last for ever though every actor goes on that can. It may if a strongly connected part
    /// within it is fair to each actor. Fair means that the actor takes a step inside, or cannot take one somewhere
    /// inside. (A state that nobody leaves is such a part.)
    fn stuck(&self, model: &Model, pending: fn(&State) -> bool) -> Option<u32> {
        // After the last life nothing goes on.
        let cut = |s: &State| s.core[0].pc == Pc::Launch && s.life >= model.lives;
        let within: Vec<bool> = self.states.iter().map(|s| pending(s) && !cut(s)).collect();
        let mut found = None;
        self.components(&within, |part, member| {
            let fair = (0..ACTORS).all(|actor| {
                part.iter().any(|&s| {
                    let mut own = self.edges(s).iter().filter(|e| e.1 == actor);
                    let idle = own.clone().next().is_none();
                    idle || own.any(|e| member(e.0))
                })
            });
            if fair && found.is_none() {
                found = part.iter().min().copied();
            }
        });
        found
    }

    /// Tarjan's strongly connected components of the part `within`, with a stack
    /// of its own.
    fn components(&self, within: &[bool], mut visit: impl FnMut(&[u32], &dyn Fn(u32) -> bool)) {
        const NEW: u32 = 0;
        let n = self.states.len();
        let (mut order, mut low) = (vec![NEW; n], vec![0u32; n]);
        // The component of a state that is done; 0 while it is not.
        let mut done = vec![0u32; n];
        let (mut count, mut parts) = (0, 0);
        let (mut open, mut path): (Vec<u32>, Vec<(u32, usize)>) = (Vec::new(), Vec::new());
        for root in 0..n as u32 {
            if !within[root as usize] || order[root as usize] != NEW {
                continue;
            }
            path.push((root, 0));
            while let Some((state, edge)) = path.pop() {
                let s = state as usize;
                if edge == 0 {
                    count += 1;
                    (order[s], low[s]) = (count, count);
                    open.push(state);
                } else {
                    let child = self.edges(state)[edge - 1].0 as usize;
                    low[s] = low[s].min(low[child]);
                }
                let mut deeper = false;
                for (i, &(to, _)) in self.edges(state).iter().enumerate().skip(edge) {
                    let t = to as usize;
                    if !within[t] {
                        continue;
                    }
                    if order[t] == NEW {
                        path.push((state, i + 1));
                        path.push((to, 0));
                        deeper = true;
                        break;
                    }
                    if done[t] == 0 {
                        low[s] = low[s].min(order[t]);
                    }
                }
                if deeper || low[s] != order[s] {
                    continue;
                }
                parts += 1;
                let first = open.iter().rposition(|&o| o == state).unwrap_or(0);
                for &member in &open[first..] {
                    done[member as usize] = parts;
                }
                visit(&open[first..], &|other| done[other as usize] == parts);
                open.truncate(first);
            }
        }
    }

    fn failure(&self, violation: Violation, mut at: u32, last: Option<&State>) -> Failure {
        let mut way: Vec<State> = last.into_iter().copied().collect();
        loop {
            way.push(self.states[at as usize]);
            let parent = self.parents[at as usize];
            if parent == at {
                break;
            }
            at = parent;
        }
        way.reverse();
        let mut trace = format!("{violation:?}\n");
        for pair in way.windows(2) {
            let _ = write!(trace, "life {} mail {}:", pair[1].life, pair[1].mail);
            for (i, (old, new)) in pair[0].core.iter().zip(&pair[1].core).enumerate() {
                if old.pc != new.pc {
                    let _ = write!(trace, "  {i} {:?} -> {:?}", old.pc, new.pc);
                }
            }
            for (i, c) in pair[1].core.iter().enumerate() {
                let (n, d) = (u8::from(c.nmi || c.flying), u8::from(c.doorbell));
                let _ = write!(
                    trace,
                    "  [{i}: {:?} signals {:#b} parked {} nmi {n} bell {d}]",
                    c.pc, c.signals, c.parked
                );
            }
            trace.push('\n');
        }
        Failure { violation, trace }
    }
}

/// Explores and judges. The number of states, or what went wrong.
fn check(model: &Model) -> Result<usize, Failure> {
    let graph = Graph::explore(model)?;
    for (violation, pending) in model.duties() {
        if let Some(state) = graph.stuck(model, pending) {
            return Err(graph.failure(violation, state, None));
        }
    }
    Ok(graph.states.len())
}

/// Two cores with a guest that does as it likes, over three lives (1, 3 and 5).
const TWO: Model = Model {
    cores: 2,
    lives: 5,
    requests: 1,
    takes: 0,
    exits: None,
    slow_nmis: false,
    fault: Fault::None,
    strict_ends: true,
    refuses_after_end: true,
};

/// Three cores with a guest that does four things, over two lives.
const THREE: Model = Model { cores: 3, lives: 3, requests: 0, exits: Some(4), ..TWO };

fn holds(model: Model) {
    match check(&model) {
        Ok(states) => println!("{states} states"),
        Err(failure) => panic!("{}", failure.trace),
    }
}

/// An error in the model's protocol shows, and as what it is.
fn fails(model: Model, violations: &[Violation]) {
    match check(&model) {
        Ok(states) => panic!("{:?} is not seen in {states} states", model.fault),
        Err(failure) => {
            assert!(violations.contains(&failure.violation), "{:?}: {}", model.fault, failure.trace)
        }
    }
}

/// Enough for errors that two cores show.
fn two(fault: Fault) -> Model {
    Model { lives: 3, fault, ..TWO }
}

fn three(fault: Fault) -> Model {
    Model { fault, ..THREE }
}

#[test]
fn two_cores() {
    holds(TWO);
}

#[test]
fn two_cores_and_slow_nmis() {
    holds(Model { requests: 0, slow_nmis: true, ..TWO });
}

#[test]
fn three_cores() {
    holds(THREE);
}

#[test]
#[ignore = "millions of states: cargo test --release -- --ignored"]
fn two_cores_and_all_at_once() {
    holds(Model { requests: 2, slow_nmis: true, ..TWO });
}

#[test]
#[ignore = "millions of states: cargo test --release -- --ignored"]
fn three_cores_without_a_limit() {
    holds(Model { exits: None, ..THREE });
}

/// A peer takes the cores once, wherever they are.
const TAKEN: Model = Model { requests: 0, lives: 3, takes: 1, ..TWO };

#[test]
fn two_cores_that_are_taken() {
    holds(TAKEN);
}

#[test]
fn three_cores_that_are_taken() {
    holds(Model { takes: 1, exits: Some(2), ..THREE });
}

#[test]
#[ignore = "millions of states: cargo test --release -- --ignored"]
fn two_cores_that_are_taken_and_all_at_once() {
    holds(Model { requests: 1, slow_nmis: true, ..TAKEN });
}

#[test]
fn taken_with_signals_of_the_life_before() {
    let seen = [Violation::OldStartup, Violation::GuestWithoutLife];
    fails(Model { fault: Fault::TakenWithSignals, ..TAKEN }, &seen);
}

#[test]
fn taken_as_if_parked() {
    let seen = [Violation::StartupLost, Violation::GuestWithoutLife];
    fails(Model { fault: Fault::TakenAsParked, ..TAKEN }, &seen);
}

#[test]
fn taken_without_a_life() {
    let seen = [Violation::EndStuck, Violation::OldStartup, Violation::GuestWithoutLife];
    fails(Model { fault: Fault::TakenInLife, ..TAKEN }, &seen);
}

#[test]
fn no_last_look_at_init() {
    let lost = [Violation::SignalLost, Violation::StartupLost];
    fails(two(Fault::NoLookAtInit), &lost);
}

#[test]
fn no_last_look_at_life() {
    fails(three(Fault::NoLookAtLife), &[Violation::EndStuck]);
}

#[test]
fn parked_as_a_flag() {
    fails(two(Fault::ParkedAsFlag), &[Violation::GuestWithoutLife]);
}

#[test]
fn signals_kept_over_an_end() {
    fails(three(Fault::SignalsKept), &[Violation::OldStartup]);
}

#[test]
fn window_after_the_last_look() {
    fails(two(Fault::WindowAfterLook), &[Violation::EndStuck]);
}

#[test]
fn ends_ored() {
    fails(three(Fault::EndsOred), &[Violation::StrangeEnd]);
}

#[test]
fn startup_for_parked_cores_only() {
    fails(two(Fault::StartupNeedsParked), &[Violation::StartupRefused]);
}

#[test]
fn startup_without_an_nmi() {
    fails(two(Fault::StartupUnrung), &[Violation::StartupLost]);
}

#[test]
fn nmi_before_its_signal() {
    fails(two(Fault::RingFirst), &[Violation::SignalLost]);
}

#[test]
fn no_look_for_requests_before_a_launch() {
    fails(two(Fault::NoStopCheck), &[Violation::RequestLost]);
}

/// A start-up interrupt that is left over, or a fresh one, starts no core that has asked for the end of that life.
/// `park` is told the life.
#[test]
fn a_core_that_asked_for_an_end_waits_for_it() {
    fails(Model { refuses_after_end: false, ..two(Fault::None) }, &[Violation::RunsAfterEnd]);
}
