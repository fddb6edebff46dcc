//! The vote.

/// Most copies of one program.
pub const MAX_COPIES: usize = 5;

/// The newest output of a copy, as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<V> {
    /// Release for which it is.
    pub release: u64,
    /// Value.
    pub value: V,
}

/// Tells if two values mean one output.
pub trait Agreement<V> {
    /// Tells if they agree.
    fn agree(&self, one: &V, other: &V) -> bool;
}

/// All bits are equal. Copies that compute exactly alike can be compared so, and no wrong bit is too small.
#[derive(Clone, Copy, Debug)]
pub struct Exact;

impl<V: PartialEq> Agreement<V> for Exact {
    fn agree(&self, one: &V, other: &V) -> bool {
        one == other
    }
}

/// Each of the integers differs by so much at most. For copies that round differently.
#[derive(Clone, Copy, Debug)]
pub struct Within(pub u64);

impl<const N: usize> Agreement<[i64; N]> for Within {
    fn agree(&self, one: &[i64; N], other: &[i64; N]) -> bool {
        one.iter().zip(other).all(|(a, b)| a.abs_diff(*b) <= self.0)
    }
}

/// Finding of a vote about a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Its claim is the majority's.
    Agrees,
    /// Its claim is another one than the majority's.
    Wrong,
    /// It made a claim, and no majority says whether it is right.
    Undecided,
    /// It made a claim for a release to come.
    Early,
    /// A claim for an earlier release came since the last vote.
    Late,
    /// Nothing came since the last vote.
    Absent,
}

/// Where an output comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A majority of the copies.
    Voted,
    /// The last majority, of an earlier release.
    Held,
    /// The safe value.
    Safe,
}

/// Outcome of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict<V, const N: usize> {
    /// Origin of the value.
    pub output: Output,
    /// Value that drives the outputs.
    pub value: V,
    /// One for each copy.
    pub findings: [Finding; N],
}

impl<V, const N: usize> Verdict<V, N> {
    /// Tells if the vote outvoted a copy.
    #[must_use]
    pub fn outvoted(&self, copy: usize) -> bool {
        let found = self.findings.get(copy);
        self.output == Output::Voted && found.is_some_and(|found| *found != Finding::Agrees)
    }
}

/// Votes, one release after the other.
#[derive(Clone, Copy, Debug)]
pub struct Voter<V, A, const N: usize> {
    agreement: A,
    safe: V,
    hold: u32,
    /// Last value of a majority, and for how many votes it was held since.
    last: Option<(V, u32)>,
}

impl<V: Copy, A: Agreement<V>, const N: usize> Voter<V, A, N> {
    /// Takes the relation, the safe value, and for how many releases in a row the last value is held before it.
    #[must_use]
    pub const fn new(agreement: A, safe: V, hold: u32) -> Self {
        const { assert!(N >= 2 && N <= MAX_COPIES) };
        Self { agreement, safe, hold, last: None }
    }

    /// Votes on the claims that came since the last vote, the newest one of each copy.
    pub fn vote(&mut self, release: u64, claims: &[Option<Claim<V>>; N]) -> Verdict<V, N> {
        let values = claims.map(|claim| match claim {
            Some(claim) if claim.release == release => Some(claim.value),
            _ => None,
        });
        let winner = self.winner(&values);
        let findings = core::array::from_fn(|copy| match (claims[copy], values[copy]) {
            (None, _) => Finding::Absent,
            (Some(claim), None) if claim.release > release => Finding::Early,
            (Some(_), None) => Finding::Late,
            (Some(_), Some(value)) => match &winner {
                None => Finding::Undecided,
                Some(winner) if self.agreement.agree(winner, &value) => Finding::Agrees,
                Some(_) => Finding::Wrong,
            },
        });
        let (output, value) = self.output(winner);
        Verdict { output, value, findings }
    }

    /// Returns the value with which most copies agree, if these are more than half of all copies.
    fn winner(&self, values: &[Option<V>; N]) -> Option<V> {
        let votes = |one: &V| {
            let all = values.iter().flatten();
            all.filter(|other| self.agreement.agree(one, other)).count()
        };
        let mut best: Option<(usize, V)> = None;
        for value in values.iter().flatten() {
            let votes = votes(value);
            if votes > N / 2 && best.as_ref().is_none_or(|(most, _)| votes > *most) {
                best = Some((votes, *value));
            }
        }
        best.map(|(_, value)| value)
    }

    fn output(&mut self, winner: Option<V>) -> (Output, V) {
        if let Some(value) = winner {
            self.last = Some((value, 0));
            return (Output::Voted, value);
        }
        match &mut self.last {
            Some((value, held)) if *held < self.hold => {
                *held += 1;
                (Output::Held, *value)
            }
            _ => (Output::Safe, self.safe),
        }
    }
}
