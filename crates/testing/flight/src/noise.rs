//! A deterministic source of noise.

use crate::math::Vec3;

/// Generator (Marsaglia's xorshift64, multiplied as Vigna proposes).
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    /// From a seed; 0 is replaced, because the generator would stay there.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(if seed == 0 { 0x9E37_79B9_7F4A_7C15 } else { seed })
    }

    /// Its state, which is a seed.
    #[must_use]
    pub const fn state(&self) -> u64 {
        self.0
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Nearly normal with deviation 1: the sum of four uniform 16-bit numbers.
    pub fn normal(&mut self) -> f32 {
        /// 4 * (2^32 - 1) / 12 is the variance of that sum.
        const DEVIATION: f32 = 37_837.227;
        let bits = self.next();
        let sum: i32 = (0..4).map(|n| (bits >> (16 * n) & 0xFFFF) as i32).sum();
        (sum - 2 * 0xFFFF) as f32 / DEVIATION
    }

    /// Three of them.
    pub fn vector(&mut self, deviation: f32) -> Vec3 {
        Vec3::new(self.normal(), self.normal(), self.normal()).scale(deviation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_centred_with_deviation_one() {
        let mut noise = Noise::new(5);
        let (mut sum, mut squares) = (0.0f64, 0.0f64);
        for _ in 0..100_000 {
            let x = f64::from(noise.normal());
            sum += x;
            squares += x * x;
        }
        assert!((sum / 1e5).abs() < 0.02);
        assert!((squares / 1e5 - 1.0).abs() < 0.02);
    }
}
