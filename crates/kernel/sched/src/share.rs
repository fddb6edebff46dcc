//! Shares of a processor without floating point, rounded so that an error is on the
//! safe side.

use core::fmt;

use crate::{Time, Utilization};

/// A share, in parts of 2^-40.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(pub u64);

/// 1.
const ONE: u64 = 1 << 40;
/// The fixed point of [`root_fits`]: two factors below 2 fit 128 bits.
const SCALE: u32 = 62;

impl Share {
    /// `part / whole`, rounded up. `whole` is not 0.
    pub fn of(part: Time, whole: Time) -> Self {
        let parts = (u128::from(part) << 40).div_ceil(whole.into());
        Self(u64::try_from(parts).unwrap_or(u64::MAX))
    }

    /// (2-U)·U of a PIBS server, rounded up.
    pub fn of_pibs(utilization: Utilization) -> Self {
        let part = u128::from(utilization.numerator());
        let whole = u128::from(utilization.denominator());
        // Below 2^32 · 2^33 · 2^40.
        let parts = (part * (2 * whole - part)) << 40;
        Self(parts.div_ceil(whole * whole) as u64)
    }

    /// Both.
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// By how much it is more.
    pub fn above(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Computes n·(2^(1/n) - 1), Liu's and Layland's bound for `n` tasks (1973), rounded down; 1 for no task.
    pub fn bound(n: u64) -> Self {
        let (mut fits, mut beyond) = (0, ONE + 1);
        while n > 0 && beyond - fits > 1 {
            let middle = fits.midpoint(beyond);
            match root_fits(middle, n) {
                true => fits = middle,
                false => beyond = middle,
            }
        }
        Self(if n == 0 { ONE } else { fits })
    }
}

/// Tells if (1 + share/n)^n <= 2, which is share <= n·(2^(1/n) - 1). All is rounded up, so that yes is always right.
fn root_fits(share: u64, n: u64) -> bool {
    let one = 1u128 << SCALE;
    let factor = one + (u128::from(share) << (SCALE - 40)).div_ceil(n.into());
    let (mut power, mut square, mut rest) = (one, factor, n);
    // By squaring: the power of each bit of n that is set.
    loop {
        if rest % 2 == 1 {
            power = (power * square).div_ceil(one);
        }
        rest /= 2;
        if power > 2 * one || rest > 0 && square > 2 * one {
            return false;
        }
        if rest == 0 {
            return true;
        }
        square = (square * square).div_ceil(one);
    }
}

/// In percent, with five digits behind the point, rounded.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = (u128::from(self.0) * 10_000_000 + u128::from(ONE / 2)) / u128::from(ONE);
        write!(f, "{}.{:05} %", digits / 100_000, digits % 100_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec;
    use std::vec::Vec;

    /// Returns a natural number, least digit first.
    fn times(number: &[u32], factor: u64) -> Vec<u32> {
        let mut carry = 0u128;
        let mut product: Vec<u32> = number
            .iter()
            .map(|digit| {
                carry += u128::from(*digit) * u128::from(factor);
                let low = carry as u32;
                carry >>= 32;
                low
            })
            .collect();
        while carry > 0 {
            product.push(carry as u32);
            carry >>= 32;
        }
        product
    }

    fn power(base: u64, n: u64) -> Vec<u32> {
        (0..n).fold(vec![1], |product, _| times(&product, base))
    }

    fn at_most(a: &[u32], b: &[u32]) -> bool {
        (a.len(), a.iter().rev().collect::<Vec<_>>()) <= (b.len(), b.iter().rev().collect())
    }

    /// (n + bound)^n <= 2·n^n, in whole numbers, and not with 2^-38 more.
    #[test]
    fn the_bound_is_rounded_down_and_close() {
        for n in (1..=64).chain([100, 255, 300]) {
            let Share(bound) = Share::bound(n);
            let twice = times(&power(n * ONE, n), 2);
            assert!(at_most(&power(n * ONE + bound, n), &twice), "{n}");
            assert!(!at_most(&power(n * ONE + bound + 4, n), &twice), "{n}");
        }
    }

    #[test]
    fn known_bounds() {
        let shown: Vec<_> = (0..4).map(|n| Share::bound(n).to_string()).collect();
        assert_eq!(shown, ["100.00000 %", "100.00000 %", "82.84271 %", "77.97631 %"]);
        // Towards ln 2 = 0.693147...
        assert_eq!(Share::bound(1 << 20).to_string(), "69.31474 %");
    }

    #[test]
    fn shares_are_rounded_up() {
        assert_eq!(Share::of(1, 3), Share(ONE / 3 + 1));
        assert_eq!(Share::of(Time::MAX, 1), Share(u64::MAX));
        assert_eq!(Share::of(1, 4).plus(Share::of(1, 2)), Share(ONE / 4 * 3));
        let u = Utilization::new(1, 25).unwrap();
        assert_eq!(Share::of_pibs(u).to_string(), "7.84000 %");
        let most = Utilization::new(u32::MAX - 1, u32::MAX).unwrap();
        assert_eq!(Share::of_pibs(most), Share(ONE));
    }
}
