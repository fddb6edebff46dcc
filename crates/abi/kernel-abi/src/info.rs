/// Words of a message that travel in registers.
pub const REGISTER_WORDS: usize = 4;
/// Most words of a message.
pub const MAX_WORDS: usize = REGISTER_WORDS + crate::BUFFER_WORDS;

/// A message's label and amounts. Bits 0 to 6: words; bit 7: a capability comes along; bits 8 to 63: the label.
/// Programs may use 55 bits of the label; bit 63 is the kernel's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Info(pub u64);

impl Info {
    const CAP: u64 = 1 << 7;
    const WORDS: u64 = Self::CAP - 1;

    /// A notification came: the badge has its bits.
    pub const NOTIFIED: Self = Self(1 << 63);

    /// Describes a message of so many words, [`MAX_WORDS`] at most: more are cut off.
    #[must_use]
    pub const fn new(label: u64, words: usize) -> Self {
        let words = if words > MAX_WORDS { MAX_WORDS } else { words };
        Self((label << 9) >> 1 | words as u64)
    }

    /// Adds the capability that the sender's [`crate::Buffer`] names.
    #[must_use]
    pub const fn with_cap(self) -> Self {
        Self(self.0 | Self::CAP)
    }

    /// Takes the capability out.
    #[must_use]
    pub const fn without_cap(self) -> Self {
        Self(self.0 & !Self::CAP)
    }

    /// Keeps only the words that fit into registers.
    #[must_use]
    pub const fn within_registers(self) -> Self {
        let words = self.0 & Self::WORDS;
        let kept = if words > REGISTER_WORDS as u64 { REGISTER_WORDS as u64 } else { words };
        Self(self.0 & !(Self::WORDS | Self::CAP) | kept)
    }

    /// Returns the number of words; more than [`MAX_WORDS`] count as that.
    #[must_use]
    pub const fn words(self) -> usize {
        let words = (self.0 & Self::WORDS) as usize;
        if words > MAX_WORDS { MAX_WORDS } else { words }
    }

    /// Tells if a capability comes along.
    #[must_use]
    pub const fn has_cap(self) -> bool {
        self.0 & Self::CAP != 0
    }

    /// Clears the bits that only the kernel sets.
    #[must_use]
    pub const fn of_a_message(self) -> Self {
        Self(self.0 & !Self::NOTIFIED.0)
    }

    /// Returns the number of words, if it is a message that fits into registers.
    #[must_use]
    pub const fn short(self) -> Option<usize> {
        let words = self.0 & (Self::NOTIFIED.0 | Self::CAP | Self::WORDS);
        if words <= REGISTER_WORDS as u64 { Some(words as usize) } else { None }
    }

    /// Returns the label, which means what sender and receiver agree on.
    #[must_use]
    pub const fn label(self) -> u64 {
        self.0 >> 8
    }
}
