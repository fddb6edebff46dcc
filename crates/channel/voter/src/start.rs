//! The state that a copy goes on from.
//!
//! A copy that was there goes on from its own state, so that copies do not share a mistake by way of their voter. A
//! copy that was not there at the release before takes the state that the majority agreed on. All healthy copies
//! decide alike, because they read one message of the voter's. So whatever states they have, two healthy copies of
//! three agree again at the release after next at the latest.

/// State from which a copy computes a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<S> {
    /// Its own one.
    Own,
    /// The one that the majority agreed on.
    Given(S),
    /// The very first one.
    Fresh,
}

/// Decides where a copy begins `release`. `own` is the release of its own state. `agreed` is the voter's newest word
/// in its present life: a release and its state, release 0 before the first majority ever.
#[must_use]
pub fn start<S>(release: u64, own: Option<u64>, agreed: Option<(u64, S)>) -> Start<S> {
    let previous = release.checked_sub(1);
    let keeps = own.is_some() && own == previous;
    match agreed {
        // A word of the future is none.
        Some((of, _)) if of >= release && of != 0 => start(release, own, None),
        Some((0, _)) => Start::Fresh,
        Some((of, _)) if keeps && Some(of) == previous => Start::Own,
        Some((_, state)) => Start::Given(state),
        // The voter begins anew: those that fly go on.
        None if keeps => Start::Own,
        None => Start::Fresh,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_was_there_keeps_its_state() {
        assert_eq!(start(8, Some(7), Some((7, 'a'))), Start::Own);
        assert_eq!(start::<char>(8, Some(7), None), Start::Own);
        assert_eq!(start(8, Some(7), Some((8, 'a'))), Start::Own, "a word of the future");
    }

    #[test]
    fn a_copy_that_was_not_there_takes_the_majoritys() {
        assert_eq!(start(8, None, Some((7, 'a'))), Start::Given('a'));
        assert_eq!(start(8, Some(5), Some((7, 'a'))), Start::Given('a'));
        assert_eq!(start(8, Some(7), Some((6, 'a'))), Start::Given('a'), "7 had no majority");
    }

    #[test]
    fn all_begin_alike_where_there_was_no_majority_yet() {
        for own in [None, Some(6), Some(7)] {
            assert_eq!(start(8, own, Some((0, 'a'))), Start::Fresh);
        }
        assert_eq!(start::<char>(0, None, None), Start::Fresh);
        assert_eq!(start::<char>(8, Some(6), None), Start::Fresh);
    }
}
