//! Bytes as decisions. A decision takes as few bytes as it needs, so that a fuzzer
//! that changes one byte changes one decision.

use bulkhead_pci_fake::Words;

/// Rest of an input. After its end every decision is 0.
#[derive(Clone, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All of it.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Tells if nothing is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, bytes: usize) -> u64 {
        let (taken, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        taken.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.take(1) as u8
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

impl Words for Input<'_> {
    fn next(&mut self) -> u64 {
        self.take(8)
    }

    fn below(&mut self, end: usize) -> usize {
        let bytes = match end {
            0..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 8,
        };
        (self.take(bytes) % end.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_take_what_they_need_and_end_with_zeros() {
        let bytes: Vec<u8> = (1..=12).collect();
        let mut input = Input::new(&bytes);
        assert_eq!((input.below(256), input.below(65_536)), (1, 0x0302));
        assert_eq!(input.next(), 0x0B0A_0908_0706_0504);
        assert!(!input.is_empty());
        assert_eq!((input.byte(), input.is_empty()), (12, true));
        assert_eq!((input.next(), input.below(0), input.below(300)), (0, 0, 0));
    }
}
