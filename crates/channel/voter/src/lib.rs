//! Redundant copies of a program, and the vote on their outputs.
//!
//! Time is divided into *releases*, which each core numbers by the machine's one clock ([`Releases`]). In each release
//! every copy makes a [`Claim`]: the number of the release and a value. A voter looks at a fixed instant within the
//! release, and never waits for a copy. A majority of *all* copies decides ([`Voter`]); a copy that is silent has no
//! part in it. A copy with another claim than the majority's is *outvoted*, and is begun anew behind that
//! ([`Patient`]).
//!
//! A claim is worth nothing by itself. It can be late, early, doubled, torn, or from a former life. The number of its
//! release and the other copies' values judge it.
//!
//! Copies have a state that outlives a release. Each claim carries it, so it is voted on, too. The voter publishes the
//! state that was agreed on, and a copy that begins anew goes on from there ([`start`]).
#![no_std]

mod heal;
mod newest;
mod releases;
mod start;
mod vote;

pub use heal::{News, Patient, Sight};
pub use newest::Newest;
pub use releases::Releases;
pub use start::{Start, start};
pub use vote::{Agreement, Claim, Exact, Finding, MAX_COPIES, Output, Verdict, Voter, Within};
