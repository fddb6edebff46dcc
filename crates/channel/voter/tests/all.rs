//! Every small case of a vote, and of copies that lose their states.

use bulkhead_voter::{
    Claim, Exact, Finding, News, Output, Patient, Sight, Start, Verdict, Voter, Within, start,
};

/// Behaviour of a copy at a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Right,
    /// Another value, and another one than a second liar's.
    Lies,
    /// Another value, the one of all that conspire.
    Conspires,
    Late,
    Absent,
    /// Its last message once more.
    Doubles,
    /// A message that it left behind in an earlier life.
    FormerLife,
    Early,
}
use Does::{Absent, Conspires, Doubles, Early, FormerLife, Late, Lies, Right};
const ALL: [Does; 8] = [Right, Lies, Conspires, Late, Absent, Doubles, FormerLife, Early];

const RELEASE: u64 = 100;
const RIGHT: u64 = 7;
const LAST: u64 = 6;
const SAFE: u64 = 0;

fn claim(does: Does, copy: u64) -> Option<Claim<u64>> {
    let of = |release, value| Some(Claim { release, value });
    match does {
        Right => of(RELEASE, RIGHT),
        Lies => of(RELEASE, 1_000 + copy),
        Conspires => of(RELEASE, 666),
        Late | Doubles => of(RELEASE - 1, LAST),
        Absent => None,
        FormerLife => of(RELEASE - 40, RIGHT),
        Early => of(RELEASE + 1, RIGHT),
    }
}

fn expected(does: Does, winner: Option<u64>, claim: Option<Claim<u64>>) -> Finding {
    match does {
        Absent => Finding::Absent,
        Late | Doubles | FormerLife => Finding::Late,
        Early => Finding::Early,
        Right | Lies | Conspires => match winner {
            None => Finding::Undecided,
            Some(value) if claim.map(|claim| claim.value) == Some(value) => Finding::Agrees,
            Some(_) => Finding::Wrong,
        },
    }
}

fn judge<const N: usize>(
    does: [Does; N],
    vote: impl FnOnce(&[Option<Claim<u64>>; N]) -> Verdict<u64, N>,
) {
    let claims: [_; N] = core::array::from_fn(|copy| claim(does[copy], copy as u64));
    let many = |which| does.iter().filter(|one| **one == which).count() > N / 2;
    let winner = match (many(Right), many(Conspires)) {
        (true, _) => Some(RIGHT),
        (_, true) => Some(666),
        _ => None,
    };
    let verdict = vote(&claims);
    let (output, value) = winner.map_or((Output::Held, LAST), |value| (Output::Voted, value));
    assert_eq!((verdict.output, verdict.value), (output, value), "{does:?}");
    for copy in 0..N {
        let right = expected(does[copy], winner, claims[copy]);
        assert_eq!(verdict.findings[copy], right, "copy {copy} of {does:?}");
        let outvoted = winner.is_some() && right != Finding::Agrees;
        assert_eq!(verdict.outvoted(copy), outvoted, "copy {copy} of {does:?}");
    }
    assert!(!verdict.outvoted(N));
}

fn every<const N: usize>() {
    for number in 0..ALL.len().pow(N as u32) {
        let does =
            core::array::from_fn(|copy| ALL[number / ALL.len().pow(copy as u32) % ALL.len()]);
        judge::<N>(does, |claims| {
            let mut voter = Voter::new(Exact, SAFE, 2);
            let last = [Some(Claim { release: RELEASE - 1, value: LAST }); N];
            assert_eq!(voter.vote(RELEASE - 1, &last).output, Output::Voted);
            voter.vote(RELEASE, claims)
        });
    }
}

#[test]
fn every_case_of_two_to_five_copies() {
    every::<2>();
    every::<3>();
    every::<4>();
    every::<5>();
}

#[test]
fn one_faulty_copy_of_three_never_matters() {
    for faulty in 0..3 {
        for does in ALL {
            let mut claims = [claim(Right, 0); 3];
            claims[faulty] = claim(does, faulty as u64);
            let verdict = Voter::<_, _, 3>::new(Exact, SAFE, 0).vote(RELEASE, &claims);
            assert_eq!((verdict.output, verdict.value), (Output::Voted, RIGHT));
        }
    }
}

#[test]
fn an_output_is_held_for_so_long_and_then_safe() {
    let mut voter = Voter::<_, _, 3>::new(Exact, SAFE, 2);
    let mut vote = |release, value: Option<u64>| {
        let claims = [value.map(|value| Claim { release, value }); 3];
        let verdict = voter.vote(release, &claims);
        (verdict.output, verdict.value)
    };
    assert_eq!(vote(1, None), (Output::Safe, SAFE), "there was no output yet");
    for round in [10, 20] {
        assert_eq!(vote(round, Some(RIGHT)), (Output::Voted, RIGHT));
        assert_eq!(vote(round + 1, None), (Output::Held, RIGHT));
        assert_eq!(vote(round + 2, None), (Output::Held, RIGHT));
        assert_eq!(vote(round + 3, None), (Output::Safe, SAFE));
        assert_eq!(vote(round + 4, None), (Output::Safe, SAFE));
    }
}

/// Copies that round differently: a chain of neighbours is no majority, and the value with the most neighbours wins.
#[test]
fn tolerance_is_judged_from_one_value() {
    let vote = |values: [i64; 5]| {
        let claims = values.map(|value| Some(Claim { release: 1, value: [value, -value] }));
        Voter::<_, _, 5>::new(Within(2), [0, 0], 0).vote(1, &claims)
    };
    let verdict = vote([0, 2, 4, 6, 100]);
    assert_eq!(verdict.value, [2, -2], "it has 0 and 4 beside it, and so has 4 others");
    assert_eq!(verdict.findings[3], Finding::Wrong);
    assert_eq!(vote([0, 3, 6, 9, 12]).output, Output::Safe);
    let all = vote([3, 1, 2, 5, 4]);
    assert_eq!((all.value, all.findings), ([3, -3], [Finding::Agrees; 5]));
    let far = vote([-i64::MAX, i64::MAX, i64::MAX, 0, 0]);
    assert_eq!(far.output, Output::Safe, "differences do not overflow");
}

/// A copy as the guests have it: state of the release that it was made at. The law of its state: a number that is
/// mixed with that of the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Copy {
    own: Option<(u64, u64)>,
}

const FIRST: u64 = 1;

fn law(state: u64, release: u64) -> u64 {
    state.wrapping_mul(31).wrapping_add(release)
}

impl Copy {
    fn serve(&mut self, release: u64, agreed: Option<(u64, u64)>) -> Claim<u64> {
        let state = match start(release, self.own.map(|(of, _)| of), agreed) {
            Start::Own => self.own.map_or(FIRST, |(_, state)| state),
            Start::Given(state) => state,
            Start::Fresh => FIRST,
        };
        let value = law(state, release);
        self.own = Some((release, value));
        Claim { release, value }
    }
}

/// Things that happen to a copy before a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strikes {
    Nothing,
    /// A bit of its state flips.
    Flips,
    /// It begins anew in time for the release.
    Restarts,
    /// It misses the release.
    Misses,
}
const STRIKES: [Strikes; 4] =
    [Strikes::Nothing, Strikes::Flips, Strikes::Restarts, Strikes::Misses];

/// Three copies and their voter, which begins anew before a release, too.
#[derive(Clone)]
struct System {
    copies: [Copy; 3],
    voter: Voter<u64, Exact, 3>,
    agreed: Option<(u64, u64)>,
}

impl System {
    fn release(&mut self, release: u64, strikes: [Strikes; 3]) -> Verdict<u64, 3> {
        let mut claims = [None; 3];
        for (n, copy) in self.copies.iter_mut().enumerate() {
            match strikes[n] {
                Strikes::Nothing => {}
                Strikes::Flips => {
                    copy.own = copy.own.map(|(of, state)| (of, state ^ 1 << (10 + n)))
                }
                Strikes::Restarts => copy.own = None,
                Strikes::Misses => continue,
            }
            claims[n] = Some(copy.serve(release, self.agreed));
        }
        let verdict = self.voter.vote(release, &claims);
        if verdict.output == Output::Voted {
            self.agreed = Some((release, verdict.value));
        }
        verdict
    }
}

/// Explores all faults of all copies at three releases in a row: afterwards healthy copies agree.
#[test]
fn healthy_copies_agree_at_the_release_after_next() {
    let all: Vec<[Strikes; 3]> =
        (0..64).map(|n| [n % 4, n / 4 % 4, n / 16].map(|strike| STRIKES[strike])).collect();
    let begins =
        |agreed| System { copies: [Copy { own: None }; 3], voter: Voter::new(Exact, 0, 1), agreed };
    let mut cases = 0;
    // The first voter ever says so. A later life of it says nothing yet.
    for agreed in [Some((0, 0)), None] {
        for first in &all {
            for second in &all {
                for third in &all {
                    let mut system = begins(agreed);
                    let quiet = [Strikes::Nothing; 3];
                    for (release, strikes) in (1..).zip([quiet, *first, *second, *third]) {
                        let wrong = { strikes.iter() }.filter(|s| **s != Strikes::Nothing).count();
                        let healthy = system.copies.iter().map(|copy| copy.own);
                        let alike = healthy.clone().all(|own| own == system.copies[0].own);
                        let verdict = system.release(release, strikes);
                        if wrong <= 1 && alike {
                            assert_eq!(
                                verdict.output,
                                Output::Voted,
                                "{first:?} {second:?} {third:?}"
                            );
                        }
                    }
                    let _ = system.release(5, quiet);
                    // With a voter in its first life, or one that has voted.
                    if system.agreed.is_some() {
                        let verdict = system.release(6, quiet);
                        let case = format!(
                            "{first:?} {second:?} {third:?} {system:?}",
                            system = system.copies
                        );
                        assert_eq!(verdict.output, Output::Voted, "{case}");
                        cases += 1;
                    }
                }
            }
        }
    }
    assert!(cases > 64 * 64 * 64, "{cases}");
}

/// A copy that agrees is left alone, and a copy that does not come back is asked at a bounded rate.
#[test]
fn no_healthy_copy_begins_anew() {
    let findings = [Finding::Agrees, Finding::Wrong, Finding::Undecided, Finding::Absent];
    const GRACE: u64 = 2;
    for number in 0..4u32.pow(7) {
        let mut patient = Patient::new(GRACE, 0, 0);
        let mut last = None;
        for release in 0..7 {
            let found = findings[(number >> (2 * release) & 3) as usize];
            let majority = found != Finding::Undecided;
            let sight = Sight { found, majority, renewed: false };
            let (news, ask) = patient.look(release, sight, || 0);
            assert!(!ask || found != Finding::Agrees);
            assert!(
                !ask || last.is_none_or(|last| release >= last + GRACE) || news == News::Outvoted
            );
            last = if ask { Some(release) } else { last };
        }
    }
}
