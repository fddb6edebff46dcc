//! Signs of life of a kernel's program: a word that it moves, and looks at it of a guard.
//!
//! The word lies in memory that only the program and its guard see. The guard looks at its own period, so no switch
//! costs more. As with a monitor's [`crate::watch`], a word says that its program goes on. 0 says that it does not
//! report.

/// Beginning of the name of a thread's memory; the thread's name follows.
pub const MEMORY: &str = "alive-";

/// A guard's looks at a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Looks in a row without a move that are a hang, between two moves and before the first one; 0: never.
    patience: [u64; 2],
    word: u64,
    still: u64,
    reports: bool,
}

impl Look {
    /// Returns looks that are at least `period` apart. The program moves its word within `every`, for the first time
    /// within `first`; 0: whenever it does.
    #[must_use]
    pub const fn new(period: u64, every: u64, first: u64) -> Self {
        let period = if period == 0 { 1 } else { period };
        let first = if first == 0 { 0 } else { first / period + 1 };
        Self { patience: [every / period + 1, first], word: 0, still: 0, reports: false }
    }

    /// The program begins, and finds this word.
    pub const fn begin(&mut self, word: u64) {
        (self.word, self.still, self.reports) = (word, 0, false);
    }

    /// Looks at the word. Returns true if the program hangs: once, until the word moves or the program begins anew.
    pub const fn hangs(&mut self, word: u64) -> bool {
        if word != self.word {
            (self.word, self.still, self.reports) = (word, 0, word != 0);
            return false;
        }
        self.still = self.still.saturating_add(1);
        self.still == self.patience[if self.reports { 0 } else { 1 }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at words, and the numbers of those that find a hang.
    fn found(look: &mut Look, words: &[u64]) -> [Option<usize>; 2] {
        let mut found =
            words.iter().enumerate().filter(|(_, word)| look.hangs(**word)).map(|(n, _)| n);
        [found.next(), found.next()]
    }

    #[test]
    fn a_word_that_moves_in_time_is_no_hang() {
        // A move within 20 may show at each third look.
        let mut look = Look::new(10, 20, 0);
        assert_eq!(found(&mut look, &[1, 1, 1, 2, 2, 2, 3]), [None; 2]);
    }

    #[test]
    fn a_word_that_stays_is_found_once() {
        let mut look = Look::new(10, 20, 0);
        assert_eq!(found(&mut look, &[1, 1, 1, 1, 1, 1, 1, 1]), [Some(3), None]);
    }

    #[test]
    fn a_program_that_does_not_report_is_not_found() {
        let mut look = Look::new(10, 20, 0);
        assert_eq!(found(&mut look, &[0; 9]), [None; 2]);
        assert_eq!(found(&mut look, &[5, 0, 0, 0, 0, 0]), [None; 2]);
    }

    #[test]
    fn a_first_move_has_its_own_time() {
        let mut look = Look::new(10, 20, 50);
        assert_eq!(found(&mut look, &[0; 9]), [Some(5), None]);
        // The word of the life before is no move.
        look.begin(7);
        assert_eq!(found(&mut look, &[7; 9]), [Some(5), None]);
        look.begin(7);
        assert_eq!(found(&mut look, &[7, 7, 7, 7, 8, 8, 8, 8]), [Some(7), None]);
    }
}
