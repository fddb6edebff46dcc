//! The judge of what drives the motors.

use bulkhead_flight::copies::{self, Drive, HELD, Input, SAFE, State, VOTED};
use bulkhead_sdk::println;
use core::fmt;

/// Counts of releases, by what drove the motors.
#[derive(Default)]
pub struct Judge {
    /// State of a controller without faults, behind the last vote.
    state: Option<State>,
    right: u64,
    /// A command of a vote, and not the right one.
    wrong: u64,
    held: u64,
    safe: u64,
    /// No command came in time.
    missed: u64,
}

impl Judge {
    /// Number of judged releases.
    pub fn judged(&self) -> u64 {
        self.right + self.wrong + self.held + self.safe + self.missed
    }

    /// Judges a release. Before the first vote there is nothing to judge.
    pub fn judge(&mut self, release: u64, input: &Input, drive: Option<Drive>) {
        let from = drive.map_or(0, |drive| drive.from);
        if self.state.is_none() && from != VOTED {
            return;
        }
        let (motors, next) = copies::step(&self.state.unwrap_or_else(copies::fresh), input);
        // Where nothing came, the voter was not there, and the copies went on by themselves. Without a majority they
        // begin the next release with the state of the last one.
        if !matches!(from, HELD | SAFE) {
            self.state = Some(next);
        }
        let (count, word) = match from {
            VOTED if drive.is_some_and(|drive| drive.motors == motors) => {
                self.right += 1;
                return;
            }
            VOTED => (&mut self.wrong, "wrong"),
            HELD => (&mut self.held, "held"),
            SAFE => (&mut self.safe, "safe"),
            // A voter that says anything else says nothing.
            _ => (&mut self.missed, "missed"),
        };
        *count += 1;
        println!("airframe: {release}: {word}");
    }
}

impl fmt::Display for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { right, wrong, held, safe, missed, .. } = self;
        let all = self.judged();
        write!(
            f,
            "{all} releases, {right} right, {wrong} wrong, {held} held, {safe} safe, {missed} missed"
        )
    }
}
