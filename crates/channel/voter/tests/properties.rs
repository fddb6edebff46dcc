//! Properties of a vote on any claims.

use bulkhead_voter::{Claim, Exact, Finding, Output, Verdict, Voter, Within};
use proptest::prelude::*;

const RELEASE: u64 = 5;

fn claims() -> impl Strategy<Value = [Option<Claim<[i64; 2]>>; 5]> {
    let value = prop_oneof![4 => [0..6i64, 0..6i64], 1 => [any::<i64>(), any::<i64>()]];
    let release = prop_oneof![6 => Just(RELEASE), 1 => any::<u64>()];
    let claim = prop::option::weighted(0.8, (release, value));
    prop::array::uniform5(
        claim.prop_map(|claim| claim.map(|(release, value)| Claim { release, value })),
    )
}

/// Copies that the verdict is not to change with.
fn moved<T: Copy>(all: [T; 5], by: usize) -> [T; 5] {
    core::array::from_fn(|n| all[(n + by) % 5])
}

fn exact(claims: &[Option<Claim<[i64; 2]>>; 5]) -> Verdict<[i64; 2], 5> {
    Voter::new(Exact, [-1, -1], 0).vote(RELEASE, claims)
}

proptest! {
    /// The output of a vote is a claim of this release with which more than half of all copies agree.
    #[test]
    fn a_majority_stands_behind_each_output(claims in claims(), tolerance in 0..3u64) {
        let verdict = Voter::<_, _, 5>::new(Within(tolerance), [-1, -1], 0).vote(RELEASE, &claims);
        let near = |claim: &&Claim<[i64; 2]>| {
            claim.release == RELEASE
                && claim.value.iter().zip(verdict.value).all(|(a, b)| a.abs_diff(b) <= tolerance)
        };
        let votes = claims.iter().flatten().filter(near).count();
        let agree = verdict.findings.iter().filter(|found| **found == Finding::Agrees).count();
        if verdict.output == Output::Voted {
            prop_assert!(votes > 2 && agree == votes);
            prop_assert!(claims.iter().flatten().any(|claim| claim.value == verdict.value));
        } else {
            prop_assert_eq!((verdict.output, verdict.value, agree), (Output::Safe, [-1, -1], 0));
        }
    }

    /// With exact agreement no copy has a better place than another.
    #[test]
    fn places_do_not_matter(claims in claims(), by in 0..5usize) {
        let (one, other) = (exact(&claims), exact(&moved(claims, by)));
        prop_assert_eq!((one.output, one.value), (other.output, other.value));
        prop_assert_eq!(moved(one.findings, by), other.findings);
    }

    /// Three of five copies have their way against any two.
    #[test]
    fn a_minority_changes_nothing(claims in claims(), value: [i64; 2], by in 0..5usize) {
        let mut claims = moved(claims, by);
        claims[..3].fill(Some(Claim { release: RELEASE, value }));
        let verdict = exact(&claims);
        prop_assert_eq!((verdict.output, verdict.value), (Output::Voted, value));
        prop_assert_eq!(&verdict.findings[..3], &[Finding::Agrees; 3]);
    }
}
