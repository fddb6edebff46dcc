//! Numbers that look random and are equal in each run, for tests, fuzzers and models. Nothing secret rests on them.

#![no_std]

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014, section 5).
#[derive(Clone, Copy, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// The next number; any of 64 bits.
    pub const fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// One below `end`; 0 if `end` is 0. A division decides, so that seeds mean what they did in earlier runs.
    pub const fn below(&mut self, end: u64) -> u64 {
        let any = self.any();
        if end == 0 { 0 } else { any % end }
    }

    /// An index of so many things; 0 if there is none.
    pub const fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix64;

    /// The numbers that the authors' program prints for this seed.
    #[test]
    fn the_sequence_is_the_published_one() {
        let mut numbers = SplitMix64(1_234_567);
        let first = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(first.map(|_| numbers.any()), first);
        assert_eq!((numbers.below(0), numbers.below(1)), (0, 0));
        assert!((0..1000).all(|_| numbers.below(7) < 7));
    }
}
