//! A record of its own of devices' interrupts that are kept back, and of the writes at their sources for that. An
//! interrupt is masked when it comes again before it was acknowledged; a level-triggered line is kept back until it is.

use crate::World;
use crate::tree::must;
use bulkhead_kernel::Interrupt;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Quiet,
    /// The last one is not acknowledged.
    Came,
    KeptBack,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    /// Scripts that keep it back, and let it come again.
    scripts: [u32; 2],
    /// It is level-triggered: kept back from when it has come.
    level: bool,
    state: State,
}

/// The record, by where the interrupts' objects lie.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    lines: BTreeMap<u32, Line>,
    /// Scripts that must have been played, in this order.
    played: Vec<u32>,
    /// How often lines came that are level-triggered, and were let come again.
    pub seen: [u64; 2],
}

impl Lines {
    /// One that is there from the start.
    pub fn add(&mut self, at: u32, interrupt: &Interrupt) {
        let scripts = [interrupt.mask, interrupt.unmask];
        let level = interrupt.rests != 0;
        self.lines.insert(at, Line { scripts, level, state: State::Quiet });
    }

    /// Tells if a device can raise it: a level-triggered one that is kept back can't.
    #[must_use]
    pub fn can_come(&self, at: u32) -> bool {
        self.lines.get(&at).is_some_and(|line| !line.level || line.state == State::Quiet)
    }

    /// It comes.
    pub fn comes(&mut self, at: u32) {
        let Some(line) = self.lines.get_mut(&at) else { return };
        match (line.level, line.state) {
            (false, State::Quiet) => line.state = State::Came,
            (true, State::Quiet) | (false, State::Came) => {
                line.state = State::KeptBack;
                self.played.push(line.scripts[0]);
            }
            _ => (),
        }
        self.seen[0] += u64::from(line.level);
    }

    /// A driver acknowledges it.
    pub fn acknowledged(&mut self, at: u32) {
        let Some(line) = self.lines.get_mut(&at) else { return };
        if std::mem::replace(&mut line.state, State::Quiet) == State::KeptBack {
            self.played.push(line.scripts[1]);
            self.seen[1] += u64::from(line.level);
        }
    }

    /// Nothing else was done at the sources.
    ///
    /// # Errors
    /// The script that was.
    pub fn compare(&self, world: &World) -> Result<(), String> {
        let (played, from) = (&world.machine.played, self.played.len().saturating_sub(4));
        let same = played.len() == self.played.len() && played[from..] == self.played[from..];
        must!(same, "at the sources was played {played:?}, and should be {:?}", self.played);
        Ok(())
    }
}
