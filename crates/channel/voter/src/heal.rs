//! When a copy is begun anew.

use crate::vote::Finding;

/// One copy, in the care of its voter.
///
/// A copy that is outvoted is begun anew at once, and then has `grace` releases to agree again. A copy that its
/// monitor has already begun anew has them, too. Without a majority no copy is to blame yet: claims of healthy copies
/// meet again at the next release ([`crate::start`]), or the input is missing. Where that lasts, all of them begin
/// anew.
#[derive(Clone, Copy, Debug)]
pub struct Patient {
    grace: u64,
    /// Number of its life, as last seen.
    life: u64,
    /// First release that it was outvoted at, since it last agreed.
    since: Option<u64>,
    /// No request before this release.
    patience: u64,
}

/// View of a copy that a voter has at a release.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    /// Finding of the vote.
    pub found: Finding,
    /// There was a majority.
    pub majority: bool,
    /// Its channel says that it began anew since the last vote.
    pub renewed: bool,
}

/// News of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing has changed.
    Nothing,
    /// It is outvoted for the first time since it last agreed.
    Outvoted,
    /// It agrees again, so many releases later.
    Back(u64),
}

impl Patient {
    /// Takes a copy into care, at a release, in a life; it has `grace` releases to come up.
    #[must_use]
    pub const fn new(grace: u64, release: u64, life: u64) -> Self {
        Self { grace, life, since: None, patience: release.saturating_add(grace) }
    }

    /// Takes the finding of a vote. `life` is asked only of a copy that is new or does not agree. True: begin it anew.
    #[must_use]
    pub fn look(&mut self, release: u64, sight: Sight, life: impl FnOnce() -> u64) -> (News, bool) {
        if sight.found == Finding::Agrees {
            if sight.renewed {
                self.life = life();
            }
            self.patience = release;
            let back = self.since.take().map(|since| News::Back(release.saturating_sub(since)));
            return (back.unwrap_or(News::Nothing), false);
        }
        let news = if self.since.is_none() { News::Outvoted } else { News::Nothing };
        let since = *self.since.get_or_insert(release);
        if !sight.majority {
            self.patience = self.patience.max(since.saturating_add(self.grace));
        }
        let life = life();
        if life != self.life {
            self.life = life;
            self.patience = release.saturating_add(self.grace);
        }
        let ask = release >= self.patience;
        if ask {
            self.patience = release.saturating_add(self.grace);
        }
        (news, ask)
    }

    /// Takes back that it was asked to begin anew: the request was refused, so the next look makes another one.
    pub const fn refused(&mut self) {
        self.patience = 0;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use Finding::{Absent, Agrees, Late, Undecided, Wrong};

    fn see(found: Finding, renewed: bool) -> Sight {
        Sight { found, majority: found != Undecided, renewed }
    }

    fn looks(patient: &mut Patient, from: u64, found: &[Finding], life: u64) -> [u64; 2] {
        let mut asked = [0; 2];
        for (release, found) in (from..).zip(found) {
            if patient.look(release, see(*found, false), || life).1 {
                asked = [asked[0] + 1, release];
            }
        }
        asked
    }

    #[test]
    fn an_outvoted_copy_begins_anew_at_once_and_then_has_time() {
        for found in [Wrong, Late, Absent, Finding::Early] {
            let mut patient = Patient::new(4, 0, 0);
            assert_eq!(looks(&mut patient, 0, &[Agrees; 10], 0)[0], 0);
            assert_eq!(looks(&mut patient, 10, &[found], 0), [1, 10]);
            // It comes up in its next life, and has time from its beginning on.
            assert_eq!(looks(&mut patient, 11, &[Absent; 4], 1)[0], 0);
            assert_eq!(patient.look(15, see(Agrees, false), || 1), (News::Back(5), false));
        }
    }

    #[test]
    fn a_copy_that_does_not_come_back_is_asked_again() {
        let mut patient = Patient::new(4, 0, 0);
        assert_eq!(looks(&mut patient, 0, &[Absent; 4], 0)[0], 0, "it is coming up");
        assert_eq!(looks(&mut patient, 4, &[Absent; 9], 0), [3, 12]);
    }

    #[test]
    fn a_copy_that_its_monitor_has_begun_anew_is_left_alone() {
        let mut patient = Patient::new(4, 0, 0);
        assert!(!patient.look(7, see(Agrees, false), || 0).1);
        assert_eq!(patient.look(8, see(Absent, false), || 1), (News::Outvoted, false));
        assert_eq!(looks(&mut patient, 9, &[Absent, Late, Wrong], 1)[0], 0);
        assert!(patient.look(12, see(Wrong, false), || 1).1, "its time is over");
    }

    /// It died and came back between two votes, and later it is outvoted: that life is known.
    #[test]
    fn a_life_that_was_never_missed_is_no_excuse() {
        for renewed in [false, true] {
            let mut patient = Patient::new(4, 0, 0);
            assert!(!patient.look(7, see(Agrees, renewed), || 1).1);
            assert_eq!(patient.look(8, see(Wrong, false), || 1).1, renewed);
        }
    }

    #[test]
    fn nobody_is_to_blame_without_a_majority_at_first() {
        let mut patient = Patient::new(4, 0, 0);
        assert!(!patient.look(50, see(Agrees, false), || 0).1);
        assert_eq!(looks(&mut patient, 51, &[Undecided; 4], 0)[0], 0);
        assert_eq!(looks(&mut patient, 55, &[Undecided], 0), [1, 55]);
        // All are silent: they may lack their input.
        let mut patient = Patient::new(4, 0, 0);
        let silence = Sight { found: Absent, majority: false, renewed: false };
        let asked = (9..14).map(|release| patient.look(release, silence, || 0).1);
        assert_eq!(asked.collect::<std::vec::Vec<_>>(), [false, false, false, false, true]);
    }

    #[test]
    fn a_refused_request_is_made_again() {
        let mut patient = Patient::new(4, 0, 0);
        assert!(!patient.look(7, see(Agrees, false), || 0).1);
        for release in 8..12 {
            assert!(patient.look(release, see(Wrong, false), || 0).1);
            patient.refused();
        }
    }
}
