//! When which fault strikes.

use bulkhead_flight::copies::{COPIES_NS, PERIOD_NS};
use bulkhead_random::SplitMix64;

/// A kind of fault; its bit in `kinds=` is its place here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A bit of the state flips.
    State,
    /// A bit of a general register flips.
    Register,
    /// A bit of the stack in use flips.
    Stack,
    /// Each output is wrong from then on.
    Lies,
    /// Each message is for a release to come from then on.
    Early,
    /// Each message is for the release before from then on.
    Late,
    /// It loops with interrupts off.
    Stalls,
    /// The processor shuts down.
    Dies,
    /// It reads memory that it has no right to.
    Denied,
    /// It writes garbage over its channel without a pause, header and messages.
    Floods,
}

/// For so long a copy works, where all cores share the clock.
const BUSY_NS: u64 = 150_000;

/// All kinds, each at its place.
pub const KINDS: [Kind; 10] = [
    Kind::State,
    Kind::Register,
    Kind::Stack,
    Kind::Lies,
    Kind::Early,
    Kind::Late,
    Kind::Stalls,
    Kind::Dies,
    Kind::Denied,
    Kind::Floods,
];

impl Kind {
    /// Tells if it flips a bit, which may have no effect.
    pub const fn flips(self) -> bool {
        matches!(self, Self::State | Self::Register | Self::Stack)
    }
}

/// A fault to come.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub kind: Kind,
    /// Release in which it strikes, ...
    pub release: u64,
    /// ... and nanoseconds from its beginning.
    pub nanos: u64,
    /// Place, bit and value, drawn.
    pub random: u64,
}

/// All faults of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    gap: u64,
    from: u64,
    turn: u64,
    of: u64,
    seed: u64,
    kinds: u64,
    /// Release of a window in which the fault strikes, at its beginning; `None`: drawn.
    at: Option<u64>,
}

impl Plan {
    /// From arguments.
    pub fn new(argument: impl Fn(&str) -> Option<u64>) -> Self {
        let or = |key, otherwise| argument(key).unwrap_or(otherwise);
        Self {
            gap: or("gap", 20).max(8),
            from: or("from", 0),
            turn: or("turn", 0),
            of: or("of", 1).max(1),
            seed: or("seed", 1),
            kinds: or("kinds", 0),
            at: argument("at"),
        }
    }

    /// The first fault of a window that begins at `release` or later.
    pub fn next(&self, release: u64) -> Option<Fault> {
        let kinds = KINDS.iter().enumerate().filter(|(bit, _)| self.kinds >> bit & 1 != 0);
        let mut window = release.max(self.from).div_ceil(self.gap);
        while window % self.of != self.turn {
            // A turn that never comes has no fault.
            if self.turn >= self.of {
                return None;
            }
            window += 1;
        }
        let mut random = SplitMix64(self.seed ^ window.wrapping_mul(0x9E37_79B9));
        let (_, kind) = kinds.clone().nth(random.index(kinds.count()))?;
        let begin = window * self.gap;
        if let Some(at) = self.at {
            return Some(Fault {
                kind: *kind,
                release: begin + at,
                nanos: 0,
                random: random.any(),
            });
        }
        let release = begin + 1 + random.below(self.gap / 4);
        // One half of them while it works, and not while it sleeps.
        let nanos = match random.below(2) {
            0 => random.below(PERIOD_NS),
            _ => COPIES_NS + random.below(BUSY_NS),
        };
        Some(Fault { kind: *kind, release, nanos, random: random.any() })
    }

    /// The release in the middle of a fault's window.
    pub const fn middle(&self, fault: Fault) -> u64 {
        fault.release / self.gap * self.gap + self.gap / 2
    }
}
