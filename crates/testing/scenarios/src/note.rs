//! Messages that show if they are whole.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// 64 bytes: a number, and words that follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Note {
    /// Counted by its sender.
    pub number: u64,
    words: [u64; 7],
}

impl Note {
    /// Bytes.
    pub const LEN: usize = size_of::<Self>();

    /// The one with a number.
    #[must_use]
    pub fn of(number: u64) -> Self {
        let word = |n: usize| number.wrapping_mul(0x9E37_79B9_7F4A_7C15 + 2 * n as u64);
        Self { number, words: core::array::from_fn(word) }
    }

    /// All of it as words.
    #[must_use]
    pub const fn words(&self) -> [u64; 8] {
        let [a, b, c, d, e, f, g] = self.words;
        [self.number, a, b, c, d, e, f, g]
    }

    /// Tells if all of it belongs together.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        *self == Self::of(self.number)
    }

    /// As a record: its first bytes, 8 to 64 by its number.
    #[must_use]
    pub fn part(&self) -> &[u8] {
        &self.as_bytes()[..Self::len_of(self.number)]
    }

    /// The number of a record, if it is whole.
    #[must_use]
    pub fn whole_part(bytes: &[u8]) -> Option<u64> {
        let number = u64::from_le_bytes(*bytes.first_chunk()?);
        (Self::of(number).part() == bytes).then_some(number)
    }

    fn len_of(number: u64) -> usize {
        8 + (number % 57) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_note_is_not_whole() {
        let torn = Note { number: 7, ..Note::of(8) };
        assert!(Note::of(7).is_whole() && !torn.is_whole());
        assert_eq!(Note::whole_part(Note::of(7).part()), Some(7));
        assert_eq!(Note::whole_part(torn.part()), None);
        assert_eq!(Note::whole_part(&Note::of(7).part()[1..]), None);
        assert_eq!(Note::whole_part(&[]), None);
    }
}
