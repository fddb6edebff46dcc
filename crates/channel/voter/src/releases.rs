//! Numbers of releases, by the clock alone.
//!
//! All cores read one clock, so all of them know the number of the present release without a message. A copy that has
//! just begun knows it as well as the others, and a copy that lies about it fools nobody.

/// Releases of one length since the clock was zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Releases {
    period: u64,
}

impl Releases {
    /// Releases of so many ticks of the clock, at least 1.
    #[must_use]
    pub const fn new(period: u64) -> Self {
        Self { period: if period == 0 { 1 } else { period } }
    }

    /// Returns the number of the release at this reading of the clock.
    #[must_use]
    pub const fn at(self, clock: u64) -> u64 {
        clock / self.period
    }

    /// Returns when a release begins; the clock's last instant for a release that is too far away.
    #[must_use]
    pub const fn begins(self, release: u64) -> u64 {
        release.saturating_mul(self.period)
    }

    /// Returns the first release of which the instant `offset` ticks behind its beginning is still to come.
    #[must_use]
    pub const fn next(self, clock: u64, offset: u64) -> u64 {
        self.at(clock.saturating_sub(offset)) + (clock >= offset) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_begins_where_its_number_does() {
        let all = Releases::new(10);
        for release in 0..50 {
            let begin = all.begins(release);
            assert_eq!(all.at(begin), release);
            assert_eq!(all.at(begin + 9), release);
        }
        assert_eq!(all.begins(u64::MAX), u64::MAX);
        assert_eq!(Releases::new(0).at(7), 7);
    }

    #[test]
    fn the_next_instant_is_the_first_one_to_come() {
        let all = Releases::new(10);
        for offset in 0..25 {
            for clock in 0..200 {
                let next = all.next(clock, offset);
                assert!(all.begins(next) + offset > clock, "{clock} {offset}");
                assert!(next == 0 || all.begins(next - 1) + offset <= clock, "{clock} {offset}");
            }
        }
    }
}
