//! A program that one sandbox leaves for another in a channel of kind `program`. The monitor of the other one runs it
//! at the next start, if it is whole, and else the one of the image.
//!
//! All of it is a claim. The head is copied once; the program is copied to where it runs, and checked there.

#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Guest-physical address of a loaded program's first byte.
pub const PROGRAM_GPA: u64 = 0x20_0000;
/// `"BHLOADED"`, stored last.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BHLOADED");
/// Two words before the place in a program for arguments of those who create it: [`ARGS`] bytes of text. No monitor
/// looks there.
pub const ARGS_MARK: [u64; 2] =
    [u64::from_le_bytes(*b"BHPART\x1A\x9D"), u64::from_le_bytes(*b"\xC3\x07argum\xE5")];
/// Bytes of that place; the text ends with a zero.
pub const ARGS: usize = 256;
/// Bytes at the end of a program's channel for the name of what was created; no monitor looks there.
pub const LABEL: u64 = 64;

/// Head of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Head {
    /// [`MAGIC`].
    pub magic: u64,
    /// Bytes behind the head, a multiple of 8.
    pub len: u64,
    /// Guest-physical address of the first instruction.
    pub entry: u64,
    /// [`sum`] of them.
    pub sum: u64,
}

/// Bytes of a [`Head`].
pub const HEAD: u64 = size_of::<Head>() as u64;

impl Head {
    /// Tells if it can be the head of a program in `room` bytes, the head's among them.
    #[must_use]
    pub fn fits(&self, room: u64) -> bool {
        let inside = self.entry.wrapping_sub(PROGRAM_GPA) < self.len;
        self.magic == MAGIC && inside && self.len.is_multiple_of(8) && self.len <= room - HEAD
    }
}

/// Returns a sum that any change of one word changes: each step is one to one.
#[must_use]
pub fn sum(words: &[u64]) -> u64 {
    words.iter().fold(MAGIC, |sum, word| (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Head = Head { magic: MAGIC, len: 4096 - HEAD, entry: PROGRAM_GPA, sum: 0 };

    #[test]
    fn a_head_that_claims_too_much_is_none() {
        assert!(WHOLE.fits(4096));
        let end = PROGRAM_GPA + WHOLE.len;
        let wrong = [
            Head { magic: 0, ..WHOLE },
            Head { len: WHOLE.len + 8, ..WHOLE },
            Head { len: WHOLE.len - 1, ..WHOLE },
            Head { len: u64::MAX - 7, ..WHOLE },
            Head { len: 0, ..WHOLE },
            Head { entry: end, ..WHOLE },
            Head { entry: PROGRAM_GPA - 1, ..WHOLE },
        ];
        wrong.iter().for_each(|head| assert!(!head.fits(4096), "{head:?}"));
    }

    #[test]
    fn a_changed_word_changes_the_sum() {
        let words = [1, 2, 3];
        for bit in 0..192 {
            let mut other = words;
            other[bit / 64] ^= 1 << (bit % 64);
            assert_ne!(sum(&other), sum(&words), "{bit}");
        }
        assert_ne!(sum(&[2, 1, 3]), sum(&words));
    }
}
